"""Extraction with one release of the official SDK over tiny GLiNER and GLiClass models and a union; run in a
process of its own.

Usage: sdk_extract.py URL VERSION CASES.json. Exits non-zero when an answer is not the package's, or
differs between the synchronous and the asynchronous client, or alone and in company.
"""
import asyncio
import importlib.metadata
import json
import pathlib
import sys

from sie_sdk import SIEAsyncClient, SIEClient

url, version, path = sys.argv[1:4]
cases = json.loads(pathlib.Path(path).read_text())
assert importlib.metadata.version("sie-sdk") == version, importlib.metadata.version("sie-sdk")
client = SIEClient(url)


def one(answer):
    return answer[0] if isinstance(answer, list) else answer


def same_entities(found, case):
    assert len(found) == len(case["entities"]), (case, found)
    for got, want in zip(found, case["entities"]):
        assert case["text"][got["start"]:got["end"]] == got["text"] == want["text"], (case["text"], got)
        assert (got["label"], got["start"], got["end"]) == (want["label"], want["start"], want["end"]), got
        assert abs(got["score"] - want["score"]) < 1e-4, (got, want)


def same_classes(found, case):
    best = {c["label"]: c["score"] for c in found}
    for want in case["classes"]:
        assert abs(best[want["label"]] - want["score"]) < 1e-4, (case, found)
    assert [c["score"] for c in found] == sorted((c["score"] for c in found), reverse=True), found


def same(answer, case):
    if "classes" in case:
        same_classes(answer["classifications"], case)
        assert answer["entities"] == [], answer
    else:
        same_entities(answer["entities"], case)
        assert answer["classifications"] == [], answer
    assert answer["relations"] == [] and answer["objects"] == [], answer


answers = []
for case in cases:
    answers.append(one(client.extract(case["model"], {"id": "a", "text": case["text"]}, labels=case["labels"],
                                      options=case["options"])))
    same(answers[-1], case)
    assert answers[-1]["id"] == "a", answers[-1]

# In company, with another order, an answer is the same to the last bit.
for case, alone in zip(cases, answers):
    items = [{"id": "x", "text": "Bob met Ann in Berlin"}, {"id": "a", "text": case["text"]},
             {"id": "y", "text": "no"}]
    rows = client.extract(case["model"], items, labels=case["labels"], options=case["options"])
    assert [r["id"] for r in rows] == ["x", "a", "y"], rows
    for key in "entities", "classifications":
        assert rows[1][key] == alone[key], (case, rows[1], alone)


async def several():
    async with SIEAsyncClient(url) as c:
        return await asyncio.gather(*[
            c.extract(case["model"], [{"id": "a", "text": case["text"]}], labels=case["labels"],
                      options=case["options"]) for case in cases])


for case, alone, rows in zip(cases, answers, asyncio.run(several())):
    got = one(rows)
    for key in "entities", "classifications":
        assert got[key] == alone[key], (case, got, alone)

# Without labels, the union asks for its own.
standard = one(client.extract("union", {"text": "Angela Merkel lived in Berlin"}))
given = one(client.extract("union", {"text": "Angela Merkel lived in Berlin"}, labels=["person", "city"]))
assert standard["entities"] == given["entities"] != [], (standard, given)

# An item that cannot be read is answered with an error of its own. The first generation does not
# read item errors, and gets the request's.
try:
    rows = client.extract("spans", [{"id": "blank", "text": " \n"}, {"id": "fine", "text": "Berlin"}],
                          labels=["city"], options={"threshold": 0.0})
except Exception as e:
    assert version == "0.3.4" and getattr(e, "status_code", None) == 400 and "items[0]" in str(e), e
else:
    assert version != "0.3.4", rows
    assert rows[0]["error"]["code"] == "INVALID_INPUT" and "items[0]" in rows[0]["error"]["message"], rows
    assert rows[0]["entities"] == [] and rows[1]["id"] == "fine" and rows[1]["entities"], rows

client.close()
print("ok", version)
