"""Late interaction over a tiny random ModernBERT, by PyLate.

    build/venv-pylate/bin/python tools/golden/pylate_colbert.py        (make golden-pylate)

Each case is a folder testdata/golden/pylate-<name>: a model directory as PyLate saves it (encoder,
two Dense modules, config_sentence_transformers.json with prefixes, lengths and skip list),
texts.json with the texts, and golden.safetensors:

    query.ids [T] int32, query.cu [B+1] int32   the tokens that PyLate gives the encoder
    query         [R, 24] f32   unit vectors of all texts as queries, query.rows [B+1] int32 the places of each
    document…                   the same of all texts as documents
    scores        [B, B] f32    MaxSim of each text as a query with each as a document

A text is run alone. The window is ±4, so that it cuts queries, too: where they are filled up with
tokens that no token attends to, tokens far behind the text see nothing in the second block.
"""

import json
import logging
import math
import shutil

import numpy as np
import torch
from pylate import models, scores
from safetensors.torch import save_file
from transformers import ModernBertConfig, ModernBertModel

import bytelevel
import coarse
import manifest

TEXTS = [
    "the cat sat on the mat",
    "zebra, quiz! 42?",
    "a",
    "",
    "what is the tallest mountain in the world, and how tall is it really?",
    "Ärger — 北京.",
]
CASES = {
    # Filled up with [MASK], which no token attends to; documents without punctuation.
    "expanded": dict(query_length=24, document_length=40, do_query_expansion=True,
                     attend_to_expansion_tokens=False, query_prefix="[Q] ", document_prefix="[D] "),
    # Filled up with [MASK], which all tokens attend to; documents lose two signs alone.
    "attended": dict(query_length=30, document_length=60, do_query_expansion=True,
                     attend_to_expansion_tokens=True, query_prefix="[Q] ", document_prefix="[D] ",
                     skiplist_words=["!", "t"]),
    # Neither filled up nor marked.
    "plain": dict(query_length=16, document_length=50, do_query_expansion=False,
                  query_prefix="", document_prefix="", skiplist_words=[]),
}


def randomise(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("norm.weight"):
                p.copy_(1 + coarse.normal(p.shape, 0.2, generator))
            elif "embeddings." in name:
                p.copy_(coarse.normal(p.shape, 0.3, generator))
            else:
                p.copy_(coarse.normal(p.shape, 1.1 / math.sqrt(p.shape[1]), generator))


def dense(seed, rows, columns, **more):
    generator = torch.Generator().manual_seed(seed)
    layer = models.Dense(columns, rows, bias=False, **more)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(coarse.normal(p.shape, 1 / math.sqrt(columns), generator))
    return layer


def make(name, options, seed):
    case = manifest.GOLDEN / f"pylate-{name}"
    shutil.rmtree(case, ignore_errors=True)
    source = case / "source"
    config = ModernBertConfig(vocab_size=bytelevel.SIZE, hidden_size=64, num_hidden_layers=2,
                              num_attention_heads=2, intermediate_size=24, max_position_embeddings=80,
                              local_attention=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                              cls_token_id=1, sep_token_id=2)
    encoder = ModernBertModel(config).eval()
    randomise(encoder, seed)
    encoder.save_pretrained(source)
    bytelevel.tokenizer(80).save_pretrained(source)
    first = models.Transformer(str(source)) if hasattr(models, "Transformer") else None
    if first is None:
        from sentence_transformers.models import Transformer
        first = Transformer(str(source))
    chain = [first, dense(seed + 1, 48, 64), dense(seed + 2, 24, 48, use_residual=True)]
    model = models.ColBERT(modules=chain, device="cpu", **options)
    model.save(str(case), create_model_card=False)
    shutil.rmtree(source)
    model = models.ColBERT(str(case), device="cpu").eval()
    tensors, vectors = {}, {}
    for role, query in (("query", True), ("document", False)):
        rows = [model.encode([t], is_query=query, convert_to_numpy=True, show_progress_bar=False)[0]
                for t in TEXTS]
        ids = [model.tokenize([t], is_query=query)["input_ids"][0].numpy() for t in TEXTS]
        vectors[role] = [torch.from_numpy(r)[None] for r in rows]
        tensors[role] = np.concatenate(rows).astype(np.float32)
        tensors[role + ".rows"] = np.cumsum([0] + [len(r) for r in rows]).astype(np.int32)
        tensors[role + ".ids"] = np.concatenate(ids).astype(np.int32)
        tensors[role + ".cu"] = np.cumsum([0] + [len(i) for i in ids]).astype(np.int32)
    pairs = [[scores.colbert_scores(q, d).item() for d in vectors["document"]] for q in vectors["query"]]
    tensors["scores"] = np.array(pairs, np.float32)
    save_file({k: torch.from_numpy(v) for k, v in tensors.items()}, case / "golden.safetensors")
    (case / "texts.json").write_text(json.dumps(TEXTS, indent=1, ensure_ascii=False) + "\n")
    from pylate import __version__ as version
    manifest.write(case, "python tools/golden/pylate_colbert.py", f"random ModernBert, seed {seed}",
                   "float32", {"pylate": version, "options": options})
    print(case.name, {k: v.shape for k, v in tensors.items()})


def main():
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for seed, (name, options) in enumerate(CASES.items(), start=361):
        make(name, options, 10 * seed)


if __name__ == "__main__":
    main()
