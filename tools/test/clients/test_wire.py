"""What a server must survive: hostile, slow, aborted and oversized requests, through raw
sockets."""
import collections
import concurrent.futures
import json
import os
import select
import signal
import socket
import struct
import time
import urllib.error
import urllib.request

import msgpack
import msgpack_numpy
import numpy as np
import pytest

from conftest import ENTRY, MODEL, MODEL_DIR, PATIENCE, Server, until

PATH = f"/v1/encode/{MODEL}"


def post(url, body, path=PATH, timeout=PATIENCE, **headers):
    """Returns status, headers and body, whatever the status."""
    h = {"Content-Type": "application/json", "Accept": "application/json"}
    h.update({k.replace("_", "-"): v for k, v in headers.items()})
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data, h), timeout=timeout) as r:
            return r.status, r.headers, r.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


def items(*texts):
    return {"items": [{"text": t} for t in texts]}


def message(body):
    return json.loads(body)["detail"]["message"]


def raw(server):
    s = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    return s


def read_by_server(s):
    """Whether the server has read all that was sent to it, by the kernel's table of connections."""
    port, peer = f"{s.getsockname()[1]:04X}", f"{s.getpeername()[1]:04X}"
    for line in open("/proc/net/tcp"):
        _, local, remote, _, queues, *_ = line.split()
        if local.endswith(f":{peer}") and remote.endswith(f":{port}"):
            return queues.endswith(":00000000")
    return True  # the server has closed it


def head(length, path=PATH, extra=""):
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{extra}\r\n").encode()


def test_exact_vectors_in_fp32(fp32, golden):
    """With a number in SIE_TEST_TURN the queries and every fifth passage; all within twenty turns."""
    texts, vectors = golden
    turn = os.environ.get("SIE_TEST_TURN")
    taken = [i for i in range(len(texts)) if not turn or i < 100 or i % 5 == int(turn) % 5]
    for first in range(0, len(taken), 200):
        some = taken[first:first + 200]
        status, _, body = post(fp32.url, items(*[texts[i] for i in some]))
        assert status == 200
        got = np.array([i["dense"]["values"] for i in json.loads(body)["items"]], np.float32)
        assert np.abs(got - vectors[some]).max() <= 1e-5


def test_escaped_and_plain_model_ids(server):
    for path in ("/v1/encode/sentence-transformers%2Fall-MiniLM-L6-v2", PATH):
        assert post(server.url, items("x"), path)[0] == 200
    for path in ("/v1/encode", "/v1/encode/", "/v1//encode/x", "/v1/encode/a//b", "/v1/encode/../models"):
        status, headers, _ = post(server.url, items("x"), path)
        assert status == 404 and "Location" not in headers, path


def test_msgpack_round_trip_and_golden_shape(server):
    body = msgpack.packb({"items": [{"id": "a", "text": "Hi"}]})
    status, headers, out = post(server.url, body, Content_Type="application/msgpack",
                                Accept="application/msgpack")
    assert status == 200 and headers["Content-Type"] == "application/msgpack"
    r = msgpack.unpackb(out, object_hook=msgpack_numpy.decode, raw=False)
    assert list(r)[:3] == ["model", "items", "timing"]
    v = r["items"][0]["dense"]["values"]
    assert v.dtype == np.float32 and v.shape == (384,)
    # every other Accept but JSON means msgpack
    assert post(server.url, items("x"), Accept="*/*")[1]["Content-Type"] == "application/msgpack"


def test_answers_do_not_depend_on_company(server, golden):
    texts, _ = golden
    alone = [json.loads(post(server.url, items(t))[2])["items"][0]["dense"]["values"] for t in texts[:30]]
    together = json.loads(post(server.url, items(*reversed(texts[:30])))[2])["items"]
    assert [i["dense"]["values"] for i in reversed(together)] == alone  # bit for bit
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        busy = list(pool.map(
            lambda t: json.loads(post(server.url, items(t))[2])["items"][0]["dense"]["values"], texts[:30]))
    assert busy == alone


def test_five_thousand_items_in_one_request(server):
    many = [str(i % 997) for i in range(5000)]
    status, _, body = post(server.url, items(*many), timeout=PATIENCE)
    assert status == 200
    got = json.loads(body)["items"]
    assert len(got) == 5000
    first = {}
    for t, g in zip(many, got):
        assert first.setdefault(t, g["dense"]["values"]) == g["dense"]["values"]


@pytest.mark.parametrize("body,words", [
    (b"", "truncated"), (b"{", "truncated"), (b"[]", "Expected `object`, got `array`"),
    (b"{}", "missing required field `items`"), (b'{"items":[]}', "must not be empty"),
    (b'{"items":null}', "Expected `array`, got `null` - at `$.items`"),
    (b'{"items":[{"text":1}]}', "Expected `str | null`, got `int` - at `$.items[0].text`"),
    (b'{"items":[{}]}', "requires text"), (b'{"items":[{"text":NaN}]}', "malformed"),
    (b'{"items":[{"text":"a"}]} x', "malformed"), (b'{"items":[{"text":"\\ud83d"}]}', ""),
    (b"[" * 100000, ""),
    (b'{"items":[{"text":"a","metadata":' + b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"}]}", "recursion"),
    (b'{"items":[{"text":"\xff"}]}', ""), (b'{"items":[{"text":"a"}],"params":{"output_types":"dense"}}',
                                           "Expected `array | null`, got `str` - at `$.params.output_types`"),
    (b'{"items":[{"text":"a"}],"params":{"output_dtype":"float8"}}', "Unsupported output_dtype: float8"),
    (b'{"items":[{"text":"a"}],"params":{"options":{"dimensions":9999}}}', "at most 384"),
    (b'{"items":[{"text":"a"}],"params":{"options":{"overflow_policy":"x"}}}', "Invalid overflow_policy"),])
def test_bad_json(server, body, words):
    status, headers, out = post(server.url, body)
    assert status == 400, out
    e = json.loads(out)
    assert e["detail"]["code"] == e["error"]["code"] == e["code"] == "INVALID_INPUT", e
    assert words in e["detail"]["message"], e
    assert headers["X-SIE-Error-Code"] == "INVALID_INPUT"


@pytest.mark.parametrize("body,words", [
    (b"", "truncated"), (b"\xc1", "invalid opcode"), (b"\x81\xa5items\xdd\xff\xff\xff\xff", "truncated"),
    (b"\xdf\xff\xff\xff\xff", "truncated"), (b"\x81\xa5items" + b"\x91" * 2000, ""),
    (msgpack.packb({"items": [{"text": "a"}]}) + b"\x00", "trailing"),
    (msgpack.packb({"items": [{"text": b"a"}]}), "got `bytes`"), (b'{"items":[{"text":"a"}]}', "got `int`"),
    (b"\x81\xa5items\x91\x81\xa4text\xa1\xff", "utf-8"),])
def test_bad_msgpack(server, body, words):
    status, _, out = post(server.url, body, Content_Type="application/msgpack")
    assert status == 400 and words in message(out), out


def test_limits(server):
    status, _, out = post(server.url, items("a" * 2_097_153))
    assert status == 400 and "must hold at most 2097152 bytes" in message(out)
    status, _, out = post(server.url, items("word " * 300_000))  # truncated to the model's limit
    assert status == 200 and json.loads(out)["usage"]["input_tokens"] == 256
    status, _, out = post(server.url, {"items": [{"text": "word " * 1000}],
                                       "params": {"options": {"overflow_policy": "error"}}})
    assert status == 400 and json.loads(out)["code"] == "INPUT_TOO_LONG"


def test_body_of_256_mib_is_refused_cleanly(alone):
    before = alone.rss()
    with raw(alone) as s:
        s.sendall(head(256 << 20))
        block = b"x" * (1 << 20)
        try:
            for _ in range(256):
                s.sendall(block)
        except OSError:
            pytest.fail("the connection broke before the answer")
        answer = s.recv(1 << 16)
    assert b"413" in answer.split(b"\r\n")[0] and b"INPUT_TOO_LONG" in answer
    with raw(alone) as s:  # no declared length: counted as it comes
        s.sendall(head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
        block = b"%x\r\n" % (1 << 20) + b"x" * (1 << 20) + b"\r\n"
        for _ in range(60):
            s.sendall(block)
        s.sendall(b"0\r\n\r\n")
        assert b"413" in s.recv(1 << 16).split(b"\r\n")[0]
    assert alone.rss() - before < 120 << 20
    assert alone.alive()


def test_half_a_body_and_gone(server):
    for n in range(40):
        s = raw(server)
        s.sendall(head(1000) + b'{"items":[{"te' * (n % 3))
        s.close()
    assert post(server.url, items("still here"))[0] == 200


def device_tokens(server):
    return server.metric("sie_device_batch_tokens_sum")


def small_batches(tmp_path, *flags):
    """A server whose batches are small, so that a request of some seconds is several of them."""
    (tmp_path / "minilm.yaml").write_text(ENTRY.format(
        id=MODEL, path=MODEL_DIR, adapter="sentence_transformer", loadtime="{}", more="",
        tasks="{encode: {dense: {dim: 384}}}"))
    return Server("--models-dir", str(tmp_path), *flags, models=MODEL)


def test_aborted_clients_do_not_cost_work(tmp_path):
    """Twenty large requests whose clients leave at once: none is refused, and most of their work is
    never done."""
    room = "--max-queue-wait", "0s", "--max-concurrent-requests", "8000"
    with small_batches(tmp_path, *room).context() as server:
        body = json.dumps(items(*["some words to read " * 12] * 200)).encode()
        before = device_tokens(server)
        assert post(server.url, body, timeout=PATIENCE)[0] == 200
        whole = device_tokens(server) - before
        assert whole > 2 * 4096, "one batch or two"
        for _ in range(20):
            s = raw(server)
            s.sendall(head(len(body)) + body)
            until(lambda: read_by_server(s), "the reading of a request")
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        until(lambda: post(server.url, items("quick"), timeout=PATIENCE)[0] == 200, "an answer")
        until(lambda: server.metric("sie_queue_depth") == 0, "an empty queue")
        assert device_tokens(server) - before < 6 * whole, "cancelled work was done all the same"


def test_slow_sender_does_not_hold_others(server):
    slow = [raw(server) for _ in range(50)]
    for s in slow:
        s.sendall(head(1000)[:-2])
    assert post(server.url, items("x"))[0] == 200
    # The answer came while all of them were still being waited for.
    assert select.select(slow, [], [], 0)[0] == []
    for s in slow:
        s.close()


def test_bad_heads(server):
    with raw(server) as s:
        s.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"b" * 100_000 + b"\r\n\r\n")
        assert b"431" in s.recv(1 << 16).split(b"\r\n")[0]
    with raw(server) as s:
        s.sendall(b"\x00\x01\x02 garbage\r\n\r\n")
        assert b"400" in s.recv(1 << 16).split(b"\r\n")[0]
    status, _, out = post(server.url, items("x"), X_SIE_MACHINE_PROFILE="l4")
    assert status == 400 and json.loads(out)["detail"]["requested_profile"] == "l4"
    assert post(server.url, items("x"), X_SIE_Remote="forbid")[0] == 200
    assert post(server.url, items("x"), X_SIE_Remote="allow")[0] == 400


@pytest.mark.parametrize("path,status", [
    ("/v1/generate/x", 501), ("/v1/chat/completions", 501), ("/v1/jobs/1/cancel", 501), ("/v1/nothing", 404),
    ("/v1/models", 405), ("/healthz", 405),
])
def test_other_routes(server, path, status):
    got, _, out = post(server.url, {}, path)
    assert got == status and json.loads(out)["error"]["message"]


def test_models_of_families_that_are_not_served_say_so(tmp_path):
    (tmp_path / "judge.yaml").write_text(
        "sie_id: acme/judge\nhf_id: acme/judge\ntasks: {score: {}}\nprofiles: {default: {adapter_path: "
        "'sie_server.adapters.stablebridge_pruner:X', max_batch_tokens: 4096}}\n")
    s = Server("--models-dir", str(tmp_path), models="acme/judge", preload="")
    with s.context():
        names = {m["name"] for m in json.loads(urllib.request.urlopen(s.url + "/v1/models").read())["models"]}
        assert names == {"acme/judge"}
        status, _, out = post(s.url, items("x"), "/v1/encode/acme/judge")
        assert status == 400, out
        status, _, out = post(s.url, {"query": {"text": "q"}, "items": [{"text": "d"}]},
                              "/v1/score/acme/judge")
        assert status == 400 and "cannot be served" in message(out)


def test_missing_weights_are_a_502_with_a_reason(tmp_path):
    with Server(models="intfloat/e5-small-v2", preload="",
                env={"SIE_LOCAL_CACHE": str(tmp_path)}).context() as s:
        status, headers, out = post(s.url, items("x"), "/v1/encode/intfloat/e5-small-v2")
        for _ in range(10 * PATIENCE):
            if status != 503:
                break
            time.sleep(0.1)
            status, headers, out = post(s.url, items("x"), "/v1/encode/intfloat/e5-small-v2")
        e = json.loads(out)["detail"]
        assert status == 502 and e["code"] == "MODEL_LOAD_FAILED" and "Retry-After" not in headers, out
        assert e["error_class"] in ("NETWORK", "NOT_FOUND") and "permanent" in e and e["attempts"] >= 1


@pytest.mark.parametrize("damage", ["truncated", "no-tokenizer", "wrong-shape", "garbage"])
def test_damaged_models(tmp_path, damage):
    d = tmp_path / "model"
    d.mkdir()
    for f in MODEL_DIR.rglob("*"):
        if f.is_file():
            to = d / f.relative_to(MODEL_DIR)
            to.parent.mkdir(exist_ok=True)
            to.write_bytes(f.read_bytes())
    if damage == "truncated":
        with open(d / "model.safetensors", "r+b") as f:
            f.truncate(1_000_000)
    elif damage == "no-tokenizer":
        for name in ("tokenizer.json", "vocab.txt"):
            (d / name).unlink(missing_ok=True)
    elif damage == "wrong-shape":
        c = json.loads((d / "config.json").read_text())
        (d / "config.json").write_text(json.dumps({**c, "intermediate_size": 1000}))
    else:
        (d / "model.safetensors").write_bytes(b"\xff" * 1000)
    # The request waits for the end of the load, however slow the machine is.
    with Server("--load-wait", f"{PATIENCE}s", models=f"{MODEL}={d}", preload="").context() as s:
        status, _, out = post(s.url, items("x"))
        assert status == 502, out
        e = json.loads(out)["detail"]
        assert e["code"] == "MODEL_LOAD_FAILED" and e["permanent"] is True and str(
            tmp_path) not in e["message"], e
        assert s.alive()


def test_overload_keeps_answering(golden):
    """Far more work than fits: each answer is right or a retryable 503 with Retry-After, and memory
    stays flat."""
    texts, vectors = golden
    with Server("--max-concurrent-requests", "32").context() as s:
        post(s.url, items(*texts[:64]))
        before = s.rss()
        long = [t for t in range(len(texts)) if len(texts[t]) > 300][:100]

        counts = collections.Counter()
        end = time.time() + PATIENCE
        enough = lambda: counts[200] >= 20 and counts[503] >= 20

        def client(n):
            while not enough() and time.time() < end:
                n += 64
                i = long[n % len(long)]
                status, headers, out = post(s.url, items(texts[i], *[texts[j] for j in long[:2]]))
                counts[status] += 1
                if status == 200:
                    v = np.array(json.loads(out)["items"][0]["dense"]["values"], np.float32)
                    assert v @ vectors[i] > 0.999, "a swapped answer"
                else:
                    assert status == 503 and int(headers["Retry-After"]) >= 1, (status, out)
                    assert json.loads(out)["code"] == "QUEUE_FULL"
                    time.sleep(0.02)

        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            list(pool.map(client, range(64)))
        assert enough(), counts
        assert s.rss() - before < 200 << 20


def test_shutdown_finishes_running_work(tmp_path):
    s = small_batches(tmp_path, "--drain-timeout", f"{PATIENCE}s")
    body = items(*["some words to read " * 12] * 400)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(post, s.url, body, PATH, PATIENCE)
        until(lambda: device_tokens(s) > 0, "the first batch")
        code = s.stop()
        status, _, out = running.result()
    assert status == 200 and len(json.loads(out)["items"]) == 400
    assert code == 0


def test_shutdown_does_not_wait_for_half_a_request():
    s = Server("--drain-timeout", f"{100 * PATIENCE}s")
    with raw(s) as silent, raw(s) as half:
        half.sendall(b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        until(lambda: read_by_server(half), "the reading of a request")
        assert s.stop() == 0
        assert b" 503 " in half.recv(100) and silent.recv(100) is not None


def test_a_second_signal_ends_the_server_at_once(tmp_path):
    s = small_batches(tmp_path, "--drain-timeout", f"{100 * PATIENCE}s")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(post, s.url, items(*["some words to read " * 12] * 5000), PATH, PATIENCE)
        until(lambda: device_tokens(s) > 0, "the first batch")
        s.proc.send_signal(signal.SIGTERM)
        until(lambda: "shutting down" in s.text(), "the drain")
        assert s.alive()
        assert s.stop() == -signal.SIGTERM
