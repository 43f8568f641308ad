"""Throughput over numbers of threads, measured on this machine beside what a simulator (scalesim.py)
says of it, and what the simulator says of machines of 8 to 128 cores.

First each operation of two models with random weights is recorded on one core (bench/scale/main.cc), and
the bandwidth that threads read with. Then batches run on 1, 2, 4 … threads up to all cores, with every
placement of weights that the machine has, and texts alone, which teams of executors compute. On a machine
of many cores the JSON file in the results folder is what its owner sends back.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import machine
import records
import scalesim

ROOT = Path(__file__).resolve().parent.parent
TEXT = 128
# Layers, heads, columns of a head, columns of the feed-forward.
SHAPES = {"MiniLM-L6": (6, 12, 32, 1536), "BERT-base": (12, 12, 64, 3072), "tiny": (1, 2, 32, 128)}
DEFAULT_SHAPES = ("MiniLM-L6", "BERT-base")  # the other one is for a test
SLABS = (64, 128, 256, 512)
ALONE = (32, 128, 512)  # tokens of a text alone
DEFAULT_TOKENS, SLAB_TOKENS = 16384, 512

# What predictions assume of a socket of AMD's third generation: 8 channels of DDR4-3200 are 204.8 GB/s, of
# which 80 % are taken for reading; 32 MiB of L3 for 8 cores; to the other socket 4 links of 16 lanes at
# 18 GT/s, 144 GB/s one way, of which 75 % are taken. A core reads 0.6 of its rate from the other socket.
SOCKET = {"shared": 8, "l3": 32 * 2**20, "core_rate": 20e9, "far": 0.6, "node_rate": 0.8 * 204.8e9,
          "link_rate": 0.75 * 144e9}
SIZES = ((8, 1), (32, 1), (64, 2), (128, 2))  # cores, sockets
# BERT-base in bf16 on two AMX cores of results/intel-xeon-processor-amx.json's machine class.
AMX_BASE = 11400 / 2

STATED = """Assumed of the predicted machines: sockets of 8 channels DDR4-3200 (204.8 GB/s, 80 % of it
readable), 32 MiB of L3 for each 8 cores, 4 xGMI links of 16 lanes at 18 GT/s between two sockets (144
GB/s one way, 75 % of it readable), 20 GB/s read by one core, 12 GB/s of it from the other socket.
Channels, caches and links are those of EPYC 7003, their rates arithmetic; the shares and a core's
rates are guesses. Cores as fast as this machine's; clocks do not fall. 64 and 128 cores are two sockets. Before: all weights on node 0, batches of
16,384 tokens. After: a copy on each node, batches of 512 tokens an executor, at least 16,384. Texts of
128 tokens."""


def ask(args, *given):
    done = subprocess.run([args.program, *map(str, given)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"scale_bench {' '.join(map(str, given))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def middle(rounds, measure):
    """The result with the medians of so many, and the least and the largest rate."""
    every = [measure() for _ in range(rounds)]
    rates = [r["tokens_per_s"] for r in every]
    return every[0] | {"tokens_per_s": statistics.median(rates), "least": min(rates), "most": max(rates),
                       "tokens_per_cpu_s": statistics.median(r["tokens_per_cpu_s"] for r in every)}


def budget(threads, grows):
    """The tokens of a batch. On few threads that would take long, and is the same."""
    if threads < 8:
        return 1024 * threads
    return max(DEFAULT_TOKENS, SLAB_TOKENS * threads) if grows else DEFAULT_TOKENS


def shared_cores(info):
    return -(-info["cores"] // info["caches"]) if info["caches"] else info["cores"]


def cache_bytes():
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if (index / "level").read_text().strip() == "3":
            size = (index / "size").read_text().strip()
            return int(size.rstrip("KM")) * {"K": 1024, "M": 2**20}.get(size[-1], 1)
    return 32 * 2**20


def here(info, rates):
    """This machine for the simulator. Of links it knows nothing: they are taken as half a node's memory."""
    one, most = rates[0]["bytes_per_s"], max(r["bytes_per_s"] for r in rates)
    nodes = max(1, info["nodes"])
    return scalesim.Machine(nodes, -(-info["cores"] // nodes), shared_cores(info), cache_bytes(), one, 0.6,
                            most / nodes, most / nodes / 2)


def measure(case, threads, mode, args):
    shape, compute = case
    tokens = budget(threads, mode != "off")
    given = (*SHAPES[shape], tokens, threads, mode, args.seconds)
    return middle(args.rounds, lambda: ask(args, "run", compute, *given))


def counts(cores):
    powers = [1 << i for i in range(cores.bit_length()) if 1 << i <= cores]
    return powers if powers[-1] == cores else [*powers, cores]


def scaled(slabs, rate):
    """A recording in half the bytes, as fast as a core that does so many tokens a second alone."""
    half = [{"tokens": s["tokens"], "ops": [op | {"weight_bytes": op["weight_bytes"] / 2} for op in s["ops"]]}
            for s in slabs]
    full = next(s for s in slabs if s["tokens"] == SLAB_TOKENS)
    return scalesim.Recording(half, rate * sum(op["cold"] for op in full["ops"]) / SLAB_TOKENS)


def predict(name, recording):
    rows = []
    for cores, sockets in SIZES:
        m = scalesim.Machine(nodes=sockets, cores=cores // sockets, **SOCKET)
        rates = {}
        for column, placement, tokens in (
                ("before", "first", DEFAULT_TOKENS), ("batches grow", "first", budget(cores, True)),
                ("in turn", "interleave", budget(cores, True)), ("copies", "copy", budget(cores, True))):
            rates[column] = scalesim.throughput(m, recording, placement, tokens, TEXT)
        rows.append({"model": name, "cores": cores, "sockets": sockets, "tokens_per_s": rates})
    return rows


def predict_alone(name, slabs):
    """A lone text of each length on one socket of each size: before and after teams of more than 16, of int8
    linears in two dimensions and of the feed-forward by columns."""
    recording, kinds = scalesim.Recording(slabs), [op["op"] for op in slabs[0]["ops"]]
    shape, int8 = SHAPES[name.split()[0]], name.endswith("int8")
    return [{"model": name, "cores": cores, "tokens": tokens,
             "seconds": {when: scalesim.alone(recording, kinds, shape, tokens, cores, int8, when == "after")
                         for when in ("before", "after")}}
            for tokens in ALONE for cores in (2, 8, 16, 32, 64)]


def simulate(record):
    """Fills in what the simulator says of a record's measurements, and its predictions."""
    m = scalesim.Machine(**record["machine"])
    record["predicted"], record["alone"] = [], []
    for name, slabs in record["recorded"].items():
        recording = scalesim.Recording(slabs)
        for row in (r for r in record["checked"] if r["model"] == name):
            placement = {"off": "first"}.get(row["mode"], row["mode"])
            row["simulated"] = scalesim.throughput(m, recording, placement, row["batch_tokens"], TEXT,
                                                   threads=row["threads"])
        for row in (r for r in record.get("checked_alone", []) if r["model"] == name):
            row["simulated"] = scalesim.alone(recording, [op["op"] for op in slabs[0]["ops"]],
                                              SHAPES[name.split()[0]], row["tokens"], row["threads"],
                                              name.endswith("int8"), after=True)
        record["predicted"] += predict(name, recording)
        record["alone"] += predict_alone(name, slabs)
        if name == "BERT-base fp32":
            record["predicted"] += predict("BERT-base as AMX bf16 (scaled to 5,700 a core)",
                                           scaled(slabs, AMX_BASE))


def tables(record):
    checked = [[r["model"], r["threads"], r["mode"], r["batch_tokens"], f"{r['measured']:,.0f}",
                f"{r['least']:,.0f} – {r['most']:,.0f}", f"{r['of_cpu']:,.0f}", f"{r['simulated']:,.0f}",
                f"{r['simulated'] / r['measured'] - 1:+.0%}", f"{r['simulated'] / r['of_cpu'] - 1:+.1%}"]
               for r in record["checked"]]
    texts = [[r["model"], r["tokens"], r["threads"], r["members"], f"{r['seconds'] * 1e3:.2f}",
              f"{r['least'] * 1e3:.2f}", f"{r['simulated'] * 1e3:.2f}",
              f"{r['simulated'] / r['seconds'] - 1:+.0%}", f"{r['simulated'] / r['least'] - 1:+.0%}"]
             for r in record.get("checked_alone", [])]
    measured_alone = (
        "Measured here, a text alone, milliseconds from submit to the end of wait: the median, the least, and "
        "the simulator, whose error is said of both.",
        records.table(["model", "tokens", "threads", "members", "measured", "least", "simulated", "error",
                       "of the least"], texts)) if texts else ()
    predicted = []
    for r in record["predicted"]:
        rate = r["tokens_per_s"]
        predicted.append([r["model"], r["cores"], r["sockets"], *(f"{rate[k]:,.0f}" for k in rate),
                          f"{rate['copies'] / rate['before']:.2f} ×"])
    alone = []
    for r in record["alone"]:
        before, after = r["seconds"]["before"], r["seconds"]["after"]
        alone.append([r["model"], r["tokens"], r["cores"], f"{before * 1e3:.2f}", f"{after * 1e3:.2f}",
                      f"{before / after:.2f} ×"])
    return "\n\n".join((
        f"Measured here, tokens a second: medians of {record['rounds']} runs, with the least and most of "
        "them; beside them the rate for each second that each thread had of a CPU, and the simulator. On a "
        "busy machine only the second of the rates is the engine's.",
        records.table(["model", "threads", "mode", "batch", "measured", "range", "of CPU time", "simulated",
                       "error", "of CPU time"], checked),
        *measured_alone,
        "**PREDICTIONS of a simulator; nothing in this table was measured.** Tokens a second.",
        records.table(["model", "cores", "sockets", "before", "batches grow", "in turn", "copies",
                       "copies over before"], predicted),
        "**PREDICTIONS of a simulator; nothing in this table was measured.** A text alone, milliseconds on the "
        "device. Before: teams of 16 members at most, whose int8 linears split panels only, and rows where the "
        "result is quantised.",
        records.table(["model", "tokens", "cores", "before", "after", "before over after"], alone),
        STATED)) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results", help="folder of the record")
    parser.add_argument("--rounds", type=int, default=3, help="runs of which the median counts")
    parser.add_argument("--seconds", type=float, default=3, help="of a run")
    parser.add_argument("--passes", type=int, default=9,
                        help="recordings of an operation of which the median counts")
    parser.add_argument("--threads", type=int, nargs="*", help="numbers of threads [1, 2, 4 … all cores]")
    parser.add_argument("--shapes", nargs="+", default=DEFAULT_SHAPES, choices=list(SHAPES))
    parser.add_argument("--program", type=Path, default=ROOT / "build/scale_bench", help="scale_bench")
    parser.add_argument("--again", type=Path, metavar="RECORD",
                        help="measure nothing: simulate anew what this record has measured")
    args = parser.parse_args()
    if args.again:
        record = json.loads(args.again.read_text())
        simulate(record)
        records.write(args.results, "scale", record, tables(record))
        return
    about = records.about("bench-scale")
    classes = ["fp32", "int8"] + (["bf16"] if machine.multiplies_bf16() else [])
    info = ask(args, "run", "fp32", *SHAPES[args.shapes[0]], 1024, 0, "interleave", 0.1)
    threads = args.threads or counts(info["cores"])
    rates = [ask(args, "read", n, 256) for n in threads]
    m = here(info, rates)
    modes = ["off"] + (["interleave", "copy"] if info["nodes"] > 1 else [])
    record = {"about": about, "device": info, "read": rates, "rounds": args.rounds, "machine": vars(m),
              "assumed": SOCKET, "recorded": {}, "checked": [], "checked_alone": [], "predicted": [],
              "alone": []}
    with records.kept(record, args.results, "scale"):
        for shape in args.shapes:
            for compute in classes:
                name = f"{shape} {compute}"
                print(f"{name}: recording", file=sys.stderr)
                record["recorded"][name] = [ask(args, "record", compute, *SHAPES[shape], n, args.passes)
                                            for n in SLABS]
                for n in threads:
                    for mode in modes:
                        print(f"{name}: {n} threads, {mode}", file=sys.stderr)
                        got = measure((shape, compute), n, mode, args)
                        record["checked"].append({
                            "model": name, "threads": n, "mode": mode, "batch_tokens": got["batch_tokens"],
                            "measured": got["tokens_per_s"], "least": got["least"], "most": got["most"],
                            "of_cpu": got["tokens_per_cpu_s"] * n})
                    for tokens in ALONE:
                        got = ask(args, "alone", compute, *SHAPES[shape], tokens, n, args.seconds)
                        record["checked_alone"].append({"model": name} | got)
        simulate(record)
        records.write(args.results, "scale", record, tables(record))
    errors = [abs(r["simulated"] / r["of_cpu"] - 1) for r in record["checked"]]
    print(f"by CPU time the simulator is off by {statistics.median(errors):.1%} in the median, "
          f"{max(errors):.1%} at most; send back {args.results}/{machine.slug(about['cpu'])}-scale.json",
          file=sys.stderr)


if __name__ == "__main__":
    main()
