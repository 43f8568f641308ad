"""Tiny random models of Qwen2 and Qwen3, one for each variant that changes the computation, and
every hidden state of them, from transformers (float32, eager).

    python tools/golden/qwen.py

Each case is a folder testdata/golden/<family>-<name> with config.json, model.safetensors (stored in
the case's dtype) and golden.safetensors:

    ids [T] int32           packed tokens           cu_seqlens [B+1] int32
    hidden_<i> [T, C] f32   the state after the embeddings (0), after each block (1 … L), and behind
                            the final norm (L+1)

Every sequence is run alone. The states come from hooks, because output_hidden_states gives the last
block's sum only behind the norm. Weights are scaled so that attention is neither uniform nor
one-hot: the manifest has its entropy as a share of the uniform one, over rows of more than 8 keys.
"""

import copy
import json
import math
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2Model, Qwen3Config, Qwen3Model

import coarse
import manifest

FAMILIES = {"qwen2": (Qwen2Config, Qwen2Model), "qwen3": (Qwen3Config, Qwen3Model)}
EDGES = [1, 2, 3, 127, 128, 129]
THETA = {"rope_theta": 1000000.0}
PLAIN = THETA | {"rope_type": "default"}

CASES = {
    # Four heads on two, heads wider than C/H, an odd MLP, the names of a model with a head.
    "qwen3-gqa-d64": dict(config=dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, head_dim=64, intermediate_size=45,
                                      max_position_embeddings=160, rope_parameters=PLAIN),
                          dtype=torch.bfloat16, prefix="model.", lengths=EDGES),
    # As many heads of keys as of queries, 128 columns each, YaRN, texts beyond the trained 64.
    "qwen3-mha-d128-yarn": dict(config=dict(
        hidden_size=40, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=128,
        intermediate_size=50, max_position_embeddings=256, tie_word_embeddings=True,
        rope_parameters=THETA | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}),
                                dtype=torch.bfloat16, prefix="", lengths=[3, 130, 1, 64]),
    # Biases on all four projections, another epsilon, one head of keys for three, linear scaling.
    "qwen3-bias-linear": dict(config=dict(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=32,
        intermediate_size=40, max_position_embeddings=140, attention_bias=True, rms_norm_eps=1e-3,
        rope_parameters={"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}), dtype=torch.float16,
                              prefix="model.", lengths=[2, 33, 129, 1]),
    # Every token sees all others.
    "qwen3-both-ways": dict(config=dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=64,
        intermediate_size=36, max_position_embeddings=130, is_causal=False,
        rope_parameters=PLAIN), dtype=torch.float32, prefix="", lengths=[5, 128, 1, 17]),
    # Biases on q, k and v; heads wider than C/H; dynamic scaling, which has no effect up to the length.
    "qwen2-gqa-dynamic": dict(config=dict(
        hidden_size=48, head_dim=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=50, max_position_embeddings=129, tie_word_embeddings=True,
        rope_parameters={"rope_type": "dynamic", "factor": 3.0, "rope_theta": 10000.0}), dtype=torch.bfloat16,
                              prefix="model.", lengths=[127, 1, 3, 40]),
    # llama3 scaling, texts beyond the trained 48, and windows that use_sliding_window turns off.
    "qwen2-mha-llama3": dict(config=dict(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=50, max_position_embeddings=192, sliding_window=7, max_window_layers=1,
        use_sliding_window=False,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 4.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 48}),
                             dtype=torch.bfloat16, prefix="model.", lengths=[129, 2, 33]),
    # gte-Qwen2 and stella: Qwen2 both ways.
    "qwen2-both-ways": dict(config=dict(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=60, max_position_embeddings=131, is_causal=False,
        rope_parameters=PLAIN), dtype=torch.float32, prefix="", lengths=[129, 3, 31, 1]),
}


def randomise(model: torch.nn.Module, seed: int) -> None:
    """Fan-in scaled normals, queries and keys stronger, gammas around 1 with a few large columns."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, std):
        return coarse.normal(shape, std, generator)

    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                p.copy_(1.5 + normal(p.shape, 0.3))
            elif "norm" in name:
                p.copy_(1 + normal(p.shape, 0.2))
                p[:: max(1, p.numel() // 3)] *= 1.5
            elif name.endswith("bias"):
                p.copy_(normal(p.shape, 0.4))
            elif "embed_tokens" in name:
                p.copy_(normal(p.shape, 0.7))
            else:
                gain = 1.4 if ".q_proj." in name or ".k_proj." in name else 0.9
                p.copy_(normal(p.shape, gain / math.sqrt(p.shape[1])))


def run(model: torch.nn.Module, ids: np.ndarray, cu: np.ndarray) -> tuple[list[np.ndarray], float]:
    """The states, and the entropy of attention."""
    found: dict[int, list] = {}

    def keep(i):
        def hook(_module, _inputs, output):
            out = output[0] if isinstance(output, tuple) else output
            found.setdefault(i, []).append(out[0].detach())
        return hook

    layers = list(model.layers)
    hooks = [model.embed_tokens.register_forward_hook(keep(0)),
             model.norm.register_forward_hook(keep(len(layers) + 1))]
    hooks += [layer.register_forward_hook(keep(i + 1)) for i, layer in enumerate(layers)]
    entropies = []
    with torch.no_grad():
        for start, end in zip(cu[:-1], cu[1:]):
            out = model(input_ids=torch.tensor(ids[None, start:end], dtype=torch.long),
                        output_attentions=True, use_cache=False)
            for a in out.attentions:  # [1, H, T, T]
                keys = (a[0] > 0).sum(-1)
                h = -(a[0] * a[0].clamp_min(1e-30).log()).sum(-1) / keys.clamp_min(2).double().log()
                entropies.append(h[keys > 8].flatten())
    for h in hooks:
        h.remove()
    return [torch.cat(found[i]).numpy() for i in range(len(layers) + 2)], float(torch.cat(entropies).mean())


def plain_config(config, model_class, spec) -> dict:
    out = config.to_diff_dict() | spec
    out |= {"model_type": config.model_type, "architectures": [model_class.__name__],
            "rms_norm_eps": config.rms_norm_eps, "hidden_act": config.hidden_act,
            "tie_word_embeddings": config.tie_word_embeddings}
    return {k: v for k, v in out.items() if not k.startswith("_")}


def make(name: str, spec: dict, seed: int, command: str = "python tools/golden/qwen.py") -> None:
    case = manifest.GOLDEN / name
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    config_class, model_class = FAMILIES[name.split("-")[0]]
    config = config_class(vocab_size=101, **spec["config"], attn_implementation="eager")
    torch.manual_seed(seed)
    model = model_class(config).eval()
    randomise(model, seed)
    stored = {spec["prefix"] + k: v.detach().to(spec["dtype"]).contiguous()
              for k, v in model.named_parameters()}
    with torch.no_grad():  # the reference computes on exactly the values that the checkpoint stores
        for k, p in model.named_parameters():
            p.copy_(stored[spec["prefix"] + k].float())
    save_file(stored, case / "model.safetensors", metadata={"format": "pt"})
    plain = plain_config(config, model_class, {"vocab_size": 101} | spec["config"])
    (case / "config.json").write_text(json.dumps(plain, indent=2, sort_keys=True) + "\n")

    rng = np.random.default_rng(seed)
    cu = np.cumsum([0] + spec["lengths"]).astype(np.int32)
    ids = rng.integers(0, config.vocab_size, cu[-1], dtype=np.int32)
    ids[0], ids[-1] = 0, config.vocab_size - 1  # both ends of the table
    states, entropy = run(model, ids, cu)
    exact, _ = run(copy.deepcopy(model).double(), ids, cu)
    floor = max(float(np.abs(a - b).max()) for a, b in zip(states, exact))
    assert 0.3 < entropy < 0.9, (name, entropy)

    tensors = {"ids": ids, "cu_seqlens": cu}
    tensors |= {f"hidden_{i}": np.ascontiguousarray(h, dtype=np.float32) for i, h in enumerate(states)}
    save_file({k: torch.from_numpy(v) for k, v in tensors.items()}, case / "golden.safetensors")
    facts = {"max_abs_float32_to_float64": floor, "attention_entropy": entropy,
             "max_abs_value": max(float(np.abs(h).max()) for h in states)}
    manifest.write(case, command, f"random {config_class.__name__[:-6]}, seed {seed}",
                   "float32", facts)
    print(name, facts, sum(f.stat().st_size for f in case.iterdir()) // 1024, "KiB")


def main() -> None:
    torch.set_num_threads(1)
    for seed, (name, spec) in enumerate(CASES.items(), start=301):
        make(name, spec, seed)


if __name__ == "__main__":
    main()
