"""How records of benchmarks are laid out."""

import json
import unittest

from test_machine import ROOT  # which stands in for numpy

import records


class Layout(unittest.TestCase):
    def test_plain_values_have_one_line(self):
        record = {"about": {"cpu": "x", "lscpu": "a:  1\nb: {2}"},
                  "rounds": [[1.5, 2], [], [{"p": 1}, {"p": [3]}]]}
        self.assertEqual(records.dumps(record), """{
 "about": {
  "cpu": "x",
  "lscpu": "a:  1\\nb: {2}"
 },
 "rounds": [
  [ 1.5, 2 ],
  [],
  [
   { "p": 1 },
   {
    "p": [ 3 ]
   }
  ]
 ]
}
""")

    def test_nothing_is_lost(self):
        texts = {"empty": "", "brackets": "]}{[ \n {\n 1 \n}", "quote": '"\\',
                 "lines": ["a\n  b", None, True, 1e-9, {}]}
        for record in ({"a": texts}, [texts, [texts]], {"a\nb": [1, 2]}):
            self.assertEqual(json.loads(records.dumps(record)), record)

    def test_the_records_here_are_laid_out_so(self):
        found = [p for p in (ROOT / "bench/results").glob("*.json") if not p.name.startswith("chaos-")]
        self.assertGreater(len(found), 20)
        for path in found:
            text = path.read_text(encoding="utf-8")
            self.assertEqual(text, records.dumps(json.loads(text)), path.name)


if __name__ == "__main__":
    unittest.main()
