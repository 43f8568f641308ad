"""That what is written of many cores is what the simulator says, and that its rules are the engine's."""

import json
import re
import unittest
from pathlib import Path

import scale
import scalesim

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "bench/results/amd-epyc-scale.json"


class Written(unittest.TestCase):
    def test_the_table_is_the_records(self):
        record = json.loads(RECORD.read_text())
        self.assertTrue(RECORD.with_suffix(".md").read_text().endswith("\n\n" + scale.tables(record)))

    def test_the_predictions_are_the_simulators(self):
        record = json.loads(RECORD.read_text())
        for name, slabs in record["recorded"].items():
            self.assertEqual([r for r in record["alone"] if r["model"] == name],
                             scale.predict_alone(name, slabs))
        # Of the larger ones one number: all of them take ten seconds.
        name = "BERT-base int8"
        found, = (r for r in record["predicted"] if (r["model"], r["cores"]) == (name, 8))
        m = scalesim.Machine(nodes=1, cores=8, **scale.SOCKET)
        for column, placement in (("before", "first"), ("copies", "copy")):
            self.assertEqual(found["tokens_per_s"][column], scalesim.throughput(
                m, scalesim.Recording(record["recorded"][name]), placement, scale.DEFAULT_TOKENS, scale.TEXT))

    def test_the_rules_are_the_engines(self):
        for path, text, value in (
                ("csrc/run_plan.cc", "usual_team", scalesim.USUAL_TEAM),
                ("csrc/run_plan.cc", "flops_of_meeting", scalesim.FLOPS_OF_MEETING),
                ("csrc/executor.h", "max_team", scalesim.MOST_MEMBERS),
                ("csrc/program.h", "max_late_bytes", scalesim.LATE_BYTES),
                ("csrc/program.h", "slab_tokens_max", scalesim.SLAB_TOKENS),
                ("csrc/slabs.cc", "tokens_min", scalesim.LEAST_LOAD),
                ("kernels/cpu/isa.h", "panels_of_share", scalesim.WHOLE_PANELS)):
            found = re.search(rf"constexpr \w+ {text} = ([^;]*);", (ROOT / path).read_text())
            self.assertIsNotNone(found, f"{path} has no {text}")
            self.assertEqual(eval(found[1]), value, f"{text} in {path}")


class Arithmetic(unittest.TestCase):
    def test_batches_grow(self):
        for threads, grows, tokens in ((1, True, 1024), (7, True, 7168), (8, True, 16384), (8, False, 16384),
                                       (32, True, 16384), (33, True, 16896), (128, True, 65536),
                                       (128, False, 16384)):
            self.assertEqual(scale.budget(threads, grows), tokens)

    def test_threads_are_doubled_up_to_all_cores(self):
        for cores, counts in ((1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]),
                              (12, [1, 2, 4, 8, 12])):
            self.assertEqual(scale.counts(cores), counts)

    def test_a_recording_is_scaled_to_a_rate(self):
        slabs = [{"tokens": n, "ops": [{"hot": 1e-4 * n, "cold": 2e-4 * n, "weight_bytes": 1000}] * 2}
                 for n in scale.SLABS]
        scaled = scale.scaled(slabs, 5000.0)  # where it does 2,500 a second
        self.assertEqual(scaled.weights, [500, 500])
        self.assertAlmostEqual(sum(cold for _, cold in scaled.times(512)), 512 / 5000)

    def test_a_machine_is_what_was_read(self):
        rates = [{"bytes_per_s": 10e9}, {"bytes_per_s": 30e9}]
        got = scale.here({"cores": 12, "nodes": 2, "caches": 3}, rates)
        self.assertEqual((got.nodes, got.cores, got.shared), (2, 6, 4))
        self.assertEqual((got.core_rate, got.node_rate, got.link_rate), (10e9, 15e9, 7.5e9))
        self.assertEqual(scale.here({"cores": 3, "nodes": 1, "caches": 0}, rates).shared, 3)


if __name__ == "__main__":
    unittest.main()
