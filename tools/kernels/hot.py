"""What the hot kernels of kernels/budgets/hot.txt use of a streaming multiprocessor (SM): occupancy,
hardware barriers, and code for the instruction caches. budgets.py calls compare().

Two things hold them. hot.txt has limits, written by hand: the fewest CTAs an SM, the most barriers, the
cache that the hot loop must fit, and the most code. A kernel that passes one is an error, also for make
kernels-update. A table a target, kernels/budgets/RELEASE/hot/TARGET.txt, has the numbers themselves, written by
make kernels-update: a change is a diff. It has what hot.txt names for any target. A target whose table does not
exist is held to the limits alone."""

import dataclasses
import fnmatch
import re

from compiled import Unreadable
from tables import diff, natural, read_launch_table

KIB = 1024


@dataclasses.dataclass(frozen=True)
class Sm:
    """What an SM holds, as CUDA's cuda_occupancy.h and the programming guide's table of compute
    capabilities state it."""

    threads: int
    ctas: int
    shared: int  # bytes, of which every CTA takes RESERVED for the system
    barriers: int  # None where they limit nothing


REGISTERS = 65536  # in four parts; a warp takes them from one, 256 at a time
PARTS = 4
RESERVED = KIB
SHARED_UNIT = 128

SMS = {
    "80": Sm(2048, 32, 164 * KIB, None),
    "86": Sm(1536, 16, 100 * KIB, None),
    "89": Sm(1536, 24, 100 * KIB, None),
    "90a": Sm(2048, 32, 228 * KIB, 64),
    "100f": Sm(2048, 32, 228 * KIB, 64),
    "120f": Sm(1536, 24, 100 * KIB, 24),
}

# Instruction caches in bytes. NVIDIA's papers draw an L0 in each of the SM's four parts and one more behind
# them, and state no sizes. These were measured by others, on V100 (Jia et al. 2018, arXiv 1804.06826), which
# call the one behind L1.5. Nobody has measured our targets here. What straight code beyond them costs is in
# kernels/cuda/cost.cc, for the endings of products (kernels/cuda/gemm_sm90_code.h).
CACHES = {"L0": 12 * KIB, "L1.5": 128 * KIB}


def occupancy(sm, registers, threads, shared, barriers):
    """(CTAs an SM holds at once, what limits them)."""
    warps = -(-threads // 32)
    per_warp = -(-registers * 32 // 256) * 256
    bytes_held = -(-(shared + RESERVED) // SHARED_UNIT) * SHARED_UNIT
    limits = {
        "threads": sm.threads // 32 // warps,
        "CTAs": sm.ctas,
        "registers": REGISTERS // PARTS // per_warp * PARTS // warps,
        "shared": sm.shared // bytes_held,
        "barriers": sm.barriers // barriers if sm.barriers and barriers else sm.ctas,
    }
    by = min(limits, key=limits.get)
    return limits[by], by


# ---- limits
# -----------------------------------------------------------------------------------------------------


class Limit:
    """A line of hot.txt: KERNELS TARGETS CTAS BARRIERS CACHE CODE, the first two with globs."""

    def __init__(self, line, number):
        words = line.split()
        if (len(words) != 6 or words[4] not in CACHES or
                not all(word.isdigit() for word in (*words[2:4], words[5]))):
            raise Unreadable(f"hot.txt:{number}: kernels, targets, CTAs, barriers, {' or '.join(CACHES)}, KiB of code")
        self.kernels, targets, _, _, self.cache, _ = words
        self.targets = targets.split(",")
        self.ctas, self.barriers, self.code = int(words[2]), int(words[3]), int(words[5]) * KIB
        self.number = number

    def is_for(self, target):
        return any(fnmatch.fnmatchcase(target, glob) for glob in self.targets)

    def concerns(self, name, target):
        return self.is_for(target) and fnmatch.fnmatchcase(name, self.kernels)

    def broken(self, row):
        broken = []
        if row.ctas < self.ctas:
            broken.append(f"{row.ctas} CTAs fit an SM, limited by {row.by}; at least {self.ctas} are to")
        if row.barriers > self.barriers:
            broken.append(f"uses {row.barriers} hardware barriers, at most {self.barriers} are allowed")
        if row.loop > CACHES[self.cache]:
            broken.append(f"its hot loop has {row.loop} bytes, the {self.cache} instruction cache {CACHES[self.cache]}")
        if row.code > self.code:
            broken.append(f"has {row.code} bytes of code, at most {self.code} are allowed")
        return [f"{row.kernel} sm_{row.target}: {text} (hot.txt:{self.number})" for text in broken]


def read_limits(text):
    lines = ((number, line.split("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1))
    return [Limit(line, number) for number, line in lines if line]


# ---- rows
# -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Row:
    """A hot kernel as one target's tests launch it."""

    kernel: str
    target: str
    threads: int
    shared: int  # static and the most dynamic bytes a CTA
    registers: int
    ctas: int
    by: str
    barriers: int
    code: int
    loop: int

    def text(self):
        return (f"{self.threads:7} {self.shared:7} {self.registers:4} {self.ctas:4} {self.by:9} {self.barriers:8} "
                f"{self.code:6} {self.loop:6}  {self.kernel}\n")


_TEXT = re.compile(r" *(\d+) +(\d+) +(\d+) +(\d+) (\w+) +(\d+) +(\d+) +(\d+)  (.+)")


def read_rows(text, target):
    """The rows of a target's table."""
    found = [match.groups() for match in map(_TEXT.fullmatch, text.splitlines()) if match]
    return [Row(kernel, target, *map(int, numbers[:4]), numbers[4], *map(int, numbers[5:]))
            for *numbers, kernel in found]


def shapes(launches, name, target):
    """{threads: most dynamic shared bytes} of a kernel's launches on a target; where no test
    launches it there, those of all."""
    sm = int(re.match(r"\d+", target)[0])
    own = [(threads, most) for (kernel, threads, _), most in launches.items() if kernel == name]
    here = [(threads, [most[sm]]) for threads, most in own if sm in most]
    found = {}
    for threads, bytes_seen in here or [(threads, most.values()) for threads, most in own]:
        found[threads] = max(found.get(threads, 0), *bytes_seen)
    return found


def rows_of(kernel, launches):
    if kernel.target not in SMS:
        raise Unreadable(f"hot.py does not know what an SM of sm_{kernel.target} holds")
    loop = kernel.code.hot_loop()
    for threads, dynamic in sorted(shapes(launches, kernel.name, kernel.target).items()):
        shared = kernel.shared + dynamic
        ctas, by = occupancy(SMS[kernel.target], kernel.registers, threads, shared, kernel.barriers)
        yield Row(kernel.name, kernel.target, threads, shared, kernel.registers, ctas, by, kernel.barriers,
                  kernel.code.bytes, loop)


def table(rows, target, compiler):
    return (f"# Hot kernels on sm_{target} by ptxas {compiler}, launched as launches.txt says; make kernels-update\n"
            "# writes this file, hot.txt has the limits. CTAs an SM; bytes of code, and of the hot loop in it.\n"
            "threads  shared regs CTAs by        barriers   code   loop  kernel\n" +
            "".join(row.text() for row in sorted(rows, key=lambda row: (natural(row.kernel), row.threads))))


def compare(command, build, kernels, tables, say):
    """(what breaks a limit, the tables that do not hold). Says both, and to update writes the
    tables of the build's targets. As with the tables of sources, another compiler's code is not compared."""
    limits = read_limits((tables / "hot.txt").read_text())
    launches = read_launch_table((tables / "launches.txt").read_text())
    folder, compiler = tables / build.release / "hot", build.compiler()
    broken, changed = [], []
    for target in build.targets if folder.parent.is_dir() else ():
        path = folder / f"{target}.txt"
        old = path.read_text() if path.exists() else ""
        by = re.search(r" by ptxas (\S+),", old)
        if by and by[1] != compiler:
            continue
        rows = set()
        for limit in limits:
            named = [kernel for kernel in kernels
                     if kernel.target == target and fnmatch.fnmatchcase(kernel.name, limit.kernels)]
            if limit.is_for(target) and not named:
                broken.append(f"hot.txt:{limit.number}: sm_{target} has no kernel called {limit.kernels}")
            for kernel in named:
                found = list(rows_of(kernel, launches))
                if not found:
                    broken.append(f"hot.txt:{limit.number}: launches.txt has no launch of {kernel.name}")
                if limit.is_for(target):
                    broken += [text for row in found for text in limit.broken(row)]
                rows.update(found)
        new = table(rows, target, compiler) if rows else ""
        if old == new or (command == "check" and not old):
            continue
        changed.append(f"hot/{path.name}")
        say(diff(old, new, f"{build.release}/hot/{path.name}").rstrip())
        if command == "update":
            folder.mkdir(exist_ok=True)
            path.write_text(new)
    for problem in broken:
        say(problem)
    if changed and command == "update":
        say(f"wrote {', '.join(changed)}")
    return broken, changed
