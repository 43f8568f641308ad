"""Where the checked-in tables of kernels/budgets lie, and how they are read."""

import difflib
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "kernels" / "cuda"
TABLES = ROOT / "kernels" / "budgets"

LAUNCHES_HEADER = """\
# How the emulated tests launch each kernel; make kernels-launches writes this file.
# threads a CTA, CTAs a cluster, kernel, most dynamic shared memory a CTA in bytes by compute capability
"""

ROW = re.compile(r"(\S.*?) {2,}(\w+)((?: +\d+){5})(?:  |$)")


def read_table(text):
    """[(kernel, target, registers, threads, stack, spills, static)] of a source's table."""
    rows = (ROW.match(line) for line in text.splitlines())
    return [(row[1], row[2], *map(int, row[3].split())) for row in rows if row]


def read_launch_table(text):
    """{(kernel, threads, cluster): {sm: most shared bytes}} of launches.txt."""
    launches = {}
    for line in text.removeprefix(LAUNCHES_HEADER).splitlines():
        threads, cluster, rest = line.split(maxsplit=2)
        name, *most = re.split(r"  ?(?=sm_\d+=)", rest)
        launches[name, int(threads), int(cluster)] = {
            int(sm): int(shared) for sm, shared in (entry[len("sm_"):].split("=") for entry in most)}
    return launches


def natural(text):
    """Sorts 64 before 128."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text)]


def diff(old, new, name):
    return "".join(
        difflib.unified_diff(
            old.splitlines(True), new.splitlines(True), f"{name} (checked in)", f"{name} (compiled)", n=1
        )
    )
