"""Tiny random models of Gemma 3 (text, both ways) of every variant that changes the computation, from
transformers: the states after the embeddings and after every block, and the final output. And one
embedder as sentence-transformers saves EmbeddingGemma, with its vectors.

    python tools/golden/gemma.py

The states are folders testdata/golden/gemma-<name> in the form of modernbert.py; the embedder is
testdata/golden/st-gemma in the form of sentence.py. Every text is run alone, float32, eager. The
tokenizer is that of tokenizer_files.py.
"""

import copy
import json
import math
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from transformers import Gemma3TextConfig, Gemma3TextModel, GemmaTokenizer

import coarse
import manifest
import modernbert

COMMAND = "python tools/golden/gemma.py"
BOTH_WAYS = {"use_bidirectional_attention": True}
LOCAL, GLOBAL = "sliding_attention", "full_attention"

# name: configuration, as config.json says it; type of the checkpoint; prefix of its names; lengths
CASES = {
    # Windows of ±5, every sixth block global, the keys and names of the published model.
    "window": (dict(vocab_size=101, hidden_size=24, num_hidden_layers=7, num_attention_heads=2,
                    num_key_value_heads=1, head_dim=64, intermediate_size=28, max_position_embeddings=256,
                    sliding_window=10, query_pre_attn_scalar=64, rope_theta=1000000.0,
                    rope_local_base_freq=10000.0, rope_scaling=None),
               torch.bfloat16, "", [1, 2, 3, 127, 128, 129]),
    # Heads of 256 columns, one of keys for three, and windows that no text reaches.
    "d256": (dict(vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                  num_key_value_heads=1, head_dim=256, intermediate_size=36, max_position_embeddings=140,
                  sliding_window=512, layer_types=[LOCAL, GLOBAL]),
             torch.bfloat16, "", [129, 3, 40]),
    # As many heads of keys as of queries, an odd width, an odd window (±3), biases, a scale that is
    # not the heads' width, another epsilon, every second block global, positions stretched in those.
    "linear": (dict(vocab_size=97, hidden_size=45, num_hidden_layers=3, num_attention_heads=3,
                    num_key_value_heads=3, head_dim=32, intermediate_size=33, max_position_embeddings=140,
                    sliding_window=7, sliding_window_pattern=2, query_pre_attn_scalar=50,
                    attention_bias=True, rms_norm_eps=1e-2, rope_theta=50000.0, rope_local_base_freq=100.0,
                    rope_scaling={"rope_type": "linear", "factor": 8.0}),
               torch.float16, "", [5, 33, 129, 8, 1]),
    # Heads of 128 columns, the newer form of the bases, texts beyond the trained length, SwiGLU, the
    # names of a model with a head.
    "yarn": (dict(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                  num_key_value_heads=1, head_dim=128, intermediate_size=24, max_position_embeddings=160,
                  sliding_window=16, query_pre_attn_scalar=128, layer_types=[GLOBAL, LOCAL],
                  hidden_activation="silu", rope_parameters={
                      GLOBAL: {"rope_type": "yarn", "factor": 4.0, "rope_theta": 20000.0,
                               "original_max_position_embeddings": 40},
                      LOCAL: {"rope_type": "default", "rope_theta": 500.0}}),
             torch.bfloat16, "model.", [160, 39, 41, 2]),
}


def randomise(model, seed):
    """Fan-in scaled normals. The gammas are 1 + w; those of queries and keys sharpen attention."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, std):
        return coarse.normal(shape, std, generator)

    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                p.copy_(0.4 + normal(p.shape, 0.2))
            elif "norm" in name:
                p.copy_(normal(p.shape, 0.3))
                p[:: max(1, p.numel() // 3)] += 0.6
            elif name.endswith("bias"):
                p.copy_(normal(p.shape, 0.3))
            elif "embed_tokens" in name:
                p.copy_(normal(p.shape, 0.3))
            else:
                p.copy_(normal(p.shape, 1 / math.sqrt(p.shape[1])))


def written(plain):
    return {"model_type": "gemma3_text", "architectures": ["Gemma3TextModel"], "pad_token_id": 0,
            "eos_token_id": 1, "bos_token_id": 2} | BOTH_WAYS | plain


def states(model, ids, cu):
    """The state after the embeddings, after each block, and the last hidden state; and the entropy
    of attention in each block over texts of more than 30 tokens, as a share of the largest."""
    seen, collected, entropies = [], [], []
    hooks = [m.register_forward_hook(lambda _m, _i, o: seen.append(o[0] if isinstance(o, tuple) else o))
             for m in [model.embed_tokens, *model.layers]]
    with torch.no_grad():
        for start, end in zip(cu[:-1], cu[1:]):
            seen.clear()
            out = model(input_ids=torch.tensor(ids[None, start:end], dtype=torch.long),
                        output_attentions=True, use_cache=False)
            found = [h if h.dim() == 2 else h[0] for h in [*seen, out.last_hidden_state]]
            collected.append([h.float().numpy() for h in found])
            if end - start > 30:
                entropies.append([float(((-(a * (a + 1e-30).log()).sum(-1)) /
                                         (a > 0).sum(-1).clamp(min=2).log()).mean()) for a in out.attentions])
    for hook in hooks:
        hook.remove()
    return [np.concatenate(s) for s in zip(*collected)], np.mean(entropies, 0) if entropies else None


def encoder(name, spec, seed):
    plain, dtype, prefix, lengths = spec
    case = manifest.GOLDEN / f"gemma-{name}"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    (case / "config.json").write_text(json.dumps(written(plain), indent=2) + "\n")
    config = Gemma3TextConfig.from_pretrained(case, attn_implementation="eager")
    model = Gemma3TextModel(config).eval()
    randomise(model, seed)
    modernbert.store(model, case, dtype, prefix)

    rng = np.random.default_rng(seed)
    cu = np.cumsum([0] + lengths).astype(np.int32)
    ids = rng.integers(0, config.vocab_size, cu[-1], dtype=np.int32)
    ids[0], ids[-1] = 0, config.vocab_size - 1  # both ends of the table
    rows = modernbert.kept(lengths, config.sliding_window - 1)
    own, entropy = states(model, ids, cu)
    exact, _ = states(copy.deepcopy(model).double(), ids, cu)
    floor = max(float(np.abs(a - b).max()) for a, b in zip(own, exact))
    shares = {kind: round(float(np.mean([e for e, k in zip(entropy, config.layer_types) if k == kind])), 3)
              for kind in sorted(set(config.layer_types))}
    assert all(0.3 < e < 0.95 for e in entropy), entropy
    tensors = {"ids": ids, "cu_seqlens": cu, "rows": rows, "final": own[-1][rows]}
    tensors |= {f"hidden_{i}": h[rows] for i, h in enumerate(own[:-1])}
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in tensors.items()},
              case / "golden.safetensors")
    largest = max(float(np.abs(h).max()) for h in own)
    manifest.write(case, COMMAND, f"random Gemma3Text, seed {seed}", "float32",
                   {"max_abs_float32_to_float64": floor, "max_abs_value": largest,
                    "attention_entropy": shares})
    print(case.name, "float32 noise floor", floor, "max", largest, "entropy", shares,
          sum(f.stat().st_size for f in case.iterdir()) // 1024, "KiB")


# Some of the prompts that EmbeddingGemma's config_sentence_transformers.json has.
PROMPTS = {"query": "task: search result | query: ", "document": "title: none | text: ",
           "STS": "task: sentence similarity | query: "}
TEXTS = ["a", "the cat sat on the mat", "", "  two  blanks and\nlines\n\n", "naïve café 茶叶 👩‍🔬",
         "<bos> and <eos> in a text", "what is the tallest mountain in the world and how tall is it when one "
         "counts from the sea floor " * 3]
LONGEST = 60


def embedder(seed):
    """Two Dense modules without bias behind mean pooling, and a tokenizer that adds <bos> and <eos>."""
    case = manifest.GOLDEN / "st-gemma"
    shutil.rmtree(case, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        source = Path(work)
        model = manifest.GOLDEN / "tokenizer-files/gemma/tokenizer.model"
        (source / "tokenizer.model").write_bytes(model.read_bytes())
        tok = GemmaTokenizer.from_pretrained(source, add_eos_token=True, model_max_length=LONGEST)
        plain = dict(vocab_size=len(tok), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=1, head_dim=32, intermediate_size=24, query_pre_attn_scalar=32,
                     max_position_embeddings=64, sliding_window=8, layer_types=[LOCAL, GLOBAL]) | BOTH_WAYS
        model = Gemma3TextModel(Gemma3TextConfig(**plain)).eval()
        randomise(model, seed)
        model.to(torch.bfloat16).save_pretrained(source)
        tok.save_pretrained(source)
        torch.manual_seed(seed)
        identity = dict(bias=False, activation_function=torch.nn.Identity())
        chain = [Transformer(str(source)), Pooling(16, pooling_mode="mean"), Dense(16, 40, **identity),
                 Dense(40, 16, **identity), Normalize()]
        SentenceTransformer(modules=chain, device="cpu", prompts=PROMPTS).save_pretrained(
            str(case), create_model_card=False)
    described = json.loads((case / "tokenizer_config.json").read_text())
    for of_this_machine in ("vocab_file", "is_local", "local_files_only"):
        described.pop(of_this_machine, None)
    (case / "tokenizer_config.json").write_text(json.dumps(described, indent=2) + "\n")
    st = SentenceTransformer(str(case), device="cpu", model_kwargs={"dtype": torch.float32})
    texts, ids, cu, vectors = [], [], [0], []
    for text in TEXTS:
        for prompt in (None, *sorted(PROMPTS)):
            texts.append({"text": text, "prompt_name": prompt})
            ids += st.preprocess([PROMPTS.get(prompt, "") + text])["input_ids"][0].tolist()
            cu.append(len(ids))
            vectors.append(st.encode(text, prompt_name=prompt) if prompt else st.encode(text))
    (case / "texts.json").write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n")
    save_file({"ids": torch.tensor(ids, dtype=torch.int32), "cu_seqlens": torch.tensor(cu, dtype=torch.int32),
               "vectors": torch.from_numpy(np.stack(vectors).astype(np.float32))},
              case / "golden.safetensors")
    manifest.write(case, COMMAND, f"random Gemma3TextModel, seed {seed}", "float32", {"texts": len(texts)})
    print(case.name, len(texts), "texts", np.stack(vectors).shape, max(np.diff(cu)), "tokens at most",
          sum(f.stat().st_size for f in case.rglob("*") if f.is_file()) // 1024, "KiB")


def main():
    torch.set_num_threads(1)
    for seed, (name, spec) in enumerate(CASES.items(), start=601):
        encoder(name, spec, seed)
    embedder(611)


if __name__ == "__main__":
    main()
