"""Runs tests many times over and reports each one that fails at least once, beside what the machine
is asked to do meanwhile.

Usage: flaky.py [--part go|race|python|tools|c|asan …] [--times N] [--quick SECONDS] [--busy N]
[--jobs N] [--only PATTERN] [--minutes M] [--report FILE] [--add]

Go tests run in random order and on 1, 2 and 8 CPUs in turn, `--times` times in all (100 by
default); so do client tests and those of our tools, in their files' order; C tests a fifth of that;
those under sanitizers and the race detector three times in a hundred. Runs have the turns of make
test one after another, as so many commits have, so that they take every part of a long list.
`--busy` spins that many CPUs meanwhile (1 by default), and `--jobs` Go packages or C tests run at a
time (as many as there are CPUs by default): with more, each has less of a CPU. A run that fails is
not the end: the report says of each test how often it ran and failed, and keeps the first output of
each failure. Ends with 1 when any failed.

`--quick` is for a machine that has an hour, not a day: a test of which no run was quicker than these
seconds is not run again, and the report counts such tests. With `--minutes` it stops
starting runs after that time and says how many were left out; with `--add` it goes on with the
counts of the report before, and a test that has run as often as it is to is left out.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import functools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as tree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build/flaky"
MODULE = "github.com/sie-engine/sie"
SHARE = {"go": 1.0, "python": 1.0, "tools": 1.0, "c": 0.2, "asan": 0.03, "race": 0.03}
RACE_PACKAGES = re.search(r'^race_packages="([^"]*)"$', (ROOT / "tools/test/all.sh").read_text(),
                          re.M)[1].replace("\\", "").split()
# As make test has them: what cannot run fails instead of being skipped, and tests start the programs
# in bin.
ENVIRONMENT = {f"SIE_REQUIRE_{what}": "1" for what in ("MINILM", "BUCKETS", "BROWSER", "CLIENTS")}
ENVIRONMENT["SIE_TEST_PROGRAMS"] = str(ROOT / "bin")


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Tally:
    """How often each test ran and failed, how long its longest and its quickest passing run were, what
    it said when it first failed, and the turn that the next run has."""

    def __init__(self):
        self.ran, self.failed = collections.Counter(), collections.Counter()
        self.said, self.seconds, self.quickest, self.turn = {}, {}, {}, 0

    def note(self, name, passed, output, seconds=0.0):
        self.ran[name] += 1
        if not passed:
            self.failed[name] += 1
            self.said.setdefault(name, output[-6000:])
        else:
            self.seconds[name] = max(seconds, self.seconds.get(name, seconds))
            self.quickest[name] = min(seconds, self.quickest.get(name, seconds))

    def done(self, args, part, prefix):
        """The tests of a part that are not run again: those that are slow, and those that have run as
        often as they are to."""
        times = rounds(args, part)
        return [name.removeprefix(prefix) for name, ran in self.ran.items() if name.startswith(prefix) and
                (args.quick and self.quickest.get(name, 0) > args.quick or args.add and ran >= times)]

    def save(self, path):
        path.write_text(json.dumps(vars(self)), encoding="utf-8")

    def load(self, path):
        kept = json.loads(path.read_text(encoding="utf-8"))
        self.ran, self.failed = collections.Counter(kept["ran"]), collections.Counter(kept["failed"])
        self.said, self.seconds, self.turn = kept["said"], kept["seconds"], kept.get("turn", 0)
        self.quickest = kept.get("quickest", dict(self.seconds))


running = set()  # the process groups of the commands that run


def end_all(*_):
    """Ends every command that runs, with the programs that it has started, and the runs."""
    for group in running.copy():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    raise KeyboardInterrupt


def run(command, cwd=ROOT, **env):
    """Runs a command. Returns its status and what it said."""
    with subprocess.Popen(command, cwd=cwd, env={**os.environ, **ENVIRONMENT, **env}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", process_group=0,
                          preexec_fn=die_with_parent) as process:
        running.add(process.pid)
        try:
            out, _ = process.communicate()
        finally:
            running.discard(process.pid)
    return process.returncode, out


@functools.cache
def test2json():
    """The program that reads what Go tests say. `go tool` would build it with flags of its own, and
    the standard library for it once more."""
    BUILT.mkdir(parents=True, exist_ok=True)
    program = BUILT / "test2json"
    subprocess.run(["go", "build", "-o", str(program), "cmd/test2json"], cwd=ROOT, check=True)
    return str(program)


class Go:
    """All Go tests. Their programs are built once: to link them again takes longer than most run."""

    def __init__(self, race=False):
        self.race, self.prefix, self.programs = race, "race " if race else "go ", None

    def build(self):
        tags = "native,disable_grpc_modules,netgo,osusergo"
        flags = ["-tags", f"{tags},lockcheck", "-race"] if self.race else ["-tags", tags]
        tested = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"
        code, out = run(["go", "list", *flags, "-f", tested, *(RACE_PACKAGES if self.race else ["./..."])])
        if code:
            sys.exit(out)
        self.programs = {}
        for package in out.split():
            name = package.removeprefix(MODULE).strip("/") or "."
            program = BUILT / ("race" if self.race else "go") / name.replace("/", "_")
            code, out = run(["go", "test", "-c", *flags, "-o", str(program), package])
            if code:
                sys.exit(out)
            self.programs[name] = program

    def __call__(self, tally, n, args):
        if self.programs is None:
            self.build()
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as rows:
            for package, out in rows.map(lambda package: (package, self.package(tally, package, n, args)),
                                         list(self.programs)):
                self.judge(tally, package, *out)

    def package(self, tally, package, n, args):
        command = [str(self.programs[package]), "-test.v=test2json", "-test.shuffle=on", "-test.timeout=60m",
                   f"-test.cpu={(1, 2, 8)[n % 3]}", f"-test.run={args.only}"]
        prefix = f"{self.prefix}{package} "
        if done := tally.done(args, self.prefix.strip(), prefix):
            if len(done) == sum(name.startswith(prefix) for name in tally.ran):
                return 0, ""
            command.append(f"-test.skip=^({'|'.join(done)})$")
        return run([*command, *(["-test.short"] if self.race else [])], cwd=ROOT / package)

    def judge(self, tally, package, code, out):
        events = subprocess.run([test2json(), "-t"], input=out, stdout=subprocess.PIPE, text=True,
                                check=True).stdout
        words, failed = collections.defaultdict(str), False
        spent = collections.defaultdict(collections.Counter)
        for event in map(json.loads, events.splitlines()):
            name = event.get("Test", "")
            test, depth = name.split("/")[0], name.count("/")
            if event["Action"] == "output":
                words[test] += event["Output"]
            elif test and event["Action"] in ("pass", "fail"):
                # A test's own time leaves out its parallel parts, which have ended before it is told.
                spent[test][depth] += event.get("Elapsed", 0)
                if not depth:
                    failed |= event["Action"] == "fail"
                    tally.note(f"{self.prefix}{package} {test}", event["Action"] == "pass", words[test],
                               max(spent[test].values()))
        # What ends the program itself: TestMain, a time limit, a race outside a test.
        if code and not failed:
            tally.note(f"{self.prefix}{package}", False, out)


def cases(tally, report, name, code, out):
    """Notes what a report in JUnit's form has."""
    found = list(tree.parse(report).iter("testcase")) if report.exists() else []
    for case in found:
        if case.find("skipped") is not None:
            continue
        wrong = [e for e in case if e.tag in ("failure", "error")]
        said = "".join(e.text or e.get("message", "") for e in wrong) or case.findtext("system-out") or ""
        passed = not wrong and case.get("status") in (None, "run")
        tally.note(name(case), passed, said, float(case.get("time", 0)))
    report.unlink(missing_ok=True)
    if not found:
        tally.note(name(None), code == 0, out)


def pytest(tally, args, part, folder, **env):
    """Runs a folder's tests, whose modules find each other there."""
    report, files = BUILT / f"{part}.xml", sorted((ROOT / folder).glob("test_*.py"))
    command = ["build/venv-clients/bin/python", "-B", "-m", "pytest", "-q", "--import-mode=importlib",
               f"--rootdir={ROOT}", f"--junitxml={report}", *map(str, files),
               *(["-k", args.only] if args.only else [])]
    done = tally.done(args, part, f"{part} ")
    command += [f"--deselect={test}" for test in done]

    def name(case):
        if case is None or not case.get("classname"):
            return f"{part} pytest" if case is None else f"{part} {case.get('name')}"
        # The file is the part of the dotted name that there is a file of; the rest are classes.
        words = case.get("classname").split(".")
        files = ["/".join(words[:n]) + ".py" for n in range(1, len(words) + 1)]
        n = next(n for n, file in enumerate(files, 1) if (ROOT / file).exists())
        return "::".join([f"{part} {files[n - 1]}", *words[n:], case.get("name")])

    code, out = run(command, PYTHONPATH=str(ROOT / folder), **env)
    if code != 5 or not done:  # 5: no test is left
        cases(tally, report, name, code, out)


def python(tally, n, args):
    pytest(tally, args, "python", "tools/test/clients")


# What is killed at random has another seed in each run.
def tools(tally, n, args):
    for folder in ("tools/kernels", "tools/mutate", "tools/golden", "tools/gpu", "tools/docker", "tools/test",
                   "bench"):
        pytest(tally, args, "tools", folder, SIE_GPU_KILL_SEED=str(n + 1))


def ctest(tally, args, part, build):
    report = BUILT / f"{build}.xml"
    command = ["ctest", "--test-dir", build, "-j", str(args.jobs), "--output-on-failure",
               "--schedule-random", "--output-junit", str(report), *(["-R", args.only] if args.only else [])]
    if done := tally.done(args, part, f"{build} "):
        command += ["-E", f"^({'|'.join(map(re.escape, done))})$"]
    cases(tally, report, lambda case: f"{build} {case.get('name') if case is not None else 'ctest'}",
          *run(command))


PARTS = {"go": Go(), "race": Go(race=True), "python": python, "tools": tools,
         "c": lambda tally, n, args: ctest(tally, args, "c", "build"),
         "asan": lambda tally, n, args: ctest(tally, args, "asan", "build-asan")}


def rounds(args, part):
    """How often each test of a part is to run."""
    return max(1, round(args.times * SHARE[part]))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--part", action="append", choices=PARTS,
                   help="only this part; may be given several times")
    p.add_argument("--times", type=int, default=100, help="runs of Go and client tests")
    p.add_argument("--quick", type=float, default=0, help="run no test again that always takes longer")
    p.add_argument("--busy", type=int, default=1, help="CPUs that spin meanwhile")
    p.add_argument("--jobs", type=int, default=os.cpu_count(), help="Go packages or C tests at a time")
    p.add_argument("--only", default="", help="only tests whose names match")
    p.add_argument("--minutes", type=float, default=0, help="start no run after this long; 0: no limit")
    p.add_argument("--report", type=Path, default=ROOT / "build/flaky.md", help="the report by test")
    p.add_argument("--add", action="store_true", help="go on with the counts of that report")
    args = p.parse_args()
    BUILT.mkdir(parents=True, exist_ok=True)
    tally, began = Tally(), time.monotonic()
    if args.add and args.report.with_suffix(".json").exists():
        tally.load(args.report.with_suffix(".json"))
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, end_all)
    most = {name: rounds(args, name) for name in args.part or PARTS}
    counts = dict.fromkeys(most, 0)
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=die_with_parent)
                for _ in range(args.busy)]
    try:
        for n in range(max(most.values())):
            os.environ["SIE_TEST_TURN"], tally.turn = str(tally.turn), tally.turn + 1
            for name in [name for name in most if n < most[name]]:
                if args.minutes and time.monotonic() - began > 60 * args.minutes:
                    continue
                start, used = time.monotonic(), cpu()
                PARTS[name](tally, n, args)
                counts[name] += 1
                print(f"flaky: {name} {n + 1} of {most[name]} in {time.monotonic() - start:.0f} s, "
                      f"{cpu() - used:.0f} s of CPU, {len(tally.failed)} tests have failed so far",
                      flush=True)
                write(args, tally, counts, most)
    except KeyboardInterrupt:
        pass
    finally:
        for s in spinners:
            s.kill()
            s.wait()
    print(write(args, tally, counts, most))
    sys.exit(1 if tally.failed or not tally.ran else 0)


def by_group(tally):
    """A table of how often the tests of each Go package, Python file and build of C have run, and how
    long the longest took: those first that have run least."""
    groups = collections.defaultdict(list)
    for name in tally.ran:
        groups[name.split("::")[0] if "::" in name else name.rpartition(" ")[0]].append(name)
    rows = ["| tests of | tests | runs: fewest | median | most | longest, s |", "|---|---|---|---|---|---|"]
    for group, names in sorted(groups.items(), key=lambda item: min(tally.ran[name] for name in item[1])):
        ran = sorted(tally.ran[name] for name in names)
        longest = max(tally.seconds.get(name, 0) for name in names)
        rows.append(f"| {group} | {len(ran)} | {ran[0]} | {ran[len(ran) // 2]} | {ran[-1]} | {longest:.1f} |")
    return "\n".join(rows)


def cpu():
    """Seconds of CPU of every process that has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write(args, tally, counts, most):
    """Writes the report and returns its table."""
    left = {k: n - counts[k] for k, n in most.items() if n > counts[k]}
    done = ", ".join(f"{k} {n} times" for k, n in counts.items())
    head = (f"{done}, beside {args.busy} busy CPUs of {os.cpu_count()}: {len(tally.ran)} tests, "
            f"{sum(tally.ran.values())} runs, {len(tally.failed)} tests failed at least once.")
    if args.quick:
        slow = sum(seconds > args.quick for seconds in tally.quickest.values())
        head += f" {slow} tests that always took longer than {args.quick:g} s were not run again."
    if left:
        head += " Not run: " + ", ".join(f"{k} {n} times" for k, n in left.items()) + "."
    often = [(n, sum(ran >= n for ran in tally.ran.values())) for n in (100, 50, 20, 10, 5, 3, 2, 1)]
    head += "\n\nAt least so often ran: " + ", ".join(f"{n}: {tests} tests" for n, tests in often) + "."
    rows = [f"| {name} | {n} | {tally.ran[name]} |" for name, n in tally.failed.most_common()]
    table = "\n".join([head, *(["", "| test | failed | of |", "|---|---|---|", *rows] if rows else [])])
    said = "".join(f"\n\n## {name}\n\n```\n{said}\n```" for name, said in tally.said.items())
    text = f"{table}{said}\n\n## Runs\n\n{by_group(tally)}\n"
    args.report.parent.mkdir(parents=True, exist_ok=True)
    args.report.write_text(text, encoding="utf-8")
    tally.save(args.report.with_suffix(".json"))
    return table


if __name__ == "__main__":
    main()
