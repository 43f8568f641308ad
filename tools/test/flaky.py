"""Runs tests many times over and reports each one that fails at least once, beside what the machine
is asked to do meanwhile.

Usage: flaky.py [--part go|race|python|c|asan …] [--times N] [--busy N] [--only PATTERN] [--minutes
M] [--report FILE]

Go tests run in random order and on 1, 2 and 8 CPUs in turn, `--times` times in all (100 by
default); so do client tests, in their files' order; C tests a fifth of that; those under sanitizers
and the race detector three times in a hundred. `--busy` spins that many CPUs meanwhile (1 by
default). A run that fails is not the end: the report says of each test how often it ran and failed,
and keeps the first output of each failure. Ends with 1 when any failed. With `--minutes` it stops
starting runs after that time and says how many were left out.
"""

import argparse
import collections
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARE = {"go": 1.0, "python": 1.0, "c": 0.2, "asan": 0.03, "race": 0.03}
RACE_PACKAGES = re.search(r'^race_packages="([^"]*)"$', (ROOT / "tools/test/all.sh").read_text(),
                          re.M)[1].replace("\\", "").split()


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Tally:
    """How often each test ran and failed, and what it said when it first failed."""

    def __init__(self):
        self.ran, self.failed, self.said = collections.Counter(), collections.Counter(), {}

    def note(self, name, passed, output):
        self.ran[name] += 1
        if not passed:
            self.failed[name] += 1
            self.said.setdefault(name, output[-6000:])


def run(command, **env):
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", preexec_fn=die_with_parent)
    return done.returncode, done.stdout


def go(tally, n, only, race=False):
    """One run of all Go tests; the n-th decides the number of CPUs."""
    command = ["go", "test", "-json", "-tags", "native", "-count=1", "-shuffle=on",
               f"-cpu={(1, 2, 8)[n % 3]}", "-timeout=60m"]
    command += ["-race", "-short", *RACE_PACKAGES] if race else ["./..."]
    if only:
        command.insert(-1 if not race else 2, f"-run={only}")
    code, out = run(command, SIE_REQUIRE_MINILM="1")
    words, seen = collections.defaultdict(str), False
    for line in out.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        name = event.get("Package", "").removeprefix("github.com/sie-engine/sie/") + (
            " " + event["Test"] if "Test" in event else "")
        if event["Action"] == "output":
            words[name] += event["Output"]
        elif event["Action"] in ("pass", "fail") and "/" not in event.get("Test", ""):
            if "Test" in event or event["Action"] == "fail":
                seen = True
                tally.note(("race " if race else "") + name, event["Action"] == "pass", words[name])
    if not seen:
        tally.note("go test", code == 0, out)


def python(tally, n, only):
    report = ROOT / "build/flaky-junit.xml"
    command = ["build/venv-clients/bin/python", "-m", "pytest", "-q", f"--junitxml={report}",
               "tools/test/clients"]
    code, out = run(command + (["-k", only] if only else []))
    import xml.etree.ElementTree as tree

    cases = list(tree.parse(report).iter("testcase")) if report.exists() else []
    for case in cases:
        wrong = [e for e in case if e.tag in ("failure", "error")]
        tally.note(f"{case.get('classname')}::{case.get('name')}", not wrong,
                   "".join(e.text or "" for e in wrong))
    report.unlink(missing_ok=True)
    if not cases:
        tally.note("pytest", code == 0, out)


def c(tally, n, only, build="build"):
    report = ROOT / f"{build}/flaky-ctest.xml"
    code, out = run(["ctest", "--test-dir", build, "-j", str(os.cpu_count()), "--output-on-failure",
                     "--schedule-random", "--output-junit", str(report), *(["-R", only] if only else [])])
    import xml.etree.ElementTree as tree

    cases = list(tree.parse(report).iter("testcase")) if report.exists() else []
    for case in cases:
        tally.note(f"{build} {case.get('name')}", case.get("status") == "run",
                   case.findtext("system-out") or "")
    report.unlink(missing_ok=True)
    if not cases:
        tally.note("ctest", code == 0, out)


PARTS = {"go": go, "race": lambda t, n, only: go(t, n, only, race=True), "python": python, "c": c,
         "asan": lambda t, n, only: c(t, n, only, "build-asan")}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--part", action="append", choices=PARTS,
                   help="only this part; may be given several times")
    p.add_argument("--times", type=int, default=100, help="runs of Go and client tests")
    p.add_argument("--busy", type=int, default=1, help="CPUs that spin meanwhile")
    p.add_argument("--only", default="", help="only tests whose names match")
    p.add_argument("--minutes", type=float, default=0, help="start no run after this long; 0: no limit")
    p.add_argument("--report", type=Path, default=ROOT / "build/flaky.md", help="the report by test")
    args = p.parse_args()
    tally, counts, began = Tally(), {}, time.monotonic()
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=die_with_parent)
                for _ in range(args.busy)]
    try:
        rounds = {name: max(1, round(args.times * SHARE[name])) for name in args.part or PARTS}
        counts = dict.fromkeys(rounds, 0)
        for n in range(max(rounds.values())):
            for name in [name for name, most in rounds.items() if n < most]:
                if args.minutes and time.monotonic() - began > 60 * args.minutes:
                    continue
                start = time.monotonic()
                PARTS[name](tally, n, args.only)
                counts[name] += 1
                print(f"flaky: {name} {n + 1} of {rounds[name]} in {time.monotonic() - start:.0f} s, "
                      f"{len(tally.failed)} tests have failed so far", flush=True)
                write(args, tally, counts, rounds)
    except KeyboardInterrupt:
        pass
    finally:
        for s in spinners:
            s.kill()
            s.wait()
    print(write(args, tally, counts, rounds))
    sys.exit(1 if tally.failed or not tally.ran else 0)


def write(args, tally, counts, rounds):
    """Writes the report and returns its table."""
    left = {k: n - counts[k] for k, n in rounds.items() if n > counts[k]}
    head = (
        f"{', '.join(f'{k} {n} times' for k, n in counts.items())}, beside {args.busy} busy CPUs of {os.cpu_count()}: "
        f"{len(tally.ran)} tests, {sum(tally.ran.values())} runs, {len(tally.failed)} tests failed at least once.")
    if left:
        head += " Not run: " + ", ".join(f"{k} {n} times" for k, n in left.items()) + "."
    rows = [f"| {name} | {n} | {tally.ran[name]} |" for name, n in tally.failed.most_common()]
    table = "\n".join([head, *(["", "| test | failed | of |", "|---|---|---|", *rows] if rows else [])])
    text = table + "".join(f"\n\n## {name}\n\n```\n{said}\n```" for name, said in tally.said.items()) + "\n"
    args.report.parent.mkdir(parents=True, exist_ok=True)
    args.report.write_text(text, encoding="utf-8")
    return table


if __name__ == "__main__":
    main()
