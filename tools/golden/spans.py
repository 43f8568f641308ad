#!/usr/bin/env python3
"""Writes testdata/golden/spans/: the spans, relations, merged windows and unions that the decoders of
gliner 0.2.29 and the adapters of sie-server 0.10.1 make of random scores, with many ties.

    tools/golden/spans.py

Scores are not written: both sides make them from a seed (see Scores). A case with a score close to the
threshold, or with two scores that are almost one, is no case: float32 decides it.
"""

import importlib.util
import json
import pathlib
import random
import shutil
import sys
import types

import torch
from gliner.decoding.decoder import SpanDecoder, SpanRelexDecoder, TokenDecoder
from gliner.modeling.utils import build_all_entity_pairs, build_entity_pairs

import manifest

OUT = manifest.GOLDEN / "spans"
NEAR = 1e-4
THRESHOLDS = [0.0, 0.1, 0.3, 0.5, 0.6, 0.9, 1.0]


class Scores:
    """Logits of a seed: a linear congruential generator, of which the upper 31 bits are used."""

    def __init__(self, seed, mode):
        self.state, self.mode = seed, mode

    def number(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.state >> 33

    def logit(self):
        n = self.number()
        return {"ties": lambda: (n % 25 - 12) / 2, "large": lambda: (n % 33 - 4) * 1.0,
                "rare": lambda: (n % 21 - 18) / 2, "smooth": lambda: n / 2**31 * 12 - 6}[self.mode]()

    def tensor(self, *shape):
        count = 1
        for n in shape:
            count *= n
        return torch.tensor([self.logit() for _ in range(count)], dtype=torch.float32).view(*shape)


def is_case(logits, threshold):
    """Whether no score is near the threshold, and none near another that is not the same."""
    scores = torch.sigmoid(logits).flatten()
    # A logit of 0 at the threshold 0.5 is exact on both sides, as is a score of 1.
    exact = (scores == threshold) & ((logits.flatten() == 0) | (scores == 1))
    if (((scores - threshold).abs() < NEAR) & ~exact & (scores > 1e-7)).any():
        return False
    kinds = torch.unique(scores)
    gaps = kinds[1:] - kinds[:-1]
    return not ((gaps > 0) & (gaps < 2e-7) & (kinds[1:] < 0.9999)).any()


def rows(spans):
    return [[s.start, s.end, int(s.entity_type), round(s.score, 5)] for s in spans]


def span_cases(rng):
    decoder = SpanDecoder(types.SimpleNamespace())
    for seed in range(1500):
        words, widest, labels = rng.randint(1, 14), rng.choice([1, 2, 3, 5, 12]), rng.choice([1, 1, 2, 3, 6])
        padded = words + rng.choice([0, 0, 3])
        case = {"seed": seed, "mode": rng.choice(["ties", "large", "rare", "rare", "smooth"]), "words": words,
                "padded": padded, "widest": widest, "labels": labels, "threshold": rng.choice(THRESHOLDS),
                "flat": rng.random() < 0.5, "multi": rng.random() < 0.5}
        logits = Scores(seed, case["mode"]).tensor(padded, widest, labels)
        if not is_case(logits, case["threshold"]):
            continue
        found = decoder.decode([["w"] * words], {i + 1: str(i) for i in range(labels)}, logits[None],
                               flat_ner=case["flat"], threshold=case["threshold"], multi_label=case["multi"])
        case["found"] = rows(found[0])
        if len(case["found"]) <= 9 or seed % 25 == 0:
            yield case


def token_cases(rng):
    decoder = TokenDecoder(types.SimpleNamespace())
    for seed in range(5000, 6800):
        words, labels = rng.randint(1, 20), rng.choice([1, 1, 2, 3, 6])
        case = {"seed": seed, "mode": rng.choice(["ties", "large", "rare", "smooth"]), "words": words,
                "labels": labels, "threshold": rng.choice(THRESHOLDS), "flat": rng.random() < 0.5,
                "multi": rng.random() < 0.5}
        logits = Scores(seed, case["mode"]).tensor(words, labels, 3)
        if not is_case(logits, case["threshold"]):
            continue
        found = decoder.decode([["w"] * words], {i + 1: str(i) for i in range(labels)}, logits[None],
                               flat_ner=case["flat"], threshold=case["threshold"], multi_label=case["multi"])
        case["found"] = rows(found[0])
        if len(case["found"]) <= 9 or seed % 25 == 0:
            yield case


def relation_cases(rng):
    decoder = SpanRelexDecoder(types.SimpleNamespace())
    for seed in range(9000, 9300):
        words, labels, kinds = rng.randint(1, 8), rng.choice([1, 2]), rng.choice([1, 2, 3])
        threshold, relation = rng.choice([0.1, 0.3, 0.5]), rng.choice([0.1, 0.5, 0.9])
        case = {"seed": seed, "mode": rng.choice(["ties", "rare", "smooth"]), "words": words,
                "labels": labels, "kinds": kinds, "threshold": threshold, "relation_threshold": relation,
                "adjacency": rng.choice([None, 0.5, 0.6]), "flat": rng.random() < 0.5,
                "multi": rng.random() < 0.5}
        scores = Scores(seed, case["mode"])
        logits = scores.tensor(words, 3, labels)
        # Candidates as the model has them: spans above the threshold in the order of places.
        best = torch.sigmoid(logits).max(-1).values
        candidates = [[s, s + w] for s in range(words) for w in range(3)
                      if s + w < words and best[s, w] > threshold][:12]
        n = len(candidates)
        if n == 0:
            continue
        representations = torch.zeros(1, n, 4)
        if case["adjacency"] is None:
            pairs, mask, _, _ = build_all_entity_pairs(representations, torch.ones(1, n))
        else:
            adjacency = torch.sigmoid(scores.tensor(n, n))
            pairs, mask, _, _ = build_entity_pairs(adjacency[None], representations, case["adjacency"])
        pair_logits = scores.tensor(pairs.shape[1], kinds)
        if not is_case(logits, threshold) or not is_case(pair_logits, relation):
            continue
        found, relations = decoder.decode(
            [["w"] * words], {i + 1: str(i) for i in range(labels)}, logits[None],
            rel_idx=pairs, rel_logits=pair_logits[None], rel_mask=mask, flat_ner=case["flat"],
            threshold=threshold, relation_threshold=relation, multi_label=case["multi"],
            rel_id_to_classes={i + 1: str(i) for i in range(kinds)}, entity_spans=torch.tensor([candidates]))
        case["candidates"] = candidates
        case["pairs"] = pairs[0][mask[0]].tolist()
        case["found"] = rows(found[0])
        case["relations"] = [[h, t, int(label), round(score, 5)] for h, label, t, score in relations[0]]
        if len(case["relations"]) <= 12 or seed % 20 == 0:
            yield case


def random_spans(rng, first, last, count):
    """Spans of the places [first, last], as a window's decoder may give them."""
    out = []
    for _ in range(count):
        start = rng.randint(first, last - 1)
        end = min(last, start + rng.randint(1, 6))
        if rng.random() < 0.2:
            start = first
        if rng.random() < 0.2:
            end = last
        out.append({"start": start, "end": end, "label": str(rng.randint(0, 2)),
                    "score": rng.choice([0.5, 0.75, 0.875, rng.randint(1, 1023) / 1024])})
    return out


def merge_cases(rng, module):
    for _ in range(200):
        plan, found, start = [], [], 0
        for i in range(rng.randint(1, 4)):
            end = start + rng.randint(3, 14)
            plan.append(module.DocumentWindow(start, end, end, None if i == 0 else 1))
            found.append(random_spans(rng, 0, end - start, rng.randint(0, 6)))
            start = end - rng.randint(0, min(4, (end - start) // 2))
        flat, multi = rng.random() < 0.5, rng.random() < 0.5
        merged = module.merge_window_spans(plan, found, "x" * 100, flat_ner=flat, multi_label=multi)
        yield {"windows": [[w.start, w.read_end] for w in plan], "flat": flat, "multi": multi,
               "found": [[[s["start"] + w.start, s["end"] + w.start, int(s["label"]), s["score"]]
                          for s in spans] for w, spans in zip(plan, found)],
               "merged": [[s["start"], s["end"], int(s["label"]), s["score"]] for s in merged]}


def adjacent_cases(rng, adapter):
    for _ in range(80):
        found = random_spans(rng, 0, 30, rng.randint(0, 9))
        merged = adapter._merge_entities(None, [{**s, "text": ""} for s in found], "x" * 40)
        yield {"found": [[s["start"], s["end"], int(s["label"]), s["score"]] for s in found],
               "merged": [[s["start"], s["end"], int(s["label"]), s["score"]] for s in merged]}


NAMES = ["Ann", "Ann", "Annie", "Zoë", "Müller", "li", "Wu", "van", "Ж", "Иван", "山田", "x²", "½",
         "A1b", "_Bo", "Bo"]


def union_cases(rng, union):
    for _ in range(150):
        names = rng.sample(NAMES, 4)
        text = "".join(rng.choice(names) + rng.choice([" ", " ", "-", "_", ", ", "\n", "", "3"])
                       for _ in range(rng.randint(1, 25)))
        members = [[union.Span(s["start"], s["end"], s["label"], s["score"])
                    for s in random_spans(rng, 0, len(text), rng.randint(0, 6))] for _ in range(2)]
        options = {"score_floor": rng.choice([0.0, 0.5, 0.6]),
                   "propagate_label": rng.choice([None, "0", "1"]),
                   "name_min_letters": rng.choice([1, 2, 3])}
        size = rng.choice([2, 3, 5, 300])
        overlap = rng.randint(0, size - 1) if size < 300 else 50
        composed = union.compose(text, members, options)
        yield {"text": text, **options, "size": size, "overlap": overlap,
               "windows": union.word_windows(text, size, overlap),
               "members": [[[s.start, s.end, int(s.label), s.score] for s in spans] for spans in members],
               "union": [[e["start"], e["end"], int(e["label"]), e["score"]] for e in composed]}


def triple_cases(rng, gliner):
    for _ in range(60):
        windows = [[{"head": {"text": rng.choice("aAbé日")}, "tail": {"text": rng.choice("ab")},
                     "relation": rng.choice(["r", "R", "ß"]), "score": rng.choice([0.5, 0.75, 0.875])}
                    for _ in range(rng.randint(0, 6))] for _ in range(rng.randint(1, 3))]
        found = [r for w in windows for r in w]
        best = gliner._best_relations(found) if len(windows) > 1 else found
        yield {"found": [[[r["head"]["text"], r["tail"]["text"], r["relation"], r["score"]] for r in w]
                         for w in windows],
               "triples": [[r["head"], r["tail"], r["relation"], r["score"]]
                           for r in gliner.GLiNERAdapter._format_relations(best)]}


def adapters(folder):
    """The modules of sie-server's adapters, whose own imports are more than their arithmetic needs."""
    def stub(name, **attributes):
        module = types.ModuleType(name)
        module.__path__ = []
        module.__dict__.update(attributes)
        sys.modules[name] = module

    class Anything:
        def __init__(self, *args, **kwargs):
            pass

    stub("sie_server")
    for name in ("adapters", "core", "types", "config"):
        stub(f"sie_server.{name}")
    stub("sie_server.adapters._base_adapter", BaseAdapter=Anything)
    stub("sie_server.adapters._spec", AdapterSpec=Anything)
    stub("sie_server.adapters._types", ERR_REQUIRES_TEXT="", ComputePrecision=str)
    stub("sie_server.core.extract_cost", MAX_EXTRACT_LABELS=1000)
    stub("sie_server.core.inference_output", ExtractItemError=Anything, ExtractOutput=Anything)
    stub("sie_server.types.inputs", InvalidInputError=ValueError, Item=Anything)
    stub("sie_server.types.responses", Entity=dict, Relation=dict, ErrorCode=Anything)
    stub("sie_server.config.model", is_immutable_revision=bool)
    out = []
    for name, file in (("_word_window", "_word_window.py"), ("_prompt_limit", "_prompt_limit.py"),
                       ("gliner", "gliner/__init__.py"), ("gliner_union", "gliner_union/adapter.py")):
        full = f"sie_server.adapters.{name}"
        spec = importlib.util.spec_from_file_location(full, folder / file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
        out.append(module)
    return out


def dump(name, cases):
    """A line with the names of the fields, then the values of a case a line."""
    cases = list(cases)
    lines = [json.dumps(list(cases[0]), separators=(",", ":"))]
    lines += [json.dumps([int(v) if isinstance(v, bool) else v for v in case.values()], separators=(",", ":"))
              for case in cases]
    assert all(list(case) == list(cases[0]) for case in cases)
    (OUT / name).write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(name, len(cases))


def main():
    folder = pathlib.Path(sys.prefix) / "lib/python3.11/site-packages/sie_server/adapters"
    window, _, gliner, union = adapters(folder)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    rng = random.Random(22)
    dump("spans.json", span_cases(rng))
    dump("tokens.json", token_cases(rng))
    dump("relations.json", relation_cases(rng))
    dump("merge.json", merge_cases(rng, window))
    dump("adjacent.json", adjacent_cases(rng, gliner.GLiNERAdapter))
    dump("union.json", union_cases(rng, union))
    dump("triples.json", triple_cases(rng, gliner))
    manifest.write(OUT, "tools/golden/spans.py", "none", "none",
                   {"gliner": "0.2.29", "adapters": "sie-server 0.10.1"})


if __name__ == "__main__":
    main()
