"""How records of benchmarks are laid out."""

import json
import unittest

from test_machine import ROOT  # which stands in for numpy

import records


class Layout(unittest.TestCase):
    def test_what_is_short_or_plain_has_one_line(self):
        record = {"about": {"cpu": "x", "lscpu": "a:  1\nb: {2}"}, "long": "y" * 300,
                  "rounds": [[1.5, 2], [], [{"p": 1}, {"p": [3]}, {"q": "z" * 200}], [4, "w" * 200]]}
        self.assertEqual(records.dumps(record), """{
 "about": {"cpu":"x","lscpu":"a:  1\\nb: {2}"},
 "long": "%s",
 "rounds": [
  [1.5,2],
  [],
  [
   {"p":1},
   {"p":[3]},
   {"q":"%s"}
  ],
  [4,"%s"]
 ]
}
""" % ("y" * 300, "z" * 200, "w" * 200))

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
