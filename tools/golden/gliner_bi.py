"""Tiny random GLiNER bi-encoders as the package saves them, and what it makes of whole texts.

    python tools/golden/gliner_bi.py [name ...]

Each case is a folder testdata/golden/gliner-bi-<name>, a model directory with golden.safetensors and
texts.json. Packed over the texts, every text run alone, float32:

    ids [T], cu [B+1] int32              tokens
    first, last [W], cu_words [B+1]      places of each word's subtokens in its text
    label_ids [S], cu_label_ids [N+1]    tokens of each label of each text
    cu_labels [B+1]                      the labels of each text
    states [T, C], label_states [S, E]   of the two encoders
    words [W, D], labels [N, D] f32      word states and label vectors
    logits f32                           of all spans [W, width, N] or words [W, N, 3]

texts.json is that of gliner_spans.py. The checkpoints of cases with RNN layers have weights of an
LSTM, which the package's forward pass does not run.
"""

import json
import shutil
import sys

import torch
from gliner import GLiNER
from gliner.model import BiEncoderSpanGLiNER, BiEncoderTokenGLiNER
from gliner_spans import BERT, DEBERTA, MODERNBERT, TEXTS
from gliner_spans import bytelevel, gaps, randomise, spread, unigram, wordpiece
from safetensors.torch import save_file

import manifest

LABELS = dict(BERT, hidden_size=16, num_hidden_layers=1, intermediate_size=24, max_position_embeddings=64)

# name: tokenizer of texts, its encoder, encoder of labels, changes to the configuration
CASES = {
    "modernbert-span": (
        bytelevel,
        dict(MODERNBERT, num_hidden_layers=2, global_attn_every_n_layers=2),
        dict(LABELS, hidden_size=24),
        dict(span_mode="markerV0", hidden_size=16, num_rnn_layers=1, max_width=12),
    ),
    "deberta-token": (
        unigram,
        DEBERTA,
        LABELS,
        dict(span_mode="token_level", hidden_size=16, num_rnn_layers=0, subtoken_pooling="mean"),
    ),
}
CHOSEN = [TEXTS[i] for i in (0, 1, 3, 4, 5, 6)]


class Recorder:
    """What the modules of one forward pass give."""

    def __init__(self, model):
        self.out, core = {}, model.model
        core.token_rep_layer.bert_layer.model.register_forward_hook(self.hook("states"))
        core.token_rep_layer.labels_encoder.model.register_forward_hook(self.hook("label_states"))
        represent = core.get_representations

        def represented(*args, **kwargs):
            r = represent(*args, **kwargs)
            self.out["words"], self.out["labels"] = r.words_embedding[0], r.prompts_embedding[0]
            return r

        core.get_representations = represented

    def hook(self, name):
        def hidden(_module, _args, out):
            self.out[name] = out.last_hidden_state

        return hidden


def run_all(model, recorder=None):
    for text, labels in CHOSEN:
        prepared = model.prepare_batch([text], labels)
        batch = model.collate_batch(prepared["input_x"], prepared["entity_types"], model.create_collator())
        with torch.no_grad():
            out = model.model(**{k: v for k, v in batch.items() if isinstance(v, torch.Tensor)})
        yield {"batch": batch, "logits": out.logits[0], **(dict(recorder.out) if recorder else {})}


def entities(model, text, labels, **how):
    found = model.inference([text], labels, **how)[0]
    cached = model.batch_predict_with_embeds([text], model.encode_labels(labels), labels, **how)[0]
    assert [e["start"] for e in found] == [e["start"] for e in cached]
    return [{k: e[k] for k in ("text", "label", "score", "start", "end")} for e in found]


def make(name: str, seed: int) -> None:
    tokens, encoder, labels_encoder, changes = CASES[name]
    case = manifest.GOLDEN / f"gliner-bi-{name}"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    t, of_labels = tokens(), wordpiece()
    of_labels.model_max_length = LABELS["max_position_embeddings"]
    span = changes["span_mode"] != "token_level"
    kind = BiEncoderSpanGLiNER if span else BiEncoderTokenGLiNER
    config = kind.config_class(
        encoder_config=dict(encoder, vocab_size=len(t)),
        model_name=f"sie/{name}",
        labels_encoder="sie/labels",
        labels_encoder_config=dict(labels_encoder, vocab_size=len(of_labels)),
        **changes,
    )
    torch.manual_seed(seed)
    model = kind(config, tokenizer=t, labels_tokenizer=of_labels, backbone_from_pretrained=False)
    model.eval()
    randomise(model.model, seed)
    spread(model, torch.cat([x["logits"].flatten() for x in run_all(model)]))
    model.save_pretrained(case, safe_serialization=True)
    loaded = GLiNER.from_pretrained(str(case))
    assert type(loaded).__name__ == kind.__name__, type(loaded)
    loaded.eval()
    write(case, loaded, span)
    manifest.write(
        case,
        "python tools/golden/gliner_bi.py",
        f"random {encoder['model_type']} and {labels_encoder['model_type']} GLiNER bi-encoder, {changes}",
        "float32",
        {"gliner": __import__("gliner").__version__, "seed": seed},
    )
    print(name, sum(p.stat().st_size for p in case.rglob("*")) // 1024, "KB")


def write(case, model, span) -> None:
    recorder, packed, texts = Recorder(model), {}, []
    cu = {"cu": [0], "cu_words": [0], "cu_labels": [0], "cu_label_ids": [0]}

    def add(key, value):
        tensor = torch.tensor(value, dtype=torch.int32) if isinstance(value, list) else value.detach().float()
        packed.setdefault(key, []).append(tensor)

    def count_of(key, n):
        cu[key].append(cu[key][-1] + n)

    processor = model.data_processor
    for (text, labels), r in zip(CHOSEN, run_all(model, recorder), strict=True):
        ids = r["batch"]["input_ids"][0].tolist()
        words, starts, ends = (x[0] for x in model.prepare_inputs([text]))
        of = processor.transformer_tokenizer([list(words)], is_split_into_words=True).word_ids(0)
        assert len(of) == len(ids)
        places = [[i for i, w in enumerate(of) if w == k] for k in range(len(words))]
        add("ids", ids)
        add("first", [p[0] if p else -1 for p in places])
        add("last", [p[-1] if p else -1 for p in places])
        for i, label in enumerate(labels):
            of_label = processor.labels_tokenizer(label, truncation=True)["input_ids"]
            add("label_ids", of_label)
            add("label_states", r["label_states"][i, : len(of_label)])
            count_of("cu_label_ids", len(of_label))
        count_of("cu", len(ids))
        count_of("cu_words", len(words))
        count_of("cu_labels", len(labels))
        add("states", r["states"][0])
        add("words", r["words"])
        add("labels", r["labels"])
        add("logits", r["logits"][: len(words)].flatten())
        requests = []
        scores = torch.sigmoid(r["logits"]).numpy()
        for threshold in [1.0] + gaps(scores, (0.6, 0.95) if span else (0.1, 0.3)):
            for flat, multi in ((True, False), (False, False), (True, True), (False, True)):
                how = {"threshold": threshold, "flat_ner": flat, "multi_label": multi}
                found = entities(model, text, labels, **how)
                if len(found) > 20 or threshold == 1 and not (flat and not multi):
                    continue
                requests.append(dict(how, entities=found))
        places = list(map(list, zip(starts, ends)))
        texts.append({"text": text, "labels": labels, "words": places, "requests": requests})
    out = {k: torch.cat(v).contiguous() for k, v in packed.items()}
    out.update({k: torch.tensor(v, dtype=torch.int32) for k, v in cu.items()})
    save_file(out, case / "golden.safetensors")
    (case / "texts.json").write_text(json.dumps(texts, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for i, name in enumerate(CASES):
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(name, 80 + i)
