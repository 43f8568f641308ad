"""What short queries wait for beside texts of 8,192 tokens: a model of XLM-R-large's shape with
random weights, and all-MiniLM-L6-v2 beside it. One client asks short queries of each, first on an
idle server, then while clients keep long texts queued. p99 must stay within 3 times its idle value
and 50 ms. Standard library only.
"""

import argparse
import contextlib
import http.client
import json
import subprocess
import threading
import time
from pathlib import Path

import machine
import records
import shapes
import texts
from racers import Failed
from served import Load, Server, clean_env

ROOT = Path(__file__).resolve().parent.parent
LARGE, SMALL = "bench/large", "bench/small"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "bin/sie-server"))
    p.add_argument("--source", type=Path, default=ROOT / "build/models/all-MiniLM-L6-v2",
                   help="the small model, and whose tokenizer the large one has")
    p.add_argument("--layers", type=int, default=24, help="of the large model; fewer for a short run")
    p.add_argument("--longs", type=int, default=8, help="clients with a long text each")
    p.add_argument("--tokens", type=int, default=8192, help="of a long text")
    p.add_argument("--seconds", type=float, default=60, help="of each measurement")
    p.add_argument("--precision", default="auto")
    p.add_argument("--results", type=Path, help="a folder to write table and record to")
    return p.parse_args()


class Asked:
    """A server, asked for one of its models."""

    def __init__(self, server, model):
        self.url, self.model = server.url, model

    @contextlib.contextmanager
    def turn(self):
        yield self


class Longs:
    """Clients that ask for one long text after another until they are stopped."""

    def __init__(self, server, count, tokens):
        self.address = server.url.removeprefix("http://")
        self.body = json.dumps({"items": [{"text": "word " * tokens}]})
        self.answered, self.wrong, self.stopped, self.connections = 0, [], False, []
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(count)]
        for t in self.threads:
            t.start()

    def ask(self):
        c = http.client.HTTPConnection(self.address, timeout=3600)
        self.connections.append(c)
        try:
            while not self.stopped:
                c.request("POST", f"/v1/encode/{LARGE}", self.body,
                          {"Content-Type": "application/json", "Accept": "application/json"})
                r = c.getresponse()
                said = r.read()
                if r.status != 200:
                    raise Failed(f"a long text: {r.status} {said[:200]}")
                self.answered += 1
        except (OSError, http.client.HTTPException, Failed) as e:
            if not self.stopped:
                self.wrong.append(str(e))

    def stop(self):
        self.stopped = True
        for c in self.connections:
            if c.sock:
                with contextlib.suppress(OSError):
                    c.sock.shutdown(2)
        for t in self.threads:
            t.join(30)


def measure(o, into, result):
    shape = shapes.LARGE | {"num_hidden_layers": o.layers, "max_position_embeddings": max(512, o.tokens)}
    weights = shapes.make(shape, o.source, into / "large")
    load_binary = into / "load"
    subprocess.run(["go", "build", "-trimpath", "-o", str(load_binary), "./bench/load"], cwd=ROOT, check=True)
    queries = into / "queries.json"
    queries.write_text(json.dumps(texts.short_queries(66, seed=41)), encoding="utf-8")
    load = Load(load_binary, {"one": queries}, machine.usable_cpus())
    command = [o.binary, "serve", "-m", f"{LARGE}={weights},{SMALL}={o.source}", "--precision", o.precision,
               "--request-timeout", "24h", "--max-queue-wait", "0s"]
    server = Server(command, LARGE, clean_env(), into / "server.log", ready_within=600)
    with contextlib.closing(server), server.turn():
        asked = {"the same model": Asked(server, LARGE), "another model": Asked(server, SMALL)}
        for a in asked.values():
            load.run(a, "one", 5, clients=1)  # loads it, and wakes caches up
        for name, a in asked.items():
            result[name] = {"idle": load.run(a, "one", o.seconds, clients=1)}
        longs = Longs(server, o.longs, o.tokens)
        try:
            time.sleep(2)  # they are queued
            for name, a in asked.items():
                result[name]["beside"] = load.run(a, "one", o.seconds, clients=1)
        finally:
            longs.stop()
        result["long_texts_answered"], result["wrong"] = longs.answered, longs.wrong
    if longs.wrong:
        raise Failed(longs.wrong[0])
    result["held"] = True
    for name in asked:
        x = result[name]
        x["limit_ms"] = 3 * x["idle"]["p99_ms"] + 50
        x["held"] = x["beside"]["p99_ms"] <= x["limit_ms"] and not (
            x["beside"]["failed"] or x["beside"]["refused"] or x["beside"]["wrong"])
        result["held"] = result["held"] and x["held"]


def markdown(o, r):
    head = ["short queries to", "idle p50 ms", "idle p99 ms", "beside p50 ms", "beside p99 ms", "limit ms",
            "queries", ""]
    rows = []
    for name in ("the same model", "another model"):
        x = r[name]
        rows.append([name,
                     *(f"{v:.1f}" for v in (x["idle"]["p50_ms"], x["idle"]["p99_ms"], x["beside"]["p50_ms"],
                                            x["beside"]["p99_ms"], x["limit_ms"])), x["beside"]["requests"],
                     "held" if x["held"] else "NOT HELD"])
    return (
        f"XLM-R-large's shape, {o.layers} layers; {o.longs} clients with a text of {o.tokens} tokens each, {r['long_texts_answered']} of which were "
        "answered meanwhile. The limit is 3 times the idle p99 and 50 ms.\n\n" + records.table(head, rows) +
        "\n")


if __name__ == "__main__":
    records.bounded(arguments(), "long", measure, markdown)
