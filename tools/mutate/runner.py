"""Runs programs with a mutant selected and says what became of it."""

import dataclasses
import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import time

ALWAYS = {"SIE_TEST_STOP": "1", "ASAN_OPTIONS": "detect_leaks=0"}
ASLEEP = 6  # seconds that all threads sleep without any CPU: nobody will wake them
SEEDS = (1, 2, 3)  # of the emulator: orders of fibers, moments of copies

@dataclasses.dataclass(frozen=True)
class Test:
    """One case of a program, or a part ("3/16") of one that is a long list."""

    program: str
    arguments: tuple
    part: str  # SIE_TEST_SHARD, or empty
    seconds: float  # without a mutant
    reached: frozenset  # numbers of the mutants it comes by

    @property
    def name(self):
        return " ".join((self.program, *self.arguments, self.part)).strip()

    def environment(self, seed):
        return {"SIE_SIMT_SEED": str(seed), **({"SIE_TEST_SHARD": self.part} if self.part else {})}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """killed, survived, or uncompiled; by: what killed it, in one word, and the test; seconds it
    took."""

    outcome: str
    by: str
    test: str
    detail: str
    seconds: float


def run(path, arguments, environment, limit):
    """(exit status or negative signal, or None after `limit` seconds of CPU or where all threads
    sleep; output's end). Again where somebody else ended it: that tells nothing about the
    program."""
    for _ in range(3):
        status, output = run_once(path, arguments, environment, limit)
        if status is None or -status not in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP):
            return status, output
    raise RuntimeError(f"{path} was ended by a signal from outside, three times")


def run_once(path, arguments, environment, limit):
    """CPU time, because other work or a stopped session would count as the program's; waiting has a
    far bound."""

    def bounded():
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        seconds = int(limit) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))

    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [str(path), *arguments], env={**os.environ, **ALWAYS, **environment}, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, preexec_fn=bounded,
        )
        status, asleep, before = None, 0, -1
        for _ in range(int(3600 + 20 * limit)):
            try:
                status = process.wait(timeout=1)
                break
            except subprocess.TimeoutExpired:
                spent = cpu_of_sleepers(process.pid)
                asleep = asleep + 1 if spent is not None and spent == before else 0
                before = spent
                if asleep >= ASLEEP:
                    break
        if status is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if status == -signal.SIGXCPU:
            status = None
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - 20000))
        return status, output.read().decode(errors="replace")


def cpu_of_sleepers(process):
    """CPU ticks of the process where all its threads sleep; None where one runs or waits for a core
    or a disk."""
    ticks = 0
    for path in pathlib.Path(f"/proc/{process}/task").glob("*/stat"):
        try:
            fields = path.read_text().rsplit(") ", 1)[1].split()
        except (OSError, IndexError):
            return None
        if fields[0] != "S":
            return None
        ticks += int(fields[11]) + int(fields[12])
    return ticks


def cause(status, output):
    """The word for what ended a program, and the line that says it."""
    lines = output.splitlines()

    def line_with(*words):
        return next((line.strip() for line in lines if any(w in line for w in words)), "")

    if status is None:
        return "timeout", ""
    if "ERROR: AddressSanitizer" in output or "runtime error:" in output:
        return "sanitizer", line_with("ERROR: AddressSanitizer", "runtime error:")
    if "deadlock, no thread can go on" in output:
        return "deadlock", line_with("simt: kernel")
    if "simt: " in output and status == -signal.SIGABRT:
        at = next(i for i, line in enumerate(lines) if line.startswith("simt: "))
        return "emulator", " ".join(line.strip() for line in lines[at : at + 2])
    if status == -signal.SIGABRT:
        return "assertion", line_with("Assertion") or "abort"
    if status == -signal.SIGILL:
        return "bounds", "an index outside its array"
    if status < 0:
        return "crash", signal.Signals(-status).name
    return "numbers", next((line.strip() for line in lines if re.match(r"\s+\S+:\d+: ", line)),
                           f"exit status {status}")


def names_of(path, arguments):
    """The program's cases."""
    status, output = run(path, arguments, {"SIE_TEST_LIST": "1"}, 60)
    if status != 0:
        raise RuntimeError(f"{path} does not list its tests:\n{output[-2000:]}")
    return [line for line in output.splitlines() if line.isidentifier()]


def try_test(path, test, limit, seed=1):
    """The test on the unchanged code, which must pass, with its time and the mutants it comes
    by."""
    with tempfile.TemporaryDirectory() as folder:
        reached = pathlib.Path(folder, "reached")
        begin = time.monotonic()
        environment = {**test.environment(seed), "SIE_MUTANTS_REACHED": str(reached)}
        status, output = run(path, test.arguments, environment, limit)
        if status != 0 or not reached.exists():
            raise RuntimeError(f"{test.name} fails without a mutant:\n{output[-3000:]}")
        numbers = frozenset(n for n, came in enumerate(reached.read_bytes()) if came)
        return dataclasses.replace(test, seconds=time.monotonic() - begin, reached=numbers)


def parts_of(path, test, limit):
    """A long test as parts of about two seconds, or as it is where it cannot be divided."""
    whole = try_test(path, test, limit)
    count = min(16, int(whole.seconds / 2) + 1)
    if count == 1:
        return [whole]
    first = try_test(path, dataclasses.replace(test, part=f"0/{count}"), limit)
    if first.seconds > 0.7 * whole.seconds:
        return [whole]
    others = (dataclasses.replace(test, part=f"{i}/{count}") for i in range(1, count))
    return [first, *(try_test(path, other, limit) for other in others)]


def judge(paths, tests, number, seeds=SEEDS, until=None, enough=None):
    """Runs the tests, quick ones first, with one seed after the other until one fails. number: None
    for programs that hold this mutant alone. until: None where time.monotonic() passes it before
    the verdict. enough: whoever lives through the tests that fit into so many seconds has
    survived."""
    begin = time.monotonic()
    if not tests:
        return Verdict("survived", "never reached", "", "", 0.0)
    for seed in seeds:
        for test in sorted(tests, key=lambda t: t.seconds):
            if enough is not None and time.monotonic() - begin + test.seconds > enough:
                return Verdict("survived", f"{enough:.0f} s of tests", "", "", time.monotonic() - begin)
            environment = test.environment(seed)
            if number is not None:
                environment["SIE_MUTANT"] = str(number)
            limit = 10 + 5 * test.seconds
            if until is not None and time.monotonic() + limit > until:
                return None
            status, output = run(paths[test.program], test.arguments, environment, limit)
            if status != 0:
                by, detail = cause(status, output)
                return Verdict("killed", by, test.name, detail[:300], time.monotonic() - begin)
    return Verdict("survived", "", "", "", time.monotonic() - begin)
