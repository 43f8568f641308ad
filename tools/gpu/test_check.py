"""Tests of check.sh with programs that are scripts: the order of its parts, and what is left when
somebody kills it at any time; and of what judges sanitizers and sizes. python -m unittest discover
-s tools/gpu"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import fits
import triage

# Each says in $DONE, behind the result itself, what it has left in the results.
STEP = 'say() { echo "$1" >>"$DONE"; sleep "0.0$((RANDOM % 6 + 1))"; }\n'
SCRIPTS = {
    "sie_record": 'for i in 1 2 3; do echo "$i" >"$1/r$i.bin"; say "recordings/r$i.bin"; done',
    "sie_conformance": '[ "$1" != quantise ] || exit 0\nfor g in a b c; do echo "ok   $g of $*"; say "ok   $g of $*"; done; echo "3 groups, 0 failures"',
    "sie_bench": """
        case $* in
          *--sweep*) for i in 1 2; do echo "tile$i" >>"${@: -1}"; say "tile$i"; done ;;
          *) while [ "$1" != --json ]; do shift; done
             for i in 1 2 3; do echo "{\\"name\\":\\"case$i\\"}" >>"$2"; say "case$i"; done ;;
        esac""",
    # It needs golden files, which the checkout has in an archive.
    "models.test": 'test -s "$SIE_GOLDEN/st-mean/model.safetensors" || exit 1\necho "--- PASS: $2"; say "--- PASS: $2"',
    "compute-sanitizer": """
        [ "$1" != --version ] || exit 0
        echo "========= COMPUTE-SANITIZER"; echo "========= Saved nothing"
        while [ "${1#*sie_conformance}" = "$1" ]; do shift; done
        "$@" || exit
        echo "========= ERROR SUMMARY: 0 errors" """,
    "python": """
        case $1 in
          - | -c) exit 0 ;;
          *) exec "$REAL_PYTHON" "$@" ;;
        esac""",
}
# A step of serving/run.py: a number, then the next. The report is written several times: its
# numbers go on.
RUN = """
import json, os, sys, time
step, work, results = sys.argv[1:]
folder = os.path.join(results, "serving")
os.makedirs(folder, exist_ok=True)
path = os.path.join(folder, step + ".json")
before = json.load(open(path))[step] if os.path.exists(path) else 0
for n in (before + 1, before + 2):
    part = os.path.join(folder, step + ".part")
    with open(part, "w") as file:
        json.dump({step: n}, file)
    os.replace(part, path)
    with open(os.environ["DONE"], "a") as done:
        done.write(f"serving {step} {n}\\n")
    time.sleep(0.03)
"""
SEED = int(os.environ.get("SIE_GPU_KILL_SEED", "1"))


def alive(session):
    """The processes of a session that have not ended, its leader first."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, _, _, of = stat.read_text(errors="replace").rpartition(") ")[2].split()[:4]
            if int(of) == session and state not in "ZX":
                found.append(int(stat.parent.name))
    return sorted(found, key=lambda pid: (pid != session, pid))


class Killed(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        tools, self.bin = self.root / "checkout/tools/gpu", self.root / "checkout/build/gpu-bundle/bin"
        self.path = self.root / "path"
        for folder in (tools / "serving", self.bin, self.path, self.root / "checkout/kernels/bench"):
            folder.mkdir(parents=True)
        for file in ("check.sh", "triage.py", "sanitizer-expected.txt"):
            shutil.copy(HERE / file, tools / file)
        for name, body in SCRIPTS.items():
            path = (self.path if name in ("compute-sanitizer", "python") else self.bin) / name
            path.write_text(f"#!/bin/bash\n{STEP if name != 'python' else ''}{body}\n")
            path.chmod(0o755)
        (tools / "serving/run.py").write_text(RUN)
        for peer in ("torch_peer.py", "report.py"):
            (self.root / "checkout/kernels/bench" / peer).write_text("")
        (self.root / "checkout/tools/golden").mkdir()
        shutil.copy(HERE.parent / "golden/packed.py", self.root / "checkout/tools/golden/packed.py")
        archives = self.root / "checkout/testdata/packed"
        archives.mkdir(parents=True)
        shutil.copy(HERE.parents[1] / "testdata/packed/st-mean.packed", archives)
        self.check = tools / "check.sh"

    def start(self, half, results):
        environment = os.environ | {
            "SIE_GPU_REHEARSE": "1", "SIE_PYTHON": str(self.path / "python"),
            "REAL_PYTHON": sys.executable, "DONE": str(results) + ".done",
            "PATH": f"{self.path}:/usr/bin:/bin"}
        return subprocess.Popen([self.check, half, f"RESULTS={results}"], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def kill(self, running):
        """Kills every process of a run's session: each that check.sh starts with `timeout` has a process
        group of its own, and would write into the results of this test for as long as it lives."""
        while members := alive(running.pid):
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        running.communicate()

    def lost(self, results, done):
        """What was done and is not in the results."""
        everything = "".join(
            path.read_text(errors="replace") for path in sorted(results.glob("*.txt")) +
            sorted(results.glob("*.jsonl")))
        missing = []
        for line in done:
            if line.startswith("serving "):
                _, step, number = line.split()
                path = results / "serving" / f"{step}.json"
                kept = path.exists() and json.loads(path.read_text())[step] >= int(number)
            elif line.startswith("recordings/"):
                kept = (results / line).exists()
            else:
                kept = line in everything
            if not kept:
                missing.append(line)
        return missing

    def states(self, results):
        """{part: state}; both summaries say the same, whole."""
        text, lines = results / "summary.txt", results / "summary.json"
        if not text.exists():
            return {}
        states = {row.split()[0]: row.split()[1] for row in text.read_text().splitlines()}
        also = {row["part"]: row["state"] for row in map(json.loads, lines.read_text().splitlines())} \
            if lines.exists() else {}
        for part, state in also.items():
            # The second file is written right behind the first.
            self.assertIn(states.get(part), (state, "passed", "begun"), part)
        return states

    def test_killed_at_any_time(self):
        clock = random.Random(SEED)
        for half in ("--kernels", "--serving"):
            for turn in range(4):
                results = self.root / f"{half}-{turn}"
                running = self.start(half, results)
                time.sleep(clock.uniform(0.1, 2.5))
                self.kill(running)
                self.assertEqual(alive(running.pid), [])
                done = Path(str(results) + ".done")
                said = done.read_text().splitlines() if done.exists() else []
                with self.subTest(half=half, turn=turn, seed=SEED):
                    self.assertEqual(self.lost(results, said), [])
                    states = self.states(results)
                    self.assertLessEqual(set(states.values()), {"passed", "begun", "absent"}, states)
                    self.assertLessEqual(list(states.values()).count("begun"), 1, states)

    def test_whole(self):
        order = {
            "--kernels": ["record", "conformance", "conformance_all", "bench", "torch", "report", "sweep",
                          "memcheck", "synccheck", "racecheck"],
            "--serving": ["models", "doctor", "prepare", "headline", "latency", "load", "overload", "memory",
                          "quality", "compiled", "results"],
        }
        for half, parts in order.items():
            results = self.root / half.strip("-")
            said, _ = (running := self.start(half, results)).communicate()
            self.assertEqual(running.returncode, 0, said)
            ran = [line.split()[0] for line in said.splitlines() if " passed " in line]
            self.assertEqual(ran, parts, said)
            self.assertEqual(self.states(results), dict.fromkeys(parts, "passed"))
            with tarfile.open(str(results) + ".tar.gz") as archive:
                self.assertIn(f"{results.name}/summary.txt", archive.getnames())

    def test_from_a_packed_bundle(self):
        """With xz, and by Python where there is none."""
        folder = self.bin.parent
        with tarfile.open(f"{folder}.tar.xz", "w:xz") as archive:
            archive.add(folder, folder.name)
        shutil.rmtree(folder)
        for turn in range(2):
            if turn == 1:
                (self.path / "tar").write_text("#!/bin/bash\n[ $1 != -xJf ] || exit 1\nexec /usr/bin/tar \"$@\"\n")
                (self.path / "tar").chmod(0o755)
                # The other Python imports everything that it is asked for.
                (self.path / "python").write_text('#!/bin/bash\n[ "$1" != - ] || exit 0\nexec "$REAL_PYTHON" "$@"\n')
            results = self.root / f"packed-{turn}"
            said, _ = (running := self.start("--serving", results)).communicate()
            self.assertEqual((running.returncode, self.states(results)["models"]), (0, "passed"), said)

    def test_a_broken_archive_fails_the_models(self):
        archive = self.root / "checkout/testdata/packed/st-mean.packed"
        archive.write_bytes(archive.read_bytes()[:-1])
        results = self.root / "r"
        running = self.start("--serving", results)
        running.communicate()
        self.assertEqual((running.returncode, self.states(results)["models"]), (1, "failed"))
        self.assertIn("st-mean.packed has", (results / "models.txt").read_text())

    def test_a_program_that_fails_under_a_sanitizer(self):
        (self.bin / "sie_conformance").write_text(
            '#!/bin/bash\n[ -n "${SIE_TEST_SHARD##*/31}" ] || exit 1\necho ok\n')
        results = self.root / "r"
        running = self.start("--kernels", results)
        running.communicate()
        states = self.states(results)
        self.assertEqual((running.returncode, states["memcheck"], states["synccheck"], states["racecheck"]),
                         (1, "passed", "failed", "failed"))
        self.assertIn("the program ended with 1", (results / "synccheck.txt").read_text())


MISSING = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Missing wait.
=========     at void sie_cuda::gemm_sm90_kernel<...>(Parameters)+0x3a50
=========     by thread (0,0,0) in block (1,0,0)
=========
"""
RACE = """\
========= Error: Race reported between Write access at lora_kernel+0x10 and Read access at lora_kernel+0x40 [64 hazards]
=========
"""


class Triage(unittest.TestCase):
    LIST = "synccheck | any | Missing wait.*gemm_sm90 | last phases\nracecheck | 1 | lora_kernel | known\n"

    def judge(self, tool, text, status=0, errors=None):
        number = text.count("detected") + text.count("Race") if errors is None else errors
        tail = f"========= ERROR SUMMARY: {number} errors\nexit status {status}\n"
        said, good = triage.judge(tool, triage.read_known(self.LIST), text + tail)
        return good, "\n".join(said)

    def test_known_and_strange(self):
        self.assertEqual(self.judge("synccheck", MISSING * 3),
                         (True, "known 3 times: last phases\nsynccheck: 3 reports, all known"))
        good, said = self.judge("synccheck", MISSING.replace("gemm_sm90", "lora"))
        self.assertFalse(good)
        self.assertIn("UNEXPECTED 1 times: Barrier error detected. Missing wait. at void sie_cuda::lora", said)
        self.assertIn("nothing matches line 1", said)
        self.assertFalse(self.judge("memcheck", MISSING)[0])  # a line of another tool
        self.assertFalse(self.judge("memcheck", "========= Invalid __global__ read of size 4\n", errors=1)[0])

    def test_more_than_are_known(self):
        self.assertTrue(self.judge("racecheck", RACE)[0])
        self.assertIn("2 times, 1 are known", self.judge("racecheck", RACE * 2)[1])

    def test_reports_that_are_not_there(self):
        self.assertIn("UNEXPECTED 2 reports were counted", self.judge("synccheck", MISSING, errors=3)[1])
        self.assertFalse(self.judge("synccheck", MISSING, errors=3)[0])
        self.assertFalse(self.judge("synccheck", "", status=1)[0])
        said, good = triage.judge("synccheck", [], "exit status 0\n")
        self.assertEqual((good, said[0]), (False, "the tool did not reach its summary"))

    def test_a_tool_that_does_not_run_here(self):
        known = triage.read_known((HERE / "sanitizer-expected.txt").read_text())
        said, good = triage.judge("memcheck", known, "========= Error: Device not supported. Please refer\nexit status 1\n")
        self.assertEqual((good, said[0][:7]), (True, "absent:"))

    def test_lists_of_another_form(self):
        for text in ("synccheck | any | (x | y\n", "synccheck | often | x | y\n", "x\n"):
            with self.assertRaises(triage.Unreadable):
                triage.read_known(text)


class Fits(unittest.TestCase):
    def test_what_is_said_of_sizes(self):
        mib = 1 << 20
        self.assertEqual(fits.judge({"kernels": 20 * mib, "docs": 9 * mib}, 30 * mib)[1], True)
        said, good = fits.judge({"testdata": 31 * mib, "docs": mib}, 20 * mib)
        self.assertFalse(good)
        self.assertIn("tracked files have 32.0 MiB, 30 are the most", "\n".join(said))
        self.assertIn("testdata 31.0", "\n".join(said))
        said, good = fits.judge({"kernels": 20 * mib}, 43 * mib)
        self.assertFalse(good)
        self.assertIn("together 63.0 MiB, 62 are the most", "\n".join(said))
        self.assertNotIn("TARGETS", "\n".join(said))  # nothing is known of them

    def test_what_is_said_of_a_bundle_that_is_refused(self):
        def run(*targets):
            with tempfile.TemporaryDirectory() as folder:
                bundle = os.path.join(folder, "bundle.tar.xz")
                with open(bundle, "wb") as file:
                    file.truncate(63 << 20)
                command = [sys.executable, "-B", HERE / "fits.py", bundle, *targets]
                return subprocess.run(command, capture_output=True, text=True)

        all_targets = run("80,86,89,90a,100f,120f")
        self.assertEqual(all_targets.returncode, 1)
        self.assertIn("62 are the most", all_targets.stdout)
        self.assertIn("kernels for 80,86,89,90a,100f,120f: make gpu-bundle TARGETS=90a packs those of one card",
                      all_targets.stdout)
        one = run("90a")
        self.assertEqual(one.returncode, 1)
        self.assertIn("62 are the most", one.stdout)
        self.assertIn("kernels for 90a alone", one.stdout)
        self.assertNotIn("TARGETS", one.stdout)  # it would be no smaller

    def test_this_checkout(self):
        root = str(HERE.parents[1])
        if not os.path.exists(os.path.join(root, ".git")):
            self.skipTest("a copy without .git tracks no files")
        sizes = fits.tracked(root)
        self.assertGreater(sum(sizes.values()), 10 << 20)
        self.assertEqual(fits.judge(sizes, 0)[0][1:], [])


if __name__ == "__main__":
    unittest.main()
