"""SIE's own integrations of 0.10.1, unmodified: LangChain, LlamaIndex, Haystack, Qdrant,
Weaviate."""
import asyncio
import json
import os

import numpy as np
import pytest
from sie_sdk import SIEClient

from conftest import DOCS, GOLDEN, JUDGE, MODEL, QUERY, tensors

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
LABELS = ["animals", "sea"]


@pytest.fixture(scope="module")
def texts(golden):
    return golden[0][:8]


@pytest.fixture(scope="module")
def vectors(server, texts):
    """What the SDK gives, which test_sdk compares with sentence-transformers."""
    with SIEClient(server.url) as c:
        return np.array([r["dense"] for r in c.encode(MODEL, [{"text": t} for t in texts])])


@pytest.fixture(scope="module")
def splade():
    return json.loads((GOLDEN / "splade-bert/texts.json").read_text()), tensors(
        GOLDEN / "splade-bert/golden.safetensors")["splade"]


@pytest.fixture(scope="module")
def labelled(heads):
    with SIEClient(heads.url) as c:
        return {x["label"]: x["score"]
                for x in c.extract("entails", {"text": DOCS[0]}, labels=LABELS)["classifications"]}


def same_weights(indices, values, want):
    got = np.zeros_like(want)
    got[list(indices)] = values
    assert np.abs(got - want).max() < 1e-4


def test_langchain(server, judge, heads, texts, vectors, ranking, splade, labelled):
    from langchain_core.documents import Document
    from sie_langchain import SIEEmbeddings, SIEExtractor, SIEReranker, SIESparseEncoder

    e = SIEEmbeddings(base_url=server.url, model=MODEL)
    assert np.array_equal(np.float32(e.embed_documents(texts)), vectors)
    assert np.array_equal(np.float32(e.embed_query(texts[0])), vectors[0])
    assert np.array_equal(np.float32(asyncio.run(e.aembed_documents(texts))), vectors)

    s = SIESparseEncoder(base_url=heads.url, model="splade")
    for rows in s.encode_documents(splade[0]), s.encode_queries(splade[0]):
        for row, want in zip(rows, splade[1], strict=True):
            same_weights(row["indices"], row["values"], want)

    r = SIEReranker(base_url=judge.url, model=JUDGE, top_k=2)
    docs = [Document(page_content=d, metadata={"n": i}) for i, d in enumerate(DOCS)]
    for out in r.compress_documents(docs, QUERY), asyncio.run(r.acompress_documents(docs, QUERY)):
        assert [d.metadata["n"] for d in out] == ranking[0][:2]
        assert [d.metadata["relevance_score"] for d in out] == ranking[1][:2]

    x = SIEExtractor(base_url=heads.url, model="entails", labels=LABELS)
    assert {c["label"]: c["score"] for c in x.invoke(DOCS[0])["classifications"]} == labelled


def test_llamaindex(server, judge, heads, texts, vectors, ranking, splade, labelled):
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from sie_llamaindex import (
        SIEEmbedding, SIENodePostprocessor, SIESparseEmbeddingFunction, create_sie_extractor_tool)

    e = SIEEmbedding(base_url=server.url, model_name=MODEL)
    assert np.array_equal(np.float32(e.get_text_embedding_batch(texts)), vectors)
    assert np.array_equal(np.float32(e.get_query_embedding(texts[0])), vectors[0])
    assert np.array_equal(np.float32(asyncio.run(e.aget_text_embedding(texts[1]))), vectors[1])

    s = SIESparseEmbeddingFunction(base_url=heads.url, model_name="splade")
    for indices, values in s.encode_documents(splade[0]), s.encode_queries(splade[0]):
        for i, v, want in zip(indices, values, splade[1], strict=True):
            same_weights(i, v, want)

    nodes = [NodeWithScore(node=TextNode(text=d, id_=str(i))) for i, d in enumerate(DOCS)]
    out = SIENodePostprocessor(base_url=judge.url, model=JUDGE, top_n=2).postprocess_nodes(nodes,
                                                                                           QueryBundle(QUERY))
    assert [int(n.node.id_) for n in out] == ranking[0][:2] and [n.score for n in out] == ranking[1][:2]

    tool = create_sie_extractor_tool(base_url=heads.url, model="entails", labels=LABELS)
    assert {c["label"]: c["score"] for c in tool.call(DOCS[0]).raw_output["classifications"]} == labelled


def test_haystack(server, judge, heads, texts, vectors, ranking, splade, labelled):
    from haystack import Document
    from sie_haystack import (SIEDocumentEmbedder, SIEExtractor, SIEMultivectorTextEmbedder, SIERanker,
                              SIESparseTextEmbedder, SIETextEmbedder)

    assert np.array_equal(
        np.float32(SIETextEmbedder(base_url=server.url, model=MODEL).run(texts[0])["embedding"]), vectors[0])
    docs = SIEDocumentEmbedder(base_url=server.url,
                               model=MODEL).run([Document(content=t) for t in texts])["documents"]
    assert np.array_equal(np.float32([d.embedding for d in docs]), vectors)
    row = SIESparseTextEmbedder(base_url=heads.url, model="splade").run(splade[0][1])["sparse_embedding"]
    same_weights(row["indices"], row["values"], splade[1][1])
    tokens = np.array(
        SIEMultivectorTextEmbedder(base_url=heads.url, model="colbert").run(DOCS[0])["multivector_embedding"])
    # a query, filled up
    assert tokens.shape == (32, 24) and np.abs(np.linalg.norm(tokens, axis=1) - 1).max() < 1e-5

    ranked = SIERanker(base_url=judge.url, model=JUDGE, top_k=3).run(
        query=QUERY, documents=[Document(content=d, meta={"n": i}) for i, d in enumerate(DOCS)])
    assert [d.meta["n"] for d in ranked["documents"]] == ranking[0][:3]
    assert [d.meta["score"] for d in ranked["documents"]] == ranking[1][:3]

    out = SIEExtractor(base_url=heads.url, model="entails", labels=LABELS).run(text=DOCS[0])
    assert {c.label: c.score for c in out["classifications"]} == labelled and out["entities"] == []


def test_qdrant(server, heads, texts, vectors):
    from sie_qdrant import SIENamedVectorizer, SIEVectorizer

    v = SIEVectorizer(base_url=server.url, model=MODEL)
    assert np.array_equal(np.float32(v.embed_documents(texts)), vectors)
    assert np.array_equal(np.float32(v.embed_query(texts[0])), vectors[0])
    named = SIENamedVectorizer(base_url=heads.url, model="colbert:both",
                               output_types=["dense", "sparse", "multivector"]).embed_documents(DOCS)
    for d in named:
        assert len(d["dense"]) == 4 * 8 * 8 and len(d["multivector"][0]) == 24
        assert len(d["sparse"]["indices"]) == len(d["sparse"]["values"]) > 0 and max(
            d["sparse"]["indices"]) < 65536


def test_weaviate(server, heads, texts, vectors, labelled):
    from sie_weaviate import SIEDocumentEnricher, SIENamedVectorizer, SIEVectorizer

    v = SIEVectorizer(base_url=server.url, model=MODEL)
    assert np.array_equal(np.float32(v.embed_documents(texts)), vectors)
    assert np.array_equal(np.float32(v.embed_query(texts[0])), vectors[0])
    named = SIENamedVectorizer(base_url=heads.url, model="colbert:both",
                               output_types=["dense", "multivector"]).embed_query(DOCS[0])
    assert len(named["dense"]) == 4 * 8 * 8 and len(named["multivector"]) == 32

    best = max(labelled, key=labelled.get)
    with SIEDocumentEnricher(base_url=heads.url, embed_model="lora", extract_model="tags",
                             classify_model="entails", classify_labels=LABELS) as e:
        docs = e.enrich(DOCS)
        assert asyncio.run(enriched_again(e)) == [d.vector for d in docs]
    assert [d.properties["text"] for d in docs] == DOCS and len(docs[0].vector) == 64
    assert docs[0].properties["classification"] == best
    assert docs[0].properties["classification_score"] == labelled[best]
    for d, text in zip(docs, DOCS):
        assert all(text[x["start"]:x["end"]] == x["text"] for x in d.entities), d.entities
    assert any(d.entities for d in docs)


async def enriched_again(enricher):
    async with enricher as e:
        return [d.vector for d in await e.aenrich(DOCS)]
