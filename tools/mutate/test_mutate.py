"""Tests of the mutation check itself: what it finds in a small kernel, what it makes of it, what it
says of programs that fail, and its list of proofs. A compiler runs, the emulator does not. python3
-m unittest discover tools/mutate"""

import contextlib
import dataclasses
import io
import json
import pathlib
import re
import subprocess
import tempfile
import time
import unittest
from unittest import mock

import build
import cpp
import host
import inprocess
import instrument
import mutate
import proofs
import runner
import sample
import session
import sites

HERE = pathlib.Path(__file__).resolve().parent
SAMPLE = (HERE / "samples" / "sum.cuh").read_text()


def found(text=SAMPLE):
    return sites.find("sum.cuh", text)[0]


def changes(kind, text=SAMPLE):
    return [(m.before, m.after) for m in found(text) if m.kind == kind]


class Structure(unittest.TestCase):
    def test_template_arguments_are_no_relations(self):
        file = cpp.File("f<a, b<c>>(x < y, z >> 2);")
        angles = [t.text for t in file.tokens if t.angle]
        self.assertEqual(angles, ["<", "<", ">", ">"])

    def test_comments_strings_and_directives_hold_nothing(self):
        texts = [t.text
                 for t in cpp.File('a; // b < c\n#define X (y * 2)\n/* d */ "e < f" R"(g)" \'h\'').tokens]
        self.assertEqual(texts, ["a", ";", '"e < f"', 'R"(g)"', "'h'"])

    def test_functions_are_named_with_their_type(self):
        names = {m.function for m in found()}
        self.assertEqual(names, {"Ring", "Ring::next", "padded", "sum_kernel"})

    def test_unbalanced_text_is_refused(self):
        with self.assertRaisesRegex(ValueError, "line 2"):
            cpp.File("f();\ng(")


class Sites(unittest.TestCase):
    def test_barriers_and_waits(self):
        self.assertEqual(
            changes("barrier"),
            [(call, "(nothing)") for call in (
                "ptx::grid_dependency_wait()", "ptx::cp_async_wait<Stages - 2>()",
                "ptx::mbarrier_wait(&barrier, parity)", "ptx::fence_proxy_async()", "__syncthreads()")],
        )
        self.assertIn(("parity", "(parity) ^ 1"), changes("wait"))
        self.assertIn(("ptx::cp_async_wait<Stages - 2>()", "ptx::cp_async_wait<Stages - 2 + 1>()"),
                      changes("wait"))
        self.assertIn(("ptx::cp_async_wait<Stages - 2>()", "ptx::cp_async_wait<Stages - 3>()"),
                      changes("bound"))

    def test_bounds(self):
        bounds = changes("bound")
        self.assertIn(("row >= n", "row > n"), bounds)
        self.assertIn(("i < padded(n)", "i <= padded(n)"), bounds)
        self.assertIn(("i + 1 < Stages", "i + 2 < Stages"), bounds)
        # sum <= buffer[0] would choose the same value.
        self.assertIn(("sum < buffer[0]", "sum > buffer[0]"), bounds)
        self.assertNotIn(("sum < buffer[0]", "sum <= buffer[0]"), bounds)

    def test_masks(self):
        masks = changes("mask")
        self.assertIn(("static_cast<int>(threadIdx.x) & 31", "static_cast<int>(threadIdx.x)"), masks)
        self.assertIn(("i < padded(n)", "true"), masks)
        self.assertIn(("i != 7", "true"), masks)
        self.assertIn(("lane == 0", "lane != 0"), masks)

    def test_shuffles(self):
        self.assertEqual(changes("shuffle"), [("step", "(step) ^ 1")])

    def test_strides(self):
        strides = changes("stride")
        self.assertIn(("row * ld + i", "row * (ld + 1) + i"), strides)
        self.assertIn(("32", "(32) + 1"), strides)
        self.assertIn(("blockIdx.x * 4 + threadIdx.x / 32", "blockIdx.x * 5 + threadIdx.x / 32"), strides)

    def test_what_is_no_site(self):
        texts = " ".join(f"{m.before} {m.after}" for m in found())
        for text in ("sizeof(T)", "32 * 4", "4 * 2", "Stages * 2", "0.5f", "(x) * 2", '"'):
            self.assertNotIn(text, texts)

    def test_a_value_in_braces_is_an_operand(self):
        code = "int64_t f(int a, int64_t b) {\n  return int64_t{a} * b;\n}\n"
        self.assertEqual(changes("stride", code), [("int64_t{a} * b", "int64_t{a} * (b + 1)")])

    def test_constants_need_a_build_each(self):
        self.assertEqual({m.before for m in found() if m.fixed}, {"Stages * 128", "c + 7", "(c + 7) / 8 * 8"})

    def test_names_are_unique_and_do_not_move_with_lines(self):
        names = [m.id for m in found()]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(names, [m.id for m in found("\n\n// more\n" + SAMPLE)])


class Texts(unittest.TestCase):
    def test_one_mutant_changes_one_place_and_no_line_number(self):
        mutants, file = sites.find("sum.cuh", SAMPLE)
        for mutant in mutants:
            text = instrument.mutate(file, mutant)
            self.assertNotEqual(text, SAMPLE)
            self.assertEqual(text.count("\n"), SAMPLE.count("\n"), mutant.id)

    def test_all_in_one_text_with_its_lines(self):
        mutants, file = sites.find("sum.cuh", SAMPLE)
        switchable = [m for m in mutants if not m.fixed]
        result = instrument.instrument(file, list(enumerate(switchable)))
        self.assertEqual(result.text.count("\n"), SAMPLE.count("\n"))
        for number, mutant in enumerate(switchable):
            line, first, last = result.own[number]
            text = result.text.split("\n")[line - 1].encode()[first - 1 : last - 1].decode()
            self.assertIn("0" if mutant.after == "(nothing)" else mutant.after, text)
            self.assertIn(number, result.blame(line, first))

    def test_a_selected_mutant_acts_and_the_rest_does_not(self):
        loop = "  for (int i = 0; i < a && sum < 999; i += 2) sum = sum * 3 + i + b;\n"
        code = "int f(int a, int b) {\n  int sum = 0;\n" + loop + "  return sum;\n}\n"
        mutants, file = sites.find("f.cuh", code)
        main = "#include <cstdio>\nint main() { printf(\"%d\\n\", f(9, 5)); }\n"
        expected = {}
        with tempfile.TemporaryDirectory() as folder:

            def output(text, name):
                source = pathlib.Path(folder, name + ".cc")
                source.write_text(text + main)
                switch = [str(pathlib.Path(folder, "switch.cc"))] if "SIE_MUTANT(" in text else []
                command = ["g++", "-std=c++17", "-DSIE_MUTANT_COUNT=99", "-o", f"{folder}/{name}",
                           str(source), *switch]
                subprocess.run(command, check=True)
                return lambda **e: subprocess.check_output([f"{folder}/{name}"], env=e, text=True, timeout=10)

            pathlib.Path(folder, "switch.cc").write_text(instrument.SWITCH)
            pathlib.Path(folder, "mutant.h").write_text(instrument.HEADER)
            for mutant in mutants:
                expected[mutant.id] = output(instrument.mutate(file, mutant), "one")()
            header = instrument.HEADER.replace("#pragma once\n", "")
            all_in_one = output(header + instrument.instrument(file, list(enumerate(mutants))).text, "all")
            unchanged = output(code, "none")()
            self.assertEqual(all_in_one(), unchanged)
            for number, mutant in enumerate(mutants):
                self.assertEqual(all_in_one(SIE_MUTANT=str(number)), expected[mutant.id], mutant.id)
            self.assertGreater(sum(text != unchanged for text in expected.values()), len(mutants) / 2)
            reached = pathlib.Path(folder, "reached")
            all_in_one(SIE_MUTANTS_REACHED=str(reached))
            self.assertEqual(set(reached.read_bytes()[: len(mutants)]), {1})

    def test_a_pointer_may_be_the_condition(self):
        code = "int f(const int *p) { return p ? *p : 7; }\n"
        mutants, file = sites.find("f.cc", code)
        number = [m.id for m in mutants].index("f.cc | f | p => !(p)")
        main = "#include <cstdio>\nint main() { const int nine = 9; printf(\"%d\\n\", f(&nine)); }\n"
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "switch.cc").write_text(instrument.SWITCH)
            pathlib.Path(folder, "mutant.h").write_text(instrument.HEADER)
            for compare in (False, True):
                text = instrument.instrument(file, list(enumerate(mutants)), compare).text
                pathlib.Path(folder, "f.cc").write_text('#include "mutant.h"\n' + text + main)
                subprocess.run(["g++", "-std=c++17", "-DSIE_MUTANT_COUNT=9", "-o", f"{folder}/f",
                                f"{folder}/f.cc", f"{folder}/switch.cc"], check=True)
                for environment, want in (({}, "9\n"), ({"SIE_MUTANT": str(number)}, "7\n")):
                    output = subprocess.check_output([f"{folder}/f"], env=environment, text=True)
                    self.assertEqual(output, want)


class Host(unittest.TestCase):
    """A build of two objects of one file, and a test that includes a header of csrc."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(self.folder.name).resolve()
        files = {
            "csrc/word.h": "inline int more(int a, int b) { return a < b; }\n",
            "csrc/word.cc": '#include "word.h"\nint twice(int a) { return a * 2; }\n',
            "csrc/tests/word_test.cc": '#include "word.h"\nint main() { return more(1, 2) ? 0 : 1; }\n',
            "csrc/tests/other_test.cc": "int other() { return 0; }\n",
            "kernels/cpu/rows.h": "inline int rows(int a) { return a + 1; }\n",
            "kernels/cpu/norm.cc": '#include "rows.h"\nint norm(int a) { return rows(a) + 2; }\n',
            "kernels/tests/rows_test.cc": '#include "cpu/rows.h"\nint three() { return rows(2); }\n',
            "build/CMakeCache.txt": f"CMAKE_HOME_DIRECTORY:INTERNAL={root}\n",
        }
        commands = [("csrc_hooked", "csrc/word.cc"), ("csrc_tests", "csrc/tests/word_test.cc"),
                    ("csrc_tests", "csrc/tests/other_test.cc"), ("csrc", "csrc/word.cc"),
                    ("kernels_cpu_avx2", "kernels/cpu/norm.cc"),
                    ("kernels_cpu_avx512", "kernels/cpu/norm.cc"),
                    ("kernel_tests", "kernels/tests/rows_test.cc")]
        entries = [{"directory": str(root / "build"), "file": str(root / name),
                    "command": f"g++ -I{root}/csrc -o CMakeFiles/{target}.dir/{name}.o -c {root}/{name}"}
                   for target, name in commands]
        files["build/compile_commands.json"] = json.dumps(entries)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        self.root, self.sources = root, host.Sources(root / "build")

    def tearDown(self):
        self.folder.cleanup()

    def test_files_are_those_with_code_of_the_product(self):
        self.assertEqual(self.sources.files,
                         ["csrc/word.cc", "csrc/word.h", "kernels/cpu/norm.cc", "kernels/cpu/rows.h"])

    def test_a_file_is_compiled_for_every_instruction_set(self):
        self.assertEqual(self.sources.units_with("kernels/cpu/norm.cc"),
                         ["CMakeFiles/kernels_cpu_avx2.dir/kernels/cpu/norm.cc.o",
                          "CMakeFiles/kernels_cpu_avx512.dir/kernels/cpu/norm.cc.o"])

    def test_a_table_that_is_emulated_takes_the_place_of_one_that_the_machine_lacks(self):
        path = self.root / "build/compile_commands.json"
        entries = json.loads(path.read_text())
        command = entries[4]["command"].replace("kernels_cpu_avx2", "kernels_avx512_emulated")
        more = dict(entries[4], command=command)
        path.write_text(json.dumps([*entries, more]))
        for lacks, target in ((("avx512vl", ), "kernels_avx512_emulated"), ((), "kernels_cpu_avx512")):
            with mock.patch.object(host, "machine", return_value=((), lacks)):
                sources = host.Sources(self.root / "build")
            self.assertEqual(sources.lacks, ())
            units = [u.split("/")[1] for u in sources.units_with("kernels/cpu/norm.cc")]
            self.assertIn(f"{target}.dir", units)
            self.assertEqual("kernels_cpu_avx512.dir" in units, not lacks)

    def test_precompiled_headers_are_left_out(self):
        path = self.root / "build/compile_commands.json"
        entries = json.loads(path.read_text())
        added = " -Wall -include /b/x.dir/cmake_pch.hxx -include /r/emulated_avx512.h -o "
        entries[4]["command"] = entries[4]["command"].replace(" -o ", added)
        path.write_text(json.dumps(entries))
        unit = "CMakeFiles/kernels_cpu_avx2.dir/kernels/cpu/norm.cc.o"
        with mock.patch.object(host, "machine", return_value=((), ())):
            words = host.Sources(self.root / "build").commands[unit][1]
        self.assertEqual(words[2:6], ["-Wall", "-include", "/r/emulated_avx512.h", "-o"])

    def test_a_test_is_compiled_again_where_it_sees_a_mutated_header(self):
        hooked, test = (f"CMakeFiles/{t}" for t in ("csrc_hooked.dir/csrc/word.cc.o",
                                                    "csrc_tests.dir/csrc/tests/word_test.cc.o"))
        self.assertEqual(self.sources.units_with("csrc/word.h"), [hooked, test])
        tree = pathlib.Path("/tree")
        self.assertEqual(self.sources.source(hooked, tree), tree / "csrc/word.cc")
        self.assertEqual(self.sources.source(test, tree), self.root / "csrc/tests/word_test.cc")
        self.assertEqual(self.sources.include_folders(test, tree), [tree / "csrc"])
        self.assertIn("CMakeFiles/kernel_tests.dir/kernels/tests/rows_test.cc.o",
                      self.sources.units_with("kernels/cpu/rows.h"))

    def test_objects_have_names_of_their_own(self):
        names = {build.object_of(self.root, u) for u in self.sources.commands}
        self.assertEqual(len(names), len(self.sources.commands))


class Machines(unittest.TestCase):
    def test_flags_that_tables_need(self):
        zen4 = "processor: 0\nflags\t\t: fpu avx2 avx512f avx512vl avx512_vnni avx512_bf16\n"
        has = ("avx2", "avx512vl", "avx512_vnni", "avx512_bf16")
        self.assertEqual(host.machine(zen4), (has, ("amx_tile", )))
        self.assertEqual(host.machine("Features : fp asimd\n"), (("asimd", ), ("asimddp", )))
        self.assertEqual(host.machine("nothing"), ((), ()))

    def test_verdicts_are_of_a_kind_of_machine(self):
        sources = mock.Mock(digest=lambda file: "text")
        one = mock.Mock(kind=session.HOST, sources=sources, tests_digest="tests")
        mutant = mock.Mock(id="kernels/cpu/x.cc | f | a => b", file="kernels/cpu/x.cc")
        keys = []
        for flags in (("avx2", ), ("avx2", ), ("avx2", "avx512vl")):
            with mock.patch.object(host, "machine", return_value=(flags, ())):
                keys.append(session.Session.key(one, mutant))
        self.assertEqual(keys[0], keys[1])
        self.assertNotEqual(keys[0], keys[2])

    def test_what_survived_for_want_of_a_table_is_named(self):
        verdicts = {"a": runner.Verdict("survived", "never reached", "", "", 0.0),
                    "b": runner.Verdict("survived", "", "", "", 0.0),
                    "c": runner.Verdict("killed", "numbers", "", "", 0.0)}
        self.assertIn("1 of those that survived were never reached",
                      mutate.elsewhere(verdicts, ("amx_tile", )))
        self.assertEqual(mutate.elsewhere(verdicts, ()), "")
        self.assertEqual(mutate.elsewhere({"c": verdicts["c"]}, ("amx_tile", )), "")


class InProcess(unittest.TestCase):
    """A program with a test and a list of three entries, of which the last hangs where it is
    broken."""

    COMPARE = False
    CODE = """\
int more(int a, int b) {
  return a < b;
}
int twice(int a) {
  return a * 2;
}
int never(int a) {
  return a + 1;
}
int rounds(int n) {
  int i = 0;
  while (i != n) i += 1;
  return i;
}
"""
    MAIN = """\
#include <signal.h>
#include "tests/check.h"
int unheard() {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  return rounds(3);
}
TEST(one) { CHECK(more(1, 2), "1 is not less"); }
TEST_LIST(list) {
  for (int i = 0; i < 3; i++) {
    if (!check::in_shard(i)) continue;
    check::judged("entry", [&] { CHECK(i != 1 || twice(i) == 2, "twice 1 is %d", twice(i)); CHECK(i != 2 || unheard() == 3, "rounds"); });
  }
}
int main(int argc, char **argv) { return check::run_tests(argc, argv); }
"""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        mutants, file = sites.find("f.cc", cls.CODE)
        cls.numbers = {m.id.split(" | ", 1)[1]: n for n, m in enumerate(mutants)}
        (folder / "mutant.h").write_text(instrument.HEADER)
        (folder / "switch.cc").write_text(instrument.SWITCH)
        (folder / "main.cc").write_text(
            instrument.instrument(file, list(enumerate(mutants)), cls.COMPARE).text + cls.MAIN)
        cls.path = folder / "program"
        subprocess.run(
            ["g++", "-std=c++17", f"-DSIE_MUTANT_COUNT={len(mutants)}", "-include", str(folder / "mutant.h"),
             "-I", str(folder), "-I", str(mutate.ROOT / "kernels"), "-o", str(cls.path),
             str(folder / "main.cc"), str(folder / "switch.cc"), str(HERE / "judge.cc")], check=True)
        cls.tests = inprocess.tests_of(cls.path, "p", (), re.compile(""))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def judged(self, **how):
        times = inprocess.Times(pathlib.Path(self.folder.name, "times.json"))
        return inprocess.judge_all({"p": self.path}, self.tests, self.numbers.values(), times, **how)

    def test_lists_come_in_parts_first_parts_first(self):
        names = [t.name for t in self.tests]
        self.assertEqual(names[:3], ["p =list 0/16", "p =one", "p =list 1/16"])
        self.assertEqual(len(names), 17)

    def test_each_mutant_dies_of_a_part_that_comes_by_it(self):
        result = self.judged()
        killed = {name: result.killed[n] for name, n in self.numbers.items() if n in result.killed}
        self.assertEqual({name.split(" | ")[0] for name in killed}, {"twice", "rounds"})
        twice = killed["twice | a * 2 => a * 3"]
        self.assertEqual((twice.by, twice.test), ("numbers", "p =list 1/16"))
        self.assertIn("twice 1 is 3", twice.detail)
        self.assertEqual(killed["rounds | 1 => (1) + 1"].by, "timeout")
        # 1 < 2 and 1 <= 2 alike; nobody calls never.
        alike = self.numbers["more | a < b => a <= b"]
        self.assertIn(alike, result.live)
        self.assertEqual(alike in result.reached, not self.COMPARE)
        self.assertNotIn(self.numbers["never | a + 1 => a + 2"], result.reached)
        self.assertTrue(result.complete)

    def test_tests_that_nobody_has_timed_are_timed_together(self):
        times = inprocess.Times(pathlib.Path(self.folder.name, "measured.json"))
        inprocess.measure(self.path, "p", (), self.tests, times)
        self.assertEqual(list(times.known), ["p =one"])

    def test_tests_named_like_the_file_come_first_then_quick_ones(self):
        times = inprocess.Times(pathlib.Path(self.folder.name, "ordered.json"))
        tests = [inprocess.Test("p", ("=" + name,), "")
                 for name in ("slow", "unknown", "quick", "keep_rows", "rows_in_order")]
        times.put(tests[0], 9.0)
        times.put(tests[2], 0.1)
        times.put(tests[4], 0.2)
        names = [t.arguments[0][1:] for t in times.order(tests, {"kernels/cpu/gather_rows.cc"})]
        self.assertEqual(names, ["rows_in_order", "keep_rows", "quick", "unknown", "slow"])

    def test_a_deadline_leaves_them_undecided(self):
        result = self.judged(until=time.monotonic() - 1)
        self.assertFalse(result.complete or result.killed)

    def test_long_parts_are_left_out_and_named(self):
        result = self.judged(longest=0)
        self.assertFalse(result.killed)
        self.assertIn("p =list 1/16" if self.COMPARE else "p =one", {t.name for t in result.left_out})

    def test_without_mutants_to_judge_it_is_an_ordinary_program(self):
        self.assertEqual(subprocess.run([self.path], stdout=subprocess.DEVNULL).returncode, 0)
        broken = {"SIE_MUTANT": str(self.numbers["twice | a * 2 => a * 3"])}
        self.assertEqual(subprocess.run([self.path], env=broken, capture_output=True).returncode, 1)


class Compared(InProcess):
    """The same program, whose watched mutants are reached only where they make a difference."""

    COMPARE = True


class Comparable(unittest.TestCase):
    def test_what_may_be_computed_twice(self):
        for text in ("a < b", "p->n + 1", "x[i] != y", "std::max(a, b) - 1",
                     "static_cast<int64_t>(a) * (b + 1)", "q.size() > 1"):
            self.assertTrue(instrument._comparable(text), text)
        for text in ("i++ < b", "f(a) < b", "load<4>(p) + 1", "a += 2", "p->next() + 1", "[&] { return a; }"):
            self.assertFalse(instrument._comparable(text), text)


class Verdicts(unittest.TestCase):
    def test_what_killed_a_program(self):
        for word, script in {
            "numbers": "echo '    cases.cc:7: 1 is not 2'; exit 1",
            "deadlock": "echo 'simt: kernel k<<<>>>:'; echo '  deadlock, no thread can go on'; kill -ABRT $$",
            "emulator": "echo 'simt: kernel k<<<>>>, thread 3:'; echo '  lane 3 leaves'; kill -ABRT $$",
            "sanitizer": "echo '==1==ERROR: AddressSanitizer: heap-buffer-overflow'; exit 1",
            "crash": "kill -SEGV $$",
            "bounds": "kill -ILL $$",
            "timeout": "while :; do :; done",
        }.items():
            status, output = runner.run("/bin/sh", ("-c", script), {}, 1)
            self.assertEqual(runner.cause(status, output)[0], word)

    def test_a_program_whose_threads_all_sleep_is_ended(self):
        begin = time.monotonic()
        status, _ = runner.run("/bin/sh", ("-c", "exec sleep 1000"), {}, 60)
        self.assertIsNone(status)
        self.assertLess(time.monotonic() - begin, 600)

    def test_a_program_that_somebody_ended_runs_again(self):
        with tempfile.TemporaryDirectory() as folder:
            script = f"[ -e {folder}/came ] && exit 7; touch {folder}/came; kill -TERM $$"
            self.assertEqual(runner.run("/bin/sh", ("-c", script), {}, 5)[0], 7)
            with self.assertRaisesRegex(RuntimeError, "three times"):
                runner.run("/bin/sh", ("-c", "kill -KILL $$"), {}, 5)

    def test_tests_run_until_one_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "log")
            program = pathlib.Path(folder, "program")
            script = f'echo "$1 $SIE_MUTANT $SIE_SIMT_SEED" >>{log}\n[ "$1$SIE_SIMT_SEED" != b2 ]\n'
            program.write_text("#!/bin/sh\n" + script)
            program.chmod(0o755)
            tests = [runner.Test("p", (name,), "", seconds, frozenset())
                     for name, seconds in (("b", 2.0), ("a", 1.0))]
            verdict = runner.judge({"p": program}, tests, 7, (1, 2, 3))
            self.assertEqual((verdict.outcome, verdict.by, verdict.test), ("killed", "numbers", "p b"))
            self.assertEqual(log.read_text().split("\n")[:-1], ["a 7 1", "b 7 1", "a 7 2", "b 7 2"])
            self.assertEqual(runner.judge({"p": program}, tests[1:], 7, (1, 2)).outcome, "survived")
            self.assertEqual(runner.judge({}, [], 7).by, "never reached")


class Proofs(unittest.TestCase):
    LIST = """\
# comment
f.cuh | k | a < b => a <= b
f.cuh | k | c + 1 => c + 2 | 2
    Because nobody reads the last of them.
"""

    def test_a_proof_holds_for_the_lines_above_it(self):
        parsed = proofs.parse(self.LIST)
        self.assertEqual(list(parsed), ["f.cuh | k | a < b => a <= b", "f.cuh | k | c + 1 => c + 2 | 2"])
        self.assertEqual({p.text for p in parsed.values()}, {"Because nobody reads the last of them."})

    def test_what_is_refused(self):
        alone = "    words without any mutant at all\n"
        no_change = "f | k | a\n    some words that prove a lot\n"
        for text in ("f | k | a => b\n", alone, no_change, self.LIST * 2, "f | k | a => b\n    too short\n"):
            with self.assertRaises(proofs.Unreadable):
                proofs.parse(text)

    def test_survivors_and_stale_lines(self):
        a, b, c, d = (f"f | k | {x} => 0" for x in "abcd")
        killed, survived = (runner.Verdict(o, "numbers", "t", "", 0.0) for o in ("killed", "survived"))
        proven = proofs.parse(f"{a}\n{b}\n{d}\n    these are all alike, as said\n")
        wrong = proofs.compare(proven, {a, b, c}, {a: survived, b: killed, c: survived})
        self.assertEqual([line.split(":")[0] for line in wrong], ["stale", "stale", "survived"])
        proven = proofs.parse(f"{a}\n    this is alike, as was said\n")
        self.assertEqual(proofs.compare(proven, {a, b}, {a: survived, b: killed}), [])

    def test_the_list_reads(self):
        proofs.load(HERE / "equivalent")


class Judged(unittest.TestCase):
    """judged.txt says which files a sample draws from."""

    CODE = "int f(int a, int b) {\n  return a * b + 7;\n}\n"

    def call(self, command, kind, names, listed):
        """What the command returns and prints, and the mutants that a sample would judge, of a build
        with these files and with this judged.txt."""
        mutants = {name: sites.find(name, self.CODE)[0] for name in names}
        sources = mock.Mock(files=names, text=dict.fromkeys(names, self.CODE), mutants=mutants,
                            units_with=lambda name: [name])
        # A unit holds every file.
        prepared = ([m for name in names for m in mutants[name]], [])
        one = mock.Mock(sources=sources, kind=kind, prepare=lambda units: prepared)
        drawn, output = [], io.StringIO()

        def judged(_session, mutants):
            drawn.extend(mutants)
            return {m.id: runner.Verdict("killed", "numbers", "t", "", 0.0) for m in mutants}

        kind = dataclasses.replace(kind, sources=lambda _build: sources)
        with (mock.patch.object(mutate, kind.name.upper(), kind),
              mock.patch.object(mutate, "Session", return_value=one),
              mock.patch.object(mutate, "listed", lambda name: listed if name == "judged.txt" else set()),
              mock.patch.object(proofs, "load", return_value={}),
              mock.patch.object(sample, "judged", judged), contextlib.redirect_stdout(output)):
            result = command(mock.Mock(seed="seed", seconds=45, build=["build"]), kind, [])
        return result, output.getvalue(), drawn

    def test_a_file_that_is_not_in_the_list_is_never_drawn(self):
        for kind, files in ((session.CUDA, ["new.cuh", "old.cuh"]),
                            (session.HOST, ["csrc/new.cc", "csrc/old.cc"])):
            result, _, drawn = self.call(mutate.draw, kind, files, {"old.cuh", "csrc/old.cc"})
            self.assertEqual((result, {m.file for m in drawn}), (0, {files[1]}))
            result, said, drawn = self.call(mutate.draw, kind, files, set())
            self.assertEqual((result, drawn), (0, []))
            self.assertIn("nothing to sample", said)

    def test_a_name_that_is_no_file_is_an_error(self):
        for kind, file, gone in ((session.CUDA, "old.cuh", "gone.cuh"),
                                 (session.HOST, "csrc/old.cc", "csrc/gone.cc")):
            listed = {"old.cuh", "csrc/old.cc"}
            self.assertEqual(self.call(mutate.check, kind, [file], listed)[0], 0)
            result, said, _ = self.call(mutate.check, kind, [file], listed | {gone})
            self.assertEqual(result, 1)
            self.assertIn(f"judged.txt: there is no such file: {gone}", said)


class Samples(unittest.TestCase):
    def test_files_and_classes_take_turns(self):
        mutants = found()
        order = list(sample.spread(mutants, "seed"))
        self.assertEqual(sorted(m.id for m in order), sorted(m.id for m in mutants))
        kinds = {m.kind for m in mutants}
        self.assertEqual({m.kind for m in order[: len(kinds)]}, kinds)
        self.assertEqual(order, list(sample.spread(mutants, "seed")))
        self.assertNotEqual(order, list(sample.spread(mutants, "another")))

    def judged(self, decided, tried=True):
        """The verdicts of a sample on a machine so busy that decided(slower) mutants get one."""
        session = mock.Mock(kind=sample.CUDA, options=mock.Mock(seconds=45, longest=10))
        session.tests_for = lambda m, near: ["a test"] if tried else []
        given = []

        def alone(_session, mutants, end, longest):
            given.append((len(mutants), round(end - time.monotonic()), longest))
            return dict.fromkeys(m.id for m in mutants[: decided(longest / 10)])

        with mock.patch.object(sample, "alone", alone):
            verdicts = sample.judged(session, [mock.Mock(id=i) for i in range(40)])
        return verdicts, given, [c.args[1] for c in session.try_first_parts.call_args_list]

    def test_a_quiet_machine_judges_all_once(self):
        verdicts, given, tried = self.judged(lambda slower: 30)
        self.assertEqual((len(verdicts), given, tried), (30, [(40, 45, 10)], [1]))

    def test_a_busy_machine_judges_a_few_in_more_time(self):
        verdicts, given, tried = self.judged(lambda slower: 3 if slower > 1 else 0)
        self.assertEqual((len(verdicts), given, tried), (3, [(40, 45, 10), (8, 180, 40)], [1, 4]))

    def test_without_a_verdict_in_sixteen_times_the_time_there_is_none(self):
        verdicts, given, tried = self.judged(lambda slower: 0)
        self.assertEqual((verdicts, len(given), tried), ({}, 3, [1, 4, 16]))

    def test_tests_with_a_files_name_are_tried_first(self):
        names = ["host_rows", "gather_rows", "spans_refuses", "spans", "lstm"]
        tests = [runner.Test("kernel_tests", ("--gpu", "=" + n), "0/16", 0.0, frozenset()) for n in names]
        tests.append(runner.Test("cuda_attention_tests", ("=wide_slopes",), "0/16", 0.0, frozenset()))

        def order(*files):
            return [t.arguments[-1][1:] for t in session.by_likeness(tests, files)]

        self.assertEqual(order("spans.cuh", "lora.cu")[:2], ["spans", "spans_refuses"])
        self.assertEqual(order("attention_sm90.cuh")[0], "wide_slopes")
        self.assertEqual(order("octets.cuh"), [*names, "wide_slopes"])

    def test_a_second_try_goes_on_where_the_first_stopped(self):
        tried = []

        def one(_path, test, _limit):
            tried.append(test.arguments[-1])
            clock.now += 10
            return dataclasses.replace(test, seconds=1.0, reached=frozenset({1}))

        clock = mock.Mock(now=0.0)
        clock.monotonic = lambda: clock.now
        some = session.Session.__new__(session.Session)
        some.options = mock.Mock(seconds=60, longest=10, jobs=1, test_seconds=1)
        some.programs, some.paths, some.whole, some.first = {"gemm_tests": ()}, {"gemm_tests": "p"}, [], {}
        some.names, some.say = (lambda program: ["a", "b", "c", "lstm", "d", "e"]), (lambda text: None)
        with mock.patch.object(session, "time", clock), mock.patch.object(runner, "try_test", one):
            some.try_first_parts({"lstm.cuh"})
            self.assertEqual(tried, ["=lstm", "=a"])
            some.try_first_parts({"lstm.cuh"}, 4)
        self.assertEqual(tried, ["=lstm", "=a", "=b", "=c", "=d", "=e"])
        self.assertEqual([t.arguments[-1] for t in some.tests], tried)

    def test_without_a_test_that_comes_by_nothing_is_judged(self):
        verdicts, given, tried = self.judged(lambda slower: 9, tried=False)
        self.assertEqual((verdicts, given, tried), ({}, [], [1, 4, 16]))


if __name__ == "__main__":
    unittest.main()
