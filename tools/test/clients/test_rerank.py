"""Rerank with the clients of Cohere and Jina, unmodified, and score with three generations of the
official SDK."""
import json

import cohere
import numpy as np
import pytest
import requests

from conftest import JUDGE, ROOT, tensors

GOLDEN = ROOT / "testdata/golden/rerank-sigmoid"
DOCS = ["the cat sat on the mat", "zebra", "the tallest mountain in the world is 8849 metres tall", "zebra"]
QUERY = "how tall is the mountain"


@pytest.fixture(scope="module")
def pairs():
    """Pairs of query and document, with the scores of sentence-transformers' CrossEncoder."""
    return json.loads((GOLDEN / "texts.json").read_text()), tensors(
        GOLDEN / "golden.safetensors")["scores"].reshape(-1)


@pytest.fixture(scope="module")
def scores(judge):
    """What the native route says, by document."""
    r = requests.post(f"{judge.url}/v1/score/{JUDGE}",
                      json={"query": {"text": QUERY}, "items": [{"text": d} for d in DOCS]},
                      headers={"Accept": "application/json"})
    assert r.status_code == 200, r.text
    by = {int(s["item_id"].removeprefix("item-")): s["score"] for s in r.json()["scores"]}
    return [by[i] for i in range(len(DOCS))]


def order(scores):
    return sorted(range(len(scores)), key=lambda i: -scores[i])  # sorted is stable, as ours must be


def test_native_equals_the_reference(judge, pairs):
    for (query, text), want in zip(*pairs):
        if not query.strip() or not text.strip():  # /v1/rerank refuses what is blank, as the reference does
            continue
        r = requests.post(f"{judge.url}/v1/rerank",
                          json={"model": JUDGE, "query": query, "documents": [text]})
        assert r.status_code == 200, r.text
        assert abs(r.json()["results"][0]["relevance_score"] - want) < 1e-4, (query, text)


def test_cohere_v1(judge, scores):
    c = cohere.Client(api_key="unused", base_url=judge.url)
    r = c.rerank(model=JUDGE, query=QUERY, documents=DOCS, top_n=3, return_documents=True)
    assert [x.index for x in r.results] == order(scores)[:3]
    assert [x.relevance_score for x in r.results] == [scores[i] for i in order(scores)[:3]]
    assert [x.document.text for x in r.results] == [DOCS[i] for i in order(scores)[:3]]
    assert r.id and r.meta.api_version.version == "1"
    r = c.rerank(model=JUDGE, query=QUERY, documents=[{"title": d, "text": "x"} for d in DOCS],
                 rank_fields=["title"], max_chunks_per_doc=2)
    assert [x.index for x in r.results] == order(scores)


def test_cohere_v2(judge, scores):
    c = cohere.ClientV2(api_key="unused", base_url=judge.url)
    r = c.rerank(model=JUDGE, query=QUERY, documents=DOCS, top_n=2, max_tokens_per_doc=4096)
    assert [(x.index, x.relevance_score) for x in r.results] == [(i, scores[i]) for i in order(scores)[:2]]
    assert r.meta.api_version.version == "2"
    cut = c.rerank(model=JUDGE, query=QUERY, documents=[DOCS[2]], max_tokens_per_doc=2)
    assert cut.results[0].relevance_score != scores[2], "two tokens of a document are not all of it"


def test_cohere_errors(judge):
    c = cohere.ClientV2(api_key="unused", base_url=judge.url)
    with pytest.raises(cohere.NotFoundError) as e:
        c.rerank(model="nope", query=QUERY, documents=DOCS)
    assert "not found" in e.value.body["message"]
    with pytest.raises(cohere.BadRequestError) as e:
        cohere.Client(api_key="unused", base_url=judge.url).rerank(model=JUDGE, query=QUERY, documents=[" "])
    assert "must not be blank" in e.value.body["message"]


def test_langchain_jina(judge, scores, monkeypatch):
    from langchain_community.document_compressors import jina_rerank
    from langchain_core.documents import Document

    # the class has no setting for it
    monkeypatch.setattr(jina_rerank, "JINA_API_URL", judge.url + "/v1/rerank")
    j = jina_rerank.JinaRerank(jina_api_key="unused", model=JUDGE, top_n=2)
    out = j.compress_documents([Document(page_content=d) for d in DOCS], QUERY)
    assert [d.page_content for d in out] == [DOCS[i] for i in order(scores)[:2]]
    assert [d.metadata["relevance_score"] for d in out] == [scores[i] for i in order(scores)[:2]]
    with pytest.raises(RuntimeError, match="not found"):
        jina_rerank.JinaRerank(jina_api_key="unused", model="nope").rerank(DOCS, QUERY)


def test_jina_as_documented(judge, scores):
    r = requests.post(judge.url + "/v1/rerank", headers={"Authorization": "Bearer unused"},
                      json={"model": JUDGE, "query": QUERY, "documents": [{"text": d} for d in DOCS],
                            "top_n": 2, "return_documents": True, "truncation": True}).json()
    assert [x["document"] for x in r["results"]] == [{"text": DOCS[i]} for i in order(scores)[:2]]
    assert r["usage"]["total_tokens"] > 0 and r["model"] == JUDGE and r["object"] == "list"


def test_sdk_score(judge, pairs, sdk, tmp_path):
    (tmp_path / "pairs.json").write_text(json.dumps([pairs[0], [float(x) for x in pairs[1]]]))
    sdk("sdk_score.py", judge.url, JUDGE, sdk.version, tmp_path / "pairs.json")


def test_many_documents_are_split_inside(judge):
    texts = [f"the cat number {i} sat on the mat" for i in range(3000)]
    r = requests.post(judge.url + "/v1/rerank", json={"model": JUDGE, "query": "cat", "documents": texts})
    assert r.status_code == 200, r.text
    got = r.json()["results"]
    assert sorted(x["index"] for x in got) == list(range(3000))
    assert all(a["relevance_score"] >= b["relevance_score"] for a, b in zip(got, got[1:]))
    some = requests.post(judge.url + "/v1/rerank",
                         json={"model": JUDGE, "query": "cat", "documents": texts[:7]}).json()["results"]
    by = {x["index"]: x["relevance_score"] for x in got}
    assert all(by[x["index"]] == x["relevance_score"]
               for x in some), "a score depends on what else is in the request"
    assert np.isfinite(list(by.values())).all()
