#!/usr/bin/env python3
"""Mutation check of the kernels and of csrc: is every barrier, wait, mask, shuffle, bound and
stride needed, and does a test notice? Those of kernels/cuda run on the emulator.

    mutate.py run [FILE…]       every mutant (of these files); goes on where it was stopped
    mutate.py sample            some files and of them some of each class, chosen by --seed, within --seconds after the build
    mutate.py list [FILE…]      the mutants, as equivalent/*.txt name them
    mutate.py check             equivalent/*.txt against the sources, nothing is run
"""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import threading
import time

import build
import host
import inprocess
import proofs
import runner

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# Programs that run kernels on the emulator: name → its first arguments. Those that the build has are used.
PROGRAMS = {"gemm_tests": (), "cuda_attention_tests": (), "kernel_tests": ("--gpu",)}
QUICK = 4  # seconds
SAMPLED = 96  # mutants of the host in a sample


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
        text = "\n".join((mutant.id, *judges, self.sources.digest(mutant.file), self.tests_digest))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def prepare(self, units):
        """Builds the program with all mutants of these units, and runs every test without one."""
        paths, numbered, fixed = self.builder.instrumented(units, self.programs)
        switchable = list(numbered.values())
        self.numbers = {m.id: n for n, m in numbered.items()}
        self.paths, self.tests = paths, []
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

    def try_first_parts(self, slower=1):
        """For a sample: a sixteenth of every test without a mutant. The other parts count as alike
        in time and in the mutants they come by; tests that are long even so are left out. A machine
        that is `slower` gets so many times as long."""
        begin = time.monotonic()
        first = [runner.Test(program, (*arguments, "=" + name), "0/16", 0.0, frozenset())
                 for program, arguments in self.programs.items()
                 for name in self.names(program)]

        def tried(test):
            if time.monotonic() > begin + slower * self.options.seconds / 4:
                return None
            return runner.try_test(self.paths[test.program], test, self.options.test_seconds)

        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            done = [t for t in pool.map(tried, first) if t is not None and
                    t.seconds < slower * self.options.longest / 4]
        self.tests = [part for t in done for part in parts(t)]
        self.whole = first
        self.say(f"mutate: {len(done)} of {len(first)} tests pass, a part of each, without a mutant: "
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

    def sample_in_process(self, mutants, end):
        """Verdicts of host mutants: all by quick parts of the tests, then what lives, a few at a
        time, by all the others until the time is over. Each program has the same share of it."""
        verdicts, jobs = {}, self.options.jobs
        groups = {p: {self.numbers[m.id]: m for m in mutants if p in inprocess.programs_for(m.file)}
                  for p in self.programs}
        waiting, last = [(p, named) for p, named in groups.items() if named], end
        for done, (program, named) in enumerate(waiting):
            end = time.monotonic() + (last - time.monotonic()) / (len(waiting) - done)
            tests = inprocess.tests_of(self.paths[program], program, self.programs[program],
                                       self.options.tests)
            first = [t for t in tests if t.part.split("/")[0] in ("", "0")]
            times = inprocess.Times(self.out / "times.json")
            quick = time.monotonic() + 0.75 * (end - time.monotonic())
            begun = inprocess.judge_all(self.paths, first, named, times, jobs, quick, longest=1,
                                        files={m.file for m in named.values()})
            verdicts |= {named[n].id: v for n, v in begun.killed.items()}
            self.say(f"mutate: {len(named)} mutants, {len(begun.live)} of them live through the quick tests: "
                     f"{time.monotonic() - self.begin:.0f} s")
            if not begun.complete:
                continue
            left, others = sorted(begun.live), begun.left_out + [t for t in tests if t not in first]
            while left and time.monotonic() < end:
                some, left = left[: 2 * jobs], left[2 * jobs :]
                result = inprocess.judge_all(self.paths, others, some, times, jobs, end)
                verdicts |= {named[n].id: v for n, v in result.killed.items()}
                if result.complete:
                    verdicts |= {named[n].id: runner.Verdict("survived", "", "", "", 0.0)
                                 for n in result.live}
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

    def seeds(self, mutant):
        """Only what orders threads and copies depends on their order."""
        return self.options.seeds if self.kind is CUDA and mutant.kind in (
            "barrier", "wait", "shuffle") else self.options.seeds[:1]

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
                verdict = runner.judge(self.paths, self.tests_for(mutant), number, self.seeds(mutant),
                                       enough=enough)
            else:
                tests = self.tests_for(mutant)
                paths, words = self.builder.single(mutant, sorted({t.program for t in tests}))
                if paths is None:
                    verdict = runner.Verdict("uncompiled", "compiler", "", words[:300], 0.0)
                else:
                    verdict = runner.judge(paths, tests, None, self.seeds(mutant), enough=enough)
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


def parts(test):
    """Sixteenths of a list; other tests are not divided, whatever they are told."""
    return [dataclasses.replace(test, part=f"{i}/16") for i in range(16) if i == 0 or
            test.program == "kernel_tests"]


def summary(session, mutants, verdicts, proven):
    """A line for each file."""
    rows, total = [], [0] * 6
    for name in session.sources.files:
        ids = [m.id for m in mutants if m.file == name and m.id in verdicts]
        if not ids:
            continue
        outcomes = [verdicts[i].outcome for i in ids]
        equivalent = sum(i in proven and verdicts[i].outcome == "survived" for i in ids)
        row = [len(ids), outcomes.count("killed"), outcomes.count("uncompiled"), equivalent,
               outcomes.count("survived") - equivalent, sum(m.file == name for m in mutants) - len(ids)]
        total = [a + b for a, b in zip(total, row)]
        rows.append((name, row))
    lines = [
        f"{'':28}{'mutants':>9}{'killed':>9}{'uncompiled':>12}{'equivalent':>12}{'survived':>10}{'not run':>9}"]
    for name, row in [*rows, ("all", total)]:
        lines.append(f"{name:28}{row[0]:9}{row[1]:9}{row[2]:12}{row[3]:12}{row[4]:10}{row[5]:9}")
    by = {}
    for verdict in verdicts.values():
        if verdict.outcome == "killed":
            by[verdict.by] = by.get(verdict.by, 0) + 1
    lines.append("killed by " +
                 ", ".join(f"{word} {n}" for word, n in sorted(by.items(), key=lambda x: -x[1])))
    return "\n".join(lines)


def chosen_units(sources, names):
    """The units that hold the files; all units without names."""
    if not names:
        return sorted(sources.commands)
    unknown = [n for n in names if n not in sources.text]
    if unknown:
        raise SystemExit(f"mutate: {unknown[0]} is no file of the build; there are {' '.join(sources.files)}")
    return sorted({u for n in names for u in sources.units_with(n)})


def kinds_of(options):
    """[(kind, its files)]: of the files that are named, else all."""
    named = {CUDA: [f for f in options.files if not host.is_file(f)],
             HOST: [f for f in options.files if host.is_file(f)]}
    return [(k, files) for k, files in named.items()
            if (files or not options.files) and options.sources in (None, k.name)]


def of_each_kind(one):
    """The worst of what it returns for each kind."""
    return lambda options: max((one(options, kind, files) for kind, files in kinds_of(options)), default=0)


def run(options, kind, files):
    """Every build judges in turn what the ones before let live."""
    proven = proofs.load(HERE / "equivalent")
    deadline = time.monotonic() + options.seconds if options.seconds else None
    mutants, verdicts, left = [], {}, None
    for build_folder in options.build:
        session = Session(options, build_folder, proven, kind)
        units = chosen_units(session.sources, files if left is None else sorted({m.file for m in left}))
        wanted = set(files) or set().union(*(session.sources.closure(u) for u in units))
        switchable, fixed = session.prepare(units)
        if kind is CUDA:
            session.try_tests()
        session.self_check()
        found = [m for m in switchable + fixed if m.file in wanted and re.search(options.mutants, m.id)]
        if left is None:
            mutants = found
        else:
            names = {m.id for m in left}
            found = [m for m in found if m.id in names]
        # Spread, so that a part tells about the whole.
        verdicts |= session.judge_all(list(spread(found, "")), deadline)
        left = [m for m in found if m.id in verdicts and verdicts[m.id].outcome == "survived"]
        if not left or deadline is not None and time.monotonic() > deadline:
            break
    print(summary(session, mutants, verdicts, proven))
    wrong = proofs.compare(known_proofs(session.sources, proven), all_ids(session.sources), verdicts)
    for line in wrong:
        print(line)
    if len(verdicts) < len(mutants):
        print(f"mutate: {len(mutants) - len(verdicts)} mutants were not run in {options.seconds} s; run again to go on")
        return 3 if not wrong else 1
    return 1 if wrong else 0


def spread(mutants, seed):
    """All mutants in an order in which files and classes take turns; by the seed alone."""
    lots = {}
    for mutant in mutants:
        lots.setdefault((mutant.file, mutant.kind), []).append(mutant)

    def draw(text):
        return hashlib.sha256(f"{seed}\n{text}".encode()).hexdigest()

    for lot in lots.values():
        lot.sort(key=lambda m: draw(m.id))
    order = sorted(lots, key=lambda k: draw("/".join(k)))
    for place in range(max(map(len, lots.values()), default=0)):
        for key in order:
            if place < len(lots[key]):
                yield lots[key][place]


def sample(options, kind, _files):
    """Some files, chosen by the seed, and of them mutants in turns. Fails on a stale proof, and on
    a mutant that survives all tests that come by it or by its neighbours; one that these do not
    decide in time counts as not run."""
    seed = options.seed or commit()
    print(f"mutate: a sample chosen by --seed {seed}, in at most {options.seconds:.0f} s after the build")
    proven, left_out = proofs.load(HERE / "equivalent"), listed("open.txt") | listed("asan.txt")
    session = Session(options, options.build[0], proven, kind)
    known = listed("judged.txt") if kind is HOST else set(session.sources.files)
    files, units = some_files(session.sources, sorted(known & set(session.sources.files)), seed,
                              kind.sampled_units)
    if not files:
        print(f"mutate: no file of {kind.name} has been judged: nothing to sample")
        return 0
    print(f"mutate: {' '.join(sorted(files))}")
    switchable, _ = session.prepare(units)
    mutants = [m for m in spread(switchable, seed)
               if m.file in files and m.id not in proven and m.id not in left_out]
    if kind is CUDA:
        session.try_first_parts()
        if not any(session.tests_for(m, near=True) for m in mutants):
            session.try_first_parts(slower=4)
        session.self_check()
        verdicts = sample_alone(session, mutants, time.monotonic() + options.seconds)
    else:
        session.self_check()
        mutants = mutants[:SAMPLED]
        verdicts = session.sample_in_process(mutants, time.monotonic() + options.seconds)
    print(summary(session, mutants, verdicts, proven))
    wrong = proofs.compare(known_proofs(session.sources, proven), all_ids(session.sources), verdicts)
    for line in wrong:
        print(line)
    if not verdicts:
        print("mutate: no mutant was run in this time")
        return 1
    return 1 if wrong else 0


def sample_alone(session, mutants, end):
    """Verdicts of CUDA mutants, each by the programs run for it."""
    options = session.options
    verdicts, undecided, lock = {}, [], threading.Lock()

    def judged(mutant, tests, seeds, until):
        return runner.judge(session.paths, tests, session.numbers[mutant.id], seeds, until=until)

    def first(mutant):
        tests = session.tests_for(mutant, near=True)
        if not tests or time.monotonic() > end - 3 * options.longest:
            return
        verdict = judged(mutant, tests, (1,), end - 2 * options.longest)
        with lock:
            if verdict is None or verdict.outcome == "survived":
                undecided.append(mutant)
            else:
                verdicts[mutant.id] = verdict

    def again(mutant):
        """By all there is: the quick tests of one seed may have missed it."""
        verdict = judged(mutant, session.all_parts(), runner.SEEDS, end)
        if verdict is not None:
            with lock:
                verdicts[mutant.id] = verdict

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(first, mutants))
        list(pool.map(again, undecided))
    return verdicts


def listed(name):
    """Lines of a list: judged.txt, files of the host of which every mutant has been judged; ids in
    open.txt, known to survive and nobody has proven yet that they may; asan.txt, which need a build
    with AddressSanitizer."""
    path = HERE / name
    lines = path.read_text().splitlines() if path.exists() else []
    return {line for line in lines if line and not line.startswith("#")}


def some_files(sources, names, seed, most):
    """Files by the seed, as many as a few units hold, and those units."""
    chosen, units = set(), set()
    for name in sorted(names, key=lambda n: hashlib.sha256(f"{seed}\n{n}".encode()).hexdigest()):
        more = units | set(sources.units_with(name))
        if len(more) <= most:
            chosen, units = chosen | {name}, more
    return chosen, sorted(units)


def all_ids(sources):
    return {m.id for mutants in sources.mutants.values() for m in mutants}


def known_proofs(sources, proven):
    """Without those of files that this build does not have."""
    return {i: p for i, p in proven.items() if i.split(" | ")[0] in sources.text}


def commit():
    result = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True,
                            text=True)
    return result.stdout.strip() if result.returncode == 0 else time.strftime("%Y-%m-%d")


def list_mutants(options, kind, files):
    sources = kind.sources(options.build[0])
    for name in files or sources.files:
        for mutant in sources.mutants[name]:
            print(mutant.id)
    return 0


def check(options, kind, _files):
    sources = kind.sources(options.build[0])
    proven = proofs.load(HERE / "equivalent")
    wrong = proofs.compare(known_proofs(sources, proven), all_ids(sources), {})
    if kind is HOST:
        wrong += [f"stale: judged.txt: there is no such file: {name}" for name in sorted(listed("judged.txt"))
                  if name not in sources.text]
    for file in ("open.txt", "asan.txt"):
        wrong += [f"stale: {file}: there is no such mutant, or it is proven: {name}"
                  for name in sorted(listed(file)) if name in proven or
                  name.split(" | ")[0] in sources.text and name not in all_ids(sources)]
    left = sum(name.split(" | ")[0] in sources.text for name in listed("open.txt"))
    print("\n".join(wrong) or f"mutate: {len(all_ids(sources))} mutants of {kind.name}, "
          f"{len(known_proofs(sources, proven))} of them proven equivalent, {left} that live still to be decided")
    return 1 if wrong else 0


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "sample", "list", "check"))
    parser.add_argument("files", nargs="*",
                        help="files of kernels/cuda, for instance rows.cuh, and others by their "
                        "path, for instance csrc/plan.cc")
    parser.add_argument("--sources", choices=sorted(KINDS),
                        help="cuda: kernels/cuda; host: kernels/cpu, kernels/ref and "
                        "csrc; both by default")
    parser.add_argument("--build", action="append",
                        help="a finished CMake build; another one, for instance with "
                        "AddressSanitizer, judges what the first lets live; build by default")
    parser.add_argument("--out", help="where programs and verdicts go; each build's folder mutate by default")
    parser.add_argument("--programs", type=lambda s: s.split(","),
                        help=f"of {', '.join([*PROGRAMS, *host.PROGRAMS])}; all by default")
    parser.add_argument("--tests", type=re.compile, default="", help="a regular expression: their names")
    parser.add_argument("--mutants", type=re.compile, default="", help="a regular expression: their names")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time; 0: never")
    parser.add_argument("--quick", action="store_true",
                        help=f"a mutant that lives through {QUICK} s of tests counts "
                        "as a survivor, proven or not")
    parser.add_argument("--longest", type=float, default=25, help="sample: seconds the last mutants may take")
    parser.add_argument("--test-seconds", type=float, default=600,
                        help="a program takes no longer without a mutant")
    parser.add_argument("--seed", help="sample: chooses the mutants; the commit by default")
    parser.add_argument("--seeds", type=lambda s: tuple(int(x) for x in s.split(",")), default=runner.SEEDS,
                        help="of the emulator, for instance 1,2")
    options = parser.parse_args(arguments)
    options.build = options.build or [str(ROOT / "build")]
    if options.command == "sample" and not options.seconds:
        options.seconds = 300
    try:
        commands = {"run": run, "sample": sample, "list": list_mutants, "check": check}
        return of_each_kind(commands[options.command])(options)
    except (build.BuildError, proofs.Unreadable, RuntimeError) as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
