"""What flaky.py counts of each runner's report, which tests it leaves out, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from pathlib import Path
from unittest import mock

import flaky

PATIENCE = 600  # seconds that an end may take on a busy machine

# As a test program prints it under -test.v=test2json: a parallel part, a failure, a skip, a part that fails.
MARK = "\x16"
PRINTED = f"""{MARK}=== RUN   TestParts
{MARK}=== RUN   TestParts/a
{MARK}=== PAUSE TestParts/a
{MARK}=== NAME  TestParts
{MARK}=== CONT  TestParts/a
{MARK}--- PASS: TestParts/a (2.50s)
{MARK}--- PASS: TestParts (0.10s)
{MARK}=== NAME
{MARK}=== RUN   TestRed
    red_test.go:7: 3, want 4
{MARK}--- FAIL: TestRed (0.01s)
{MARK}=== NAME
{MARK}=== RUN   TestSkipped
{MARK}--- SKIP: TestSkipped (0.00s)
{MARK}=== NAME
{MARK}=== RUN   TestPart
{MARK}=== RUN   TestPart/red
    red_test.go:9: part
{MARK}--- FAIL: TestPart/red (0.00s)
{MARK}=== NAME  TestPart
{MARK}--- FAIL: TestPart (0.00s)
{MARK}=== NAME
{MARK}FAIL
"""
JUNIT = """<testsuite>
<testcase name="green" status="run" time="0.5"/>
<testcase name="red" status="fail" time="0.1"><failure message=""/>
<system-out>its words</system-out></testcase>
<testcase name="gone" status="notrun" time="0"><skipped message="no such program"/></testcase>
<testcase name="off" status="disabled" time="0"/>
</testsuite>"""


def asked(**given):
    return types.SimpleNamespace(**{"times": 100, "quick": 0, "add": False, "only": "", "jobs": 2} | given)


class Counts(unittest.TestCase):
    def setUp(self):
        self.tally = flaky.Tally()

    def test_go_tests_are_counted_by_their_own_names(self):
        flaky.Go().judge(self.tally, "batch", 1, PRINTED)
        self.assertEqual(self.tally.ran, dict.fromkeys(
            ("go batch TestParts", "go batch TestRed", "go batch TestPart"), 1))
        self.assertEqual(self.tally.failed, {"go batch TestRed": 1, "go batch TestPart": 1})
        self.assertIn("3, want 4", self.tally.said["go batch TestRed"])
        self.assertIn("red_test.go:9", self.tally.said["go batch TestPart"])

    def test_a_go_test_is_as_slow_as_its_parallel_parts(self):
        flaky.Go().judge(self.tally, "batch", 1, PRINTED)
        self.assertEqual(self.tally.seconds["go batch TestParts"], 2.5)

    def test_a_program_that_ends_without_a_red_test_is_red_itself(self):
        green = PRINTED[:PRINTED.index(f"{MARK}=== RUN   TestRed")]
        flaky.Go(race=True).judge(self.tally, "batch", 2, green + "WARNING: DATA RACE\n")
        self.assertEqual(self.tally.failed, {"race batch": 1})
        self.assertIn("DATA RACE", self.tally.said["race batch"])

    def test_a_report_that_is_skipped_in_part(self):
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            report.write_text(JUNIT)
            flaky.cases(self.tally, report, lambda case: f"build {case.get('name')}", 8, "")
            self.assertFalse(report.exists(), "the next run would read it again")
        self.assertEqual(self.tally.ran, {"build green": 1, "build red": 1, "build off": 1})
        self.assertEqual(self.tally.failed, {"build red": 1, "build off": 1}, "what cannot run is not green")
        self.assertEqual(self.tally.said["build red"], "its words")
        self.assertEqual(self.tally.seconds, {"build green": 0.5})

    def test_a_runner_without_a_report_is_one_test(self):
        for code, failed in ((0, 0), (2, 1)):
            tally = flaky.Tally()
            flaky.cases(tally, Path("/nowhere/report.xml"), lambda case: "build ctest", code, "no folder")
            self.assertEqual((tally.ran["build ctest"], tally.failed["build ctest"]), (1, failed))

    def test_tests_in_python_find_the_modules_of_their_folder(self):
        for part, most in (flaky.python, 1), (flaky.tools, 10):
            with mock.patch.object(flaky, "run", return_value=(0, "")) as ran:
                part(self.tally, 0, asked())
            self.assertLessEqual(1, ran.call_count)
            self.assertLessEqual(ran.call_count, most)
            for call in ran.call_args_list:
                files = [Path(word) for word in call.args[0] if word.endswith(".py")]
                self.assertTrue(files)
                self.assertEqual({str(file.parent) for file in files}, {call.kwargs["PYTHONPATH"]})

    def test_what_fails_first_is_what_is_shown(self):
        for said in ("first", "second"):
            self.tally.note("go batch TestRed", False, said)
        self.assertEqual(self.tally.said["go batch TestRed"], "first")

    def test_counts_are_the_same_after_they_were_saved(self):
        flaky.Go().judge(self.tally, "batch", 1, PRINTED)
        self.tally.note("go batch TestParts", True, "", 0.1)
        with tempfile.TemporaryDirectory() as folder:
            self.tally.save(Path(folder) / "flaky.json")
            again = flaky.Tally()
            again.load(Path(folder) / "flaky.json")
        self.assertEqual(vars(again), vars(self.tally))


class LeftOut(unittest.TestCase):
    def setUp(self):
        self.tally = flaky.Tally()
        for _ in range(3):
            self.tally.note("go batch TestOften", True, "", 0.1)
        self.tally.note("go batch TestSlow", True, "", 9)
        self.tally.note("go batcher TestOther", True, "", 9)

    def left_out(self, **given):
        return self.tally.done(asked(**given), "go", "go batch ")

    def test_nothing_unless_it_is_asked_for(self):
        self.assertEqual(self.left_out(times=3), [])

    def test_slow_tests(self):
        self.assertEqual(self.left_out(quick=1), ["TestSlow"])
        self.assertEqual(self.left_out(quick=9), [], "as long as the limit is quick")

    def test_a_test_that_was_slow_once_beside_others_is_run_again(self):
        self.tally.note("go batch TestOften", True, "", 9)
        self.assertEqual(self.left_out(quick=1), ["TestSlow"])
        self.tally.note("go batch TestSlow", True, "", 0.1)
        self.assertEqual(self.left_out(quick=1), [])
        self.assertEqual(self.tally.seconds["go batch TestSlow"], 9, "the report tells the longest")

    def test_tests_that_have_their_runs(self):
        self.assertEqual(self.left_out(times=3, add=True), ["TestOften"])
        self.assertEqual(self.left_out(times=4, add=True), [])

    def test_a_go_program_skips_them_and_none_is_started_without_a_test(self):
        go, commands = flaky.Go(), []
        go.programs = {"batch": Path("/build/batch")}
        with mock.patch.object(flaky, "run", lambda command, **_: commands.append(command) or (0, "")):
            go.package(self.tally, "batch", 1, asked(quick=1, only="Test"))
            self.assertIn("-test.skip=^(TestSlow)$", commands[0])
            self.assertIn("-test.cpu=2", commands[0])
            self.assertIn("-test.shuffle=on", commands[0])
            go.package(self.tally, "batch", 1, asked(quick=1, add=True, times=3))
        self.assertEqual(len(commands), 1)


class Runs(unittest.TestCase):
    def run_with(self, part, *given, twice=False):
        """Runs flaky.py with this part. Returns its last exit status, its report and its counts."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "kept/flaky.md"
            command = ["flaky.py", "--part", "go", "--busy", "0", "--report", str(report), *given]
            codes = []
            for _ in range(2 if twice else 1):
                with (mock.patch.dict(flaky.PARTS, go=part), mock.patch.object(sys, "argv", command),
                      mock.patch.object(flaky, "BUILT", Path(folder) / "built"), mock.patch("builtins.print"),
                      self.assertRaises(SystemExit) as ended):
                    flaky.main()
                codes.append(ended.exception.code)
            return codes[-1], report.read_text(), json.loads(report.with_suffix(".json").read_text())

    def test_green_as_often_as_asked(self):
        code, report, counts = self.run_with(lambda tally, n, args: tally.note("go a TestA", True, ""),
                                             "--times", "7")
        self.assertEqual((code, counts["ran"]), (0, {"go a TestA": 7}))
        self.assertIn("1 tests, 7 runs, 0 tests failed", report)
        self.assertIn(" 10: 0 tests, 5: 1 tests,", report)
        self.assertNotIn("| test |", report)

    def test_red_once(self):
        code, report, _ = self.run_with(lambda tally, n, args: tally.note("go a TestA", n != 4, "said"),
                                        "--times", "7")
        self.assertEqual(code, 1)
        self.assertRegex(report, re.escape("| go a TestA | 1 | 7 |"))
        self.assertIn("## go a TestA\n\n```\nsaid\n```", report)

    def test_nothing_ran(self):
        self.assertEqual(self.run_with(lambda *_: None, "--times", "1")[0], 1)

    def test_counts_are_gone_on_with(self):
        for given, ran in (("--add",), 6), ((), 3):
            _, _, counts = self.run_with(lambda tally, n, args: tally.note("go a TestA", True, ""),
                                         "--times", "3", *given, twice=True)
            self.assertEqual(counts["ran"], {"go a TestA": ran})

    def test_groups_that_ran_least_come_first(self):
        tally = flaky.Tally()
        for name, runs in (("go a TestA", 3), ("go a TestB", 1), ("go b TestC", 2), ("build csrc_0", 4),
                           ("python tools/t.py::test_a", 7), ("python tools/t.py::C::test_b", 9)):
            for n in range(runs):
                tally.note(name, True, "", n / 2)
        self.assertEqual(flaky.by_group(tally).splitlines()[2:], [
            "| go a | 2 | 1 | 3 | 3 | 1.0 |", "| go b | 1 | 2 | 2 | 2 | 0.5 |",
            "| build | 1 | 4 | 4 | 4 | 1.5 |", "| python tools/t.py | 2 | 7 | 9 | 9 | 4.0 |"])

    def test_runs_have_the_turns_one_after_another(self):
        def part(tally, n, args):
            tally.note("go a TestA", True, "")
            turns.append(os.environ["SIE_TEST_TURN"])

        for given, want in (("--add",), "012345"), ((), "012012"):
            turns = []
            with mock.patch.dict(os.environ):
                self.run_with(part, "--times", "3", *given, twice=True)
            self.assertEqual("".join(turns), want)

    def test_an_end_ends_what_commands_have_started(self):
        with tempfile.TemporaryDirectory() as folder:
            started, report = Path(folder) / "started", Path(folder) / "flaky.md"
            program = f"""
import signal
import subprocess
import time
import sys
sys.path.insert(0, {str(Path(flaky.__file__).parent)!r})
import flaky
def part(*_):
    flaky.run(["bash", "-c", "sleep 9999 & echo $! > {folder}/pid; mv {folder}/pid {started}; wait"])
flaky.PARTS["go"], flaky.BUILT = part, flaky.Path({folder!r})
sys.argv = ["flaky.py", "--part", "go", "--busy", "0", "--report", {str(report)!r}]
flaky.main()
"""
            for number in signal.SIGTERM, signal.SIGINT:
                with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL) as process:
                    while not started.exists():
                        self.assertIsNone(process.poll())
                        time.sleep(0.01)
                    process.send_signal(number)
                    self.assertEqual(process.wait(PATIENCE), 1)
                state, begun = Path(f"/proc/{started.read_text().strip()}/stat"), time.monotonic()
                while state.exists() and state.read_text().split()[2] != "Z":  # killed, it ends soon
                    self.assertLess(time.monotonic() - begun, PATIENCE, "what a command started lives on")
                    time.sleep(0.01)
                started.unlink()

    def test_no_run_begins_after_the_time(self):
        clock = iter(range(0, 10**6, 50))
        with mock.patch.object(flaky.time, "monotonic", lambda: next(clock)):
            _, report, counts = self.run_with(lambda tally, n, args: tally.note("go a TestA", True, ""),
                                              "--times", "100", "--minutes", "10")
        # It looks three times at the clock for each run: 150 of 600 s.
        self.assertEqual(counts["ran"], {"go a TestA": 4})
        self.assertIn("Not run: go 96 times", report)


if __name__ == "__main__":
    unittest.main()
