"""Tests of the check of models and server: its figures, its bars, its results. Needs numpy and the
parts of bench/ that a bundle has. python -m unittest discover -s tools/gpu"""

import glob
import math
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "serving"), str(HERE.parents[1] / "bench")]

import numpy as np

import host
import models
import ours
import plan
import quality
import rehearsed
import report
import results
import steps

RNG = np.random.default_rng(3)


class Quality(unittest.TestCase):
    reference = RNG.normal(size=(9, 64)) + 2

    def off(self, cosine):
        """The reference, turned by the angle of that cosine, of the same length."""
        a, b = self.reference, RNG.normal(size=self.reference.shape)
        unit = a / np.linalg.norm(a, axis=1, keepdims=True)
        side = b - (b * unit).sum(1, keepdims=True) * unit
        side /= np.linalg.norm(side, axis=1, keepdims=True)
        return (cosine * unit + math.sqrt(1 - cosine**2) * side) * np.linalg.norm(a, axis=1, keepdims=True)

    def test_equal_vectors(self):
        found = quality.compare(self.reference, self.reference)
        self.assertAlmostEqual(found["cosine_min"], 1)
        self.assertAlmostEqual(found["centred_cosine_min"], 1)
        self.assertEqual(found["max_abs"], 0)
        self.assertEqual(quality.misses("bf16", found), [])

    def test_figures(self):
        found = quality.compare(self.off(0.95), self.reference)
        self.assertAlmostEqual(found["cosine_min"], 0.95)
        self.assertAlmostEqual(found["cosine_mean"], 0.95)
        self.assertAlmostEqual(found["norm_ratio_max"], 1)
        self.assertLess(found["centred_cosine_min"], 0.95)

    def test_bars(self):
        for precision, cosine, passes in (
            ("bf16", 0.99901, True),
            ("bf16", 0.99899, False),
            ("fp8", 0.9901, True),
            ("fp8", 0.9899, False),
        ):
            missed = quality.misses(precision, quality.compare(self.off(cosine), self.reference))
            self.assertEqual(missed == [], passes, f"{precision} {cosine}: {missed}")

    def test_one_bad_text_is_named(self):
        vectors = self.reference.copy()
        vectors[4] = RNG.normal(size=64)
        found = quality.compare(vectors, self.reference)
        self.assertEqual(found["worst_text"], 4)
        self.assertIn("at text 4", quality.misses("fp8", found)[0])

    def test_norms(self):
        for factor, passes in ((1.0099, True), (1.0101, False), (0.9901, True), (0.9899, False)):
            found = quality.compare(self.reference * factor, self.reference)
            self.assertEqual(quality.misses("bf16", found) == [], passes, factor)

    def test_nan_shape_and_zero(self):
        vectors = self.reference.copy()
        vectors[2, 5] = np.nan
        self.assertIn("1 of 9", quality.misses("bf16", quality.compare(vectors, self.reference))[0])
        self.assertIn("shape", quality.misses("bf16", quality.compare(vectors[:, :8], self.reference))[0])
        self.assertTrue(quality.misses("bf16", quality.compare(0 * self.reference, self.reference)))


class Memory(unittest.TestCase):
    def readings(self, device=(7, 7), rss=(100 << 20, 100 << 20)):
        return [{"batches": 10 ** (3 + i), "device_bytes": d, "rss_bytes": r}
                for i, (d, r) in enumerate(zip(device, rss))]

    def test_equal_passes(self):
        self.assertEqual(steps.grown(self.readings(), True), [])
        self.assertEqual(steps.grown(self.readings(rss=(100 << 20, 108 << 20)), True), [])
        self.assertEqual(steps.grown(self.readings(rss=(100 << 20, 50 << 20)), True), [])

    def test_growth_is_missed(self):
        self.assertIn("1 bytes", steps.grown(self.readings(device=(7, 8)), True)[0])
        self.assertIn("-3 bytes", steps.grown(self.readings(device=(7, 4)), True)[0])
        self.assertIn("8.0 MiB", steps.grown(self.readings(rss=(100 << 20, (108 << 20) + 1)), True)[0])

    def test_device_bytes_must_be_there(self):
        self.assertIn("sie_device_memory_used_bytes",
                      steps.grown(self.readings(device=(None, None)), True)[0])
        self.assertEqual(steps.grown(self.readings(device=(None, None)), False), [])


class Texts(unittest.TestCase):
    def test_lengths(self):
        sets = models.sets(plan.REAL)
        for length in plan.REAL.lengths:
            self.assertEqual({models.tokens(t) for t in sets[str(length)]}, {length})
        mixed = [models.tokens(t) for t in sets["mixed"]]
        self.assertTrue(min(mixed) >= 8 and 400 < max(mixed) <= 512)
        self.assertEqual([models.tokens(t) for t in sets["quality"]][:3], [3, 511, 512])

    def test_same_on_every_host(self):
        self.assertEqual(models.words(3), ["tuytxa", "ugbejwjcg", "kewkt"])
        self.assertEqual(models.sets(plan.TOY)["5"][0], "yialonyfg ejbzmu fzugzc")
        words = models.words(500)
        self.assertEqual(len(set(words)), 500)

    def test_words_are_tokens(self):
        try:
            tokenizer = models.tokenizer(plan.TOY.shapes["minilm"])
        except ImportError as err:
            self.skipTest(str(err))
        for text in models.sets(plan.TOY)["random"]:
            ids = tokenizer(text)["input_ids"]
            self.assertEqual(len(ids), models.tokens(text))
            self.assertNotIn(1, ids)


class Records(unittest.TestCase):
    def test_rehearsal_has_no_numbers(self):
        found = {"tokens_per_second": 1.5, "texts": 4, "rows": [{"p50_ms": 2.0, "failed": 0, "name": "x"}],
                 "yes": True}
        hidden = results.disguise(found)
        self.assertEqual(
            hidden,
            {
                "tokens_per_second": "rehearsal",
                "texts": 4,
                "yes": True,
                "rows": [{"p50_ms": "rehearsal", "failed": 0, "name": "x"}],
            },
        )
        self.assertEqual(rehearsed.numbers(hidden, "load"), [])
        self.assertEqual(rehearsed.numbers(found, "load"), ["load.tokens_per_second", "load.rows[0].p50_ms"])

    def test_a_number_that_is_none_is_an_error(self):
        for bad in (math.nan, math.inf):
            with self.assertRaises(ValueError):
                results.disguise({"p50_ms": bad})

    def test_saved_whole_and_hidden(self):
        with tempfile.TemporaryDirectory() as folder:
            for rehearsal, want in ((True, "rehearsal"), (False, 2.5)):
                r = results.Results(Path(folder) / "serving", rehearsal)
                r.save("latency", {"p50_ms": 2.5})
                self.assertEqual(r.load("latency"), {"p50_ms": want})
                r.save("quality", {"cosine_min": 0.5})
                self.assertEqual(r.load("quality"), {"cosine_min": 0.5})
            self.assertIsNone(r.load("load"))
            self.assertEqual([p for p in Path(folder).rglob("*.part")], [])

    def test_picture(self):
        runs = [{"tokens_per_second": 10.0, "p50_ms": 1.0}, {"tokens_per_second": 30.0, "p50_ms": 3.0}]
        record = {
            "rehearsal": False,
            "about": {"card": {"name": "A <card>"}, "commit": "abc", "date": "2026-01-01T"},
            "load": {
                "m": {"sets": {"128": {"ours bf16": runs, "sentence-transformers default": runs[:1]}}},
                "n": {"sets": {}},
            },
        }
        drawn = report.picture(record)
        self.assertIn("m, 128 tokens: tokens/s", drawn)
        self.assertIn("A &lt;card&gt;", drawn)
        self.assertNotIn("REHEARSAL", drawn)
        self.assertEqual(report.value(runs, "tokens_per_second"), 20.0)
        self.assertIsNone(report.value(runs, "p99_ms"))
        record["load"]["m"]["sets"]["128"] = results.disguise(record["load"]["m"]["sets"]["128"])
        self.assertIn("REHEARSAL", report.picture(record | {"rehearsal": True}))


class Script(unittest.TestCase):
    def check(self, *args, **env):
        return subprocess.run([HERE / "check.sh", *args], capture_output=True, text=True,
                              env=os.environ | env)

    def test_without_a_gpu(self):
        if glob.glob("/dev/nvidia[0-9]*") or shutil.which("nvidia-smi"):
            self.skipTest("this machine has a GPU")
        done = self.check("results-that-must-not-appear")
        self.assertEqual((done.returncode, Path("results-that-must-not-appear").exists()), (2, False),
                         done.stdout)

    def test_unknown_option(self):
        self.assertEqual(self.check("--kernel").returncode, 1)

    def test_folder_of_somebody_else(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "precious").write_text("x")
            done = self.check(folder, SIE_GPU_REHEARSE="1")
            self.assertEqual((done.returncode, (Path(folder) / "precious").exists()), (1, True), done.stdout)


class Parsing(unittest.TestCase):
    def test_metrics(self):
        found = ours.parse(
            '# HELP a b\na_total{model="x"} 3\na_total{model="y"} 4\nb 1.5e+09\n'
            'sie_device_memory_used_bytes{device="cuda:0"} 7\n'
        )
        self.assertEqual(found["a_total"], 7)
        self.assertEqual(found['a_total{model="y"}'], 4)
        self.assertEqual(found["b"], 1.5e9)
        self.assertEqual(found["sie_device_memory_used_bytes"], 7)

    def test_card_name(self):
        self.assertEqual(host.machine.slug("NVIDIA H100 80GB HBM3"), "nvidia-h100-80gb-hbm3")

    def test_clocks_are_of_the_block(self):
        with unittest.mock.patch.object(host, "clocks", lambda: {"clocks.sm": "1980 MHz"}), host.clocks_after(
            0.01
        ) as found:
            pass
        self.assertEqual(found, {"clocks.sm": "1980 MHz"})

    def test_last_line_is_the_reason(self):
        self.assertEqual(ours.last("a\nsie-server: no GPU\n\n"), "sie-server: no GPU")
        self.assertEqual(ours.last(""), "")


if __name__ == "__main__":
    unittest.main()
