"""Makes model directories in the shapes of archshapes.py, from seeds and without a hub: random weights,
and one tokenizer for all shapes, blown up to the vocabulary of each.

    archmodels.py ROW FOLDER [--layers N]

Weights are drawn in bfloat16, so that engines of either precision load the same numbers. Those of
queries and keys are larger than the others, because attention over random vectors would else be
uniform: made.json has the entropy of attention, and a model above MOST_ENTROPY is refused.
"""

import argparse
import collections
import functools
import json
import math
import os
import shutil
import sys
from pathlib import Path

import archshapes
import texts

MERGES = 1500
SHARPNESS = 1.6  # of queries and of keys, where no norm undoes it and the row names no other
HEAD_SCALE = 0.1  # of the word table, where it is a reranker's head too
MOST_ENTROPY = 0.95  # of the logarithm of the number of tokens in sight
SPECIALS = ["<|im_start|>", "<|im_end|>"]
WHOLE_WORDS = ["yes", "no"]  # that a reranker's head is read at


def words():
    """How often each pre-token stands in texts like those of the race."""
    from tokenizers import pre_tokenizers

    split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    corpus = texts.short_queries(2000, seed=301) + texts.sentences(2000, seed=303)
    return collections.Counter(piece for text in corpus for piece, _ in split(text))


def pairs_of(pieces, count):
    """How often each pair of neighbours stands in pieces, a list for each word."""
    found = collections.Counter()
    for word, parts in pieces.items():
        for pair in zip(parts, parts[1:]):
            found[pair] += count[word]
    return found


def join(parts, pair):
    out = []
    for part in parts:
        if out and (out[-1], part) == pair:
            out[-1] += part
        else:
            out.append(part)
    return out


@functools.cache
def learn():
    """Merges of a byte-level BPE. The library's trainer breaks ties by a hash; here the order of
    letters does, so that every machine has the same tokens."""
    count = words()
    pieces, merges = {w: list(w) for w in sorted(count)}, []
    for word in WHOLE_WORDS:
        merges += [(word[:i], word[i]) for i in range(1, len(word))]
    while len(merges) < MERGES:
        found = pairs_of(pieces, count)
        if not found:
            break
        best = min(found, key=lambda pair: (-found[pair], pair))
        if best not in merges:
            merges.append(best)
        pieces = {w: join(parts, best) for w, parts in pieces.items()}
    return merges


def vocabulary(merges, row):
    """Ids of all tokens. The tokens that occur are spread over the whole table, as a real
    vocabulary's are; the rest is filled up with tokens that no text has."""
    from tokenizers import pre_tokenizers

    size = archshapes.size(row, "vocab_size")
    front, behind, pad = row["special"]
    reserved = sorted({*front, *behind, pad})
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet()) + ["".join(pair) for pair in merges] + SPECIALS
    tokens = list(dict.fromkeys(tokens))
    free = [i for i in range(size) if i not in reserved]
    if len(tokens) > len(free):
        raise SystemExit(f"a vocabulary of {size} has no room for {len(tokens)} tokens")
    step = len(free) // len(tokens)
    ids = {token: free[i * step] for i, token in enumerate(tokens)}
    used = set(ids.values())
    ids |= {f"<special {i}>": i for i in reserved}
    ids |= {f"<filler {i}>": i for i in free if i not in used}
    return ids, [f"<special {i}>" for i in reserved]


def tokenizer(row):
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    merges = learn()
    ids, special = vocabulary(merges, row)
    made = Tokenizer(models.BPE(vocab=ids, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in special + SPECIALS])
    front, behind, _ = row["special"]
    named = [f"<special {i}>" for i in front], [f"<special {i}>" for i in behind]
    if front or behind:
        # pairs as XLM-R writes them, with two ends between; ModernBERT and BERT write one
        twice = named[1] if row["config"][0].startswith("XLMRoberta") else []
        made.post_processor = processors.TemplateProcessing(
            single=[*named[0], "$A", *named[1]], pair=[*named[0], "$A", *named[1], *twice, "$B", *named[1]],
            special_tokens=[(t, ids[t]) for t in {*named[0], *named[1]}])
    return made


def save_tokenizer(row, into):
    made = tokenizer(row)
    made.save(str(into / "tokenizer.json"), pretty=False)
    front, behind, pad = row["special"]
    name = lambda ids: f"<special {ids[0]}>" if ids else None
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": row["limit"],
              "pad_token": f"<special {pad}>", "padding_side": "right", "clean_up_tokenization_spaces": False,
              "bos_token": name(front), "eos_token": name(behind), "cls_token": name(front),
              "sep_token": name(behind)}
    given = {k: v for k, v in config.items() if v is not None}
    (into / "tokenizer_config.json").write_text(json.dumps(given))


CLASSES = {"pair": "AutoModelForSequenceClassification", "yesno": "AutoModelForCausalLM"}


def build(row, layers):
    """A model with random weights."""
    import torch
    import transformers

    kind, sizes = row["config"]
    sizes = dict(sizes) | ({"num_hidden_layers": layers} if layers else {})
    config = getattr(transformers, kind)(**sizes)
    auto = getattr(transformers, CLASSES.get(row["pooling"], "AutoModel"))
    with torch.no_grad():
        torch.manual_seed(19)
        model = auto.from_config(config, dtype=torch.bfloat16).eval()
        for name, p in sorted(model.named_parameters()):
            draw(name, p, torch.Generator().manual_seed(hash_of(name)), row.get("sharpness", SHARPNESS))
        if row["pooling"] == "yesno":  # else the softmax of two words is 0 or 1
            model.get_input_embeddings().weight.mul_(HEAD_SCALE)
    return model


def hash_of(name):
    """A seed that every Python makes the same."""
    seed = 1469598103934665603
    for byte in name.encode():
        seed = (seed ^ byte) * 1099511628211 % 2**63
    return seed


def draw(name, p, generator, sharpness):
    """Fills a tensor so that vectors keep their size from block to block."""
    import torch

    rows = torch.randn(p.shape, generator=generator)
    last = name.split(".")[-2]
    if p.dim() < 2:
        base = p.float()  # norms begin at 1, or at 0 where 1 is added; biases begin at 0
        p.copy_(base + 0.05 * rows)
    elif "embed" in name.lower() or "relative" in name:
        p.copy_(0.5 * rows if "relative" not in name else rows)
    else:
        sharp = last in ("q", "k") or any(k in last.lower()
                                          for k in ("query", "key", "qkv", "q_proj", "k_proj"))
        p.copy_(rows * (sharpness if sharp else 1.0) / math.sqrt(p.shape[1]))


def entropy(folder, row):
    """Mean entropy of attention in the first and the last block, as a share of what uniform attention
    over the same tokens would have."""
    import torch
    import transformers

    auto = getattr(transformers, CLASSES.get(row["pooling"], "AutoModel"))
    model = auto.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    made = tokenizer(row)
    ids = torch.tensor([made.encode(" ".join(texts.sentences(12, seed=307))).ids[:128]])
    with torch.no_grad():
        seen = model(input_ids=ids, output_attentions=True).attentions
    shares = []
    for weights in (seen[0], seen[-1]):
        inside = (weights > 0).sum(-1).clamp(min=2).float().log()
        got = -(weights * weights.clamp(min=1e-30).log()).sum(-1)
        shares.append(float((got / inside)[..., 1:].mean()))
    return shares


def describe(name, model, row, folder):
    """What the reports need to know of a model."""
    tables = ("embed", "relative", "lm_head", "classifier", "score", "pooler", "head.")
    linear = sum(p.numel() for n, p in model.named_parameters()
                 if p.dim() == 2 and not any(t in n.lower() for t in tables))
    found = entropy(folder, row)
    if max(found) > MOST_ENTROPY:
        raise SystemExit(f"attention is all but uniform: {found}, at most {MOST_ENTROPY} is wanted")
    return {"row": name, "parameters": sum(p.numel() for p in model.parameters()),
            "linear_flop_per_token": 2 * linear, "layers": model.config.num_hidden_layers,
            "entropy_first_last": found}


def write_modules(row, into):
    base = "sentence_transformers.models."
    if archshapes.is_reranker(row):
        return
    (into / "modules.json").write_text(json.dumps([
        {"idx": 0, "name": "0", "path": "", "type": base + "Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": base + "Pooling"}]))
    (into / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": row["limit"], "do_lower_case": False}))
    (into / "1_Pooling").mkdir()
    flags = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}
    (into / "1_Pooling" / "config.json").write_text(json.dumps(
        {"word_embedding_dimension": archshapes.size(row, "hidden_size")} |
        {f"pooling_mode_{f}": f == flags[row["pooling"]] for f in flags.values()}))


def make(name, folder, layers=0):
    """Writes the directory if it isn't there, and returns what made.json says."""
    row, folder = archshapes.ROWS[name], Path(folder)
    if not (folder / "made.json").exists():
        parts = Path(f"{folder}.parts-{os.getpid()}")
        parts.mkdir(parents=True)
        try:
            model = build(row, layers)
            model.save_pretrained(parts)
            save_tokenizer(row, parts)
            write_modules(row, parts)
            (parts / "made.json").write_text(json.dumps(describe(name, model, row, parts)))
            os.replace(parts, folder)
        finally:
            shutil.rmtree(parts, ignore_errors=True)
    return json.loads((folder / "made.json").read_text())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("row", choices=archshapes.ROWS)
    p.add_argument("folder", type=Path)
    p.add_argument("--layers", type=int, default=0)
    args = p.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    print(json.dumps(make(args.row, args.folder, args.layers)), file=sys.stdout)


if __name__ == "__main__":
    main()
