"""Mutants of one build, the programs that judge them, and their verdicts."""

import concurrent.futures
import dataclasses
import hashlib
import json
import pathlib
import re
import threading
import time

import build
import host
import inprocess
import runner

# Programs that run kernels on the emulator: name → its first arguments. Those that the build has are used.
PROGRAMS = {"gemm_tests": (), "cuda_attention_tests": (), "kernel_tests": ("--gpu",)}
QUICK = 4  # seconds


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """What is mutated, and the programs that judge it."""

    name: str
    sources: type
    builder: type
    programs: dict
    self_check: tuple  # file and text of a mutant that must be killed
    sampled_units: int  # compiled in about a minute


CUDA = Kind("cuda", build.Sources, build.Builder, PROGRAMS, ("gemm_sm80_tile.cuh", "__syncthreads()"), 8)
HOST = Kind("host", host.Sources, host.Builder, host.PROGRAMS,
            ("csrc/slabs.cc", "slab.tokens + length <= limits.tokens_max"), 6)
KINDS = {"cuda": CUDA, "host": HOST}


class Cache:
    """Verdicts by content, one line of JSON each; appended as they come, so that a stopped run goes
    on."""

    def __init__(self, path):
        self.path, self.lock, self.known = path, threading.Lock(), {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                    key, _ = entry.pop("key"), entry.pop("mutant")
                    self.known[key] = runner.Verdict(**entry)
                except (ValueError, KeyError, TypeError):  # the end of a run that was killed while it wrote
                    continue

    def get(self, key):
        return self.known.get(key)

    def put(self, key, name, verdict):
        with self.lock:
            self.known[key] = verdict
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps({"key": key, "mutant": name, **vars(verdict)}) + "\n")


class Session:
    def __init__(self, options, build_folder, proven, kind):
        self.options, self.kind = options, kind
        self.proven = proven
        self.begin = time.monotonic()
        self.sources = kind.sources(build_folder)
        self.out = (pathlib.Path(options.out, pathlib.Path(build_folder).name) if options.out
                    else pathlib.Path(build_folder)) / ("mutate" if kind is CUDA else f"mutate-{kind.name}")
        self.builder = kind.builder(self.sources, self.out, options.jobs, self.say)
        self.cache = Cache(self.out / "verdicts.jsonl")
        self.tests_digest = self.sources.tests_digest()
        present = {p.name.removesuffix(".dir")
                   for p in (pathlib.Path(build_folder) / "CMakeFiles").glob("*.dir")}
        self.programs = {p: a for p, a in kind.programs.items() if p in (options.programs or present)}

    def say(self, text):
        print(text, flush=True)

    def key(self, mutant):
        programs = self.programs if self.kind is CUDA else inprocess.programs_for(mutant.file)
        judges = (*sorted(programs), str(self.options.tests), str(self.options.seeds),
                  str(bool(self.builder.sanitize)))
        if self.kind is HOST:
            judges += host.machine()[0]
        text = "\n".join((mutant.id, *judges, self.sources.digest(mutant.file), self.tests_digest))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def prepare(self, units):
        """Builds the program with all mutants of these units, and runs every test without one."""
        paths, numbered, fixed = self.builder.instrumented(units, self.programs)
        switchable = list(numbered.values())
        self.numbers = {m.id: n for n, m in numbered.items()}
        self.paths, self.tests = paths, []
        self.whole, self.first = [], {}  # of try_first_parts: all tests, and what was tried of them
        built = time.monotonic()
        self.say(f"mutate: {len(switchable)} mutants in one build, {len(fixed)} need one each: "
                 f"{built - self.begin:.0f} s")
        return switchable, fixed

    def names(self, program):
        names = runner.names_of(self.paths[program], self.programs[program])
        return [name for name in names if re.search(self.options.tests, name)]

    def try_tests(self):
        """Runs every test without a mutant; remembers them for these programs."""
        begin = time.monotonic()
        digest = hashlib.sha256(b"".join(p.read_bytes() for p in self.paths.values())).hexdigest()
        digest += str(self.options.tests)
        remembered = self.out / "tests.json"
        if remembered.exists() and (known := json.loads(remembered.read_text()))["programs"] == digest:
            self.tests = [runner.Test(t[0], tuple(t[1]), t[2], t[3], frozenset(t[4])) for t in known["tests"]]
            return
        whole = [runner.Test(program, (*arguments, "=" + name), "", 0.0, frozenset())
                 for program, arguments in self.programs.items()
                 for name in self.names(program)]
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            parts = pool.map(lambda t: runner.parts_of(self.paths[t.program], t, self.options.test_seconds),
                             whole)
            self.tests = [test for tests in parts for test in tests]
        known = [[t.program, t.arguments, t.part, t.seconds, sorted(t.reached)] for t in self.tests]
        remembered.write_text(json.dumps({"programs": digest, "tests": known}))
        self.say(f"mutate: {len(whole)} tests pass without a mutant: {time.monotonic() - begin:.0f} s")

    def try_first_parts(self, files, slower=1):
        """For a sample of these files: a sixteenth of every test without a mutant, those first whose
        names are most like the files'. The other parts count as alike in time and in the mutants they
        come by; tests that are long even so are left out. A machine that is `slower` gets so many
        times as long, and goes on where it stopped."""
        begin = time.monotonic()
        if not self.whole:
            self.whole = by_likeness([runner.Test(program, (*arguments, "=" + name), "0/16", 0.0, frozenset())
                                      for program, arguments in self.programs.items()
                                      for name in self.names(program)], files)

        def tried(test):
            if time.monotonic() <= begin + slower * self.options.seconds / 4:
                self.first[test.name] = runner.try_test(self.paths[test.program], test,
                                                        self.options.test_seconds)

        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(tried, [t for t in self.whole if t.name not in self.first]))
        self.tests = [part for t in self.first.values() if t.seconds < slower * self.options.longest / 4
                      for part in parts(t)]
        self.say(f"mutate: {len(self.first)} of {len(self.whole)} tests pass, a part of each, without a mutant: "
                 f"{time.monotonic() - begin:.0f} s")

    def all_parts(self):
        """Of every test, those left out as long, too."""
        timed = {t.name: t.seconds for t in self.tests}
        return [dataclasses.replace(p, seconds=timed.get(p.name, 6.0)) for t in self.whole for p in parts(t)]

    def judge_in_process(self, mutants, deadline):
        """judge_all of host mutants: all of them by one test after the other (inprocess.py)."""
        verdicts, waiting, enough = {}, {}, {}
        for mutant in mutants:
            verdict = self.cache.get(self.key(mutant))
            limited = self.options.quick or mutant.id in self.proven
            if verdict is None and limited:
                verdict = self.cache.get(self.key(mutant) + f"-{QUICK}")
            if verdict is not None:
                verdicts[mutant.id] = verdict
            elif mutant.id in self.numbers:
                waiting[self.numbers[mutant.id]] = mutant
                if limited:
                    enough[self.numbers[mutant.id]] = QUICK

        def put(number, verdict):
            mutant = waiting[number]
            verdicts[mutant.id] = verdict
            suffix = f"-{QUICK}" if number in enough and verdict.outcome == "survived" else ""
            self.cache.put(self.key(mutant) + suffix, mutant.id, verdict)

        times = inprocess.Times(self.out / "times.json")
        for program in self.programs:
            numbers = [n for n, m in waiting.items() if program in inprocess.programs_for(m.file)]
            if not numbers:
                continue
            tests = inprocess.tests_of(self.paths[program], program, self.programs[program],
                                       self.options.tests)
            inprocess.measure(self.paths[program], program, self.programs[program], tests, times)
            result = inprocess.judge_all(self.paths, tests, numbers, times, self.options.jobs, deadline,
                                         enough, kill=put, say=self.say)
            if not result.complete:
                continue
            for number in sorted(result.live):
                by = "" if number in result.reached else "never reached"
                if number in enough:
                    by = f"{QUICK} s of tests"
                put(number, runner.Verdict("survived", by, "", "", 0.0))
                mutant = waiting[number]
                if mutant.id not in self.proven:
                    self.say(f"  survived: {mutant.id}    ({by or 'line ' + str(mutant.line)})")
        return verdicts

    def judge_singles(self, mutants, verdicts, deadline):
        """Those in constants, which have a build each, by all tests of their programs as ordinary
        runs."""
        for mutant in mutants:
            late = deadline is not None and time.monotonic() > deadline
            if mutant.id in self.numbers or mutant.id in verdicts or late:
                continue
            verdict = self.cache.get(self.key(mutant))
            if verdict is None:
                programs = [p for p in self.programs if p in inprocess.programs_for(mutant.file)]
                paths, words = self.builder.single(mutant, programs)
                if paths is None:
                    verdict = runner.Verdict("uncompiled", "compiler", "", words[:300], 0.0)
                else:
                    times = inprocess.Times(self.out / "times.json")
                    tests = [runner.Test(t.program, t.arguments, t.part, times.known.get(t.name, 1.0),
                                         frozenset()) for p in programs
                             for t in inprocess.tests_of(paths[p], p, self.programs[p], self.options.tests)]
                    verdict = runner.judge(paths, tests, None, (1,),
                                           enough=QUICK if mutant.id in self.proven else None)
                self.cache.put(self.key(mutant), mutant.id, verdict)
            verdicts[mutant.id] = verdict
            if verdict.outcome == "survived" and mutant.id not in self.proven:
                self.say(f"  survived: {mutant.id}    (line {mutant.line})")
        return verdicts

    def tests_for(self, mutant, near=False):
        """Tests that come by the mutant; near: or by another one of its function."""
        number = self.numbers.get(mutant.id)
        wanted = {number}
        if near or number is None:
            start = f"{mutant.file} | {mutant.function} | " if near else mutant.file + " | "
            wanted |= {n for name, n in self.numbers.items() if name.startswith(start)}
        return [t for t in self.tests if not t.reached.isdisjoint(wanted)]

    def judge(self, mutant):
        """What is proven to change nothing, and with --quick every mutant, gets some seconds of
        tests; all others get all tests."""
        key, enough = self.key(mutant), None
        verdict = self.cache.get(key)
        if verdict is None and (self.options.quick or mutant.id in self.proven):
            enough = QUICK
            key += f"-{enough}"
            verdict = self.cache.get(key)
        if verdict is None:
            number = self.numbers.get(mutant.id)
            if number is not None:
                verdict = runner.judge(self.paths, self.tests_for(mutant), number, self.options.seeds,
                                       enough=enough)
            else:
                tests = self.tests_for(mutant)
                paths, words = self.builder.single(mutant, sorted({t.program for t in tests}))
                if paths is None:
                    verdict = runner.Verdict("uncompiled", "compiler", "", words[:300], 0.0)
                else:
                    verdict = runner.judge(paths, tests, None, self.options.seeds, enough=enough)
            self.cache.put(key, mutant.id, verdict)
        return verdict

    def judge_all(self, mutants, deadline):
        """{id: Verdict} of those that were judged before the deadline (time.monotonic(); None:
        all)."""
        if self.kind is HOST:
            return self.judge_singles(mutants, self.judge_in_process(mutants, deadline), deadline)
        verdicts, done, shown = {}, 0, time.monotonic()
        switchable = [m for m in mutants if m.id in self.numbers]
        single = [m for m in mutants if m.id not in self.numbers]
        lock = threading.Lock()

        def one(mutant):
            nonlocal done, shown
            if deadline is not None and time.monotonic() > deadline:
                return
            verdict = self.judge(mutant)
            with lock:
                verdicts[mutant.id] = verdict
                done += 1
                if verdict.outcome == "survived":
                    self.say(f"  survived: {mutant.id}    ({verdict.by or 'line ' + str(mutant.line)})")
                if time.monotonic() - shown > 20:
                    shown = time.monotonic()
                    self.say(
                        f"mutate: {done} of {len(mutants)} mutants, {time.monotonic() - self.begin:.0f} s")

        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(one, switchable))
        for mutant in single:  # their builds share a folder, and use all jobs
            one(mutant)
        return verdicts

    def self_check(self):
        """The unchanged code has passed; a mutant that must not survive does not."""
        file, before = self.kind.self_check
        candidates = self.sources.mutants.get(file, ())
        victim = next((m for m in candidates if m.before == before and m.id in self.numbers), None)
        if victim is None:
            return
        if self.kind is HOST:
            tests = [inprocess.Test("csrc_tests", ("slabs_",), "")]
            if not inprocess.judge_all(self.paths, tests, [self.numbers[victim.id]],
                                       inprocess.Times(self.out / "times.json")).killed:
                raise SystemExit(f"mutate: the check does not work: nobody notices {victim.id}")
            return
        verdict = runner.judge(self.paths, self.tests_for(victim), self.numbers[victim.id], (1, 2, 3))
        if verdict.outcome != "killed":
            raise SystemExit(f"mutate: the check does not work: nobody notices {victim.id}")


def by_likeness(tests, files):
    """The tests in an order in which those come first whose names share most of their words with the
    files' names; those that share as many stay in theirs."""

    def words(text):
        return {w.rstrip("s") for w in re.split(r"[^a-z0-9]+", text.lower()) if w}

    wanted = set().union(*(words(pathlib.Path(f).stem) for f in files))

    def likeness(test):
        own = words(f"{test.program} {test.arguments[-1]}")
        return len(own & wanted) / len(own)

    return sorted(tests, key=likeness, reverse=True)


def parts(test):
    """Sixteenths of a list; other tests are not divided, whatever they are told."""
    return [dataclasses.replace(test, part=f"{i}/16") for i in range(16) if i == 0 or
            test.program == "kernel_tests"]
