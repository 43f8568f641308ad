#!/usr/bin/env python3
"""Compares how the emulated tests launch the kernels with kernels/budgets/launches.txt: threads,
dynamic shared memory and clusters, which stand in no compiled code.

    launches.py check  RECORD     exit status 1 and a diff where the table no longer holds
    launches.py part   RECORD     the same of a record of some of the tests: each launch must be in the table
    launches.py update RECORD     writes the table (make kernels-launches)

RECORD is what tests write with SIE_SIMT_LAUNCHES=RECORD (kernels/simt/launches.cc). Beside the
table, every launch must fit what the newest release's tables in kernels/budgets say of the kernel:
its launch bounds, and the registers of an SM. A kernel that no test launches is an error too: what
nobody runs, nobody has proved. Kernels that stand in no table, as those of the emulator's own
tests, are left out."""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

from compiled import Unreadable, demangle
from tables import LAUNCHES_HEADER, TABLES, diff, natural, read_launch_table, read_table

REGISTERS = 65536  # of an SM; a thread's are handed out by eights

MEANT = "the tests launch kernels in another way: if it is meant, make kernels-launches, and commit the table"


def read_record(lines):
    """{program: {offset: [(threads, shared, cluster, sm)]}} of a record."""
    programs = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in lines:
        program, offset, *numbers = line.rstrip("\n").split("\t")
        if len(numbers) != 4:
            raise Unreadable(f"a record's line has another form: {line!r}")
        programs[program][int(offset, 16)].append(tuple(map(int, numbers)))
    return programs


def symbols_of(program):
    """{offset from __executable_start: symbol} of a program."""
    run = subprocess.run(["nm", program], capture_output=True, text=True, check=True)
    addresses = [line.split() for line in run.stdout.splitlines()]
    table = [(int(fields[0], 16), fields[2]) for fields in addresses if len(fields) == 3]
    start = next((address for address, symbol in table if symbol == "__executable_start"), None)
    if start is None:
        raise Unreadable(f"{program} has no __executable_start")
    return {address - start: symbol for address, symbol in table if "_device_stub_" not in symbol}


def read_launches(record):
    """{(kernel, threads, cluster): {sm: most shared bytes}} of a record file."""
    launches = collections.defaultdict(dict)
    for program, offsets in read_record(pathlib.Path(record).read_text().splitlines()).items():
        if not pathlib.Path(program).exists():
            continue  # an earlier build's
        symbols = symbols_of(program)
        for offset in offsets:
            if offset not in symbols:
                raise Unreadable(
                    f"{program} has no symbol at {offset:#x}; it was built after the record was made")
        names = demangle(symbols[offset] for offset in offsets)
        for offset, shapes in offsets.items():
            for threads, shared, cluster, sm in shapes:
                most = launches[names[symbols[offset]], threads, cluster]
                most[sm] = max(most.get(sm, 0), shared)
    if not launches:
        raise Unreadable(f"{record} holds no launch")
    return launches


def table(launches):
    lines = []
    for (name, threads, cluster), most in sorted(launches.items(),
                                                 key=lambda item: (natural(item[0][0]), item[0])):
        shared = " ".join(f"sm_{sm}={most[sm]}" for sm in sorted(most))
        lines.append(f"{threads:5}{cluster:3}  {name}  {shared}\n")
    return LAUNCHES_HEADER + "".join(lines)


def beside(table, launches):
    """Launches of which the table does not know, as texts."""
    problems = []
    for (name, threads, cluster), most in sorted(launches.items()):
        known = table.get((name, threads, cluster), {})
        for sm, shared in sorted(most.items()):
            if shared > known.get(sm, -1):
                problems.append(f"{name} is launched with {threads} threads, {cluster} CTAs a cluster and {shared} "
                                f"bytes on sm_{sm}, which is not in launches.txt")
    return problems


def read_budgets(tables):
    """{sm: {kernel: (registers, most threads)}} of the checked-in tables of the newest release."""
    budgets = collections.defaultdict(dict)
    releases = sorted((path for path in tables.iterdir() if path.is_dir()),
                      key=lambda path: natural(path.name))
    for path in sorted(releases[-1].glob("*.txt")) if releases else []:
        for name, target, registers, threads, *_ in read_table(path.read_text()):
            budgets[int(re.match(r"\d+", target)[0])][name] = (registers, threads)
    return budgets


def problems_of(launches, budgets):
    """Launches that a device would refuse, and kernels that are never launched, as texts."""
    problems = []
    for (name, threads, _), most in launches.items():
        for sm in sorted(most):
            if name not in budgets.get(sm, {}):
                problems.append(f"{name} is launched on sm_{sm}, where the tables have no such kernel")
                continue
            registers, bound = budgets[sm][name]
            if threads > bound:
                problems.append(f"{name} is launched with {threads} threads on sm_{sm}, its bound is {bound}")
            if -(-registers // 8) * 8 * threads > REGISTERS:
                problems.append(
                    f"{name} needs {registers} registers of {threads} threads on sm_{sm}: above {REGISTERS}")
    launched = {name for name, _, _ in launches}
    compiled = {name for kernels in budgets.values() for name in kernels}
    problems += [f"{name} is compiled, and no test launches it"
                 for name in sorted(compiled - launched, key=natural)]
    return problems


def run(command, record, tables=TABLES, say=print):
    """Checks or updates; the exit status."""
    budgets = read_budgets(tables)
    compiled = {name for kernels in budgets.values() for name in kernels}
    # The emulator's own tests launch kernels of theirs.
    launches = {key: most for key, most in read_launches(record).items() if key[0] in compiled}
    path = tables / "launches.txt"
    old = path.read_text() if path.exists() else ""
    if command == "part":
        known = read_launch_table(old)
        problems = beside(known, launches) + problems_of(known, budgets)
    else:
        problems = problems_of(launches, budgets)
    for problem in problems:
        say(problem)
    new = old if command == "part" else table(launches)
    if old != new:
        say(diff(old, new, path.name).rstrip())
        if command == "update":
            path.write_text(new)
        else:
            say(MEANT)
    elif problems and command == "part":
        say(MEANT)
    failed = problems or (old != new and command == "check")
    say(f"{len(launches)} kinds of launches: {'FAILED' if failed else 'ok'}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "part", "update"])
    parser.add_argument("record")
    arguments = parser.parse_args()
    try:
        return run(arguments.command, arguments.record)
    except (Unreadable, OSError) as error:
        print(f"launches: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
