"""Whole directories of tiny GTEs, and what sentence-transformers gives for texts.

    python tools/golden/gte_text.py

    testdata/golden/text-gte-embed    as arctic-embed-m-v2.0: XLM-R's tokenizer, the first token, a prompt
                                      for queries; texts.json, objects as in sentence.py; vectors [B, 32] f32
    testdata/golden/text-gte-stella   as stella_en_400M: token types, the mean, 2_Dense_1024 by its name
    testdata/golden/text-gte-rerank   as gte-multilingual-reranker-base: texts.json, pairs; scores [B] f32
    testdata/golden/text-gte-sparse   as opensearch doc-v3-gte: documents by log1p(log1p(relu)), queries by a
                                      table, neither with weights for special tokens; documents, queries [B, V]

The configurations are those of the published repositories: model_type "new", the names of the code's
keys. Every text is run alone, float32.
"""

import json
import logging
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.models import Router
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from sentence_transformers.sparse_encoder.models import SparseStaticEmbedding, SpladePooling
from transformers import (
    GteConfig, GteForMaskedLM, GteForSequenceClassification, GteModel, PreTrainedTokenizerFast,
)

import gte
import heads
import manifest
import saved
import sentence

LONGEST = 60


def folder(name):
    case = manifest.GOLDEN / f"text-{name}"
    shutil.rmtree(case, ignore_errors=True)
    return case


def write(case, command, texts, seed, **arrays):
    (case / "README.md").unlink(missing_ok=True)
    (case / "texts.json").write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n")
    save_file({k: torch.from_numpy(np.ascontiguousarray(v, dtype=np.float32)) for k, v in arrays.items()},
              case / "golden.safetensors")
    manifest.write(case, command, f"random {case.name.split('-')[1]}, seed {seed}", "float32", {})
    print(case.name, {k: np.asarray(v).shape for k, v in arrays.items()})


def published(file, name):
    """Writes the configuration that transformers saved as the published code has it."""
    c = json.loads(file.read_text())
    c |= gte.PUBLISHED | dict(model_type="new", rope_theta=c.pop("rope_parameters")["rope_theta"],
                              rope_scaling=None, architectures=[name], auto_map=gte.ALIBABA)
    file.write_text(json.dumps(c, indent=2) + "\n")


def xlmr(folder):
    PreTrainedTokenizerFast(tokenizer_file=str(manifest.GOLDEN / "tokenizer/xlmr/tokenizer.json"),
                            model_max_length=LONGEST, bos_token="<s>", eos_token="</s>", cls_token="<s>",
                            sep_token="</s>", unk_token="<unk>", pad_token="<pad>", mask_token="<mask>",
                            model_input_names=["input_ids", "attention_mask"]).save_pretrained(folder)


def source(case, kind, seed, tokenizer, **own):
    config = GteConfig(**gte.SMALL | dict(num_hidden_layers=1) | own)
    model = kind(config).eval()
    gte.randomise(model, seed)
    model.save_pretrained(case)
    tokenizer(case)


def embed(name, seed, command, build, tail, prompts, rename=lambda case: None):
    """build writes an encoder and its tokenizer to a folder; tail are the modules behind it."""
    case = folder(name)
    build(case / "source")
    chain = [Transformer(str(case / "source"))] + tail
    SentenceTransformer(modules=chain, device="cpu", prompts=prompts).save(str(case), create_model_card=False)
    shutil.rmtree(case / "source")
    rename(case)
    model = SentenceTransformer(str(case), device="cpu").eval()
    texts = [{"text": t, "prompt_name": p} for p in [None, *prompts] for t in sentence.TEXTS]
    vectors = [model.encode([t["text"]], prompt=prompts.get(t["prompt_name"], ""))[0] for t in texts]
    write(case, command, texts, seed, vectors=np.stack(vectors))
    return case


def dense_1024(case):
    """The module's folder as stella has it."""
    (case / "2_Dense").rename(case / "2_Dense_1024")
    modules = json.loads((case / "modules.json").read_text())
    modules[2]["path"] = "2_Dense_1024"
    (case / "modules.json").write_text(json.dumps(modules, indent=2) + "\n")


def rerank(seed):
    case = folder("gte-rerank")
    source(case, GteForSequenceClassification, seed, xlmr, vocab_size=430, num_labels=1)
    model = CrossEncoder(str(case), device="cpu", max_length=LONGEST)
    write(case, COMMAND, heads.PAIRS, seed, scores=np.stack([model.predict([p])[0] for p in heads.PAIRS]))
    published(case / "config.json", "NewForSequenceClassification")
    finish(case)


def sparse(seed):
    case, tokenizer = folder("gte-sparse"), sentence.tokenizer(LONGEST)
    inner = case / "source"
    source(inner, GteForMaskedLM, seed, lambda f: tokenizer.save_pretrained(f), vocab_size=len(tokenizer))
    weight = torch.rand(len(tokenizer), generator=torch.Generator().manual_seed(seed))
    model = SparseEncoder(modules=[Router.for_query_document(
        query_modules=[SparseStaticEmbedding(weight=weight, tokenizer=tokenizer, frozen=True)],
        document_modules=[saved.masked(inner), SpladePooling("max", activation_function="log1p_relu")])],
        device="cpu").eval()
    model.save(str(case))
    shutil.rmtree(inner)
    model = SparseEncoder(str(case), device="cpu").eval()
    rows = {}
    for key, encode in (("documents", model.encode_document), ("queries", model.encode_query)):
        rows[key] = np.stack([encode([t], convert_to_sparse_tensor=False)[0].numpy() for t in sentence.TEXTS])
        rows[key][:, tokenizer.all_special_ids] = 0  # as the model's card has it
    write(case, COMMAND, sentence.TEXTS, seed, **rows)
    for file in case.glob("**/config.json"):
        if "rope_parameters" in file.read_text():
            published(file, "NewForMaskedLM")
    finish(case)


def finish(case):
    """Sums up the folder again, whose configuration has been written anew."""
    old = json.loads((case / "MANIFEST.json").read_text())
    manifest.write(case, old["command"], old["model"], old["dtype"], old["notes"])


COMMAND = "python tools/golden/gte_text.py"


def main():
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    case = embed("gte-embed", 661, COMMAND,
                 lambda f: source(f, GteModel, 661, xlmr, vocab_size=430),
                 [Pooling(32, pooling_mode="cls"), Normalize()], {"query": "query: "})
    published(case / "config.json", "NewModel")
    finish(case)
    case = embed("gte-stella", 662, COMMAND,
                 lambda f: source(f, GteModel, 662, lambda g: sentence.tokenizer(LONGEST).save_pretrained(g),
                                  type_vocab_size=2, vocab_size=101),
                 [Pooling(32, pooling_mode="mean"),
                  sentence.dense(663, 20, 32, activation_function=torch.nn.Identity())],
                 {"s2p_query": "Instruct: find\nQuery: "}, dense_1024)
    published(case / "config.json", "NewModel")
    finish(case)
    rerank(664)
    sparse(665)


if __name__ == "__main__":
    main()
