"""Whole directories of tiny ModernBERTs with a byte-level tokenizer, and what the libraries give for
texts: an embedder and a reranker by sentence-transformers, zero-shot classes by transformers'
pipeline.

    python tools/golden/modernbert_text.py

    testdata/golden/text-modernbert-embed     texts.json; vectors [B, 64] f32
    testdata/golden/text-modernbert-rerank    texts.json, pairs; scores [B] f32
    testdata/golden/text-modernbert-zero      texts.json, objects as in pipelines.py; scores [N] f32

Every text is run alone, float32. The window is ±4.
"""

import json
import logging
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from transformers import ModernBertConfig, ModernBertForSequenceClassification, ModernBertModel, pipeline

import bytelevel
import heads
import manifest
import modernbert
import sentence

LONGEST = 60
SHAPE = modernbert.SMALL | dict(vocab_size=bytelevel.SIZE, max_position_embeddings=LONGEST)
NAMES = ["entailment", "not_entailment"]
QUESTIONS = [("Angela spoke in parliament", ["politics", "sport", "sea"], "This text is about {}."),
             ("goal!", ["sport"], "It is {}, yes."), ("   ", ["nothing", "all"], "This text is about {}.")]


def folder(name):
    case = manifest.GOLDEN / f"text-modernbert-{name}"
    shutil.rmtree(case, ignore_errors=True)
    return case


def write(case, texts, seed, **arrays):
    (case / "texts.json").write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n")
    save_file({k: torch.from_numpy(np.ascontiguousarray(v, dtype=np.float32)) for k, v in arrays.items()},
              case / "golden.safetensors")
    manifest.write(case, "python tools/golden/modernbert_text.py", f"random ModernBert, seed {seed}",
                   "float32", {})
    print(case.name, {k: np.asarray(v).shape for k, v in arrays.items()})


def embed(seed):
    case = folder("embed")
    source = case / "source"
    model = ModernBertModel(ModernBertConfig(**SHAPE)).eval()
    modernbert.randomise(model, seed)
    model.save_pretrained(source)
    bytelevel.tokenizer(LONGEST).save_pretrained(source)
    chain = [Transformer(str(source)), Pooling(64, pooling_mode="cls"), Normalize()]
    SentenceTransformer(modules=chain, device="cpu").save(str(case), create_model_card=False)
    shutil.rmtree(source)
    model = SentenceTransformer(str(case), device="cpu").eval()
    write(case, sentence.TEXTS, seed, vectors=np.stack([model.encode([t])[0] for t in sentence.TEXTS]))


def classifier(case, seed, **own):
    model = ModernBertForSequenceClassification(ModernBertConfig(**SHAPE | own)).eval()
    modernbert.randomise(model, seed)
    model.save_pretrained(case)
    bytelevel.tokenizer(LONGEST).save_pretrained(case)


def rerank(seed):
    case = folder("rerank")
    classifier(case, seed, num_labels=1, classifier_pooling="mean")
    model = CrossEncoder(str(case), device="cpu", max_length=LONGEST)
    write(case, heads.PAIRS, seed, scores=np.stack([model.predict([p])[0] for p in heads.PAIRS]))


def zero(seed):
    case = folder("zero")
    classifier(case, seed, id2label=dict(enumerate(NAMES)), label2id={n: i for i, n in enumerate(NAMES)})
    model = ModernBertForSequenceClassification.from_pretrained(case).eval()
    run = pipeline("zero-shot-classification", model=model, tokenizer=bytelevel.tokenizer(LONGEST),
                   device="cpu")
    answers, scores = [], []
    for text, labels, template in QUESTIONS:
        for multi in (False, True):
            found = run(text, labels, hypothesis_template=template, multi_label=multi)
            score = dict(zip(found["labels"], found["scores"]))
            answers.append({"text": text, "labels": labels, "template": template, "multi_label": multi})
            scores += [score[label] for label in labels]
    write(case, answers, seed, scores=scores)


def main():
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    embed(381)
    rerank(382)
    zero(383)


if __name__ == "__main__":
    main()
