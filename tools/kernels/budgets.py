#!/usr/bin/env python3
"""Compares what the compiled kernels use with the tables in kernels/budgets/RELEASE, one a source.

    budgets.py check  BUILD      rules, promises, and a diff where a table no longer holds; exit status 1 then
    budgets.py update BUILD      rules and promises, then writes the tables

BUILD is a folder of tools/kernels/build.sh. Rules hold for every kernel: no spills, no stack, no
local memory, no static shared memory, no float atomics, no PTX, no wgmma that ptxas puts in series, no
setmaxnreg that it ignores, code for every target the source is for, and a promise: a line of
kernels/budgets/promises.txt that says what the kernel is compiled to.
A table has a line for each kernel and target. It is exact for one version of ptxas, which stands in
its first line: with another one, or with a release of CUDA that has no folder of tables, rules and
promises are checked and the tables are left alone. For tables of another compiler make the folder,
or remove its tables, and update. What hot kernels use of an SM has limits and tables of its own: hot.py."""

import argparse
import fnmatch
import re
import sys

import hot
from compiled import Build, Unreadable, elf_name
from tables import ROW, SOURCES, TABLES, diff, natural, read_table


# ---- rules
# ------------------------------------------------------------------------------------------------------


_FLOAT_ATOMIC = re.compile(r"(ATOM|ATOMG|ATOMS|RED|REDG|UTMAREDG)\b.*\.B?F(16|32|64)")


def broken_rules(kernel):
    """What a kernel does that none may, as texts."""
    broken = []
    if not kernel.threads:
        broken.append("states no __launch_bounds__(threads, CTAs)")
    local = [name for name in kernel.instructions if re.match(r"(LDL|STL)\.", name)]
    if kernel.spill or kernel.stack or local:
        broken.append(
            f"uses local memory: {kernel.spill} bytes of spills, {kernel.stack} of stack (spills, an array indexed at run "
            f"time, or a barrier saved around a call) {spell(kernel.instructions, local)}".rstrip())
    if kernel.shared:
        broken.append(f"has {kernel.shared} bytes of static shared memory; ours is dynamic (ptx/device.h)")
    atomics = [name for name in kernel.instructions if _FLOAT_ATOMIC.match(name)]
    if atomics:
        broken.append(f"adds floats in no fixed order: {spell(kernel.instructions, atomics)}")
    return broken


def broken_build(build):
    """Sources, targets or PTX that should or should not be in the objects, and what ptxas could not
    keep, as texts."""
    broken = []
    for source in build.sources:
        if not build.object(source).exists():
            broken.append(f"{source}.cu was not compiled")
            continue
        there = build.targets_in(source)
        wanted = build.targets_of(source) or build.targets[:1]  # nvcc compiles for one at least
        for target in wanted:
            if elf_name(target) not in there:
                broken.append(f"{source}.o has no code for sm_{target}")
        for extra in set(there) - {elf_name(target) for target in wanted}:
            broken.append(f"{source}.o has code for sm_{extra}, which is no target")
        for ptx in build.ptx_in(source):
            broken.append(f"{source}.o holds PTX, {ptx}; it is for machine code only")
        broken += [f"{source}.cu is slower than it says: ptxas {loss}" for loss in build.losses(source)]
    return broken


# ---- promises
# ---------------------------------------------------------------------------------------------------


class Promise:
    """A line of promises.txt: KERNELS TARGETS INSTRUCTION... with globs; A|B is either, !A is
    none."""

    def __init__(self, line, number):
        words = line.split()
        if len(words) < 3:
            raise Unreadable(f"promises.txt:{number}: kernels, targets and at least one instruction")
        self.kernels, targets, *self.instructions = words
        self.targets = targets.split(",")
        self.number = number
        self.kept_by = 0

    def concerns(self, kernel):
        return any(fnmatch.fnmatchcase(kernel.target, target)
                   for target in self.targets) and fnmatch.fnmatchcase(kernel.name, self.kernels)

    def broken(self, kernel):
        """The instructions that are missing or too many."""
        self.kept_by += 1
        broken = []
        for wanted in self.instructions:
            globs = wanted.removeprefix("!").split("|")
            there = [name for name in kernel.instructions
                     if any(fnmatch.fnmatchcase(name, glob) for glob in globs)]
            if wanted.startswith("!") and there:
                broken.append(f"has {spell(kernel.instructions, there)}, promised is {wanted}")
            if not wanted.startswith("!") and not there:
                broken.append(f"has no {wanted.replace('|', ' or ')}")
        return [f"{text} (promises.txt:{self.number})" for text in broken]


def read_promises(text):
    lines = ((number, line.split("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1))
    return [Promise(line, number) for number, line in lines if line]


def broken_promises(kernels, promises, targets):
    """What kernels owe, kernels that promise nothing, and promises of kernels that do not exist, as
    texts."""
    broken = []
    for kernel in kernels:
        if not any(promise.concerns(kernel) for promise in promises):
            broken.append(f"{where(kernel)} promises.txt says nothing of it")
    for promise in promises:
        for kernel in kernels:
            if promise.concerns(kernel):
                broken += [f"{where(kernel)} {text}" for text in promise.broken(kernel)]
        if promise.kept_by == 0 and any(fnmatch.fnmatchcase(t, p) for t in targets for p in promise.targets):
            broken.append(f"promises.txt:{promise.number}: no kernel is called {promise.kernels}")
    return broken


# ---- tables
# -----------------------------------------------------------------------------------------------------


def where(kernel):
    return f"{kernel.source} {kernel.name} sm_{kernel.target}:"


def spell(counter, names):
    return " ".join(f"{name}={counter[name]}" for name in sorted(names, key=natural))


def table(kernels, source, compiler, order):
    """The text of a source's table: one line a kernel and target, targets in the order of
    `order`."""
    rows = [kernel for kernel in kernels if kernel.source == source]
    rows.sort(key=lambda kernel: (natural(kernel.name), order.index(kernel.target)))
    width = max([len("kernel"), *(len(kernel.name) for kernel in rows)])
    head = ("target", "regs", "threads", "stack", "spills", "static", "instructions")
    lines = [
        f"# {source} by ptxas {compiler}; make kernels-update writes this file.",
        "# Registers a thread, most threads a CTA, bytes of stack, spills and static shared memory; instructions counted.",
        f"{'kernel':{width}}  " + "  ".join(head),
    ]
    for kernel in rows:
        numbers = (kernel.target, kernel.registers, kernel.threads, kernel.stack, kernel.spill, kernel.shared)
        cells = "  ".join(f"{number:>{len(title)}}" for number, title in zip(numbers, head))
        lines.append(
            f"{kernel.name:{width}}  {cells}  {spell(kernel.instructions, kernel.instructions)}".rstrip())
    return "\n".join(lines) + "\n"


def table_compiler(text):
    """The ptxas a table was made by."""
    match = re.match(r"# \S+ by ptxas (\S+);", text)
    return match[1] if match else None


def check_names(kernels):
    """A table's line must be one kernel's."""
    seen = {}
    for kernel in kernels:
        key = (kernel.source, kernel.name, kernel.target)
        if seen.setdefault(key, kernel.symbol) != kernel.symbol:
            raise Unreadable(
                f"two kernels of {kernel.source} are called {kernel.name}: {seen[key]}, {kernel.symbol}")


def compare_tables(command, build, kernels, folder, say):
    """Says a diff for each table that no longer holds and, to update, writes it; the names of
    those. A build for a part of the targets is compared on that part, and writes nothing."""
    compiler = build.compiler()
    paths = {f"{source}.cu": folder / f"{source}.txt" for source in build.sources}
    old = {source: path.read_text() if path.exists() else "" for source, path in paths.items()}
    others = {by for by in map(table_compiler, old.values()) if by not in (None, compiler)}
    if others or not folder.is_dir():
        of = f"are by ptxas {others.pop()}" if others else f"of CUDA {build.release} do not exist"
        say(f"the tables {of}, this build is by {compiler}: only rules and promises were checked")
        return []
    order = sorted({kernel.target for kernel in kernels}, key=natural)
    whole = all(row[1] in order for text in old.values() for row in read_table(text))
    changed = []
    for source, path in paths.items():
        rows = [kernel for kernel in kernels if kernel.source == source]
        new = table(rows, source, compiler, order) if rows else ""
        before, after = (old[source], new) if whole else (part(old[source], order), part(new, order))
        if before == after:
            continue
        changed.append(path.name)
        say(diff(before, after, f"{folder.name}/{path.name}").rstrip())
        if command == "update" and whole and rows:
            path.write_text(new)
    for path in sorted(set(folder.glob("*.txt")) - set(paths.values())):
        changed.append(path.name)
        say(f"{folder.name}/{path.name} is of no source")
        if command == "update":
            path.unlink()
    if changed and command == "update":
        say(f"wrote {', '.join(changed)}" if whole
            else "nothing was written: this build is for a part of the targets")
    return changed


def part(text, targets):
    """The rows of a table for some targets, without the alignment that others decide."""
    rows = [line for line in text.splitlines() if (match := ROW.match(line)) and match[2] in targets]
    return "".join(re.sub(r" {2,}", "  ", row) + "\n" for row in rows)


# ---- commands
# ---------------------------------------------------------------------------------------------------


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

    changed = compare_tables(command, build, kernels, tables / build.release, say)
    broken, other = hot.compare(command, build, kernels, tables, say)
    problems += broken
    changed += other
    if changed and command == "check":
        say("what the kernels use has changed: if it is meant, make kernels-update, and commit kernels/budgets with it")
    failed = problems or (changed and command == "check")
    count = len({(kernel.source, kernel.name) for kernel in kernels})
    verdict = "FAILED" if failed else "ok"
    say(f"{count} kernels, {len(kernels)} with their targets ({' '.join(build.targets)}): {verdict}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
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
