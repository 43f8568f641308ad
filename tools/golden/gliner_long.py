#!/usr/bin/env python3
"""Writes testdata/golden/gliner-long/: what gliner 0.2.29 and the windows of sie-server 0.10.1 make of
long texts, with the tiny model of testdata/golden/gliner-deberta-span.

    tools/golden/gliner_long.py

cases.json: a case has a text as a recipe, labels, threshold, flat_ner, multi_label, the number of windows,
and entities as [start, end, label, score]. The recipe is [seed, words, kind]: words of VOCABULARY by a
linear congruential generator, with kind "word" one of 5,000 characters among them. No logit of any window
is within 1e-3 of the threshold's.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import torch
from gliner import GLiNER

import manifest

OUT = manifest.GOLDEN / "gliner-long"
VOCABULARY = ("Berlin Bob pay Ann York state_of-the-art re-use , . 50 $ % ( ) \u0410\u043d\u043d\u0430 \u041c\u043e\u0441\u043a\u0432\u0443 "
              "\u6771\u4eac\u90fd\u306b\u4f4f\u3080 caf\u00e9 e\u0301 \U0001f642 \u0645\u0631\u062d\u0628\u0627 one two three").split(" ")
LABELS = ["city", "person", "price"]
# seed, words, kind, label count, quantile, flat_ner, multi_label
CASES = [
    (1, 1, "", 2, 0.4, True, False),
    (2, 385, "", 2, 0.996, True, False),
    (3, 700, "", 3, 0.99, False, False),
    (3, 700, "", 3, 0.99, True, True),
    (3, 700, "", 3, 0.99, False, True),
    (4, 40, "word", 2, 0.99, True, False),
    (5, 600, "word", 2, 0.995, False, True),
    (6, 10000, "", 2, 0.9993, True, False),
]


def text_of(seed, words, kind):
    state, out = seed, []
    for i in range(words):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(VOCABULARY[(state >> 33) % len(VOCABULARY)])
        if kind == "word" and i == words // 2:
            out.append("Bob2" * 1250)
    return " ".join(out)


def gap(logits, quantile):
    """The score of the middle of the widest gap near that quantile, of 2e-3 of a logit at least."""
    s = torch.sort(torch.cat([x.flatten() for x in logits]).double()).values
    at = int(quantile * (len(s) - 1))
    lo, hi = max(0, at - 12), min(len(s) - 1, at + 12)
    widths = s[lo + 1 : hi + 1] - s[lo:hi]
    i = lo + int(widths.argmax())
    assert s[i + 1] - s[i] > 2e-3, (quantile, float(s[i]), float(s[i + 1] - s[i]))
    return round(float(torch.sigmoid((s[i] + s[i + 1]) / 2)), 9)


def main():
    folder = pathlib.Path(sys.prefix) / "lib/python3.11/site-packages/sie_server/adapters"
    spec = importlib.util.spec_from_file_location("word_window", folder / "_word_window.py")
    window = importlib.util.module_from_spec(spec)
    sys.modules["word_window"] = window
    spec.loader.exec_module(window)
    model = GLiNER.from_pretrained(str(manifest.GOLDEN / "gliner-deberta-span"))
    model.eval()
    assert window.bound_gliner_words(model)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    known, out = {}, []
    for seed, words, kind, count, quantile, flat, multi in CASES:
        text, labels = text_of(seed, words, kind), LABELS[:count]
        plan = window.gliner_windows(model, [text])[0]
        rows = [text[w.start : w.end] for w in plan]
        if (seed, count) not in known:
            logits = []
            for row in rows:
                prepared = model.prepare_batch([row], labels)
                collator = model.create_collator()
                batch = model.collate_batch(prepared["input_x"], prepared["entity_types"], collator)
                with torch.no_grad():
                    result = model.model(**{k: v for k, v in batch.items() if isinstance(v, torch.Tensor)})
                logits.append(result.logits[0, : len(prepared["input_x"][0]["tokenized_text"])])
            known[seed, count] = logits
        threshold = gap(known[seed, count], quantile)
        with torch.no_grad():
            found = model.inference(rows, labels, flat_ner=flat, threshold=threshold, multi_label=multi,
                                    batch_size=1)
        merged = window.merge_window_spans(plan, found, text, flat_ner=flat, multi_label=multi)
        out.append({"recipe": [seed, words, kind], "labels": labels, "threshold": threshold, "flat_ner": flat,
                    "multi_label": multi, "windows": len(plan),
                    "entities": [[e["start"], e["end"], labels.index(e["label"]), round(e["score"], 6)]
                                 for e in merged]})
        print(seed, words, kind, len(plan), "windows", threshold, len(merged), "entities", flush=True)
    body = ",\n".join(json.dumps(c, separators=(",", ":")) for c in out)
    (OUT / "cases.json").write_text("[\n" + body + "\n]\n")
    notes = {"vocabulary": VOCABULARY}
    manifest.write(OUT, "tools/golden/gliner_long.py", "gliner-deberta-span", "float32", notes)


torch.set_num_threads(1)
main()
