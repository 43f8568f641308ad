"""What becomes of a server that is asked for ten times what it can do: a model of BERT-base's shape
with random weights, 64 clients in a closed loop, then ten times their rate whatever comes back.
What is accepted must be answered within 1.2 times --max-queue-wait, and the throughput kept.
Standard library only.
"""

import argparse
import contextlib
import json
import subprocess
from pathlib import Path

import machine
import records
import shapes
import texts
from served import Load, Server, clean_env

ROOT = Path(__file__).resolve().parent.parent
MODEL = "bench/base"
WORDS = 95  # about 127 tokens, as the passages of the race have


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "bin/sie-server"))
    p.add_argument("--source", type=Path, default=ROOT / "build/models/all-MiniLM-L6-v2",
                   help="whose tokenizer the model has")
    p.add_argument("--layers", type=int, default=12, help="fewer for a short run")
    p.add_argument("--wait", type=float, default=5, help="--max-queue-wait in seconds")
    p.add_argument("--peak", type=float, default=20, help="seconds of 64 clients")
    p.add_argument("--seconds", type=float, default=60, help="of overload")
    p.add_argument("--times", type=float, default=10, help="the rate of the overload over that of 64 clients")
    p.add_argument("--precision", default="auto")
    p.add_argument("--results", type=Path, help="a folder to write table and record to")
    return p.parse_args()


def measure(o, into, result):
    weights = shapes.make(shapes.BASE | {"num_hidden_layers": o.layers}, o.source, into / "base")
    load_binary = into / "load"
    subprocess.run(["go", "build", "-trimpath", "-o", str(load_binary), "./bench/load"], cwd=ROOT, check=True)
    passages = into / "passages.json"
    passages.write_text(json.dumps(texts.passages(128, lambda text: len(text.split()) * 127 // WORDS)),
                        encoding="utf-8")
    load = Load(load_binary, {"passage": passages}, machine.usable_cpus())
    command = [o.binary, "serve", "-m", f"{MODEL}={weights}", "--precision", o.precision, "--max-queue-wait",
               f"{o.wait}s"]
    with contextlib.closing(Server(command, MODEL, clean_env(), into / "server.log",
                                   ready_within=300)) as server:
        load.run(server, "passage", 3, clients=64)  # unmeasured
        peak = load.run(server, "passage", o.peak, clients=64)
        result["peak"] = peak
        rate = peak["texts"] / peak["seconds"] / peak["left"]
        out = load.run(server, "passage", o.seconds, clients=4000, rate=o.times * rate)
        result["overload"] = out
    result["peak_per_second"] = rate
    result["kept"] = out["texts"] / out["seconds"] / out["left"] / rate
    result["p99_over_bound"] = out["p99_ms"] / 1e3 / o.wait
    result["held"] = result["p99_over_bound"] < 1.2 and result["kept"] >= 0.95 and not (
        out["failed"] or out["wrong"] or out["no_retry_after"])


def markdown(o, r):
    peak, out = r["peak"], r["overload"]
    head = ["", "requests", "answered", "texts a second", "p50 s", "p99 s", "refused", "failed",
            "without Retry-After"]
    rows = [[name, x["requests"], x["texts"], f"{x['texts'] / x['seconds'] / x['left']:.1f}",
             f"{x['p50_ms'] / 1e3:.2f}", f"{x['p99_ms'] / 1e3:.2f}", x["refused"], x["failed"],
             x["no_retry_after"]]
            for name, x in (("64 clients", peak), (f"{o.times:g} times their rate", out))]
    return (
        f"BERT-base's shape, {o.layers} layers, passages of about 127 tokens, --max-queue-wait {o.wait:g} s. p99 of what was accepted: "
        f"{r['p99_over_bound']:.2f} times that; throughput kept: {r['kept']:.2f}; wanted: below 1.2, and 0.95 or more: "
        f"{'held' if r['held'] else 'NOT HELD'}.\n\n" + records.table(head, rows) + "\n")


if __name__ == "__main__":
    records.bounded(arguments(), "overload", measure, markdown)
