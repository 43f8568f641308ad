"""Races our extraction on the shapes of published models, with random weights, against the packages
that they are published with, transformers' zero-shot pipeline and ONNX Runtime: items a second with
5, 25 and 100 labels, one long document, and the time of one item. With --published it races over HTTP
against sie-server 0.10.1, too. README.md says how and why.

Engines whose answers differ from the package's in fp32 are not timed.
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

import archrace
import extractengines
import extractparts
import extractreport
import extractshapes
import extracttexts
import machine
import measures
import race as classic
import records
from extractserved import Served
from racers import Failed, Ours, Peer, Racer, child
from served import clean_env

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "bench-out"
SETS = ("labels-5", "labels-25", "labels-100", "document", "one")
MODEL = "bench/model"
CHECK = 8  # items that are compared
# Least share of equal decisions, and largest difference of scores, against the reference.
BOUNDS = {"fp32": (0.99, 2e-3), "bf16": (0.80, 0.1)}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cpus, between = machine.usable_cpus(), archrace.between
    p.add_argument("--shapes", type=archrace.several(extractshapes.ROWS), default=list(extractshapes.ROWS),
                   help="only these, with commas: " + ", ".join(extractshapes.ROWS))
    p.add_argument("--sets", type=archrace.several(SETS), default=list(SETS),
                   help="only these of " + ", ".join(SETS))
    p.add_argument("--engines", type=archrace.several(extractengines.ENGINES),
                   default=list(extractengines.ENGINES), help="only these peers")
    p.add_argument("--parts", type=archrace.several(extractparts.PARTS), default=list(extractparts.PARTS),
                   help="only these of " + ", ".join(extractparts.PARTS))
    p.add_argument("--only-parts", action="store_true", help="the parts without a race against peers")
    p.add_argument("--threads", type=between(1, cpus), default=cpus)
    p.add_argument("--rounds", type=between(1, 100), default=3, help="rounds of turns")
    p.add_argument("--layers", type=between(0, 200), default=0,
                   help="blocks of every encoder, for a short run; 0: as published")
    p.add_argument("--turn-seconds", type=between(0.1, 60, float), default=1.5,
                   help="a turn repeats its items until about then")
    p.add_argument("--items", type=between(CHECK, 1024), default=128, help="items of a set")
    p.add_argument("--one", type=between(2, 1000), default=12, help="items asked for one by one")
    p.add_argument("--published", type=Path, help="the program sie-server 0.10.1, to race over HTTP")
    p.add_argument("--server", type=Path, default=ROOT / "bin" / "sie-server", help="our binary")
    p.add_argument("--cache", type=Path, default=ROOT / "build" / "bench-extract",
                   help="where models and graphs are kept: up to 4 GB a shape")
    p.add_argument("--results", type=Path, default=ROOT / "bench" / "results",
                   help="where results are written")
    args = p.parse_args()
    if not args.server.exists():
        p.error(f"{args.server} is not there: run make build")
    return args


class Shape:
    """One shape: its model and the files of its sets."""

    def __init__(self, name, args, say):
        self.name, self.row, self.args, self.say = name, extractshapes.ROWS[name], args, say
        self.folder = args.cache / f"{name}{f'-{args.layers}' if args.layers else ''}"
        layers = min(args.layers, self.row["encoder"]["num_hidden_layers"])
        done = subprocess.run([sys.executable, "-B", str(ROOT / "bench" / "extractmodels.py"), name,
                               str(self.folder), "--layers", str(layers)], capture_output=True, text=True,
                              preexec_fn=child())
        if done.returncode:
            raise Failed(f"{name} was not made: {done.stderr.strip().splitlines()[-1]}")
        self.made = json.loads((self.folder / "made.json").read_text())
        self.make_sets()

    def make_sets(self):
        items, package = extracttexts.items(self.args.items), self.row["package"]
        made = {f"labels-{n}": (items, n) for n in extractshapes.COUNTS
                if package != "transformers" or n < 100}
        if package == "transformers":  # a pass is 25 pairs an item
            made["labels-25"] = (items[:max(CHECK, len(items) // 8)], 25)
        if package == "gliner":
            made["document"] = ([extracttexts.document()], 25)
        made["one"] = (items[:self.args.one], 5)
        self.sets = {s: made[s] for s in SETS if s in made and s in self.args.sets}
        every = self.sets | {"check": (items[:CHECK], 5)}
        self.files, self.params, objects = {}, {}, {}
        for s, (texts, n) in every.items():
            labels, base = extracttexts.labels(n), f"{self.name}-{s}"
            objects[s] = [{"text": t, "labels": labels} for t in texts]
            self.files[s] = OUT / f"{base}.json"
            self.files[s].write_text(json.dumps(texts), encoding="utf-8")
            self.params[s] = OUT / f"{base}-params.json"
            self.params[s].write_text(json.dumps({"labels": labels, "options": self.options(n)}))
        self.check_words = sum(len(t.split()) for t in items[:CHECK])
        self.all_sets = OUT / f"{self.name}-extract-sets.json"
        self.all_sets.write_text(json.dumps(objects), encoding="utf-8")

    def options(self, labels):
        package = self.row["package"]
        if package == "gliner":
            return {"threshold": self.made["thresholds"][str(labels)]}
        return {"classification_type": "multi-label"} if package == "gliclass" else {}


class Extractor(Ours):
    """`sie-server race --extract`: a process for each set."""

    def __init__(self, name, binary, shape, threads, precision, env, log, prefix):
        self.shape = shape
        super().__init__(name, [*prefix, str(binary), "race", "-m", f"{MODEL}={shape.folder}", "--threads",
                                str(threads), "--precision", precision, "--device", "cpu",
                                "--no-hf-fallback", "--model", MODEL], shape.files, env, log)

    def _racer(self, name, *flags):
        key = (name, *flags)
        if key not in self.running:
            self.running[key] = Racer(
                f"{self.name} on {name}",
                [*self.command, str(self.files[name]), "--extract", str(self.shape.params[name]), *flags],
                self.env, f"{self.log}-{name}{''.join(flags)}.log")
        return self.running[key]

    def answers(self, name):
        told = self._racer(name).ask("answers")["answers"]["items"]
        labels = json.loads(self.shape.params[name].read_text())["labels"]
        return [self.answer(i, labels) for i in told]

    @staticmethod
    def answer(item, labels):
        if item.get("error"):
            raise Failed(f"an item failed: {item['error']}")
        if item["classifications"]:
            scores = {c["label"]: c["score"] for c in item["classifications"]}
            return [[name, scores[name]] for name in labels]
        return [[e["start"], e["end"], e["label"], e["score"]] for e in item["entities"]]


def start(shape, result, stack):
    """The engines, each in a process of its own."""
    racers, env, threads = {}, clean_env(), shape.args.threads
    prefix = archrace.prefix(threads)
    tune_on = "2" if shape.row["package"] == "transformers" else "8"  # a text is 25 pairs
    for precision in archrace.precisions():
        name = f"sie-{precision}"
        racers[name] = Extractor(name, shape.args.server, shape, threads, precision, env,
                                 OUT / f"{shape.name}-{name}", prefix)
        stack.callback(racers[name].close)
    for engine in extractengines.of(shape.row):
        if engine not in shape.args.engines:
            continue
        if extractengines.ENGINES[engine][1] == "bf16" and not machine.multiplies_bf16():
            result["failed"][engine] = "this CPU has no bf16 instructions"
            continue
        try:
            racers[engine] = Peer(engine, [
                *prefix, sys.executable, "-B", str(ROOT / "bench" / "peer.py"), engine, str(shape.all_sets),
                "--engines", "extractengines", "--model", str(shape.folder), "--cache",
                str(shape.args.cache), "--threads", str(threads), "--tune-on", tune_on], env,
                OUT / f"{shape.name}-{engine}.log")
            stack.callback(racers[engine].close)
            result["versions"] |= racers[engine].ready["versions"]
        except Failed as err:
            result["failed"][engine] = str(err)
    return racers


def decisions(answer):
    """What an answer decides, and its scores: {key: score}."""
    return {tuple(a[:-1]): a[-1] for a in answer}


def agreement(got, want):
    """Share of equal decisions among all that either makes, and the largest difference of the scores of
    the equal ones."""
    same = every = 0
    largest = 0.0
    for a, b in zip(got, want):
        a, b = decisions(a), decisions(b)
        same += len(a.keys() & b.keys())
        every += len(a.keys() | b.keys())
        largest = max([largest, *(abs(a[k] - b[k]) for k in a.keys() & b.keys())])
    return {"equal": same / every if every else 0.0, "score": largest, "decisions": every}


def compare(shape, racers, result):
    """Answers against those of the package in fp32. Engines that give others leave the race."""
    reference = next((e for e in extractengines.of(shape.row) if e.endswith("fp32") and e in racers), None)
    if reference is None:
        result["failed"]["answers"] = "not compared: the package's fp32 is not in the race"
        return
    found = {}
    for name, racer in list(racers.items()):
        try:
            racer.tune("check")
            found[name] = racer.answers("check")
        except Failed as err:
            kind = "not_served" if name.startswith("sie-") else "failed"
            result[kind][name] = f"answers: {err}"
            racers.pop(name).close()
    want = found.get(reference)
    for name, got in found.items():
        if want is None:
            break
        told = result["answers"][name] = agreement(got, want)
        least, largest = BOUNDS["bf16" if "bf16" in name else "fp32"]
        told["right"] = told["equal"] >= least and told["score"] <= largest and told["decisions"] > 0
        if not told["right"]:
            result["failed"][name] = f"other answers, not timed: {told}"
            racers.pop(name).close()


def race_set(shape, racers, s, result):
    args, times = shape.args, {}
    for name, racer in list(racers.items()):
        try:
            chosen = racer.tune_each(s) if s == "one" else racer.tune(s)
            result["settings"].setdefault(name, {})[s] = chosen
            times[name] = 1 if s == "one" else max(1, min(64, round(args.turn_seconds / racer.go(s, 1))))
        except Failed as err:
            result["failed"][name] = f"{s}: {err}"
            racers.pop(name).close()
    rows = result["runs"].setdefault(s, {name: [] for name in racers})
    count = len(shape.sets[s][0])
    for _ in range(args.rounds):
        for name, racer in list(racers.items()):
            try:
                if s == "one":
                    rows[name].append(1e3 * measures.quantile(racer.each(s)[2:], 0.5))
                else:
                    rows[name].append(times[name] * count / racer.go(s, times[name]))
            except Failed as err:  # rounds must stay rounds: its figures of this set go
                result["failed"][name] = f"{s}: {err}"
                rows.pop(name)
                racers.pop(name).close()
    for name, racer in racers.items():
        if name.startswith("sie-"):
            racer.drop(s)
    shape.say(f"{shape.name}, {s}: " + ", ".join(
        f"{n} {statistics.median(v):,.2f}" for n, v in rows.items()))


def race_parts(shape, result):
    """The parts, in the highest class of this machine."""
    precision = archrace.precisions()[-1]
    ours = extractparts.Ourselves(ROOT, OUT, MODEL, precision, clean_env(), archrace.prefix)
    with contextlib.closing(Extractor(
            f"sie-{precision}", shape.args.server, shape, shape.args.threads, precision, ours.env,
            OUT / f"{shape.name}-parts", archrace.prefix(shape.args.threads))) as extractor:
        extractparts.race(shape, extractor, ours, result)


def race_shape(shape, result):
    result |= {"settings": {}, "versions": {}, "answers": {}, "runs": {}}
    if not shape.args.only_parts:
        with contextlib.ExitStack() as stack:
            racers = start(shape, result, stack)
            compare(shape, racers, result)
            for s in shape.sets:
                race_set(shape, racers, s, result)
    race_parts(shape, result)
    if shape.args.published:
        result["http"] = Served(shape, MODEL, OUT).race(shape.args.published)


def main():
    args = arguments()
    began = time.monotonic()

    def say(what):
        print(f"bench-extract: [{time.monotonic() - began:4.0f} s] {what}", file=sys.stderr, flush=True)

    os.environ["HF_HUB_OFFLINE"] = "1"
    args.cache.mkdir(parents=True, exist_ok=True)
    with classic.alone():
        record = {"about": records.about("bench-extract") | {
            "rounds": args.rounds, "layers": args.layers, "threads": args.threads, "items": args.items,
            "class": extractreport.class_of(machine.flags())}, "shapes": {}}
        with records.kept(record, args.results, "extract"):
            for name in args.shapes:
                of = record["shapes"][name] = {"failed": {}, "not_served": {}}
                try:
                    say(f"{name}: made, or taken from the cache")
                    shape = Shape(name, args, say)
                except Failed as err:
                    of["left_out"] = str(err)
                    continue
                of["model"] = shape.made
                race_shape(shape, of)
        records.write(args.results, "extract", record, extractreport.markdown(record))


if __name__ == "__main__":
    try:
        main()
    except Failed as err:
        sys.exit(f"bench-extract: {err}")
    except KeyboardInterrupt:
        sys.exit("bench-extract: interrupted")
