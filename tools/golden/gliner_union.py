#!/usr/bin/env python3
"""Writes testdata/golden/gliner-union/: what the union adapter of sie-server 0.10.1 makes of texts with two
tiny GLiNER models of testdata/golden, which `tools/golden/gliner_spans.py` has written.

    tools/golden/gliner_union.py

Each case of cases.json has text, labels, options, the member that is the union's own model and the
entities. A case in which a member's score lies within 1e-4 of a threshold, or two of its scores lie so close
together, is no case.
"""

import json
import os
import pathlib
import random
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

import manifest
from spans import adapters

OUT = manifest.GOLDEN / "gliner-union"
MEMBERS = ["gliner-bert-span", "gliner-bert-token"]
COMMIT = "0" * 40
NEAR = 1e-4
PIECES = ["Angela Merkel", "Berlin", "Ann", "Bob", "Bob's", "Ann-Marie", "_Bob", "Bob5", "met", "in",
          "New York", "Анна", "Москву", "Анна,", "東京都", "田中さん", "café", "🙂", "👩\u200d👧", "ok🙂!",
          "state_of-the-art", "50%", "pay", "the", "United Nations", "\n", ".", "re-use", "x1-y2:", "مرحبا"]
LABELS = ["person", "city", "organization", "date", "job title"]


def load(union, own, other, merge):
    adapter = union.GLiNERUnionAdapter(
        manifest.GOLDEN / own, revision=COMMIT, compute_precision="float32",
        members=[{"model": str(manifest.GOLDEN / other), "revision": COMMIT,
                  "options": {"merge_adjacent_entities": merge}}])
    adapter.load("cpu")
    return adapter


def is_case(adapter, item, text, labels, options, windows):
    """Whether no score of a member decides by less than NEAR."""
    for member in adapter._members:
        for start, end in windows:
            found = member.extract([item(text=text[start:end])], labels=labels, options={
                "threshold": 0.5 - NEAR, "flat_ner": False, "multi_label": True}).entities[0]
            scores = sorted([e["score"] for e in found] + list({0.5, options["score_floor"]}))
            if any(b - a < NEAR for a, b in zip(scores, scores[1:])):
                return False
    return True


def main():
    folder = pathlib.Path(sys.prefix) / "lib/python3.11/site-packages/sie_server/adapters"
    _, _, gliner, union = adapters(folder)

    class Item:
        def __init__(self, text):
            self.text = text

    class Output:
        def __init__(self, entities, errors=None, input_token_counts=None, relations=None):
            self.entities, self.errors, self.input_token_counts = entities, errors, input_token_counts

    union.Item = Item
    gliner.ExtractOutput = union.ExtractOutput = Output
    gliner.GLiNERAdapter._check_loaded = lambda self: None
    torch.set_num_threads(1)
    rng = random.Random(2204)
    cases = []
    for own, merge in (0, False), (1, False), (1, True):
        adapter = load(union, MEMBERS[own], MEMBERS[1 - own], merge)
        for _ in range(40):
            text = " ".join(rng.choice(PIECES) for _ in range(rng.randint(1, 40)))
            labels = rng.sample(LABELS, rng.randint(1, 4))
            size = rng.choice([2, 5, 12, 300])
            options = {"score_floor": rng.choice([0.0, 0.6, 0.7]), "window_words": size,
                       "window_overlap": rng.randint(0, size - 1) if size < 300 else 50,
                       "propagate_label": rng.choice([None, labels[0], "person"]),
                       "name_min_letters": rng.choice([1, 2, 3])}
            windows = union.word_windows(text, size, options["window_overlap"])
            if not text.strip() or not is_case(adapter, Item, text, labels, options, windows):
                continue
            out = adapter.extract([Item(text)], labels=labels, options=options)
            cases.append({"own": own, "merge": merge, "text": text, "labels": labels, "options": options,
                          "tokens": out.input_token_counts[0],
                          "entities": [[e["start"], e["end"], labels.index(e["label"]), round(e["score"], 6)]
                                       for e in out.entities[0]]})
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    lines = [json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases]
    (OUT / "cases.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(len(cases), "cases,", sum(len(c["entities"]) for c in cases), "entities")
    manifest.write(OUT, "tools/golden/gliner_union.py", "none", "none",
                   {"gliner": "0.2.29", "adapters": "sie-server 0.10.1", "members": MEMBERS})


if __name__ == "__main__":
    main()
