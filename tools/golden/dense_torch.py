"""The Dense module of st-qwen2-dense in the file that sentence-transformers wrote before safetensors.

    python tools/golden/dense_torch.py

    st-qwen2-dense-torch   2_Dense_24/pytorch_model.bin, and its config.json in the older form
"""

import json
import shutil

import torch
from safetensors.torch import load_file

import manifest


def main() -> None:
    source = manifest.GOLDEN / "st-qwen2-dense" / "2_Dense"
    case = manifest.GOLDEN / "st-qwen2-dense-torch"
    shutil.rmtree(case, ignore_errors=True)
    folder = case / "2_Dense_24"
    folder.mkdir(parents=True)
    torch.save(load_file(source / "model.safetensors"), folder / "pytorch_model.bin")
    config = {"in_features": 32, "out_features": 24, "bias": True,
              "activation_function": "torch.nn.modules.linear.Identity"}
    (folder / "config.json").write_text(json.dumps(config) + "\n")
    manifest.write(case, "python tools/golden/dense_torch.py", "the Dense module of st-qwen2-dense",
                   "float32", {})


if __name__ == "__main__":
    main()
