"""Tiny random models of BERT's family, of odd shapes, and every hidden state of them, from
transformers (float32, eager).

    python tools/golden/bert.py

Each case is a folder testdata/golden/<family>-<name> with config.json, model.safetensors (stored in
the case's dtype) and golden.safetensors:

    ids, type_ids [T] int32    packed tokens        cu_seqlens [B+1] int32
    hidden_<i>    [T, C] f32   the state after the embeddings (0) and after each layer (1 … L)

Every sequence is run alone, so no padding touches the reference. Weights are scaled so that
attention is neither uniform nor one-hot and activations reach past the flat part of the activation
functions. The manifest notes how far the float32 reference is from the same model in float64: the
noise floor of the comparison.
"""

import copy
import json
import math
import pathlib
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import (AlbertConfig, AlbertModel, BertConfig, BertModel, CamembertConfig, CamembertModel,
                          DistilBertConfig, DistilBertModel, ElectraConfig, ElectraModel, RobertaConfig,
                          RobertaModel, XLMRobertaConfig, XLMRobertaModel)

import coarse
import manifest

FAMILIES = {
    "bert": (BertConfig, BertModel),
    "roberta": (RobertaConfig, RobertaModel),
    "xlmr": (XLMRobertaConfig, XLMRobertaModel),
    "camembert": (CamembertConfig, CamembertModel),
    "distilbert": (DistilBertConfig, DistilBertModel),
    "electra": (ElectraConfig, ElectraModel),
    "albert": (AlbertConfig, AlbertModel),
}
BARE = ("distilbert", "electra")  # without a pooler to leave out

CASES = {
    # 24 layers, one head; f16 checkpoint; FFN narrower than a vector and odd. The branches are damped so
    # that rounding does not grow from layer to layer past what a comparison can use.
    "bert-deep-h32": dict(config=dict(vocab_size=101, hidden_size=32, num_hidden_layers=24,
                                      num_attention_heads=1, intermediate_size=37, max_position_embeddings=64,
                                      type_vocab_size=2), dtype=torch.float16, prefix="",
                          lengths=[1, 33, 2, 64, 5], gain=0.35),
    # head dimension 32, tanh-GELU, one token type, vocabulary one short of a power of two, f32 checkpoint.
    "bert-gelutanh-h64": dict(config=dict(
        vocab_size=1023, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=100,
        max_position_embeddings=80, type_vocab_size=1, hidden_act="gelu_new"), dtype=torch.float32,
                              prefix="bert.", lengths=[7, 80, 1, 16, 31, 32]),
    # head dimension 64, exact GELU, bf16 checkpoint.
    "bert-erf-h128": dict(config=dict(vocab_size=101, hidden_size=128, num_hidden_layers=2,
                                      num_attention_heads=2, intermediate_size=200,
                                      max_position_embeddings=130, type_vocab_size=2), dtype=torch.bfloat16,
                          prefix="", lengths=[129, 3, 64, 17]),
    # 192 columns, three heads, ReLU, one layer, a large eps, bf16 checkpoint.
    "bert-relu-h192": dict(config=dict(
        vocab_size=211, hidden_size=192, num_hidden_layers=1, num_attention_heads=3, intermediate_size=250,
        max_position_embeddings=48, type_vocab_size=2, hidden_act="relu", layer_norm_eps=1e-5),
                           dtype=torch.bfloat16, prefix="model.", lengths=[2, 48, 1, 1, 15, 33]),
    # positions from 2, one token type, the longest sequence that they hold, f32 checkpoint.
    "xlmr-h64": dict(config=dict(vocab_size=303, hidden_size=64, num_hidden_layers=3, num_attention_heads=2,
                                 intermediate_size=90, max_position_embeddings=68, type_vocab_size=1,
                                 layer_norm_eps=1e-5), dtype=torch.float32, prefix="roberta.",
                     lengths=[66, 1, 33, 2, 17]),
    # positions from 6, two token types, head dimension 64, f16 checkpoint.
    "roberta-pad5-h128": dict(config=dict(
        vocab_size=157, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=130,
        max_position_embeddings=41, type_vocab_size=2, layer_norm_eps=1e-5, pad_token_id=5, bos_token_id=0,
        eos_token_id=2), dtype=torch.float16, prefix="", lengths=[3, 35, 1, 16]),
    "camembert-h32": dict(config=dict(vocab_size=99, hidden_size=32, num_hidden_layers=2,
                                      num_attention_heads=1, intermediate_size=64, max_position_embeddings=34,
                                      type_vocab_size=1, layer_norm_eps=1e-5), dtype=torch.float32,
                          prefix="roberta.", lengths=[32, 5]),
    # keys of its own, no token types, bf16 checkpoint.
    "distilbert-h96": dict(config=dict(vocab_size=203, dim=96, n_layers=2, n_heads=3, hidden_dim=150,
                                       max_position_embeddings=70), dtype=torch.bfloat16,
                           prefix="distilbert.", lengths=[70, 1, 32, 9]),
    "distilbert-sinus-h64": dict(config=dict(
        vocab_size=101, dim=64, n_layers=3, n_heads=1, hidden_dim=100, max_position_embeddings=40,
        activation="relu", sinusoidal_pos_embds=True), dtype=torch.float32, prefix="", lengths=[2, 40, 11]),
    # heads of 16, 40, 80, 96 and 128 columns: less than a panel, and none of them a power of two
    # but the ends.
    "bert-d16": dict(config=dict(vocab_size=101, hidden_size=48, num_hidden_layers=2, num_attention_heads=3,
                                 intermediate_size=60, max_position_embeddings=50, type_vocab_size=2),
                     dtype=torch.float32, prefix="", lengths=[1, 50, 17, 32]),
    "bert-d40": dict(config=dict(vocab_size=101, hidden_size=80, num_hidden_layers=2, num_attention_heads=2,
                                 intermediate_size=90, max_position_embeddings=70, type_vocab_size=2),
                     dtype=torch.bfloat16, prefix="", lengths=[33, 2, 70, 16]),
    "xlmr-d80": dict(config=dict(vocab_size=101, hidden_size=160, num_hidden_layers=1, num_attention_heads=2,
                                 intermediate_size=100, max_position_embeddings=50, type_vocab_size=1,
                                 layer_norm_eps=1e-5), dtype=torch.bfloat16, prefix="roberta.",
                     lengths=[31, 1, 48]),
    "bert-d96": dict(config=dict(vocab_size=101, hidden_size=96, num_hidden_layers=2, num_attention_heads=1,
                                 intermediate_size=70, max_position_embeddings=40, type_vocab_size=2),
                     dtype=torch.float16, prefix="", lengths=[40, 3, 15]),
    "bert-d128": dict(config=dict(vocab_size=101, hidden_size=128, num_hidden_layers=1, num_attention_heads=1,
                                  intermediate_size=80, max_position_embeddings=66, type_vocab_size=2),
                      dtype=torch.bfloat16, prefix="", lengths=[65, 1, 32]),
    # ELECTRA with embeddings of another width, as its small models are, and of the same, without
    # the projection.
    "electra-h64": dict(config=dict(vocab_size=131, embedding_size=24, hidden_size=64, num_hidden_layers=3,
                                    num_attention_heads=1, intermediate_size=90, max_position_embeddings=60,
                                    type_vocab_size=2), dtype=torch.float32, prefix="electra.",
                        lengths=[7, 60, 1, 33]),
    "electra-e64": dict(config=dict(vocab_size=97, embedding_size=64, hidden_size=64, num_hidden_layers=2,
                                    num_attention_heads=2, intermediate_size=100, max_position_embeddings=48,
                                    type_vocab_size=2, hidden_act="relu"), dtype=torch.bfloat16, prefix="",
                        lengths=[48, 2, 16]),
    # ALBERT with one block for all layers; with groups that do not divide the layers, and two
    # blocks a group; and with embeddings as wide as its blocks, which pass a projection all the
    # same.
    "albert-h64": dict(config=dict(vocab_size=151, embedding_size=16, hidden_size=64, num_hidden_layers=4,
                                   num_attention_heads=2, intermediate_size=110, max_position_embeddings=60,
                                   type_vocab_size=2), dtype=torch.float32, prefix="albert.",
                       lengths=[60, 1, 33, 9], gain=1.1),
    "albert-groups": dict(config=dict(
        vocab_size=101, embedding_size=20, hidden_size=64, num_hidden_layers=4, num_hidden_groups=3,
        inner_group_num=2, num_attention_heads=2, intermediate_size=70, max_position_embeddings=40,
        type_vocab_size=2, hidden_act="gelu"), dtype=torch.float32, prefix="", lengths=[40, 3, 17], gain=0.6),
    "albert-e32": dict(config=dict(vocab_size=101, embedding_size=32, hidden_size=32, num_hidden_layers=3,
                                   num_attention_heads=1, intermediate_size=64, max_position_embeddings=40,
                                   type_vocab_size=2), dtype=torch.bfloat16, prefix="", lengths=[39, 1, 16],
                       gain=0.6),
}


def randomise(model: torch.nn.Module, seed: int, branch_gain: float) -> None:
    """Fan-in scaled normals; queries and keys stronger; gamma around 1 with a few large columns."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, std):
        return coarse.normal(shape, std, generator)

    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("LayerNorm.weight", "layer_norm.weight", "layer_layer_norm.weight")):
                p.copy_(1 + normal(p.shape, 0.15))
                p[:: max(1, p.numel() // 3)] *= 1.5
            elif name.endswith("bias"):
                p.copy_(normal(p.shape, 0.1))
            elif "embeddings." in name:
                p.copy_(normal(p.shape, 0.7))
            else:
                gain = 1.3 if any(n in name
                                  for n in (".query.", ".key.", ".q_lin.", ".k_lin.")) else branch_gain
                p.copy_(normal(p.shape, gain / math.sqrt(p.shape[1])))


def hidden_states(model: torch.nn.Module, ids, type_ids, cu) -> list[np.ndarray]:
    states = []
    with torch.no_grad():
        for start, end in zip(cu[:-1], cu[1:]):
            types = {} if type_ids is None else {"token_type_ids": torch.tensor(type_ids[None, start:end],
                                                                                dtype=torch.long)}
            out = model(input_ids=torch.tensor(ids[None, start:end], dtype=torch.long),
                        output_hidden_states=True, **types)
            states.append([h[0].numpy() for h in out.hidden_states])
    return [np.concatenate([s[i] for s in states]) for i in range(len(states[0]))]


def make(name: str, spec: dict, seed: int) -> None:
    case = manifest.GOLDEN / name
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)

    family = name.split("-")[0]
    config_class, model_class = FAMILIES[family]
    config = config_class(**spec["config"], attn_implementation="eager")
    torch.manual_seed(seed)
    model = (model_class(config) if family in BARE else model_class(config, add_pooling_layer=False)).eval()
    randomise(model, seed, spec.get("gain", 0.9))
    # The reference computes in float32 on exactly the values the checkpoint stores.
    stored = {spec["prefix"] + k: v.detach().to(spec["dtype"]).contiguous()
              for k, v in model.named_parameters()}
    with torch.no_grad():
        for k, p in model.named_parameters():
            p.copy_(stored[spec["prefix"] + k].float())
    save_file(stored, case / "model.safetensors", metadata={"format": "pt"})

    plain = config.to_diff_dict() | spec["config"]
    plain |= {"model_type": config.model_type, "architectures": [model_class.__name__]}
    if family != "distilbert":
        plain |= {"layer_norm_eps": config.layer_norm_eps, "hidden_act": config.hidden_act}
    plain = {k: v for k, v in plain.items() if not k.startswith("_")}
    (case / "config.json").write_text(json.dumps(plain, indent=2, sort_keys=True) + "\n")

    rng = np.random.default_rng(seed)
    cu = np.cumsum([0] + spec["lengths"]).astype(np.int32)
    ids = rng.integers(0, config.vocab_size, cu[-1], dtype=np.int32)
    ids[0], ids[-1] = 0, config.vocab_size - 1  # both ends of the table
    if "bert" != family:  # transformers gives padding no position of its own
        ids[ids == config.pad_token_id] = 9
    types = getattr(config, "type_vocab_size", 0)
    type_ids = rng.integers(0, types, cu[-1], dtype=np.int32) if types else None

    states = hidden_states(model, ids, type_ids, cu)
    exact = hidden_states(copy.deepcopy(model).double(), ids, type_ids, cu)
    floor = max(float(np.abs(a - b).max()) for a, b in zip(states, exact))

    tensors = {"ids": ids, "cu_seqlens": cu} | ({"type_ids": type_ids} if types else {})
    tensors |= {f"hidden_{i}": np.ascontiguousarray(h, dtype=np.float32) for i, h in enumerate(states)}
    save_file({k: torch.from_numpy(v) for k, v in tensors.items()}, case / "golden.safetensors")
    manifest.write(case, "python tools/golden/bert.py", f"random {config_class.__name__[:-6]}, seed {seed}",
                   "float32", {"max_abs_float32_to_float64": floor,
                               "max_abs_value": max(float(np.abs(h).max()) for h in states)})
    print(name, "float32 noise floor", floor, "max", max(float(np.abs(h).max()) for h in states))


def main() -> None:
    torch.set_num_threads(1)
    for seed, (name, spec) in enumerate(CASES.items(), start=1):
        make(name, spec, seed)


if __name__ == "__main__":
    main()
