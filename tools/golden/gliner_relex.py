"""Tiny random GLiNER models of entities and relations, and what the package makes of whole texts.

    python tools/golden/gliner_relex.py [name ...]

Each case is a folder testdata/golden/relex-<name>, a model directory with golden.safetensors and
texts.json. Packed over the texts, every text run alone, float32:

    ids [T], cu [B+1] int32               tokens, prompt first
    first, last [W], cu_words [B+1]       places of each word's subtokens in its text
    markers [M], cu_markers [B+1]         places of the label tokens (or of those behind them)
    relations [R], cu_relations [B+1]     the same of the relations
    begin, end [S], cu_spans [B+1]        first and last words of the candidates, in the model's order
    states [S, D] f32                     of the candidates
    logits f32                            of all entities: spans [W, width, N] or words [W, N, 3]
    pairs f32                             [S, S, R] relations of each ordered pair of a text, diagonals 0
    adjacency f32                         [S, S] of a text, of models that have one

texts.json: objects with text, labels, relations and requests: threshold, relation_threshold,
flat_ner, multi_label, and entities and relations as `inference` gives them. Thresholds stand in
gaps of the scores.
"""

import json
import os
import shutil
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import torch
from gliner import GLiNER
from gliner.model import UniEncoderSpanRelexGLiNER, UniEncoderTokenRelexGLiNER
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerFast

import gliner_spans
import manifest

TEXTS = [
    (
        "Angela Merkel lived in Berlin, not in New York.",
        ["city", "job title", "person"],
        ["born in", "lives in"],
    ),
    ("Berlin", ["city"], ["lives in"]),
    (gliner_spans.LONG + " met Ann", ["organization", "person"], ["works for", "met", "part of"]),
    ("Анна Каренина поехала в Москву на поезде", ["person", "город"], ["едет в"]),
    ("東京都に住む田中さん", ["date", "food", "person", "place"], ["lives in", "eats"]),
    ("caf\u00e9 e\u0301 na\u00efve \U0001f642 ok\U0001f642!", ["drink", "smile"], ["beside"]),
    ("pay Bob 5 " * 9, ["money", "person", "verb"], ["b", "a"]),
]

# The published server keeps so many of a window's candidates, the first ones; the tensors have fewer.
CANDIDATES, SHOWN = 100, 9

DEBERTA = dict(gliner_spans.DEBERTA, num_hidden_layers=1, intermediate_size=32)

# name: changes to the configuration, number of texts, a seed with which entities and relations are found
CASES = {
    "span": (dict(span_mode="markerV0", relations_layer="none", num_rnn_layers=1, max_width=6), 7, 101),
    "token": (
        dict(span_mode="token_level", relations_layer="none", num_rnn_layers=1, embed_rel_token=False),
        7,
        105,
    ),
    "gcn": (dict(span_mode="markerV0", relations_layer="gcn", num_rnn_layers=0, max_width=4), 5, 105),
    "dot": (dict(span_mode="markerV0", relations_layer="dot", num_rnn_layers=0, max_width=3), 2, 105),
    "bilinear": (
        dict(span_mode="markerV0", relations_layer="bilinear", num_rnn_layers=0, max_width=3),
        2,
        108,
    ),
}


def make(name: str) -> None:
    changes, count, seed = CASES[name]
    case = manifest.GOLDEN / f"relex-{name}"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    # trained anew, a vocabulary would not be the same one
    t = PreTrainedTokenizerFast.from_pretrained(manifest.ROOT / "testdata/golden/gliner-deberta-span")
    t.add_tokens(["<<REL>>"], special_tokens=True)
    span = changes["span_mode"] != "token_level"
    kind = UniEncoderSpanRelexGLiNER if span else UniEncoderTokenRelexGLiNER
    config = kind.config_class(
        encoder_config=dict(DEBERTA, vocab_size=len(t)),
        model_name=f"sie/relex-{name}",
        vocab_size=len(t),
        hidden_size=16,
        class_token_index=t.convert_tokens_to_ids("<<ENT>>"),
        rel_token_index=t.convert_tokens_to_ids("<<REL>>"),
        **changes,
    )
    torch.manual_seed(seed)
    model = kind(config, tokenizer=t, backbone_from_pretrained=False)
    model.eval()
    gliner_spans.randomise(model.model, seed)
    texts = TEXTS[:count]
    spread(model, texts)
    model.save_pretrained(case, safe_serialization=True)
    loaded = GLiNER.from_pretrained(str(case))
    assert type(loaded).__name__ == kind.__name__, type(loaded)
    loaded.eval()
    cap(loaded.model)
    write(case, loaded, texts)
    manifest.write(
        case,
        "python tools/golden/gliner_relex.py",
        f"random deberta-v2 GLiNER-relex, {changes}",
        "float32",
        {"gliner": __import__("gliner").__version__, "seed": seed},
    )
    print(name, sum(p.stat().st_size for p in case.rglob("*")) // 1024, "KB")


def cap(core) -> None:
    """Keeps the first candidates of a text, as the published server does."""
    represent, core.most = core.represent_spans, CANDIDATES

    def capped(*args, **kwargs):
        out = represent(*args, **kwargs)
        return (out[0], *(x[:, : core.most] for x in out[1:]))

    core.represent_spans = capped


def forward(model, text, labels, relations, **thresholds):
    """One forward pass, with the states of the candidates and their adjacency."""
    seen, core = {}, model.model
    represent = core.represent_spans

    def represented(*args, **kwargs):
        out = represent(*args, **kwargs)
        seen["states"], seen["mask"] = out[1][0], out[2][0].bool()
        return out

    core.represent_spans = represented
    hook = None
    if hasattr(core, "relations_rep_layer"):
        hook = core.relations_rep_layer.register_forward_hook(
            lambda _m, _i, out: seen.__setitem__("adjacency", out[0])
        )
    prepared = model.prepare_batch([text], labels, relations=relations)
    batch = model.collate_batch(
        prepared["input_x"], prepared["entity_types"], model.create_collator(), prepared["relation_types"]
    )
    with torch.no_grad():
        out = model.run_batch(batch, **thresholds)
    core.represent_spans = represent
    if hook:
        hook.remove()
    return batch, out, seen


def spread(model, texts) -> None:
    """Scales last layers so that entities' and relations' logits have a standard deviation of 2."""
    core = model.model
    logits = [forward(model, *t, threshold=0.5)[1].logits.flatten() for t in texts]
    std = float(torch.cat(logits).std())
    mean = float(torch.cat(logits).mean())
    with torch.no_grad():
        if hasattr(core, "scorer"):
            last = core.scorer.out_mlp[3]
            last.weight.mul_(2.5 / std)
            last.bias.mul_(2.5 / std).add_(0.3 - mean * 2.5 / std)
        else:
            core.prompt_rep_layer[3].weight.mul_(2 / std)
            core.prompt_rep_layer[3].bias.mul_(2 / std)
        pairs = [forward(model, *t, threshold=0.5, adjacency_threshold=-1.0)[1] for t in texts]
        std = float(torch.cat([out.rel_logits[out.rel_mask].flatten() for out in pairs]).std())
        core.pair_rep_layer[3].weight.mul_(2 / std)
        core.pair_rep_layer[3].bias.mul_(2 / std)
        layer = getattr(getattr(core, "relations_rep_layer", None), "relation_rep_layer", None)
        if not hasattr(layer, "proj"):
            return
        rows = []  # around 0, so that some pairs are adjacent and others are not
        hook = layer.proj.register_forward_hook(lambda _m, _i, out: rows.append(out.flatten(0, -2)))
        for t in texts:
            forward(model, *t, threshold=0.5)
        hook.remove()
        layer.proj.bias.sub_(torch.cat(rows).mean(0))
        for _ in range(20):  # neither 0 nor 1
            near = [forward(model, *t, threshold=0.5)[2]["adjacency"].flatten() for t in texts]
            std = float(torch.logit(torch.cat(near), eps=1e-7).std())
            if not std > 3:
                break
            layer.proj.weight.mul_((2 / std) ** 0.5)
            layer.proj.bias.mul_((2 / std) ** 0.5)


def write(case, model, texts) -> None:
    packed, requests = {}, []
    cu = {k: [0] for k in ("cu", "cu_words", "cu_markers", "cu_relations", "cu_spans")}
    tokenizer = model.data_processor.transformer_tokenizer
    span = model.config.span_mode != "token_level"

    def add(key, value):
        value = torch.tensor(value, dtype=torch.int32) if isinstance(value, list) else value.detach().float()
        packed.setdefault(key, []).append(value.flatten() if value.dim() != 2 else value)

    def markers(ids, token, embed):
        return [i + (not embed) for i, x in enumerate(ids) if x == token]

    for text, labels, relations in texts:
        model.model.most = SHOWN
        batch, out, seen = forward(
            model, text, labels, relations, threshold=0.5, adjacency_threshold=-1.0
        )
        ids = batch["input_ids"][0].tolist()
        words = model.prepare_inputs([text])[0][0]
        prompt, _ = model.data_processor.prepare_inputs([[]], labels, relations=relations)
        of = tokenizer([prompt[0] + list(words)], is_split_into_words=True).word_ids(0)
        assert len(of) == len(ids)
        places = [[i for i, w in enumerate(of) if w == len(prompt[0]) + k] for k in range(len(words))]
        entity = markers(ids, model.config.class_token_index, model.config.embed_ent_token)
        relation = markers(ids, model.config.rel_token_index, model.config.embed_rel_token)
        assert len(entity) == len(labels) and len(relation) == len(relations)
        n = int(seen["mask"].sum())
        spans = out.entity_spans[0][:n]
        pairs = torch.zeros(n, n, len(relations))
        for (h, t), mask, row in zip(out.rel_idx[0].tolist(), out.rel_mask[0], out.rel_logits[0]):
            if mask:
                pairs[h, t] = row
        model.model.most = CANDIDATES
        add("ids", ids)
        add("first", [p[0] for p in places])
        add("last", [p[-1] for p in places])
        add("markers", entity)
        add("relations", relation)
        add("begin", spans[:, 0].tolist())
        add("end", spans[:, 1].tolist())
        add("states", seen["states"][:n])
        add("logits", out.logits[0][: len(words)])
        add("pairs", pairs)
        if "adjacency" in seen:
            add("adjacency", seen["adjacency"][:n, :n].flatten())
        for key, count in (
            ("cu", len(ids)),
            ("cu_words", len(words)),
            ("cu_markers", len(entity)),
            ("cu_relations", len(relation)),
            ("cu_spans", n),
        ):
            cu[key].append(cu[key][-1] + count)
        requests.append(
            {
                "text": text,
                "labels": labels,
                "relations": relations,
                "requests": list(ask(model, text, labels, relations, span)),
            }
        )
    tensors = {k: torch.cat(v).contiguous() for k, v in packed.items()}
    tensors.update({k: torch.tensor(v, dtype=torch.int32) for k, v in cu.items()})
    save_file(tensors, case / "golden.safetensors")
    (case / "texts.json").write_text(json.dumps(requests, ensure_ascii=True, separators=(",", ":")) + "\n")


def ask(model, text, labels, relations, span):
    """Requests as the published server makes them of a caller's, with what the package answers."""
    first = torch.sigmoid(forward(model, text, labels, relations, threshold=0.5)[1].logits)
    for threshold in gliner_spans.gaps(first.numpy(), (0.75, 0.93) if span else (0.2, 0.4)):
        if threshold < 0.1:
            continue
        adjacent = max(threshold, 0.5)
        _, out, seen = forward(
            model, text, labels, relations, threshold=threshold, adjacency_threshold=adjacent
        )
        near = seen.get("adjacency", torch.zeros(0))
        if ((near - adjacent).abs() < 1e-4).any():
            continue
        scores = torch.sigmoid(out.rel_logits[out.rel_mask])
        limits = [1.0] + (gliner_spans.gaps(scores.numpy(), (0.6, 0.9)) if scores.numel() > 1 else [0.3])
        for limit in limits:
            for flat, multi in ((True, False), (False, False), (True, True)):
                entities, found = model.inference(
                    [text], labels, relations=relations, flat_ner=flat, multi_label=multi,
                    threshold=threshold, relation_threshold=limit, adjacency_threshold=adjacent,
                )
                if len(entities[0]) > 20 or len(found[0]) > 9 or not found[0] and not (flat and not multi):
                    continue
                triples = [
                    {"head": r["head"]["text"], "tail": r["tail"]["text"], "relation": r["relation"],
                     "score": round(r["score"], 6)}
                    for r in found[0]
                ]
                triples.sort(key=lambda r: (-r["score"], r["relation"], r["head"], r["tail"]))
                yield {
                    "threshold": threshold,
                    "relation_threshold": limit,
                    "flat_ner": flat,
                    "multi_label": multi,
                    "entities": [
                        {k: e[k] for k in ("text", "label", "start", "end")} | {"score": round(e["score"], 6)}
                        for e in entities[0]
                    ],
                    "relations": triples,
                }


if __name__ == "__main__":
    torch.set_num_threads(1)
    for case in CASES:
        if len(sys.argv) == 1 or case in sys.argv[1:]:
            make(case)
