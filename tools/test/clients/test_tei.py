"""The clients of text-embeddings-inference, unmodified: huggingface_hub and LangChain."""
import json

import numpy as np
import pytest
import requests
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from conftest import JUDGE, MODEL, MODEL_DIR, ROOT, Server, tensors

TEXTS = ["A cat sleeps on the sofa.", "naïve café 東京 🙂", "x"]


@pytest.fixture(scope="module")
def vectors(server):
    r = requests.post(f"{server.url}/v1/encode/{MODEL}", json={"items": [{"text": t} for t in TEXTS]},
                      headers={"Accept": "application/json"})
    return np.array([i["dense"]["values"] for i in r.json()["items"]], np.float32)


def test_feature_extraction(server, vectors):
    for url in (server.url, server.url + "/embed"):  # TEI answers at its root too
        c = InferenceClient(model=url)
        assert np.array_equal(c.feature_extraction(TEXTS[0]), vectors[:1])
        assert np.array_equal(
            c.feature_extraction(TEXTS, normalize=True, truncate=True, truncation_direction="right"), vectors)
        raw = c.feature_extraction(TEXTS[0], normalize=False)
        assert np.allclose(raw / np.linalg.norm(raw), vectors[:1], atol=1e-5)


def test_sentence_similarity(server, vectors):
    got = InferenceClient(model=server.url + "/similarity").sentence_similarity(TEXTS[0],
                                                                                other_sentences=TEXTS)
    assert np.allclose(got, vectors @ vectors[0], atol=1e-5)


def test_errors_as_the_hub_client_reads_them(server):
    with pytest.raises(HfHubHTTPError) as e:
        InferenceClient(model=server.url).feature_extraction("x", prompt_name="nope")
    assert e.value.response.status_code == 422 and e.value.response.json()["error_type"] == "Validation"
    r = requests.post(server.url + "/embed", json={"inputs": []})
    assert r.status_code == 400 and r.json() == {"error": "`inputs` cannot be empty", "error_type": "Empty"}
    assert requests.post(server.url + "/rerank", json={"query": "q", "texts": ["t"]}).status_code == 424


def test_langchain(server, vectors):
    from langchain_community.embeddings import HuggingFaceInferenceAPIEmbeddings
    from langchain_huggingface import HuggingFaceEndpointEmbeddings

    e = HuggingFaceEndpointEmbeddings(model=MODEL, huggingfacehub_api_token="unused")
    e.client = InferenceClient(model=server.url)  # newer releases take no address themselves
    assert np.array_equal(np.array(e.embed_documents(TEXTS), np.float32), vectors)
    assert np.array_equal(np.array(e.embed_query(TEXTS[0]), np.float32), vectors[0])
    old = HuggingFaceInferenceAPIEmbeddings(api_key="unused", api_url=server.url + "/embed")
    assert np.array_equal(np.array(old.embed_documents(TEXTS), np.float32), vectors)


def test_tokens(server):
    import tokenizers

    tok = tokenizers.Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    tok.no_padding()
    tok.no_truncation()
    for special in (True, False):
        got = requests.post(server.url + "/tokenize",
                            json={"inputs": TEXTS, "add_special_tokens": special}).json()
        for text, tokens in zip(TEXTS, got):
            want = tok.encode(text, add_special_tokens=special)
            assert [t["id"] for t in tokens] == want.ids
            for t, (start, stop), mask in zip(tokens, want.offsets, want.special_tokens_mask):
                assert t["special"] == bool(mask)
                if not mask:  # the package counts characters, TEI bytes
                    assert (t["start"], t["stop"]) == (len(text[:start].encode()), len(text[:stop].encode()))
                    assert t["text"] == text[start:stop]
        ids = [[t["id"] for t in tokens] for tokens in got]
        assert requests.post(server.url + "/decode", json={"ids": ids}).json() == [tok.decode(i) for i in ids]


def test_info_and_health(server):
    info = requests.get(server.url + "/info").json()
    assert info["model_id"] == MODEL and info["max_input_length"] == 256 and info["model_type"] == {
        "embedding": {"pooling": "mean"}}
    assert requests.get(server.url + "/health").status_code == 200


def test_rerank_and_predict(judge):
    """The reranker is the default model of this server's scoring routes. TEI's score is the sigmoid
    of the logit."""
    golden = ROOT / "testdata/golden/rerank-sigmoid"
    pairs = json.loads((golden / "texts.json").read_text())
    logits = tensors(golden / "golden.safetensors")["logits"].reshape(-1)
    for (query, text), logit in zip(pairs, logits):
        raw = requests.post(judge.url + "/rerank", json={"query": query, "texts": [text], "raw_scores": True,
                                                         "return_text": True}).json()
        assert abs(raw[0]["score"] - logit) < 1e-3 and raw[0]["text"] == text
        score = requests.post(judge.url + "/rerank",
                              json={"query": query, "texts": [text]}).json()[0]["score"]
        assert abs(score - 1 / (1 + np.exp(-logit))) < 1e-4
        one = requests.post(judge.url + "/predict", json={"inputs": [query, text]}).json()
        batch = requests.post(judge.url + "/predict", json={"inputs": [[query, text], [text]]}).json()
        assert one == batch[0] == [{"score": score, "label": "LABEL_0"}], (one, batch)
    # as InferenceClient sends it
    r = requests.post(judge.url + "/predict", json={"inputs": "the cat sat on the mat", "parameters": {}})
    assert [p["label"] for p in r.json()] == ["LABEL_0"]


def test_sparse():
    """A SPLADE model through TEI's route equals SparseEncoder."""
    golden = ROOT / "testdata/golden/splade-bert"
    texts = json.loads((golden / "texts.json").read_text())
    want = tensors(golden / "golden.safetensors")["splade"]
    s = Server("--precision", "fp32", models=f"naver/splade-v3={golden}", preload="naver/splade-v3")
    with s.context():
        got = requests.post(s.url + "/embed_sparse", json={"inputs": texts})
        assert got.status_code == 200, got.text
        assert requests.post(s.url + "/", json={"inputs": texts}).json() == got.json()
        assert requests.get(s.url + "/info").json()["model_type"] == {"embedding": {"pooling": "splade"}}
    for row, ref in zip(got.json(), want, strict=True):
        back = np.zeros_like(ref)
        for x in row:
            back[x["index"]] = x["value"]
        assert np.allclose(back, ref, atol=1e-4)
        assert [x["index"] for x in row] == sorted(x["index"] for x in row)
