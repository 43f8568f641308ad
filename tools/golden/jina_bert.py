"""Tiny random models of Jina's BERT (ALiBi, gated layers, no table of positions): the states after the
embeddings and after every block, and what its heads and adapters give.

    python tools/golden/jina_bert.py

transformers does not have this architecture. The judge is the transcription below. It follows the
modelling files that Jina publishes, modeling_bert.py of jinaai/jina-bert-implementation (Block) and of
jinaai/jina-bert-v2-qk-post-norm (CodeBlock), whose names its parameters have. It was written from those
files and not from this repository's Go. The facts were compared with a second implementation, jina.rs
and jina_code.rs of text-embeddings-inference: which half of the gate is activated, where each norm
stands, and that the code model has two of them behind attention.

Each encoder is a folder testdata/golden/jina-<name> in the form of modernbert.py, with type_ids [T]
int32. The heads are in folders <task>-jina…, in the form of heads.py; lora-jina… in that of lora.py;
text-jina-embed in that of modernbert_text.py, with the mean of the last states.
Every sequence is run alone, float32. The manifest has the mean entropy of attention's rows, as a share
of that of uniform rows, over texts of more than 30 tokens.
"""

import copy
import json
import math
import shutil
from types import SimpleNamespace

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft import __version__ as peft_version
from safetensors.torch import save_file
from torch import nn

import coarse
import heads
import lora
import manifest
import modernbert
import sentence

COMMAND = "python tools/golden/jina_bert.py"
PLAIN, CODE = "jinaai/jina-bert-implementation", "jinaai/jina-bert-v2-qk-post-norm"


class Config(SimpleNamespace):
    """The keys of config.json, and which of the two files runs (code)."""


def slopes(heads_: int) -> list[float]:
    """Of each head: a geometric row from 2^(−8/n) for a power of two; for other numbers the row of
    the power below, then every second of the row of the power above."""
    if heads_ & (heads_ - 1) == 0:
        start = 2.0 ** (-(2.0 ** -(math.log2(heads_) - 3)))
        return [start ** (i + 1) for i in range(heads_)]
    below = 1 << (heads_.bit_length() - 1)
    return slopes(below) + slopes(2 * below)[0::2][: heads_ - below]


def gelu(name: str):
    return {"gelu": nn.GELU(), "relu": nn.ReLU(), "gelu_new": nn.GELU(approximate="tanh")}[name]


class Names(nn.Module):
    """A module whose children have names that are no Python names, such as `self`."""

    def __init__(this, /, **children):
        super().__init__()
        for name, child in children.items():
            this.add_module(name, child)


class Block(nn.Module):

    def __init__(self, c: Config):
        super().__init__()
        self.c, wide, deep, eps = c, c.hidden_size, c.intermediate_size, c.layer_norm_eps
        self.attention = Names(
            self=Names(query=nn.Linear(wide, wide), key=nn.Linear(wide, wide), value=nn.Linear(wide, wide)),
            output=Names(dense=nn.Linear(wide, wide), LayerNorm=nn.LayerNorm(wide, eps=eps)))
        self.entropy = None
        self.behind(c, wide, deep, eps)

    def behind(self, c, wide, deep, eps):
        if c.feed_forward_type.endswith("glu"):
            self.mlp = Names(gated_layers=nn.Linear(wide, 2 * deep, bias=False), wo=nn.Linear(deep, wide),
                             layernorm=nn.LayerNorm(wide, eps=eps))
        else:
            self.intermediate = Names(dense=nn.Linear(wide, deep))
            self.output = Names(dense=nn.Linear(deep, wide), LayerNorm=nn.LayerNorm(wide, eps=eps))

    def queries_and_keys(self, x):
        part = self.attention.get_submodule("self")
        return part.query(x), part.key(x)

    def attend(self, x):
        part, out = self.attention.get_submodule("self"), self.attention.get_submodule("output")
        n, width = x.shape[0], self.c.hidden_size // self.c.num_attention_heads
        q, k = self.queries_and_keys(x)
        q, k, v = (t.view(n, -1, width).transpose(0, 1) for t in (q, k, part.value(x)))
        places = torch.arange(n)
        distance = (places[None, :] - places[:, None]).abs().to(x.dtype)
        bias = -torch.tensor(slopes(self.c.num_attention_heads), dtype=torch.float32).to(x.dtype)
        scores = q @ k.transpose(1, 2) / math.sqrt(width) + bias[:, None, None] * distance
        weights = torch.softmax(scores, dim=-1)
        rows = -(weights * (weights + 1e-30).log()).sum(-1)
        self.entropy = float((rows / math.log(max(2, n))).mean())
        together = (weights @ v).transpose(0, 1).reshape(n, -1)
        return out.LayerNorm(out.dense(together) + x)

    def forward(self, x):
        x, deep = self.attend(x), self.c.intermediate_size
        if not self.c.feed_forward_type.endswith("glu"):
            h = gelu(self.c.hidden_act)(self.intermediate.dense(x))
            return self.output.LayerNorm(self.output.dense(h) + x)
        both = self.mlp.gated_layers(x)
        return self.mlp.layernorm(self.mlp.wo(nn.GELU()(both[:, :deep]) * both[:, deep:]) + x)


class CodeBlock(Block):

    def behind(self, c, wide, deep, eps):
        part = self.attention.get_submodule("self")
        part.layer_norm_q, part.layer_norm_k = nn.LayerNorm(wide, eps=eps), nn.LayerNorm(wide, eps=eps)
        self.layer_norm_1, self.layer_norm_2 = nn.LayerNorm(wide, eps=eps), nn.LayerNorm(wide, eps=eps)
        if c.feed_forward_type.endswith("glu"):
            self.mlp = Names(up_gated_layer=nn.Linear(wide, 2 * deep, bias=False),
                             down_layer=nn.Linear(deep, wide))
        else:
            self.mlp = Names(up_layer=nn.Linear(wide, deep, bias=False), down_layer=nn.Linear(deep, wide))

    def queries_and_keys(self, x):
        part = self.attention.get_submodule("self")
        return part.layer_norm_q(part.query(x)), part.layer_norm_k(part.key(x))

    def forward(self, x):
        deep = self.c.intermediate_size
        x = self.layer_norm_1(x + self.attend(x))
        if self.c.feed_forward_type.endswith("glu"):
            both = self.mlp.up_gated_layer(x)
            h = both[:, :deep] * nn.GELU()(both[:, deep:])
        else:
            h = gelu(self.c.hidden_act)(self.mlp.up_layer(x))
        return self.layer_norm_2(x + self.mlp.down_layer(h))


class Encoder(nn.Module):

    def __init__(self, c: Config):
        super().__init__()
        self.c, wide = c, c.hidden_size
        self.embeddings = Names(word_embeddings=nn.Embedding(c.vocab_size, wide),
                                token_type_embeddings=nn.Embedding(c.type_vocab_size, wide),
                                LayerNorm=nn.LayerNorm(wide, eps=c.layer_norm_eps))
        block = CodeBlock if c.code else Block
        self.encoder = Names(layer=nn.ModuleList(block(c) for _ in range(c.num_hidden_layers)))

    def forward(self, ids, types):
        """The states of one text."""
        e = self.embeddings
        states = [e.LayerNorm(e.word_embeddings(ids) + e.token_type_embeddings(types))]
        for layer in self.encoder.layer:
            states.append(layer(states[-1]))
        return states


class Classifier(nn.Module):
    """JinaBertForSequenceClassification: BERT's head, over the first token."""

    def __init__(self, c: Config, labels: int):
        super().__init__()
        self.bert = Encoder(c)
        self.bert.pooler = Names(dense=nn.Linear(c.hidden_size, c.hidden_size))
        self.classifier = nn.Linear(c.hidden_size, labels)

    def forward(self, ids, types):
        return self.classifier(torch.tanh(self.bert.pooler.dense(self.bert(ids, types)[-1][:1])))


class Masked(nn.Module):
    """JinaBertForMaskedLM: BERT's head, whose decoder is the table of words."""

    def __init__(self, c: Config):
        super().__init__()
        wide = c.hidden_size
        self.bert = Encoder(c)
        self.cls = Names(predictions=Names(transform=Names(
            dense=nn.Linear(wide, wide), LayerNorm=nn.LayerNorm(wide, eps=c.layer_norm_eps))))
        self.cls.predictions.register_parameter("bias", nn.Parameter(torch.zeros(c.vocab_size)))

    def forward(self, ids, types):
        p = self.cls.predictions
        h = gelu(self.bert.c.hidden_act)(p.transform.dense(self.bert(ids, types)[-1]))
        return p.transform.LayerNorm(h) @ self.bert.embeddings.word_embeddings.weight.T + p.bias


CASES = {
    # Heads of a power of two, one of them nearly without a bias; a text as long as the model takes.
    "h1-d64": (dict(hidden_size=64, num_attention_heads=1, intermediate_size=40,
                    max_position_embeddings=130), torch.bfloat16, "", [1, 2, 3, 127, 128, 129, 130]),
    "h2-d32": (dict(hidden_size=64, num_attention_heads=2, intermediate_size=30, layer_norm_eps=1e-3,
                    type_vocab_size=1), torch.float16, "bert.", [5, 127, 1]),
    # Numbers of heads that are no power of two; odd widths.
    "h3-d11": (dict(hidden_size=33, num_attention_heads=3, intermediate_size=17, num_hidden_layers=2),
               torch.bfloat16, "", [129, 2, 33]),
    "h6-d7": (dict(hidden_size=42, num_attention_heads=6, intermediate_size=25), torch.bfloat16,
               "model.", [64, 1, 100]),
    "h12-d5": (dict(hidden_size=60, num_attention_heads=12, intermediate_size=30),
               torch.float16, "0.auto_model.", [129, 3, 40]),
    # Without a gate, as feed_forward_type may say, with the tanh form of GELU.
    "original": (dict(hidden_size=64, num_attention_heads=2, intermediate_size=40,
                      feed_forward_type="original", hidden_act="gelu_new"), torch.bfloat16, "", [33, 1, 65]),
    # The code model.
    "code-h3-d11": (dict(code=True, hidden_size=33, num_attention_heads=3, intermediate_size=17),
                    torch.bfloat16, "", [1, 2, 3, 127, 128, 129]),
    "code-h12-d3": (dict(code=True, hidden_size=36, num_attention_heads=12, intermediate_size=30,
                         layer_norm_eps=1e-4, num_hidden_layers=2), torch.bfloat16, "bert.", [40, 1, 66]),
    "code-original": (dict(code=True, hidden_size=64, num_attention_heads=2, intermediate_size=40,
                           feed_forward_type="original", hidden_act="relu"),
                      torch.float16, "", [65, 7, 2]),
}


def config(**own) -> Config:
    return Config(**dict(vocab_size=43, num_hidden_layers=1, type_vocab_size=2, layer_norm_eps=1e-12,
                         max_position_embeddings=256, feed_forward_type="geglu", hidden_act="gelu",
                         code=False) | own)


def written(c: Config, kind: str, **own) -> str:
    """config.json in the form of the published ones."""
    repo = CODE if c.code else PLAIN
    out = {k: v for k, v in vars(c).items() if k != "code"} | own
    out |= {"model_type": "bert", "architectures": [f"JinaBert{kind}"], "position_embedding_type": "alibi",
            "attn_implementation": None, "emb_pooler": "mean", "pad_token_id": 0,
            "auto_map": {"AutoConfig": repo + "--configuration_bert.JinaBertConfig",
                         "AutoModel": repo + "--modeling_bert.JinaBertModel",
                         "AutoModelForMaskedLM": repo + "--modeling_bert.JinaBertForMaskedLM",
                         "AutoModelForSequenceClassification":
                             repo + "--modeling_bert.JinaBertForSequenceClassification"}}
    return json.dumps(out, indent=2, sort_keys=True) + "\n"


def randomise(model, seed):
    """Fan-in scaled normals, queries and keys stronger, gammas around 1 with a few large columns."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, std):
        return coarse.normal(shape, std, generator)

    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.lower().endswith(("layernorm.weight", "norm_q.weight", "norm_k.weight",
                                      "norm_1.weight", "norm_2.weight")):
                mean = 1.4 if name.endswith(("norm_q.weight", "norm_k.weight")) else 1
                p.copy_(mean + normal(p.shape, 0.2))
                p[:: max(1, p.numel() // 3)] *= 1.5
            elif p.ndim == 1:
                p.copy_(normal(p.shape, 0.2))
            elif "embeddings." in name:
                p.copy_(normal(p.shape, 0.7))
            else:
                gain = 1.4 if ".query." in name or ".key." in name else 1.0
                p.copy_(normal(p.shape, gain / math.sqrt(p.shape[1])))


def store(model, case, dtype, prefix):
    """Saves the parameters in that type and gives the model the values that were saved."""
    tensors = {k: v.detach().to(dtype).contiguous() for k, v in model.named_parameters()}
    with torch.no_grad():
        for k, p in model.named_parameters():
            p.copy_(tensors[k].float())
    save_file({prefix + k: v for k, v in tensors.items()}, case / "model.safetensors",
              metadata={"format": "pt"})


def alone(model, ids, types, cu):
    """What the model gives for each text by itself, and the entropy of each block's attention over
    long ones."""
    out, entropies = [], []
    with torch.no_grad():
        for start, end in zip(cu[:-1], cu[1:]):
            out.append(model(torch.tensor(ids[start:end], dtype=torch.long),
                             torch.tensor(types[start:end], dtype=torch.long)))
            if end - start > 30:
                entropies.append([m.entropy for m in model.modules() if isinstance(m, Block)])
    return out, np.mean(entropies, 0)


def states(model, ids, types, cu):
    texts, entropy = alone(model, ids, types, cu)
    return [np.concatenate([t[i].float().numpy() for t in texts]) for i in range(len(texts[0]))], entropy


def fresh(name):
    case = manifest.GOLDEN / name
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    return case


def packed(c, lengths, seed):
    rng = np.random.default_rng(seed)
    cu = np.cumsum([0] + lengths).astype(np.int32)
    ids = rng.integers(0, c.vocab_size, cu[-1], dtype=np.int32)
    ids[0], ids[-1] = 0, c.vocab_size - 1  # both ends of the table
    return ids, rng.integers(0, c.type_vocab_size, cu[-1], dtype=np.int32), cu


def save(case, tensors):
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in tensors.items()},
              case / "golden.safetensors")


def encoder(name, spec, seed):
    own, dtype, prefix, lengths = spec
    case, c = fresh(f"jina-{name}"), config(**own)
    (case / "config.json").write_text(written(c, "Model"))
    model = Encoder(c).eval()
    randomise(model, seed)
    store(model, case, dtype, prefix)
    ids, types, cu = packed(c, lengths, seed)
    rows = modernbert.kept(lengths, 5)
    own_states, entropy = states(model, ids, types, cu)
    exact, _ = states(copy.deepcopy(model).double(), ids, types, cu)
    floor = max(float(np.abs(a - b).max()) for a, b in zip(own_states, exact))
    assert all(0.3 < e < 0.95 for e in entropy), (name, entropy)
    tensors = {"ids": ids, "type_ids": types, "cu_seqlens": cu, "rows": rows}
    save(case, tensors | {f"hidden_{i}": h[rows] for i, h in enumerate(own_states)})
    notes = {"max_abs_float32_to_float64": floor,
             "max_abs_value": max(float(np.abs(h).max()) for h in own_states),
             "attention_entropy": {f"block {i}": round(float(e), 3) for i, e in enumerate(entropy)}}
    manifest.write(case, COMMAND, f"random JinaBert, seed {seed}", "float32", notes)
    print(case.name, notes, sum(f.stat().st_size for f in case.iterdir()) // 1024, "KiB")


SMALL = dict(hidden_size=32, num_attention_heads=1, intermediate_size=24, max_position_embeddings=60)


def head(name, key, kind, build, seed, own, **labels):
    case, c = fresh(name), config(**SMALL | own)
    (case / "config.json").write_text(written(c, kind, **labels))
    model = build(c).eval()
    randomise(model, seed)
    store(model, case, torch.bfloat16, "")
    b = dict(zip(("ids", "type_ids", "cu_seqlens"), packed(c, heads.LENGTHS, seed)))
    b[key] = np.concatenate([t.numpy() for t in alone(model, b["ids"], b["type_ids"], b["cu_seqlens"])[0]])
    save(case, b)
    manifest.write(case, COMMAND, f"random JinaBert{kind}, seed {seed}", "float32", {})
    print(name, b[key].shape, float(np.abs(b[key]).max()))


def adapted(name, own, adapters, seed):
    case, c = fresh(f"lora-jina-{name}"), config(**SMALL | own)
    (case / "config.json").write_text(written(c, "Model"))
    base = Encoder(c).eval()
    randomise(base, seed)
    store(base, case, torch.bfloat16, "")
    ids, types, cu = packed(c, [7, 1, 16, 5], seed)
    tensors = {"ids": ids, "type_ids": types, "cu_seqlens": cu}

    def run(model):
        with torch.no_grad():
            texts = [model(*(torch.tensor(x[a:b], dtype=torch.long) for x in (ids, types)))
                     for a, b in zip(cu[:-1], cu[1:])]
        return [np.concatenate([t[i].float().numpy() for t in texts]) for i in range(len(texts[0]))]

    plain = run(base)
    tensors |= {f"base.hidden_{i}": h for i, h in enumerate(plain)}
    notes, floor = {}, 0.0
    for number, (adapter, options) in enumerate(adapters.items()):
        model = get_peft_model(copy.deepcopy(base), LoraConfig(**options))
        lora.randomise_adapter(model, 100 * seed + number)
        lora.save_adapter(case / "adapters" / adapter, model, False)
        model = PeftModel.from_pretrained(copy.deepcopy(base), case / "adapters" / adapter).eval()
        hidden = run(model)
        exact = run(model.double())
        floor = max(floor, *(float(np.abs(a - b).max()) for a, b in zip(hidden, exact)))
        assert float(np.abs(hidden[-1] - plain[-1]).max()) > 0.1, f"{adapter} changes nothing"
        notes[adapter] = sorted(lora.deltas(model, ""))
        tensors |= {f"{adapter}.hidden_{i}": h for i, h in enumerate(hidden)}
        print(case.name, adapter, len(notes[adapter]), "linears")
    save(case, tensors)
    manifest.write(case, COMMAND, f"random JinaBert, seed {seed}", "float32",
                   {"peft": peft_version, "prefix": "", "adapters": notes,
                    "max_abs_float32_to_float64": floor})


def embed(seed):
    """A whole directory as jina-embeddings-v2 has it: the model, a tokenizer, mean pooling."""
    case, c = fresh("text-jina-embed"), config(**SMALL | dict(vocab_size=101))
    (case / "config.json").write_text(written(c, "Model"))
    model = Encoder(c).eval()
    randomise(model, seed)
    store(model, case, torch.bfloat16, "")
    tokenizer = sentence.tokenizer(c.max_position_embeddings)
    tokenizer.save_pretrained(case)
    (case / "1_Pooling").mkdir()
    sentence.legacy_pooling(case, "mean", c.hidden_size)
    modules = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
               for i, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling")])]
    (case / "modules.json").write_text(json.dumps(modules) + "\n")
    vectors = []
    for text in sentence.TEXTS:
        tokens = tokenizer(text, truncation=True, max_length=c.max_position_embeddings, return_tensors="pt")
        with torch.no_grad():
            states_ = model(tokens["input_ids"][0], tokens["token_type_ids"][0])
        vectors.append(states_[-1].mean(0).numpy())
    (case / "texts.json").write_text(json.dumps(sentence.TEXTS, indent=1, ensure_ascii=False) + "\n")
    save(case, {"vectors": np.stack(vectors)})
    manifest.write(case, COMMAND, f"random JinaBertModel, seed {seed}", "float32", {})
    print(case.name, len(vectors))


def main():
    torch.set_num_threads(1)
    for seed, (name, spec) in enumerate(CASES.items(), start=401):
        encoder(name, spec, seed)
    head("classify-jina", "logits", "ForSequenceClassification", lambda c: Classifier(c, 1), 431, {},
         id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0})
    head("classify-jina-code", "logits", "ForSequenceClassification", lambda c: Classifier(c, 3), 432,
         dict(code=True), id2label=heads.EMOTIONS, label2id={v: k for k, v in heads.EMOTIONS.items()})
    head("masked-jina", "word_logits", "ForMaskedLM", Masked, 433, {})
    adapted("bert", {}, {
        "attention": dict(r=4, lora_alpha=8, target_modules=["query", "value"]),
        "every": dict(r=3, lora_alpha=4,
                      target_modules=["query", "key", "value", "dense", "gated_layers", "wo"]),
        "gate": dict(r=5, lora_alpha=6, target_modules=["gated_layers"]),
    }, 441)
    adapted("code", dict(code=True), {
        "attention": dict(r=4, lora_alpha=8, target_modules=["query", "key"]),
        "every": dict(r=3, lora_alpha=4,
                      target_modules=["query", "key", "value", "dense", "up_gated_layer", "down_layer"]),
    }, 442)
    embed(451)


if __name__ == "__main__":
    main()
