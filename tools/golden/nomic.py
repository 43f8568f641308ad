"""Tiny random NomicBERTs of every variant that changes the computation, in the forms of gte.py: the
encoders nomic-<name>, the heads <task>-nomic, the adapters lora-nomic, and the pipeline text-nomic.

    python tools/golden/nomic.py

The configurations are those of the published repositories, with the keys of GPT-2, but for "saved",
which is as transformers' class writes it. transformers' class has no biases: where a configuration
asks for them, the class gets them here. text-nomic is as nomic-embed-text-v1.5: the mean, prompts, and
no Normalize module.

Where a configuration has a factor, the angles of a text depend on its own length: transformers' kind
dynamic, and the same formula in the published modelling file. Both take the length of the padded batch,
and keep the angles of the longest text that they have seen for all shorter ones; what is recorded is each
text alone in a model that has seen no other. Angles are computed in float64, since those of float32 are off
by up to 2e-4 at position 8,191; the manifests say how far transformers' own are.
"""

import json
import logging
import shutil
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import NomicBertConfig, NomicBertModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import gte
import gte_text
import heads
import manifest
import sentence

COMMAND = "python tools/golden/nomic.py"
REPOSITORY = "nomic-ai/nomic-bert-2048--"
AUTO = {"AutoConfig": REPOSITORY + "configuration_hf_nomic_bert.NomicBertConfig",
        "AutoModel": REPOSITORY + "modeling_hf_nomic_bert.NomicBertModel",
        "AutoModelForMaskedLM": REPOSITORY + "modeling_hf_nomic_bert.NomicBertForPreTraining"}
PUBLISHED = dict(model_type="nomic_bert", architectures=["NomicBertModel"], auto_map=AUTO, causal=False,
                 activation_function="swiglu", layer_norm_epsilon=1e-12, max_trained_positions=2048,
                 mlp_fc1_bias=False, mlp_fc2_bias=False, qkv_proj_bias=False, pad_vocab_size_multiple=64,
                 parallel_block=False, parallel_block_tied_norm=False, prenorm=False, rotary_emb_fraction=1.0,
                 rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_scaling_factor=None,
                 scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True, type_vocab_size=2,
                 use_rms_norm=False, use_flash_attn=True, fused_bias_fc=True, fused_dropout_add_ln=True)

CASES = {
    # nomic-embed-text-v1.5: no biases, two types, a small base, texts beyond the trained length.
    "v15": (PUBLISHED | dict(vocab_size=101, n_embd=32, n_layer=2, n_head=1, n_inner=256, n_positions=160,
                             max_trained_positions=100, rotary_emb_base=1000),
            torch.float16, "", [1, 2, 3, 127, 128, 129, 160]),
    # Biases everywhere, GEGLU, widths that are rounded up, a factor, which has no effect within the
    # trained length.
    "biases": (PUBLISHED | dict(vocab_size=61, n_embd=32, n_layer=1, n_head=1, n_inner=200, n_positions=260,
                                max_trained_positions=130, rotary_emb_base=200, rotary_scaling_factor=2.0,
                                qkv_proj_bias=True, mlp_fc1_bias=True, mlp_fc2_bias=True, type_vocab_size=1,
                                activation_function="geglu", layer_norm_epsilon=1e-3,
                                pad_vocab_size_multiple=16),
               torch.bfloat16, "bert.", [5, 127, 1, 128, 130]),
    # As transformers saves it, with the kind dynamic; one wide head.
    "saved": (dict(model_type="nomic_bert", architectures=["NomicBertModel"], vocab_size=61, hidden_size=64,
                   num_hidden_layers=1, num_attention_heads=1, intermediate_size=40, type_vocab_size=2,
                   max_position_embeddings=100, hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-12,
                   rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 300.0}),
              torch.bfloat16, "nomic_bert.", [33, 1, 100]),
    # Texts beyond the trained length, each with angles of its own.
    "stretched": (PUBLISHED | dict(vocab_size=61, n_embd=64, n_layer=2, n_head=2, n_inner=256,
                                   n_positions=260, max_trained_positions=100, rotary_emb_base=1000,
                                   rotary_scaling_factor=2.0),
                  torch.bfloat16, "", [101, 5, 260, 100, 128, 127, 129, 1]),
    # The lengths of nomic-embed-text-v1.5 with a factor.
    "long": (PUBLISHED | dict(vocab_size=61, n_embd=32, n_layer=1, n_head=1, n_inner=256, n_positions=8192,
                              max_trained_positions=2048, rotary_emb_base=1000, rotary_scaling_factor=2.0),
             torch.bfloat16, "", [2049, 8192, 2048, 3000]),
}

# transformers' key, the published one
KEYS = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon"}


def up(n, multiple):
    return -(-n // multiple) * multiple


def native(plain):
    """The configuration of transformers' class."""
    if "n_embd" not in plain:
        keys = {k: v for k, v in plain.items() if k not in ("model_type", "architectures")}
    else:
        keys = {own: plain[key] for own, key in KEYS.items()} | dict(
            vocab_size=up(plain["vocab_size"], plain["pad_vocab_size_multiple"]),
            intermediate_size=up(plain["n_inner"], 256), type_vocab_size=plain["type_vocab_size"],
            hidden_act={"swiglu": "silu", "geglu": "gelu"}[plain["activation_function"]],
            rope_parameters={"rope_type": "default", "rope_theta": float(plain["rotary_emb_base"])})
        if plain["rotary_scaling_factor"]:
            keys["rope_parameters"] |= {"rope_type": "dynamic", "factor": plain["rotary_scaling_factor"]}
            keys["max_position_embeddings"] = plain["max_trained_positions"]
    return NomicBertConfig(**keys, attn_implementation="eager")


def by_length(model):
    """Gives the model angles in float64, by the length of what it is called with."""
    config = model.config
    rope, trained = config.rope_parameters, config.max_position_embeddings

    def forward(x, position_ids):
        length, dim, base = position_ids.shape[1], config.head_dim, rope["rope_theta"]
        if length > trained:
            base *= (rope["factor"] * length / trained - (rope["factor"] - 1)) ** (dim / (dim - 2))
        steps = base ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        theirs, scale = ROPE_INIT_FUNCTIONS["dynamic"](config, None, seq_len=length)
        assert scale == 1 and float((theirs.double() / steps - 1).abs().max()) < 1e-6
        angles = position_ids[..., None].double() * torch.cat([steps, steps])
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    model.rotary_emb.forward = forward


def note_their_angles(case, config):
    """Adds to the manifest how far transformers' own angles take the last states from the recorded ones."""
    golden, far = load_file(case / "golden.safetensors"), 0.0
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        shutil.copy(case / "model.safetensors", folder)
        for start, end in zip(golden["cu_seqlens"][:-1], golden["cu_seqlens"][1:]):
            model = NomicBertModel.from_pretrained(folder, dtype=torch.float32).eval()  # has seen no text
            with torch.no_grad():
                out = model(golden["ids"][None, start:end].long(),
                            token_type_ids=golden["type_ids"][None, start:end].long()).last_hidden_state[0]
            of_text = (golden["rows"] >= start) & (golden["rows"] < end)
            off = out[golden["rows"][of_text] - start] - golden["final"][of_text]
            far = max(far, float(off.abs().max()))
    written = json.loads((case / "MANIFEST.json").read_text())
    manifest.write(case, written["command"], written["model"], written["dtype"],
                   written["notes"] | {"max_abs_to_angles_of_transformers": far})


class Biased(NomicBertModel):
    """transformers' class with the biases that the published code may have. Only classes of
    transformers' own modules have published names."""

    __module__ = NomicBertModel.__module__

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        for layer in self.layers:
            for module in (layer.self_attn, layer.mlp):
                for name, part in list(module.named_children()):
                    if isinstance(part, torch.nn.Linear):
                        setattr(module, name, torch.nn.Linear(part.in_features, part.out_features))


SMALL = dict(vocab_size=61, hidden_size=32, num_hidden_layers=1, num_attention_heads=1, intermediate_size=24,
             max_position_embeddings=60, type_vocab_size=2,
             rope_parameters={"rope_type": "default", "rope_theta": 100.0})
HEADS = [
    ("classify-nomic", "logits", "NomicBertForSequenceClassification", "bert.",
     dict(id2label=heads.EMOTIONS, label2id={v: k for k, v in heads.EMOTIONS.items()})),
    ("tag-nomic", "token_logits", "NomicBertForTokenClassification", "nomic_bert.", dict(num_labels=3)),
    ("masked-nomic", "word_logits", "NomicBertForMaskedLM", "nomic_bert.",
     dict(hidden_act="gelu_pytorch_tanh")),
]
NAMES = {"qkv": "encoder.layers.{}.attn.Wqkv", "o": "encoder.layers.{}.attn.out_proj",
         "up": "encoder.layers.{}.mlp.fc11", "gate": "encoder.layers.{}.mlp.fc12",
         "down": "encoder.layers.{}.mlp.fc2"}


def published_masked():
    """masked-nomic-published: the head of nomic-bert-2048, which has no biases."""
    small = SMALL | dict(vocab_size=64, intermediate_size=256)
    name = "masked-nomic-published"

    case = manifest.GOLDEN / name
    shutil.rmtree(case, ignore_errors=True)
    config = NomicBertConfig(**small, attn_implementation="eager")
    model = transformers.NomicBertForMaskedLM(config).eval()
    gte.randomise(model, 731)
    with torch.no_grad():
        model.cls.predictions.bias.zero_()
        model.cls.predictions.transform.dense.bias.zero_()
        for p in model.parameters():
            p.copy_(p.half().float())
    model.save_pretrained(case)
    tensors = {k.replace("nomic_bert.", "bert."): v.half() for k, v in
               load_file(case / "model.safetensors").items()
               if k not in ("cls.predictions.bias", "cls.predictions.transform.dense.bias")}
    save_file(tensors, case / "model.safetensors", metadata={"format": "pt"})
    plain = PUBLISHED | dict(architectures=["NomicBertForPreTraining"], vocab_size=61, n_inner=200,
                             rotary_emb_base=100) | {v: small.get(k, 1e-12) for k, v in KEYS.items()}
    (case / "config.json").write_text(json.dumps(plain, indent=2) + "\n")
    b = heads.batch(config, 731)
    b["ids"] %= 61
    b["word_logits"] = np.concatenate(heads.alone(model, b, lambda o: o.logits[0])).astype(np.float32)
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in b.items()},
              case / "golden.safetensors")
    manifest.write(case, COMMAND, "random NomicBertForMaskedLM, seed 731", "float32", {})
    print(name, b["word_logits"].shape)


def text(seed):
    """The directory of nomic-embed-text-v1.5, in small."""
    prompts = {"search_query": "search_query: ", "search_document": "search_document: "}

    def build(folder):
        model = NomicBertModel(NomicBertConfig(**SMALL | dict(vocab_size=101))).eval()
        gte.randomise(model, seed)
        model.save_pretrained(folder)
        sentence.tokenizer(60).save_pretrained(folder)

    gte_text.embed("nomic", seed, COMMAND, build, [Pooling(32, pooling_mode="mean")], prompts)


def encoder(name, seed):
    spec = CASES[name]
    config = native(spec[0])
    model = (Biased if spec[0].get("qkv_proj_bias") else NomicBertModel)(config).eval()
    stretched = name in ("stretched", "long")
    angles = by_length if stretched else lambda m: None
    gte.encoder(name, spec, seed, "nomic", COMMAND, config, model, angles)
    if stretched:
        note_their_angles(manifest.GOLDEN / f"nomic-{name}", config)


def main():
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for seed, name in enumerate(CASES, start=701):
        encoder(name, seed)
    for seed, spec in enumerate(HEADS, start=721):
        gte.head(*spec, seed, SMALL, NomicBertConfig, COMMAND, "nomic_bert.")
    published_masked()
    gte.adapters("nomic", lambda: NomicBertModel(NomicBertConfig(**SMALL, attn_implementation="eager")).eval(),
                 NAMES, 751, COMMAND)
    text(761)


if __name__ == "__main__":
    main()
