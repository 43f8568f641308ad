"""Tiny random MPNets: the states after the embeddings and after every block, and what the heads of
transformers, PEFT's adapters and sentence-transformers give.

    python tools/golden/mpnet.py

Each encoder is a folder testdata/golden/mpnet-<name> in the form of modernbert.py. The heads are in
folders <task>-mpnet, in the form of heads.py; lora-mpnet in that of lora.py; text-mpnet-embed, a whole
directory as all-mpnet-base-v2 has it, in that of modernbert_text.py.

Every sequence is run alone, float32, eager. The table of distances is scaled so that a wrong bucket
shows: its rows differ by about as much as scores do.
"""

import copy
import json
import math
import shutil
import tempfile

import numpy as np
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from peft import __version__ as peft_version
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from transformers import MPNetConfig, MPNetModel, MPNetTokenizerFast

import coarse
import heads
import lora
import manifest
import modernbert
import sentence
from jina_bert import fresh, save

COMMAND = "python tools/golden/mpnet.py"

CASES = {
    # Texts beyond the largest distance that has a bucket of its own, 128.
    "h2-d32": (dict(hidden_size=64, num_attention_heads=2, intermediate_size=30,
                    max_position_embeddings=200), torch.bfloat16, "mpnet.", [1, 2, 3, 127, 128, 129, 198]),
    # Two blocks on one table, odd widths, three heads, another function and epsilon.
    "h3-d11": (dict(hidden_size=33, num_attention_heads=3, intermediate_size=25, hidden_act="gelu_new",
                    num_hidden_layers=2,
                    layer_norm_eps=1e-3, max_position_embeddings=180), torch.float16, "", [40, 1, 150]),
}


def config(**own):
    return MPNetConfig(**dict(vocab_size=47, num_hidden_layers=1, layer_norm_eps=1e-5) | own,
                       attn_implementation="eager")


def randomise(model, seed):
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
                p.copy_(normal(p.shape, 0.2))
            elif "relative_attention_bias" in name:
                p.copy_(normal(p.shape, 1.0))
            elif "embeddings." in name:
                p.copy_(normal(p.shape, 0.7))
            else:
                strong = name.endswith(("attn.q.weight", "attn.k.weight"))
                p.copy_(normal(p.shape, (1.3 if strong else 1.0) / math.sqrt(p.shape[1])))


def store(model, case, dtype, prefix=""):
    tensors = {k: v.detach().to(dtype).contiguous() for k, v in model.named_parameters()}
    with torch.no_grad():
        for k, p in model.named_parameters():
            p.copy_(tensors[k].float())
    save_file({prefix + k: v for k, v in tensors.items() if not k.startswith("pooler.")},
              case / "model.safetensors", metadata={"format": "pt"})


def plain(c, class_name) -> str:
    out = {k: v for k, v in c.to_dict().items() if not k.startswith("_")}
    return json.dumps(out | {"architectures": [class_name]}, indent=2, sort_keys=True) + "\n"


def packed(c, lengths, seed):
    rng = np.random.default_rng(seed)
    cu = np.cumsum([0] + lengths).astype(np.int32)
    ids = rng.integers(2, c.vocab_size, cu[-1], dtype=np.int32)
    ids[0], ids[-1] = 0, c.vocab_size - 1
    return ids, cu


def states(model, ids, cu):
    out, entropies = [], []
    with torch.no_grad():
        for a, b in zip(cu[:-1], cu[1:]):
            one = model(input_ids=torch.tensor(ids[None, a:b], dtype=torch.long), output_hidden_states=True,
                        output_attentions=True)
            out.append([h[0].float().numpy() for h in one.hidden_states])
            if b - a > 30:
                entropies.append([float((-(w * (w + 1e-30).log()).sum(-1)).mean() / math.log(b - a))
                                  for w in one.attentions])
    joined = [np.concatenate([s[i] for s in out]) for i in range(len(out[0]))]
    return joined, np.mean(entropies, 0) if entropies else None


def encoder(name, spec, seed):
    own, dtype, prefix, lengths = spec
    case, c = fresh(f"mpnet-{name}"), config(**own)
    (case / "config.json").write_text(plain(c, "MPNetModel"))
    model = MPNetModel(c).eval()
    randomise(model, seed)
    store(model, case, dtype, prefix)
    ids, cu = packed(c, lengths, seed)
    rows = modernbert.kept(lengths, 5)
    own_states, entropy = states(model, ids, cu)
    exact, _ = states(copy.deepcopy(model).double(), ids, cu)
    floor = max(float(np.abs(a - b).max()) for a, b in zip(own_states, exact))
    assert all(0.4 < e < 0.8 for e in entropy), (name, entropy)
    tensors = {"ids": ids, "cu_seqlens": cu, "rows": rows}
    save(case, tensors | {f"hidden_{i}": h[rows] for i, h in enumerate(own_states)})
    notes = {"max_abs_float32_to_float64": floor,
             "max_abs_value": max(float(np.abs(h).max()) for h in own_states),
             "attention_entropy": {f"block {i}": round(float(e), 3) for i, e in enumerate(entropy)}}
    manifest.write(case, COMMAND, f"random MPNetModel, seed {seed}", "float32", notes)
    print(case.name, notes, sum(f.stat().st_size for f in case.iterdir()) // 1024, "KiB")


SMALL = dict(hidden_size=32, num_attention_heads=1, intermediate_size=24, max_position_embeddings=60)
HEADS = [
    ("classify-mpnet", "logits", "MPNetForSequenceClassification", dict(num_labels=3)),
    ("tag-mpnet", "token_logits", "MPNetForTokenClassification", dict(num_labels=4)),
    ("masked-mpnet", "word_logits", "MPNetForMaskedLM", {}),
]


def head(name, key, class_name, own, seed):
    case, c = fresh(name), config(**SMALL | own)
    model = getattr(transformers, class_name)(c).eval()
    randomise(model, seed)
    with tempfile.TemporaryDirectory() as rounded:
        model.to(torch.bfloat16).save_pretrained(rounded)
        shutil.copytree(rounded, case, dirs_exist_ok=True)
    model = model.float()
    ids, cu = packed(c, heads.LENGTHS, seed)
    b = {"ids": ids, "cu_seqlens": cu}
    take = (lambda o: o.logits) if key == "logits" else (lambda o: o.logits[0])
    b[key] = np.concatenate(heads.alone(model, b, take)).astype(np.float32)
    save(case, b)
    manifest.write(case, COMMAND, f"random {class_name}, seed {seed}", "float32", {})
    print(name, b[key].shape, float(np.abs(b[key]).max()))


def adapted(seed):
    case, c = fresh("lora-mpnet"), config(**SMALL)
    (case / "config.json").write_text(plain(c, "MPNetModel"))
    base = MPNetModel(c).eval()
    randomise(base, seed)
    store(base, case, torch.bfloat16)
    ids, cu = packed(c, [7, 1, 16, 5], seed)
    tensors, without = {"ids": ids, "cu_seqlens": cu}, states(base, ids, cu)[0]
    tensors |= {f"base.hidden_{i}": h for i, h in enumerate(without)}
    notes, floor = {}, 0.0
    for number, (adapter, options) in enumerate({
            "attention": dict(r=4, lora_alpha=8, target_modules=["q", "v"]),
            "every": dict(r=3, lora_alpha=4, target_modules=["q", "k", "v", "o", "dense"],
                          exclude_modules=["pooler.dense"])}.items()):
        model = get_peft_model(copy.deepcopy(base), LoraConfig(**options))
        lora.randomise_adapter(model, 100 * seed + number)
        lora.save_adapter(case / "adapters" / adapter, model, False)
        model = PeftModel.from_pretrained(copy.deepcopy(base), case / "adapters" / adapter).eval()
        hidden = states(model.base_model.model, ids, cu)[0]
        exact = states(model.double().base_model.model, ids, cu)[0]
        floor = max(floor, *(float(np.abs(a - b).max()) for a, b in zip(hidden, exact)))
        assert float(np.abs(hidden[-1] - without[-1]).max()) > 0.1, f"{adapter} changes nothing"
        notes[adapter] = sorted(lora.deltas(model, ""))
        tensors |= {f"{adapter}.hidden_{i}": h for i, h in enumerate(hidden)}
    save(case, tensors)
    manifest.write(case, COMMAND, f"random MPNetModel, seed {seed}", "float32",
                   {"peft": peft_version, "prefix": "", "adapters": notes,
                    "max_abs_float32_to_float64": floor})
    print(case.name, notes)


def embed(seed):
    """A whole directory, with MPNet's WordPiece tokenizer, mean pooling and normalising."""
    case = fresh("text-mpnet-embed")
    source = case / "source"
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = ["<s>", "<pad>", "</s>", "[UNK]", *letters, *("##" + x for x in letters), *".,:;!?-'", "<mask>"]
    c = config(**SMALL | dict(vocab_size=len(words)))
    model = MPNetModel(c, add_pooling_layer=False).eval()
    randomise(model, seed)
    model.to(torch.bfloat16).save_pretrained(source)
    MPNetTokenizerFast(vocab={w: i for i, w in enumerate(words)}, model_max_length=58).save_pretrained(source)
    chain = [Transformer(str(source)), Pooling(c.hidden_size, pooling_mode="mean"), Normalize()]
    SentenceTransformer(modules=chain, device="cpu").save(str(case), create_model_card=False)
    shutil.rmtree(source)
    model = SentenceTransformer(str(case), device="cpu", model_kwargs={"dtype": "float32"}).eval()
    (case / "texts.json").write_text(json.dumps(sentence.TEXTS, indent=1, ensure_ascii=False) + "\n")
    save(case, {"vectors": np.stack([model.encode([t])[0] for t in sentence.TEXTS])})
    manifest.write(case, COMMAND, f"random MPNetModel, seed {seed}", "float32", {})
    print(case.name, model.tokenizer("the cat")["input_ids"], model.tokenizer("a", "b"))


def main():
    torch.set_num_threads(1)
    for seed, (name, spec) in enumerate(CASES.items(), start=601):
        encoder(name, spec, seed)
    for seed, spec in enumerate(HEADS, start=611):
        head(*spec, seed)
    adapted(621)
    embed(631)


if __name__ == "__main__":
    main()
