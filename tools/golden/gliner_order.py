"""Writes testdata/golden/gliner-order/: what gliner finds with the tiny models of gliner_spans.py,
gliner_bi.py and gliner_relex.py when labels do not stand in the order of the alphabet.

    python tools/golden/gliner_order.py

cases.json: model, text, labels, relations, threshold, relation_threshold, entities as [start, end,
label, score] and related as objects, with labels and relations by number.
All labels of a span count (multi_label, no flat_ner). Thresholds stand in gaps of the scores. Models
that read the labels beside the text find something else when they are sorted, by more than 1e-3; where a
tower reads each label alone, the scores of the labels differ.
"""

import json
import os
import shutil
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import torch
from gliner import GLiNER

import gliner_relex
import gliner_spans
import manifest

OUT = manifest.GOLDEN / "gliner-order"
TEXT = "Angela Merkel lived in Berlin, not in New York."
LABELS = ["person", "city", "job title"]
RELATIONS = ["lives in", "born in"]
MODELS = ["gliner-bert-span", "gliner-modernbert-span", "gliner-modernbert-token", "gliner-deberta-span",
          "gliner-bi-modernbert-span", "gliner-bi-deberta-token", "relex-span",
          "relex-token"]
ALL = {"flat_ner": False, "multi_label": True}


def scores(name, model, relations):
    """The scores of all labels at all places."""
    if name.startswith("relex"):
        out = gliner_relex.forward(model, TEXT, LABELS, relations, threshold=0.5, adjacency_threshold=0.5)[1]
        return torch.sigmoid(out.logits[0]).numpy()
    prepared = model.prepare_batch([TEXT], LABELS)
    batch = model.collate_batch(prepared["input_x"], prepared["entity_types"], model.create_collator())
    with torch.no_grad():
        out = model.model(**{k: v for k, v in batch.items() if isinstance(v, torch.Tensor)})
    return torch.sigmoid(out.logits[0]).numpy()


def pairs(model, threshold):
    """The scores of all relations between entities above a threshold."""
    out = gliner_relex.forward(model, TEXT, LABELS, RELATIONS, threshold=threshold,
                               adjacency_threshold=max(threshold, 0.5))[1]
    return torch.sigmoid(out.rel_logits[out.rel_mask]).numpy()


def thresholds(name, model, relations):
    """Thresholds of entities and of relations in gaps of the scores; none of relations is 0."""
    quantiles = (0.4, 0.3) if "token" in name else (0.97, 0.93, 0.85, 0.7, 0.5, 0.3)
    for threshold in gliner_spans.gaps(scores(name, model, relations), quantiles):
        if not 0.1 <= threshold < 1:
            continue
        if not relations:
            yield threshold, 0.0
            continue
        among = pairs(model, threshold)
        if among.size < 2:
            continue
        for limit in gliner_spans.gaps(among, (0.99, 0.97, 0.95, 0.9, 0.8, 0.6, 0.4)):
            yield threshold, limit


def found(name, model, labels, relations, threshold, limit):
    """Entities and relations by place and name, with their scores."""
    if not name.startswith("relex"):
        entities, related = model.inference([TEXT], labels, threshold=threshold, **ALL), [[]]
    else:
        entities, related = model.inference([TEXT], labels, relations=relations, threshold=threshold,
                                            relation_threshold=limit,
                                            adjacency_threshold=max(threshold, 0.5), **ALL)
    triples = [(r["head"]["text"], r["tail"]["text"], r["relation"], r["score"]) for r in related[0]]
    triples.sort(key=lambda r: (-r[3], r[2], r[0], r[1]))
    return [(e["start"], e["end"], e["label"], e["score"]) for e in entities[0]], triples


def apart(a, b):
    """Whether one list has what the other lacks, or a score differs by more than 1e-3."""
    a, b = ({x[:3]: x[3] for x in both} for both in (a, b))
    return a.keys() != b.keys() or any(abs(a[k] - b[k]) > 1e-3 for k in a)


def make(name):
    model = GLiNER.from_pretrained(str(manifest.GOLDEN / name))
    model.eval()
    related = name.startswith("relex")
    relations = RELATIONS if related else []
    for threshold, limit in thresholds(name, model, relations):
        entities, triples = found(name, model, LABELS, relations, threshold, limit)
        if 2 <= len(entities) <= 40 and (related or len({e[2] for e in entities}) > 1) and \
                len(triples) in range(bool(related), 61):
            break
    else:
        raise AssertionError(f"{name}: no threshold has entities of two labels, and few of them")
    other = found(name, model, sorted(LABELS), sorted(relations), threshold, limit)
    if "-bi-" not in name:
        assert apart(entities, other[0]), name
    if related:
        assert apart(triples, other[1]), name
    print(name, threshold, len(entities), "entities", limit, len(triples), "relations")
    return {"model": name, "text": TEXT, "labels": LABELS, "relations": relations or None,
            "threshold": threshold, "relation_threshold": limit,
            "entities": [[a, b, LABELS.index(l), round(s, 6)] for a, b, l, s in entities],
            "related": [{"head": h, "tail": t, "relation": RELATIONS.index(r), "score": round(s, 6)}
                        for h, t, r, s in triples]}


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    body = ",\n".join(json.dumps(make(name), ensure_ascii=True, separators=(",", ":")) for name in MODELS)
    (OUT / "cases.json").write_text("[\n" + body + "\n]\n")
    manifest.write(OUT, "python tools/golden/gliner_order.py", "the models of the other cases", "float32",
                   {})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
