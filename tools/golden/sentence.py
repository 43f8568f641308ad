"""Tiny sentence-transformers module chains and the vectors sentence-transformers gives for them.

    python tools/golden/sentence.py

Each case is a folder testdata/golden/st-<name>: a whole model directory as sentence-transformers
saves it (config.json, model.safetensors, tokenizer.json, modules.json, 1_Pooling, …) and

    texts.json           [{"text": …, "prompt_name": … or null}]
    golden.safetensors   ids [T] int32, cu_seqlens [B+1] int32, vectors [B, D] f32

Every text is encoded alone and the model is loaded back from the folder first, so the vectors are
those of the files that are committed.
"""

import json
import logging
import math
import shutil

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AlbertConfig, AlbertModel, AlbertTokenizer, BertConfig, BertModel, BertTokenizerFast, ElectraConfig,
    ElectraModel, PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel,
)

import bert
import coarse
import manifest

TEXTS = [
    "a",
    "the cat sat on the mat",
    "zebra quiz 42",
    "",
    "what is the tallest mountain in the world and how tall is it really when one counts from the sea floor",
    "Words In Capitals AND accents: éàü",
]
QUOTED = ["``Quoted''  with   spaces", "ﬁne ①②③ Ångström — 北京 𝒳", "▁ under_score\ttab"]
PROMPTS = {"query": "query: ", "passage": "passage: "}


def tokenizer(max_length: int) -> BertTokenizerFast:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]",
             "[MASK]"] + list(letters) + ["##" + c for c in letters] + list(".,:;!?-'")
    fast = Tokenizer(models.WordPiece({t: i for i, t in enumerate(vocab)}, unk_token="[UNK]"))
    fast.normalizer = normalizers.BertNormalizer(lowercase=True)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]",
                                                        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return BertTokenizerFast(tokenizer_object=fast, model_max_length=max_length, do_lower_case=True)


def base(folder, seed: int, layers: int = 2) -> None:
    config = BertConfig(vocab_size=101, hidden_size=32, num_hidden_layers=layers, num_attention_heads=1,
                        intermediate_size=70, max_position_embeddings=120, type_vocab_size=2)
    model = BertModel(config, add_pooling_layer=False).eval()
    bert.randomise(model, seed, 0.9)
    model.save_pretrained(folder)
    tokenizer(120).save_pretrained(folder)


def xlmr_base(folder, seed: int) -> None:
    """XLM-R with the unigram tokenizer of testdata/golden/tokenizer, longer than its positions
    hold."""
    config = XLMRobertaConfig(vocab_size=430, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
                              intermediate_size=70, max_position_embeddings=34, type_vocab_size=1,
                              layer_norm_eps=1e-5)
    model = XLMRobertaModel(config, add_pooling_layer=False).eval()
    bert.randomise(model, seed, 0.9)
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_file=str(manifest.GOLDEN / "tokenizer/xlmr/tokenizer.json"),
                            model_max_length=32, bos_token="<s>", eos_token="</s>", cls_token="<s>",
                            sep_token="</s>", unk_token="<unk>", pad_token="<pad>", mask_token="<mask>",
                            model_input_names=["input_ids", "attention_mask"]).save_pretrained(folder)


def electra_base(folder, seed: int) -> None:
    config = ElectraConfig(vocab_size=101, embedding_size=16, hidden_size=32, num_hidden_layers=2,
                           num_attention_heads=2, intermediate_size=50, max_position_embeddings=120,
                           type_vocab_size=2)
    model = ElectraModel(config).eval()
    bert.randomise(model, seed, 0.9)
    model.save_pretrained(folder)
    tokenizer(120).save_pretrained(folder)


def albert_base(folder, seed: int) -> None:
    """ALBERT with its own tokenizer over a vocabulary of letters and some pieces of words."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?-'\""
    pieces = ["▁"] + list(letters) + ["▁the", "▁a", "at", "▁mountain", "all", "▁is", "ou", "▁w", "est"]
    vocab = [(t, 0.0) for t in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")] + [
        (t, -2.0 - 0.01 * i) for i, t in enumerate(pieces)]
    config = AlbertConfig(vocab_size=len(vocab), embedding_size=16, hidden_size=32, num_hidden_layers=3,
                          num_attention_heads=2, intermediate_size=50, max_position_embeddings=120,
                          type_vocab_size=2)
    model = AlbertModel(config, add_pooling_layer=False).eval()
    bert.randomise(model, seed, 0.6)
    model.save_pretrained(folder)
    AlbertTokenizer(vocab=vocab, model_max_length=120).save_pretrained(folder)


def only_torch(case) -> None:
    """Weights as torch.save writes them, and no others: many models were published so."""
    torch.save(load_file(case / "model.safetensors"), case / "pytorch_model.bin")
    (case / "model.safetensors").unlink()


def dense(seed: int, rows: int, columns: int, **kwargs) -> Dense:
    generator = torch.Generator().manual_seed(seed)
    weight = coarse.normal((rows, columns), 1.2 / math.sqrt(columns), generator)
    bias = torch.randn((rows,), generator=generator) * 0.3
    return Dense(columns, rows, init_weight=weight, init_bias=bias, **kwargs)


def legacy_pooling(case, mode: str, width: int) -> None:
    """The flags form of 1_Pooling/config.json, which most published models have."""
    names = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens",
             "mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens",
             "lasttoken": "lasttoken"}
    flags = {"word_embedding_dimension": width} | {f"pooling_mode_{v}": k == mode for k, v in names.items()}
    (case / "1_Pooling" / "config.json").write_text(json.dumps(flags | {"include_prompt": True}, indent=2) +
                                                    "\n")


CASES = {
    # name: (pooling, legacy config, modules after pooling, prompts, default prompt, max_seq_length)
    "cls-normalize": ("cls", True, lambda: [Normalize()], {}, None, None),
    "mean": ("mean", False, lambda: [], {}, None, 40),
    "last-dense-identity": (
        "lasttoken", False,
        lambda: [dense(31, 48, 32, bias=False, activation_function=torch.nn.Identity())], {}, None, None),
    "mean-dense-tanh-normalize-prompts": (
        "mean", True, lambda: [dense(41, 20, 32), Normalize()], PROMPTS, "query", 64),
    # XLM-R, its weights in a torch file
    "xlmr-mean-torch": ("mean", True, lambda: [Normalize()], PROMPTS, None, 32),
    "electra-cls": ("cls", False, lambda: [Normalize()], {}, None, None),
    "albert-mean": ("mean", False, lambda: [Normalize()], {}, None, 40),
}


def make(name: str, spec, seed: int) -> None:
    pooling, legacy, tail, prompts, default_prompt, max_length = spec
    case = manifest.GOLDEN / f"st-{name}"
    shutil.rmtree(case, ignore_errors=True)
    torch.manual_seed(seed)  # the pooler, which no module reads, is initialised at random
    source = case / "source"
    source.mkdir(parents=True)
    xlmr = name.startswith("xlmr")
    {"xlmr": xlmr_base, "electra": electra_base, "albert": albert_base}.get(name.split("-")[0], base)(source,
                                                                                                      seed)
    transformer = Transformer(str(source), **({"max_seq_length": max_length} if max_length else {}))
    chain = [transformer, Pooling(64 if xlmr else 32, pooling_mode=pooling)] + tail()
    model = SentenceTransformer(modules=chain, prompts=prompts, default_prompt_name=default_prompt,
                                device="cpu")
    model.save(str(case), create_model_card=False)
    shutil.rmtree(source)
    if xlmr:
        only_torch(case)
    if legacy:
        legacy_pooling(case, pooling, 64 if xlmr else 32)
        (case / "sentence_bert_config.json").write_text(
            json.dumps({"max_seq_length": max_length or 120, "do_lower_case": False}, indent=2) + "\n")

    model = SentenceTransformer(str(case), device="cpu").eval()
    own = TEXTS + (QUOTED if name.startswith("albert") else [])
    texts = [{"text": t, "prompt_name": None} for t in own]
    texts += [{"text": t, "prompt_name": p} for p in prompts for t in TEXTS[:3]]
    vectors, ids, cu = [], [], [0]
    for item in texts:
        # prompt_name None means the model's default prompt, as in SentenceTransformer.encode.
        name_used = item["prompt_name"] or model.default_prompt_name
        prompt = model.prompts.get(name_used, "") if name_used else ""
        features = model.preprocess([prompt + item["text"]]) if hasattr(
            model, "preprocess") else model.tokenize([prompt + item["text"]])
        row = features["input_ids"][0].numpy()
        ids.append(row)
        cu.append(cu[-1] + len(row))
        vectors.append(
            model.encode([item["text"]], prompt_name=item["prompt_name"], convert_to_numpy=True)[0])
    (case / "texts.json").write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n")
    tensors = {"ids": np.concatenate(ids).astype(np.int32), "cu_seqlens": np.array(cu, dtype=np.int32),
               "vectors": np.stack(vectors).astype(np.float32)}
    save_file({k: torch.from_numpy(v) for k, v in tensors.items()}, case / "golden.safetensors")
    manifest.write(case, "python tools/golden/sentence.py",
                   f"random {model[0].model.config.model_type} chain, seed {seed}"
                   if name.startswith(("electra", "albert"))
                   else f"random {'XLM-R' if xlmr else 'BERT'} chain, seed {seed}", "float32",
                   {"max_seq_length": model.max_seq_length, "pooling": pooling,
                    "default_prompt_name": default_prompt})
    print(name, "tokens", cu[-1], "vectors", tensors["vectors"].shape, "max_seq_length", model.max_seq_length)


def main() -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for seed, (name, spec) in enumerate(CASES.items(), start=101):
        make(name, spec, seed)


if __name__ == "__main__":
    main()
