"""Tiny models with every pooling of sentence-transformers, several at once, and with the tokens of a
prompt left out; and the vectors that sentence-transformers gives.

    python tools/golden/pooling.py

    st-pool-all        BERT; all six modes by their flags, a Dense module behind, normalised
    st-pool-behind     BERT; all six modes in an order of the file's own, include_prompt false
    st-pool-xlmr       XLM-R as INSTRUCTOR pools: mean, include_prompt false, a default prompt
    st-pool-weighted   Qwen2, which is causal, as SGPT pools: weightedmean, include_prompt false, no
                       special token behind a text

The files are those of sentence.py, with one tensor and one key more: `prompt_length` [B] int32 is the
number of tokens that sentence-transformers leaves out (0 for none); `prompt` in texts.json is a
prompt in words, which stands in for an instruction. Texts have 1 to 600 tokens.
"""

import copy
import json
import logging
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from transformers import (BertConfig, BertModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2Model,
                          XLMRobertaConfig, XLMRobertaModel)

import bert
import judge
import manifest
import qwen
import sentence

MODES = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
PROMPTS = {"query": "Represent the question: ", "document": "passage:"}
SAID = "Instruct: find what answers it\nQuery: "
LONG = [13, 125, 126, 127, 128, 129, 570]  # of texts of as many words of one letter


def bert_base(folder, seed: int) -> None:
    config = BertConfig(vocab_size=101, hidden_size=32, num_hidden_layers=2, num_attention_heads=1,
                        intermediate_size=70, max_position_embeddings=600, type_vocab_size=2)
    model = BertModel(config, add_pooling_layer=False).eval()
    bert.randomise(model, seed, 0.9)
    model.save_pretrained(folder)
    sentence.tokenizer(600).save_pretrained(folder)


def xlmr_base(folder, seed: int) -> None:
    config = XLMRobertaConfig(vocab_size=430, hidden_size=32, num_hidden_layers=2, num_attention_heads=1,
                              intermediate_size=70, max_position_embeddings=600, type_vocab_size=1,
                              layer_norm_eps=1e-5)
    model = XLMRobertaModel(config, add_pooling_layer=False).eval()
    bert.randomise(model, seed, 0.9)
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_file=str(manifest.GOLDEN / "tokenizer/xlmr/tokenizer.json"),
                            model_max_length=590, bos_token="<s>", eos_token="</s>", cls_token="<s>",
                            sep_token="</s>", unk_token="<unk>", pad_token="<pad>", mask_token="<mask>",
                            model_input_names=["input_ids", "attention_mask"]).save_pretrained(folder)


def qwen2_base(folder, seed: int) -> None:
    tok = judge.tokenizer()
    tok.model_max_length = 600
    model = Qwen2Model(Qwen2Config(
        vocab_size=len(tok), hidden_size=32, head_dim=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=40, max_position_embeddings=600,
        attn_implementation="eager", rope_parameters={"rope_type": "default", "rope_theta": 1e6})).eval()
    qwen.randomise(model, seed)
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)
    tok.save_pretrained(folder)


CASES = {
    # name: (base, modes, include_prompt, modules behind, prompts, default prompt)
    "all": (bert_base, MODES, True, lambda: [sentence.dense(611, 24, 192), Normalize()], PROMPTS, None),
    "behind": (bert_base, ["lasttoken", "max", "cls", "weightedmean", "mean_sqrt_len_tokens", "mean"], False,
               lambda: [], PROMPTS, None),
    "xlmr": (xlmr_base, ["mean"], False, lambda: [Normalize()], PROMPTS | {"other": "other text: "}, "other"),
    "weighted": (qwen2_base, ["weightedmean"], False, lambda: [], {"query": SAID, "document": ""}, None),
}


def flags(case) -> None:
    """The form with a flag for each mode."""
    names = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens",
             "mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens",
             "lasttoken": "lasttoken"}
    keys = {"word_embedding_dimension": 32} | {f"pooling_mode_{v}": True for v in names.values()}
    (case / "1_Pooling" / "config.json").write_text(json.dumps(keys | {"include_prompt": True}, indent=2) +
                                                    "\n")


def make(name: str, seed: int) -> None:
    base, modes, include, behind, prompts, default = CASES[name]
    case = manifest.GOLDEN / f"st-pool-{name}"
    shutil.rmtree(case, ignore_errors=True)
    source = case / "source"
    source.mkdir(parents=True)
    torch.manual_seed(seed)
    base(source, seed)
    chain = [Transformer(str(source)), Pooling(32, pooling_mode=modes, include_prompt=include), *behind()]
    SentenceTransformer(modules=chain, prompts=prompts, default_prompt_name=default,
                        device="cpu").save(str(case), create_model_card=False)
    shutil.rmtree(source)
    if name == "all":
        flags(case)

    model = SentenceTransformer(str(case), device="cpu", model_kwargs={"dtype": torch.float32}).eval()
    assert model[1].include_prompt == include
    own = sentence.TEXTS + [" ".join("abcdefghij"[i % 10] for i in range(n)) for n in LONG]
    texts = [{"text": t, "prompt_name": p} for t in own for p in (None, "query", "document")]
    texts += [{"text": t, "prompt_name": None, "prompt": SAID} for t in own[:5]]
    kept, vectors, ids, cu, lengths = [], [], [], [0], []
    for item in texts:
        used = item.get("prompt") or prompts.get(item["prompt_name"] or default, "")
        if name == "weighted" and not used + item["text"]:
            continue  # sentence-transformers fails for a text of no token
        kept.append(item)
        features = model.preprocess([item["text"]], prompt=used)
        row = features["input_ids"][0].numpy()
        ids.append(row)
        cu.append(cu[-1] + len(row))
        lengths.append(0 if include else int(features.get("prompt_length") or 0))
        vectors.append(model.encode([item["text"]], prompt_name=item["prompt_name"],
                                    prompt=item.get("prompt"), convert_to_numpy=True)[0])
    (case / "texts.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    tensors = {"ids": np.concatenate(ids).astype(np.int32), "cu_seqlens": np.array(cu, dtype=np.int32),
               "prompt_length": np.array(lengths, dtype=np.int32),
               "vectors": np.stack(vectors).astype(np.float32)}
    save_file({k: torch.from_numpy(v) for k, v in tensors.items()}, case / "golden.safetensors")
    manifest.write(case, "python tools/golden/pooling.py",
                   f"random {model[0].model.config.model_type} chain, seed {seed}", "float32",
                   {"pooling": modes, "include_prompt": include, "default_prompt_name": default})
    print(name, "lengths", sorted(set(len(r) for r in ids)), "prompts", sorted(set(lengths)), "vectors",
          tensors["vectors"].shape)


def main() -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for seed, name in enumerate(CASES, start=611):
        make(name, seed)


if __name__ == "__main__":
    main()
