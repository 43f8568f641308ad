"""Sparse and token vectors, their folding, and extraction with one release of the official SDK; run
in a process of its own.

Usage: sdk_heads.py URL VERSION GOLDEN.npz. Exits non-zero when anything differs from what that
release documents.
"""
import asyncio
import importlib.metadata
import json
import sys

import numpy as np
from sie_sdk import SIEAsyncClient, SIEClient

url, version, path = sys.argv[1:4]
golden = np.load(path)
assert importlib.metadata.version("sie-sdk") == version, importlib.metadata.version("sie-sdk")
client = SIEClient(url)
texts = [str(t) for t in golden["texts"]]

for text, want in zip(texts, golden["splade"]):
    row = client.encode("splade", {"id": "a", "text": text}, output_types=["sparse"])
    assert row["id"] == "a", row
    got = np.zeros(len(want), np.float32)
    got[row["sparse"]["indices"]] = row["sparse"]["values"]
    assert np.abs(got - want).max() < 1e-4, text
    assert (np.diff(row["sparse"]["indices"]) > 0).all(), "columns ascend"

rows = client.encode("colbert", [{"text": t} for t in texts], output_types=["multivector"])
for text, row in zip(texts, rows):
    vectors = row["multivector"]
    assert vectors.ndim == 2 and vectors.shape[1] == 24, vectors.shape
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-5, text
query = client.encode("colbert", {"text": texts[1]}, output_types=["multivector"],
                      is_query=True)["multivector"]
assert len(query) == 32, query.shape  # filled up
scores = client.score("colbert", {"text": texts[1]},
                      [{"id": str(i), "text": t} for i, t in enumerate(texts)])["scores"]
for s in scores:
    want = (query @ rows[int(s["item_id"])]["multivector"].T).max(axis=1).sum()
    assert abs(s["score"] - want) < 1e-4, (s, want)
folded = client.encode("colbert:muvera", {"text": texts[1]})["dense"]
assert folded.shape == (4 * 8 * 8,), folded.shape

items = client.extract("moods", [{"id": "x", "text": texts[1]}, {"text": texts[4]}])
assert [len(i["classifications"]) for i in items] == [3, 3] and items[0]["id"] == "x", items
assert abs(sum(c["score"] for c in items[1]["classifications"]) - 1) < 1e-6, items
labelled = client.extract("entails", {"text": texts[1]}, labels=["animals", "sea"])
labelled = labelled[0] if isinstance(labelled, list) else labelled
assert sorted(c["label"] for c in labelled["classifications"]) == ["animals", "sea"], labelled
assert labelled["entities"] == [] and labelled["relations"] == [], labelled
for question in json.loads(str(golden["questions"])):
    of = client.extract("deberta", {"text": question["text"]}, labels=question["labels"], options={
        "hypothesis_template": question["template"], "multi_label": question["multi_label"]})
    of = of[0] if isinstance(of, list) else of
    found = {c["label"]: c["score"] for c in of["classifications"]}
    for label, score in zip(question["labels"], question["scores"]):
        assert abs(found[label] - score) < 1e-5, (question, found)

# An item that is too long fails alone; the first generation does not read item errors, and gets the
# request's.
try:
    some = client.extract("moods", [{"id": "short", "text": texts[1]}, {"id": "long", "text": "cat " * 200}],
                          options={"overflow_policy": "error"})
except Exception as e:
    assert version == "0.3.4" and getattr(e, "status_code", None) == 400 and "items[1]" in str(e), e
else:
    assert version != "0.3.4" and len(some) == 2, some
    assert "error" not in some[0] and len(some[0]["classifications"]) == 3, some
    assert some[1]["id"] == "long" and some[1]["error"]["code"] == "INPUT_TOO_LONG", some
    assert some[1]["classifications"] == [], some

# Options given once, to the constructor, reach every call: each takes its own, and answers as
# without the others.
once = SIEClient(url, options={"output_dtype": "float16", "top_k": 2})
half = once.encode("splade", {"text": texts[1]}, output_types=["sparse"])
assert half["sparse"]["values"].dtype == np.float16, half
same = once.score("colbert", {"text": texts[1]},
                  [{"id": str(i), "text": t} for i, t in enumerate(texts)])["scores"]
assert same == scores, (same, scores)
two = once.extract("moods", [{"text": texts[1]}, {"text": texts[4]}])
assert [len(i["classifications"]) for i in two] == [2, 2], two
try:
    once.extract("moods", [{"text": texts[1]}], options={"topk": 2})
except Exception as e:
    assert getattr(e, "status_code",
                   None) == 400 and "there is no such option; did you mean 'top_k'?" in str(e), e
else:
    raise AssertionError("an option that nobody knows is taken")
once.close()

# An adapter that is not there yet: the SDK waits out LORA_LOADING by itself.
plain = client.encode("lora", {"text": texts[1]})["dense"]
adapted = client.encode("lora", {"text": texts[1]}, options={"lora_id": "four"})["dense"]
assert np.abs(plain - adapted).max() > 1e-3, "the adapter changes nothing"

for bad, words in [
        (lambda: client.encode("colbert", {"text": "x"}, output_types=["sparse"]),
         "does not support output types"),
        (lambda: client.encode("splade", {"text": "x"}, output_types=["sparse"], options={"pooling": "cls"}),
         "has no use for it"),
        (lambda: client.extract("entails", {"text": "x"}), "requires labels"),
        (lambda: client.extract("splade", {"text": "x"}), "does not support extraction"),
        (lambda: client.encode("lora", {"text": "x"}, options={"lora_id": "/etc"}),
         "must name a hub repository"),
]:
    try:
        bad()
    except Exception as e:  # the class moved between releases; status and text are the contract
        assert getattr(e, "status_code", None) == 400, e
        assert words in str(e), (str(e), words)
    else:
        raise AssertionError(f"no error for {words}")


async def several():
    async with SIEAsyncClient(url) as c:
        one, two, three = await asyncio.gather(
            c.encode("colbert", {"text": texts[1]}, output_types=["multivector"]),
            c.extract("moods", [{"id": "x", "text": texts[1]}, {"text": texts[4]}]),
            c.encode("splade", {"text": texts[1]}, output_types=["sparse"], output_dtype="float16"))
    assert np.array_equal(one["multivector"], rows[1]["multivector"])
    assert [i["classifications"] for i in two] == [i["classifications"]
                                                   for i in items] and two[0]["id"] == "x"
    assert three["sparse"]["values"].dtype == np.float16


asyncio.run(several())
client.close()
print("ok", version)
