"""Many models on one server: a hundred in turn on a memory budget that holds ten, and mixed traffic
on three. Makes the models (one checkpoint with its word embeddings in another order for each, so
that no two give the same vector), checks every answer against the model it was asked of, and prints
loads per request, latencies and what was told to come again. Standard library only.
"""

import argparse
import collections
import http.client
import itertools
import json
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import machine
import records
from racers import die_with_parent

ROOT = Path(__file__).resolve().parent.parent
TEXT = "a text that every model reads in its own way"
# seconds for one request with all its tries, or for a start: after that a server counts as hung
PATIENCE = 600
ENTRY = """\
sie_id: {model}
weights_path: {weights}
tasks: {{encode: {{dense: {{dim: {dim}}}}}}}
profiles:
  default:
    max_batch_tokens: 2048
    adapter_path: sie_server.adapters.sentence_transformer:SentenceTransformerDenseAdapter
"""


class Wrong(Exception):
    """An answer that should not have been given."""


def turned(checkpoint, turns):
    """The safetensors file with the rows of its word embeddings moved on by so many places."""
    size = struct.unpack("<Q", checkpoint[:8])[0]
    header = json.loads(checkpoint[8 : 8 + size])
    name = next(n for n in header if n.endswith("word_embeddings.weight"))
    first, last = (8 + size + at for at in header[name]["data_offsets"])
    at = (last - first) // header[name]["shape"][0] * turns
    rows = checkpoint[first:last]
    return checkpoint[:first] + rows[at:] + rows[:at] + checkpoint[last:]


def make_models(source, count, into):
    """Writes count models and their entries; returns their ids and the directory of the entries."""
    entries = into / "entries"
    entries.mkdir()
    checkpoint = (source / "model.safetensors").read_bytes()
    dim = json.loads((source / "config.json").read_text())["hidden_size"]
    ids = []
    for i in range(count):
        weights = into / f"model-{i:03}"
        shutil.copytree(source, weights,
                        ignore=shutil.ignore_patterns("*.safetensors", "MANIFEST.json", ".complete*", "onnx"))
        (weights / "model.safetensors").write_bytes(turned(checkpoint, i))
        ids.append(f"bench/model-{i:03}")
        (entries / f"model-{i:03}.yaml").write_text(ENTRY.format(model=ids[-1], weights=weights, dim=dim))
    return ids, entries


class Server:
    def __init__(self, binary, entries, into, *flags):
        self.log = into / f"server-{time.monotonic_ns()}.log"
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [binary, "serve", "--host", "127.0.0.1", "-p", "0", "--models-dir", entries,
                 "--no-hf-fallback", *flags],
                stdout=out,
                stderr=out,
                preexec_fn=die_with_parent,
            )

    def __enter__(self):
        until = time.monotonic() + PATIENCE
        while not (ready := re.search(r"msg=ready url=\S+:(\d+)", self.log.read_text())):
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                raise Wrong(f"the server did not become ready: {self.log.read_text()}")
            time.sleep(0.02)
        self.port = int(ready[1])
        return self

    def __exit__(self, *_):
        self.process.terminate()
        if self.process.wait(PATIENCE) != 0:
            raise Wrong(f"the server ended with {self.process.returncode}")

    def get(self, path):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        c.request("GET", path)
        r = c.getresponse()
        return r.status, r.read().decode()

    def packed(self):
        return max(float(x) for x in re.findall(r"^sie_model_memory_bytes\{[^}]*\} (\S+)$",
                                                self.get("/metrics")[1], re.M))

    def loads(self):
        return self.log.read_text().count('msg="model ready"')


class Client:
    """One connection. ask returns the vectors, the seconds from the first try to the answer, and
    the tries told to come again."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def ask(self, model, texts):
        body = json.dumps({"items": [{"text": t} for t in texts]})
        start = time.perf_counter()
        for again in itertools.count():
            self.connection.request("POST", f"/v1/encode/{model}", body,
                                    {"Content-Type": "application/json", "Accept": "application/json"})
            r = self.connection.getresponse()
            said = r.read()
            took = time.perf_counter() - start
            if r.status == 200:
                return [i["dense"]["values"] for i in json.loads(said)["items"]], took, again
            after = r.getheader("Retry-After")
            if r.status != 503 or not after:
                raise Wrong(f"{model}: {r.status} {said[:300]}")
            if took > PATIENCE:
                raise Wrong(f"{model}: told to come again for {took:.0f} s: {said[:300]}")
            time.sleep(min(float(after), 1) * random.uniform(0.1, 0.3))


def traffic(server, expected, clients, asks):
    """Runs asks(client number) → ids for each client at once; returns latencies by model and the
    tries told to come again."""
    took, again, wrong, lock = collections.defaultdict(list), [0], [], threading.Lock()

    def run(number):
        client = Client(server.port)
        try:
            for model in asks(number):
                vectors, seconds, tries = client.ask(model, [TEXT])
                if vectors[0] != expected[model]:
                    raise Wrong(f"{model} answered with another vector than its own")
                with lock:
                    took[model].append(seconds)
                    again[0] += tries
        except (Wrong, OSError, http.client.HTTPException) as e:
            wrong.append(e)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(clients)]
    start = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if wrong:
        raise Wrong(f"{len(wrong)} of {clients} clients failed, the first with: {wrong[0]}")
    return took, again[0], time.perf_counter() - start


def percentile(values, p):
    return sorted(values)[min(len(values) - 1, int(p / 100 * len(values)))]


def figures(latencies, seconds):
    return {
        "requests": len(latencies),
        "per_second": round(len(latencies) / seconds, 1),
        "p50_ms": round(1e3 * percentile(latencies, 50), 2),
        "p99_ms": round(1e3 * percentile(latencies, 99), 2),
    }


def round_robin(o, into):
    ids, entries = make_models(Path(o.source), o.models, into)
    with Server(o.binary, entries, into) as server:  # room for all: what each has to say
        client = Client(server.port)
        expected = {i: client.ask(i, [TEXT])[0][0] for i in ids}
        packed = server.packed()
    if len({tuple(v) for v in expected.values()}) != len(ids):
        raise Wrong("two models have the same vector: a swapped answer would not be seen")
    budget = int(o.room * packed * 1.02)
    with Server(o.binary, entries, into, "--memory-budget", str(budget)) as server:
        asked = lambda n: (ids[(n * o.models // o.clients + i) % o.models]
                           for i in range(o.requests // o.clients))
        took, again, seconds = traffic(server, expected, o.clients, asked)
        every = list(itertools.chain.from_iterable(took.values()))
        return figures(every, seconds) | {
            "models": o.models,
            "room_for": o.room,
            "clients": o.clients,
            "loads": server.loads(),
            "loads_per_request": round(server.loads() / len(every), 3),
            "told_to_come_again": again,
            "lost": o.requests // o.clients * o.clients - len(every),
        }


def mixed(o, into):
    ids, entries = make_models(Path(o.large), 3, into)
    with Server(o.binary, entries, into) as server:
        client = Client(server.port)
        expected = {i: client.ask(i, [TEXT])[0][0] for i in ids}
        each = o.requests // o.clients
        alone, _, alone_seconds = traffic(server, expected, o.clients,
                                          lambda n: itertools.repeat(ids[0], each))
        took, _, seconds = traffic(server, expected, o.clients,
                                   lambda n: (ids[(n + i) % 3] for i in range(each)))
        return {
            "one model alone": figures(alone[ids[0]], alone_seconds),
            "three mixed": figures(list(itertools.chain.from_iterable(took.values())), seconds),
        } | {f"of which {i}": figures(took[i], seconds) for i in ids}


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--binary", default=str(ROOT / "bin/sie-server"))
    flags.add_argument("--source", default=str(ROOT / "testdata/golden/st-mean"),
                       help="the model that the many are made from")
    flags.add_argument("--large", default=str(ROOT / "build/models/all-MiniLM-L6-v2"),
                       help="the model that the three are made from")
    flags.add_argument("--models", type=int, default=100)
    flags.add_argument("--room", type=int, default=10, help="how many of them the memory budget holds")
    flags.add_argument("--clients", type=int, default=8)
    flags.add_argument("--requests", type=int, default=2000)
    flags.add_argument("--results", type=Path, help="a folder to write table and record to")
    o = flags.parse_args()
    result = {"about": records.about("bench-models")}
    try:
        with records.kept(result, o.results, "models"):
            for name, run in (("round-robin", round_robin), ("mixed", mixed)):
                with tempfile.TemporaryDirectory(prefix="sie-models-") as into:
                    result[name] = run(o, Path(into))
                print(name, json.dumps(result[name], indent=1))
    except Wrong as e:
        sys.exit(f"models.py: {e}")
    if o.results:
        records.write(o.results, "models", result, markdown(result))


def markdown(result):
    turn = result["round-robin"]
    rows = [[f"{turn['models']} models in turn, memory for {turn['room_for']}", turn]] + [
        [k, v] for k, v in result["mixed"].items()]
    head = ["", "requests", "a second", "p50 ms", "p99 ms"]
    keys = ("requests", "per_second", "p50_ms", "p99_ms")
    return (
        f"{turn['clients']} clients, one text a request. In turn: {turn['loads_per_request']} loads a request, "
        f"{turn['told_to_come_again']} tries told to come again, {turn['lost']} requests lost, no vector of another model.\n\n" +
        records.table(head, [[name, *(row[k] for k in keys)] for name, row in rows]) + "\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("bench: interrupted")
