"""Tiny random GTEs ("new") of every variant that changes the computation: the states after the
embeddings and after every block, and what the heads of transformers give.

    python tools/golden/gte.py

Each encoder is a folder testdata/golden/gte-<name> with config.json as the model's repository would
have it, model.safetensors with the published names, and golden.safetensors:

    ids, type_ids [T] int32, cu_seqlens [B+1] int32   packed tokens; types where the model has them
    rows          [R] int32   the rows of which states are kept: all of short texts, some of long ones
    hidden_<i>    [R, C] f32  the state after the embeddings (0) and after each block (1 … L)
    final         [R, C] f32  last_hidden_state, which is that of the last block

transformers' class has no rotary embeddings of the kind ntk: their angles are those of rope.py, which
are the published code's. That the published names mean what transformers' mean is shown by loading
every checkpoint again through transformers' conversion_mapping.py: the states stay the same. Every
sequence is run alone, float32, eager. The weights make attention neither uniform nor one-hot: the
manifest has the mean entropy of its rows, as a share of that of uniform rows, and how far the float32
reference is from the same model in float64.

The heads are in folders <task>-gte…, in the form of heads.py.
"""

import copy
import json
import math
import shutil

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import GteConfig, GteModel

import coarse
import heads
import manifest
import rope

SPECIAL = dict(pad_token_id=1)
ARCTIC = {"AutoConfig": "configuration_hf_alibaba_nlp_gte.GteConfig",
          "AutoModel": "modeling_hf_alibaba_nlp_gte.GteModel"}
ALIBABA = {"AutoConfig": "Alibaba-NLP/new-impl--configuration.NewConfig",
           "AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"}
OWN = {"AutoConfig": "configuration.NewConfig", "AutoModel": "modeling.NewModel"}
PUBLISHED = dict(layer_norm_type="layer_norm", position_embedding_type="rope", pack_qkv=True,
                 unpad_inputs=False, use_memory_efficient_attention=False, logn_attention_scale=False,
                 logn_attention_clip1=False, layer_norm_eps=1e-12, hidden_act="gelu")

# name: configuration, as config.json says it; type of the checkpoint; prefix of its names; lengths
CASES = {
    # gte-multilingual-base: one type, stretched eight times, behind the class with a head.
    "multilingual": (PUBLISHED | dict(
        model_type="new", architectures=["NewForTokenClassification"], auto_map=ALIBABA, vocab_size=101,
        hidden_size=32, num_hidden_layers=2, num_attention_heads=1, intermediate_size=40, type_vocab_size=1,
        max_position_embeddings=160, rope_theta=200, rope_scaling={"type": "ntk", "factor": 8.0}),
                     torch.float16, "new.", [1, 2, 3, 127, 128, 129, 160]),
    # gte-en-v1.5: no types, one wide head, stretched twice.
    "en": (PUBLISHED | dict(
        model_type="new", architectures=["NewModel"], auto_map=ALIBABA, vocab_size=97, hidden_size=64,
        num_hidden_layers=1, num_attention_heads=1, intermediate_size=24, type_vocab_size=0,
        max_position_embeddings=140, rope_theta=3000, rope_scaling={"type": "ntk", "factor": 2.0}),
           torch.bfloat16, "", [5, 127, 1, 128, 7, 129]),
    # stella: two types, mixed stretching, projections of their own, SwiGLU, another epsilon.
    "types": (PUBLISHED | dict(
        model_type="new", architectures=["NewModel"], auto_map=OWN, vocab_size=61, hidden_size=64,
        num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, type_vocab_size=2,
        max_position_embeddings=130, rope_theta=500, pack_qkv=False, layer_norm_eps=1e-3, hidden_act="silu",
        unpad_inputs=True, use_memory_efficient_attention=True,
        rope_scaling={"type": "ntk", "factor": 4.0, "mixed_b": 0.6}),
              torch.bfloat16, "", [17, 130, 2]),
    # arctic-embed-m-v2.0, whose copy of the code has names of its own; a base without stretching.
    "arctic": (PUBLISHED | dict(
        model_type="gte", architectures=["GteModel"], auto_map=ARCTIC, vocab_size=61, hidden_size=128,
        num_hidden_layers=1, num_attention_heads=1, intermediate_size=16, type_vocab_size=1,
        max_position_embeddings=100, rope_theta=160000, rope_scaling=None, hidden_act="gelu_pytorch_tanh"),
               torch.bfloat16, "", [63, 100, 2]),
    # As transformers saves it, which has other kinds of stretching; heads of 14 columns.
    "saved": (dict(
        model_type="gte", architectures=["GteModel"], vocab_size=61, hidden_size=42, num_hidden_layers=2,
        num_attention_heads=3, intermediate_size=50, type_vocab_size=1, max_position_embeddings=128,
        hidden_act="gelu", layer_norm_eps=1e-12, rope_parameters={
            "rope_type": "yarn", "rope_theta": 160000.0, "factor": 4.0,
            "original_max_position_embeddings": 32}),
              torch.bfloat16, "gte.", [33, 1, 31, 32, 128]),
}


def randomise(model, seed):
    """Fan-in scaled normals; queries and keys stronger; gamma around 1 with a few large columns."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, std):
        return coarse.normal(shape, std, generator)

    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("norm.weight", "Norm.weight")):
                p.copy_(1 + normal(p.shape, 0.2))
                p[:: max(1, p.numel() // 3)] *= 1.5
            elif name.endswith("bias"):
                p.copy_(normal(p.shape, 0.2))
            elif "embeddings." in name:
                p.copy_(normal(p.shape, 0.3))
            else:
                p.copy_(normal(p.shape, 1.1 / math.sqrt(p.shape[1])))
            if "q_proj.weight" in name or "k_proj.weight" in name:
                p *= 1.35


def native(plain):
    """The keys of a configuration that transformers' class has, without stretching of the kind ntk."""
    keys = {k: v for k, v in plain.items()
            if k in GteConfig().to_dict() and k not in ("architectures", "model_type")}
    if "rope_theta" in plain:
        keys["rope_parameters"] = {"rope_type": "default", "rope_theta": float(plain["rope_theta"])}
    return keys


def stretch(model, plain):
    """Gives the model the angles of the kind ntk, where the configuration asks for them."""
    scaling = plain.get("rope_scaling") or {}
    if scaling.get("type") != "ntk":
        return
    dim = plain["hidden_size"] // plain["num_attention_heads"]
    angles = rope.ntk(float(plain["rope_theta"]), dim, scaling["factor"], scaling.get("mixed_b"))
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            module.inv_freq = torch.from_numpy(angles).to(module.inv_freq.dtype)


def kept(lengths):
    """Every row of a text of up to 10 tokens; of a longer one the ends and some between."""
    out, start = [], 0
    for n in lengths:
        rows = range(n) if n <= 10 else sorted({0, 1, n // 3, n // 2, n - 2, n - 1})
        out += [start + r for r in rows]
        start += n
    return np.array(out, dtype=np.int32)


def states(model, ids, types, cu):
    """The state after the embeddings and after each block, and the entropy of attention in each
    block over texts of more than 30 tokens, as a share of the largest."""
    collected, entropies = [], []
    with torch.no_grad():
        for start, end in zip(cu[:-1], cu[1:]):
            one = {"input_ids": torch.tensor(ids[None, start:end], dtype=torch.long)}
            if types is not None:
                one["token_type_ids"] = torch.tensor(types[None, start:end], dtype=torch.long)
            out = model(**one, output_attentions=True, output_hidden_states=True)
            assert torch.equal(out.hidden_states[-1], out.last_hidden_state)
            collected.append([h[0].float().numpy() for h in out.hidden_states])
            if end - start > 30:
                entropies.append([float((-(a * (a + 1e-30).log()).sum(-1)).mean() / math.log(end - start))
                                  for a in out.attentions])
    return [np.concatenate(s) for s in zip(*collected)], np.mean(entropies, 0)


def store(model, case, dtype, prefix, split=None):
    """Saves the parameters in that type under the published names, and gives the model the values
    that were saved."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.to(dtype).float())
    plain = case / "plain"
    model.save_pretrained(plain)
    tensors = load_file(plain / "model.safetensors")
    shutil.rmtree(plain)
    if split:
        tensors = split(tensors)
    save_file({prefix + k: v.to(dtype).contiguous() for k, v in tensors.items()},
              case / "model.safetensors", metadata={"format": "pt"})


def unpacked(tensors):
    """pack_qkv false: a tensor for each projection."""
    out = {}
    for name, t in tensors.items():
        parts = t.chunk(3) if ".qkv_proj." in name else [t]
        names = [name.replace("qkv_proj", f"{n}_proj") for n in "qkv"] if len(parts) == 3 else [name]
        out |= dict(zip(names, parts))
    return out


def prove(model, case, config, prefix, angles):
    """Loads the checkpoint through transformers' table of published names and compares it with the
    model. Projections that are not packed are packed before."""
    tensors = {k.removeprefix(prefix): v for k, v in load_file(case / "model.safetensors").items()}
    for name in [n for n in tensors if ".attention.q_proj." in n]:
        parts = [tensors.pop(name.replace("q_proj", f"{n}_proj")) for n in "qkv"]
        tensors[name.replace("q_proj", "qkv_proj")] = torch.cat(parts)
    folder = case / "again"
    folder.mkdir()
    config.save_pretrained(folder)
    known = {"bert.": "nomic_bert."}.get(prefix, prefix)  # the table has no prefix "bert."
    save_file({known + k: v for k, v in tensors.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})
    again, info = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                              output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    shutil.rmtree(folder)
    angles(again)
    for (name, a), b in zip(model.named_parameters(), again.parameters()):
        assert torch.equal(a, b), name
    return again.eval()


def encoder(name, spec, seed, kind, command, config, model, angles, split=None):
    """Writes one case; model is of transformers' class, kind the word before its name."""
    plain, dtype, prefix, lengths = spec
    case = manifest.GOLDEN / f"{kind}-{name}"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    (case / "config.json").write_text(json.dumps(plain, indent=2) + "\n")
    randomise(model, seed)
    store(model, case, dtype, prefix, split)
    model = prove(model, case, config, prefix, angles)

    rng = np.random.default_rng(seed)
    cu = np.cumsum([0] + lengths).astype(np.int32)
    ids = rng.integers(0, config.vocab_size, cu[-1], dtype=np.int32)
    ids[0], ids[-1] = 0, config.vocab_size - 1  # both ends of the table
    types = None
    if config.type_vocab_size > 1:
        types = rng.integers(0, config.type_vocab_size, cu[-1], dtype=np.int32)
    rows = kept(lengths)
    own, entropy = states(model, ids, types, cu)
    double = copy.deepcopy(model).double()
    angles(double)
    exact, _ = states(double, ids, types, cu)
    floor = max(float(np.abs(a - b).max()) for a, b in zip(own, exact))
    tensors = {"ids": ids, "cu_seqlens": cu, "rows": rows, "final": own[-1][rows]}
    tensors |= {"type_ids": types} if types is not None else {}
    tensors |= {f"hidden_{i}": h[rows] for i, h in enumerate(own)}
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in tensors.items()},
              case / "golden.safetensors")
    largest = max(float(np.abs(h).max()) for h in own)
    shares = {f"block {i}": round(float(e), 3) for i, e in enumerate(entropy)}
    manifest.write(case, command, f"random {type(model).__name__}, seed {seed}", "float32",
                   {"max_abs_float32_to_float64": floor, "max_abs_value": largest,
                    "attention_entropy": shares})
    print(case.name, "float32 noise floor", floor, "max", largest, "entropy", shares)


SMALL = dict(vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=1,
             intermediate_size=24,
             max_position_embeddings=60, type_vocab_size=1,
             rope_parameters={"rope_type": "default", "rope_theta": 500.0}) | SPECIAL
HEADS = [
    ("classify-gte", "logits", "GteForSequenceClassification", "new.",
     dict(num_labels=1, num_hidden_layers=1)),
    ("tag-gte", "token_logits", "GteForTokenClassification", "new.",
     dict(id2label=heads.TAGS, label2id={v: k for k, v in heads.TAGS.items()}, type_vocab_size=2,
          num_hidden_layers=1)),
    ("masked-gte-untied", "word_logits", "GteForMaskedLM", "gte.",
     dict(tie_word_embeddings=False, num_hidden_layers=1)),
]


def head(name, key, class_name, prefix, own, seed, small, config_class, command, own_prefix):
    """A model with a head as transformers saves it, under the prefix of the published class."""
    case = manifest.GOLDEN / name
    shutil.rmtree(case, ignore_errors=True)
    config = config_class(**small | own, attn_implementation="eager")
    model = getattr(transformers, class_name)(config).eval()
    randomise(model, seed)
    model.save_pretrained(case)
    tensors = {k.replace(own_prefix, prefix) if k.startswith(own_prefix) else k: v
               for k, v in load_file(case / "model.safetensors").items()}
    save_file(tensors, case / "model.safetensors", metadata={"format": "pt"})
    b = heads.batch(config, seed)
    take = (lambda o: o.logits) if key == "logits" else (lambda o: o.logits[0])
    b[key] = np.concatenate(heads.alone(model, b, take)).astype(np.float32)
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in b.items()},
              case / "golden.safetensors")
    manifest.write(case, command, f"random {class_name}, seed {seed}", "float32", {})
    print(name, b[key].shape, float(np.abs(b[key]).max()), sorted(tensors)[:3])


# The adapters of models that transformers' classes trained, and those of models that the published
# code trained, whose projections are fused: there one A is for all of them. PEFT computes the second
# with transformers' class and equal As, and the files are then written as the published code has them.
ADAPTERS = {
    "attention": dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]),
    "every": dict(r=3, lora_alpha=4, target_modules="all-linear"),
    "gate": dict(r=5, lora_alpha=6, target_modules=["gate_proj"]),
}
FUSED = {
    "published-attention": dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj"]),
    "published-every": dict(r=3, lora_alpha=4, target_modules="all-linear"),
}
NAMES = {"qkv": "encoder.layer.{}.attention.qkv_proj", "o": "encoder.layer.{}.attention.o_proj",
         "gated": "encoder.layer.{}.mlp.up_gate_proj", "down": "encoder.layer.{}.mlp.down_proj"}


def fuse(tensors, names):
    """The tensors of an adapter under the published names. Without a name for the gate and its
    multiplier together, each has its own."""
    out = {}
    for block in range(64):
        at = f"base_model.model.layers.{block}."
        for new, parts in (("qkv", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
                           ("o", ["self_attn.o_proj"]), ("gated", ["mlp.up_proj", "mlp.gate_proj"]),
                           ("up", ["mlp.up_proj"]), ("gate", ["mlp.gate_proj"]),
                           ("down", ["mlp.down_proj"])):
            if new not in names or at + parts[0] + ".lora_A.weight" not in tensors:
                continue
            to = "base_model.model." + names[new].format(block)
            out[to + ".lora_A.weight"] = tensors[at + parts[0] + ".lora_A.weight"]
            out[to + ".lora_B.weight"] = torch.cat([tensors[at + p + ".lora_B.weight"] for p in parts])
    return out


def adapters(kind, build, names, seed, command):
    """The case lora-<kind>, as lora.py makes it, with the published code's adapters beside."""
    import lora
    lora.make(kind, (build, "", lambda m: m, 0, ADAPTERS), seed)
    case = manifest.GOLDEN / f"lora-{kind}"
    tensors = {k: v.numpy() for k, v in load_file(case / "golden.safetensors").items()
               if ".delta." not in k}
    ids, cu, types = (tensors.get(k) for k in ("ids", "cu_seqlens", "type_ids"))
    notes = json.loads((case / "MANIFEST.json").read_text())["notes"]
    for number, (adapter, options) in enumerate(FUSED.items()):
        fresh = type(build()).from_pretrained(case, attn_implementation="eager").eval()
        model = lora.get_peft_model(fresh, lora.LoraConfig(**options))
        lora.randomise_adapter(model, 100 * seed + 50 + number)
        parts = dict(model.named_parameters())
        for name, p in parts.items():
            first = name.replace("k_proj", "q_proj").replace("v_proj", "q_proj")
            if "gated" in names:
                first = first.replace("gate_proj", "up_proj")
            if ".lora_A." in name:
                with torch.no_grad():
                    p.copy_(parts[first])
        folder = case / "adapters" / adapter
        lora.save_adapter(folder, model, False)
        tensors |= {f"{adapter}.hidden_{i}": h for i, h in
                    enumerate(states(model.base_model.model, ids, types, cu)[0])}
        own = fuse(load_file(folder / "adapter_model.safetensors"), names)
        save_file(own, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        config = json.loads((folder / "adapter_config.json").read_text())
        config["target_modules"] = sorted({n.split(".lora_")[0].rsplit(".")[-1] for n in own})
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
        linears = {n.removeprefix("base_model.model.").split(".lora_")[0] for n in own}
        notes["adapters"][adapter] = sorted(linears)
        print(case.name, adapter, notes["adapters"][adapter][:3])
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in tensors.items()},
              case / "golden.safetensors")
    manifest.write(case, command, f"random {kind}, seed {seed}", "float32", notes)


COMMAND = "python tools/golden/gte.py"


def main():
    torch.set_num_threads(1)
    for seed, (name, spec) in enumerate(CASES.items(), start=601):
        config = GteConfig(**native(spec[0]), **SPECIAL, attn_implementation="eager")
        model = GteModel(config).eval()
        encoder(name, spec, seed, "gte", COMMAND, config, model, lambda m: stretch(m, spec[0]),
                unpacked if spec[0].get("pack_qkv") is False else None)
    for seed, spec in enumerate(HEADS, start=631):
        head(*spec, seed, SMALL, GteConfig, COMMAND, "gte.")
    small = SMALL | dict(num_hidden_layers=1)
    adapters("gte", lambda: GteModel(GteConfig(**small, attn_implementation="eager")).eval(), NAMES, 651,
             COMMAND)


if __name__ == "__main__":
    main()
