"""Writes the torch files of torch_test.go with PyTorch itself: python make_torch.py FOLDER

Made with torch 2.15.0 and safetensors 0.8.0. Each NAME.bin has a NAME.safetensors beside it,
written by the reference library from the same tensors made contiguous; `sharded` is a folder of two
shards and an index. evil.bin, legacy.bin and script.bin must be refused.
"""

import json
import os
import pathlib
import sys
from collections import OrderedDict

import torch
from safetensors.torch import save_file

out = pathlib.Path(sys.argv.pop())
generator = torch.Generator().manual_seed(1)


def rand(*shape):
    return torch.randn(shape, generator=generator)


def flat(value, prefix=""):
    tensors = {}
    for key, v in value.items():
        if isinstance(v, torch.Tensor):
            tensors[prefix + key] = v.detach().clone().contiguous()
        elif isinstance(v, dict) and all(isinstance(k, str) for k in v):
            tensors |= flat(v, f"{prefix}{key}.")
    return tensors


def write(name, value, **kwargs):
    torch.save(value, out / f"{name}.bin", **kwargs)
    save_file(flat(value), out / f"{name}.safetensors")


dtypes = {
    "f32": rand(4, 6), "f16": rand(3).half(), "bf16": rand(2, 2).bfloat16(), "f64": rand(2).double(),
    "i64": torch.tensor([[-1, 2**40]]), "i32": torch.tensor([-(2**31)], dtype=torch.int32),
    "i16": torch.tensor([-300], dtype=torch.int16), "i8": torch.tensor([-128, 5], dtype=torch.int8),
    "u8": torch.tensor([0, 255], dtype=torch.uint8), "bool": torch.tensor([True, False]),
    "scalar": torch.tensor(42.5), "empty": torch.zeros(0, 7), "größe": torch.tensor([9.0]),
}
write("dtypes", dtypes)

base = rand(6, 10)
views = {"base": base, "tied": base, "rows": base[2:5], "row": base[3], "columns": base[:, 4:7],
         "transposed": base.t(), "every": base[::2, 1::3],
         "deep": rand(2, 3, 4, 5).permute(2, 0, 3, 1)[1:, :, ::2], "one": base[:, 3:4],
         "parameter": torch.nn.Parameter(base[1:]), "half": rand(5, 4).half().t(),
         "bytes": torch.arange(12, dtype=torch.uint8).reshape(3, 4).t(),}
write("views", views)

module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.LayerNorm(5), torch.nn.Embedding(4, 5))
module[1].register_buffer("count", torch.tensor(7))
state = module.state_dict()
assert isinstance(state, OrderedDict) and state._metadata
write("module", state)
write("protocol4", state, pickle_protocol=4)
write("nested", {"epoch": 3, "loss": 0.25, "name": "x", "big": -(2**40), "list": [1, 2, {"x": 1}],
                 "none": None, "flag": True, "by_number": {1: rand(2)}, "tuple": (1, 2, 3, 4),
                 "model": {"encoder": state, "head": OrderedDict(weight=rand(1, 5))}})

shards = [{"a.weight": rand(2, 3)}, {"a.bias": rand(2), "unlisted": rand(1)}]
index = {}
(out / "sharded").mkdir(exist_ok=True)
for i, shard in enumerate(shards):
    file = f"pytorch_model-{i + 1:05d}-of-00002.bin"
    torch.save(shard, out / "sharded" / file)
    index |= {k: file for k in shard if k != "unlisted"}
(out / "sharded/pytorch_model.bin.index.json").write_text(
    json.dumps({"metadata": {"total_size": 32}, "weight_map": index}, indent=2) + "\n")
save_file({k: v for s in shards for k, v in s.items() if k != "unlisted"}, out / "sharded.safetensors")


class Evil:
    def __reduce__(self):
        return os.system, ("touch it-ran",)


torch.save({"weight": rand(1), "evil": Evil()}, out / "evil.bin")
torch.save(dtypes, out / "legacy.bin", _use_new_zipfile_serialization=False)
torch.jit.script(torch.nn.Linear(2, 2)).save(out / "script.bin")
