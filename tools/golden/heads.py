"""Tiny random models with the heads that transformers and sentence-transformers put behind
encoders, and what these give.

    python tools/golden/heads.py

Each case is a folder testdata/golden/<name>, a model directory as the library saves it, with
golden.safetensors:

    ids, type_ids [T] int32, cu_seqlens [B+1] int32   packed tokens
    logits        [B, labels] f32    sequence classification (transformers); scores [B] f32: CrossEncoder.predict
    token_logits  [T, labels] f32    token classification (transformers)
    word_logits   [T, V] f32         masked language models (transformers); splade [B, V] f32: SparseEncoder.encode
    vectors       [T, D] f32         token vectors, not normalised; token_weights [T, 1] f32; dense [B, C] f32, normalised

Every sequence is run alone, float32, eager.
"""

import json
import logging
import math
import shutil

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SparseEncoder
from transformers import (
    AlbertConfig, BertConfig, DistilBertConfig, ElectraConfig, RobertaConfig, XLMRobertaConfig,
)

import bert
import coarse
import manifest
import sentence

BERT = BertConfig(vocab_size=101, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
                  intermediate_size=90, max_position_embeddings=60, type_vocab_size=2)
XLMR = XLMRobertaConfig(vocab_size=111, hidden_size=64, num_hidden_layers=2, num_attention_heads=1,
                        intermediate_size=70, max_position_embeddings=50, type_vocab_size=1,
                        layer_norm_eps=1e-5)
ROBERTA = RobertaConfig(vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=1,
                        intermediate_size=60, max_position_embeddings=45, type_vocab_size=1,
                        layer_norm_eps=1e-5)
DISTILBERT = DistilBertConfig(vocab_size=103, dim=64, n_layers=2, n_heads=2, hidden_dim=80,
                              max_position_embeddings=48, activation="gelu")
ELECTRA = ElectraConfig(vocab_size=101, embedding_size=24, hidden_size=64, num_hidden_layers=2,
                        num_attention_heads=2, intermediate_size=80, max_position_embeddings=50,
                        type_vocab_size=2)
ALBERT = AlbertConfig(vocab_size=111, embedding_size=20, hidden_size=64, num_hidden_layers=3,
                      num_attention_heads=2, intermediate_size=90, max_position_embeddings=50,
                      type_vocab_size=2)
LENGTHS = [7, 1, 40, 16, 33]
EMOTIONS = {0: "joy", 1: "anger", 2: "fear"}
TAGS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}

# name: class, configuration, changes to it
CLASSIFIERS = {
    "classify-bert": ("BertForSequenceClassification", BERT,
                      dict(id2label=EMOTIONS, label2id={v: k for k, v in EMOTIONS.items()})),
    "classify-xlmr": ("XLMRobertaForSequenceClassification", XLMR, dict(num_labels=1)),
    "classify-distilbert": ("DistilBertForSequenceClassification", DISTILBERT,
                            dict(num_labels=2, problem_type="multi_label_classification")),
}
TAGGERS = {
    "tag-bert": ("BertForTokenClassification", BERT,
                 dict(id2label=TAGS, label2id={v: k for k, v in TAGS.items()})),
    "tag-roberta": ("RobertaForTokenClassification", ROBERTA, dict(num_labels=3)),
    "tag-distilbert": ("DistilBertForTokenClassification", DISTILBERT, dict(num_labels=4)),
}
MASKED = {
    "masked-bert": ("BertForMaskedLM", BERT, {}),
    "masked-bert-untied": ("BertForMaskedLM", BERT, dict(tie_word_embeddings=False, hidden_act="relu")),
    "masked-xlmr": ("XLMRobertaForMaskedLM", XLMR, {}),
    "masked-distilbert": ("DistilBertForMaskedLM", DISTILBERT, {}),
}


# Of the families that came later, with seeds of their own: the cases above keep theirs.
LATER = (
    {"classify-electra": ("ElectraForSequenceClassification", ELECTRA, dict(num_labels=3)),
     "classify-albert": ("AlbertForSequenceClassification", ALBERT, dict(num_labels=4))},
    {"tag-electra": ("ElectraForTokenClassification", ELECTRA,
                     dict(id2label=TAGS, label2id={v: k for k, v in TAGS.items()})),
     "tag-albert": ("AlbertForTokenClassification", ALBERT, dict(num_labels=4))},
    {"masked-electra": ("ElectraForMaskedLM", ELECTRA, {}),
     "masked-albert": ("AlbertForMaskedLM", ALBERT, {})},
)


def build(name: str, seed: int, changes: dict):
    """The random model of a class, as its class saves it, and the folder."""
    case = manifest.GOLDEN / name
    shutil.rmtree(case, ignore_errors=True)
    class_name, config, own = changes
    config = type(config)(**(config.to_diff_dict() | own), attn_implementation="eager")
    torch.manual_seed(seed)
    model = getattr(transformers, class_name)(config).eval()
    bert.randomise(model, seed, 0.9)
    model.save_pretrained(case)
    return case, model


def batch(config, seed: int) -> dict:
    rng = np.random.default_rng(seed)
    cu = np.cumsum([0] + LENGTHS).astype(np.int32)
    ids = rng.integers(10, config.vocab_size, cu[-1], dtype=np.int32)
    out = {"ids": ids, "cu_seqlens": cu}
    if getattr(config, "type_vocab_size", 0) > 1:
        out["type_ids"] = rng.integers(0, config.type_vocab_size, cu[-1], dtype=np.int32)
    return out


def alone(model, b: dict, take) -> list[np.ndarray]:
    """take(output) of each sequence run by itself."""
    out = []
    with torch.no_grad():
        for start, end in zip(b["cu_seqlens"][:-1], b["cu_seqlens"][1:]):
            inputs = {"input_ids": torch.tensor(b["ids"][None, start:end], dtype=torch.long)}
            if "type_ids" in b:
                inputs["token_type_ids"] = torch.tensor(b["type_ids"][None, start:end], dtype=torch.long)
            out.append(take(model(**inputs)).numpy())
    return out


def write(case, b: dict, model: str, seed: int, notes: dict | None = None) -> None:
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in b.items()},
              case / "golden.safetensors")
    manifest.write(case, "python tools/golden/heads.py", f"random {model}, seed {seed}", "float32",
                   notes or {})
    print(case.name, {k: v.shape for k, v in b.items()},
          {k: float(np.abs(v).max()) for k, v in b.items() if v.dtype == np.float32})


def transformers_cases(seed: int, classifiers: dict, taggers: dict, masked: dict) -> None:
    for cases, key, take, join in [
        (classifiers, "logits", lambda o: o.logits, np.concatenate),
        (taggers, "token_logits", lambda o: o.logits[0], np.concatenate),
        (masked, "word_logits", lambda o: o.logits[0], np.concatenate),
    ]:
        for name, spec in cases.items():
            seed += 1
            case, model = build(name, seed, spec)
            b = batch(model.config, seed)
            b[key] = join(alone(model, b, take)).astype(np.float32)
            write(case, b, spec[0], seed)


PAIRS = [
    ("how tall is the mountain", "the tallest mountain in the world is 8849 metres tall"),
    ("zebra", "a"),
    ("", "nothing was asked"),
    ("what is a cat", "the cat sat on the mat, and the cat is an animal that sleeps and sleeps and sleeps"),
]


def text_model(name: str, class_name: str, seed: int, **own):
    """A BERT with a tokenizer of letters (sentence.tokenizer), saved by transformers."""
    case, model = build(name, seed, (class_name, BERT, own))
    sentence.tokenizer(60).save_pretrained(case)
    return case, model


def packed(rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate(rows).astype(np.int32), np.cumsum([0] + [len(r) for r in rows]).astype(np.int32)


def cross_encoder(name: str, seed: int, activation: str | None, **own) -> None:
    case, _ = text_model(name, "BertForSequenceClassification", seed, **own)
    if activation:
        config = json.loads((case / "config.json").read_text())
        config["sentence_transformers"] = {"activation_fn": activation, "version": "5.7.0"}
        (case / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    model = CrossEncoder(str(case), device="cpu", max_length=60)
    tokens = [model.tokenizer([q], [d], truncation="longest_first", max_length=60, return_tensors="np")
              for q, d in PAIRS]
    ids, cu = packed([t["input_ids"][0] for t in tokens])
    types, _ = packed([t["token_type_ids"][0] for t in tokens])
    scores = np.stack([model.predict([pair]) for pair in PAIRS])[:, 0]
    logits = np.stack([model.predict([pair], activation_fn=torch.nn.Identity()) for pair in PAIRS])[:, 0]
    (case / "texts.json").write_text(json.dumps(PAIRS, indent=1) + "\n")
    b = {"ids": ids, "type_ids": types, "cu_seqlens": cu,
         "scores": scores.astype(np.float32).reshape(len(PAIRS), -1),
         "logits": logits.astype(np.float32).reshape(len(PAIRS), -1)}
    write(case, b, "CrossEncoder", seed, {"activation": str(model.activation_fn)})


def splade(name: str, seed: int, activation: str) -> None:
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    case, _ = text_model(name, "BertForMaskedLM", seed)
    source = case.with_name(name + "-source")
    case.rename(source)
    model = SparseEncoder(modules=[MLMTransformer(str(source)),
                                   SpladePooling("max", activation_function=activation)], device="cpu")
    model.save(str(case), create_model_card=False)
    shutil.rmtree(source)
    model = SparseEncoder(str(case), device="cpu").eval()
    rows = [model.preprocess([t])["input_ids"][0].numpy() if hasattr(model, "preprocess")
            else model.tokenize([t])["input_ids"][0].numpy() for t in sentence.TEXTS]
    ids, cu = packed(rows)
    weights = np.stack([model.encode([t], convert_to_sparse_tensor=False)[0].numpy() for t in sentence.TEXTS])
    (case / "texts.json").write_text(json.dumps(sentence.TEXTS, indent=1, ensure_ascii=False) + "\n")
    write(case, {"ids": ids, "cu_seqlens": cu, "splade": weights.astype(np.float32)}, "SparseEncoder", seed,
          {"activation": activation})


def matrix(generator, rows: int, columns: int) -> torch.Tensor:
    return coarse.normal((rows, columns), 1 / math.sqrt(columns), generator)


def colbert(name: str, seed: int, layers: list[dict]) -> None:
    """Without layers: Stanford's checkpoint, linear.weight beside the encoder. With: PyLate's,
    Dense modules over the tokens."""
    case, model = build(name, seed, ("BertModel", BERT, {}))
    generator = torch.Generator().manual_seed(seed)
    b = batch(model.config, seed)
    states = torch.from_numpy(np.concatenate(alone(model, b, lambda o: o.last_hidden_state[0])))
    if not layers:
        linear = matrix(generator, 24, 64)
        save_file({"bert." + k: v for k, v in load_file(case / "model.safetensors").items()} |
                  {"linear.weight": linear}, case / "model.safetensors", metadata={"format": "pt"})
        b["vectors"] = (states @ linear.T).numpy()
        write(case, b, "ColBERT", seed)
        return
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    columns = 64
    for i, layer in enumerate(layers, start=1):
        folder = case / f"{i}_Dense"
        folder.mkdir()
        tensors = {"linear.weight": matrix(generator, layer["rows"], columns)}
        y = states @ tensors["linear.weight"].T
        if layer.get("bias"):
            tensors["linear.bias"] = torch.randn(layer["rows"], generator=generator) * 0.3
            y = y + tensors["linear.bias"]
        activation = layer.get("activation", torch.nn.Identity())
        y = activation(y)
        if layer.get("residual"):
            if layer["rows"] != columns:
                tensors["residual.weight"] = matrix(generator, layer["rows"], columns)
                y = y + states @ tensors["residual.weight"].T
            else:
                y = y + states
        config = {"in_features": columns, "out_features": layer["rows"], "bias": bool(layer.get("bias")),
                  "activation_function": f"{type(activation).__module__}.{type(activation).__name__}"}
        if "residual" in layer:
            config["use_residual"] = layer["residual"]
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        save_file(tensors, folder / "model.safetensors")
        modules.append({"idx": i, "name": str(i), "path": folder.name, "type": "pylate.models.Dense.Dense"})
        states, columns = y, layer["rows"]
    (case / "modules.json").write_text(json.dumps(modules, indent=2) + "\n")
    b["vectors"] = states.numpy()
    write(case, b, "ColBERT", seed)


def bge_m3(name: str, seed: int) -> None:
    case, model = build(name, seed, ("XLMRobertaModel", XLMR, {}))
    generator = torch.Generator().manual_seed(seed)
    vectors, weights = torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)
    with torch.no_grad():
        for layer in (vectors, weights):
            layer.weight.copy_(matrix(generator, *layer.weight.shape))
            layer.bias.copy_(torch.randn(layer.bias.shape, generator=generator) * 0.3)
    torch.save(vectors.state_dict(), case / "colbert_linear.pt")
    torch.save(weights.state_dict(), case / "sparse_linear.pt")
    torch.save(model.state_dict(), case / "pytorch_model.bin")
    (case / "model.safetensors").unlink()
    for i, kind in enumerate(["Pooling", "Normalize"], start=1):
        (case / f"{i}_{kind}").mkdir()
    sentence.legacy_pooling(case, "cls", 64)
    (case / "2_Normalize").rmdir()
    (case / "modules.json").write_text(
        json.dumps([{"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
                     "type": f"sentence_transformers.models.{kind}"}
                    for i, kind in enumerate(["Transformer", "Pooling", "Normalize"])], indent=2) + "\n")
    b = batch(model.config, seed)
    states = alone(model, b, lambda o: o.last_hidden_state[0])
    whole = torch.from_numpy(np.concatenate(states))
    with torch.no_grad():
        b["vectors"] = vectors(whole).numpy()
        b["token_weights"] = torch.relu(weights(whole)).numpy()
        b["dense"] = torch.nn.functional.normalize(torch.from_numpy(np.stack([s[0] for s in states])),
                                                   dim=-1).numpy()
    write(case, b, "BGE-M3", seed)


def main() -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    transformers_cases(200, CLASSIFIERS, TAGGERS, MASKED)
    transformers_cases(260, *LATER)
    cross_encoder("rerank-sigmoid", 221, None, num_labels=1)
    cross_encoder("rerank-identity", 282, "torch.nn.modules.linear.Identity", num_labels=1)
    splade("splade-bert", 231, "relu")
    splade("splade-bert-log1p", 232, "log1p_relu")
    colbert("colbert-linear", 241, [])
    colbert("colbert-dense", 242,
            [dict(rows=64, residual=True), dict(rows=80, residual=True), dict(rows=24, residual=False)])
    colbert("colbert-dense-act", 243,
            [dict(rows=40, bias=True, activation=torch.nn.GELU()), dict(rows=48, bias=True), dict(rows=24)])
    bge_m3("bge-m3", 251)


if __name__ == "__main__":
    main()
