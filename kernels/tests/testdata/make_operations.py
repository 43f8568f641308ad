"""Writes operations.bin: the operations of kernels/ops.h as PyTorch, Transformers and Sentence
Transformers do them.

    pip install -r ../../../tools/golden/requirements.txt
    python3 make_operations.py

Everything is computed in float64 from inputs that every storage type holds exactly
(golden_file.bf16), so the expected values are the mathematics and not another library's rounding.
Quantised codes are bit for bit.
"""

import pathlib

import golden_file
import numpy as np
import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertConfig, LlamaConfig
from transformers.models.bert.modeling_bert import BertEmbeddings
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(20261121)
cases = []
LAYER, RMS = 0, 1
ACTS = {"none": 0, "gelu": 1, "tanh": 2, "gelu_tanh": 3, "relu": 4, "silu": 5}
GATES = {"swiglu": 1, "geglu": 2, "geglu_tanh": 3}
FULL, CAUSAL, WINDOW = 0, 1, 2
CLS, MEAN, LAST, ATTENTION, WEIGHTED, MAX, MEAN_SQRT = 1, 2, 3, 4, 5, 6, 7


def draw(*shape, scale=0.5):
    return golden_file.bf16(np.clip(rng.standard_normal(shape) * scale, -1.9, 1.9))


def t(x):
    return torch.tensor(np.asarray(x, dtype=np.float64))


def add(operation, name, numbers, **arrays):
    cases.append((operation, name, numbers, {k: np.asarray(v) for k, v in arrays.items() if v is not None}))


def activation(name):
    return {
        "none": lambda x: x,
        "gelu": F.gelu,
        "tanh": torch.tanh,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "relu": F.relu,
        "silu": F.silu,
    }[name]


def norms():
    c = 96
    x, residual, bias, gamma, beta = draw(5, c), draw(5, c), draw(c), draw(c), draw(c)
    s = t(x) + t(bias) + t(residual)
    layer = F.layer_norm(s, (c,), t(gamma), t(beta), 1e-12)
    add("layernorm", "layer", {"norm": LAYER, "eps": 1e-12, "offset": 0}, x=x, residual=residual, bias=bias,
        gamma=gamma, beta=beta, y=layer, out=s)
    add("layernorm", "rms", {"norm": RMS, "eps": 1e-6, "offset": 0}, x=x, gamma=gamma,
        y=F.rms_norm(t(x), (c,), t(gamma), 1e-6))
    gemma = GemmaRMSNorm(c, eps=1e-6)
    gemma.weight.data = t(gamma)
    # Gemma's own norm computes in float32.
    add("layernorm", "gemma", {"norm": RMS, "eps": 1e-6, "offset": 1}, x=x, gamma=gamma,
        y=gemma(t(x)).detach())


def embeddings():
    config = BertConfig(vocab_size=12, hidden_size=48, max_position_embeddings=9, type_vocab_size=2,
                        hidden_dropout_prob=0.0, num_attention_heads=4)
    bert = BertEmbeddings(config).double().eval()
    tables = {"word": draw(12, 48), "position": draw(9, 48), "type": draw(2, 48)}
    gamma, beta = draw(48), draw(48)
    with torch.no_grad():
        bert.word_embeddings.weight.copy_(t(tables["word"]))
        bert.position_embeddings.weight.copy_(t(tables["position"]))
        bert.token_type_embeddings.weight.copy_(t(tables["type"]))
        bert.LayerNorm.weight.copy_(t(gamma))
        bert.LayerNorm.bias.copy_(t(beta))
        lengths = [9, 1, 4]
        ids, types = rng.integers(0, 12, 14), rng.integers(0, 2, 14)
        y, at = [], 0
        for n in lengths:
            y.append(bert(torch.tensor(ids[None, at:at + n]), torch.tensor(types[None, at:at + n]))[0])
            at += n
    add("embed_layernorm", "bert", {"eps": config.layer_norm_eps}, ids=ids, types=types, lengths=lengths,
        gamma=gamma, beta=beta, y=torch.cat(y), **tables)


def linears():
    n, k = 18, 64
    x, w, bias = draw(5, k), draw(n, k, scale=0.2), draw(n)
    z = F.linear(t(x), t(w), t(bias))
    residual = draw(5, n)
    for name, act in ACTS.items():
        y = activation(name)(z)
        kept = residual if name in ("none", "gelu") else None
        add("linear", name, {"act": act, "gate": 0}, x=x, w=w, bias=bias, residual=kept,
            y=y + t(kept) if kept is not None else y)
    # The checkpoint's two matrices are interleaved row by row for the operation.
    gate, up = F.linear(t(x), t(w[0::2]), t(bias[0::2])), F.linear(t(x), t(w[1::2]), t(bias[1::2]))
    acts = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}
    for name, number in GATES.items():
        kept = residual[:, : n // 2] if name == "swiglu" else None
        y = activation(acts[name])(gate) * up
        add("linear", name, {"act": 0, "gate": number}, x=x, w=w, bias=bias, residual=kept,
            y=y + t(kept) if kept is not None else y)


def quantised_linears():
    """Weights that are already on the grid: their largest element is the grid's, so packing changes
    nothing."""
    n, k, rows = 16, 160, 5
    for group in (-1, 128):
        codes = torch.tensor(rng.standard_normal((rows, k)) * 60, dtype=torch.float32).to(torch.float8_e4m3fn)
        scale = golden_file.bf16(rng.uniform(0.1, 1, (rows, 1 if group < 0 else 2)))
        wide = np.repeat(scale, k, axis=1) if group < 0 else np.repeat(scale, 128, axis=1)[:, :k]
        x = codes.double().numpy() * wide
        w = torch.tensor(rng.standard_normal((n, k)) * 60,
                         dtype=torch.float32).to(torch.float8_e4m3fn).double()
        w[:, 3] = 448
        w *= torch.pow(2.0, torch.tensor(rng.integers(-12, -8, (n, 1)), dtype=torch.float64))
        add("linear_f8", f"group {group}", {"group": group}, codes=codes.view(torch.uint8).numpy(),
            scale=scale, w=w, y=F.linear(t(x), w))
    codes, zero = rng.integers(0, 256, (rows, k)).astype(np.uint8), rng.integers(0, 256, (rows, 1))
    scale = golden_file.bf16(rng.uniform(0.02, 0.1, (rows, 1)))
    w = rng.integers(-127, 128, (n, k)).astype(np.float64)
    w[:, 5] = 127
    w *= np.exp2(rng.integers(-9, -6, (n, 1)))
    x = (codes.astype(np.float64) - zero) * scale
    add("linear_int8", "rows", {}, codes=codes, scale=scale, zero=zero, w=w, y=F.linear(t(x), t(w)))


def attend(name, lengths, heads, kv_heads, d, mask=FULL, window=0, alibi=False):
    total = sum(lengths)
    q, k, v = draw(total, heads * d), draw(total, kv_heads * d), draw(total, kv_heads * d)
    slopes = np.array([2.0 ** (-8 * (h + 1) / heads) for h in range(heads)]) if alibi else None
    y, at = [], 0
    for n in lengths:
        part = [t(m[at:at + n]).reshape(n, -1, d).transpose(0, 1)[None] for m in (q, k, v)]
        distance = (torch.arange(n)[:, None] - torch.arange(n)[None]).abs()
        bias = None
        if alibi:
            bias = -t(slopes)[:, None, None] * distance
            if mask == CAUSAL:
                bias = bias.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
            bias = bias[None]
        if mask == WINDOW:
            bias = torch.zeros(n, n).masked_fill(distance > window, -torch.inf)
        out = F.scaled_dot_product_attention(*part, attn_mask=bias, is_causal=mask == CAUSAL and not alibi,
                                             enable_gqa=heads != kv_heads)
        y.append(out[0].transpose(0, 1).reshape(n, heads * d))
        at += n
    add("attention", name, {"heads": heads, "kv_heads": kv_heads, "d": d, "mask": mask, "window": window},
        lengths=lengths, q=q, k=k, v=v, slopes=slopes, y=torch.cat(y))


def attentions():
    lengths = [9, 1, 4]
    attend("full", lengths, 2, 2, 32)
    attend("causal", lengths, 2, 2, 32, CAUSAL)
    attend("window", lengths, 2, 2, 32, WINDOW, 4)
    attend("grouped", lengths, 4, 2, 32)
    attend("causal grouped", lengths, 4, 1, 32, CAUSAL)
    attend("alibi", lengths, 2, 2, 32, alibi=True)
    attend("causal alibi", lengths, 2, 2, 32, CAUSAL, alibi=True)
    attend("full 64", [19], 1, 1, 64)
    attend("causal 128", [9], 1, 1, 128, CAUSAL)


def rotate(name, rot, norm):
    lengths, heads, kv_heads, d = [4, 1, 5], 2, 1, 32
    total = sum(lengths)
    q, k = draw(total, heads * d), draw(total, kv_heads * d)
    gammas = [draw(d) if norm else None for _ in range(2)]
    config = LlamaConfig(hidden_size=rot * heads, num_attention_heads=heads, head_dim=rot,
                         rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    rope = LlamaRotaryEmbedding(config)
    cos, sin = (m[0] for m in rope(torch.zeros(1), torch.arange(max(lengths))[None]))
    # What the operation reads is f32; the expectation starts from the same numbers.
    cos, sin = cos.float().double(), sin.float().double()
    outs, at = [[], []], 0
    for n in lengths:
        parts = []
        for x, gamma in zip((q, k), gammas):
            part = t(x[at:at + n]).reshape(n, -1, d)
            if norm:
                module = Qwen3RMSNorm(d, eps=1e-6)
                module.weight.data = t(gamma)
                part = part * torch.rsqrt(part.pow(2).mean(-1, keepdim=True) + 1e-6) * t(gamma)
                assert torch.allclose(part, module(t(x[at:at + n]).reshape(n, -1, d)), rtol=1e-5, atol=1e-6)
            parts.append(part.transpose(0, 1)[None])
        turned = apply_rotary_pos_emb(parts[0][..., :rot], parts[1][..., :rot], cos[None, :n], sin[None, :n])
        for out, part, new in zip(outs, parts, turned):
            whole = torch.cat([new, part[..., rot:]], dim=-1)[0]
            out.append(whole.transpose(0, 1).reshape(n, -1))
        at += n
    add("qk_norm_rope", name, {"heads": heads, "kv_heads": kv_heads, "d": d, "rot": rot, "eps": 1e-6},
        lengths=lengths, q=q, k=k, q_gamma=gammas[0], k_gamma=gammas[1], cos=cos[:, : rot // 2],
        sin=sin[:, : rot // 2], y=torch.cat(outs[0]), k_out=torch.cat(outs[1]))


def pools():
    lengths, c = [11, 1, 6], 56
    x, w = draw(sum(lengths), c), draw(c)
    names = {"cls": CLS, "mean": MEAN, "lasttoken": LAST, "weightedmean": WEIGHTED, "max": MAX,
             "mean_sqrt_len_tokens": MEAN_SQRT}
    for name, mode in [*names.items(), ("attention", ATTENTION)]:
        rows, at = [], 0
        for n in lengths:
            part = t(x[at:at + n])
            if mode == ATTENTION:
                rows.append(torch.softmax(part @ t(w), 0) @ part)
            else:
                features = {"token_embeddings": part[None],
                            "attention_mask": torch.ones(1, n, dtype=torch.int64)}
                rows.append(Pooling(c, pooling_mode=name)(features)["sentence_embedding"][0])
            at += n
        y = torch.stack(rows)
        add("pool", name, {"mode": mode, "dims": 40}, lengths=lengths, x=x,
            w=w if mode == ATTENTION else None, y=y, out=F.normalize(y[:, :40], dim=-1))


def quantises():
    c = 300
    x = (rng.standard_normal((4, c)) * np.exp2(rng.integers(-6, 7, (4, 1)))).astype(np.float32)
    x[2] = 0
    x[3, :3] = (1e4, -3e-4, 1e-7)
    for group in (-1, 128):
        codes, scales = np.zeros((4, c), np.uint8), []
        for first in range(0, c, c if group < 0 else group):
            block = torch.tensor(x[:, first:first + (c if group < 0 else group)])
            scale = block.abs().amax(1, keepdim=True) / 448
            scale[scale == 0] = 1
            quantised = (block * (1 / scale)).to(torch.float8_e4m3fn)
            codes[:, first:first + block.shape[1]] = quantised.view(torch.uint8).numpy()
            scales.append(scale.numpy())
        add("quantise_f8", f"group {group}", {"group": group}, x=x, codes=codes,
            scale=np.concatenate(scales, axis=1))
    low, high = np.minimum(0, x.min(1, keepdims=True)), np.maximum(0, x.max(1, keepdims=True))
    scale = (high - low) / np.float32(255)
    scale[scale == 0] = 1
    zero = np.rint(-low / scale)
    codes = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    add("quantise_u8", "rows", {}, x=x, codes=codes, scale=scale, zero=zero.astype(np.int32))


def main():
    for make in (norms, embeddings, linears, quantised_linears, attentions, pools, quantises):
        make()
    rotate("llama", 32, False)
    rotate("partial", 16, False)
    rotate("qwen3", 32, True)
    golden_file.write(pathlib.Path(__file__).with_name("operations.bin"), cases)


main()
