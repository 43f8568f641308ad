"""What instructions beside wide FMAs leave of a core's clock: loops of 27 independent 512-bit FMAs
a turn, alone and with loads, integer operations or NOPs spread among them, in turns on one CPU.
docs/adr/0012 draws conclusions.

All operands lie in L1 and are zero; no load is waited for, so a slower loop is a slower clock, or
turns that the core skips. The clock is read behind each loop, as the time of a chain of dependent
multiplications of three cycles each.
"""

import argparse
import ctypes
import os
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import machine

FMAS, UNROLL, LINES = 27, 2, 16
KINDS = {
    "nop": lambda i: "nop",
    "integer operation": lambda i: "lea 1(%rax), %rdx",
    "broadcast": lambda i: f"vbroadcastss {4 * (i % LINES)}(%rsi), %zmm{28 + i % 2}",
    "vector load": lambda i: f"vmovaps {64 * (i % LINES)}(%rsi), %zmm{28 + i % 2}",
}
MIXES = [{}] + [{kind: n} for kind in ("nop", "integer operation") for n in (9, 18)]
MIXES += [{kind: n} for kind in ("broadcast", "vector load") for n in (3, 6, 9, 12, 18, 27)]

HELPERS = r"""
#include <stdint.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec; }
/* Seconds of `turns` turns, after as many that let the clock settle; *ghz is the clock right behind them. */
double timed(void (*loop)(long, const float *), long turns, const float *memory, double *ghz) {
  loop(turns, memory);
  double start = now();
  loop(turns, memory);
  double end = now();
  uint64_t x = 3;
  __asm__ volatile(".rept 1000\n imul %0, %0\n .endr" : "+r"(x)); /* a microsecond: the clock has not moved yet */
  *ghz = 1000 * 3 / (now() - end) * 1e-9;
  return end - start;
}
"""


def loop(name, mix):
    placed = [((i + 0.5) * FMAS / n, make(i)) for kind, n in mix.items()
              for i, make in enumerate([KINDS[kind]] * n)]
    placed += [(j + 0.6, f"vfmadd231ps %zmm31, %zmm30, %zmm{j}") for j in range(FMAS)]
    turn = [text for _, text in sorted(placed, key=lambda p: p[0])]
    clear = [f"vpxord %zmm{i}, %zmm{i}, %zmm{i}" for i in range(32)]
    lines = clear + [".p2align 6", "1:"] + turn * UNROLL + ["dec %rdi", "jne 1b", "vzeroupper", "ret"]
    return f".globl {name}\n.p2align 6\n{name}:\n" + "\n".join(lines) + "\n"


def build(folder):
    code = ".text\n" + "".join(loop(f"mix{i}", mix) for i, mix in enumerate(MIXES))
    (folder / "loops.S").write_text(code + '.section .note.GNU-stack, "", @progbits\n')
    (folder / "helpers.c").write_text(HELPERS)
    library = folder / "clock.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, "loops.S", "helpers.c"], cwd=folder,
                   check=True)
    return ctypes.CDLL(str(library))


def peak(cpus, milliseconds=60):
    """GFLOP/s of FMAs alone on so many CPUs at once; None without AVX-512."""
    if "avx512f" not in machine.flags():
        return None
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
    library.timed.restype = ctypes.c_double
    flop = 2 * 16 * FMAS * UNROLL
    turns = ctypes.c_long(int(milliseconds * 1e-3 * 100e9 / flop))

    def run(cpu):
        os.sched_setaffinity(0, [cpu])  # of this thread alone
        memory = (ctypes.c_float * (16 * LINES + 16))()
        return library.timed(library.mix0, turns, memory, ctypes.byref(ctypes.c_double()))

    with ThreadPoolExecutor(cpus) as pool:
        seconds = list(pool.map(run, sorted(os.sched_getaffinity(0))[:cpus]))
    return sum(flop * turns.value / s for s in seconds) * 1e-9


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=9, help="turns of each loop")
    p.add_argument("--milliseconds", type=float, default=30, help="length of a turn")
    asked = p.parse_args()
    if "avx512f" not in machine.flags():
        raise SystemExit("bench-clock: this CPU has no AVX-512; there is nothing to time")
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
    library.timed.restype = ctypes.c_double
    memory = (ctypes.c_float * (16 * LINES + 16))()
    aligned = ctypes.c_void_p(-(-ctypes.addressof(memory) // 64) * 64)
    flop = 2 * 16 * FMAS * UNROLL  # a turn
    turns = ctypes.c_long(int(asked.milliseconds * 1e-3 * 200e9 / flop))
    rates, clocks = [[] for _ in MIXES], [[] for _ in MIXES]
    for _ in range(asked.rounds):
        for i in range(len(MIXES)):
            ghz = ctypes.c_double()
            seconds = library.timed(getattr(library, f"mix{i}"), turns, aligned, ctypes.byref(ghz))
            rates[i].append(flop * turns.value / seconds * 1e-9)
            clocks[i].append(ghz.value)
    print(f"| beside {FMAS} FMAs | GFLOP/s | clock behind the loop, GHz |\n| --- | --- | --- |")
    for mix, rate, clock in zip(MIXES, rates, clocks):
        beside = ", ".join(f"{n} × {kind}" for kind, n in mix.items()) or "nothing"
        print(f"| {beside} | {statistics.median(rate):.0f} | {statistics.median(clock):.2f} |")


if __name__ == "__main__":
    main()
