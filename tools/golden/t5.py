"""Tiny random encoders of T5, mT5 and umT5, from transformers: the states after the embeddings and after
every block, and the final output.

    python tools/golden/t5.py

Each is a folder testdata/golden/t5-<name> in the form of modernbert.py; lora-t5 is in that of lora.py,
without its deltas. Every text is run alone, float32, eager. The tables of distances are scaled so that a
wrong bucket shows.
"""

import copy
import json
import math

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft import __version__ as peft_version
from safetensors.torch import save_file
from transformers import MT5Config, T5Config, T5EncoderModel, UMT5Config, UMT5EncoderModel

import coarse
import lora
import manifest
import modernbert
from jina_bert import fresh, save

COMMAND = "python tools/golden/t5.py"

# name: classes; configuration; type of the checkpoint; prefix of its names; lengths
CASES = {
    # Two blocks on one table, heads that together are wider than a row, a gate, texts beyond the largest
    # distance that has a bucket of its own, 128.
    "mt5": (MT5Config, T5EncoderModel,
            dict(vocab_size=53, d_model=40, d_kv=32, d_ff=28, num_heads=2, num_layers=2),
            torch.bfloat16, "", [1, 2, 3, 127, 128, 129, 190]),
    # A table of each block, other buckets and distances, another epsilon, SiLU behind the gate, the names
    # of a model with a head.
    "umt5": (UMT5Config, UMT5EncoderModel,
             dict(vocab_size=47, d_model=32, d_kv=64, d_ff=36, num_heads=1, num_layers=2,
                  relative_attention_num_buckets=16, relative_attention_max_distance=40,
                  layer_norm_epsilon=1e-3, feed_forward_proj="gated-silu"),
             torch.bfloat16, "model.", [40, 1, 90]),
    # As T5 was first: an MLP of two matrices. An odd width, three narrow heads.
    "plain": (T5Config, T5EncoderModel,
              dict(vocab_size=31, d_model=33, d_kv=11, d_ff=25, num_heads=3, num_layers=2),
              torch.float16, "", [33, 5, 130]),
}


def randomise(model, seed):
    """Fan-in scaled normals. Scores are not divided by a root, so queries and keys are weaker."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, std):
        return coarse.normal(shape, std, generator)

    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("norm.weight"):
                p.copy_(1 + normal(p.shape, 0.2))
                p[:: max(1, p.numel() // 3)] *= 1.5
            elif "relative_attention_bias" in name:
                p.copy_(normal(p.shape, 1.0))
            elif name in ("shared.weight", "encoder.embed_tokens.weight"):
                p.copy_(normal(p.shape, 0.7))
            else:
                std = 1 / math.sqrt(p.shape[1])
                if name.endswith(("SelfAttention.q.weight", "SelfAttention.k.weight")):
                    std *= (1.2 / math.sqrt(model.config.d_kv)) ** 0.5
                p.copy_(normal(p.shape, std))


def states(model, ids, cu):
    """The state after the embeddings, after each block, and the last hidden state; and the entropy of
    attention in each block over texts of more than 30 tokens, as a share of the largest, or None."""
    seen, collected, entropies = [], [], []
    hooks = [m.register_forward_hook(lambda _m, _i, o: seen.append(o[0] if isinstance(o, tuple) else o))
             for m in [model.encoder.embed_tokens, *model.encoder.block]]
    with torch.no_grad():
        for start, end in zip(cu[:-1], cu[1:]):
            seen.clear()
            out = model(input_ids=torch.tensor(ids[None, start:end], dtype=torch.long),
                        output_attentions=True)
            found = [h if h.dim() == 2 else h[0] for h in [*seen, out.last_hidden_state]]
            collected.append([h.float().numpy() for h in found])
            if end - start > 30:
                entropies.append([float((-(a * (a + 1e-30).log()).sum(-1)).mean() / math.log(end - start))
                                  for a in out.attentions])
    for hook in hooks:
        hook.remove()
    return [np.concatenate(s) for s in zip(*collected)], np.mean(entropies, 0) if entropies else None


def store(model, case, dtype, prefix):
    """Saves the parameters in dtype and gives the model their values back. The table of words is one."""
    tensors = {k: v.detach().to(dtype).contiguous() for k, v in model.named_parameters()}
    with torch.no_grad():
        for k, p in model.named_parameters():
            p.copy_(tensors[k].float())
    save_file({prefix + k: v for k, v in tensors.items()}, case / "model.safetensors",
              metadata={"format": "pt"})


def build(case, spec, seed):
    """A model of spec, and its files in the folder case."""
    config_class, model_class, own, dtype, prefix, _ = spec
    config = config_class(**own)
    written = {"model_type": config.model_type, "architectures": [model_class.__name__],
               "feed_forward_proj": config.feed_forward_proj} | own
    (case / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    randomise(model, seed)
    store(model, case, dtype, prefix)
    return model, config


def encoder(name, spec, seed):
    case, model_class, lengths = fresh(f"t5-{name}"), spec[1], spec[-1]
    model, config = build(case, spec, seed)
    rng = np.random.default_rng(seed)
    cu = np.cumsum([0] + lengths).astype(np.int32)
    ids = rng.integers(0, config.vocab_size, cu[-1], dtype=np.int32)
    ids[0], ids[-1] = 0, config.vocab_size - 1  # both ends of the table
    rows = modernbert.kept(lengths, 5)
    own_states, entropy = states(model, ids, cu)
    exact, _ = states(copy.deepcopy(model).double(), ids, cu)
    floor = max(float(np.abs(a - b).max()) for a, b in zip(own_states, exact))
    shares = {str(i): round(float(e), 3) for i, e in enumerate(entropy)}
    tensors = {"ids": ids, "cu_seqlens": cu, "rows": rows, "final": own_states[-1][rows]}
    save(case, tensors | {f"hidden_{i}": h[rows] for i, h in enumerate(own_states[:-1])})
    largest = max(float(np.abs(h).max()) for h in own_states)
    manifest.write(case, COMMAND, f"random {model_class.__name__}, seed {seed}", "float32",
                   {"max_abs_float32_to_float64": floor, "max_abs_value": largest,
                    "attention_entropy": shares})
    print(case.name, "float32 noise floor", floor, "max", largest, "entropy", shares,
          sum(f.stat().st_size for f in case.iterdir()) // 1024, "KiB")


ADAPTED = (MT5Config, T5EncoderModel,
           dict(vocab_size=41, d_model=24, d_kv=32, d_ff=20, num_heads=1, num_layers=2),
           torch.bfloat16, "", [7, 1, 16, 5])


def adapted(seed):
    case, lengths = fresh("lora-t5"), ADAPTED[-1]
    base, config = build(case, ADAPTED, seed)
    rng = np.random.default_rng(seed)
    cu = np.cumsum([0] + lengths).astype(np.int32)
    ids = rng.integers(0, config.vocab_size, cu[-1], dtype=np.int32)
    tensors, without = {"ids": ids, "cu_seqlens": cu}, states(base, ids, cu)[0][:-1]
    tensors |= {f"base.hidden_{i}": h for i, h in enumerate(without)}
    notes, floor = {}, 0.0
    for number, (adapter, options) in enumerate({
            "attention": dict(r=4, lora_alpha=8, target_modules=["q", "v"]),
            "every": dict(r=3, lora_alpha=4, target_modules=["q", "k", "v", "o", "wi_0", "wi_1", "wo"]),
            "gate": dict(r=5, lora_alpha=6, target_modules=["wi_1"])}.items()):
        model = get_peft_model(copy.deepcopy(base), LoraConfig(**options))
        lora.randomise_adapter(model, 100 * seed + number)
        lora.save_adapter(case / "adapters" / adapter, model, False)
        model = PeftModel.from_pretrained(copy.deepcopy(base), case / "adapters" / adapter).eval()
        hidden = states(model.base_model.model, ids, cu)[0][:-1]
        exact = states(model.double().base_model.model, ids, cu)[0][:-1]
        floor = max(floor, *(float(np.abs(a - b).max()) for a, b in zip(hidden, exact)))
        assert float(np.abs(hidden[-1] - without[-1]).max()) > 0.1, f"{adapter} changes nothing"
        notes[adapter] = sorted(lora.deltas(model, ""))
        tensors |= {f"{adapter}.hidden_{i}": h for i, h in enumerate(hidden)}
    save(case, tensors)
    manifest.write(case, COMMAND, f"random T5EncoderModel, seed {seed}", "float32",
                   {"peft": peft_version, "prefix": "", "adapters": notes,
                    "max_abs_float32_to_float64": floor})
    print(case.name, notes, "float32 noise floor", floor)


if __name__ == "__main__":
    for number, (name, spec) in enumerate(CASES.items(), 900):
        encoder(name, spec, number)
    adapted(910)
