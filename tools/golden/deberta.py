"""Tiny random DeBERTas of each variant that changes the computation, in the form of mpnet.py, with
type_ids where the model has types: the states after the embeddings and after every block, and what the
heads of transformers, PEFT's adapters and sentence-transformers give.

    python tools/golden/deberta.py

    testdata/golden/deberta-<name>                        encoders
    testdata/golden/deberta-buckets                       the bucket of every distance to 8,192
    testdata/golden/<task>-deberta…                       heads, in the form of heads.py
    testdata/golden/lora-deberta, lora-deberta-own        adapters, in the form of lora.py
    testdata/golden/text-deberta-nli, text-deberta-rerank whole directories without tokenizer.json

Every sequence is run alone, float32, eager. The tables of distances are as strong as the states, so
that a wrong bucket shows.
"""

import copy
import json
import math
import shutil
import sys
import tempfile

import numpy as np
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from peft import __version__ as peft_version
from safetensors.torch import save_file
from transformers import DebertaV2Config, DebertaV2Model
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

import coarse
import heads
import lora
import manifest
import modernbert
from jina_bert import fresh, save
from mpnet import packed, plain

COMMAND = "python tools/golden/deberta.py"
LONG = [1, 2, 127, 128, 129, 256, 257, 512, 2048]
SHORT = [1, 2, 127, 128, 129, 257]

# name: keys, type of the checkpoint, prefix, lengths
CASES = {
    # The keys of deberta-v3: 256 buckets over 512 distances, and texts beyond max_position_embeddings.
    "v3": (dict(share_att_key=True, pos_att_type="p2c|c2p", position_buckets=256, max_relative_positions=-1,
                norm_rel_ebd="layer_norm", max_position_embeddings=512, type_vocab_size=0),
           torch.bfloat16, "deberta.", LONG),
    # Projections of their own, types, another function and epsilon, no norm of the table; one block on
    # 32 buckets over 128 distances.
    "own": (dict(share_att_key=False, pos_att_type=["c2p", "p2c"], position_buckets=32,
                 max_relative_positions=128, norm_rel_ebd="none", type_vocab_size=2, hidden_act="gelu_new",
                 layer_norm_eps=1e-3, num_hidden_layers=1), torch.float16, "", SHORT),
    # One term, without buckets: a row for each of 24 distances.
    "c2p": (dict(share_att_key=True, pos_att_type="c2p", max_relative_positions=24,
                 norm_rel_ebd="layer_norm", num_attention_heads=1, num_hidden_layers=1),
            torch.bfloat16, "deberta.", [1, 2, 24, 25, 26, 49, 129]),
    # The other term, on an odd number of buckets; heads of an odd width, no key of the table's norm.
    "p2c": (dict(share_att_key=True, pos_att_type=["p2c"], position_buckets=15, max_relative_positions=40,
                 hidden_size=33, num_attention_heads=3, attention_head_size=11, intermediate_size=25,
                 num_hidden_layers=1),
            torch.float16, "", [1, 2, 8, 51, 52, 53, 129]),
    # One term each by a projection of its own.
    "own-c2p": (dict(pos_att_type="c2p", position_buckets=8, max_relative_positions=20,
                     norm_rel_ebd="layer_norm", num_hidden_layers=1), torch.bfloat16, "", [1, 2, 40, 21]),
    "own-p2c": (dict(pos_att_type="p2c", position_buckets=8, max_relative_positions=20,
                     norm_rel_ebd="layer_norm", num_hidden_layers=1), torch.bfloat16, "", [1, 2, 40, 21]),
}
# Of queries and keys, where 1.25 makes attention too even or too sharp.
STRENGTH = {"own": 1.5}
BASE = dict(vocab_size=47, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40,
            max_position_embeddings=260, relative_attention=True, position_biased_input=False,
            type_vocab_size=0)


def config(**own):
    return DebertaV2Config(**BASE | own, attn_implementation="eager")


def randomise(model, seed, strength=1.25):
    """Fan-in scaled normals, queries and keys stronger, gammas around 1 with a few large columns."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, std):
        return coarse.normal(shape, std, generator)

    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm.weight" in name.lower():
                p.copy_(1 + normal(p.shape, 0.2))
                p[:: max(1, p.numel() // 3)] *= 1.5
            elif p.ndim == 1:
                p.copy_(normal(p.shape, 0.3))
            elif "embeddings." in name:
                p.copy_(normal(p.shape, 0.7))
            else:
                strong = any(x in name for x in ("query_proj", "key_proj"))
                p.copy_(normal(p.shape, (strength if strong else 1.0) / math.sqrt(p.shape[1])))


def store(model, case, dtype, prefix=""):
    tensors = {k: v.detach().to(dtype).contiguous() for k, v in model.named_parameters()}
    with torch.no_grad():
        for k, p in model.named_parameters():
            p.copy_(tensors[k].float())
    save_file({prefix + k: v for k, v in tensors.items()}, case / "model.safetensors",
              metadata={"format": "pt"})


def batch(c, lengths, seed):
    ids, cu = packed(c, lengths, seed)
    out = {"ids": ids, "cu_seqlens": cu}
    if c.type_vocab_size:
        out["type_ids"] = np.random.default_rng(seed + 1).integers(0, c.type_vocab_size, cu[-1], dtype=np.int32)
    return out


def inputs(b, first, last):
    out = {"input_ids": torch.tensor(b["ids"][None, first:last], dtype=torch.long)}
    if "type_ids" in b:
        out["token_type_ids"] = torch.tensor(b["type_ids"][None, first:last], dtype=torch.long)
    return out


def states(model, b):
    """The states, every sequence alone, and the entropy of attention over texts of more than 30 tokens."""
    out, entropies = [], []
    cu = b["cu_seqlens"]
    with torch.no_grad():
        for first, last in zip(cu[:-1], cu[1:]):
            one = model(**inputs(b, first, last), output_hidden_states=True, output_attentions=True)
            out.append([h[0].float().numpy() for h in one.hidden_states])
            if last - first > 30:
                entropies.append([float((-(w * (w + 1e-30).log()).sum(-1)).mean() / math.log(last - first))
                                  for w in one.attentions])
    joined = [np.concatenate([s[i] for s in out]) for i in range(len(out[0]))]
    return joined, np.mean(entropies, 0) if entropies else None


def encoder(name, spec, seed):
    own, dtype, prefix, lengths = spec
    case, c = fresh(f"deberta-{name}"), config(**own)
    model = DebertaV2Model(c).eval()
    randomise(model, seed, STRENGTH.get(name, 1.25))
    (case / "config.json").write_text(plain(c, "DebertaV2Model"))
    store(model, case, dtype, prefix)
    b = batch(c, lengths, seed)
    rows = modernbert.kept(lengths, 5)
    own_states, entropy = states(model, b)
    exact, _ = states(copy.deepcopy(model).double(), b)
    floor = max(float(np.abs(x - y).max()) for x, y in zip(own_states, exact))
    assert all(0.4 < e < 0.8 for e in entropy), (name, entropy)
    save(case, b | {"rows": rows} | {f"hidden_{i}": h[rows] for i, h in enumerate(own_states)})
    notes = {"max_abs_float32_to_float64": floor,
             "max_abs_value": max(float(np.abs(h).max()) for h in own_states),
             "attention_entropy": {f"block {i}": round(float(e), 3) for i, e in enumerate(entropy)}}
    manifest.write(case, COMMAND, f"random DebertaV2Model, seed {seed}", "float32", notes)
    print(case.name, notes, sum(f.stat().st_size for f in case.iterdir()) // 1024, "KiB")


# Buckets and distances: published, small, odd, uneven, more buckets than half of the distances.
BUCKETS = [(256, 512), (32, 128), (8, 20), (15, 40), (64, 512), (512, 2048), (4, 512), (6, 8192), (30, 17)]


def buckets():
    """Of each pair: the distances from 0 to 8,192 where a bucket begins, each followed by the bucket."""
    case = fresh("deberta-buckets")
    places, tensors = torch.arange(-8192, 8193)[None], {}
    for n, m in BUCKETS:
        both = make_log_bucket_position(places, n, m).to(torch.long)[0].numpy()
        ahead = both[8192:]
        assert np.array_equal(ahead, -both[8192::-1])
        begins = np.flatnonzero(np.diff(ahead, prepend=-1))
        tensors[f"{n}_{m}"] = torch.from_numpy(np.stack([begins, ahead[begins]], 1).astype(np.int32).ravel())
    save_file(tensors, case / "golden.safetensors")
    manifest.write(case, COMMAND, "make_log_bucket_position", "int32", {})
    print(case.name, sum(f.stat().st_size for f in case.iterdir()) // 1024, "KiB")


SMALL = dict(hidden_size=32, num_attention_heads=1, intermediate_size=24, max_position_embeddings=60,
             share_att_key=True, pos_att_type="p2c|c2p", position_buckets=8, max_relative_positions=20,
             norm_rel_ebd="layer_norm")


def names(labels):
    return dict(id2label=labels, label2id={v: k for k, v in labels.items()})


HEADS = [
    ("classify-deberta", "logits", "DebertaV2ForSequenceClassification", names(heads.EMOTIONS)),
    ("classify-deberta-tanh", "logits", "DebertaV2ForSequenceClassification",
     dict(num_labels=1, pooler_hidden_act="tanh", type_vocab_size=2)),
    ("tag-deberta", "token_logits", "DebertaV2ForTokenClassification", names(heads.TAGS)),
    ("masked-deberta", "word_logits", "DebertaV2ForMaskedLM", {}),
    ("masked-deberta-v3", "word_logits", "DebertaV2ForMaskedLM", dict(legacy=False)),
]


def random_model(case, class_name, own, seed, dtype=torch.bfloat16):
    """The model as its class saves it, in dtype, with the values that the files have."""
    c = config(**SMALL | own)
    model = getattr(transformers, class_name)(c).eval()
    randomise(model, seed)
    with tempfile.TemporaryDirectory() as rounded:
        model.to(dtype).save_pretrained(rounded)
        shutil.copytree(rounded, case, dirs_exist_ok=True)
    return model.float()


def head(name, key, class_name, own, seed):
    case = fresh(name)
    model = random_model(case, class_name, own, seed)
    b = batch(model.config, heads.LENGTHS, seed)
    take = (lambda o: o.logits) if key == "logits" else (lambda o: o.logits[0])
    b[key] = np.concatenate(heads.alone(model, b, take)).astype(np.float32)
    save(case, b)
    manifest.write(case, COMMAND, f"random {class_name}, seed {seed}", "float32", {})
    print(name, b[key].shape, float(np.abs(b[key]).max()))


# An adapter for query_proj or key_proj changes the tables of distances where these are made with them.
ADAPTERS = {
    "lora-deberta": (SMALL, {
        "values": dict(r=4, lora_alpha=8, target_modules=["value_proj"]),
        "every": dict(r=3, lora_alpha=4, target_modules=["value_proj", "dense"]),
    }, {"queries": dict(r=4, lora_alpha=8, target_modules=["query_proj", "value_proj"]),
        "keys": dict(r=4, lora_alpha=8, target_modules=["key_proj"])}),
    "lora-deberta-own": (SMALL | dict(share_att_key=False), {
        "attention": dict(r=4, lora_alpha=8, target_modules=["query_proj", "value_proj"]),
        "every": dict(r=3, lora_alpha=4, target_modules=["query_proj", "key_proj", "value_proj", "dense"]),
    }, {"positions": dict(r=4, lora_alpha=8, target_modules=["pos_key_proj"])}),
}


def adapted(name, seed):
    keys, adapters, refused = ADAPTERS[name]
    case, c = fresh(name), config(**keys)
    (case / "config.json").write_text(plain(c, "DebertaV2Model"))
    base = DebertaV2Model(c).eval()
    randomise(base, seed)
    store(base, case, torch.bfloat16)
    b = batch(c, [7, 1, 16, 40], seed)
    without = states(base, b)[0]
    tensors = dict(b) | {f"base.hidden_{i}": h for i, h in enumerate(without)}
    notes, changes, floor = {}, {}, 0.0
    for number, (adapter, options) in enumerate((adapters | refused).items()):
        model = get_peft_model(copy.deepcopy(base), LoraConfig(**options))
        lora.randomise_adapter(model, 100 * seed + number)
        folder = "adapters" if adapter in adapters else "refused"
        lora.save_adapter(case / folder / adapter, model, False)
        model = PeftModel.from_pretrained(copy.deepcopy(base), case / folder / adapter).eval()
        hidden = states(model.base_model.model, b)[0]
        assert float(np.abs(hidden[-1] - without[-1]).max()) > 0.1, f"{adapter} changes nothing"
        if adapter in refused:
            changes[adapter] = table_changes(model.base_model.model, hidden, base, b)
            continue
        exact = states(model.double().base_model.model, b)[0]
        floor = max(floor, *(float(np.abs(x - y).max()) for x, y in zip(hidden, exact)))
        notes[adapter] = sorted(lora.deltas(model, ""))
        tensors |= {f"{adapter}.hidden_{i}": h for i, h in enumerate(hidden)}
    save(case, tensors)
    manifest.write(case, COMMAND, f"random DebertaV2Model, seed {seed}", "float32",
                   {"peft": peft_version, "prefix": "", "adapters": notes,
                    "max_abs_float32_to_float64": floor, "refused_change_by_tables": changes})
    print(case.name, notes, changes)


def table_changes(model, hidden, base, b):
    """How far the last state is from that of the same adapter with the base's tables of distances."""
    for block, plain_block in zip(model.encoder.layer, base.encoder.layer):
        part, own = block.attention.get_submodule("self"), plain_block.attention.get_submodule("self")
        whole = part.disentangled_attention_bias

        def bias(q, k, place, table, factor, part=part, own=own, whole=whole):
            kept = {n: getattr(part, n) for n in ("query_proj", "key_proj", "pos_key_proj", "pos_query_proj")
                    if hasattr(part, n)}
            for n in kept:
                setattr(part, n, getattr(own, n))
            try:
                return whole(q, k, place, table, factor)
            finally:
                for n, m in kept.items():
                    setattr(part, n, m)

        part.disentangled_attention_bias = bias
    return float(np.abs(states(model, b)[0][-1] - hidden[-1]).max())


def main():
    torch.set_num_threads(1)
    only = sys.argv[1:]
    for seed, (name, spec) in enumerate(CASES.items(), start=801):
        if not only or name in only:
            encoder(name, spec, seed)
    if not only or "buckets" in only:
        buckets()
    for seed, spec in enumerate(HEADS, start=811):
        if not only or spec[0] in only:
            head(*spec, seed)
    for seed, name in enumerate(ADAPTERS, start=821):
        if not only or name in only:
            adapted(name, seed)


if __name__ == "__main__":
    main()
