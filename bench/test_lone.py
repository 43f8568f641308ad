"""What bench-lone makes of its rounds, and what it is told."""

import argparse
import contextlib
import io
import sys
import unittest
from unittest import mock

import lone


def runs(closed, at_20, cpu=0.05, p99=9.0):
    """Rounds of these p50 in ms."""
    of = lambda each: [{"p50": p, "p99": p99, "cpu": cpu, "requests": 1} for p in each]
    return {"0": of(closed), "20": of(at_20)}


def record(**more):
    return {"threads": 2, "rounds": 3, "rates": (20,), "also": {}, "idle": {"sie-fp32": [0.0, 0.01, 0.3]},
            "runs": {"sie-fp32": runs([4, 3, 5], [6, 5, 9])}} | more


class Lone(unittest.TestCase):
    def test_aims_are_about_medians(self):
        held = lambda of, idle=(0.0, 0.01, 0.3): list(
            lone.judged({"runs": {"sie-fp32": of}, "idle": {"sie-fp32": idle}}, "sie-fp32").values())
        self.assertEqual(held(runs([4, 3, 5], [6, 5, 9])), [True] * 4)
        self.assertEqual(held(runs([4, 3, 5], [6.1, 5, 9])), [False, True, True, True])
        self.assertEqual(held(runs([4, 3, 5], [6, 5, 9], p99=12.1)), [True, False, True, True])
        self.assertEqual(held(runs([4, 3, 5], [6, 5, 9]), [0.0, 0.011, 0.02]), [True, True, False, True])
        self.assertEqual(held(runs([4, 3, 5], [6, 5, 9], cpu=0.101)), [True, True, True, False])

    def test_ratios_are_those_of_a_round(self):
        both = record(also={"before": "1234567"})
        both["runs"]["before-fp32"] = runs([8, 3, 10], [3, 10, 9])
        both["idle"]["before-fp32"] = [0.0]
        self.assertEqual(lone.ratios(both), [["before-fp32", "2.00 (1.00 to 2.00)", "1.00 (0.50 to 2.00)"]])
        text = lone.markdown(None, both)
        self.assertIn("before is 1234567", text)
        self.assertIn("| before-fp32 | 2.00 (1.00 to 2.00) | 1.00 (0.50 to 2.00) |", text)
        self.assertNotIn("before-fp32: p50", text)  # nothing is wanted of it
        self.assertEqual(lone.ratios(record()), [])

    def test_a_table_has_each_rate(self):
        of = runs([4, 3, 5], [6, 5, 9])
        of["200"] = of["20"][:2] + [of["0"][0]]
        text = lone.markdown(None, record(rates=(20, 200), runs={"sie-fp32": of}))
        self.assertIn("| sie-fp32 | 4.00 / 9.00 | 6.00 / 9.00 | 5.00 / 9.00 | 1.0 | 5.0 | 5.0 |", text)
        self.assertIn("p50 at 20 a second at most 1.5 times the closed loop's: held", text)

    def test_further_builds_have_labels_of_their_own(self):
        self.assertEqual(lone.labelled("before=1234567"), ("before", "1234567"))
        for wrong in ("1234567", "=1234567", "before=", "sie=1234567", "openvino=1234567"):
            with self.assertRaises(argparse.ArgumentTypeError):
                lone.labelled(wrong)

    def test_rates_have_that_of_the_aims(self):
        with mock.patch.object(sys, "argv", ["lone.py", "--rates", "20"]):
            self.assertEqual(lone.arguments().rates, (20,))
        with mock.patch.object(sys, "argv", ["lone.py", "--rates", "1,200"]), self.assertRaises(SystemExit), \
                contextlib.redirect_stderr(io.StringIO()):
            lone.arguments()


if __name__ == "__main__":
    unittest.main()
