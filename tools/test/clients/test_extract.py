"""Entities and classes of tiny GLiNER and GLiClass models and of a union, over the real server and a
cluster: three generations of the SDK, LangChain and LlamaIndex, both encodings, and bad requests."""
import asyncio
import json
import urllib.error
import urllib.request

import msgpack
import pytest

from conftest import GOLDEN, PATIENCE

FAMILY, ACCENT = "\U0001F469\u200d\U0001F467", "e\u0301"
ARABIC, TOKYO = "\u0628\u0631\u0644\u064a\u0646", "\u6771\u4eac\u90fd"
EMOJI = f"caf\u00e9 {ACCENT} na\u00efve \U0001F642 {FAMILY} Berlin {ARABIC} {TOKYO}\u306b Ann"

PLAIN = "\U0001F642 Angela Merkel lived in Berlin, not in New York."


def cases():
    """What the packages and the adapters of sie-server 0.10.1 answer."""
    out = []
    for model, case in ("spans", "gliner-bert-span"), ("words", "gliner-bert-token"):
        for text in json.loads((GOLDEN / case / "texts.json").read_text()):
            for q in text["requests"][:3]:
                out.append({"model": model, "text": text["text"], "labels": text["labels"],
                            "entities": q["entities"],
                            "options": {k: q[k] for k in ("threshold", "flat_ner", "multi_label")}})
    for c in json.loads((GOLDEN / "gliner-union/cases.json").read_text()):
        if c["own"] or c["merge"]:
            continue
        entities = [{"text": c["text"][start:end], "label": c["labels"][label], "score": score,
                     "start": start, "end": end} for start, end, label, score in c["entities"]]
        out.append({"model": "union", "text": c["text"], "labels": c["labels"], "options": c["options"],
                    "entities": entities})
    for q in json.loads((GOLDEN / "gliclass-modern/texts.json").read_text()):
        if q.get("prompt") or q.get("examples") or len(q["labels"]) == 1:
            continue
        out.append({"model": "classes", "text": q["text"], "labels": q["labels"], "options": {},
                    "classes": q["single-label"]})
    return out


def test_sdk(heads, sdk, tmp_path):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(cases()))
    sdk("sdk_extract.py", heads.url, sdk.version, path)


def ask(url, model, body, encoding="json"):
    """Returns the status and the decoded answer. An error is JSON, whatever was asked for."""
    kind = f"application/{encoding}"
    data = json.dumps(body).encode() if encoding == "json" else msgpack.packb(body)
    request = urllib.request.Request(f"{url}/v1/extract/{model}", data,
                                     {"Content-Type": kind, "Accept": kind})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as r:
            status, sent, answer = r.status, r.headers["Content-Type"], r.read()
    except urllib.error.HTTPError as e:
        status, sent, answer = e.code, e.headers["Content-Type"], e.read()
    assert sent == ("application/json" if status != 200 else kind), sent
    return status, json.loads(answer) if sent == "application/json" else msgpack.unpackb(answer)


def test_both_encodings(heads):
    """JSON and msgpack carry the same answer, every float to its last bit."""
    for case in cases():
        body = {"items": [{"id": "a", "text": case["text"]}, {"text": EMOJI}],
                "params": {"labels": case["labels"], "options": case["options"]}}
        found = [ask(heads.url, case["model"], body, encoding) for encoding in ("json", "msgpack")]
        assert [status for status, _ in found] == [200, 200], found
        one, two = (answer["items"] for _, answer in found)
        assert one == two, (case, one, two)
        assert json.dumps(one, ensure_ascii=False) == json.dumps(two, ensure_ascii=False)


@pytest.mark.parametrize("model", ["spans", "words", "union"])
def test_places_are_code_points(heads, model):
    labels = ["drink", "smile", "city", "person"]
    options = {"score_floor": 0.0} if model == "union" else {"threshold": 0.1}
    texts = [EMOJI, EMOJI * 40, FAMILY, ACCENT, ARABIC, TOKYO]
    status, answer = ask(heads.url, model, {"items": [{"text": t} for t in texts],
                                            "params": {"labels": labels, "options": options}})
    assert status == 200, answer
    found = 0
    for text, item in zip(texts, answer["items"], strict=True):
        assert not item.get("error"), item
        for e in item["entities"]:
            assert text[e["start"]:e["end"]] == e["text"] != "", (text, e)
            found += 1
    assert found > len(texts), answer


def test_integrations(heads):
    from sie_langchain import SIEExtractor
    from sie_llamaindex import create_sie_extractor_tool
    from sie_sdk import RequestError, SIEClient

    with SIEClient(heads.url) as client:
        for model, options in [("spans", {"threshold": 0.1}), ("words", {"threshold": 0.1}),
                               ("union", {"score_floor": 0.0}), ("classes", {})]:
            labels = ["city", "job title", "person"]
            want = client.extract(model, {"text": PLAIN}, labels=labels, options=options)
            want = want[0] if isinstance(want, list) else want
            kind = "classifications" if model == "classes" else "entities"
            extractor = SIEExtractor(base_url=heads.url, model=model, labels=labels, options=options)
            tool = create_sie_extractor_tool(base_url=heads.url, model=model, labels=labels, options=options)
            assert want[kind], (model, want)
            for got in (extractor.invoke(PLAIN), asyncio.run(extractor.ainvoke(PLAIN)),
                        tool.call(PLAIN).raw_output, asyncio.run(tool.acall(PLAIN)).raw_output):
                keys = want[kind][0].keys() & got[kind][0].keys()
                assert keys >= {"label", "score"}, got
                assert [{k: e[k] for k in keys} for e in got[kind]] == [
                    {k: e[k] for k in keys} for e in want[kind]], (got, want)
    with pytest.raises(RequestError, match="items\\[0\\]"):
        SIEExtractor(base_url=heads.url, model="spans", labels=["city"]).invoke(" ")


BAD = [
    ("spans", {}, "requires labels"),
    ("spans", {"labels": []}, "requires labels"),
    ("spans", {"labels": ["a", " "]}, "params.labels[1] is blank"),
    ("spans", {"labels": ["a", "b", "a"]}, "params.labels[0] again"),
    ("spans", {"labels": ["x" * 129]}, "129 characters; a label may have at most 128"),
    ("spans", {"labels": ["a <<ENT>> b"]}, "<<ENT>>"),
    ("spans", {"labels": ["a<<SEP>>"]}, "leave the marker out"),
    ("spans", {"labels": [1]}, "params.labels"),
    ("spans", {"labels": "city"}, "params.labels"),
    ("spans", {"labels": [f"l{i}" for i in range(1001)]}, "1001 labels in all; a request may have at most"),
    ("spans", {"labels": ["a"], "options": {"threshold": 1.5}}, "options.threshold"),
    ("spans", {"labels": ["a"], "options": {"threshold": -0.1}}, "options.threshold"),
    ("spans", {"labels": ["a"], "options": {"threshold": "high"}}, "options.threshold"),
    ("spans", {"labels": ["a"], "options": {"treshold": 0.5}}, "did you mean 'threshold'"),
    ("spans", {"labels": ["a"], "options": {"flat_ner": 1.5}}, "options.flat_ner"),
    ("spans", {"labels": ["a"], "options": {"relation_labels": ["r"]}}, "finds no relations"),
    ("union", {"options": {"score_floor": 2}}, "options.score_floor"),
    ("union", {"options": {"window_words": 1}}, "options.window_words"),
    ("union", {"options": {"window_overlap": 300}}, "options.window_overlap"),
    ("union", {"options": {"name_min_letters": 0}}, "options.name_min_letters"),
    ("union", {"options": {"default_labels": []}}, "options.default_labels"),
    ("union", {"options": {"threshold": 0.5}}, "has no use for it"),
    ("union", {"labels": ["<<ENT>>"]}, "<<ENT>>"),
    ("classes", {}, "requires labels"),
    ("classes", {"labels": ["a", "a"]}, "params.labels"),
    ("classes", {"labels": ["a", "b"], "options": {"label_groups": {"g": []}}}, "label_groups"),
    ("classes", {"labels": ["a", "b"], "options": {"examples": [{"text": "x"}]}}, "examples"),
    ("classes", {"labels": ["a", "b"], "options": {"classification_type": "many"}}, "classification_type"),
    ("deberta", {"labels": [" "]}, "params.labels"),
]


@pytest.mark.parametrize("model, params, says", BAD, ids=range(len(BAD)))
def test_bad_request(heads, model, params, says):
    """Bad input is a 400 that names the field and what is wanted, in both encodings."""
    for encoding in "json", "msgpack":
        status, answer = ask(heads.url, model, {"items": [{"text": "Berlin"}], "params": params}, encoding)
        assert status == 400 and says in answer["detail"]["message"], (status, answer)
    good = {} if model == "union" else {"labels": ["city"]}
    status, answer = ask(heads.url, model, {"items": [{"text": "Berlin"}], "params": good})
    assert status == 200 and not answer["items"][0].get("error"), answer


def test_not_a_number(heads):
    params = {"labels": ["a"], "options": {"threshold": float("nan")}}
    status, answer = ask(heads.url, "spans", {"items": [{"text": "Berlin"}], "params": params}, "msgpack")
    assert status == 400 and "threshold" in answer["detail"]["message"], answer


@pytest.mark.parametrize("model", ["spans", "words", "union"])
def test_bad_items(heads, model):
    """Each bad item has an error of its own, and its neighbours their answers."""
    long = "Angela met Bob in Berlin. " * 12_000
    texts = ["Berlin", " \n\t", "Angela Merkel lived in Berlin", long, "Bob"]
    params = {"labels": ["city", "person"], "options": {"score_floor": 0.0} if model == "union" else {
        "threshold": 0.1}}
    status, answer = ask(heads.url, model, {"items": [{"text": t} for t in texts], "params": params})
    assert status == 200, answer
    errors = [i.get("error") for i in answer["items"]]
    assert [bool(e) for e in errors] == [False, True, False, True, False], errors
    assert errors[1]["code"] == "INVALID_INPUT" and "items[1]" in errors[1]["message"], errors[1]
    assert errors[3]["code"] == "INPUT_TOO_LONG" and "items[3]" in errors[3]["message"], errors[3]
    assert "more than 128 windows of words (max_windows)" in errors[3]["message"], errors[3]
    for i in 0, 2, 4:
        status, alone = ask(heads.url, model, {"items": [{"text": texts[i]}], "params": params})
        assert status == 200 and alone["items"][0]["entities"] == answer["items"][i]["entities"], i
