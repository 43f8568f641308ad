"""A decoder and a ModernBERT, each an embedder and a reranker, behind every client: tiny models of
the golden data, whose vectors and scores transformers and sentence-transformers made."""
import json

import numpy as np
import pytest
import requests

from conftest import GOLDEN, PATIENCE, Server, tensors

# The decoder's model files; a ModernBERT is served from its directory alone.
EMBEDDER = """sie_id: test/qwen3
weights_path: {path}
tasks: {{encode: {{dense: {{dim: 32}}}}}}
max_sequence_length: 64
profiles:
  default:
    adapter_path: sie_server.adapters.qwen2_flash:Qwen2FlashAdapter
    max_batch_tokens: 4096
    adapter_options:
      loadtime: {{causal: true}}
      runtime:
        pooling: last
        normalize: true
        query_template: "Instruct: {{instruction}}\\nQuery:{{text}}"
        default_instruction: Given a web search query, retrieve relevant passages that answer the query
"""
RERANKER = """sie_id: test/qwen3-judge
weights_path: {path}
tasks: {{score: {{}}}}
max_sequence_length: 1024
profiles:
  default:
    adapter_path: sie_server.adapters.qwen2_flash_cross_encoder.adapter:Qwen2FlashCrossEncoderAdapter
    max_batch_tokens: 4096
    adapter_options:
      loadtime: {{yes_token: "yes", no_token: "no", input_format: qwen3, score_mode: log_softmax}}
"""


def read(name, file):
    return json.loads((GOLDEN / name / file).read_text())


def vectors(name, texts):
    """The cases of an embedder: pairs of a text and whether it is a query."""
    rows = tensors(GOLDEN / name / "golden.safetensors")["vectors"]
    return [{"text": text, "is_query": is_query, "vector": row.tolist()}
            for (text, is_query), row in zip(texts, rows, strict=True)]


def scores(name, pairs):
    """The cases of a reranker."""
    rows = tensors(GOLDEN / name / "golden.safetensors")["scores"].tolist()
    return [{"query": q, "document": d, "score": s} for (q, d), s in zip(pairs, rows, strict=True)]


def decoders():
    cases = read("judge-qwen3", "cases.json")
    judged = scores("judge-qwen3", [(c["query"], c["document"]) for c in cases])
    plain = [s for s, c in zip(judged, cases)
             if c["instruction"] is None and c["limit"] == 1024 and c["query"] and c["document"]]
    texts = [(t["text"], t["prompt_name"] == "query") for t in read("st-qwen3-last", "texts.json")]
    return {"vectors": {"test/qwen3": vectors("st-qwen3-last", texts)},
            "scores": {"test/qwen3-judge": plain}}


def modernberts():
    texts = [(t, False) for t in read("text-modernbert-embed", "texts.json")]
    pairs = scores("text-modernbert-rerank", read("text-modernbert-rerank", "texts.json"))
    return {"vectors": {"test/modernbert": vectors("text-modernbert-embed", texts)},
            "scores": {"test/modernbert-judge": [p for p in pairs if p["query"]]}}


@pytest.fixture(scope="module", params=[decoders, modernberts], ids=lambda f: f.__name__)
def models(request, tmp_path_factory):
    """A server with an embedder and a reranker, which are its defaults, and their golden data."""
    folder = tmp_path_factory.mktemp("architectures")
    if request.param is decoders:
        (folder / "qwen3.yaml").write_text(EMBEDDER.format(path=GOLDEN / "st-qwen3-last"))
        (folder / "judge.yaml").write_text(RERANKER.format(path=GOLDEN / "judge-qwen3"))
        names = "test/qwen3,test/qwen3-judge"
    else:
        names = (f"test/modernbert={GOLDEN / 'text-modernbert-embed'},"
                 f"test/modernbert-judge={GOLDEN / 'text-modernbert-rerank'}")
    with Server("--models-dir", str(folder), "--precision", "fp32", models=names,
                preload=",".join(n.split("=")[0] for n in names.split(","))).context() as server:
        server.golden = request.param()
        yield server


def documents(models):
    """The embedder, and its cases that other APIs take: texts that are no queries."""
    (model, cases), = models.golden["vectors"].items()
    return model, [c for c in cases if not c["is_query"] and c["text"]]


def close(rows, cases):
    for case, row in zip(cases, rows, strict=True):
        assert np.abs(np.float32(row) - np.float32(case["vector"])).max() < 1e-5, case["text"]


def test_sdk(models, sdk, tmp_path):
    (tmp_path / "golden.json").write_text(json.dumps(models.golden))
    sdk("sdk_architectures.py", models.url, sdk.version, tmp_path / "golden.json")


def test_openai(models):
    from openai import OpenAI

    model, cases = documents(models)
    answer = OpenAI(base_url=models.url + "/v1", api_key="-").embeddings.create(
        model=model, input=[c["text"] for c in cases])
    close([row.embedding for row in answer.data], cases)


def test_tei(models):
    """huggingface_hub's client, and the rerank route, which it does not know."""
    from huggingface_hub import InferenceClient

    _, cases = documents(models)
    close(InferenceClient(model=models.url).feature_extraction([c["text"] for c in cases]), cases)
    (_, pairs), = models.golden["scores"].items()
    for pair in pairs:
        r = requests.post(models.url + "/rerank",
                          json={"query": pair["query"], "texts": [pair["document"]]}, timeout=PATIENCE)
        assert r.status_code == 200 and abs(r.json()[0]["score"] - pair["score"]) < 1e-4, (r.text, pair)
