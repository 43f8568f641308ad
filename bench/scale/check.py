"""Runs bench/scale.py whole, on a tiny model, with the program that is named: check.py scale_bench

So the program that the owner of a large machine builds is built and run with every change. No time is
judged.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import scale

# Of a slab of the tiny model, which has one layer.
KINDS = ["embed_layernorm", "linear", "attention", "linear", "layernorm", "linear", "linear", "layernorm",
         "pool", "output_rows"]
PROGRAM = sys.argv.pop() if len(sys.argv) > 1 else sys.exit(__doc__)


class Scale(unittest.TestCase):
    args = argparse.Namespace(program=PROGRAM)

    def test_a_run_from_records_to_tables(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), \
                mock.patch.object(sys, "argv", [
                    "scale.py", "--program", PROGRAM, "--shapes", "tiny", "--threads", "1", "2",
                    "--rounds", "1", "--seconds", "0.02", "--passes", "1", "--results", folder]):
            scale.main()
            self.assertEqual(sorted(p.suffix for p in Path(folder).iterdir()), [".json", ".md"])
            record = json.loads(next(Path(folder).glob("*.json")).read_text())
            table = next(Path(folder).glob("*.md")).read_text()
        names = set(record["recorded"])
        self.assertLessEqual({"tiny fp32", "tiny int8"}, names)
        for slabs in record["recorded"].values():
            self.assertEqual([s["tokens"] for s in slabs], list(scale.SLABS))
            for s in slabs:
                for op in s["ops"]:
                    self.assertGreater(min(op["hot"], op["cold"]), 0)
                    self.assertEqual(op["weight_bytes"] > 0, op["op"] == "linear")
                # In class INT8 attention's rows are quantised besides.
                self.assertEqual([op["op"] for op in s["ops"] if op["op"] != "quantise_rows"], KINDS)
        # A byte a weight in class INT8, and what stands beside the panels; four in F32.
        bytes_of = {n: sum(op["weight_bytes"] for op in s[0]["ops"]) for n, s in record["recorded"].items()}
        self.assertGreater(bytes_of["tiny fp32"], 3 * bytes_of["tiny int8"])
        self.assertEqual([r["threads"] for r in record["read"]], [1, 2])
        self.assertEqual({(r["model"], r["threads"], r["batch_tokens"]) for r in record["checked"]},
                         {(n, t, 1024 * t) for n in names for t in (1, 2)})
        for row in record["checked"]:
            self.assertGreater(min(row["measured"], row["of_cpu"], row["simulated"]), 0)
        self.assertEqual(
            [(r["model"], r["threads"], r["members"], r["tokens"]) for r in record["checked_alone"]],
            [(n, t, t, tokens) for n in record["recorded"] for t in (1, 2) for tokens in (32, 128, 512)])
        for row in record["checked_alone"]:
            self.assertGreater(row["texts"], 2)
            self.assertTrue(0 < row["least"] <= row["seconds"])
            self.assertGreater(row["simulated"], 0)
        self.assertEqual(len(record["predicted"]), len(names) * len(scale.SIZES))
        for name in names:
            self.assertIn(f"| {name} | 2 | off | 2048 |", table)
            self.assertIn(f"| {name} | 512 | 2 | 2 |", table)

    def test_every_placement_runs(self):
        for mode in ("off", "interleave", "copy"):
            got = scale.ask(self.args, "run", "fp32", *scale.SHAPES["tiny"], 1024, 2, mode, 0.02)
            self.assertEqual((got["numa"], got["threads"], got["batch_tokens"]), (mode, 2, 1024))

    def test_what_makes_no_sense_is_refused(self):
        for given in (["run", "fp16", *scale.SHAPES["tiny"], 1024, 2, "off", 0.02],
                      ["run", "fp32", *scale.SHAPES["tiny"], 1024, 2, "on", 0.02],
                      ["record", "fp32", *scale.SHAPES["tiny"], 513, 1],
                      ["alone", "fp32", *scale.SHAPES["tiny"], 0, 1, 0.02], ["read", 0, 1], []):
            with self.assertRaisesRegex(SystemExit, "scale_bench: "):
                scale.ask(self.args, *given)


if __name__ == "__main__":
    unittest.main()
