"""What the kernels of an instruction set were compiled to: instructions.py ISA OBJDUMP OBJECT…

The products of each set must be there, in its widest registers, and nothing that a CPU of the set may
lack. So a class that the machine at hand cannot run is checked by disassembly: bf16 on AVX512_BF16 has
vdpbf16ps on 512 bits and no tile instruction.
"""

import re
import subprocess
import sys

# Of x86-64, each with what it adds to the one before. An instruction is as objdump -d prints it.
TILES = r"^(ld|st)tilecfg|^tile|^tdp"
BF16 = r"^vdpbf16ps|^vcvtne2?ps2bf16"
VNNI = r"^vpdp(busd|wssd)"
WIDE = r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])"
VECTORS = r"%ymm|^v"
# What no table here asks for: fp16, IFMA, VBMI, VBMI2, BITALG, VPOPCNTDQ.
UNASKED = (r"^v(add|mul|div|sub|fmadd\d+)[ps]h |^vpmadd52|^vperm[it]?2?b |^vpcompress[bw]|^vpsh[lr]dv?[wdq]|"
           r"^vpopcnt")
ARM_ABOVE = r"^(us|u|s)mmla|^bfmmla|^bfdot|^(us|su)dot| z\d+\."

# By set: what there must be, and what there must not be.
RULES = {
    "baseline": ([], [VECTORS, WIDE, TILES]),
    "avx2": ([r"^vfmadd\d+ps .*%ymm", r"^vpmaddwd .*%ymm"], [WIDE, VNNI, BF16, TILES, UNASKED]),
    "avx512": ([r"^vfmadd\d+ps .*%zmm"], [VNNI, BF16, TILES, UNASKED]),
    "vnni": ([r"^vpdpbusd .*%zmm"], [BF16, TILES, UNASKED]),
    "avx512bf16": ([r"^vdpbf16ps .*%zmm", r"^vcvtne2ps2bf16 .*%zmm"], [TILES, UNASKED]),
    "amx": ([r"^tdpbf16ps ", r"^tdpbusd ", r"^tileloadd ", r"^ldtilecfg ", r"^tilerelease"], [UNASKED]),
    "neon": ([r"^fmla v\d+\.4s", r"^smlal2?|^smull2? ", r"^sadalp "], [r"^[us]dot ", ARM_ABOVE]),
    "dot": ([r"^sdot v\d+\.4s"], [ARM_ABOVE]),
}


def instructions(objdump, path):
    """Each instruction's mnemonic and operands, a blank between, and the function that it stands in."""
    done = subprocess.run([objdump, "-dr", "--no-show-raw-insn", "-C", path], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{objdump} cannot read {path}: {done.stderr.strip()}")
    function = ""
    for line in done.stdout.splitlines():
        if head := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            function = head[1]
        elif found := re.match(r"\s+[0-9a-f]+:\t(?:\{\w+\} )?(.*)", line):
            yield " ".join(found[1].split()) + " ", function


def faults(isa, code):
    """What the rules of the set find in (instruction, function) pairs, a line each."""
    needed, forbidden = RULES[isa]
    missing, never = set(needed), re.compile("|".join(forbidden))
    count = 0
    for text, function in code:
        count += 1
        missing = {n for n in missing if not re.search(n, text)}
        if never.search(text):
            yield f"{function} has {text}"
    yield from (f"nothing there matches {n}" for n in sorted(missing))
    if not count:
        yield "there are no instructions"


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in RULES:
        sys.exit(__doc__)
    isa, objdump, *objects = sys.argv[1:]
    found = list(faults(isa, (i for path in objects for i in instructions(objdump, path))))
    for line in found[:20]:
        print(line)
    if found:
        sys.exit(f"kernels for {isa}: {len(found)} instructions are wrong or missing")


if __name__ == "__main__":
    main()
