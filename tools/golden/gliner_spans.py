"""Tiny random GLiNER models as the package saves them, and what it makes of whole texts.

    python tools/golden/gliner_spans.py [name ...]

Each case is a folder testdata/golden/gliner-<name>, a model directory with golden.safetensors and
texts.json. Packed over the texts, every text run alone, float32:

    ids [T], cu [B+1] int32              tokens, prompt first
    first, last [W], cu_words [B+1]      places of each word's subtokens in its text
    markers [M], cu_markers [B+1]        places of the label tokens (or of those behind them)
    states [T, C] f32                    of the encoder
    words, context [W, D] f32            before and behind the LSTM
    labels [M, D] f32                    label states
    logits f32                           of all spans [W, width, N] or words [W, N, 3]

texts.json: objects with text, labels, words (places in code points) and requests: threshold,
flat_ner, multi_label, and entities as `inference` gives them. Thresholds stand in gaps of the
scores, so that no score is within 1e-4 of one.
"""

import json
import math
import os
import shutil
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import numpy as np
import torch
from gliner import GLiNER
from gliner.model import UniEncoderSpanGLiNER, UniEncoderTokenGLiNER
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

import coarse
import manifest

LONG = "the International Bank for Reconstruction and Development of the United Nations in New York"
TEXTS = [
    ("Berlin", ["city"]),
    ("Angela Merkel lived in Berlin, not in New York.", ["person", "city", "job title"]),
    (LONG + " met Ann", ["organization", "person"]),
    ("Анна Каренина поехала в Москву на поезде", ["person", "город"]),
    ("東京都に住む田中さん", ["person", "place", "food", "date"]),
    (
        "caf\u00e9 e\u0301 na\u00efve \U0001f642 \U0001f469\u200d\U0001f467 ok\U0001f642!",
        ["drink", "smile"],
    ),
    (
        "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643 \u0641\u064a \u0628\u0631\u0644\u064a\u0646 2026",
        ["city", "year"],
    ),
    ("state_of-the-art re-use a_b-c, x1-y2: 50% of $3.99 (net)", ["thing", "price"]),
    ("  one\ttwo\n\nthree  ", ["number", "word"]),
    ("pay Bob 5 " * 9, ["person", "money", "verb"]),
]
TEXTS = [(text, sorted(labels)) for text, labels in TEXTS]  # any order would do: servers keep it
TRAINING = [t for t, _ in TEXTS] * 3 + ["person city organization place date"] * 3


def wordpiece() -> PreTrainedTokenizerFast:
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    # Words without tokens shift all words behind them in the package, so that there are none here.
    t.normalizer = normalizers.BertNormalizer(lowercase=True, clean_text=False, strip_accents=False)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(
        TRAINING, trainers.WordPieceTrainer(vocab_size=260, special_tokens=special, show_progress=False)
    )
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=t,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def bytelevel() -> PreTrainedTokenizerFast:
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(
        TRAINING,
        trainers.BpeTrainer(
            vocab_size=320,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=t,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def unigram() -> PreTrainedTokenizerFast:
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.NFKC()])
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")
    t.decoder = decoders.Metaspace()
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    t.train_from_iterator(
        TRAINING,
        trainers.UnigramTrainer(
            vocab_size=280, special_tokens=special, unk_token="[UNK]", show_progress=False
        ),
    )
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=t,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


BERT = dict(
    model_type="bert",
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=1,
    intermediate_size=48,
    max_position_embeddings=192,
    type_vocab_size=2,
)
MODERNBERT = dict(
    model_type="modernbert",
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=1,
    intermediate_size=48,
    max_position_embeddings=192,
    global_attn_every_n_layers=3,
    local_attention=16,
    pad_token_id=0,
    bos_token_id=2,
    eos_token_id=3,
    cls_token_id=2,
    sep_token_id=3,
)
DEBERTA = dict(
    model_type="deberta-v2",
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=1,
    intermediate_size=48,
    max_position_embeddings=192,
    type_vocab_size=0,
    relative_attention=True,
    position_buckets=16,
    norm_rel_ebd="layer_norm",
    share_att_key=True,
    pos_att_type=["p2c", "c2p"],
    layer_norm_eps=1e-7,
    max_relative_positions=-1,
    position_biased_input=False,
    pad_token_id=0,
)

# name: tokenizer, encoder, changes to the configuration
CASES = {
    "bert-span": (
        wordpiece,
        BERT,
        dict(span_mode="markerV0", hidden_size=16, num_rnn_layers=1, max_width=12),
    ),
    "bert-token": (wordpiece, BERT, dict(span_mode="token_level", hidden_size=16, num_rnn_layers=1)),
    "bert-torch": (
        wordpiece,
        BERT,
        dict(
            span_mode="markerV0",
            hidden_size=16,
            num_rnn_layers=2,
            max_width=5,
            post_fusion_schema="l2l-l2t-t2t-t2l",
        ),
    ),
    "modernbert-span": (
        bytelevel,
        MODERNBERT,
        dict(
            span_mode="markerV0",
            hidden_size=16,
            num_rnn_layers=0,
            max_width=4,
            embed_ent_token=False,
            subtoken_pooling="last",
        ),
    ),
    "modernbert-token": (
        bytelevel,
        MODERNBERT,
        dict(
            span_mode="token_level",
            hidden_size=16,
            num_rnn_layers=0,
            embed_ent_token=False,
            subtoken_pooling="mean",
        ),
    ),
    "deberta-span": (
        unigram,
        DEBERTA,
        dict(span_mode="markerV0", hidden_size=16, num_rnn_layers=1, max_width=12),
    ),
    "deberta-marker": (
        unigram,
        dict(DEBERTA, num_hidden_layers=1),
        dict(span_mode="marker", hidden_size=16, num_rnn_layers=1, max_width=3),
    ),
    "bert-fused": (
        wordpiece,
        dict(BERT, num_hidden_layers=4),
        dict(span_mode="token_level", hidden_size=16, num_rnn_layers=0, fuse_layers=True),
    ),
}


def randomise(model: torch.nn.Module, seed: int) -> None:
    """Fan-in scaled normals; queries and keys stronger, so that attention is neither even nor one-hot."""
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, std):
        return coarse.normal(shape, std, generator)

    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name.lower() and name.endswith("weight"):
                p.copy_(1 + normal(p.shape, 0.15))
            elif p.dim() == 1:
                p.copy_(normal(p.shape, 0.1))
            elif "embeddings." in name:
                p.copy_(normal(p.shape, 0.7))
            else:
                gain = 1.3 if any(n in name for n in (".query", ".key", "Wqkv")) else 1.2
                p.copy_(normal(p.shape, gain / math.sqrt(p.shape[1])))


def spread(model, logits: torch.Tensor) -> None:
    """Scales and moves the last layer so that logits have a standard deviation of 2 around -2."""
    mean, std = float(logits.mean()), float(logits.std())
    with torch.no_grad():
        core = model.model
        if hasattr(core, "scorer"):
            last = core.scorer.out_mlp[3]
            last.weight.mul_(2.5 / std)
            last.bias.mul_(2.5 / std).add_(0.5 - mean * 2.5 / std)
        else:
            core.prompt_rep_layer[3].weight.mul_(2 / std)
            core.prompt_rep_layer[3].bias.mul_(2 / std)


def gaps(scores: np.ndarray, quantiles) -> list[float]:
    """Thresholds in the widest gaps of the scores near those quantiles."""
    s, out = np.sort(scores.ravel().astype(np.float64)), []
    for q in quantiles:
        at = int(q * (len(s) - 1))
        lo, hi = max(0, at - 4), min(len(s) - 1, at + 4)
        if hi <= lo:
            continue
        widths = s[lo + 1 : hi + 1] - s[lo:hi]
        i = lo + int(widths.argmax())
        if s[i + 1] - s[i] > 4e-4:
            out.append(round((s[i] + s[i + 1]) / 2, 5))
    return out


# Of cases whose place in CASES does not give it.
SEEDS = {"bert-fused": 69}

# Cases with the first texts only.
FEW = {
    "bert-torch": 4,
    "modernbert-span": 7,
    "modernbert-token": 7,
    "deberta-span": 7,
    "deberta-marker": 4,
    "bert-fused": 4,
}


class Recorder:
    """What the modules of one forward pass give."""

    def __init__(self, model):
        self.out, core = {}, model.model
        core.token_rep_layer.bert_layer.model.register_forward_hook(self.hidden, with_kwargs=True)
        represent = core.get_representations
        extract = core._extract_prompt_features_and_word_embeddings

        def extracted(*args, **kwargs):
            r = extract(*args, **kwargs)
            self.out["labels"], self.out["words"] = r[0][0], r[2][0]
            return r

        def represented(*args, **kwargs):
            r = represent(*args, **kwargs)
            self.out["context"] = r.words_embedding[0]
            return r

        core.get_representations, core._extract_prompt_features_and_word_embeddings = represented, extracted

    def hidden(self, _module, _args, _kwargs, out):
        self.out["states"] = out.last_hidden_state[0]


def make(name: str, seed: int) -> None:
    tokens, encoder, changes = CASES[name]
    case = manifest.GOLDEN / f"gliner-{name}"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    t = tokens()
    t.add_tokens(["[FLERT]", "<<ENT>>", "<<SEP>>"], special_tokens=True)
    span = changes["span_mode"] != "token_level"
    kind = UniEncoderSpanGLiNER if span else UniEncoderTokenGLiNER
    config = kind.config_class(
        encoder_config=dict(encoder, vocab_size=len(t)),
        model_name=f"sie/{name}",
        vocab_size=len(t),
        class_token_index=t.convert_tokens_to_ids("<<ENT>>"),
        **changes,
    )
    torch.manual_seed(seed)
    model = kind(config, tokenizer=t, backbone_from_pretrained=False)
    model.eval()
    randomise(model.model, seed)
    first = next(iter(run_all(model)))
    spread(model, torch.cat([x["logits"].flatten() for x in [first, *run_all(model)]]))
    model.save_pretrained(case, safe_serialization=name != "bert-torch")
    loaded = GLiNER.from_pretrained(str(case))
    assert type(loaded).__name__ == kind.__name__, type(loaded)
    loaded.eval()
    write(case, loaded, span)
    manifest.write(
        case,
        "python tools/golden/gliner_spans.py",
        f"random {encoder['model_type']} GLiNER, {changes}",
        "float32",
        {"gliner": __import__("gliner").__version__, "seed": seed},
    )
    print(name, sum(p.stat().st_size for p in case.rglob("*")) // 1024, "KB")


def run_all(model, recorder=None):
    for text, labels in TEXTS[: FEW.get(model.config.model_name[4:])]:
        prepared = model.prepare_batch([text], labels)
        batch = model.collate_batch(prepared["input_x"], prepared["entity_types"], model.create_collator())
        with torch.no_grad():
            out = model.model(**{k: v for k, v in batch.items() if isinstance(v, torch.Tensor)})
        yield {
            "batch": batch,
            "logits": out.logits[0],
            "prepared": prepared,
            **(dict(recorder.out) if recorder else {}),
        }


def write(case, model, span) -> None:
    recorder, packed, texts = Recorder(model), {}, []
    cu = {"cu": [0], "cu_words": [0], "cu_markers": [0]}

    def add(key, value):
        packed.setdefault(key, []).append(
            torch.as_tensor(value).detach().float()
            if not isinstance(value, list)
            else torch.tensor(value, dtype=torch.int32)
        )

    for (text, labels), r in zip(TEXTS, run_all(model, recorder), strict=False):
        ids = r["batch"]["input_ids"][0].tolist()
        words, starts, ends = (x[0] for x in model.prepare_inputs([text]))
        sep = ids.index(
            model.data_processor.transformer_tokenizer.convert_tokens_to_ids(model.config.sep_token)
        )
        prompt = [w for l in labels for w in (model.config.ent_token, l)] + [model.config.sep_token]
        of = model.data_processor.transformer_tokenizer(
            [prompt + list(words)], is_split_into_words=True
        ).word_ids(0)
        assert len(of) == len(ids)
        places = [[i for i, w in enumerate(of) if w == len(prompt) + k] for k in range(len(words))]
        add("ids", ids)
        add("first", [p[0] if p else -1 for p in places])
        add("last", [p[-1] if p else -1 for p in places])
        behind = 0 if model.config.embed_ent_token else 1
        markers = [i + behind for i, x in enumerate(ids) if x == model.config.class_token_index]
        assert len(markers) == len(labels) and all(m <= sep for m in markers)
        add("markers", markers)
        for key, n in (("cu", len(ids)), ("cu_words", len(words)), ("cu_markers", len(markers))):
            cu[key].append(cu[key][-1] + n)
        for key in ("states", "words", "context", "labels"):
            add(key, r[key])
        logits = r["logits"]
        add("logits", logits[: len(words)].flatten())
        scores = torch.sigmoid(logits)
        requests = []
        for threshold in [0.0, 1.0] + gaps(scores.numpy(), (0.6, 0.95) if span else (0.1, 0.3)):
            for flat, multi in ((True, False), (False, False), (True, True), (False, True)):
                found = model.inference(
                    [text], labels, flat_ner=flat, threshold=threshold, multi_label=multi
                )[0]
                if len(found) > 20 or threshold in (0, 1) and not (flat and not multi):
                    continue
                requests.append(
                    {
                        "threshold": threshold,
                        "flat_ner": flat,
                        "multi_label": multi,
                        "entities": [
                            {k: e[k] for k in ("text", "label", "score", "start", "end")} for e in found
                        ],
                    }
                )
        texts.append(
            {
                "text": text,
                "labels": labels,
                "words": list(map(list, zip(starts, ends))),
                "requests": requests,
            }
        )
    out = {k: torch.cat(v).contiguous() for k, v in packed.items()}
    out.update({k: torch.tensor(v, dtype=torch.int32) for k, v in cu.items()})
    save_file(out, case / "golden.safetensors")
    (case / "texts.json").write_text(json.dumps(texts, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for i, name in enumerate(CASES):
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(name, SEEDS.get(name, 60 + i))
