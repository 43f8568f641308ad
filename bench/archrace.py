"""Races our library path on the shapes of well-known architectures, with random weights, against
transformers, OpenVINO and ONNX Runtime: tokens a second on short texts, passages, mixed lengths and
one long text, and the time of one short query. README.md says how and why.

Engines whose vectors differ from those of transformers fp32 are not timed. A shape that our server
does not serve yet is listed with its own words.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import archengines
import archmodels
import archreport
import archshapes
import clock
import export
import machine
import measures
import race as classic
import records
import texts
from archours import Encoder, Scorer, refusal, refused, source
from racers import Failed, Peer, child
from served import clean_env

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "bench-out"
SETS = ("short", "passage", "mixed", "long", "one", "rerank")
LONG, MIXED = 8192, 2048  # tokens
QUERY = "which instrument measures the pressure of the air before a storm"
REFERENCE = "transformers-fp32"
LEAST_SPREAD = 1e-3  # of a reranker's scores: equal ones would hide a wrong engine
# Largest differences from the reference, by precision: of cosines from 1, and of norms as a share.
# Scores of rerankers lie in 0 to 1; the first bound is theirs as well.
BOUNDS = {"fp32": (1e-4, 1e-3), "bf16": (1e-2, 3e-2), "int8": (2e-2, 5e-2)}


def several(known):
    def split(text):
        parts = text.split(",")
        unknown = [p for p in parts if p not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(known)}")
        return parts

    return split


def between(low, high, kind=int):
    def read(text):
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text}: must be between {low} and {high}")
        return value

    read.__name__ = kind.__name__
    return read


def build_of(text):
    label, _, path = text.partition("=")
    if not re.fullmatch(r"[a-z0-9-]+", label) or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{text}: give LABEL=BINARY, with a sie-server of another build")
    return label, Path(path).resolve()


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cpus = machine.usable_cpus()
    p.add_argument("--shapes", type=several(archshapes.ROWS), default=list(archshapes.ROWS),
                   help="only these, with commas: " + ", ".join(archshapes.ROWS))
    p.add_argument("--sets", type=several(SETS), default=list(SETS), help="only these of " + ", ".join(SETS))
    p.add_argument("--threads", type=lambda t: [between(1, cpus)(n) for n in t.split(",")],
                   default=sorted({cpus, 1}, reverse=True), help="numbers of threads, with commas")
    p.add_argument("--rounds", type=between(1, 100), default=3, help="rounds of turns")
    p.add_argument("--layers", type=between(0, 200), default=0,
                   help="blocks of every shape, for a short run; 0: as published")
    p.add_argument("--engines", type=several(archengines.ENGINES), default=list(archengines.ENGINES),
                   help="only these peers: " + ", ".join(archengines.ENGINES))
    p.add_argument("--turn-seconds", type=between(0.1, 60, float), default=1.5,
                   help="a turn repeats its texts until about then")
    p.add_argument("--texts", type=between(4, 1024), default=16, help="passages, and texts of mixed lengths")
    p.add_argument("--documents", type=between(1, 1000), default=100, help="of a reranker's request")
    p.add_argument("--also", type=build_of, action="append", default=[],
                   help="race another build of ours too, for example one without pruning: LABEL=BINARY")
    p.add_argument("--server", type=Path, default=ROOT / "bin" / "sie-server", help="our binary")
    p.add_argument("--cache", type=Path, default=ROOT / "build" / "bench-arch",
                   help="where models and graphs are kept: up to 6 GB a shape")
    p.add_argument("--results", type=Path, default=ROOT / "bench" / "results",
                   help="where results are written")
    p.add_argument("--kind", default="arch", help="the name of the result behind that of the CPU")
    args = p.parse_args()
    if not args.server.exists():
        p.error(f"{args.server} is not there: run make build")
    return args


class Shape:
    """One shape: its model, the files of its texts, and what is measured of it."""

    def __init__(self, name, args, log):
        self.name, self.row, self.args, self.say = name, archshapes.ROWS[name], args, log
        self.folder = args.cache / f"{name}{f'-{args.layers}' if args.layers else ''}"
        self.layers = min(args.layers, archshapes.size(self.row, "num_hidden_layers"))
        command = [sys.executable, "-B", str(ROOT / "bench" / "archmodels.py"), name, str(self.folder),
                   "--layers", str(self.layers)]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=child())
        if done.returncode:
            raise Failed(f"{name} was not made: {done.stderr.strip().splitlines()[-1]}")
        self.made = json.loads((self.folder / "made.json").read_text())
        self.tokenizer = archengines.Row(self.folder)
        self.make_sets()

    def make_sets(self):
        count = export.counter(self.folder)
        n, limit = self.args.texts, self.row["limit"]
        if archshapes.is_reranker(self.row):
            made = {"rerank": [[QUERY, t] for t in texts.passages(self.args.documents, count)]}
        else:
            made = {"short": texts.short_queries(4 * n), "passage": texts.passages(n, count),
                    "mixed": texts.spread(n, min(MIXED, limit), count),
                    "one": texts.short_queries(18, seed=41)}
            if limit >= LONG:
                made["long"] = [texts.long_text(LONG, count)]
        self.sets = {s: made[s] for s in SETS if s in made and s in self.args.sets}
        self.check = "rerank" if "rerank" in made else "check"
        held = {}
        if "short" in made:
            held["check"] = made["short"][:8] + made["passage"][:4] + made["mixed"][:8]
        self.lengths = {s: [len(i) for i in self.tokenizer.ids(t)] for s, t in self.sets.items()}
        self.files, every = {}, self.sets | held
        for s, t in every.items():
            self.files[s] = OUT / f"{self.name}-{s}.json"
            self.files[s].write_text(json.dumps(t), encoding="utf-8")
        self.all_sets = OUT / f"{self.name}-sets.json"
        self.all_sets.write_text(json.dumps(every), encoding="utf-8")

    def flop(self, s):
        """FLOP of a pass over a set."""
        return sum(n * self.made["linear_flop_per_token"] +
                   archshapes.attention_flop(self.row, self.made["layers"], n) for n in self.lengths[s])

    def graphs(self, failed):
        """Makes what OpenVINO and ONNX Runtime load. An exporter that fails leaves its engine out."""
        for kind in ("openvino", "onnx"):
            if not any(e.startswith(kind) for e in self.args.engines):
                continue
            self.say(f"{self.name}: {kind}'s graph, exported or taken from the cache")
            command = [sys.executable, "-B", str(ROOT / "bench" / "archengines.py"), str(self.folder),
                       str(self.args.cache), kind]
            done = subprocess.run(command, capture_output=True, text=True, preexec_fn=child())
            if done.returncode:
                said = [x for x in done.stderr.strip().splitlines() if x.strip()][-1:]
                failed[kind] = f"its exporter does not take the model: {''.join(said)[-300:]}"

    def memory(self):
        """Bytes that the engines take together, at most: each of them may keep its weights twice."""
        each = {"fp32": 8, "bf16": 4}
        return self.made["parameters"] * (8 * (1 + len(self.args.also)) + sum(
            each[archengines.ENGINES[e][1]] for e in self.args.engines))


def available():
    found = re.search(r"MemAvailable:\s*(\d+)", Path("/proc/meminfo").read_text())
    return int(found.group(1)) * 1024


def precisions():
    """Ours that make sense here: bf16 is computed with AMX or AVX512_BF16."""
    return ("fp32", "bf16") if machine.multiplies_bf16() else ("fp32",)


def prefix(threads):
    """As many CPUs as threads, so that no engine's helpers run elsewhere."""
    cpus = sorted(os.sched_getaffinity(0))[:threads]
    return ["taskset", "-c", ",".join(map(str, cpus))] if shutil.which("taskset") else []


def start(shape, threads, result, stack):
    """The engines, each in a process of its own."""
    racers, env = {}, clean_env()
    reranker = archshapes.is_reranker(shape.row)
    made = Scorer if reranker else Encoder
    named = source(shape.row, shape.folder, OUT / f"{shape.name}-catalog")
    for label, binary in [("", shape.args.server), *shape.args.also]:
        for precision in precisions():
            name = "-".join(filter(None, ("sie", precision, label)))
            try:
                why = refusal(binary, named, threads, precision, env, reranker)
                if why is None:
                    racers[name] = made(name, binary, named, threads, precision, shape.files, env,
                                        OUT / f"{shape.name}-{name}", prefix(threads))
                    stack.callback(racers[name].close)
                else:
                    result["not_served"][name] = why
            except Failed as err:
                result["not_served" if refused(str(err)) else "failed"][name] = str(err)
    for engine in shape.args.engines:
        kind, precision = archengines.ENGINES[engine]
        broken = result["failed"].get(getattr(kind, "exported", ""))
        if broken or precision == "bf16" and not machine.multiplies_bf16():
            result["failed"][engine] = broken or "this CPU has no bf16 instructions"
            continue
        try:
            racers[engine] = Peer(engine, [
                *prefix(threads), sys.executable, "-B", str(ROOT / "bench" / "peer.py"), engine,
                str(shape.all_sets), "--engines", "archengines", "--model", str(shape.folder), "--cache",
                str(shape.args.cache),
                "--threads", str(threads), "--tune-on", "8"], env, OUT / f"{shape.name}-{engine}.log")
            stack.callback(racers[engine].close)
            result["versions"] |= racers[engine].ready["versions"]
        except Failed as err:
            result["failed"][engine] = str(err)
    return racers


def tune(shape, racers, s, result):
    """Best settings for a set, and how often a turn passes over it. Drops engines that fail."""
    times = {}
    for name, racer in list(racers.items()):
        try:
            chosen = racer.tune_each(s) if s == "one" else racer.tune(s)
            result["settings"].setdefault(name, {})[s] = chosen
            times[name] = 1 if s == "one" else max(1, min(64, round(
                shape.args.turn_seconds / racer.go(s, 1))))
        except Failed as err:
            result["failed"][name] = f"{s}: {err}"
            racers.pop(name).close()
    return times


def compare(shape, racers, result):
    """Vectors against the reference's. Engines that give others leave the race."""
    found = {}
    for name, racer in list(racers.items()):
        path = OUT / f"{shape.name}-{name}.npy"
        try:
            racer.vectors(shape.check, path)
            found[name] = np.load(path).astype(np.float64)
        except Failed as err:
            result["failed"][name] = f"vectors: {err}"
            racers.pop(name).close()
    want = found.get(REFERENCE)
    if want is None:
        result["failed"]["answers"] = f"not compared: {REFERENCE} is not in the race"
        return
    for name, got in found.items():
        result["answers"][name] = told = differences(got, want)
        cosine, norm = BOUNDS["bf16" if "bf16" in name else "int8" if "int8" in name else "fp32"]
        if "cosine" in told:
            told["right"] = told["cosine"] >= 1 - cosine and told["norm"] <= norm
        else:
            told["right"] = told["score"] <= cosine and told["spread"] >= LEAST_SPREAD
        if not told["right"]:
            result["failed"][name] = f"wrong answers, not timed: {told}"
            racers.pop(name).close()


def differences(got, want):
    """Smallest cosine and largest difference of norms; or the largest difference of scores. NaN where
    shapes differ, which no bound lets pass."""
    if got.shape != want.shape:
        nan = float("nan")
        return {"score": nan, "spread": 0.0} if want.shape[1] == 1 else {"cosine": nan, "norm": nan}
    if want.shape[1] == 1:
        return {"score": float(np.abs(got - want).max()), "spread": float(want.std())}
    a, b = np.linalg.norm(got, axis=1), np.linalg.norm(want, axis=1)
    return {"cosine": float(((got * want).sum(1) / (a * b)).min()), "norm": float(np.abs(a / b - 1).max())}


def race_set(shape, racers, s, threads, result):
    times = tune(shape, racers, s, result)
    tokens = sum(shape.lengths[s])
    rows = result["runs"].setdefault(s, {name: [] for name in racers})
    for r in range(shape.args.rounds):
        result["peak_gflops"].setdefault(s, []).append(clock.peak(threads))
        for name, racer in list(racers.items()):
            try:
                if s == "one":
                    rows[name].append(1e3 * measures.quantile(racer.each(s)[2:], 0.5))
                    continue
                n = times[name]
                rows[name].append(n * tokens / racer.go(s, n))
                if getattr(racer, "tokens", tokens) != tokens and name.startswith("sie-"):
                    raise Failed(f"counted {racer.tokens} tokens, the tokenizers library {tokens}")
            except Failed as err:  # rounds must stay rounds: its figures of this set go
                result["failed"][name] = f"{s}: {err}"
                rows.pop(name)
                racers.pop(name).close()
    for name, racer in racers.items():
        if name.startswith("sie-"):
            racer.drop(s)
    shape.say(f"{shape.name}, {threads} threads, {s}: " + ", ".join(
        f"{n} {statistics.median(v):,.1f}" for n, v in rows.items()))


def race_shape(shape, threads, result):
    result |= {"settings": {}, "versions": {}, "answers": {}, "runs": {}, "peak_gflops": {}}
    with contextlib.ExitStack() as stack:
        racers = start(shape, threads, result, stack)
        first = next(iter(s for s in shape.sets if s != "one"), None)
        if first:
            tune(shape, racers, first, result)  # vectors are made with the settings of some set
            compare(shape, racers, result)
        for s in shape.sets:
            race_set(shape, racers, s, threads, result)
    result["flop"] = {s: shape.flop(s) for s in shape.sets}
    result["tokens"] = {s: sum(n) for s, n in shape.lengths.items()}
    result["texts"] = {s: len(n) for s, n in shape.lengths.items()}


def about(args):
    told = records.about("bench-arch")
    found = machine.flags()
    return told | {
        "rounds": args.rounds, "layers": args.layers, "documents": args.documents,
        "class": archreport.class_of(found), "also": [label for label, _ in args.also],
        "bf16_instructions": sorted({"amx_bf16", "avx512_bf16"} & found) or ["none"],
    }


def main():
    args = arguments()
    began = time.monotonic()

    def say(what):
        print(f"bench-arch: [{time.monotonic() - began:4.0f} s] {what}", file=sys.stderr, flush=True)

    os.environ["HF_HUB_OFFLINE"] = "1"
    args.cache.mkdir(parents=True, exist_ok=True)
    with classic.alone():
        record = {"about": about(args), "shapes": {}}
        with records.kept(record, args.results, args.kind):
            for name in args.shapes:
                of = record["shapes"][name] = {}
                try:
                    say(f"{name}: made, or taken from the cache")
                    shape = Shape(name, args, say)
                except Failed as err:
                    of["left_out"] = str(err)
                    continue
                of |= {"model": shape.made, "threads": {}}
                if shape.memory() > available():
                    of["left_out"] = (f"the engines take up to {shape.memory() / 1e9:.1f} GB together, and "
                                      f"{available() / 1e9:.1f} are free: name fewer with --engines")
                    continue
                if not shape.sets:
                    of["left_out"] = "it has none of the sets of --sets"
                    continue
                broken = {}
                shape.graphs(broken)
                for threads in args.threads:
                    result = of["threads"][str(threads)] = {"failed": dict(broken), "not_served": {}}
                    race_shape(shape, threads, result)
        records.write(args.results, args.kind, record, archreport.markdown(record))


if __name__ == "__main__":
    try:
        main()
    except Failed as err:
        sys.exit(f"bench-arch: {err}")
    except KeyboardInterrupt:
        sys.exit("bench-arch: interrupted")
