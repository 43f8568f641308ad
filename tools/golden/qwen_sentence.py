"""Tiny embedders on Qwen2 and Qwen3 as sentence-transformers saves them, and its vectors.

    python tools/golden/qwen_sentence.py

    st-qwen3-last    as Qwen3-Embedding: last token, normalised, prompts by name, <|endoftext|>
                     behind each text
    st-qwen2-dense   as stella 1.5B: both ways, mean, a Dense module with bias, normalised

The files are those of sentence.py: the model's directory, texts.json and golden.safetensors.
"""

import copy
import json
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from tokenizers import processors
from transformers import Qwen2Config, Qwen2Model, Qwen3Config, Qwen3Model

import judge
import manifest
import qwen

PROMPTS = {"query": f"Instruct: {judge.WEB}\nQuery:", "document": ""}
TEXTS = ["a", "the cat sat on the mat", "", "  blanks and\nlines  ", "naïve café 茶叶 👩‍🔬",
         "ends with <|im_end|>", "what is the tallest mountain in the world and how tall is it when one "
         "counts from the sea floor " * 2]
SHAPE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=40, max_position_embeddings=64, attn_implementation="eager",
             rope_parameters={"rope_type": "default", "rope_theta": 1e6})


def make(name: str, model, modules, seed: int, prompts) -> None:
    case = manifest.GOLDEN / name
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    tok = judge.tokenizer()
    tok.model_max_length = 64
    end = tok.convert_tokens_to_ids("<|endoftext|>")
    tok._tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        processors.TemplateProcessing(single="$A <|endoftext|>", pair="$A <|endoftext|> $B <|endoftext|>",
                                      special_tokens=[("<|endoftext|>", end)])])
    torch.manual_seed(seed)
    m = model(len(tok)).eval()
    qwen.randomise(m, seed)
    plain = case / "plain"
    copy.deepcopy(m).to(torch.bfloat16).save_pretrained(plain)
    tok.save_pretrained(plain)
    SentenceTransformer(modules=[Transformer(str(plain)), *modules], device="cpu",
                        prompts=prompts).save_pretrained(str(case), create_model_card=False)
    shutil.rmtree(plain)
    st = SentenceTransformer(str(case), device="cpu", model_kwargs={"dtype": torch.float32})
    texts, ids, cu, vectors = [], [], [0], []
    for text in TEXTS:
        for prompt in (None, *sorted(prompts)):
            texts.append({"text": text, "prompt_name": prompt})
            features = st.preprocess([prompts.get(prompt, "") + text])
            ids += features["input_ids"][0].tolist()
            cu.append(len(ids))
            vectors.append(st.encode(text, prompt_name=prompt) if prompt else st.encode(text))
    (case / "texts.json").write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n")
    save_file({"ids": torch.tensor(ids, dtype=torch.int32), "cu_seqlens": torch.tensor(cu, dtype=torch.int32),
               "vectors": torch.from_numpy(np.stack(vectors).astype(np.float32))},
              case / "golden.safetensors")
    manifest.write(case, "python tools/golden/qwen_sentence.py", f"random {type(m).__name__}, seed {seed}",
                   "float32", {"texts": len(texts)})
    print(name, len(texts), "texts", np.stack(vectors).shape)


def main() -> None:
    torch.set_num_threads(1)
    make("st-qwen3-last", lambda v: Qwen3Model(Qwen3Config(vocab_size=v, head_dim=32, **SHAPE)),
         [Pooling(32, pooling_mode="lasttoken"), Normalize()], 501, PROMPTS)
    make("st-qwen2-dense", lambda v: Qwen2Model(Qwen2Config(vocab_size=v, is_causal=False, **SHAPE)),
         [Pooling(32, pooling_mode="mean"), Dense(32, 24, activation_function=torch.nn.Identity()),
          Normalize()], 502, {"s2p_query": f"Instruct: {judge.WEB}.\nQuery: "})


if __name__ == "__main__":
    main()
