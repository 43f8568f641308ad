"""Tiny random ModernBERTs of every variant that changes the computation: the states after the
embeddings and after every block, the final output, and what the heads of transformers give.

    python tools/golden/modernbert.py

Each encoder is a folder testdata/golden/modernbert-<name> with config.json, model.safetensors and
golden.safetensors:

    ids [T] int32, cu_seqlens [B+1] int32   packed tokens
    rows          [R] int32   the rows of which states are kept: all of short texts, some of long ones
    hidden_<i>    [R, C] f32  the state after the embeddings (0) and after each block (1 … L)
    final         [R, C] f32  last_hidden_state

ModernBertModel normalises once more behind the last block, so the blocks' states are taken by
hooks. Every sequence is run alone, float32, eager. The weights make attention neither uniform nor
one-hot: the manifest has the mean entropy of its rows, as a share of that of uniform rows, for the
blocks of each kind, over texts that a window cuts. It also has how far the float32 reference is
from the same model in float64.

The heads are in folders <task>-modernbert…, in the form of heads.py.
"""

import copy
import json
import math
import shutil

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import ModernBertConfig, ModernBertModel

import coarse
import heads
import manifest

COMMAND = "python tools/golden/modernbert.py"
SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40}

# name: configuration, as config.json says it; type of the checkpoint; prefix of its names; lengths
CASES = {
    # A window of ±5, heads of 32 columns, every third block global, the last one too.
    "window": (dict(vocab_size=101, hidden_size=64, num_hidden_layers=4, num_attention_heads=2,
                    intermediate_size=40, max_position_embeddings=256, local_attention=10,
                    global_attn_every_n_layers=3, global_rope_theta=160000.0, local_rope_theta=10000.0),
               torch.bfloat16, "model.", [1, 2, 3, 127, 128, 129]),
    # All biases, SwiGLU, kinds by name with a local block at both ends, an odd width (±3), heads of
    # 64 columns.
    "biases": (dict(vocab_size=97, hidden_size=64, num_hidden_layers=3, num_attention_heads=1,
                    intermediate_size=56, max_position_embeddings=200, local_attention=7,
                    hidden_activation="silu", norm_bias=True, attention_bias=True, mlp_bias=True, norm_eps=1e-3,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                    global_rope_theta=5000.0, local_rope_theta=100.0),
               torch.float16, "", [5, 127, 1, 128, 7, 8, 129]),
    # The widest published heads, the tanh form of GELU, and both bases in the newer form, as mmBERT
    # has them. No text is as long as the window.
    "d128": (dict(vocab_size=61, hidden_size=128, num_hidden_layers=2, num_attention_heads=1,
                  intermediate_size=32, max_position_embeddings=100, hidden_activation="gelu_pytorch_tanh",
                  rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 160000.0},
                                   "sliding_attention": {"rope_type": "default", "rope_theta": 160000.0}}),
             torch.bfloat16, "model.", [17, 63, 2]),
    # Stretched embeddings for both kinds, texts longer than the trained length, every second block
    # global, a base that the file leaves out.
    "yarn": (dict(vocab_size=61, hidden_size=64, num_hidden_layers=4, num_attention_heads=2,
                  intermediate_size=24, max_position_embeddings=160, local_attention=32,
                  global_attn_every_n_layers=2, rope_scaling=YARN, global_rope_theta=20000.0),
             torch.bfloat16, "model.", [160, 39, 40, 41, 3]),
    # Kinds with embeddings of two sorts; heads of 22 columns, which are no multiple of 16; all
    # three blocks in a row, the last one local.
    "d22": (dict(vocab_size=61, hidden_size=66, num_hidden_layers=3, num_attention_heads=3,
                 intermediate_size=50, max_position_embeddings=150, local_attention=12, rope_parameters={
                     "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 3000.0},
                     "sliding_attention": {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
                                           "high_freq_factor": 4.0, "original_max_position_embeddings": 20}}),
            torch.float32, "model.", [33, 1, 100]),
    # Global blocks alone.
    "global": (dict(vocab_size=61, hidden_size=64, num_hidden_layers=2, num_attention_heads=1,
                    intermediate_size=40, max_position_embeddings=130, global_attn_every_n_layers=1),
               torch.bfloat16, "0.auto_model.", [64, 130, 2]),
}


def randomise(model, seed):
    """Fan-in scaled normals; queries and keys stronger; gamma around 1 with a few large columns."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, std):
        return coarse.normal(shape, std, generator)

    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("norm.weight"):
                p.copy_(1 + normal(p.shape, 0.2))
                p[:: max(1, p.numel() // 3)] *= 1.5
            elif name.endswith("bias"):
                p.copy_(normal(p.shape, 0.2))
            elif "embeddings." in name:
                p.copy_(normal(p.shape, 0.3))
            else:
                p.copy_(normal(p.shape, 1.1 / math.sqrt(p.shape[1])))
            if "Wqkv.weight" in name:
                p[:2 * p.shape[1]] *= 1.3


def kept(lengths, window):
    """Every row of a text of up to 10 tokens; of a longer one the ends, what a window's edge makes
    different, and some between."""
    out, start = [], 0
    for n in lengths:
        rows = range(n) if n <= 10 else sorted(r for r in {
            0, 1, window - 1, window, window + 1, n // 3, n // 2, n - window - 2, n - window - 1, n - 2,
            n - 1} if 0 <= r < n)
        out += [start + r for r in rows]
        start += n
    return np.array(out, dtype=np.int32)


def states(model, ids, cu):
    """The state after the embeddings, after each block, and the last hidden state; and the entropy
    of attention in each block over texts of more than 30 tokens, as a share of the largest."""
    seen, collected, entropies = [], [], []
    hooks = [m.register_forward_hook(lambda _m, _i, o: seen.append(o[0] if isinstance(o, tuple) else o))
             for m in [model.embeddings, *model.layers]]
    with torch.no_grad():
        for start, end in zip(cu[:-1], cu[1:]):
            seen.clear()
            out = model(input_ids=torch.tensor(ids[None, start:end], dtype=torch.long),
                        output_attentions=True)
            collected.append([h[0].float().numpy() for h in [*seen, out.last_hidden_state]])
            if end - start > 30 and out.attentions:
                entropies.append([float(((-(a * (a + 1e-30).log()).sum(-1)) /
                                         (a > 0).sum(-1).clamp(min=2).log()).mean()) for a in out.attentions])
    for hook in hooks:
        hook.remove()
    return [np.concatenate(s) for s in zip(*collected)], np.mean(entropies, 0) if entropies else None


def store(model, case, dtype, prefix):
    """Saves the parameters in that type and gives the model the values that were saved."""
    tensors = {k: v.detach().to(dtype).contiguous() for k, v in model.named_parameters()}
    with torch.no_grad():
        for k, p in model.named_parameters():
            p.copy_(tensors[k].float())
    save_file({prefix + k: v for k, v in tensors.items()}, case / "model.safetensors",
              metadata={"format": "pt"})


def encoder(name, spec, seed):
    plain, dtype, prefix, lengths = spec
    case = manifest.GOLDEN / f"modernbert-{name}"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    written = {"model_type": "modernbert", "architectures": ["ModernBertModel"]} | plain | SPECIAL
    (case / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    config = ModernBertConfig.from_pretrained(case, attn_implementation="eager")
    model = ModernBertModel(config).eval()
    randomise(model, seed)
    store(model, case, dtype, prefix)

    rng = np.random.default_rng(seed)
    cu = np.cumsum([0] + lengths).astype(np.int32)
    ids = rng.integers(0, config.vocab_size, cu[-1], dtype=np.int32)
    ids[0], ids[-1] = 0, config.vocab_size - 1  # both ends of the table
    rows = kept(lengths, config.sliding_window)
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
    manifest.write(case, COMMAND, f"random ModernBert, seed {seed}", "float32",
                   {"max_abs_float32_to_float64": floor, "max_abs_value": largest,
                    "attention_entropy": shares})
    print(case.name, "float32 noise floor", floor, "max", largest, "entropy", shares)


SMALL = dict(vocab_size=101, hidden_size=64, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
             max_position_embeddings=60, local_attention=8) | SPECIAL
LOCAL_LAST = dict(num_hidden_layers=2)
HEADS = [
    ("classify-modernbert", "logits", "ModernBertForSequenceClassification",
     dict(id2label=heads.EMOTIONS, label2id={v: k for k, v in heads.EMOTIONS.items()}) | LOCAL_LAST),
    ("classify-modernbert-mean", "logits", "ModernBertForSequenceClassification",
     dict(num_labels=1, classifier_pooling="mean", classifier_bias=True, norm_bias=True,
          classifier_activation="silu")),
    ("classify-modernbert-global", "logits", "ModernBertForSequenceClassification",
     dict(num_labels=2, num_hidden_layers=4, problem_type="multi_label_classification")),
    ("tag-modernbert", "token_logits", "ModernBertForTokenClassification",
     dict(id2label=heads.TAGS, label2id={v: k for k, v in heads.TAGS.items()})),
    ("masked-modernbert", "word_logits", "ModernBertForMaskedLM", {}),
    ("masked-modernbert-untied", "word_logits", "ModernBertForMaskedLM",
     dict(tie_word_embeddings=False, decoder_bias=False, classifier_bias=True, classifier_activation="relu")),
]


def head(name, key, class_name, own, seed):
    case = manifest.GOLDEN / name
    shutil.rmtree(case, ignore_errors=True)
    config = ModernBertConfig(**SMALL | own, attn_implementation="eager")
    model = getattr(transformers, class_name)(config).eval()
    randomise(model, seed)
    model.save_pretrained(case)
    b = heads.batch(config, seed)
    take = (lambda o: o.logits) if key == "logits" else (lambda o: o.logits[0])
    b[key] = np.concatenate(heads.alone(model, b, take)).astype(np.float32)
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in b.items()},
              case / "golden.safetensors")
    manifest.write(case, COMMAND, f"random {class_name}, seed {seed}", "float32", {})
    print(name, b[key].shape, float(np.abs(b[key]).max()), sorted(load_file(case / "model.safetensors"))[:3])


def main():
    torch.set_num_threads(1)
    for seed, (name, spec) in enumerate(CASES.items(), start=301):
        encoder(name, spec, seed)
    for seed, spec in enumerate(HEADS, start=331):
        head(*spec, seed)


if __name__ == "__main__":
    main()
