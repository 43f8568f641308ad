"""Tiny random nets of 36 blocks that normalise first, from transformers (float32, eager). In such a
net every block adds to one sum, the residual stream; rounding it to 16 bits after each block costs
accuracy that a shallow net does not show.

    python tools/golden/deep.py

Each case is a folder testdata/golden/<architecture>-deep with config.json, model.safetensors and
golden.safetensors:

    ids [T] int32           packed tokens             cu_seqlens [B+1] int32
    final [T, C] f32        the last hidden state: the norm of the sum behind the last block

What a block adds is scaled down, for in trained nets it is small beside the sum; else the rounding
inside the blocks would hide that of the sum. Weights are stored in bfloat16, and the reference
computes in float32 with just these values, so that a class of 16 bits differs by its activations
alone. The manifest has the entropy of attention as a share of the largest, and the norm of the sum
as a multiple of what the last block adds.
"""

import copy
import json
import math
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import (Gemma3TextConfig, Gemma3TextModel, ModernBertConfig, ModernBertModel, Qwen3Config,
                          Qwen3Model)

import gemma
import manifest
import modernbert
import qwen

BLOCKS, LENGTHS, BRANCH = 36, [1, 2, 3, 31], 1 / 16
SHAPE = dict(vocab_size=61, hidden_size=32, num_hidden_layers=BLOCKS, num_attention_heads=1,
             intermediate_size=8, max_position_embeddings=64)
CASES = {
    "modernbert": (ModernBertConfig, ModernBertModel, modernbert, dict(
        local_attention=10, global_attn_every_n_layers=3, global_rope_theta=160000.0,
        local_rope_theta=10000.0, **modernbert.SPECIAL)),
    "qwen3": (Qwen3Config, Qwen3Model, qwen, dict(
        num_key_value_heads=1, head_dim=32, hidden_act="silu", rms_norm_eps=1e-6,
        tie_word_embeddings=True, rope_parameters=qwen.PLAIN)),
    # As deep as EmbeddingGemma.
    "gemma3_text": (Gemma3TextConfig, Gemma3TextModel, gemma, dict(
        hidden_size=16, num_hidden_layers=24, num_key_value_heads=1, head_dim=32, query_pre_attn_scalar=32,
        sliding_window=10, pad_token_id=0, **gemma.BOTH_WAYS)),
}

# With 363 bf16 is 0.0165 of the largest value off, which says little of the sum: its bound is 0.008.
SEEDS = {"gemma3_text": 463}


def run(model, ids, cu, dtype):
    """The sum behind the last block, the last hidden state, the entropy of attention, and how much
    larger the sum is than what the last block adds."""
    model, blocks = copy.deepcopy(model).to(dtype), []

    def keep(_module, _inputs, output):
        blocks.append((output[0] if isinstance(output, tuple) else output)[0].float().numpy())

    for block in model.layers:
        block.register_forward_hook(keep)
    sums, finals, entropies, growth = [], [], [], 0.0
    with torch.no_grad():
        for start, end in zip(cu[:-1], cu[1:]):
            blocks.clear()
            out = model(input_ids=torch.tensor(ids[None, start:end], dtype=torch.long),
                        output_attentions=True)
            sums.append(blocks[-1])
            finals.append(out.last_hidden_state[0].float().numpy())
            if end - start > 30:
                growth = float(np.linalg.norm(blocks[-1]) / np.linalg.norm(blocks[-1] - blocks[-2]))
                for a in out.attentions:
                    keys = (a[0] > 0).sum(-1)
                    h = -(a[0] * a[0].clamp_min(1e-30).log()).sum(-1) / keys.clamp_min(2).double().log()
                    entropies.append(float(h[keys > 8].mean()))
    return np.concatenate(sums), np.concatenate(finals), float(np.mean(entropies)), growth


def make(name, seed):
    config_class, model_class, maker, keys = CASES[name]
    case = manifest.GOLDEN / f"{name}-deep"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    plain = {"model_type": name, "architectures": [model_class.__name__]} | SHAPE | keys
    (case / "config.json").write_text(json.dumps(plain, indent=2) + "\n")
    config = config_class.from_pretrained(case, attn_implementation="eager")
    model = model_class(config).eval()
    maker.randomise(model, seed)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if key.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")) and \
                    name == "gemma3_text":
                p.copy_((1 + p) * BRANCH - 1)  # of 1 + w
            elif key.endswith(("attn.Wo.weight", "mlp.Wo.weight", "o_proj.weight", "down_proj.weight")):
                p *= BRANCH
    modernbert.store(model, case, torch.bfloat16, "")

    rng = np.random.default_rng(seed)
    cu = np.cumsum([0] + LENGTHS).astype(np.int32)
    ids = rng.integers(0, config.vocab_size, cu[-1], dtype=np.int32)
    ids[0], ids[-1] = 0, config.vocab_size - 1  # both ends of the table
    total, final, entropy, growth = run(model, ids, cu, torch.float32)
    exact = run(model, ids, cu, torch.float64)
    floor = float(np.abs(final - exact[1]).max())
    assert 0.3 < entropy < 0.95, entropy
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in
               {"ids": ids, "cu_seqlens": cu, "final": final}.items()},
              case / "golden.safetensors")
    facts = {"max_abs_float32_to_float64": floor, "max_abs_value": float(np.abs(final).max()),
             "max_abs_sum": float(np.abs(total).max()), "attention_entropy": round(entropy, 3),
             "sum_over_block": round(growth, 2)}
    manifest.write(case, "python tools/golden/deep.py", f"random {config_class.__name__[:-6]}, seed {seed}",
                   "float32", facts)
    print(case.name, facts, sum(f.stat().st_size for f in case.iterdir()) // 1024, "KiB")


def main():
    torch.set_num_threads(1)
    for seed, name in enumerate(CASES, start=361):
        make(name, SEEDS.get(name, seed))


if __name__ == "__main__":
    main()
