#!/usr/bin/env python3
"""Mutation check of the kernels and of csrc: is every barrier, wait, mask, shuffle, bound and
stride needed, and does a test notice? Those of kernels/cuda run on the emulator.

    mutate.py run [FILE…]       every mutant (of these files); goes on where it was stopped
    mutate.py sample            some files and of them some of each class, chosen by --seed, within --seconds after the build
    mutate.py list [FILE…]      the mutants, as equivalent/*.txt name them
    mutate.py check             equivalent/*.txt against the sources, nothing is run
"""

import argparse
import pathlib
import re
import subprocess
import sys
import time

import build
import host
import proofs
import runner
import sample
from session import CUDA, HOST, KINDS, PROGRAMS, QUICK, Session

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


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


def elsewhere(verdicts, lacks):
    """A line on survivors that no test comes by on a machine that lacks some tables."""
    n = sum(v.outcome == "survived" and v.by == "never reached" for v in verdicts.values())
    if n == 0 or not lacks:
        return ""
    return (f"mutate: {n} of those that survived were never reached, and this machine lacks {' '.join(lacks)}: "
            "run this again on one that has them\n")


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
        verdicts |= session.judge_all(list(sample.spread(found, "")), deadline)
        left = [m for m in found if m.id in verdicts and verdicts[m.id].outcome == "survived"]
        if not left or deadline is not None and time.monotonic() > deadline:
            break
    print(summary(session, mutants, verdicts, proven))
    wrong = proofs.compare(known_proofs(session.sources, proven), all_ids(session.sources), verdicts)
    for line in wrong:
        print(line)
    if kind is HOST:
        print(elsewhere(verdicts, session.sources.lacks), end="")
    if len(verdicts) < len(mutants):
        print(f"mutate: {len(mutants) - len(verdicts)} mutants were not run in {options.seconds} s; run again to go on")
        return 3 if not wrong else 1
    return 1 if wrong else 0


def draw(options, kind, _files):
    """Some files, chosen by the seed, and of them mutants in turns. Fails on a stale proof, and on
    a mutant that survives all tests that come by it or by its neighbours; one that these do not
    decide in time counts as not run."""
    seed = options.seed or commit()
    print(f"mutate: a sample chosen by --seed {seed}, in at most {options.seconds:.0f} s after the build")
    proven, left_out = proofs.load(HERE / "equivalent"), listed("open.txt") | listed("asan.txt")
    session = Session(options, options.build[0], proven, kind)
    files, units = sample.some_files(session.sources, sorted(judged(kind) & set(session.sources.files)), seed,
                                     kind.sampled_units)
    if not files:
        print(f"mutate: no file of {kind.name} has been judged: nothing to sample")
        return 0
    print(f"mutate: {' '.join(sorted(files))}")
    switchable, _ = session.prepare(units)
    mutants = [m for m in sample.spread(switchable, seed)
               if m.file in files and m.id not in proven and m.id not in left_out]
    verdicts = sample.judged(session, mutants)
    print(summary(session, mutants, verdicts, proven))
    wrong = proofs.compare(known_proofs(session.sources, proven), all_ids(session.sources), verdicts)
    for line in wrong:
        print(line)
    if not verdicts:
        print("mutate: no mutant was run in this time")
        return 1
    return 1 if wrong else 0


def listed(name):
    """Lines of a list: judged.txt, files of which every mutant has been judged; ids in open.txt, known
    to survive and nobody has proven yet that they may; asan.txt, which need a build with
    AddressSanitizer."""
    path = HERE / name
    lines = path.read_text().splitlines() if path.exists() else []
    return {line for line in lines if line and not line.startswith("#")}


def judged(kind):
    """The files of judged.txt that are of this kind."""
    return {name for name in listed("judged.txt") if host.is_file(name) == (kind is HOST)}


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
    wrong += [f"stale: judged.txt: there is no such file: {name}" for name in sorted(judged(kind))
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
    if options.command == "sample" and options.seconds <= 3 * options.longest:
        parser.error(f"--seconds is {options.seconds:.0f}: a sample needs more than 3 times "
                     f"--longest, {3 * options.longest:.0f}")
    try:
        commands = {"run": run, "sample": draw, "list": list_mutants, "check": check}
        return of_each_kind(commands[options.command])(options)
    except (build.BuildError, proofs.Unreadable, RuntimeError) as error:
        print(f"mutate: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
