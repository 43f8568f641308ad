"""Texts through sie-server's own BGE-M3 adapter: its three outputs and its scores.

    build/venv-sie/bin/python tools/golden/m3_text.py        (make golden-sie; the adapter needs sie-server whole, and Python 3.12)

One case, testdata/golden/m3-text: the heads colbert_linear.pt and sparse_linear.pt of a model whose
other files are those of st-xlmr-mean-torch, pooled by its first token and without prompts;
texts.json; and in golden.safetensors

    dense [B, 64] f32; counts [B] int32, columns int32, weights f32     columns ascending
    vectors [T, 64] f32, cu [B+1] int32
    raw_dense, raw_vectors          the same with the option normalize: false
    scores.<n> [B] f32              of all texts against the first one, for n of the manifest's "scores": instruction and options

Every text is encoded alone, in float32.
"""

import json
import logging
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from sie_server.adapters.bge_m3 import BGEM3Adapter
from sie_server.types.inputs import Item

import coarse
import manifest

BASE = "st-xlmr-mean-torch"
TEXTS = [
    "the cat sat on the mat",
    "naïve café 東京 🙂 <s> </s> <mask>",
    "",
    "a",
    "what is the tallest mountain in the world and how tall is it really when one counts from the sea floor",
]
SCORES = [{"options": {"score_mode": mode}} for mode in ("dense", "sparse", "colbert", "hybrid")] + [
    {"options": {}},
    {"options": {"score_mode": "hybrid"}, "instruction": "find this:"},
    {"options": {"score_mode": "hybrid", "score_weights": {"dense": 1, "sparse": 2}}},
    {"options": {"score_mode": "hybrid", "score_weights": {"colbert": 0}}},
]


def main() -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    case = manifest.GOLDEN / "m3-text"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    generator = torch.Generator().manual_seed(261)
    for name, rows in ("colbert_linear", 64), ("sparse_linear", 1):
        torch.save({"weight": coarse.normal((rows, 64), 1 / 8, generator),
                    "bias": torch.randn(rows, generator=generator) * 0.3}, case / f"{name}.pt")
    with tempfile.TemporaryDirectory() as root:
        model = Path(root) / "model"
        shutil.copytree(manifest.GOLDEN / BASE, model)
        for head in case.glob("*.pt"):
            shutil.copy(head, model)
        adapter = BGEM3Adapter(model, max_seq_length=32, compute_precision="float32")
        adapter.load("cpu")
        items = [Item(text=t) for t in TEXTS]
        plain = [adapter.encode([i], ["dense", "sparse", "multivector"]) for i in items]
        raw = [adapter.encode([i], ["dense", "multivector"], options={"normalize": False}) for i in items]
        scores = [adapter.score(items[0], items, instruction=s.get("instruction"), options=s["options"])
                  for s in SCORES]

    rows = [o.sparse[0] for o in plain]
    order = [np.argsort(r.indices) for r in rows]
    tensors = {"dense": np.stack([o.dense[0] for o in plain]), "raw_dense": np.stack(
        [o.dense[0] for o in raw]), "vectors": np.concatenate([o.multivector[0] for o in plain]),
               "raw_vectors": np.concatenate([o.multivector[0] for o in raw]),
               "cu": np.cumsum([0] + [len(o.multivector[0]) for o in plain]).astype(np.int32),
               "counts": np.array([len(r.indices) for r in rows], dtype=np.int32),
               "columns": np.concatenate([r.indices[o] for r, o in zip(rows, order)]).astype(np.int32),
               "weights": np.concatenate([r.values[o] for r, o in zip(rows, order)]),} | {
                   f"scores.{n}": np.array(s, dtype=np.float32) for n, s in enumerate(scores)}
    (case / "texts.json").write_text(json.dumps(TEXTS, indent=1, ensure_ascii=False) + "\n")
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, case / "golden.safetensors")
    manifest.write(case, "build/venv-sie/bin/python tools/golden/m3_text.py", BASE, "float32",
                   {"sie-server": version("sie-server"), "scores": SCORES})
    print({k: v.shape for k, v in tensors.items()})


if __name__ == "__main__":
    main()
