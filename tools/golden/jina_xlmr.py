"""Tiny random models of Jina's XLM-R (fused Wqkv, rotary or absolute positions): the states after the
embeddings and after every block, and what its heads and adapters give.

    python tools/golden/jina_xlmr.py

The judge is transformers: JinaEmbeddingsV3Model where positions are rotary, XLMRobertaModel where they
are absolute. Their weights are renamed to those of the published checkpoints, by the table that
transformers' conversion_mapping.py has for the former. The published class, whose linears adapters
name, is transcribed below, and the maker checks the transcription against both.

Each encoder is a folder testdata/golden/jxlmr-<name> in the form of modernbert.py, with type_ids where
there are types. The heads are in folders <task>-jxlmr, in the form of heads.py; lora-jxlmr in that of
lora.py. tasks-jxlmr has the adapters of jina-embeddings-v3 inside its checkpoint, and for each task the
states of transformers' model with the task's adapters added to its weights:

    <task>.hidden_<i> [T, C] f32, base.hidden_<i> without a task; vectors [2·tasks, C] f32, of two
    texts behind each task's instruction: the mean of the last states, normalised

Every sequence is run alone, float32.
"""

import copy
import json
import math
import tempfile

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft import __version__ as peft_version
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder
from torch import nn
from transformers import (
    JinaEmbeddingsV3Config, JinaEmbeddingsV3Model, PreTrainedTokenizerFast, XLMRobertaConfig,
    XLMRobertaForSequenceClassification, XLMRobertaModel,
)

import coarse
import heads
import lora
import manifest
import modernbert
import sentence
from jina_bert import Names, fresh, save

COMMAND = "python tools/golden/jina_xlmr.py"
REPO = "jinaai/xlm-roberta-flash-implementation--"
RENAMED = [("embeddings.LayerNorm.", "emb_ln."), ("layers.", "encoder.layers."),
           ("encoder.layer.", "encoder.layers."), ("self_attn.o_proj.", "mixer.out_proj."),
           ("attention.output.dense.", "mixer.out_proj."), ("post_attention_layernorm.", "norm1."),
           ("attention.output.LayerNorm.", "norm1."), ("post_mlp_layernorm.", "norm2."),
           ("intermediate.dense.", "mlp.fc1."), ("output.LayerNorm.", "norm2."),
           ("output.dense.", "mlp.fc2.")]
PARTS = [("self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."),
         ("attention.self.query.", "attention.self.key.", "attention.self.value.")]


def published(model) -> dict:
    """The parameters of a model of transformers by the published names."""
    own, out = {k: v.detach() for k, v in model.named_parameters()}, {}
    for name, value in own.items():
        for parts in PARTS:
            if parts[0] in name:
                name = name.replace(parts[0], "mixer.Wqkv.")
                value = torch.cat([own[name.replace("mixer.Wqkv.", p)] for p in parts])
            elif parts[1] in name or parts[2] in name:
                name = ""
        for old, new in RENAMED:
            name = name.replace(old, new)
        if name:
            out[name] = value
    return out


class Flash(nn.Module):
    """The published class, XLMRobertaModel of modeling_xlm_roberta.py, for one text."""

    def __init__(self, c):
        super().__init__()
        self.c, wide, eps = c, c["hidden_size"], c["layer_norm_eps"]
        deep = c["intermediate_size"]
        e = dict(word_embeddings=nn.Embedding(c["vocab_size"], wide),
                 token_type_embeddings=nn.Embedding(c["type_vocab_size"], wide))
        if c["position_embedding_type"] == "absolute":
            e["position_embeddings"] = nn.Embedding(c["max_position_embeddings"], wide)
        self.embeddings, self.emb_ln = Names(**e), nn.LayerNorm(wide, eps=eps)
        self.encoder = Names(layers=nn.ModuleList(
            Names(mixer=Names(Wqkv=nn.Linear(wide, 3 * wide), out_proj=nn.Linear(wide, wide)),
                  norm1=nn.LayerNorm(wide, eps=eps), norm2=nn.LayerNorm(wide, eps=eps),
                  mlp=Names(fc1=nn.Linear(wide, deep), fc2=nn.Linear(deep, wide)))
            for _ in range(c["num_hidden_layers"])))

    def rotate(self, x):
        """x [H, n, D]: column i with column i + D/2, by place · base^(−2i/D)."""
        half, n = x.shape[-1] // 2, x.shape[1]
        turn = self.c["rotary_emb_base"] ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(n, dtype=torch.float64)[:, None] * turn
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, ids, types):
        e, c = self.embeddings, self.c
        x = e.word_embeddings(ids) + e.token_type_embeddings(types)
        if "position_embeddings" in dict(e.named_children()):
            x = x + e.position_embeddings(torch.arange(len(ids)) + c["pad_token_id"] + 1)
        states, n, width = [self.emb_ln(x)], len(ids), c["hidden_size"] // c["num_attention_heads"]
        approximate = "none" if c["hidden_act"] == "gelu" else "tanh"
        for layer in self.encoder.layers:
            x = states[-1]
            q, k, v = layer.mixer.Wqkv(x).view(n, 3, -1, width).permute(1, 2, 0, 3)
            if c["position_embedding_type"] == "rotary":
                q, k = self.rotate(q), self.rotate(k)
            a = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(width), -1) @ v
            x = layer.norm1(x + layer.mixer.out_proj(a.transpose(0, 1).reshape(n, -1)))
            h = nn.functional.gelu(layer.mlp.fc1(x), approximate=approximate)
            states.append(layer.norm2(x + layer.mlp.fc2(h)))
        return states


def config(kind, **own):
    return dict(vocab_size=47, num_hidden_layers=1, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1,
                max_position_embeddings=160, hidden_act="gelu", position_embedding_type=kind) | own


def written(c, architecture="XLMRobertaModel", **own) -> str:
    """config.json in the form of the published ones."""
    out = c | {"model_type": "xlm-roberta", "architectures": [architecture], "use_flash_attn": True,
               "emb_pooler": None, "auto_map": {
                   "AutoConfig": REPO + "configuration_xlm_roberta.XLMRobertaFlashConfig",
                   "AutoModel": REPO + "modeling_xlm_roberta.XLMRobertaModel"}} | own
    return json.dumps({k: v for k, v in out.items() if v is not ...}, indent=2, sort_keys=True) + "\n"


def reference(c, classes=(JinaEmbeddingsV3Model, XLMRobertaModel), **own):
    """The random model of transformers."""
    keys = {k: v for k, v in c.items() if k not in ("position_embedding_type", "rotary_emb_base")} | own
    if c["position_embedding_type"] == "rotary":
        rope = {"rope_type": "default", "rope_theta": float(c["rotary_emb_base"])}
        keys["rope_parameters"] = rope
        return classes[0](JinaEmbeddingsV3Config(**keys, attn_implementation="eager")).eval()
    return classes[1](XLMRobertaConfig(**keys, attn_implementation="eager")).eval()


def randomise(model, seed):
    """As bert.randomise, with the names of both classes."""
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
            elif "embeddings." in name:
                p.copy_(normal(p.shape, 0.7))
            else:
                strong = any(n in name for n in (".query.", ".key.", ".q_proj.", ".k_proj."))
                p.copy_(normal(p.shape, (1.5 if strong else 1.0) / math.sqrt(p.shape[1])))


def rounded(model, dtype):
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.to(dtype).float())


def states(model, ids, types, cu):
    """Of transformers' model, every text alone, and the entropy of attention over long ones."""
    out, entropies = [], []
    with torch.no_grad():
        for a, b in zip(cu[:-1], cu[1:]):
            one = model(input_ids=torch.tensor(ids[None, a:b], dtype=torch.long),
                        token_type_ids=torch.tensor(types[None, a:b], dtype=torch.long),
                        output_hidden_states=True, output_attentions=True)
            out.append([h[0].float().numpy() for h in one.hidden_states])
            if b - a > 30:
                entropies.append([float((-(w * (w + 1e-30).log()).sum(-1)).mean() / math.log(b - a))
                                  for w in one.attentions])
    joined = [np.concatenate([s[i] for s in out]) for i in range(len(out[0]))]
    return joined, np.mean(entropies, 0) if entropies else None


def transcribed(model, ids, types, cu):
    with torch.no_grad():
        texts = [model(*(torch.tensor(x[a:b], dtype=torch.long) for x in (ids, types)))
                 for a, b in zip(cu[:-1], cu[1:])]
    return [np.concatenate([t[i].float().numpy() for t in texts]) for i in range(len(texts[0]))]


def flash(c, model) -> Flash:
    own = Flash(c).eval()
    missing, extra = own.load_state_dict(published(model), strict=False)
    assert not missing and all(n.startswith("pooler.") for n in extra), (missing, extra)
    return own


def packed(c, lengths, seed):
    rng = np.random.default_rng(seed)
    cu = np.cumsum([0] + lengths).astype(np.int32)
    ids = rng.integers(2, c["vocab_size"], cu[-1], dtype=np.int32)
    ids[0], ids[-1] = 0, c["vocab_size"] - 1
    ids[ids == c["pad_token_id"]] = 9
    return ids, rng.integers(0, c["type_vocab_size"], cu[-1], dtype=np.int32), cu


def store(tensors, case, dtype):
    save_file({k: v.to(dtype).contiguous() for k, v in tensors.items()}, case / "model.safetensors",
              metadata={"format": "pt"})


CASES = {
    "rotary-h2-d32": (config("rotary", hidden_size=64, num_attention_heads=2, intermediate_size=40,
                             rotary_emb_base=20000.0),
                      torch.bfloat16, "roberta.", [1, 2, 3, 127, 128, 129]),
    "rotary-h3-d14": (config("rotary", hidden_size=42, num_attention_heads=3, intermediate_size=37,
                             num_hidden_layers=2, type_vocab_size=2, hidden_act="gelu_new",
                             rotary_emb_base=500.0), torch.float16, "", [40, 1, 160]),
    "absolute-h1-d64": (config("absolute", hidden_size=64, num_attention_heads=1, intermediate_size=40,
                               max_position_embeddings=131), torch.bfloat16, "roberta.", [2, 127, 1, 129]),
    "absolute-pad5": (config("absolute", hidden_size=64, num_attention_heads=2, intermediate_size=30,
                             pad_token_id=5, type_vocab_size=3, layer_norm_eps=1e-3,
                             max_position_embeddings=92),
                      torch.bfloat16, "model.", [84, 33, 3]),
}


def encoder(name, spec, seed):
    c, dtype, prefix, lengths = spec
    case = fresh(f"jxlmr-{name}")
    (case / "config.json").write_text(written(c))
    model = reference(c)
    randomise(model, seed)
    rounded(model, dtype)
    store({prefix + k: v for k, v in published(model).items() if not k.startswith("pooler.")}, case, dtype)
    ids, types, cu = packed(c, lengths, seed)
    rows = modernbert.kept(lengths, 5)
    own, entropy = states(model, ids, types, cu)
    again = transcribed(flash(c, model), ids, types, cu)
    exact = transcribed(flash(c, model).double(), ids, types, cu)
    assert max(float(np.abs(a - b).max()) for a, b in zip(own, again)) < 2e-5
    floor = max(float(np.abs(a - b).max()) for a, b in zip(own, exact))
    assert all(0.4 < e < 0.8 for e in entropy), (name, entropy)
    tensors = {"ids": ids, "type_ids": types, "cu_seqlens": cu, "rows": rows}
    save(case, tensors | {f"hidden_{i}": h[rows] for i, h in enumerate(own)})
    notes = {"max_abs_float32_to_float64": floor, "max_abs_value": max(float(np.abs(h).max()) for h in own),
             "attention_entropy": {f"block {i}": round(float(e), 3) for i, e in enumerate(entropy)}}
    manifest.write(case, COMMAND, f"random {type(model).__name__}, seed {seed}", "float32", notes)
    print(case.name, notes, sum(f.stat().st_size for f in case.iterdir()) // 1024, "KiB")


SMALL = dict(hidden_size=32, num_attention_heads=1, intermediate_size=24, max_position_embeddings=60)


def classifier(seed):
    """As jina-reranker-v2-base-multilingual, whose configuration has no model_type: logits of tokens,
    and CrossEncoder's scores of pairs (texts.json), which runs transformers' own class."""
    case, c = fresh("classify-jxlmr"), config("absolute", **SMALL | dict(vocab_size=430))
    own = "modeling_xlm_roberta.XLMRoberta"
    (case / "config.json").write_text(written(
        c, "XLMRobertaForSequenceClassification", model_type=..., num_labels=1, id2label={"0": "LABEL_0"},
        label2id={"LABEL_0": 0}, auto_map={
            "AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig", "AutoModel": own + "Model",
            "AutoModelForSequenceClassification": own + "ForSequenceClassification"}))
    model = reference(c, (None, XLMRobertaForSequenceClassification), num_labels=1)
    randomise(model, seed)
    rounded(model, torch.bfloat16)
    encoder_ = {"roberta." + k: v for k, v in published(model.roberta).items()}
    store(encoder_ | {"classifier." + k: v.detach() for k, v in model.classifier.named_parameters()}, case,
          torch.bfloat16)
    ids, types, cu = packed(c, heads.LENGTHS, seed)
    b = {"ids": ids, "cu_seqlens": cu}
    b["logits"] = np.concatenate(heads.alone(model, b, lambda o: o.logits))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(manifest.GOLDEN / "tokenizer/xlmr/tokenizer.json"), model_max_length=58,
        bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", unk_token="<unk>",
        pad_token="<pad>", mask_token="<mask>", model_input_names=["input_ids", "attention_mask"])
    tokenizer.save_pretrained(case)
    with tempfile.TemporaryDirectory() as whole:
        model.save_pretrained(whole)
        tokenizer.save_pretrained(whole)
        rank = CrossEncoder(whole, device="cpu", max_length=58)
        b["pair_scores"] = np.stack([rank.predict([pair])[0] for pair in heads.PAIRS]).astype(np.float32)
    (case / "texts.json").write_text(json.dumps(heads.PAIRS, indent=1) + "\n")
    save(case, b)
    manifest.write(case, COMMAND, f"random XLMRobertaForSequenceClassification, seed {seed}", "float32", {})
    print(case.name, b["logits"][:, 0], b["pair_scores"])


def colbert(seed):
    """As jina-colbert-v2: linear.weight beside the encoder."""
    case, c = fresh("colbert-jxlmr"), config("rotary", rotary_emb_base=10000.0, **SMALL)
    (case / "config.json").write_text(written(c, "HF_ColBERT"))
    model = reference(c)
    randomise(model, seed)
    rounded(model, torch.bfloat16)
    linear = heads.matrix(torch.Generator().manual_seed(seed), 24, c["hidden_size"])
    linear, tensors = linear.to(torch.bfloat16).float(), published(model)
    store({"roberta." + k: v for k, v in tensors.items()} | {"linear.weight": linear}, case, torch.bfloat16)
    ids, types, cu = packed(c, heads.LENGTHS, seed)
    whole = torch.from_numpy(states(model, ids, types, cu)[0][-1])
    save(case, {"ids": ids, "cu_seqlens": cu, "vectors": (whole @ linear.T).numpy()})
    manifest.write(case, COMMAND, f"random ColBERT, seed {seed}", "float32", {})
    print(case.name)


def adapted(seed):
    case, c = fresh("lora-jxlmr"), config("rotary", rotary_emb_base=10000.0, **SMALL)
    (case / "config.json").write_text(written(c))
    model = reference(c)
    randomise(model, seed)
    rounded(model, torch.bfloat16)
    base = flash(c, model)
    store({k: v.detach() for k, v in base.named_parameters()}, case, torch.bfloat16)
    ids, types, cu = packed(c, [7, 1, 16, 5], seed)
    tensors, plain = {"ids": ids, "cu_seqlens": cu}, transcribed(base, ids, types, cu)
    tensors |= {f"base.hidden_{i}": h for i, h in enumerate(plain)}
    notes, floor = {}, 0.0
    for number, (adapter, options) in enumerate({
            "attention": dict(r=4, lora_alpha=8, target_modules=["Wqkv"]),
            "every": dict(r=3, lora_alpha=4, target_modules=["Wqkv", "out_proj", "fc1", "fc2"])}.items()):
        adapted_ = get_peft_model(copy.deepcopy(base), LoraConfig(**options))
        lora.randomise_adapter(adapted_, 100 * seed + number)
        lora.save_adapter(case / "adapters" / adapter, adapted_, False)
        adapted_ = PeftModel.from_pretrained(copy.deepcopy(base), case / "adapters" / adapter).eval()
        hidden = transcribed(adapted_, ids, types, cu)
        exact = transcribed(adapted_.double(), ids, types, cu)
        floor = max(floor, *(float(np.abs(a - b).max()) for a, b in zip(hidden, exact)))
        assert float(np.abs(hidden[-1] - plain[-1]).max()) > 0.1, f"{adapter} changes nothing"
        notes[adapter] = sorted(lora.deltas(adapted_, ""))
        tensors |= {f"{adapter}.hidden_{i}": h for i, h in enumerate(hidden)}
    save(case, tensors)
    manifest.write(case, COMMAND, f"random XLMRobertaModel of Jina, seed {seed}", "float32",
                   {"peft": peft_version, "prefix": "", "adapters": notes,
                    "max_abs_float32_to_float64": floor})
    print(case.name, notes)


BACK = [("emb_ln.", "embeddings.LayerNorm."), ("encoder.layers.", "layers."),
        ("mixer.out_proj.", "self_attn.o_proj."), ("norm1.", "post_attention_layernorm."),
        ("norm2.", "post_mlp_layernorm.")]
TASKS = ["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"]


def tasks(seed):
    """As jina-embeddings-v3: an adapter for each task inside the checkpoint."""
    case, rank = fresh("tasks-jxlmr"), 3
    c = config("rotary", rotary_emb_base=20000.0, **SMALL | dict(type_vocab_size=2, vocab_size=101))
    own = {"lora_adaptations": TASKS, "lora_rank": rank, "lora_alpha": 2, "load_trained_adapters": True,
           "task_instructions": {t: "" for t in TASKS} | {"retrieval.query": "query: "},
           "auto_map": {"AutoConfig": REPO + "configuration_xlm_roberta.XLMRobertaFlashConfig",
                        "AutoModel": REPO + "modeling_lora.XLMRobertaLoRA"}}
    (case / "config.json").write_text(written(c, **own))
    model = reference(c)
    randomise(model, seed)
    rounded(model, torch.bfloat16)
    base = {k: v for k, v in published(model).items() if not k.startswith("pooler.")}
    generator, stored, scale = torch.Generator().manual_seed(seed), {}, 2 / rank

    def normal(*shape):
        return coarse.normal(shape, 0.4, generator).to(torch.bfloat16).float()

    deltas = {}
    for name, w in base.items():
        layer = name.removesuffix(".weight")
        if w.ndim != 2:
            stored["roberta." + name] = w
            continue
        at = f"roberta.{layer}.parametrizations.weight."
        stored[at + "original"] = w
        if ".layers." in name:
            a, b = normal(5, rank, w.shape[1]), normal(5, w.shape[0], rank) * 0.25
            deltas[name] = scale * b @ a
        else:
            a, b = normal(5, w.shape[0], rank), normal(5, rank, w.shape[1])
            deltas[name] = scale * a @ b
        stored[at + "0.lora_A"], stored[at + "0.lora_B"] = a, b
    store(stored, case, torch.bfloat16)
    ids, types, cu = packed(c, [7, 1, 16, 5], seed)
    tensors, plain = {"ids": ids, "type_ids": types, "cu_seqlens": cu}, states(model, ids, types, cu)[0]
    tensors |= {f"base.hidden_{i}": h for i, h in enumerate(plain)}
    tokenizer, vectors = sentence.tokenizer(60), []
    tokenizer.save_pretrained(case)
    (case / "1_Pooling").mkdir()
    sentence.legacy_pooling(case, "mean", c["hidden_size"])
    kinds = [("transformer", "", "custom_st.Transformer"),
             ("pooling", "1_Pooling", "sentence_transformers.models.Pooling"),
             ("normalizer", "2_Normalize", "sentence_transformers.models.Normalize")]
    (case / "modules.json").write_text(json.dumps(
        [{"idx": i, "name": n, "path": p, "type": kind} for i, (n, p, kind) in enumerate(kinds)]) + "\n")
    for i, task in enumerate(TASKS):
        with_task = copy.deepcopy(model)
        merge(with_task, {k: v + deltas[k][i] if k in deltas else v for k, v in base.items()})
        hidden = states(with_task, ids, types, cu)[0]
        assert all(float(np.abs(a - b).max()) > 0.05 for a, b in zip(hidden, plain)), task
        tensors |= {f"{task}.hidden_{j}": h for j, h in enumerate(hidden)}
        for text in ("the cat sat on the mat", "a"):
            whole = tokenizer(own["task_instructions"][task] + text, return_tensors="np")["input_ids"][0]
            one = states(with_task, whole, np.zeros_like(whole), [0, len(whole)])[0][-1].mean(0)
            vectors.append(one / np.linalg.norm(one))
    save(case, tensors | {"vectors": np.stack(vectors)})
    manifest.write(case, COMMAND, f"random jina-embeddings-v3, seed {seed}", "float32", {})
    print(case.name, sum(f.stat().st_size for f in case.iterdir()) // 1024, "KiB")


def merge(model, values):
    """Gives transformers' model the weights that have these published names."""
    own = dict(model.named_parameters())
    for name, value in list(values.items()):
        if "mixer.Wqkv." in name:
            for part, third in zip(PARTS[0], value.chunk(3)):
                values[name.replace("mixer.Wqkv.", part)] = third
    with torch.no_grad():
        for name, value in values.items():
            for old, new in BACK:
                name = name.replace(old, new)
            if name in own:
                own.pop(name).copy_(value)
    assert all(n.startswith("pooler.") for n in own), sorted(own)


def main():
    torch.set_num_threads(1)
    for seed, (name, spec) in enumerate(CASES.items(), start=501):
        encoder(name, spec, seed)
    classifier(521)
    colbert(522)
    adapted(531)
    tasks(541)


if __name__ == "__main__":
    main()
