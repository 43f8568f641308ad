#!/usr/bin/env python3
"""Compares what the compiled kernels use with the tables in kernels/budgets, one a target.

    budgets.py check  BUILD      rules, promises, and a diff where a table no longer holds; exit status 1 then
    budgets.py update BUILD      rules and promises, then writes the tables of the build's targets

BUILD is a folder of tools/kernels/build.sh. Rules hold for every kernel: no spills, no stack, no local memory, no
static shared memory, no float atomics, no PTX, code for every target. Promises are what kernels/budgets/promises.txt
says of single kernels. The tables are exact for one version of ptxas, which stands in their first line: with another
one rules and promises are checked, and the tables are left alone; to move to a new compiler, remove them first."""

import argparse
import difflib
import fnmatch
import pathlib
import re
import sys

from compiled import Build, Unreadable, elf_name

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "kernels" / "cuda"
TABLES = ROOT / "kernels" / "budgets"


# ---- rules ------------------------------------------------------------------------------------------------------


_FLOAT_ATOMIC = re.compile(r"(ATOM|ATOMG|ATOMS|RED|REDG|UTMAREDG)\b.*\.B?F(16|32|64)")


def broken_rules(kernel):
    """What a kernel does that none may, as texts."""
    broken = []
    if not kernel.threads:
        broken.append("states no __launch_bounds__(threads, CTAs)")
    if kernel.spill:
        broken.append(f"spills {kernel.spill} bytes of registers")
    if kernel.stack:
        broken.append(f"has a stack frame of {kernel.stack} bytes (an array indexed at run time, or spills)")
    if kernel.shared:
        broken.append(f"has {kernel.shared} bytes of static shared memory; ours is dynamic (ptx/device.h)")
    local = [name for name in kernel.instructions if re.match(r"(LDL|STL)\.", name)]
    if local:
        broken.append(f"accesses local memory: {spell(kernel.instructions, local)}")
    atomics = [name for name in kernel.instructions if _FLOAT_ATOMIC.match(name)]
    if atomics:
        broken.append(f"adds floats in no fixed order: {spell(kernel.instructions, atomics)}")
    return broken


def broken_build(build):
    """Sources, targets or PTX that should or should not be in the objects, as texts."""
    broken = []
    for source in build.sources:
        if not build.object(source).exists():
            broken.append(f"{source}.cu was not compiled")
            continue
        there = build.targets_in(source)
        for target in build.targets:
            if elf_name(target) not in there:
                broken.append(f"{source}.o has no code for sm_{target}")
        for extra in set(there) - {elf_name(target) for target in build.targets}:
            broken.append(f"{source}.o has code for sm_{extra}, which is no target")
        for ptx in build.ptx_in(source):
            broken.append(f"{source}.o holds PTX, {ptx}; it is for machine code only")
    return broken


# ---- promises ---------------------------------------------------------------------------------------------------


class Promise:
    """A line of promises.txt: KERNELS TARGETS INSTRUCTION... with globs; A|B is either, !A is none."""

    def __init__(self, line, number):
        words = line.split()
        if len(words) < 3:
            raise Unreadable(f"promises.txt:{number}: kernels, targets and at least one instruction")
        self.kernels, targets, *self.instructions = words
        self.targets = targets.split(",")
        self.number = number
        self.kept_by = 0

    def concerns(self, kernel):
        return any(fnmatch.fnmatchcase(kernel.target, target) for target in self.targets) and fnmatch.fnmatchcase(
            kernel.name, self.kernels
        )

    def broken(self, kernel):
        """The instructions that are missing or too many."""
        self.kept_by += 1
        broken = []
        for wanted in self.instructions:
            globs = wanted.removeprefix("!").split("|")
            there = [name for name in kernel.instructions if any(fnmatch.fnmatchcase(name, glob) for glob in globs)]
            if wanted.startswith("!") and there:
                broken.append(f"has {spell(kernel.instructions, there)}, promised is {wanted}")
            if not wanted.startswith("!") and not there:
                broken.append(f"has no {wanted.replace('|', ' or ')}")
        return [f"{text} (promises.txt:{self.number})" for text in broken]


def read_promises(text):
    lines = ((number, line.split("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1))
    return [Promise(line, number) for number, line in lines if line]


def broken_promises(kernels, promises, targets):
    """What kernels owe, and promises of kernels that do not exist, as texts."""
    broken = []
    for promise in promises:
        for kernel in kernels:
            if promise.concerns(kernel):
                broken += [f"{where(kernel)} {text}" for text in promise.broken(kernel)]
        if promise.kept_by == 0 and any(fnmatch.fnmatchcase(t, p) for t in targets for p in promise.targets):
            broken.append(f"promises.txt:{promise.number}: no kernel is called {promise.kernels}")
    return broken


# ---- tables -----------------------------------------------------------------------------------------------------


def where(kernel):
    return f"{kernel.source} {kernel.name} sm_{kernel.target}:"


def natural(text):
    """Sorts 64 before 128."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text)]


def spell(counter, names):
    return " ".join(f"{name}={counter[name]}" for name in sorted(names, key=natural))


def table(kernels, target, compiler):
    """The text of a target's table: one line a kernel, grouped by source."""
    rows = [kernel for kernel in kernels if kernel.target == target]
    lines = [
        f"# sm_{target} by ptxas {compiler}; make kernels-update writes this file.",
        "# registers, most threads a CTA, bytes of stack, of spills, of static shared memory; kernel; instructions",
    ]
    source = None
    for kernel in sorted(rows, key=lambda k: (natural(k.source), natural(k.name))):
        if kernel.source != source:
            source = kernel.source
            lines += ["", source]
        numbers = f"{kernel.registers:5}{kernel.threads:5}{kernel.stack:4}{kernel.spill:4}{kernel.shared:4}"
        lines.append(f"{numbers}  {kernel.name}  {spell(kernel.instructions, kernel.instructions)}".rstrip())
    return "\n".join(lines) + "\n"


def table_compiler(text):
    """The ptxas a table was made by."""
    match = re.match(r"# sm_\w+ by ptxas (\S+);", text)
    return match[1] if match else None


def check_names(kernels):
    """A table's line must be one kernel's."""
    seen = {}
    for kernel in kernels:
        key = (kernel.source, kernel.name, kernel.target)
        if seen.setdefault(key, kernel.symbol) != kernel.symbol:
            raise Unreadable(f"two kernels of {kernel.source} are called {kernel.name}: {seen[key]}, {kernel.symbol}")


def diff(old, new, name):
    return "".join(
        difflib.unified_diff(
            old.splitlines(True), new.splitlines(True), f"{name} (checked in)", f"{name} (compiled)", n=1
        )
    )


# ---- commands ---------------------------------------------------------------------------------------------------


def run(command, folder, sources=SOURCES, tables=TABLES, say=print):
    """Checks or updates; the exit status."""
    build = Build(folder, sources)
    problems = broken_build(build)
    if problems:
        for problem in problems:
            say(problem)
        return 1
    kernels = build.kernels()
    check_names(kernels)
    for kernel in kernels:
        problems += [f"{where(kernel)} {text}" for text in broken_rules(kernel)]
    problems += broken_promises(kernels, read_promises((tables / "promises.txt").read_text()), build.targets)
    for problem in problems:
        say(problem)

    compiler = build.compiler()
    changed, other = [], []
    for target in build.targets:
        path = tables / f"sm_{target}.txt"
        old = path.read_text() if path.exists() else ""
        new = table(kernels, target, compiler)
        made_by = table_compiler(old)
        if made_by not in (None, compiler):
            other.append(made_by)
        elif old != new:
            changed.append(path.name)
            say(diff(old, new, path.name).rstrip())
            if command == "update":
                path.write_text(new)
    if other:
        say(f"the tables are by ptxas {other[0]}, this build by {compiler}: only rules and promises were checked")
    if changed and command == "check":
        say("what the kernels use has changed: if it is meant, make kernels-update, and commit kernels/budgets with it")
    elif changed:
        say(f"wrote {', '.join(changed)}")
    failed = problems or (changed and command == "check")
    count = len({(kernel.source, kernel.name) for kernel in kernels})
    say(f"{count} kernels, {len(build.targets)} targets: {'FAILED' if failed else 'ok'}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["check", "update"])
    parser.add_argument("build")
    arguments = parser.parse_args()
    try:
        return run(arguments.command, arguments.build)
    except Unreadable as error:
        print(f"budgets: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
