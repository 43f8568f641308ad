"""One tiny random model of each kind of sentence-transformers, saved by several releases, and the
answers of each.

    python tools/golden/saved.py

Each case is a folder testdata/golden/saved-<kind>/<release>: a whole model directory as that
release saves it, texts.json, and golden.safetensors with what the model answered before it was
saved:

    ids, type_ids [T] int32, cu_seqlens [B+1] int32   packed tokens, of single texts or of pairs
    vectors [B, D] f32        SentenceTransformer.encode
    splade  [B, V] f32        SparseEncoder.encode_document;  queries [B, V] f32: encode_query
    scores  [B, labels] f32   CrossEncoder.predict

The manifest notes how far the answers are from these once the same release has read the folder
back: from 5.4 on, do_lower_case is kept as a normalizer in tokenizer.json, which transformers'
BertTokenizer drops when it is read.

The weights of a kind are the same in every release. The releases stand side by side in
build/venv-golden (requirements.txt, --target); each runs in a process of its own.
"""

import inspect
import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel, BertTokenizerFast,
)

import bert
import manifest

RELEASES = ["5.3.0", "5.4.1", "6.2.0"]
KINDS = ["embedder", "sparse", "router", "reranker", "labels"]

CONFIG = dict(vocab_size=85, hidden_size=16, num_hidden_layers=1, num_attention_heads=1, intermediate_size=24,
              max_position_embeddings=40, type_vocab_size=2)
TEXTS = ["a", "The CAT sat on the mat", "zebra quiz 42", "the tallest mountain in the world"]
PAIRS = [["how tall", "8849 metres"], ["Zebra", "A"], ["", "nothing was asked"],
         ["what is a cat", "the cat sat on the mat, and the cat is an animal that sleeps and sleeps"]]


def tokenizer(lowercase: bool) -> BertTokenizerFast:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]",
             "[MASK]"] + list(letters) + ["##" + c for c in letters] + list(".,:;!?-'")
    fast = Tokenizer(models.WordPiece({t: i for i, t in enumerate(vocab)}, unk_token="[UNK]"))
    fast.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]",
                                                        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return BertTokenizerFast(tokenizer_object=fast, model_max_length=40, do_lower_case=lowercase)


def base(folder: pathlib.Path, model_class, seed: int, lowercase: bool = True, **own) -> None:
    model = model_class(BertConfig(**CONFIG, **own)).eval()
    bert.randomise(model, seed, 0.9)
    model.save_pretrained(folder)
    tokenizer(lowercase).save_pretrained(folder)


def packed(rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate(rows).astype(np.int32), np.cumsum([0] + [len(r) for r in rows]).astype(np.int32)


def read(model, texts: list) -> list[dict]:
    """What a text alone becomes before the model."""
    preprocess = model.preprocess if hasattr(model, "preprocess") else model.tokenize
    return [preprocess([t]) for t in texts]


def twice(model, target: pathlib.Path, answers) -> tuple[dict, dict]:
    """What the model answers, and what it answers once it has been saved and read back."""
    before = answers(model.eval())
    model.save(str(target))
    (target / "README.md").unlink(missing_ok=True)
    return before, answers(type(model)(str(target), device="cpu").eval())


def embedder(source: pathlib.Path, target: pathlib.Path) -> tuple[dict, dict]:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

    base(source, BertModel, 301, lowercase=False)
    torch.manual_seed(302)
    model = SentenceTransformer(modules=[Transformer(str(source), max_seq_length=20, do_lower_case=True),
                                         Pooling(16, pooling_mode="mean"), Dense(16, 12), Normalize()],
                                device="cpu", prompts={"query": "query: ", "document": ""},
                                default_prompt_name="query")

    def answers(model) -> dict:
        ids, cu = packed([r["input_ids"][0].numpy() for r in read(model, ["query: " + t for t in TEXTS])])
        return {"ids": ids, "cu_seqlens": cu,
                "vectors": np.stack([model.encode([t], convert_to_numpy=True)[0] for t in TEXTS])}

    return twice(model, target, answers)


def masked(source: pathlib.Path):
    """The module of a masked language model, under the name that the release has for it."""
    from sentence_transformers.models import Transformer

    if "transformer_task" in inspect.signature(Transformer.__init__).parameters:
        return Transformer(str(source), transformer_task="fill-mask")
    from sentence_transformers.sparse_encoder.models import MLMTransformer

    return MLMTransformer(str(source))


def sparse(source: pathlib.Path, target: pathlib.Path, router: bool = False) -> tuple[dict, dict]:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.models import Router
    from sentence_transformers.sparse_encoder.models import SparseStaticEmbedding, SpladePooling

    base(source, BertForMaskedLM, 311)
    documents = [masked(source), SpladePooling("max", activation_function="log1p_relu" if router else "relu")]
    if router:
        weight = torch.rand(85, generator=torch.Generator().manual_seed(312))
        documents = [Router.for_query_document(
            query_modules=[SparseStaticEmbedding(weight=weight, tokenizer=tokenizer(True), frozen=True)],
            document_modules=documents)]

    def answers(model) -> dict:
        ids, cu = packed([r["input_ids"][0].numpy() for r in read(model, TEXTS)])
        out = {"ids": ids, "cu_seqlens": cu}
        for key, encode in (("splade", model.encode_document), ("queries", model.encode_query)):
            out[key] = np.stack([encode([t], convert_to_sparse_tensor=False)[0].numpy() for t in TEXTS])
        return out

    return twice(SparseEncoder(modules=documents, device="cpu"), target, answers)


def reranker(source: pathlib.Path, target: pathlib.Path, labels: bool = False) -> tuple[dict, dict]:
    from sentence_transformers import CrossEncoder

    own = dict(id2label={0: "contradiction", 1: "entailment", 2: "neutral"},
               label2id={"contradiction": 0, "entailment": 1, "neutral": 2}) if labels else dict(num_labels=1)
    base(source, BertForSequenceClassification, 321, **own)
    model = CrossEncoder(str(source), device="cpu", activation_fn=None if labels else torch.nn.Identity(),
                         max_length=30)

    def answers(model) -> dict:
        if hasattr(model, "preprocess"):
            tokens = read(model, PAIRS)
        else:
            tokens = [model.tokenizer([q], [d], truncation="longest_first", return_tensors="pt")
                      for q, d in PAIRS]
        ids, cu = packed([t["input_ids"][0].numpy() for t in tokens])
        types, _ = packed([t["token_type_ids"][0].numpy() for t in tokens])
        scores = np.stack([model.predict([pair]) for pair in PAIRS])
        return {"ids": ids, "type_ids": types, "cu_seqlens": cu, "scores": scores.reshape(len(PAIRS), -1)}

    return twice(model, target, answers)


MAKE = {"embedder": embedder, "sparse": sparse, "router": lambda s, t: sparse(s, t, True),
        "reranker": reranker, "labels": lambda s, t: reranker(s, t, True)}


def make(release: str) -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    assert manifest.versions()["sentence_transformers"] == release
    for kind in KINDS:
        case = manifest.GOLDEN / f"saved-{kind}" / release
        shutil.rmtree(case, ignore_errors=True)
        case.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as source:
            out, again = MAKE[kind](pathlib.Path(source), case)
        off = max(float(np.abs(out[k] - again[k]).max()) for k in out if out[k].dtype == np.float32)
        (case / "texts.json").write_text(json.dumps(PAIRS if "scores" in out else TEXTS, indent=1) + "\n")
        save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in out.items()},
                  case / "golden.safetensors")
        manifest.write(case, "python tools/golden/saved.py", f"random BERT as a {kind}", "float32",
                       {"max_abs_read_back": off})
        print(kind, release, {k: v.shape for k, v in out.items()}, "read back:", off)


def main() -> None:
    if len(sys.argv) > 1:
        return make(sys.argv[1])
    beside = pathlib.Path(sys.prefix)
    for release in RELEASES:
        subprocess.run([sys.executable, __file__, release], check=True,
                       env=os.environ | {"PYTHONPATH": str(beside / f"st-{release}"), "HF_HUB_OFFLINE": "1"})


if __name__ == "__main__":
    main()
