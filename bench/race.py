"""Races our library path and our server against sentence-transformers, ONNX Runtime, OpenVINO and
any server by URL.

One model, the same texts, the same cores, engines in turns; README.md says how and why. Writes a
table to standard output, and a table, a plot and the whole record into bench/results/.
"""

import contextlib
import datetime
import fcntl
import json
import os
import shlex
import subprocess
import sys
import time

import engines
import export
import machine
import measures
import options
import records
import report
import texts
from options import ROOT
from racers import Failed, Ours, Peer
from served import Load, Remote, Server, clean_env

OUT = ROOT / "build" / "bench-out"  # texts, logs and vectors of the last race
ARTEFACTS = ("onnx-fp32", "onnx-int8", "openvino-fp32", "openvino-int8")


class Race:
    """What the measurements share: lengths of turns, files of texts, progress."""

    def __init__(self, args):
        self.quick, self.model = args.quick, args.model
        self.rounds = args.rounds or (2 if args.quick else 5)
        self.turn_seconds = 0.4 if args.quick else 1.2
        self.http_seconds = 1.5 if args.quick else 4
        self.threads = args.threads or machine.usable_cpus()
        self.began = time.monotonic()
        self.out = OUT
        tokenizer = export.open_tokenizer(args.weights)
        count = export.counter(args.weights)
        n = 64 if args.quick else 128
        self.sets = {
            "short": texts.short_queries(2 * n if args.quick else 4 * n),
            "passage": texts.passages(n, count),
            "mixed": texts.mixed(n, count),
            "one": texts.short_queries(34 if args.quick else 66, seed=41),
            "held": texts.held_out(count),
        }
        self.tokens = {name: sum(len(e.ids) for e in tokenizer.encode_batch(s))
                       for name, s in self.sets.items()}
        self.files = {}
        for name, s in self.sets.items():
            self.files[name] = self.out / f"{name}.json"
            self.files[name].write_text(json.dumps(s), encoding="utf-8")
        self.all_sets = self.out / "sets.json"
        self.all_sets.write_text(json.dumps(self.sets), encoding="utf-8")
        self.lines = self.out / "held.txt"
        self.lines.write_text("\n".join(self.sets["held"]) + "\n", encoding="utf-8")

    def mean_tokens(self, name):
        return self.tokens[name] / len(self.sets[name])

    def say(self, what):
        print(f"bench: [{time.monotonic() - self.began:4.0f} s] {what}", file=sys.stderr, flush=True)


def race_class(race, args, name, result):
    """Everything for one class of instruction sets, put into result as it is measured: the record
    that report.py writes."""
    kind, env = machine.CLASSES[name], clean_env()
    common = ["-m", f"{race.model}={args.weights}", "--threads", str(race.threads), "--isa", kind["isa"]]

    def ours(command, precision, *more):
        return [str(args.server), command, *common, "--precision", precision, *more]

    precisions = [p for p in kind["precisions"] if p in args.precisions]
    if not precisions:
        raise Failed(
            f"class {name} has the precisions {', '.join(kind['precisions'])}; --precisions leaves none of them")
    served = kind["served"] if kind["served"] in precisions else precisions[0]
    result |= {
        "class": name,
        "isa": kind["isa"],
        "served": served,
        "settings": {},
        "failed": {},
        "versions": {},
        "throughput": {},
        "single": {},
        "quality": {},
        "http": {},
    }
    load = Load(args.load, race.files, race.threads)
    with contextlib.ExitStack() as stack:
        racers = {}
        stack.callback(lambda: [r.close() for r in racers.values()])
        for p in precisions:
            racers[f"sie-{p}"] = Ours(f"sie-{p}", ours("race", p, "--model", race.model), race.files, env,
                                      race.out / f"{name}-sie-{p}")
        start_peers(race, args, name, racers, result)
        times = measures.tune(race, racers, result)
        if f"sie-{served}" not in racers:
            raise Failed(result["failed"][f"sie-{served}"])
        measures.throughput(race, racers, times, race.tokens, result)
        with contextlib.ExitStack() as singles:
            servers = {f"sie-http-{p}": singles.enter_context(contextlib.closing(Server(
                ours("serve", p), race.model, env, race.out / f"{name}-server-{p}.log"))) for p in precisions}
            measures.single(race, racers, servers, load, result)
        measures.quality(race, racers,
                         lambda n, path: encode(race, ours("encode", n.removeprefix("sie-")), path, env),
                         result)
        for n in [n for n in racers if n != f"sie-{served}"]:
            racers.pop(n).close()
        measures.start_up(race, ours("serve", served), env, result)
        server = stack.enter_context(contextlib.closing(Server(ours("serve", served), race.model, env,
                                                               race.out / f"{name}-server.log")))
        measures.clients64(race, racers[f"sie-{served}"], server, load, race.tokens,
                           times[f"sie-{served}", "passage"], result)
        measures.overload(race, server, load, result)
        remotes = {f"{dialect} {url}": Remote(dialect, url, race.model) for dialect, url in args.peer}
        measures.over_http(race, {f"sie-http-{served}": server, **remotes}, load, result)


def start_peers(race, args, name, racers, result):
    """Adds a process for every peer of the class; one that can't start is noted and left out."""
    onednn = machine.CLASSES[name]["onednn"]
    for engine, (_, precision) in engines.ENGINES.items():
        unwanted = args.engines and engine not in args.engines
        if precision not in machine.CLASSES[name]["precisions"] or unwanted:
            continue
        try:
            race.say(f"starting {engine}")
            racers[engine] = Peer(
                engine,
                [
                    sys.executable,
                    "-B",
                    str(ROOT / "bench" / "peer.py"),
                    engine,
                    str(race.all_sets),
                    "--model",
                    str(args.weights),
                    "--cache",
                    str(args.cache),
                    "--threads",
                    str(race.threads),
                    *(["--without-amx", onednn] if onednn else []),
                    *(["--quick"] if args.quick else []),
                ],
                clean_env(),
                race.out / f"{name}-{engine}.log",
            )
            result["versions"] |= racers[engine].ready["versions"]
        except Failed as err:
            result["failed"][engine] = str(err)
            race.say(f"{engine} is left out: {err}")


def encode(race, command, path, env):
    """Makes our command write the vectors of the held-out texts."""
    done = subprocess.run(
        [*command, "--model", race.model, "--file", str(race.lines), "--out", str(path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise Failed(f"{' '.join(command[1:2])}: {done.stderr.strip()[-300:]}")


def build_load(race, args):
    race.say("building the load generator")
    subprocess.run(["go", "build", "-trimpath", "-o", str(args.load), "./bench/load"], cwd=ROOT, check=True)


def prepare(race, args):
    """The load generator and the peers' model files; both are kept for the next run."""
    build_load(race, args)
    for kind in ARTEFACTS:
        if args.engines and not any(e.startswith(kind.split("-")[0]) for e in args.engines):
            continue
        race.say(
            f"{kind}: exported, or taken from the cache"
            + (" (calibration takes a minute)" if kind == "openvino-int8" else "")
        )
        with open(race.out / f"export-{kind}.log", "wb") as log:
            done = subprocess.run(
                [sys.executable, "-B", str(ROOT / "bench" / "export.py"), str(args.weights), str(args.cache),
                 kind],
                stdout=log,
                stderr=log,
            )
        if done.returncode:  # its engine will fail to start, and be reported as left out
            race.say(f"{kind} failed, see {log.name}")


def main():
    args = options.arguments(__doc__)
    classes = machine.classes(args.classes)
    with alone():
        run(args, classes)


@contextlib.contextmanager
def alone():
    """Holds off a second race of this checkout: both would time each other."""
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failed(
                "another race is running here, and each would spoil the other's timings: wait for it"
            ) from None
        yield


def about(race, args, command):
    """What a result was measured on and with."""
    return machine.describe() | {
        "threads": race.threads,
        "rounds": race.rounds,
        "quick": args.quick,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "model": race.model,
        "texts": {
            n: {"texts": len(s), "tokens": race.tokens[n], "mean_tokens": round(race.mean_tokens(n), 1)}
            for n, s in race.sets.items()
        },
    }


def run(args, classes):
    race = Race(args)
    command = f"make bench BENCHFLAGS={shlex.quote(' '.join(sys.argv[1:]))}" if sys.argv[1:] else "make bench"
    told = about(race, args, command)
    race.say(f"{told['cpu']}, {race.threads} threads, classes: {', '.join(classes)}")
    prepare(race, args)
    for name in classes:
        record = {"about": told}
        with records.kept(record, args.results, name):
            race_class(race, args, name, record)
        print(report.write(record, args.results, machine.slug(told["cpu"])))
    race.say(f"results are in {os.path.relpath(args.results)}")


if __name__ == "__main__":
    try:
        main()
    except Failed as err:
        sys.exit(f"bench: {err}")
    except KeyboardInterrupt:
        sys.exit("bench: interrupted")
