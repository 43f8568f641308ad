"""The openai package, unmodified."""
import asyncio
import base64

import numpy as np
import openai
import pytest

from conftest import MODEL, MODEL_DIR


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)


def test_vectors(client, golden):
    texts, vectors = golden
    r = client.embeddings.create(model=MODEL, input=texts[:20])  # the package asks for base64 by itself
    assert [d.index for d in r.data] == list(range(20))
    for d, ref in zip(r.data, vectors):
        v = np.array(d.embedding, np.float32)
        assert v @ ref / np.linalg.norm(v) > 0.9995
    assert r.model == MODEL and r.object == "list"


def test_float_and_base64_agree(client):
    a = client.embeddings.create(model=MODEL, input="hello", encoding_format="float").data[0].embedding
    b = client.embeddings.create(model=MODEL, input="hello", encoding_format="base64").data[0].embedding
    assert np.array_equal(np.array(a, np.float32), np.frombuffer(base64.b64decode(b), "<f4"))


def test_true_token_counts_and_token_input(client):
    import tokenizers

    tok = tokenizers.Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    tok.no_padding()
    tok.no_truncation()
    texts = ["hello world", "naïve café 東京 🙂"]
    ids = [tok.encode(t).ids for t in texts]
    by_text = client.embeddings.create(model=MODEL, input=texts)
    assert by_text.usage.prompt_tokens == by_text.usage.total_tokens == sum(map(len, ids))
    by_ids = client.embeddings.create(model=MODEL, input=ids)
    assert [d.embedding for d in by_ids.data] == [d.embedding for d in by_text.data]
    assert client.embeddings.create(model=MODEL, input=ids[0]).data[0].embedding == by_text.data[0].embedding


def test_dimensions_truncate_and_renormalise(client):
    full = np.array(client.embeddings.create(model=MODEL, input="hello").data[0].embedding, np.float32)
    cut = np.array(client.embeddings.create(model=MODEL, input="hello", dimensions=64).data[0].embedding,
                   np.float32)
    assert cut.shape == (64,)
    assert np.allclose(cut, full[:64] / np.linalg.norm(full[:64]), atol=1e-6)


def test_largest_batch(client):
    """OpenAI's own limit, 2,048 texts, as texts and as token ids."""
    texts = [str(i) for i in range(2048)]
    r = client.embeddings.create(model=MODEL, input=texts)
    assert [d.index for d in r.data] == list(range(2048)) and {len(d.embedding) for d in r.data} == {384}
    some = client.embeddings.create(model=MODEL, input=texts[1000:1003])
    assert [d.embedding for d in some.data] == [d.embedding for d in r.data[1000:1003]]
    ids = client.embeddings.create(model=MODEL, input=[[101, 1000 + i, 102] for i in range(2048)])
    assert len(ids.data) == 2048 and ids.usage.prompt_tokens == 3 * 2048


def test_async(server):
    async def run():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0) as c:
            a, b = await asyncio.gather(
                *(c.embeddings.create(model=MODEL, input=t, dimensions=32) for t in ("hello", "world")))
            with pytest.raises(openai.BadRequestError) as e:
                await c.embeddings.create(model=MODEL, input=[])
        return a.data[0].embedding, b.data[0].embedding, e.value

    a, b, e = asyncio.run(run())
    assert len(a) == len(b) == 32 and a != b
    assert (e.status_code, e.type, e.param) == (400, "invalid_request_error", "input")


@pytest.mark.parametrize("kwargs,param,code", [
    ({"input": "x", "dimensions": 385}, "dimensions", "unsupported_field"),
    ({"input": "x", "encoding_format": "int4"}, "encoding_format", "invalid_request"),
    ({"input": [[1, 2, 10**6]]}, "input", "invalid_request"),
    ({"input": "x", "model": "nope"}, "model", "model_not_found"),
])
def test_fields_of_errors(client, kwargs, param, code):
    with pytest.raises(openai.APIStatusError) as e:
        client.embeddings.create(**({"model": MODEL} | kwargs))
    assert e.value.param == param and e.value.type == "invalid_request_error" and e.value.request_id, vars(
        e.value)
    assert e.value.code == code, e.value.code


@pytest.mark.parametrize("kwargs,kind,words", [
    ({"model": "nope", "input": "x"}, openai.NotFoundError, "not found"),
    ({"model": MODEL, "input": ""}, None, None),
    ({"model": MODEL, "input": []}, openai.BadRequestError, "empty"),
    ({"model": MODEL, "input": "x", "dimensions": 385}, openai.BadRequestError, "384"),
    ({"model": MODEL, "input": "x", "dimensions": 0}, openai.BadRequestError, "dimensions"),
    ({"model": MODEL, "input": [[1, 2, 10**6]]}, openai.BadRequestError, "vocabulary"),
    ({"model": MODEL, "input": "x", "encoding_format": "int4"}, openai.BadRequestError, "encoding_format"),
])
def test_bad_input(client, kwargs, kind, words):
    if kind is None:  # an empty text is a text
        kind = ()
    try:
        client.embeddings.create(**kwargs)
    except openai.APIStatusError as e:
        assert isinstance(e, kind), e
        assert words in e.body["message"] and e.body["type"] == "invalid_request_error", e.body
    else:
        assert kind == (), kwargs
