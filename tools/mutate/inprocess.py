"""Judges host mutants inside the test programs (judge.cc): a program runs a test, and at each part
of it forks once for every mutant that the part comes by and that still lives. Inputs and
expectations are made once for all of them."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import time

import runner

SHARDS = 16
DEADLINE = 75  # exit status of a program that ran into it (judge.cc)


@dataclasses.dataclass(frozen=True)
class Test:
    """A case of a program, or a part of one that is a list."""

    program: str
    arguments: tuple
    part: str  # SIE_TEST_SHARD, or empty

    @property
    def name(self):
        return " ".join((self.program, *self.arguments, self.part)).strip()


@dataclasses.dataclass
class Outcome:
    """What one test made of some mutants."""

    killed: dict  # number → runner.Verdict
    reached: set
    seconds: float  # of CPU, of the unchanged code in parts that come by a mutant
    left_out: bool  # a part of it was longer than allowed
    complete: bool  # no deadline cut it short


@dataclasses.dataclass
class Result:
    """What many tests made of them."""

    killed: dict
    reached: set
    live: set
    left_out: list  # tests, at least a part of each
    complete: bool


def programs_for(file):
    """Who judges a file: a kernel is to be caught by the kernels' own tests."""
    return ("csrc_tests",) if file.startswith("csrc/") else ("kernel_tests",)


def tests_of(path, program, arguments, wanted):
    """All tests of the program, lists in parts: the first parts of all of them first. wanted: a
    compiled expression."""

    def names(which):
        _, output = runner.run(path, arguments, {"SIE_TEST_LIST": which}, 60)
        return [n for n in output.splitlines() if n.isidentifier() and wanted.search(n)]

    lists = names("parts")
    single = [Test(program, (*arguments, "=" + n), "") for n in names("1") if n not in lists]
    parts = [[Test(program, (*arguments, "=" + n), f"{i}/{SHARDS}") for n in lists] for i in range(SHARDS)]
    return parts[0] + single + sum(parts[1:], [])


def measure(path, program, arguments, tests, times):
    """The seconds of those tests that nobody has timed, and that are no parts, by one run without
    any mutant."""
    unknown = {t.name: t for t in tests if not t.part and t.name not in times.known}
    if not unknown:
        return
    _, output = runner.run(path, (*arguments, *(t.arguments[-1] for t in unknown.values())), {}, 600)
    for name, seconds in re.findall(r"^ok +(\w+) \(([0-9.]+) s\)$", output, re.MULTILINE):
        test = unknown.get(" ".join((program, *arguments, "=" + name)))
        if test is not None:
            times.put(test, float(seconds))


def judge(path, test, numbers, until=None, longest=None):
    """What the test makes of these mutants. until: of time.monotonic(); longest: seconds of CPU of
    a part."""
    with tempfile.TemporaryDirectory() as folder:
        lines, verdicts = pathlib.Path(folder, "numbers"), pathlib.Path(folder, "verdicts")
        lines.write_text("".join(f"{n}\n" for n in numbers))
        verdicts.touch()
        environment = {**os.environ, **runner.ALWAYS, "SIE_MUTANTS_JUDGE": str(lines),
                       "SIE_MUTANTS_VERDICTS": str(verdicts)}
        if test.part:
            environment["SIE_TEST_SHARD"] = test.part
        if until is not None:
            environment["SIE_MUTANTS_UNTIL"] = str(until)
        if longest is not None:
            environment["SIE_MUTANTS_LONGEST"] = str(longest)
        result = subprocess.run([str(path), *test.arguments], env=environment, stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, errors="replace")
        if result.returncode not in (0, DEADLINE):
            raise RuntimeError(
                f"{test.name} fails without a mutant:\n{result.stdout[-1000:]}\n{result.stderr[-2000:]}")
        outcome = Outcome({}, set(), 0.0, False, result.returncode == 0)
        for line in verdicts.read_text(errors="replace").splitlines():
            word, _, rest = line.partition(" ")
            if word == "time":
                outcome.seconds += float(rest.split()[0])
            elif word == "reached":
                outcome.reached.add(int(rest))
            elif word == "long":
                outcome.left_out = True
            elif word == "killed":
                number, by, detail = rest.split(" ", 2)
                outcome.killed[int(number)] = runner.Verdict("killed", by, test.name, detail[:300], 0.0)
        return outcome


class Times:
    """Of tests, as an earlier run found them."""

    def __init__(self, path):
        self.path = path
        self.known = json.loads(path.read_text()) if path.exists() else {}

    def put(self, test, seconds):
        self.known[test.name] = seconds
        self.path.write_text(json.dumps(self.known, indent=0))

    def order(self, tests, files=()):
        """First those that share a word of their name with one of the files, which come by its
        mutants soonest. Among them, and among the others, quick ones, then those nobody has timed,
        in the given order."""
        words = {w for f in files for w in pathlib.PurePath(f).stem.split("_")}
        return sorted(tests, key=lambda t: (words.isdisjoint(t.arguments[-1].lstrip("=").split("_")),
                                            self.known.get(t.name, 1.0)))


def judge_all(paths, tests, numbers, times, jobs=1, until=None, enough=None, longest=None, files=(),
              kill=lambda number, verdict: None, say=lambda text: None):
    """Every test against the mutants that still live, `jobs` tests at a time. kill: told of each at
    once. enough: {number: seconds of tests after which it has survived}, for some. longest: longer
    parts are left out; files: of the mutants, whose tests come first. Returns a Result."""
    live, spent, lock = set(numbers), {}, threading.Lock()
    result = Result({}, set(), live, [], True)

    def one(test):
        with lock:
            wanted = [n for n in sorted(live) if enough is None or n not in enough or
                      spent.get(n, 0.0) < enough[n]]
        if not wanted:
            return
        if until is not None and time.monotonic() > until:
            result.complete = False
            return
        outcome = judge(paths[test.program], test, wanted, until, longest)
        with lock:
            result.complete = result.complete and outcome.complete
            result.reached |= outcome.reached
            if outcome.left_out:
                result.left_out.append(test)
            for n in outcome.reached:
                spent[n] = spent.get(n, 0.0) + outcome.seconds
            for n, verdict in outcome.killed.items():
                if n in live:
                    live.remove(n)
                    result.killed[n] = verdict
                    kill(n, verdict)
            if outcome.complete and outcome.reached and not outcome.left_out:
                times.put(test, outcome.seconds)
            if outcome.reached:
                say(f"  {test.name}: {len(outcome.reached)} reached, {len(outcome.killed)} killed, {len(live)} live")

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, times.order(tests, files)))
    return result
