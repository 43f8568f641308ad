"""What LlamaIndex, LangChain and Haystack bring for OpenAI's, Jina's and TEI's servers,
unmodified."""
import asyncio
import os

import numpy as np
import pytest
from huggingface_hub import InferenceClient
from sie_sdk import SIEClient

from conftest import DOCS, JUDGE, MODEL, QUERY

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
TEXTS = ["A cat sleeps on the sofa.", "naïve café 東京 🙂", "x"]


@pytest.fixture(scope="module")
def vectors(server):
    with SIEClient(server.url) as c:
        return np.array([r["dense"] for r in c.encode(MODEL, [{"text": t} for t in TEXTS])])


@pytest.fixture(scope="module")
def nodes():
    from llama_index.core.schema import NodeWithScore, TextNode

    return [NodeWithScore(node=TextNode(text=d, id_=str(i))) for i, d in enumerate(DOCS)]


def embeddings(server):
    from llama_index.embeddings.jinaai import JinaEmbedding
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

    yield "tei", TextEmbeddingsInference(model_name=MODEL, base_url=server.url)
    yield "openai", OpenAILikeEmbedding(model_name=MODEL, api_base=server.url + "/v1", api_key="unused")
    jina = JinaEmbedding(model=MODEL, api_key="unused")
    jina._api.api_url = server.url + "/v1/embeddings"  # the class has no setting for it
    yield "jina", jina


def test_llamaindex_embeddings(server, vectors):
    for name, e in embeddings(server):
        assert np.allclose(e.get_text_embedding_batch(TEXTS), vectors, atol=1e-6), name
        assert np.allclose(e.get_query_embedding(TEXTS[1]), vectors[1], atol=1e-6), name
        assert np.allclose(asyncio.run(e.aget_text_embedding_batch(TEXTS)), vectors, atol=1e-6), name


def test_llamaindex_rerankers(judge, nodes, ranking):
    from llama_index.core.schema import QueryBundle
    from llama_index.postprocessor.jinaai_rerank import JinaRerank
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

    out = JinaRerank(model=JUDGE, top_n=3, base_url=judge.url + "/v1", api_key="unused").postprocess_nodes(
        nodes, QueryBundle(QUERY))
    assert [int(n.node.id_) for n in out] == ranking[0][:3] and np.allclose([n.score for n in out],
                                                                            ranking[1][:3], atol=1e-6)
    out = TextEmbeddingInference(base_url=judge.url, top_n=3).postprocess_nodes(nodes, QueryBundle(QUERY))
    assert [int(n.node.id_) for n in out] == ranking[0][:3] and np.allclose([n.score for n in out],
                                                                            ranking[1][:3], atol=1e-6)
    with pytest.raises(RuntimeError, match="not found"):
        JinaRerank(model="nope", base_url=judge.url + "/v1", api_key="unused").postprocess_nodes(
            nodes, QueryBundle(QUERY))


def test_langchain_jina_embeddings(server, vectors, monkeypatch):
    from langchain_community.embeddings import jina

    # the class has no setting for it
    monkeypatch.setattr(jina, "JINA_API_URL", server.url + "/v1/embeddings")
    e = jina.JinaEmbeddings(jina_api_key="unused", model_name=MODEL)
    assert np.allclose(e.embed_documents(TEXTS), vectors, atol=1e-6)
    assert np.allclose(e.embed_query(TEXTS[0]), vectors[0], atol=1e-6)


def test_haystack_openai(server, vectors, monkeypatch):
    from haystack import Document
    from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder

    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    one = OpenAITextEmbedder(model=MODEL, api_base_url=server.url + "/v1").run(TEXTS[0])
    assert np.allclose(one["embedding"], vectors[0], atol=1e-6) and one["meta"]["usage"]["prompt_tokens"] > 0
    docs = OpenAIDocumentEmbedder(model=MODEL, api_base_url=server.url + "/v1").run(
        [Document(content=t) for t in TEXTS])["documents"]
    assert np.allclose([d.embedding for d in docs], vectors, atol=1e-6)


def test_hub_text_classification(judge):
    # it takes the first of what TEI lists
    best = InferenceClient(model=judge.url + "/predict").text_classification(DOCS[0])
    assert best["label"] == "LABEL_0" and 0 < best["score"] < 1
