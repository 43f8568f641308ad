"""Tiny models with LoRA adapters that PEFT wrote, and the hidden states that PEFT computes with
each.

    python tools/golden/lora.py

Each case is a folder testdata/golden/lora-<architecture>: config.json and model.safetensors of the
base, adapters/<name> with adapter_config.json and adapter_model.safetensors or .bin as PEFT saved
them, and golden.safetensors:

    ids, type_ids [T] int32    packed tokens        cu_seqlens [B+1] int32
    base.hidden_<i>      [T, C] f32   without an adapter: after the embeddings (0) and after each layer (1 … L)
    <adapter>.hidden_<i> [T, C] f32   with it
    <adapter>.delta.<linear> [N] f32  scale·B·A·p of each linear that it changes, p[k] = (k mod 7 − 3)/4, in float64

Every adapter is loaded back from its folder first, so the numbers are those of the files that are
committed. The manifest's notes have each adapter's linears by their names in the encoder, what the
model's class puts before them, and how far the states are from those of the same models in float64:
the noise floor of a comparison.
"""

import json
import shutil

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft import __version__ as peft_version
from peft.tuners.lora import Linear
from safetensors.torch import save_file
from transformers import (
    AlbertConfig, AlbertModel, BertConfig, BertModel, ElectraConfig, ElectraModel, XLMRobertaConfig,
    Gemma3TextConfig, Gemma3TextModel, ModernBertConfig, ModernBertModel, Qwen2Config, Qwen2ForCausalLM,
    Qwen3Config, Qwen3Model,
    XLMRobertaForSequenceClassification,
)

import bert
import coarse
import gemma
import gte
import manifest
import modernbert
import qwen

PLAIN = ("gte", "nomic_bert")  # gte.py and nomic.py make their cases with this file

SHAPE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=100)

CASES = {
    # name: (base, what is before the encoder's names, encoder, first id, adapters)
    "bert": (lambda: BertModel(BertConfig(vocab_size=101, max_position_embeddings=40, type_vocab_size=2,
                                          **SHAPE, attn_implementation="eager")), "", lambda m: m, 0,
             {
                 # The usual one.
                 "rank4": dict(r=4, lora_alpha=8, target_modules=["query", "value"]),
                 # Every linear of the class, the pooler's too, which no hidden state depends on.
                 # Another, odd rank.
                 "rank13": dict(r=13, lora_alpha=9, target_modules="all-linear"),
                 # Scaled by √r; modules by a regular expression.
                 "rslora": dict(
                     r=6, lora_alpha=5, use_rslora=True,
                     target_modules=r"encoder\.layer\.\d+\.(attention\.self\.(query|key)|output\.dense)"),
                 # Ranks and alphas of their own. Of two patterns that fit, the first counts; PEFT sorts
                 # them when it saves.
                 "patterns": dict(r=5, lora_alpha=10, target_modules=["key", "dense"], exclude_modules=[
                     "pooler.dense"], rank_pattern={r".*layer\.0\.intermediate.dense": 2,
                                                    "intermediate.dense": 7, "layer.1.attention.self.key": 3},
                                  alpha_pattern={"attention.output.dense": 21, "key": 6, r"layer\.0\..*": 4}),
                 # One layer only, in a file of torch.save.
                 "layer1": dict(r=2, lora_alpha=7, target_modules=["value", "intermediate.dense"],
                                layers_to_transform=[1]),
             }),
    "xlm-roberta": (lambda: XLMRobertaForSequenceClassification(XLMRobertaConfig(
        vocab_size=113, max_position_embeddings=42, type_vocab_size=1, pad_token_id=1, num_labels=3, **SHAPE,
        attn_implementation="eager")), "roberta.", lambda m: m.roberta, 5, {
            "rank4": dict(r=4, lora_alpha=8, target_modules=["query", "key", "value"]),
            # "dense" is in the head as well.
            "rslora": dict(r=9, lora_alpha=16, use_rslora=True, target_modules=["dense"],
                           layers_to_transform=None),
        }),
    # The linear between embeddings and blocks is one of "all-linear". ALBERT's blocks run several
    # times, with their pairs.
    "electra": (lambda: ElectraModel(ElectraConfig(
        vocab_size=101, embedding_size=24, max_position_embeddings=40, **SHAPE, attn_implementation="eager")),
                "", lambda m: m, 0, {
                    "attention": dict(r=4, lora_alpha=8, target_modules=["query", "value"]),
                    "every": dict(r=3, lora_alpha=4, target_modules="all-linear"),
                }),
    "albert": (lambda: AlbertModel(
        AlbertConfig(vocab_size=101, embedding_size=20, max_position_embeddings=40,
                     **SHAPE | dict(num_hidden_layers=3), attn_implementation="eager")), "", lambda m: m, 0, {
                         "attention": dict(r=4, lora_alpha=8, target_modules=["query", "value"]),
                         "every": dict(r=3, lora_alpha=4, target_modules="all-linear"),
                     }),
    # Fused projections: one pair for query, key and value, and one for the gate and its multiplier.
    "modernbert": (lambda: ModernBertModel(ModernBertConfig(
        **modernbert.SMALL | SHAPE | dict(intermediate_size=40), mlp_bias=True,
        attn_implementation="eager")), "", lambda m: m, 0, {
            "attention": dict(r=4, lora_alpha=8, target_modules=["Wqkv"]),
            "every": dict(r=3, lora_alpha=4, target_modules="all-linear"),
            "gate": dict(r=5, lora_alpha=6, target_modules=r"layers\.1\.mlp\.Wi"),
        }),
    # Queries and keys of different heights, and a gate and its multiplier in matrices of their own.
    "qwen3": (lambda: Qwen3Model(Qwen3Config(
        vocab_size=101, max_position_embeddings=40, num_key_value_heads=1, head_dim=32,
        **SHAPE | dict(hidden_size=48, intermediate_size=40), attn_implementation="eager")), "",
              lambda m: m, 0, {
            "attention": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
            "every": dict(r=3, lora_alpha=4, target_modules="all-linear"),
            "gate": dict(r=5, lora_alpha=6, target_modules=["gate_proj"]),
            "up": dict(r=2, lora_alpha=6, target_modules=["up_proj", "down_proj", "k_proj", "o_proj"]),
        }),
    "qwen2": (lambda: Qwen2ForCausalLM(Qwen2Config(
        vocab_size=101, max_position_embeddings=40, num_key_value_heads=1,
        **SHAPE | dict(hidden_size=48, intermediate_size=40), attn_implementation="eager")), "model.",
              lambda m: m.model, 0, {
                  "rank4": dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj",
                                                                   "gate_proj", "up_proj", "down_proj"]),
                  "keys": dict(r=7, lora_alpha=8, target_modules=["k_proj"]),
              }),
    # Norms behind each half of a block, and scaled words.
    "gemma": (lambda: Gemma3TextModel(Gemma3TextConfig(
        vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, intermediate_size=28, max_position_embeddings=40, query_pre_attn_scalar=32,
        sliding_window=6, layer_types=[gemma.LOCAL, gemma.GLOBAL], **gemma.BOTH_WAYS,
        attn_implementation="eager")), "", lambda m: m, 0, {
            "attention": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
            "every": dict(r=3, lora_alpha=4, target_modules="all-linear"),
            "gate": dict(r=5, lora_alpha=6, target_modules=["gate_proj"]),
        }),
}

# With 308 the plain gemma has a value of 0.53 between int8 and float32, more than any case that int8's bound
# of 0.5 was made for.
SEEDS = {"gemma": 318}


def states(model, encoder, ids, type_ids, cu):
    """The encoder's hidden states, every sequence alone."""
    if type_ids is None and encoder.config.model_type.startswith("qwen"):
        return qwen.run(encoder, ids, cu)[0]
    if encoder.config.model_type in PLAIN:
        return gte.states(encoder, ids, type_ids, cu)[0]
    if type_ids is None and encoder.config.model_type.startswith("gemma"):
        return gemma.states(encoder, ids, cu)[0][:-1]
    if type_ids is None:
        return modernbert.states(encoder, ids, cu)[0][:-1]
    out = []
    with torch.no_grad():
        for a, b in zip(cu[:-1], cu[1:]):
            one = encoder(input_ids=torch.tensor(ids[None, a:b], dtype=torch.long),
                          token_type_ids=torch.tensor(type_ids[None, a:b], dtype=torch.long),
                          output_hidden_states=True)
            out.append([h[0].float().numpy() for h in one.hidden_states])
    return [np.concatenate([s[i] for s in out]) for i in range(len(out[0]))]


def randomise_adapter(model, seed):
    """PEFT begins with B = 0, which would prove nothing."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.copy_(coarse.normal(p.shape, 0.4 if "lora_A" in name else 0.06, generator))


def save_adapter(folder, model, torch_file):
    for c in model.peft_config.values():
        c.base_model_name_or_path = "tiny"
        c.inference_mode = True
        for key in ("target_modules", "exclude_modules"):  # sets, whose order changes from run to run
            if not isinstance(getattr(c, key), (str, type(None))):
                setattr(c, key, sorted(getattr(c, key)))
    model.save_pretrained(folder, safe_serialization=not torch_file)
    (folder / "README.md").unlink(missing_ok=True)


def deltas(model, prefix):
    out = {}
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            name = name.removeprefix("base_model.model.").removeprefix(prefix)
            a, b = (getattr(module, part)["default"].weight.detach().double()
                    for part in ("lora_A", "lora_B"))
            probe = (torch.arange(a.shape[1], dtype=torch.float64) % 7 - 3) / 4
            out[name] = (module.scaling["default"] * (b @ (a @ probe))).float().numpy()
    return out


def make(name, spec, seed):
    build, prefix, encoder, first_id, adapters = spec
    case = manifest.GOLDEN / f"lora-{name}"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    torch.manual_seed(seed)
    base = build().eval()
    if name == "modernbert":
        modernbert.randomise(base, seed)
    elif base.config.model_type in PLAIN:
        gte.randomise(base, seed)
    elif name.startswith("qwen"):
        qwen.randomise(base, seed)
    elif name == "gemma":
        gemma.randomise(base, seed)
    else:
        bert.randomise(base, seed, 0.9)
    base.save_pretrained(case)

    rng = np.random.default_rng(seed)
    lengths = [7, 1, 16, 5]
    cu = np.cumsum([0] + lengths).astype(np.int32)
    ids = rng.integers(first_id, base.config.vocab_size, cu[-1], dtype=np.int32)
    tensors, type_ids = {"ids": ids, "cu_seqlens": cu}, None
    if hasattr(base.config, "type_vocab_size"):
        type_ids = rng.integers(0, base.config.type_vocab_size, cu[-1], dtype=np.int32)
        tensors["type_ids"] = type_ids
    fresh = lambda: type(base).from_pretrained(case, attn_implementation="eager").eval()
    model = fresh()
    plain = states(model, encoder(model), ids, type_ids, cu)
    tensors |= {f"base.hidden_{i}": h for i, h in enumerate(plain)}
    notes, floor = {}, 0.0
    for number, (adapter, options) in enumerate(adapters.items()):
        folder = case / "adapters" / adapter
        model = get_peft_model(fresh(), LoraConfig(**options))
        randomise_adapter(model, 100 * seed + number)
        torch_file = adapter == "layer1"
        save_adapter(folder, model, torch_file)
        if torch_file and not (folder / "adapter_model.bin").exists():  # newer PEFT writes safetensors only
            from safetensors.torch import load_file
            torch.save(load_file(folder / "adapter_model.safetensors"), folder / "adapter_model.bin")
            (folder / "adapter_model.safetensors").unlink()
        model = PeftModel.from_pretrained(fresh(), folder).eval()
        hidden = states(model, encoder(model.base_model.model), ids, type_ids, cu)
        exact = states(model.double(), encoder(model.base_model.model), ids, type_ids, cu)
        floor = max(floor, *(float(np.abs(a - b).max()) for a, b in zip(hidden, exact)))
        changed = float(np.abs(hidden[-1] - plain[-1]).max())
        assert changed > 0.1, f"{adapter} changes nothing"
        linears = deltas(model, prefix)  # in float64 now, of the same float32 values
        notes[adapter] = sorted(linears)
        tensors |= {f"{adapter}.hidden_{i}": h for i, h in enumerate(hidden)}
        tensors |= {f"{adapter}.delta.{k}": v for k, v in linears.items()}
        print(name, adapter, len(linears), "linears, states change by", changed)
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in tensors.items()},
              case / "golden.safetensors")
    manifest.write(case, "python tools/golden/lora.py", f"random {name}, seed {seed}", "float32",
                   {"peft": peft_version, "prefix": prefix, "adapters": notes,
                    "max_abs_float32_to_float64": floor})


def main():
    torch.set_num_threads(1)
    for seed, (name, spec) in enumerate(CASES.items(), start=301):
        make(name, spec, SEEDS.get(name, seed))


if __name__ == "__main__":
    main()
