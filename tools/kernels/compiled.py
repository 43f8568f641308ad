"""Reads what nvcc made of kernels/cuda: ptxas' reports, the machine code (SASS) and which targets
an object holds.

Entry points: Build (a folder of tools/kernels/build.sh) and its kernels(). Runs cuobjdump and
c++filt, and nothing on a GPU. Standard library only."""

import bisect
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import struct
import subprocess
import tempfile


class Unreadable(Exception):
    """Compiler output that does not have the form this file knows, or a missing part of it."""


@dataclasses.dataclass
class Kernel:
    """One kernel as compiled for one target."""

    source: str  # attention_d64.cu
    target: str  # 90a
    symbol: str
    name: str = ""  # attention_kernel<64, true>
    registers: int = 0
    stack: int = 0  # bytes a thread, as spills: both are local memory
    spill: int = 0  # bytes stored and loaded
    shared: int = 0  # static, bytes a CTA
    threads: int = 0  # __launch_bounds__, the most a CTA may have; 0: none
    barriers: int = 0  # hardware barriers (bar.sync), of 16 a CTA; all 16 where an id is no constant
    instructions: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    code: "Code" = None


# ---- ptxas -v
# ---------------------------------------------------------------------------------------------------

_ENTRY = re.compile(r"ptxas info\s+: Compiling entry function '([^']+)' for 'sm_(\w+)'")
_PROPERTIES = re.compile(r"ptxas info\s+: Function properties for (\S+)")
_STACK = re.compile(r"\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"ptxas info\s+: Used (\d+) registers")
_SHARED = re.compile(r"\b(\d+) bytes smem\b")
_BARRIERS = re.compile(r"\bused (\d+) barriers")  # since CUDA 13
# C7508: setmaxnreg ignored; C7510, C7511, C7515 …: wgmma in series. They come as information, before or
# behind the report of their kernel, which they name.
_LOSS = re.compile(r"\(C75\d\d\).*")


def parse_ptxas(text, source):
    """{(target, symbol): Kernel} of a report by ptxas -v. Kernels only: device functions that
    stayed functions have properties too and are taken as part of the stack of what calls them."""
    kernels = {}
    current = None
    function = None
    for line in text.splitlines():
        if match := _ENTRY.match(line):
            current = Kernel(source=source, symbol=match[1], target=match[2])
            if (current.target, current.symbol) in kernels:
                raise Unreadable(f"{source}: two reports on {current.symbol} for sm_{current.target}")
            kernels[current.target, current.symbol] = current
            function = None
        elif match := _PROPERTIES.match(line):
            function = match[1]
        elif match := _STACK.match(line):
            if current is None or function is None:
                raise Unreadable(f"{source}: a stack frame of no function: {line.strip()}")
            if function == current.symbol:
                current.stack = int(match[1])
            current.spill += int(match[2]) + int(match[3])
        elif match := _USED.match(line):
            if current is None:
                raise Unreadable(f"{source}: registers of no kernel: {line}")
            current.registers = int(match[1])
            if match := _SHARED.search(line):
                current.shared = int(match[1])
            if match := _BARRIERS.search(line):
                current.barriers = int(match[1])
            if match := re.search(r"(\d+) bytes cumulative stack size", line):
                current.stack = max(current.stack, int(match[1]))
    for kernel in kernels.values():
        if kernel.registers == 0:
            raise Unreadable(f"{source}: no registers reported for {kernel.symbol}, sm_{kernel.target}")
    return kernels


# ---- SASS
# -------------------------------------------------------------------------------------------------------

_CODE_FOR = re.compile(r"\s*code for sm_(\w+)")
_FUNCTION = re.compile(r"\s*Function : (\S+)")
_INSTRUCTION = re.compile(
    r"\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9_]*)((?:\.[A-Za-z0-9_]+)*)([^;]*)")

INSTRUCTION_BYTES = 16

_TENSOR = re.compile(r"(H|Q|I|B|D|O)G?MMA$|UTC\w*MMA$")
_ACCESS = {"LDG", "STG", "LD", "ST", "LDL", "STL", "LDGSTS"}
_WIDTH = {"U8": "8", "S8": "8", "U16": "16", "S16": "16", "64": "64", "128": "128", "256": "256"}
_WHOLE = {
    "LDSM", "STSM", "STAS", "UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "ATOM", "ATOMG", "ATOMS", "RED",
    "REDG"
}


def instruction_class(opcode, modifiers):
    """The name an instruction is counted under, or None: tensor cores, shared-memory matrices,
    stores to other CTAs and atomics as nvdisasm spells them, memory accesses with their width in bits (LDG.128)."""
    if opcode in _ACCESS:
        parts = modifiers.split(".")
        return f"{opcode}.{next((_WIDTH[p] for p in parts if p in _WIDTH), '32')}"
    # On sm_80 a constant is made by the opcode HFMA2.MMA; it is no product.
    if _TENSOR.match(opcode) or opcode in _WHOLE:
        return (opcode + modifiers).replace(".16.M88", ".M88").replace(".16.MT88", ".MT88").replace(".gdesc",
                                                                                                    "")
    return None


class Code:
    """The machine code of a kernel: what is counted, its size, and what decides its flow."""

    def __init__(self):
        self.instructions = collections.Counter()
        self.bytes = 0  # with the padding at its end, as the .text section
        self.products = []  # addresses of tensor-core instructions
        self.multiply_adds = []  # and of FFMA
        self.jumps = []  # (address, target or None, whether the next instruction may follow)
        self.switches = []  # addresses of jumps through a table

    def add(self, address, predicate, opcode, modifiers, operands):
        self.bytes = max(self.bytes, address + INSTRUCTION_BYTES)
        if name := instruction_class(opcode, modifiers):
            self.instructions[name] += 1
        if _TENSOR.match(opcode):
            self.products.append(address)
        elif opcode.startswith("FFMA"):
            self.multiply_adds.append(address)
        elif opcode in ("BRX", "BRXU", "JMX", "JMXU"):
            self.switches.append(address)
            self.jumps.append((address, None, bool(predicate)))
        elif opcode in ("BRA", "CALL"):
            target = re.search(r"0x([0-9a-f]+)\s*$", operands)
            if not target:
                raise Unreadable(f"{opcode}{modifiers}{operands} at {address:#x} has no target")
            certain = opcode == "BRA" and not predicate and not re.search(r"P[T0-9]|UR", operands)
            self.jumps.append((address, int(target[1], 16), not certain))
        elif opcode in ("EXIT", "RET"):
            self.jumps.append((address, None, bool(predicate)))

    def hot_loop(self):
        """Bytes of the largest innermost loop with tensor-core products, in a kernel without them with
        FFMA; 0 if there is no such loop. A loop has what it waits in, which ptxas places at the end of
        the kernel."""
        starts = {0, *(target for _, target, _ in self.jumps if target is not None),
                  *(address + INSTRUCTION_BYTES for address, _, _ in self.jumps)}
        starts = sorted(start for start in starts if start < self.bytes)
        ends = dict(zip(starts, [*starts[1:], self.bytes]))
        jumps = {address + INSTRUCTION_BYTES: (target, on) for address, target, on in self.jumps}
        follows = {}
        for start, end in ends.items():
            target, on = jumps.get(end, (None, True))
            follows[start] = {to for to in (target, end if on else None) if to in ends}
        # A table may lead wherever nothing else does.
        elsewhere = set(starts[1:]).difference(*follows.values())
        for address in self.switches:
            follows[starts[bisect.bisect(starts, address) - 1]] |= elsewhere
        products = {starts[bisect.bisect(starts, address) - 1]
                    for address in self.products or self.multiply_adds}
        sizes = {start: end - start for start, end in ends.items()}
        return max((sum(sizes[block] for block in loop) for loop in _innermost(follows, products)), default=0)


def _innermost(follows, wanted):
    """The innermost loops of a flow graph {block: blocks after it} among those that hold one of
    the blocks `wanted`: strongly connected parts, again and again without their first block."""
    for part in _connected(follows):
        if not part & wanted or (len(part) == 1 and not part & follows[min(part)]):
            continue
        entries = {block for block in part
                   if any(block in after for before, after in follows.items() if before not in part)}
        first = min(entries or part)
        rest = {block: follows[block] & part - {first} for block in part - {first}}
        yield from list(_innermost(rest, wanted)) or [part]


def _connected(follows):
    """The strongly connected parts of a graph, by Tarjan's algorithm without recursion."""
    order, low, stack, parts = {}, {}, [], []
    for root in follows:
        path = [] if root in order else [(root, None)]
        while path:
            block, after = path.pop()
            if after is None:
                order[block] = low[block] = len(order)
                stack.append(block)
                after = iter(follows[block])
            for to in after:
                if to not in order:
                    path += [(block, after), (to, None)]
                    break
                if to in low:
                    low[block] = min(low[block], low[to])
            else:
                if low[block] == order[block]:
                    part = set()
                    while block not in part:
                        part.add(stack[-1])
                        del low[stack.pop()]
                    parts.append(part)
                elif path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[block])
    return parts


def parse_sass(lines):
    """{(target, symbol): Code} from the lines of cuobjdump --dump-sass."""
    found = {}
    target = None
    code = None
    for line in lines:
        if match := _INSTRUCTION.match(line):
            if code is not None:
                code.add(int(match[1], 16), *match.groups()[1:])
        elif match := _CODE_FOR.match(line):
            target, code = match[1], None
        elif match := _FUNCTION.match(line):
            if target is None:
                raise Unreadable(f"code of no target: {line.strip()}")
            code = found.setdefault((target, match[1]), Code())
    return found


def elf_targets(listing):
    """The targets in a listing by cuobjdump --list-elf."""
    return re.findall(r"ELF file\s+\d+: \S*?\.sm_(\w+)\.cubin", listing)


def elf_name(target):
    """How an ELF in an object names a target: 100f is recorded as 100."""
    return target.rstrip("f")


# ---- launch bounds
# ----------------------------------------------------------------------------------------------

_SECTION_TABLE = 0x28  # in an ELF64 header: offset of the section table (u64)
_SECTION_COUNTS = 0x3A  # size and number of its entries, index of the names' section (3 × u16)
# a record of .nv.info with a size (u16) and that many bytes; all others have 4 bytes in all
_FORMAT_SIZED = 4
_MAX_THREADS = 5  # the attribute of __launch_bounds__: 3 × u32


def launch_bounds(cubin):
    """{symbol: most threads a CTA} of the kernels in a cubin (bytes) that state it."""
    bounds = {}
    if cubin[:4] != b"\x7fELF":
        raise Unreadable("a cubin is no ELF file")
    (table,) = struct.unpack_from("<Q", cubin, _SECTION_TABLE)
    size, count, names = struct.unpack_from("<HHH", cubin, _SECTION_COUNTS)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    for name, _, _, _, offset, length in sections:
        start = sections[names][4] + name
        symbol = cubin[start : cubin.index(b"\0", start)].decode()
        if not symbol.startswith(".nv.info."):
            continue
        position = offset
        while position < offset + length:
            form, attribute, bytes_ = struct.unpack_from("<BBH", cubin, position)
            if form == _FORMAT_SIZED and attribute == _MAX_THREADS:
                x, y, z = struct.unpack_from("<3I", cubin, position + 4)
                bounds[symbol.removeprefix(".nv.info.")] = x * y * z
            position += 4 + (bytes_ if form == _FORMAT_SIZED else 0)
    return bounds


# ---- names
# ------------------------------------------------------------------------------------------------------


def short_name(demangled):
    """A demangled kernel without its return type, namespaces and parameters: what the source calls
    it."""
    text = demangled.replace("(anonymous namespace)::", "")
    depth = 0
    for position, character in enumerate(text):
        if character == "<":
            depth += 1
        elif character == ">":
            depth -= 1
        elif character == "(" and depth == 0:
            text = text[:position]
            break
    head, angle, arguments = text.partition("<")
    head = head.removeprefix("void ").rsplit("::", 1)[-1]
    arguments = re.sub(r"\b(?:\w+::)+", "", arguments)
    return (head + angle + arguments).replace(" >", ">").strip()


def demangle(symbols):
    """{symbol: short name}, by c++filt."""
    symbols = sorted(set(symbols))
    run = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True)
    names = run.stdout.splitlines()
    if len(names) != len(symbols):
        raise Unreadable("c++filt gave another number of names than it got")
    return {symbol: short_name(name) for symbol, name in zip(symbols, names)}


# ---- a build
# ----------------------------------------------------------------------------------------------------


class Build:
    """A build folder: its toolkit, its targets, and the objects of kernels/cuda."""

    def __init__(self, folder, sources):
        """folder as build.sh prints it; sources: the folder of the .cu files."""
        self.folder = pathlib.Path(folder)
        self.objects = self.folder / "cuda-objects"
        description = self.objects / "build.txt"
        if not description.exists():
            raise Unreadable(f"{self.folder} holds no CUDA build; run make kernels")
        lines = [line.split(" ", 1) for line in description.read_text().splitlines()]
        fields = dict(lines)
        self.release = fields["release"]
        self.targets = fields["targets"].split(",")
        self.bin = pathlib.Path(fields["home"]) / "bin"
        self.sources = sorted(path.stem for path in pathlib.Path(sources).glob("*.cu"))
        # Of each source, the targets of the build that it is for (sie_targets_of in cmake/cuda.cmake).
        self._own = {
            source: [target for target in own.split(",") if target]
            for source, own in (rest.split(" ", 1) for name, rest in lines if name == "source")
        }

    def compiler(self):
        """The version of ptxas, which decides the code: 13.0.88."""
        run = subprocess.run([self.bin / "ptxas", "--version"], capture_output=True, text=True, check=True)
        match = re.search(r"\bV(\d+\.\d+\.\d+)", run.stdout)
        if not match:
            raise Unreadable(f"{self.bin}/ptxas --version does not say a version")
        return match[1]

    def targets_of(self, source):
        """The targets a source is for; an object may hold others, for which its kernels are
        empty."""
        return self._own.get(source, [])

    def object(self, source):
        return self.objects / f"{source}.o"

    def targets_in(self, source):
        return elf_targets(self._cuobjdump("--list-elf", self.object(source)))

    def ptx_in(self, source):
        """The PTX files an object holds; there should be none."""
        return re.findall(r"PTX file\s+\d+: (\S+)", self._cuobjdump("--list-ptx", self.object(source)))

    def kernels(self):
        """Every kernel of every source for every target it is for, named, in order of source."""
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            kernels = [kernel for found in pool.map(self._kernels_of, self.sources) for kernel in found]
        names = demangle(kernel.symbol for kernel in kernels)
        for kernel in kernels:
            kernel.name = names[kernel.symbol]
        return kernels

    def _kernels_of(self, source):
        log = self.objects / f"{source}.ptxas.txt"
        if not log.exists():
            raise Unreadable(f"{source}.cu was not compiled in {self.folder}; run make kernels")
        reported = parse_ptxas(log.read_text(), f"{source}.cu")
        command = [self.bin / "cuobjdump", "--dump-sass", self.object(source)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
            sass = parse_sass(run.stdout)
        if run.returncode != 0:
            raise Unreadable(f"cuobjdump cannot read {self.object(source)}")
        bounds = self._bounds_of(source)
        for (target, symbol), kernel in reported.items():
            kernel.threads = bounds.get((elf_name(target), symbol), 0)
            if (elf_name(target), symbol) not in sass:
                raise Unreadable(f"{source}.o has no code of {symbol} for sm_{target}")
            kernel.code = sass[elf_name(target), symbol]
            kernel.instructions = kernel.code.instructions
        if len(sass) != len(reported):
            raise Unreadable(f"{source}.o holds {len(sass)} kernels, ptxas reported {len(reported)}")
        return [kernel for kernel in reported.values() if kernel.target in self.targets_of(source)]

    def _bounds_of(self, source):
        bounds = {}
        with tempfile.TemporaryDirectory() as folder:
            command = [self.bin / "cuobjdump", "--extract-elf", "all", self.object(source).resolve()]
            subprocess.run(command, cwd=folder, capture_output=True, check=True)
            for cubin in pathlib.Path(folder).glob("*.cubin"):
                target = cubin.stem.rpartition(".sm_")[2]
                for symbol, threads in launch_bounds(cubin.read_bytes()).items():
                    bounds[target, symbol] = threads
        return bounds

    def losses(self, source):
        """What ptxas says it could not keep of a source: products by wgmma that it puts in series, a
        setmaxnreg that it ignores."""
        log = self.objects / f"{source}.ptxas.txt"
        return _LOSS.findall(log.read_text()) if log.exists() else []

    def _cuobjdump(self, option, path):
        run = subprocess.run([self.bin / "cuobjdump", option, path], capture_output=True, text=True)
        if run.returncode != 0 and "does not contain" not in run.stdout + run.stderr:
            raise Unreadable(f"cuobjdump {option} {path}: {run.stderr.strip()}")
        return run.stdout
