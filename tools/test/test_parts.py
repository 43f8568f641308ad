"""Parts of C tests (kernels/tests/check.h): together, once each, all of the cases."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """\
#include "tests/check.h"
int entries = 0;
TEST_LIST(list) {
  for (int i = 0; i < 10; i++) {
    if (check::in_shard(i)) printf("entry %d\\n", i), entries++;
  }
}
TEST(a) {}
TEST(b) {}
TEST(c) {}
TEST_VERDICT(verdict) { printf("entries %d\\n", entries); }
int main(int argc, char **argv) { return check::run_tests(argc, argv); }
"""


class Parts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.program = pathlib.Path(cls.folder.name, "program")
        compiler = ["g++", "-std=c++17", "-I", str(ROOT / "kernels"), "-x", "c++"]
        subprocess.run([*compiler, "-o", str(cls.program), "-"], input=PROGRAM, text=True, check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def ran(self, *arguments, **environment):
        """The cases that say ok, and the entries of the list."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("SIE_TEST_")}
        output = subprocess.run([self.program, *arguments], env={**clean, **environment}, text=True,
                                check=True, stdout=subprocess.PIPE).stdout
        lines = [line.split() for line in output.splitlines()]
        return [w[1] for w in lines if w[0] == "ok"], [int(w[1]) for w in lines if w[0] == "entry"]

    def test_without_a_part_all_is_run(self):
        self.assertEqual(self.ran(), (["list", "a", "b", "c", "verdict"], list(range(10))))

    def test_halves_share_what_is_no_list(self):
        halves = [self.ran(SIE_TEST_SHARD=f"{i}/2", SIE_TEST_OTHERS=f"{i}/2") for i in (0, 1)]
        self.assertEqual(halves[0], (["list", "a", "c", "verdict"], [0, 2, 4, 6, 8]))
        self.assertEqual(halves[1], (["list", "b", "verdict"], [1, 3, 5, 7, 9]))

    def test_a_turn_moves_the_entries_alone(self):
        turns = [self.ran(SIE_TEST_SHARD=f"{i}/5", SIE_TEST_OTHERS=f"{i}/2", SIE_TEST_TURN=str(turn))
                 for turn in range(5) for i in (0, 1)]
        halves = [["list", "a", "c", "verdict"], ["list", "b", "verdict"]]
        self.assertEqual([cases for cases, _ in turns], halves * 5)
        seen = [entry for _, entries in turns for entry in entries]
        self.assertEqual(sorted(seen), sorted(2 * list(range(10))))

    def test_halves_are_of_the_selected_cases(self):
        self.assertEqual(self.ran("=b", "=c", SIE_TEST_OTHERS="1/2")[0], ["c"])

    def test_cases_take_turns(self):
        self.assertEqual(self.ran(SIE_TEST_CASES="0/2")[0], ["list", "b", "verdict"])
        self.assertEqual(self.ran(SIE_TEST_CASES="0/3", SIE_TEST_TURN="1")[0], ["b"])


if __name__ == "__main__":
    unittest.main()
