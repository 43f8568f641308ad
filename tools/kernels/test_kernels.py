"""Tests of compiled.py, budgets.py and hot.py on samples of real compiler output, and of cuda.sh's choice
of a toolkit; no compiler runs. python3 -m unittest discover tools/kernels"""

import collections
import fnmatch
import os
import pathlib
import re
import stat
import struct
import subprocess
import tempfile
import textwrap
import unittest

import budgets
import compiled
import hot
import launches
import tables

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES = HERE / "samples"
PRODUCT = "_ZN8sie_cuda41_GLOBAL__N__513ec798_9_sample_cu_d316b2fb14product_kernelILNS0_7OperandE1ELi64EEEvPK5uint4Pf"
CARELESS = "_ZN8sie_cuda41_GLOBAL__N__513ec798_9_sample_cu_d316b2fb15careless_kernelEPfi"
SPILLING = "_Z8attn_fwdILi32ELi64ELi64EEvPKtPtPKiPK5int2_ifi"


def ptxas(release="13.0"):
    return (SAMPLES / f"cuda-{release}.ptxas.txt").read_text()


def sass(name):
    found = compiled.parse_sass((SAMPLES / f"{name}.sass.txt").read_text().splitlines())
    return {key: code.instructions for key, code in found.items()}


def code_of(*instructions):
    """The Code of a kernel, an instruction a line."""
    lines = ["\tcode for sm_90a", "\t\tFunction : k"]
    lines += [f"        /*{16 * i:04x}*/   {line} ;   /* 0x0000 */" for i, line in enumerate(instructions)]
    return compiled.parse_sass(lines)["90a", "k"]


class Reports(unittest.TestCase):
    def test_registers_stack_spills_and_shared_memory(self):
        kernels = compiled.parse_ptxas(ptxas(), "sample.cu")
        self.assertEqual(
            {(k.target, k.symbol): (k.registers, k.stack, k.spill, k.shared) for k in kernels.values()},
            {
                ("80", PRODUCT): (14, 0, 0, 0),
                ("80", CARELESS): (26, 0, 0, 1024),
                ("100f", PRODUCT): (16, 0, 0, 0),
                ("100f", CARELESS): (26, 0, 0, 1024),
                ("86", SPILLING): (96, 8, 40, 0),
            },
        )

    def test_hardware_barriers(self):
        text = ptxas().replace("Used 14 registers, used 1 barriers", "Used 14 registers, used 16 barriers")
        kernels = compiled.parse_ptxas(text, "sample.cu")
        self.assertEqual([kernels[key].barriers for key in (("80", PRODUCT), ("80", CARELESS))], [16, 1])

    def test_the_older_compiler(self):
        kernels = compiled.parse_ptxas(ptxas("12.4"), "sample.cu")
        self.assertEqual(sorted(k.registers for k in kernels.values()), [14, 16, 26, 26])
        self.assertEqual({target for target, _ in kernels}, {"80", "90a"})

    def test_functions_that_a_kernel_calls_count_towards_its_spills(self):
        text = textwrap.dedent("""\
            ptxas info    : Compiling entry function 'k' for 'sm_80'
            ptxas info    : Function properties for k
                0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
            ptxas info    : Function properties for helper
                16 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
            ptxas info    : Used 10 registers, 16 bytes cumulative stack size
            """)
        (kernel,) = compiled.parse_ptxas(text, "s.cu").values()
        self.assertEqual((kernel.stack, kernel.spill), (16, 8))

    def test_output_of_another_form_is_refused(self):
        lines = ptxas().splitlines(True)
        for text in (
            "".join(lines[2:]).replace("Compiling", "Compiled", 1),
            "".join(line for line in lines if "Used 14" not in line),
            ptxas() + ptxas(),
        ):
            with self.assertRaises(compiled.Unreadable):
                compiled.parse_ptxas(text, "sample.cu")


class Code(unittest.TestCase):
    def test_instructions_by_kernel_and_target(self):
        found = sass("cuda-13.0")
        self.assertEqual(
            found["80", PRODUCT],
            {"LDGSTS.128": 1, "LDSM.M88.4": 1, "HMMA.16816.F32.BF16": 1, "STG.32": 1},
        )
        self.assertEqual(found["100", CARELESS], {"LDG.32": 3, "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU": 1})
        self.assertEqual(
            found["86", SPILLING],
            {"LDG.128": 1, "LDG.16": 1, "STL.32": 1, "STL.64": 1, "LDL.32": 1, "LDSM.MT88.4": 1},
        )

    def test_the_older_compiler(self):
        found = sass("cuda-12.4")
        self.assertEqual(set(found), {(t, s) for t in ("80", "90a") for s in (PRODUCT, CARELESS)})
        self.assertEqual(found["90a", PRODUCT]["HMMA.16816.F32.BF16"], 1)

    def test_hopper(self):
        found = sass("hopper")
        bf16, fp8 = (found["90a", f"_Z8w_kernelILN3ptx7OperandE{i}EEvPf"] for i in (0, 2))
        self.assertEqual(bf16["HGMMA.64x64x16.F32.BF16"], 1)
        self.assertEqual(fp8["QGMMA.64x64x32.F32.E4M3.E4M3"], 1)
        self.assertEqual(fp8["UTMALDG.2D"], 1)

    def test_what_is_no_tensor_product(self):
        self.assertIsNone(compiled.instruction_class("HFMA2", ".MMA"))
        self.assertIsNone(compiled.instruction_class("REDUX", ".MAX.S32"))
        self.assertIsNone(compiled.instruction_class("LDS", ".128"))

    def test_targets_of_an_object(self):
        listing = "ELF file    1: attn.1.sm_80.cubin\nELF file    2: attn.2.sm_90a.cubin\nELF file    3: a.3.sm_100.cubin\n"
        self.assertEqual(compiled.elf_targets(listing), ["80", "90a", "100"])


class Loops(unittest.TestCase):
    """The hot loop of a kernel: the largest innermost one with tensor-core products."""

    def test_a_loop_inside_another(self):
        code = code_of("MOV R0, R1", "MOV R2, R3", "HMMA.16816.F32 R4, R8, R12, R4", "@P0 BRA 0x20",
                       "STG.E.128 [R2.64], R4", "@!P1 BRA 0x10", "EXIT", "BRA 0x70", "NOP")
        self.assertEqual((code.bytes, code.hot_loop()), (144, 32))

    def test_what_a_loop_waits_in_at_the_end_of_the_kernel_is_its_own_and_nothing_between_is(self):
        code = code_of("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0", "@!P0 BRA 0x60",
                       "HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24", "@P1 BRA 0x0", "STG.E [R2.64], R4",
                       "EXIT", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0", "@!P0 BRA 0x60", "BRA 0x20")
        self.assertEqual(code.hot_loop(), 4 * 16 + 3 * 16)

    def test_the_largest_of_two_and_none_without_products(self):
        code = code_of("QGMMA.64x64x32.F32.E4M3.E4M3 R0, gdesc[UR4], R0", "@P0 BRA 0x0", "MOV R1, R2",
                       "HMMA.16816.F32 R4, R8, R12, R4", "BRA P2, 0x20", "MOV R1, R2", "MOV R1, R2",
                       "MOV R1, R2", "MOV R1, R2", "@P0 BRA 0x50", "EXIT")
        self.assertEqual(code.hot_loop(), 3 * 16)
        code = code_of("FFMA R1, R2, R3, R1", "MOV R1, R2", "@P0 BRA 0x0", "HMMA.16816.F32 R4, R8, R12, R4",
                       "@P0 BRA 0x30", "EXIT")
        self.assertEqual(code.hot_loop(), 2 * 16)
        self.assertEqual(code_of("FFMA R1, R2, R3, R1", "@P0 BRA 0x0", "EXIT").hot_loop(), 2 * 16)
        self.assertEqual(code_of("MOV R1, R2", "@P0 BRA 0x0", "EXIT").hot_loop(), 0)
        self.assertEqual(code_of("HMMA.16816.F32 R4, R8, R12, R4", "EXIT").hot_loop(), 0)

    def test_a_jump_through_a_table_leads_to_what_nothing_else_leads_to(self):
        code = code_of("MOV R1, R2", "BRX R4 -0x20", "HMMA.16816.F32 R4, R8, R12, R4", "BRA 0x60",
                       "MOV R1, R2", "BRA 0x60", "@P0 BRA 0x0", "EXIT")
        self.assertEqual(code.hot_loop(), 7 * 16)

    def test_a_branch_on_a_predicate_or_on_divergence_goes_on_too(self):
        for branch in ("BRA P2, 0x40", "BRA !UP2, 0x40", "BRA.DIV UR4, 0x40"):
            code = code_of("HMMA.16816.F32 R4, R8, R12, R4", branch, "MOV R1, R2", "BRA 0x0", "EXIT")
            self.assertEqual(code.hot_loop(), 4 * 16, branch)

    def test_a_branch_without_a_target(self):
        with self.assertRaises(compiled.Unreadable):
            code_of("BRA `(.L_x_1)")


class Hot(unittest.TestCase):
    """Occupancy, and the limits and tables of the hot kernels."""

    def test_occupancy(self):
        for target, registers, threads, shared, barriers, expected in (
            ("90a", 168, 384, 229632, 1, (1, "registers")),
            ("90a", 64, 384, 229632, 1, (1, "shared")),
            ("90a", 128, 128, 73728, 1, (3, "shared")),
            ("90a", 32, 256, 0, 16, (4, "barriers")),
            ("90a", 32, 256, 0, 1, (8, "threads")),
            ("90a", 16, 32, 0, 1, (32, "CTAs")),
            ("89", 32, 256, 0, 16, (6, "threads")),
            ("89", 40, 128, 0, 0, (12, "threads")),
            ("89", 41, 128, 0, 0, (10, "registers")),
            ("89", 255, 64, 49152, 1, (2, "shared")),
            ("89", 255, 64, 50177, 1, (1, "shared")),
            ("80", 255, 96, 0, 1, (2, "registers")),
            ("89", 32, 32, 101377, 1, (0, "shared")),
        ):
            got = hot.occupancy(hot.SMS[target], registers, threads, shared, barriers)
            self.assertEqual(got, expected, (target, registers, threads, shared, barriers))

    def test_the_most_that_is_launched_on_a_target_and_elsewhere_where_it_is_not(self):
        table = {("k", 128, 1): {80: 10, 89: 40}, ("k", 128, 2): {89: 30}, ("k", 256, 1): {80: 5},
                 ("l", 64, 1): {89: 1}}
        self.assertEqual(hot.shapes(table, "k", "89"), {128: 40})
        self.assertEqual(hot.shapes(table, "k", "120f"), {128: 40, 256: 5})
        self.assertEqual(hot.shapes(table, "m", "89"), {})

    def test_lines_of_another_form(self):
        (limit,) = hot.read_limits("k* 80,9?a 2 1 L1.5 8  # text")
        self.assertTrue(limit.concerns("k<1>", "90a") and not limit.concerns("k<1>", "89"))
        self.assertEqual((limit.ctas, limit.barriers, limit.cache, limit.code), (2, 1, "L1.5", 8192))
        for line in ("k* 80 1 1 L0", "k* 80 1 1 L2 8", "k* 80 1 1 L0 8 more", "k* 80 1 1 L0 8K",
                     "k* 80 -1 1 L0 8"):
            with self.assertRaises(compiled.Unreadable):
                hot.read_limits(line)

    def test_checked_in_tables_agree_with_those_of_sources_and_launches(self):
        """make test compiles one target of two: another launch fails here for both."""
        limits = hot.read_limits((tables.TABLES / "hot.txt").read_text())
        launched = tables.read_launch_table((tables.TABLES / "launches.txt").read_text())
        registers = {row[:2]: row[2] for file in (tables.TABLES / "13.0").glob("*.txt")
                     for row in tables.read_table(file.read_text())}
        names = {path.stem for path in (tables.TABLES / "13.0/hot").glob("*.txt")}
        self.assertLessEqual({"89", "90a"}, names)
        for target in sorted(names):
            rows = hot.read_rows((tables.TABLES / f"13.0/hot/{target}.txt").read_text(), target)
            for limit in limits:
                hits = [row for row in rows if limit.concerns(row.kernel, target)]
                self.assertTrue(hits or not limit.is_for(target), (target, limit.number))
                self.assertEqual([text for row in hits for text in limit.broken(row)], [])
            for row in rows:
                self.assertEqual(row.registers, registers[row.kernel, target], row)
                self.assertEqual(row.shared, hot.shapes(launched, row.kernel, target).get(row.threads), row)
                fits = hot.occupancy(hot.SMS[target], row.registers, row.threads, row.shared, row.barriers)
                self.assertEqual((row.ctas, row.by), fits, row)


class Names(unittest.TestCase):
    def test_short_names(self):
        for long, short in {
                "void sie_cuda::(anonymous namespace)::product_kernel<(sie_cuda::(anonymous namespace)::Operand)1, 64>"
                "(uint4 const*, float*)": "product_kernel<(Operand)1, 64>",
                "sie_cuda::(anonymous namespace)::careless_kernel(float*, int)": "careless_kernel",
                "void k<sie_cuda::Tile<(ptx::Operand)0, 128, 64>, true>(k<int>*)": "k<Tile<(Operand)0, 128, 64>, true>",
                "void k<A<1> >(int)": "k<A<1>>",
                "plain": "plain",
        }.items():
            self.assertEqual(compiled.short_name(long), short)

    def test_symbols_through_the_demangler(self):
        names = compiled.demangle([PRODUCT, CARELESS, SPILLING])
        self.assertEqual(
            [names[s] for s in (PRODUCT, CARELESS, SPILLING)],
            ["product_kernel<(Operand)1, 64>", "careless_kernel", "attn_fwd<32, 64, 64>"],
        )


def kernel(**fields):
    instructions = collections.Counter(fields.pop("instructions", {}))
    return compiled.Kernel(**{"source": "s.cu", "target": "80", "symbol": "k", "name": "k<1>",
                              "registers": 32, "threads": 128, "instructions": instructions, **fields})


def make_cubin(bounds):
    """An ELF64 file with a .nv.info section a kernel: some attribute of four bytes, one with a
    size, and the bounds."""
    names, bodies = b"\0.shstrtab\0", [b"", b""]
    offsets = [0, 1]
    for symbol, (x, y, z) in bounds.items():
        offsets.append(len(names))
        names += b".nv.info." + symbol.encode() + b"\0"
        other = struct.pack("<BBH", 3, 0x1B, 0xFF) + struct.pack("<BBH", 4, 0x0A,
                                                                 8) + b"\x04\x05\x0c\0\x01\0\0\0"
        bodies.append(other + struct.pack("<BBH3I", 4, 5, 12, x, y, z))
    bodies[1] = names
    sections, content = [], b""
    for offset, body in zip(offsets, bodies):
        sections.append(struct.pack("<IIQQQQ", offset, 1, 0, 0, 64 + len(content), len(body)) + bytes(24))
        content += body
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    struct.pack_into("<Q", header, 0x28, 64 + len(content))
    struct.pack_into("<HHH", header, 0x3A, 64, len(sections), 1)
    return bytes(header) + content + b"".join(sections)


class Bounds(unittest.TestCase):
    def test_launch_bounds_of_a_cubin(self):
        cubin = make_cubin({"_Z1kv": (32, 4, 2), "_Z1lv": (1024, 1, 1)})
        self.assertEqual(compiled.launch_bounds(cubin), {"_Z1kv": 256, "_Z1lv": 1024})
        self.assertEqual(compiled.launch_bounds(make_cubin({})), {})
        with self.assertRaises(compiled.Unreadable):
            compiled.launch_bounds(b"MZ")


class Launches(unittest.TestCase):
    TABLE = (
        "# s.cu by ptxas 13.0.88; text\n# text\n"
        "kernel   target  regs  threads  stack  spills  static  instructions\n"
        "k<1, 2>      80   168      256      0       0       0  LDG.128=1\n"
        "k<1, 2>     90a   168      256      0       0       0  LDG.128=1\n"
        "plain        80    40      128      0       0       0\n"
        "plain       90a    40      128      0       0       0\n"
    )

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        for release in ("12.4", "13.0"):
            (self.root / release).mkdir()
            (self.root / release / "s.txt").write_text(self.TABLE if release == "13.0" else "")
        source = self.root / "p.c"
        names = ("_Z1kILi1ELi2EEvv", "plain", "stranger")
        source.write_text("".join(f"void {name}(void) {{}}\n" for name in names) +
                          "int main(void) { return 0; }\n")
        self.program = self.root / "p"
        subprocess.run(["cc", source, "-o", self.program, "-Wl,--defsym=keep=__executable_start"], check=True)
        symbols = {symbol: offset for offset, symbol in launches.symbols_of(self.program).items()}
        self.k, self.plain, self.stranger = (symbols[name] for name in names)

    def write(self, *shapes):
        lines = [f"{self.program}\t{offset:x}\t" + "\t".join(map(str, numbers))
                 for offset, *numbers in shapes]
        (self.root / "record").write_text("\n".join([*lines, "/gone\t10\t1\t1\t1\t80"]) + "\n")

    def run_tool(self, command):
        said = []
        return launches.run(command, self.root / "record", self.root, said.append), "\n".join(said)

    def test_update_then_check_then_a_change(self):
        self.write(
            (self.k, 256, 1024, 1, 80),
            (self.k, 256, 4096, 1, 80),
            (self.k, 256, 512, 2, 90),
            (self.plain, 64, 0, 1, 80),
            (self.stranger, 32, 0, 1, 80),
        )
        self.assertEqual(self.run_tool("check")[0], 1)
        self.assertEqual(self.run_tool("update")[0], 0)
        self.assertEqual(self.run_tool("check"), (0, "3 kinds of launches: ok"))
        rows = [line.split() for line in (self.root / "launches.txt").read_text().splitlines()[2:]]
        self.assertEqual(rows[0], ["256", "1", "k<1,", "2>", "sm_80=4096"])
        self.assertEqual(rows[1], ["256", "2", "k<1,", "2>", "sm_90=512"])
        self.write((self.k, 256, 8192, 1, 80), (self.k, 256, 512, 2, 90), (self.plain, 64, 0, 1, 80))
        status, said = self.run_tool("check")
        self.assertEqual(status, 1)
        self.assertIn("+  256  1  k<1, 2>  sm_80=8192", said)

    def test_a_part_of_the_tests(self):
        self.write((self.k, 256, 4096, 1, 80), (self.k, 256, 512, 2, 90), (self.plain, 64, 0, 1, 80))
        self.assertEqual(self.run_tool("update")[0], 0)
        before = (self.root / "launches.txt").read_text()
        self.write((self.k, 256, 4095, 1, 80), (self.plain, 64, 0, 1, 80))
        self.assertEqual(self.run_tool("part"), (0, "2 kinds of launches: ok"))
        for shape in ((self.k, 256, 4097, 1, 80), (self.k, 256, 0, 1, 90), (self.k, 256, 0, 4, 80),
                      (self.plain, 32, 0, 1, 80)):
            self.write(shape, (self.plain, 64, 0, 1, 80))
            status, said = self.run_tool("part")
            self.assertEqual((status, said.count("is not in launches.txt")), (1, 1), said)
        (self.root / "launches.txt").write_text("".join(
            line for line in before.splitlines(True) if "plain" not in line))
        self.write((self.k, 256, 4096, 1, 80))
        self.assertIn("plain is compiled, and no test launches it", self.run_tool("part")[1])

    def test_launches_that_a_device_would_refuse(self):
        self.write((self.k, 384, 0, 1, 80), (self.plain, 64, 0, 1, 86))
        status, said = self.run_tool("update")
        self.assertEqual(status, 1)
        self.assertIn("k<1, 2> is launched with 384 threads on sm_80, its bound is 256", said)
        self.assertIn("plain is launched on sm_86, where the tables have no such kernel", said)
        text = self.TABLE.replace("80   168      256", "80   255      512")
        (self.root / "13.0/s.txt").write_text(text)
        self.write((self.k, 512, 0, 1, 80), (self.plain, 64, 0, 1, 80))
        self.assertIn("k<1, 2> needs 255 registers of 512 threads", self.run_tool("update")[1])

    def test_a_kernel_that_no_test_launches(self):
        self.write((self.plain, 64, 0, 1, 80))
        status, said = self.run_tool("update")
        self.assertEqual(status, 1)
        self.assertIn("k<1, 2> is compiled, and no test launches it", said)

    def test_no_record(self):
        (self.root / "record").write_text("")
        with self.assertRaises(compiled.Unreadable):
            self.run_tool("check")
        self.write((self.k + 1, 64, 0, 1, 80))
        with self.assertRaises(compiled.Unreadable):
            self.run_tool("check")


class Rules(unittest.TestCase):
    def test_each_rule(self):
        self.assertEqual(budgets.broken_rules(kernel(instructions={"LDG.128": 4, "RED.E.ADD.STRONG.GPU": 1})),
                         [])
        for broken, text in (
            (kernel(threads=0), "__launch_bounds__"),
            (kernel(spill=4), "4 bytes of spills"),
            (kernel(stack=8), " 8 of stack"),
            (kernel(shared=512), "512 bytes of static"),
            (kernel(instructions={"LDL.64": 2}), "LDL.64=2"),
            (kernel(instructions={"STL.128": 1}), "STL.128=1"),
            (kernel(instructions={"ATOMG.E.ADD.BF16x2_V2.RN": 1}), "no fixed order"),
            (kernel(instructions={"RED.E.ADD.F32.FTZ.RN.STRONG.GPU": 3}), "no fixed order"),
        ):
            (problem,) = budgets.broken_rules(broken)
            self.assertIn(text, problem)

    def test_no_checked_in_row_uses_local_or_static_memory(self):
        """An update writes tables also where a rule is broken."""
        rows = [row for file in (tables.TABLES / "13.0").glob("*.txt")
                for row in tables.read_table(file.read_text())]
        self.assertTrue(rows)
        self.assertEqual([row for row in rows if row[4:] != (0, 0, 0)], [])

    def test_each_target_alone_has_what_is_promised_for_it(self):
        rows = [row for file in (budgets.TABLES / "13.0").glob("*.txt")
                for row in budgets.read_table(file.read_text())]
        for target in sorted({row[1] for row in rows}):
            names = [row[0] for row in rows if row[1] == target]
            for promise in budgets.read_promises((budgets.TABLES / "promises.txt").read_text()):
                if any(fnmatch.fnmatchcase(target, glob) for glob in promise.targets):
                    self.assertTrue(fnmatch.filter(names, promise.kernels), (target, promise.number))

    def test_promises(self):
        promises = budgets.read_promises(
            "# text\n\nk<*> 8?,90a HMMA*|QMMA* LDG.128 !LDG.32 # why\nother 80 HMMA*\n")
        good = kernel(instructions={"QMMA.16832.F32.E4M3.E4M3": 1, "LDG.128": 1})
        problems = budgets.broken_promises([good], promises, ["80"])
        self.assertEqual(problems, ["promises.txt:4: no kernel is called other"])
        bad = kernel(instructions={"LDG.32": 7})
        problems = budgets.broken_promises([bad],
                                           budgets.read_promises("k<1> 80 HMMA*|QMMA* LDG.128 !LDG.32"),
                                           ["80"])
        self.assertEqual(
            problems,
            [
                "s.cu k<1> sm_80: has no HMMA* or QMMA* (promises.txt:1)",
                "s.cu k<1> sm_80: has no LDG.128 (promises.txt:1)",
                "s.cu k<1> sm_80: has LDG.32=7, promised is !LDG.32 (promises.txt:1)",
            ],
        )
        elsewhere = kernel(target="120f")
        self.assertEqual(budgets.broken_promises([elsewhere], budgets.read_promises("k* * !STL*\nk 80 HMMA*"),
                                                 ["120f"]), [])
        problems = budgets.broken_promises([elsewhere], budgets.read_promises("k<1> 80 HMMA*"), ["120f"])
        self.assertEqual(problems, ["s.cu k<1> sm_120f: promises.txt says nothing of it"])
        with self.assertRaises(compiled.Unreadable):
            budgets.read_promises("k 80")

    def test_a_table_has_one_line_a_kernel_and_target_in_natural_order(self):
        loads = {"LDG.128": 2, "LDG.32": 1}
        rows = [
            kernel(name="k<128>", symbol="a"),
            kernel(name="k<64>", symbol="b", target="90a", instructions=loads),
            kernel(name="k<64>", symbol="b", registers=168, instructions=loads),
            kernel(source="other.cu", name="k<64>", symbol="b"),
        ]
        text = budgets.table(rows, "s.cu", "13.0.88", ["80", "90a"])
        self.assertEqual(budgets.table_compiler(text), "13.0.88")
        self.assertEqual(
            text.splitlines()[2:],
            [
                "kernel  target  regs  threads  stack  spills  static  instructions",
                "k<64>       80   168      128      0       0       0  LDG.32=1 LDG.128=2",
                "k<64>      90a    32      128      0       0       0  LDG.32=1 LDG.128=2",
                "k<128>      80    32      128      0       0       0",
            ],
        )
        self.assertEqual(
            budgets.read_table(text),
            [("k<64>", "80", 168, 128, 0, 0, 0), ("k<64>", "90a", 32, 128, 0, 0, 0),
             ("k<128>", "80", 32, 128, 0, 0, 0)],
        )
        with self.assertRaises(compiled.Unreadable):
            budgets.check_names([kernel(symbol="a"), kernel(symbol="b")])


class WholeRun(unittest.TestCase):
    """budgets.run over a folder that looks like a build, with a cuobjdump that prints files."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        for folder in ("sources", "tables/13.0", "build/cuda-objects", "home/bin"):
            (self.root / folder).mkdir(parents=True)
        self.objects = self.root / "build/cuda-objects"
        (self.root / "sources/sample.cu").touch()
        self.describe("13.0", "80,100f", "80,100f")
        (self.objects / "sample.o").touch()
        self.careless(False)
        self.program("ptxas", "echo 'Cuda compilation tools, release 13.0, V13.0.88'")
        self.program("cuobjdump", f"""
            if [ "$1" = --extract-elf ]; then cp {self.objects}/*.cubin .; else cat "$2.${{1#--}}"; fi""")
        for target in ("80", "100"):
            cubin = make_cubin({PRODUCT: (32, 4, 1), CARELESS: (128, 1, 1)})
            (self.objects / f"sample.1.sm_{target}.cubin").write_bytes(cubin)
        (self.objects / "sample.o.list-elf").write_text(
            "ELF file    1: sample.1.sm_80.cubin\nELF file    2: sample.2.sm_100.cubin\n"
        )
        (self.objects / "sample.o.list-ptx").write_text("")
        (self.root / "tables/promises.txt").write_text("product_kernel* * HMMA*BF16 LDSM*\n")
        (self.root / "tables/hot.txt").write_text("")
        (self.root / "tables/launches.txt").write_text("")
        self.said = []

    def describe(self, release, targets, own):
        (self.objects / "build.txt").write_text(
            f"release {release}\nhome {self.root}/home\ntargets {targets}\nsource sample {own}\n"
        )

    def careless(self, there):
        """Whether the build has the kernel that breaks rules."""
        def keep(text, start):
            parts = text.split(start)
            return start.join(p for p in parts if SPILLING not in p and
                              (there or CARELESS not in p.splitlines()[0]))
        report = keep(ptxas(), "ptxas info    : Compiling")
        code = (SAMPLES / "cuda-13.0.sass.txt").read_text().split("Fatbin elf code:\narch = sm_86")[0]
        code = code.split("\tcode for sm_86")[0]
        if not there:
            kept, skipping = [], False
            for line in code.splitlines(True):
                if "Function :" in line or "code for" in line:
                    skipping = CARELESS in line
                if not skipping:
                    kept.append(line)
            code = "".join(kept)
        (self.objects / "sample.ptxas.txt").write_text(report)
        (self.objects / "sample.o.dump-sass").write_text(code)

    def program(self, name, script):
        path = self.root / "home/bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)

    def run_tool(self, command):
        self.said = []
        folders = (self.root / folder for folder in ("build", "sources", "tables"))
        status = budgets.run(command, *folders, self.said.append)
        return status, "\n".join(self.said)

    def test_update_then_check_then_a_change(self):
        status, said = self.run_tool("check")
        self.assertEqual(status, 1)
        self.assertIn("make kernels-update", said)
        self.assertEqual(self.run_tool("update")[0], 0)
        self.assertEqual(self.run_tool("check"), (0, "1 kernels, 2 with their targets (80 100f): ok"))
        report = self.objects / "sample.ptxas.txt"
        report.write_text(report.read_text().replace("Used 14 registers", "Used 40 registers"))
        status, said = self.run_tool("check")
        self.assertEqual(status, 1)
        self.assertRegex(
            said,
            r"(?m)^-product_kernel<\(Operand\)1, 64>      80    14      128      0       0       0  HMMA")
        self.assertRegex(
            said,
            r"(?m)^\+product_kernel<\(Operand\)1, 64>      80    40      128      0       0       0  HMMA")
        self.assertIn("13.0/sample.txt (checked in)", said)
        self.assertNotRegex(said, r"(?m)^[-+].* 100f ")

    def make_hot(self):
        """The sample's kernel is hot; its table on sm_80 after an update."""
        (self.root / "tables/hot.txt").write_text("# text\nproduct_kernel* 80 3 1 L0 64 # why\n")
        (self.root / "tables/launches.txt").write_text(
            tables.LAUNCHES_HEADER + "  128  1  product_kernel<(Operand)1, 64>  sm_80=40000 sm_90=0\n")
        self.assertEqual(self.run_tool("update")[0], 0)
        return self.root / "tables/13.0/hot/80.txt"

    def edit(self, name, before, after):
        path = self.objects / name
        text = path.read_text()
        self.assertIn(before, text)
        path.write_text(text.replace(before, after, 1))

    def test_a_hot_kernel_is_held_to_its_numbers(self):
        table = self.make_hot()
        (row,) = hot.read_rows(table.read_text(), "80")
        self.assertEqual((row.threads, row.shared, row.registers, row.ctas, row.by, row.barriers, row.loop),
                         (128, 40000, 14, 4, "shared", 1, 0))
        self.assertEqual(self.run_tool("check")[0], 0)
        # hot.txt has no limit for 100f.
        (elsewhere,) = hot.read_rows((table.parent / "100f.txt").read_text(), "100f")
        self.assertEqual((elsewhere.registers, elsewhere.shared, elsewhere.ctas), (16, 40000, 5))
        self.edit("sample.ptxas.txt", "used 1 barriers, 368", "used 0 barriers, 368")
        status, said = self.run_tool("check")
        self.assertEqual(status, 1)
        self.assertRegex(said, r"(?m)^-    128   40000   14    4 shared           1 ")
        self.assertRegex(said, r"(?m)^\+    128   40000   14    4 shared           0 ")
        self.assertEqual(self.run_tool("update")[0], 0)
        self.assertEqual(self.run_tool("check")[0], 0)
        table.unlink()
        self.assertEqual(self.run_tool("check")[0], 0)
        self.edit("sample.ptxas.txt", "16 registers, used 1 barriers", "16 registers, used 2 barriers")
        self.assertEqual(self.run_tool("check")[0], 1)
        self.assertEqual(self.run_tool("update")[0], 0)

    def test_an_update_does_not_lift_the_limits_of_a_hot_kernel(self):
        self.make_hot()
        code = (self.objects / "sample.o.dump-sass").read_text()
        hmma = next(line for line in code.splitlines() if "HMMA" in line)
        address = hmma[hmma.index("/*") + 2:hmma.index("*/")]
        loop = f"/*{int(address, 16) + 12 * 1024:x}*/ @P0 BRA 0x{address} ;"
        for name, before, after, problem in (
            ("sample.ptxas.txt", "Used 14 registers", "Used 255 registers",
             "2 CTAs fit an SM, limited by registers; at least 3 are to"),
            ("sample.ptxas.txt", "used 1 barriers, 368", "used 2 barriers, 368",
             "uses 2 hardware barriers, at most 1"),
            ("sample.o.dump-sass", hmma, f"{hmma}\n/*10000*/ NOP ;",
             "has 65552 bytes of code, at most 65536"),
            ("sample.o.dump-sass", hmma, f"{hmma}\n{loop}", "its hot loop has 12304 bytes, the L0 "),
        ):
            good = (self.objects / name).read_text()
            self.edit(name, before, after)
            for command in ("check", "update"):
                status, said = self.run_tool(command)
                self.assertEqual(status, 1, problem)
                self.assertIn(f"product_kernel<(Operand)1, 64> sm_80: {problem}", said)
                self.assertIn("FAILED", said)
            (self.objects / name).write_text(good)
            self.run_tool("update")

    def test_a_hot_kernel_that_is_gone_or_never_launched(self):
        self.make_hot()
        (self.root / "tables/hot.txt").write_text("product_kernel* 80 3 1 L0 64\nother* 80 1 1 L0 64\n")
        self.assertIn("hot.txt:2: sm_80 has no kernel called other*", self.run_tool("check")[1])
        (self.root / "tables/launches.txt").write_text("")
        status, said = self.run_tool("update")
        self.assertEqual(status, 1)
        self.assertIn("launches.txt has no launch of product_kernel<(Operand)1, 64>", said)

    def test_another_compilers_hot_kernels_are_not_compared(self):
        table = self.make_hot()
        before = table.read_text()
        self.program("ptxas", "echo 'Cuda compilation tools, release 13.0, V13.0.99'")
        self.edit("sample.ptxas.txt", "Used 14 registers", "Used 255 registers")
        for command in ("check", "update"):
            self.assertEqual(self.run_tool(command)[0], 0)
        self.assertEqual(table.read_text(), before)

    def test_a_build_for_a_part_of_the_targets_writes_the_hot_tables_of_these(self):
        table = self.make_hot()
        self.describe("13.0", "80", "80")
        (self.objects / "sample.o.list-elf").write_text("ELF file    1: sample.1.sm_80.cubin\n")
        before = table.read_text()
        table.unlink()
        self.assertIn("wrote hot/80.txt", self.run_tool("update")[1])
        self.assertEqual(table.read_text(), before)

    def test_a_build_for_a_part_of_the_targets(self):
        self.run_tool("update")
        table = self.root / "tables/13.0/sample.txt"
        before = table.read_text()
        self.describe("13.0", "80", "80")
        listing = self.objects / "sample.o.list-elf"
        listing.write_text("ELF file    1: sample.1.sm_80.cubin\n")
        self.assertEqual(self.run_tool("check"), (0, "1 kernels, 1 with their targets (80): ok"))
        report = self.objects / "sample.ptxas.txt"
        report.write_text(report.read_text().replace("Used 14 registers", "Used 40 registers"))
        for command, status in (("check", 1), ("update", 0)):
            got, said = self.run_tool(command)
            self.assertEqual(got, status)
            self.assertIn("+product_kernel<(Operand)1, 64>  80  40  128  0  0  0  HMMA", said)
        self.assertIn("nothing was written", said)
        self.assertEqual(table.read_text(), before)

    def test_targets_that_a_source_is_not_for(self):
        self.describe("13.0", "80,100f", "80")
        self.assertIn("has code for sm_100, which is no target", self.run_tool("check")[1])
        self.describe("13.0", "80,100f", "")
        (self.objects / "sample.o.list-elf").write_text("ELF file    1: sample.1.sm_80.cubin\n")
        self.assertIn("0 kernels, 0 with", self.run_tool("update")[1])

    def test_a_table_of_no_source(self):
        self.run_tool("update")
        other = self.root / "tables/13.0/gone.txt"
        other.touch()
        status, said = self.run_tool("check")
        self.assertEqual(status, 1)
        self.assertIn("13.0/gone.txt is of no source", said)
        self.run_tool("update")
        self.assertFalse(other.exists())

    def test_broken_rules_fail_even_when_the_tables_agree(self):
        self.careless(True)
        self.assertEqual(self.run_tool("update")[0], 1)
        status, said = self.run_tool("check")
        self.assertEqual(status, 1)
        self.assertIn("sample.cu careless_kernel sm_80: has 1024 bytes of static shared memory", said)
        self.assertIn("adds floats in no fixed order", said)

    def test_a_broken_promise(self):
        (self.root / "tables/promises.txt").write_text("product_kernel* * HGMMA*\n")
        status, said = self.run_tool("update")
        self.assertEqual(status, 1)
        self.assertIn("sample.cu product_kernel<(Operand)1, 64> sm_100f: has no HGMMA*", said)

    def test_products_in_series_and_registers_that_stay(self):
        report = self.objects / "sample.ptxas.txt"
        self.run_tool("update")
        for loss in ("(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
                     "insufficient register resources for the wgmma pipeline in the function 'k'",
                     "(C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register "
                     "requirements"):
            good = report.read_text()
            for text in (f"ptxas info    : {loss}\n{good}", f"{good}ptxas warning : {loss}\n"):
                report.write_text(text)
                status, said = self.run_tool("check")
                self.assertEqual(status, 1)
                self.assertIn(f"sample.cu is slower than it says: ptxas {loss}", said)
            report.write_text(good)
        self.assertEqual(self.run_tool("check")[0], 0)

    def test_missing_targets_sources_and_ptx(self):
        self.run_tool("update")
        (self.objects / "sample.o.list-elf").write_text("ELF file    1: sample.1.sm_80.cubin\n")
        (self.objects / "sample.o.list-ptx").write_text("PTX file    1: sample.1.sm_80.ptx\n")
        (self.root / "sources/new.cu").touch()
        status, said = self.run_tool("check")
        self.assertEqual(status, 1)
        for text in ("sample.o has no code for sm_100f", "holds PTX", "new.cu was not compiled"):
            self.assertIn(text, said)

    def test_another_compiler_checks_rules_only_and_writes_nothing(self):
        self.run_tool("update")
        before = (self.root / "tables/13.0/sample.txt").read_text()
        self.program("ptxas", "echo 'Cuda compilation tools, release 12.4, V12.4.131'")
        report = self.objects / "sample.ptxas.txt"
        report.write_text(report.read_text().replace("Used 14 registers", "Used 40 registers"))
        for command in ("check", "update"):
            status, said = self.run_tool(command)
            self.assertEqual(status, 0, said)
            self.assertIn("only rules and promises", said)
        self.assertEqual((self.root / "tables/13.0/sample.txt").read_text(), before)
        self.describe("12.4", "80,100f", "80,100f")
        status, said = self.run_tool("update")
        self.assertIn("of CUDA 12.4 do not exist", said)
        report.write_text(report.read_text().replace("0 bytes spill stores", "8 bytes spill stores"))
        self.assertEqual(self.run_tool("check")[0], 1)

    def test_no_build(self):
        (self.objects / "build.txt").unlink()
        with self.assertRaisesRegex(compiled.Unreadable, "make kernels"):
            self.run_tool("check")

    def test_code_and_report_must_name_the_same_kernels(self):
        code = self.objects / "sample.o.dump-sass"
        code.write_text(code.read_text().replace(PRODUCT, "_Z5otherv"))
        with self.assertRaises(compiled.Unreadable):
            self.run_tool("check")


class CostModel(unittest.TestCase):
    """The sizes of code that the cost model charges for are the hot kernels' own."""

    CODE = HERE.parent.parent / "kernels/cuda/gemm_sm90_code.h"
    NORMS = HERE.parent.parent / "kernels/cuda/gemm_sm90_norm_choose.cc"
    HOT = HERE.parent.parent / "kernels/budgets/13.0/hot/90a.txt"
    TILES = {
        (64, 128): "Pingpong64x128",
        (128, 128): "Pingpong128x128Pair",
        (128, 192): "Pingpong128x192Pair",
        (128, 256): "Cooperative128x256Pair",
    }

    def off(self, text):
        """What is off by more than a twentieth, or has no kernel, or is of none."""
        rows = {row.kernel: row.code for row in hot.read_rows(self.HOT.read_text(), "90a")}
        seen, wrong = set(), []
        for fp8, m, n, sizes in re.findall(r"\{(true|false), (\d+), (\d+), \{([^}]*)\}\}", text):
            operand = 2 if fp8 == "true" else 0
            for form, size in enumerate(map(int, sizes.split(","))):
                name = (f"gemm_sm90_kernel<Sm90Tile<Sm90Class<(Operand){operand}>, "
                        f"Sm90{self.TILES[int(m), int(n)]}>, (Sm90Form){form}>")
                seen.add(name)
                if abs(size - rows.get(name, 0)) > rows.get(name, 0) / 20:
                    wrong.append(f"{name}: {size} bytes, the table has {rows.get(name, 0)}")
        return wrong + sorted(name for name in set(rows) - seen if name.startswith("gemm_sm90_kernel<"))

    def test_the_tables_sizes(self):
        self.assertEqual(self.off(self.CODE.read_text()), [])

    def off_norms(self, text):
        """The same of linears that normalise their rows."""
        rows = {row.kernel: row.code for row in hot.read_rows(self.HOT.read_text(), "90a")}
        sizes = {f"gemm_sm90_norm_kernel<Sm90NormTile<Sm90Class<(Operand)0>, {shape}>>": int(size)
                 for shape, size in re.findall(r'line<(\w+)>\("[^"]*", (\d+)\)', text)}
        wrong = [name for name in sizes if abs(sizes[name] - rows.get(name, 0)) > rows.get(name, 0) / 20]
        others = set(rows) - set(sizes)
        return wrong + sorted(name for name in others if name.startswith("gemm_sm90_norm_kernel<"))

    def test_the_sizes_of_norms(self):
        text = self.NORMS.read_text()
        self.assertEqual(self.off_norms(text), [])
        self.assertEqual(len(self.off_norms(text.replace("96640", "90640"))), 1)
        self.assertEqual(len(self.off_norms(re.sub(r"    line<Sm90Norm64x192>.*\n", "", text))), 1)

    def test_another_size_is_noticed(self):
        text = self.CODE.read_text()
        self.assertEqual(len(self.off(text.replace("67712", "72000"))), 1)
        self.assertEqual(len(self.off(text.replace("{37120, 33664", "{0, 33664"))), 1)
        self.assertEqual(len(self.off(re.sub(r"    \{true, 128, 256.*\n", "", text))), 7)


class Toolkit(unittest.TestCase):
    """cuda.sh with toolkits that are scripts."""

    def toolkit(self, folder, version, tools=("ptxas", "cuobjdump", "nvdisasm")):
        (folder / "bin").mkdir(parents=True)
        for tool in ("nvcc", *tools):
            path = folder / "bin" / tool
            path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.1'\n")
            path.chmod(0o755)

    def choose(self, given, local):
        environment = {**os.environ, "CUDA_HOME": str(given), "SIE_LOCAL_CUDA": str(local),
                       "SIE_CUDA_ONLY_HOST": "1"}
        script = HERE.parent / "setup" / "cuda.sh"
        return subprocess.run([script], env=environment, capture_output=True, text=True)

    def test_the_host_s_own_where_it_is_new_enough(self):
        with tempfile.TemporaryDirectory() as holder:
            root = pathlib.Path(holder)
            self.toolkit(root / "old", "11.8")
            self.toolkit(root / "good", "12.4")
            self.toolkit(root / "new", "13.10")
            self.toolkit(root / "part", "13.0", tools=("ptxas",))
            (root / "broken/bin").mkdir(parents=True)
            (root / "broken/bin/nvcc").write_text("")
            for given, local, chosen in (
                ("good", "new", "good"),
                ("old", "new", "new"),
                ("part", "good", "good"),
                ("broken", "good", "good"),
                ("none", "good", "good"),
                ("old", "none", None),
            ):
                run = self.choose(root / given, root / local)
                self.assertEqual(run.stdout.strip(), str(root / chosen) if chosen else "", run.stderr)
                self.assertEqual(run.returncode, 0 if chosen else 1)
            self.assertIn("11.8", run.stderr)

    def test_an_unknown_toolkit(self):
        run = subprocess.run([HERE.parent / "setup" / "cuda.sh", "11.8"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("no toolkit '11.8'", run.stderr)


if __name__ == "__main__":
    unittest.main()
