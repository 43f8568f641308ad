"""Whole directories of tiny DeBERTas whose tokenizer is spm.model and added_tokens.json alone, and what
the libraries give for texts: a reranker as mxbai-rerank v1 by sentence-transformers, zero-shot classes by
transformers' pipeline, with entailment in the middle and in another case, and a tagger's entities.

    python tools/golden/deberta_text.py

    testdata/golden/text-deberta-rerank    texts.json, pairs; scores [B] f32
    testdata/golden/text-deberta-zero      texts.json, objects as in pipelines.py; scores [N] f32
    testdata/golden/text-deberta-tags      texts.json as in pipelines.py; scores [N] f32

Every text is run alone, float32. The SentencePiece model has no character map, with which transformers
5.23's class gives other ids (docs/compatibility.md); texts begin with no space, for the same reason.
"""

import io
import json
import logging

import numpy as np
import sentencepiece
import torch
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder
from transformers import (
    DebertaV2ForSequenceClassification, DebertaV2ForTokenClassification, DebertaV2Tokenizer, pipeline,
)

import deberta
import heads
import manifest
import pipelines

COMMAND = "python tools/golden/deberta_text.py"
PIECES = 88
LONGEST = 60
NAMES = ["contradiction", "ENTAILMENT", "neutral"]
QUESTIONS = [("Angela spoke in parliament", ["politics", "sport", "sea"], "This text is about {}."),
             ("goal!", ["sport"], "It is {}, yes."), ("the cat", ["cats", "dogs", "cats"], "{}")]
TEXTS = ["Angela Merkel lived in Berlin, not in New York.", "the cat [MASK] sat",
         "na\u00efve caf\u00e9 Z\u00fcrich", "ok", "one two  three   four", "the cat " * 30]


def tokenizer(case):
    corpus = [t for t in TEXTS] * 3 + [x for q in QUESTIONS for x in (q[0], *q[1], q[2])] * 3
    corpus += [x for p in heads.PAIRS for x in p if x] * 3
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=out, vocab_size=PIECES, model_type="unigram",
        normalization_rule_name="identity", hard_vocab_limit=True, num_threads=1, minloglevel=2,
        pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]",
        unk_piece="[UNK]")
    (case / "spm.model").write_bytes(out.getvalue())
    for name, value in {
            "added_tokens.json": {"[MASK]": PIECES},
            "tokenizer_config.json": {"do_lower_case": False, "vocab_type": "spm",
                                      "tokenizer_class": "DebertaV2Tokenizer", "model_max_length": LONGEST},
    }.items():
        (case / name).write_text(json.dumps(value) + "\n")
    t = DebertaV2Tokenizer.from_pretrained(case)
    # The slow class, which 5.23 lacks, was the sentencepiece library between [CLS] and [SEP]. It gives
    # the same ids but where characters without a piece stand together.
    slow = sentencepiece.SentencePieceProcessor(model_file=str(case / "spm.model"))
    for text in (x for x in TEXTS if "[MASK]" not in x):
        pieces = slow.encode(text)
        assert 3 in pieces or [1, *pieces, 2] == t(text)["input_ids"], text
    return t


def build(name, class_, seed, **own):
    case = deberta.fresh(f"text-deberta-{name}")
    t = tokenizer(case)
    assert len(t) == PIECES + 1
    keys = dict(vocab_size=PIECES + 8, num_hidden_layers=1) | own
    deberta.random_model(case, class_.__name__, keys, seed)
    return case, class_.from_pretrained(case, dtype=torch.float32).eval(), t


def write(case, texts, seed, scores):
    (case / "texts.json").write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n")
    save_file({"scores": torch.from_numpy(np.array(scores, dtype=np.float32))}, case / "golden.safetensors")
    manifest.write(case, COMMAND, f"random DebertaV2, seed {seed}", "float32", {})
    print(case.name, len(scores), sum(f.stat().st_size for f in case.iterdir()) // 1024, "KiB")


def rerank(seed):
    case, _, t = build("rerank", DebertaV2ForSequenceClassification, seed, num_labels=1)
    model = CrossEncoder(str(case), device="cpu", max_length=LONGEST, model_kwargs={"dtype": "float32"},
                         tokenizer_kwargs={"use_fast": True})
    assert type(model.tokenizer).__name__ == "DebertaV2Tokenizer"
    write(case, heads.PAIRS, seed, [model.predict([p])[0] for p in heads.PAIRS])


def zero(seed):
    case, model, t = build("zero", DebertaV2ForSequenceClassification, seed,
                           **deberta.names(dict(enumerate(NAMES))))
    run = pipeline("zero-shot-classification", model=model, tokenizer=t, device="cpu")
    answers, scores = [], []
    for text, labels, template in QUESTIONS:
        labels = list(dict.fromkeys(labels))  # a request names each once
        for multi in (False, True):
            found = run(text, labels, hypothesis_template=template, multi_label=multi)
            score = dict(zip(found["labels"], found["scores"]))
            answers.append({"text": text, "labels": labels, "template": template, "multi_label": multi})
            scores += [score[label] for label in labels]
    write(case, answers, seed, scores)


def tags(seed):
    case, model, t = build("tags", DebertaV2ForTokenClassification, seed, **deberta.names(pipelines.TAGS))
    run = pipeline("token-classification", model=model, tokenizer=t, aggregation_strategy="simple",
                   device="cpu")
    found = [run([text])[0] for text in TEXTS]
    write(case, [[text, [[e["entity_group"], e["start"], e["end"]] for e in list_]]
                 for text, list_ in zip(TEXTS, found)], seed,
          [float(e["score"]) for list_ in found for e in list_])


def main():
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    rerank(831)
    zero(832)
    tags(833)


if __name__ == "__main__":
    main()
