"""What the way over gateway, broker, sidecar and IPC costs beside direct HTTP, and how it spreads:
everything on the same CPUs, the load generator too. Direct server and cluster take turns, and each
number is a median over the rounds. Standard library only; run by `make bench-cluster`.

WANTED has the bounds and what was expected of each before it was measured.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

import machine
import records
import texts
from racers import Failed
from served import Load, Server, clean_env

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/test/clients"))
import cluster as clusters  # noqa: E402, the path is set above

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
WEIGHTS = ROOT / "build/models/all-MiniLM-L6-v2"
SLEEP = "!sleep=50ms "  # the null device takes so long for a batch that holds such a text
SLICE = 32

# Texts of so many bytes have so many tokens on the null device: a slice of them fills a batch.
BYTES, TOKENS = 60, 17

# name: (what, "most" or "least", bound, prediction before measuring)
WANTED = {
    "p50 added": ("one text, 200 requests/s: p50 added to direct HTTP, ms", "most", 1.0, 0.7),
    "p99 added": ("one text, 200 requests/s: p99 added, ms", "most", 5.0, 2.5),
    "cpu": ("CPU a request of one text at 2,000 requests/s, all processes, µs", "most", 400, 330),
    "short": ("short texts a second in requests of 32", "least", 12_000, 20_000),
    "passages": ("MiniLM, 32 × 128 tokens: texts/s over direct HTTP's", "least", 0.9, 0.97),
    "one of 32": ("MiniLM, one text of 32 tokens: texts/s over direct HTTP's", "least", 0.7, 0.8),
    "spread": ("workers that sleep 50 ms a batch, 1 to 8: texts/s, times", "least", 7.0, 7.6),
    "large": ("5,000 texts in one request, 1 to 4 such workers: speed, times", "least", 3.5, 3.8),
    "known p50": ("300 models known: p50 of one text over that with one model", "most", 1.1, 1.01),
    "known p99": ("300 models known: p99 of one text over that with one model", "most", 1.1, 1.03),
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "bin/sie-server"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=8, help="of each measurement in a round")
    p.add_argument("--only", choices=sorted(PARTS), action="append", help="a part alone; repeat for several")
    p.add_argument("--results", type=Path, help="a folder to write table and record to")
    return p.parse_args()


def sleepy(text):
    """A text that sleeps, of BYTES bytes."""
    raw = (SLEEP + text).encode("ascii", "replace")
    return raw[:BYTES].ljust(BYTES, b".").decode()


class Entrance:
    """A cluster's first gateway, as the load generator asks it."""

    def __init__(self, cluster, model=MODEL):
        self.cluster, self.url, self.model = cluster, cluster.url, model

    @contextlib.contextmanager
    def turn(self):
        yield self


class Bench:
    """What the parts share: flags, texts, generator, and the folder for logs."""

    def __init__(self, o, into):
        self.o, self.into = o, into
        binary = into / "load"
        subprocess.run(["go", "build", "-trimpath", "-o", str(binary), "./bench/load"], cwd=ROOT, check=True)
        count = lambda text: len(text.split()) * 127 // 95  # noqa: E731, a passage has 95 words
        queries = texts.short_queries(512, seed=41)
        sets = {
            "short": queries,
            "32 tokens": [" ".join((a + " " + b).split()[:24]) for a, b in zip(queries, queries[1:])],
            "passages": texts.passages(512, count),
            "sleepy": [sleepy(q) for q in texts.short_queries(2048, seed=43)],
            "5,000 sleepy": [sleepy(q) for q in texts.short_queries(5000, seed=47)],
        }
        files = {}
        for name, all_ in sets.items():
            files[name] = into / (name.replace(" ", "-") + ".json")
            files[name].write_text(json.dumps(all_), encoding="utf-8")
        self.load = Load(binary, files, machine.usable_cpus())

    @contextlib.contextmanager
    def direct(self, *flags):
        """sie-server alone, stopped outside its turns."""
        command = [self.o.binary, "serve", "-m", f"{MODEL}={WEIGHTS}", "--no-hf-fallback", *flags]
        server = Server(command, MODEL, clean_env(), self.into / "server.log", ready_within=120)
        with contextlib.closing(server):
            yield server

    @contextlib.contextmanager
    def cluster(self, *flags, workers=1, env=None, models=(f"{MODEL}={WEIGHTS}",)):
        env = {"SIE_PRELOAD_MODELS": MODEL, "SIE_HF_FALLBACK": "false"} | (env or {})
        c = clusters.Cluster(*flags, workers=workers, env=env, models=models, patience=180)
        with c.context():
            yield Entrance(c)

    def rounds(self, record, runs):
        """Runs each of runs, {name: function that returns a report}, in turns; the order is turned
        around every other round. Reports go into record by name as they come."""
        for f in runs.values():
            f(min(2, self.o.seconds))  # unmeasured: loads the model, wakes caches up
        for i in range(self.o.rounds):
            for name in list(runs)[::1 if i % 2 == 0 else -1]:
                record.setdefault(name, []).append(sound(runs[name](self.o.seconds), name))


def sound(report, name):
    """The report of a run, if every answer was right and none was refused."""
    if report["failed"] or report["refused"] or report["wrong"]:
        raise Failed(f"{name}: {report['failed']} failed, {report['refused']} refused, "
                     f"{report['wrong']} wrong; {report.get('errors')} {report['statuses']}")
    return report


def each(reports, key):
    return [r[key] for r in reports]


def median(values):
    return statistics.median(values)


def rate(report):
    return report["texts"] / report["seconds"]


def latency(b, record):
    """One text, 200 requests a second, null device."""
    with b.direct("--device", "null") as server, b.cluster("--device", "null") as entrance:
        record["start seconds"] = entrance.cluster.start_seconds
        record["idle MiB"] = {k: v >> 20 for k, v in entrance.cluster.rss().items()}
        b.rounds(record, {
            "direct": lambda s: b.load.run(server, "short", s, clients=64, rate=200),
            "gateway": lambda s: b.load.run(entrance, "short", s, clients=64, rate=200),
        })
    pairs = list(zip(record["direct"], record["gateway"]))
    return {f"{p} added": median([g[f"{p}_ms"] - d[f"{p}_ms"] for d, g in pairs]) for p in ("p50", "p99")}


def cost(b, record):
    """CPU of all processes for each request of one text at 2,000 a second."""
    with b.cluster("--device", "null") as entrance:

        def run(seconds):
            before = entrance.cluster.cpu()
            report = b.load.run(entrance, "short", seconds, clients=512, rate=2000)
            after = entrance.cluster.cpu()
            report["us"] = {k: 1e6 * (after[k] - before[k]) / report["requests"] for k in after}
            report["us"]["all"] = sum(report["us"].values())
            return report

        b.rounds(record, {"gateway": run})
    record["us"] = {k: median([r["us"][k] for r in record["gateway"]]) for k in record["gateway"][0]["us"]}
    if (done := median([r["requests"] / r["seconds"] for r in record["gateway"]])) < 1900:
        record["not reached"] = f"{done:.0f} requests/s of 2,000"
        return {}
    return {"cpu": record["us"]["all"]}


def throughput(b, record):
    """Short texts in requests of 32."""
    with b.cluster("--device", "null") as entrance:
        b.rounds(record, {
            "gateway": lambda s: b.load.run(entrance, "short", s, clients=16, per_request=SLICE)})
    return {"short": median([rate(r) for r in record["gateway"]])}


def minilm(b, record):
    """The real model over direct HTTP and over the gateway."""
    out = {}
    with b.direct() as server, b.cluster() as entrance:
        for name, set_, n, clients in ("passages", "passages", SLICE, 8), ("one of 32", "32 tokens", 1, 64):
            part = record.setdefault(name, {})
            b.rounds(part, {
                "direct": lambda s: b.load.run(server, set_, s, clients=clients, per_request=n),
                "gateway": lambda s: b.load.run(entrance, set_, s, clients=clients, per_request=n),
            })
            out[name] = median([rate(g) / rate(d) for d, g in zip(part["direct"], part["gateway"])])
    return out


SLEEPY = {"SIE_MAX_BATCH_TOKENS": str(SLICE * TOKENS), "SIE_MAX_QUEUE_WAIT": "0s"}


def spread(b, record):
    """Workers that sleep, one and eight, each batch one slice."""
    with b.cluster("--device", "null", workers=1, env=SLEEPY) as one, b.cluster(
            "--device", "null", workers=8, env=SLEEPY) as eight:
        b.rounds(record, {
            "1 worker": lambda s: b.load.run(one, "sleepy", s, clients=6, per_request=SLICE),
            "8 workers": lambda s: b.load.run(eight, "sleepy", s, clients=48, per_request=SLICE),
        })
    return {"spread": median([rate(y) / rate(x) for x, y in zip(record["1 worker"], record["8 workers"])])}


def large(b, record):
    """5,000 texts in one request: one worker that sleeps, and four."""
    with b.cluster("--device", "null", workers=1, env=SLEEPY) as one, b.cluster(
            "--device", "null", workers=4, env=SLEEPY) as four:
        # as short as can be: each client sends one request
        ask = lambda e: b.load.run(e, "5,000 sleepy", 0.01, clients=1, per_request=5000)  # noqa: E731
        b.rounds(record, {"1 worker": lambda _: ask(one), "4 workers": lambda _: ask(four)})
    pairs = zip(record["1 worker"], record["4 workers"])
    return {"large": median([x["p50_ms"] / y["p50_ms"] for x, y in pairs])}


def known(b, record):
    """The first line again, in a cluster that knows 300 models."""
    file = (ROOT / "catalog/models" / (MODEL.replace("/", "__") + ".yaml")).read_text()
    folders = {}
    for n in 1, 300:
        folders[n] = b.into / f"models-{n}"
        folders[n].mkdir()
        for i in range(n):
            text = file if i == 0 else file.replace(MODEL, f"bench/model-{i}")
            (folders[n] / f"{i}.yaml").write_text(text + f"weights_path: {WEIGHTS}\n")
    flags = lambda n: ("--device", "null", "--models-dir", str(folders[n]))  # noqa: E731
    with b.cluster(*flags(1), models=()) as one, b.cluster(*flags(300), models=()) as all_:
        b.rounds(record, {
            "1 model": lambda s: b.load.run(one, "short", s, clients=64, rate=200),
            "300 models": lambda s: b.load.run(all_, "short", s, clients=64, rate=200),
        })
    pairs = list(zip(record["1 model"], record["300 models"]))
    return {f"known {p}": median([y[f"{p}_ms"] / x[f"{p}_ms"] for x, y in pairs]) for p in ("p50", "p99")}


PARTS = {
    "latency": latency, "cost": cost, "throughput": throughput, "minilm": minilm, "spread": spread,
    "large": large, "known": known,
}


def holds(name, value):
    _, kind, bound, _ = WANTED[name]
    return value is not None and (value <= bound if kind == "most" else value >= bound)


def measure(o, into, result):
    b = Bench(o, into)
    result["measured"], result["parts"] = {}, {}
    for name in o.only or PARTS:
        print(f"bench-cluster: {name}", file=sys.stderr, flush=True)
        result["measured"] |= PARTS[name](b, result["parts"].setdefault(name, {}))
    result["held"] = all(holds(n, result["measured"].get(n)) for n in wanted(o))


def wanted(o):
    """The names of what the chosen parts measure."""
    of = {"latency": ("p50 added", "p99 added"), "cost": ("cpu",), "throughput": ("short",),
          "minilm": ("passages", "one of 32"), "spread": ("spread",), "large": ("large",),
          "known": ("known p50", "known p99")}
    return [n for part in o.only or PARTS for n in of[part]]


def number(v):
    return "none" if v is None else f"{v:,.0f}" if abs(v) >= 100 else f"{v:.2f}"


def markdown(o, r):
    rows = []
    for name in wanted(o):
        what, kind, bound, predicted = WANTED[name]
        got = r["measured"].get(name)
        rows.append([what, f"at {kind} {number(bound)}", number(predicted), number(got),
                     "held" if holds(name, got) else "NOT HELD"])
    text = (f"Medians of {o.rounds} rounds of {o.seconds:g} s in turns. The load generator runs on the same "
            "CPUs.\n\n" + records.table(["", "wanted", "predicted", "measured", ""], rows) + "\n")
    if us := r["parts"].get("cost", {}).get("us"):
        text += "\nCPU a request, µs: " + ", ".join(f"{k} {v:.0f}" for k, v in us.items()) + "\n"
    if why := r["parts"].get("cost", {}).get("not reached"):
        text += f"\nThe rate of the CPU's line was not reached: {why}.\n"
    if mib := r["parts"].get("latency", {}).get("idle MiB"):
        text += "\nResident when idle, MiB: " + ", ".join(f"{k} {v}" for k, v in mib.items()) + "\n"
    return text


if __name__ == "__main__":
    records.bounded(arguments(), "cluster", measure, markdown)
