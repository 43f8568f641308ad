"""Score with one release of the official SDK; run in a process of its own, with the release on
PYTHONPATH.

Usage: sdk_score.py URL MODEL VERSION PAIRS.json. Exits non-zero when anything differs from what
that release documents.
"""
import asyncio
import importlib.metadata
import json
import sys

from sie_sdk import SIEAsyncClient, SIEClient

url, model, version, path = sys.argv[1:5]
pairs, want = json.load(open(path))
assert importlib.metadata.version("sie-sdk") == version, importlib.metadata.version("sie-sdk")
client = SIEClient(url)

for (query, text), score in zip(pairs, want):
    r = client.score(model, {"text": query}, [{"text": text}])
    assert r["model"] == model and "query_id" not in r, r
    one, = r["scores"]
    assert one["item_id"] == "item-0" and one["rank"] == 0 and abs(one["score"] - score) < 1e-4, (one, score)

items = [{"id": f"d{i}", "text": text} for i, (_, text) in enumerate(pairs)]
r = client.score(model, {"id": "q7", "text": "cat"}, items + [{"id": "again", "text": items[0]["text"]}])
assert r["query_id"] == "q7" and [s["rank"] for s in r["scores"]] == list(range(len(items) + 1)), r
assert all(a["score"] >= b["score"] for a, b in zip(r["scores"], r["scores"][1:])), r
ids = [s["item_id"] for s in r["scores"]]
assert sorted(ids) == sorted([i["id"] for i in items] + ["again"])
assert ids.index("again") == ids.index("d0") + 1, ids  # equal scores keep their order
if version == "0.10.1":
    assert r["usage"]["input_tokens"] > 0, r

for bad, status, words in [
    (lambda: client.score("no/model", {"text": "q"}, [{"text": "d"}]), 404, "not found"),
    (lambda: client.score(model, {"text": "q"}, [{}]), 400, "requires text input"),
    (lambda: client.score(model, {}, [{"text": "d"}]), 400, "Field 'query' has no text"),
]:
    try:
        bad()
    except Exception as e:  # the class moved between releases; status and text are the contract
        assert getattr(e, "status_code", None) == status, (e, status)
        assert words in str(e), (str(e), words)
    else:
        raise AssertionError(f"no error for {words}")


async def several():
    async with SIEAsyncClient(url) as c:
        got = await asyncio.gather(*(c.score(model, {"text": q}, [{"text": t}]) for q, t in pairs))
    for r, score in zip(got, want):
        assert abs(r["scores"][0]["score"] - score) < 1e-4, (r, score)


asyncio.run(several())
client.close()
print("ok", version)
