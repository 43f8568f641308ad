"""A receiver of OTLP traces over HTTP, as a collector is one: spans are kept as they come."""
import gzip
import http.server
import threading


class Span:
    """A finished span; times in ns. texts are all its strings, those of events too."""

    def __init__(self, service, fields):
        self.service = service
        self.trace, self.id = fields[1][0].hex(), fields[2][0].hex()
        self.parent = fields[4][0].hex() if 4 in fields else ""
        self.name = fields[5][0].decode()
        self.start, self.end = (int.from_bytes(fields[n][0], "little") for n in (7, 8))
        self.attributes = dict(attribute(a) for a in fields.get(9, []))

    def __repr__(self):
        return (f"{self.service}: {self.name} {self.id} under {self.parent or 'nothing'}, "
                f"{(self.end - self.start) / 1e6:.2f} ms, {self.attributes}")


class Receiver:
    """Listens on a free port of this machine until close()."""

    def __init__(self):
        self.spans, self.bodies, self.more = [], [], threading.Condition()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/traces":
                    outer.take(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def environment(self):
        """The settings of a process that is to send its traces here, soon."""
        return {"SIE_TRACING_ENABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_METRICS_EXPORTER": "none",
                "OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_TRACES_SAMPLER": "parentbased_always_on"}

    def take(self, body):
        spans = []
        for resource_spans in message(body).get(1, []):
            rs = message(resource_spans)
            about = dict(attribute(a) for r in rs.get(1, []) for a in message(r).get(1, []))
            for scope in rs.get(2, []):
                spans += [Span(about.get("service.name", ""), message(s)) for s in message(scope).get(2, [])]
        with self.more:
            self.bodies.append(body)
            self.spans += spans
            self.more.notify_all()

    def wait(self, enough, patience):
        """The spans so far, as soon as enough(spans), or after patience seconds."""
        with self.more:
            self.more.wait_for(lambda: enough(self.spans), patience)
            return list(self.spans)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def message(b):
    """The fields of a protobuf message by number: integers, and bytes of everything else."""
    at, out = 0, {}
    while at < len(b):
        key, at = varint(b, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(b, at)
        else:
            n, at = (8, at) if kind == 1 else (4, at) if kind == 5 else varint(b, at)
            value, at = b[at:at + n], at + n
        out.setdefault(key >> 3, []).append(value)
    return out


def varint(b, at):
    n = shift = 0
    while True:
        n |= (b[at] & 0x7f) << shift
        shift += 7
        at += 1
        if b[at - 1] < 0x80:
            return n, at


def attribute(b):
    """Key and value of an attribute; values that are no strings as they are in the message."""
    kv = message(b)
    value = message(kv[2][0]) if 2 in kv else {}
    return kv[1][0].decode(), value[1][0].decode() if 1 in value else value
