"""What models have besides dense vectors, over the real server: tiny models of the golden data,
three generations of the SDK."""
import json

import numpy as np

from conftest import GOLDEN, tensors


def questions():
    """What transformers' zero-shot pipeline answers with a tiny DeBERTa, but for labels given twice."""
    folder = GOLDEN / "text-deberta-zero"
    scores = tensors(folder / "golden.safetensors")["scores"].tolist()
    out = []
    for q in json.loads((folder / "texts.json").read_text()):
        own, scores = scores[:len(q["labels"])], scores[len(q["labels"]):]
        if len(set(q["labels"])) == len(own):
            out.append(q | {"scores": own})
    return out


def test_sdk(heads, sdk, tmp_path):
    texts = json.loads((GOLDEN / "splade-bert/texts.json").read_text())
    np.savez(tmp_path / "golden.npz", texts=np.array(texts), questions=json.dumps(questions()),
             splade=tensors(GOLDEN / "splade-bert/golden.safetensors")["splade"])
    sdk("sdk_heads.py", heads.url, sdk.version, tmp_path / "golden.npz")


def test_folds_like_sie_server(heads):
    """Texts in, MUVERA's vectors out, as the adapter and post-processors of sie-server 0.10.1 give
    them."""
    from sie_sdk import SIEClient

    golden = tensors(GOLDEN / "late/golden.safetensors")
    items = [{"text": t} for t in json.loads((GOLDEN / "late/texts.json").read_text())]
    with SIEClient(heads.url) as client:
        for role, is_query in ("query", True), ("document", False):
            key = f"expanded.{role}.muvera projected"
            rows = np.array([r["dense"] for r in client.encode("late:muvera", items, is_query=is_query)])
            assert np.abs(rows - golden[key]).max() < 1e-4 * np.abs(golden[key]).max(), role
            codes = np.array([r["dense"] for r in client.encode("late:muvera", items, is_query=is_query,
                                                                output_dtype="int8")])
            assert codes.dtype == np.int8 and np.abs(codes - golden[key + ".int8"]).max() <= 1, role
            tokens = np.concatenate([r["multivector"] for r in client.encode("late", items, is_query=is_query,
                                                                             output_types=["multivector"])])
            assert np.abs(tokens - golden[f"expanded.{role}"]).max() < 1e-4, role
