"""The lone query at the rates at which users ask: one short text at a time over HTTP, from an open
loop at 1, 20 and 200 requests a second, beside a closed loop of one client, of our server, OpenVINO
and ONNX Runtime, the latter two behind bench/front.py. In turns, the other servers stopped.

Latency counts from when a request was due. CPU is the server's own time over wall time; idle, of a
server that has answered and is asked nothing.

--also LABEL=COMMIT builds an earlier commit and asks its server in the same turns; ratios are those of
each round. The record, every round of every server, goes to <cpu>-lone-builds then.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import against
import machine
import records
import texts
from racers import Failed, child
from served import Load, Server, clean_env, free_port, get

ROOT = Path(__file__).resolve().parent.parent
MODEL = "bench/lone"
PEERS = ("openvino", "onnxruntime")
RATES = (1, 20, 200)  # requests a second
# What the issue of the lone query wants of ours: times the closed loop's, and shares of a core.
P50, P99, IDLE, AT_20 = 1.5, 3.0, 0.01, 0.10


def labelled(text):
    label, _, commit = text.partition("=")
    if not label or not commit or label in ("sie", *PEERS):
        raise argparse.ArgumentTypeError(f"{text}: use LABEL=COMMIT, and a label of its own")
    return label, commit


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "bin/sie-server"))
    p.add_argument("--weights", type=Path, default=ROOT / "build/models/all-MiniLM-L6-v2")
    p.add_argument("--cache", type=Path, default=ROOT / "build/bench-cache", help="of exported models")
    p.add_argument("--threads", type=int, default=machine.usable_cpus())
    p.add_argument("--rounds", type=int, default=5, help="turns of each server at each rate")
    p.add_argument("--seconds", type=float, default=10,
                   help="of a turn; at one request a second three times as long")
    p.add_argument("--precisions", type=lambda s: s.split(","),
                   help="of fp32, bf16, int8; default: those of this CPU's class")
    p.add_argument("--rates", type=lambda s: tuple(map(int, s.split(","))), default=RATES,
                   help="requests a second, beside the closed loop; 20 must be among them [1,20,200]")
    p.add_argument("--also", type=labelled, action="append", default=[], metavar="LABEL=COMMIT",
                   help="a further build of ours, of that commit")
    p.add_argument("--no-peers", action="store_true", help="ours alone; needs no package of PyPI")
    p.add_argument("--results", type=Path, help="a folder to write table and record to")
    args = p.parse_args()
    if 20 not in args.rates:
        p.error("--rates: the aims are about 20 requests a second")
    args.kind = machine.CLASSES[machine.classes("best")[0]]
    args.precisions = args.precisions or args.kind["precisions"]
    return args


class Front(Server):
    """A peer behind bench/front.py, with what Server knows of a process."""

    dialect = "tei"

    def __init__(self, name, args, one, log):
        port = free_port()
        self.url, self.model, self.log = f"http://127.0.0.1:{port}", name, log
        command = [sys.executable, "-B", str(ROOT / "bench/front.py"), name, str(one),
                   "--model", str(args.weights), "--cache", str(args.cache),
                   "--threads", str(args.threads), "--port", str(port)]
        command += ["--without-amx", args.kind["onednn"]] if args.kind["onednn"] else []
        with open(log, "ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=clean_env(),
                                            preexec_fn=child())
        try:
            self._wait(time.perf_counter() + 600)
            self.hold()
        except BaseException:
            self.close()
            raise


def cpu_seconds(pid):
    """Seconds of CPU that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def counted(server, work):
    """work() and the server's CPU over the wall time meanwhile."""
    before, begun = cpu_seconds(server.process.pid), time.perf_counter()
    result = work()
    return result, (cpu_seconds(server.process.pid) - before) / (time.perf_counter() - begun)


def turn(load, server, seconds, rate):
    """One run: latency in ms, and the CPU of the server. Rate 0 is the closed loop."""
    seconds *= 3 if rate == 1 else 1
    done, cpu = counted(server, lambda: load.run(server, "one", seconds, clients=64 if rate else 1, rate=rate,
                                                 dialect="tei"))
    if done["failed"] or done["refused"] or done["wrong"]:
        raise Failed(f"{server.model} at {rate}: {done}")
    return {"p50": done["p50_ms"], "p99": done["p99_ms"], "cpu": cpu, "requests": done["requests"]}


def idle(server, seconds):
    with server.turn():
        get(server.url + "/readyz")
        time.sleep(1)
        return counted(server, lambda: time.sleep(seconds))[1]


def start(args, one, into, stack):
    """Ours of every precision and the peers of each, ready and held."""
    servers = {}
    for precision in args.precisions:
        for label, binary in [("sie", args.binary), *args.built]:
            command = [str(binary), "serve", "-m", f"{MODEL}={args.weights}", "--precision", precision,
                       "--threads", str(args.threads), "--isa", args.kind["isa"], "--no-hf-fallback"]
            servers[label, precision] = Server(command, MODEL, clean_env(), into / f"{label}-{precision}.log")
            stack.callback(servers[label, precision].close)
        for peer in () if args.no_peers else PEERS:
            if (peer, precision) == ("onnxruntime", "bf16"):
                continue  # it has none on CPUs
            name = f"{peer}-{precision}"
            servers[peer, precision] = Front(name, args, one, into / f"{name}.log")
            stack.callback(servers[peer, precision].close)
    return servers


def measure(args, into, record):
    against.OUT.mkdir(parents=True, exist_ok=True)
    built = [(label, *against.build(commit)) for label, commit in args.also]
    args.built = [(label, binary) for label, _, binary in built]
    if not args.no_peers:
        kinds = [f"{'onnx' if p == 'onnxruntime' else p}-{'int8' if k == 'int8' else 'fp32'}"
                 for p in PEERS for k in args.precisions]
        subprocess.run([sys.executable, "-B", str(ROOT / "bench/export.py"), str(args.weights),
                        str(args.cache), *kinds], check=True)
    binary, one = into / "load", into / "one.json"
    subprocess.run(["go", "build", "-trimpath", "-o", str(binary), "./bench/load"], cwd=ROOT, check=True)
    one.write_text(json.dumps(texts.short_queries(66, seed=41)), encoding="utf-8")
    load = Load(binary, {"one": one}, machine.usable_cpus())
    record |= {"threads": args.threads, "rounds": args.rounds, "seconds": args.seconds, "runs": {},
               "idle": {}, "rates": args.rates, "also": {label: commit for label, commit, _ in built}}
    with contextlib.ExitStack() as stack:
        servers = start(args, one, into, stack)
        for server in servers.values():
            turn(load, server, 2, 0)  # unmeasured
        for key in servers:
            record["runs"]["-".join(key)] = {str(rate): [] for rate in (0, *args.rates)}
        for r in range(args.rounds):
            order = list(servers.items())
            for key, server in order[r % len(order):] + order[: r % len(order)]:
                for rate in (0, *args.rates):
                    record["runs"]["-".join(key)][str(rate)].append(turn(load, server, args.seconds, rate))
                record["idle"].setdefault("-".join(key), []).append(idle(server, args.seconds))
    record["held"] = all(all(judged(record, f"sie-{p}").values()) for p in args.precisions)


def median(record, name, rate, what):
    return statistics.median(run[what] for run in record["runs"][name][str(rate)])


def judged(record, name):
    """What is wanted, and whether it holds."""
    value = lambda rate, what: median(record, name, rate, what)
    closed = value(0, "p50")
    return {
        f"p50 at 20 a second at most {P50} times the closed loop's": value(20, "p50") <= P50 * closed,
        f"p99 at 20 a second at most {P99:g} times the closed loop's p50": value(20, "p99") <= P99 * closed,
        f"idle CPU at most {IDLE:.0%} of a core": statistics.median(record["idle"][name]) <= IDLE,
        f"CPU at 20 a second at most {AT_20:.0%} of a core": value(20, "cpu") <= AT_20,
    }


def ratios(record):
    """Of each further build: its p50 over that of this tree's in the same round; median, least, largest."""
    rows = []
    for label in record.get("also", {}):
        for name in (n for n in record["runs"] if n.startswith(f"{label}-")):
            ours = record["runs"]["sie" + name.removeprefix(label)]
            row = [name]
            for rate, before in record["runs"][name].items():
                each = [a["p50"] / b["p50"] for a, b in zip(before, ours[rate])]
                row.append(f"{statistics.median(each):.2f} ({min(each):.2f} to {max(each):.2f})")
            rows.append(row)
    return rows


def markdown(args, record):
    rates = record["rates"]
    head = ["server", "closed loop, ms", *[f"{rate} a second, ms" for rate in rates], "idle, % of a core",
            *[f"at {rate}" for rate in rates]]
    rows = []
    for name in record["runs"]:
        times = [f"{median(record, name, rate, 'p50'):.2f} / {median(record, name, rate, 'p99'):.2f}"
                 for rate in (0, *rates)]
        cpu = [100 * statistics.median(record["idle"][name]),
               *[100 * median(record, name, rate, "cpu") for rate in rates]]
        rows.append([name, *times, *[f"{c:.1f}" for c in cpu]])
    said = [f"- {name}: {what}: {'held' if held else '**not held**'}"
            for name in record["runs"] if name.startswith("sie-")
            for what, held in judged(record, name).items()]
    also = ""
    if record["also"]:
        named = ", ".join(f"{label} is {commit}" for label, commit in record["also"].items())
        also = (f"\n{named}. Its p50 over this tree's in the same round, median, least and largest:\n\n"
                + records.table(["build", "closed loop", *[f"{rate} a second" for rate in rates]],
                                ratios(record)) + "\n")
    return (
        f"One short query of MiniLM at a time over HTTP (`/embed`), {record['threads']} threads, "
        f"{record['rounds']} rounds in turns. p50 / p99 from when a request was due, "
        "medians of the rounds; then the server's CPU.\n\n"
        + records.table(head, rows) + "\n\n" + "\n".join(said) + "\n" + also)


if __name__ == "__main__":
    given = arguments()
    records.bounded(given, "lone", measure, markdown, "lone-builds" if given.also else "lone")
