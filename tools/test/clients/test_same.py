"""sie-server and a gateway answer alike: one table of good, bad and hostile requests is sent to
both. Statuses, headers, codes, messages, params and bodies are equal, vectors bit for bit; what may
differ is listed in same_wire.py and docs/compatibility.md."""
import collections
import concurrent.futures
import json
import os
import re
import struct
import threading
import time

import msgpack
import pytest

from conftest import JUDGE, PATIENCE, TINY, Server, all_models, ended, ids_of
from same_table import table
from same_texts import BOTH, NATIVE, items
from same_wire import Case, Wire, differences

CLIENTS = 8


def ask(server, cases):
    """The answers of a server to all cases, asked by several clients at once."""
    local, out = threading.local(), {}

    def one(i_case):
        if not hasattr(local, "wire"):
            local.wire = Wire(server.url, PATIENCE)
        i, case = i_case
        until = time.monotonic() + PATIENCE
        while True:
            out[i] = local.wire.send(case.raw)
            if not cold(out[i]) or time.monotonic() > until:
                return
            time.sleep(0.05)

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        for _ in pool.map(one, enumerate(cases)):
            pass
    return [out[i] for i in range(len(cases))]


def cold(a):
    """Whether an answer says that something is loading: how long that is told may differ."""
    return a is not None and a.status in (202, 503) and any(
        k.lower() == "x-sie-error-code" and v in ("MODEL_LOADING", "LORA_LOADING", "PROVISIONING")
        for k, v in a.headers)


def compare(a, b, cases):
    """The cases whose answers differ, with how, and how many answers have each status."""
    found, statuses = [], collections.Counter()
    for case, x, y in zip(cases, ask(a, cases), ask(b, cases), strict=True):
        statuses[x and x.status] += 1
        if how := differences(case, x, y):
            found.append(f"{case.name}: {'; '.join(how)}")
    return found, statuses


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The sie-server of the comparison, with the models of the cluster."""
    folder = all_models(tmp_path_factory.mktemp("same"))
    ids = ids_of(folder)
    s = Server("--precision", "fp32", "--models-dir", str(folder), "--max-queue-wait", "0s", models=ids,
               preload=ids)
    yield s
    ended(s)


# How an answer is spoilt, and the case whose answer it is.
def header(name, value):
    """Sets a header, or takes it away."""
    return lambda a: setattr(a, "headers", [h for h in a.headers if h[0].lower() != name.lower()] +
                             ([(name, value)] if value is not None else []))


def body(old, new):

    def spoil(a):
        assert old in a.body, a.body[:400]
        a.body = a.body.replace(old, new, 1)

    return spoil


def last_bit(a):
    """The lowest bit of the first number of the first vector."""
    at = a.body.index(b"data\xc4") + 6
    a.body = a.body[:at] + bytes([a.body[at] ^ 1]) + a.body[at + 1:]


def as_double(a):
    """A score of the same value in another width."""
    at = a.body.index(b"\xcb")
    value = struct.unpack(">d", a.body[at + 1:at + 9])[0]
    a.body = a.body[:at] + b"\xca" + struct.pack(">f", value) + a.body[at + 9:]


def digit(a):
    """The last digit of the first number of the first vector in JSON."""
    m = re.search(rb'"values":\[-?[0-9.]*(\d)', a.body)
    a.body = a.body[:m.end() - 1] + bytes([m[1][0] ^ 1]) + a.body[m.end():]


DENSE, SCORE = NATIVE["dense"][0], NATIVE["score"][0]
CASES = {
    "json": Case("json", DENSE, {"items": items(3)}),
    "msgpack": Case("msgpack", DENSE, msgpack.packb({"items": items(3)}), **BOTH),
    "score": Case("score", SCORE, msgpack.packb({
        "query": {
            "text": "q"
        },
        "items": items(3)
    }), **BOTH),
    "bad": Case("bad", DENSE, {"items": [{
        "text": 1
    }]}),
    "unknown": Case("unknown", "/v1/encode/nope", {"items": items(1)}),
    "openai": Case("openai", "/v1/embeddings", {
        "model": TINY,
        "input": []
    }),
    "tei": Case("tei", "/embed", {"inputs": ["a", "b"]}),
    "rerank": Case("rerank", "/v1/rerank", {
        "model": JUDGE,
        "query": "q",
        "documents": ["a", "b"]
    }),
}
PLANTS = [
    ("json", "status", lambda a: setattr(a, "status", 201)),
    ("json", "last digit", digit),
    ("json", "model", body(b'"tiny"', b'"tony"')),
    ("json", "no revision", header("X-SIE-Build", None)),
    ("json", "tokens", header("X-SIE-Units-Input-Tokens", "1")),
    ("json", "no timing", body(b'"timing"', b'"timinh"')),
    ("json", "one header more", header("X-New", "1")),
    ("json", "kind", header("Content-Type", "application/jso")),
    ("json", "no queue time", header("X-Queue-Time", None)),
    ("json", "key order", body(b'{"dims":32,"dtype":"float32",', b'{"dtype":"float32","dims":32,')),
    ("msgpack", "last bit", last_bit),
    ("msgpack", "a timing's name", body(b"total_ms", b"total_mt")),
    ("msgpack", "dtype", body(b"float32", b"float16")),
    ("score", "width of a score", as_double),
    ("score", "an id", body(b"item-1", b"item-7")),
    ("bad", "code", header("X-SIE-Error-Code", "INVALID")),
    ("bad", "message", body(b"got `int`", b"got `str`")),
    ("bad", "param", body(b'"items[0].text"', b'"items[1].text"')),
    ("bad", "status", lambda a: setattr(a, "status", 422)),
    ("unknown", "code", body(b"MODEL_NOT_FOUND", b"NOT_FOUND")),
    ("unknown", "Retry-After", header("Retry-After", "5")),
    ("openai", "param", body(b'"param":"input"', b'"param":null')),
    ("tei", "order", lambda a: setattr(a, "body",
                                       json.dumps(json.loads(a.body)[::-1]).encode())),
    ("rerank", "index", body(b'"index":1', b'"index":0')),
    ("rerank", "closed", header("Connection", "close")),
]


@pytest.mark.parametrize("case,what,spoil", PLANTS, ids=[f"{c}, {w}" for c, w, _ in PLANTS])
def test_a_planted_difference_is_found(one, case, what, spoil):
    case = CASES[case]
    a, b = ask(one, [case, case])
    assert not differences(case, a, b)
    spoil(b)
    assert differences(case, a, b)


def test_what_may_differ(one):
    """Timings, moments and names of the answer, and what a gateway says of its worker."""
    a, b = ask(one, [CASES["json"]] * 2)
    for name in "X-SIE-Worker", "X-Total-Time", "Date", "X-Request-ID":
        header(name, "7")(b)
    body(b'"total_ms":', b'"total_ms":9')(b)
    assert not differences(CASES["json"], a, b)
    assert not differences(CASES["json"], None, None) and differences(CASES["json"], a, None)


def test_ids_in_other_cases(one, everything):
    """A gateway finds a model whatever the case of its id, as the reference's does."""
    case = Case("upper case", "/v1/encode/" + TINY.upper(), {"items": items(1)})
    (a,), (b,) = ask(one, [case]), ask(everything, [case])
    assert (a.status, b.status) == (404, 200)


def test_a_cluster_answers_like_one_server(one, everything):
    """With a number in SIE_TEST_TURN every second case; the others two turns later, with the next
    cluster."""
    turn = os.environ.get("SIE_TEST_TURN")
    parts = 2 if turn else 1
    cases = list(table())[int(turn or 0) // 2 % parts::parts]
    found, statuses = compare(one, everything, cases)
    assert not found, f"{len(found)} of {len(cases)} differ\n" + "\n".join(found[:60])
    # the table is wide: each kind of answer is there, the common ones many times
    for status, least in (200, 2500), (400, 5000), (422, 500):
        assert statuses[status] * parts > least, statuses
    assert {404, 405, 415, 501} <= statuses.keys(), statuses
    assert len({431, 505} & statuses.keys()) * parts >= 2, statuses  # one in each half
