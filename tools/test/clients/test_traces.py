"""One trace from the caller's traceparent through every process to the answer, the request's id in
the logs, and never a text or a key in either."""
import re
import secrets

import pytest

from conftest import PATIENCE, TINY, all_models, clustered, ended
from otlp import Receiver
from same_hostile import markers
from same_texts import KEY, MARKER
from same_wire import Case, Wire

# What the spans of one encode request are called, by the service that makes them, and whose child
# each is.
TREE = {
    ("sie-gateway", "encode"): None,
    ("sie-gateway", "queue"): "encode",
    ("sie-gateway", "queue publish"): "queue",
    ("sie-gateway", "queue wait"): "queue",
    ("sie-sidecar", "slice"): "queue",
    ("sie-sidecar", "ipc"): "slice",
    ("sie-server", "ipc.encode"): "ipc",
    ("sie-server", "tokenize"): "ipc.encode",
    ("sie-server", "batch wait"): "ipc.encode",
    ("sie-server", "batch"): "ipc.encode",
}


@pytest.fixture(scope="module")
def receiver():
    r = Receiver()
    yield r
    r.close()


@pytest.fixture(scope="module")
def traced(receiver, tmp_path_factory):
    s = clustered(all_models(tmp_path_factory.mktemp("traced")), SIE_ACCESS_LOG="true", SIE_PRECISION="fp32",
                  **receiver.environment())
    yield s
    ended(s)


def test_one_trace(traced, receiver):
    trace, parent = secrets.token_hex(16), secrets.token_hex(8)
    items = [{"text": f"text {i}"} for i in range(100)]  # several slices
    wire = Wire(traced.url, PATIENCE)
    a = wire.send(
        Case("traced", f"/v1/encode/{TINY}", {
            "items": items
        }, traceparent=f"00-{trace}-{parent}-01", X_Request_ID="trace-me").raw)
    wire.close()
    headers = {k.lower(): v for k, v in a.headers}
    assert a.status == 200 and headers["x-trace-id"] == trace and headers[
        "x-request-id"] == "trace-me", headers

    # Each process sends its spans when it likes: complete is a trace with every name, every slice of
    # the request and the span above each, not the first one with every name.
    mine = lambda spans: [s for s in spans if s.trace == trace]  # noqa: E731

    def complete(spans):
        spans = mine(spans)
        known = {s.id for s in spans} | {parent}
        return (set(TREE) <= {(s.service, s.name) for s in spans} and all(s.parent in known for s in spans)
                and sum(s.name == "slice" for s in spans) >= 4)

    spans = mine(receiver.wait(complete, 30))
    by = {s.id: s for s in spans}
    assert set(TREE) <= {(s.service, s.name) for s in spans}, spans
    for s in spans:
        above = TREE.get((s.service, s.name), "?")
        if above is None:
            assert s.parent == parent, s
        elif above != "?":
            assert s.parent in by and by[s.parent].name == above, (s, by.get(s.parent))
        assert s.end >= s.start and len(s.trace) == 32
    slices = [s for s in spans if s.name == "slice"]
    assert len(slices) >= 4 and all(s.attributes for s in slices), spans
    logs = traced.logs()
    with_id = {name for name, text in logs.items() if "trace-me" in text}
    for role in "gateway", "sidecar", "server":
        assert any(role in name for name in with_id), (role, with_id, logs.keys())


def test_no_text_or_key_is_told(traced, receiver):
    """Texts, keys and header values of requests good and bad are in no log and in no trace."""
    wire = Wire(traced.url, PATIENCE)
    for case in markers():
        wire.send(case.raw)
    wire.close()
    last = secrets.token_hex(16)
    Wire(traced.url, PATIENCE).send(
        Case("last", f"/v1/encode/{TINY}", {
            "items": [{
                "text": MARKER
            }]
        }, Authorization=KEY, traceparent=f"00-{last}-{secrets.token_hex(8)}-01").raw)
    assert receiver.wait(lambda spans: any(s.trace == last and s.service == "sie-server" for s in spans), 30)
    logs = traced.logs()
    assert {"gateway", "sidecar", "server",
            "nats"} <= {r
                        for r in ("gateway", "sidecar", "server", "nats")
                        for name in logs if r in name}, logs.keys()
    secret = KEY.removeprefix("Bearer ")
    for name, text in logs.items():
        found = re.search(f".*({MARKER}|{secret}).*", text)
        assert not found, f"{name}: {found[0][:400]}"
    for body in receiver.bodies:
        assert MARKER.encode() not in body and secret.encode() not in body, "in a trace"
