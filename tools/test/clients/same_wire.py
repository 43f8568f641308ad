"""Raw requests and answers for test_same.py, and what may differ between the answers of sie-server
and of a gateway. docs/compatibility.md has the same list in words."""
import json
import re
import socket

import msgpack

# Headers whose values belong to one answer: its moment, its names, its timings, who made it.
# Whether a header is there is compared all the same, but for those of GATEWAY.
MOMENT = {
    "date", "x-request-id", "x-sie-request-id", "x-trace-id", "x-queue-time", "x-tokenization-time",
    "x-inference-time", "x-total-time", "x-preprocess-time", "x-batch-wait-time", "x-compute-time"
}
# Headers that a gateway adds, or of which it has values of its own.
GATEWAY = {
    "server", "x-sie-worker", "x-queue-publish-time", "x-queue-wait-time", "x-payload-fetch-time",
    "x-sie-bundle-config-hash", "x-postprocessing-time"
}
# Fields of bodies whose values belong to one answer, at any depth: timings, and the id that an
# error carries. A rerank answer has an id of its own.
FIELDS = {"timing", "request_id"}
# Fields of GET /v1/models and /info that say how it stands with a model in one process.
STATE = {"loaded", "state", "last_error", "model_dtype", "max_concurrent_requests", "tokenization_workers"}
# Fields of GET /v1/models that a gateway alone has.
MORE = {"bundles", "worker_count", "workers"}
# Routes that tell about the one who answers.
OWN = {"/health", "/metrics", "/openapi.json"}


class Case:
    """One request: its name for messages, and its bytes. words says whether the bodies of its
    answers are compared, beside status and error code."""

    def __init__(self, name, path="/", body=b"", method="POST", raw=None, words=True, **headers):
        self.name, self.path = name, path
        self.words = words and not (method == "GET" and path in OWN)
        if raw is None:
            if not isinstance(body, bytes):
                body = json.dumps(body, ensure_ascii=False).encode()
            have = {"Content-Type": "application/json", "Accept": "application/json"}
            have.update({k.replace("_", "-"): v for k, v in headers.items()})
            lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: same"]
            lines += [
                k.encode() + b": " + (v if isinstance(v, bytes) else v.encode()) for k, v in have.items()
                if v is not None
            ]
            if method != "GET":
                lines.append(b"Content-Length: %d" % len(body))
            raw = b"\r\n".join(lines) + b"\r\n\r\n" + body
        self.raw = raw

    def __repr__(self):
        return f"{self.name}: {self.raw[:300]!r}"


class Answer:

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body


class Wire:
    """A connection kept for many requests; made anew when the server closes it."""

    def __init__(self, url, patience):
        self.host, port = url.split("//")[1].split(":")
        self.port, self.patience, self.file = int(port), patience, None

    def _connect(self):
        s = socket.create_connection((self.host, self.port), timeout=self.patience)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self.file = s, s.makefile("rb")

    def close(self):
        if self.file:
            self.file.close()
            self.socket.close()
            self.file = None

    def send(self, raw):
        """The answer, or None where the server closed a new connection without one."""
        kept = self.file is not None
        if not kept:
            self._connect()
        try:
            self.socket.sendall(raw)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server may refuse at the head, and what it said is still there
        try:
            line = self.file.readline()
        except ConnectionResetError:
            line = b""
        if not line:
            self.close()
            return self.send(raw) if kept else None
        while int(line.split()[1]) < 200:  # 100 Continue: the answer follows
            while self.file.readline().rstrip():
                pass
            line = self.file.readline()
        status, headers = int(line.split()[1]), []
        while (line := self.file.readline().rstrip(b"\r\n")):
            k, _, v = line.decode("latin1").partition(":")
            headers.append((k.strip(), v.strip()))
        low = {k.lower(): v for k, v in headers}
        if low.get("transfer-encoding") == "chunked":
            chunks = []
            while (n := int(self.file.readline().split(b";")[0], 16)):
                chunks.append(self.file.read(n))
                self.file.readline()
            self.file.readline()
            body = b"".join(chunks)
        else:
            body = self.file.read(int(low.get("content-length", 0)))
        if low.get("connection", "").lower() == "close":
            self.close()
        return Answer(status, headers, body)


def parts(value, drop, gone):
    """A parsed body without the values of the fields in drop, and without those in gone."""
    if isinstance(value, Pairs):
        return Pairs((k, "…" if k in drop else parts(v, drop, gone)) for k, v in value if k not in gone)
    if isinstance(value, list):
        return [parts(v, drop, gone) for v in value]
    return value


class Pairs(list):
    """An object of a body, with its keys in order."""


class Number(str):
    """A number of a JSON body as it was written."""


def read(a, drop, gone):
    """What of a body must be equal: numbers as they are written, vectors as bytes, keys in their
    order."""
    kind = dict((k.lower(), v) for k, v in a.headers).get("content-type", "")
    if "msgpack" in kind:
        whole = msgpack.Unpacker(raw=False, strict_map_key=False, max_buffer_size=1 << 30,
                                 object_pairs_hook=Pairs)
        whole.feed(a.body)
        value = whole.unpack()
        assert whole.tell() == len(a.body), "bytes behind a msgpack body"
        timing = dict(value).get("timing") if isinstance(value, Pairs) else None
        return timing and [k for k, _ in timing], exact(a.body)
    if "json" in kind:
        value = json.loads(a.body, object_pairs_hook=Pairs, parse_float=Number, parse_int=Number)
        return parts(value, drop, gone)
    return a.body


def exact(body):
    """The bytes of each field of a msgpack map but the timings, so that 1.0 as a float32 and as a
    float64 differ."""
    u = msgpack.Unpacker(max_buffer_size=1 << 30)
    u.feed(body)
    out = []
    for _ in range(u.read_map_header()):
        key, start = u.unpack(), u.tell()
        u.skip()
        if key not in FIELDS:
            out.append((key, body[start:u.tell()]))
    return out


def differences(case, a, b):
    """How two answers to one request differ, in words; empty where they are the same."""
    if a is None or b is None:
        return [] if a is b else [f"closed without an answer: {a is None} and {b is None}"]
    out = []
    if a.status != b.status:
        out.append(f"status {a.status} and {b.status}")
    ha, hb = headers(a), headers(b)
    names = (ha.keys() | hb.keys()) - GATEWAY if case.words else {"x-sie-error-code", "content-type"}
    for k in sorted(names):
        x, y = ha.get(k), hb.get(k)
        if x != y:
            out.append(f"header {k}: {x!r} and {y!r}")
    if not case.words:
        return out
    drop, gone = FIELDS, set()
    if case.path.startswith("/v1/rerank") or case.path.startswith("/v2/rerank"):
        drop = drop | {"id"}
    if case.path.startswith("/v1/models") or case.path == "/info":
        drop, gone = drop | STATE, MORE
    if timeless(a.body) != timeless(b.body) and read(a, drop, gone) != read(b, drop, gone):
        out.append("body " + shorten(a.body, b.body))
    return out


def headers(a):
    out = {}
    for k, v in a.headers:
        k = k.lower()
        if k == "content-length" and a.status == 200:
            v = "…"  # timings are as long as they are
        out.setdefault(k, []).append("…" if k in MOMENT else v)
    return {k: sorted(v) for k, v in out.items()}


def timeless(body):
    """A JSON body without its timings."""
    return re.sub(rb'"timing":\{("\w+":[0-9.e+-]+,?)*\}', b'"timing":{}', body) if body[:1] == b"{" else body


def shorten(a, b):
    """Two bodies from where they part."""
    a, b = timeless(a), timeless(b)
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    at = max(0, at - 40)
    return f"from byte {at}: {a[at:at + 160]!r} and {b[at:at + 160]!r}"
