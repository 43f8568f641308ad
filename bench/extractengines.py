"""The peers of bench-extract: each finds entities or classes in items {"text", "labels"}, all with the
same labels. Splitting into words, tokenizing and decoding are included. The batch size is tuned, and
texts are sorted by length first, which the packages leave to their callers.

`answers` gives what is compared: for each item a list of [start, end, label, score], or of
[label, score] in the labels' order.
"""

import json
import os
from pathlib import Path

import extractshapes

BATCHES = (8, 16, 4, 32, 1)  # texts
OVERLAP = 64  # words that windows share, as in sie-server


class Package:
    """What the engines share: the model's directory, its row and its thresholds."""

    def __init__(self, precision, model, cache, threads, bf16):
        import torch
        import transformers

        torch.set_num_threads(threads)
        self.torch, self.precision, self.threads = torch, precision, threads
        self.folder = Path(model)
        self.made = json.loads((self.folder / "made.json").read_text())
        self.row = extractshapes.ROWS[self.made["row"]]
        self.choices, self.choices_one, self.setting = {"batch": BATCHES}, {}, {}
        self.versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        self.load(Path(cache))

    def use(self, setting):
        self.setting = setting

    def encode(self, items):
        """peer.py's word for a pass over items."""
        return self.answers(items)

    def sorted(self, items):
        """The items' texts, longest first, their labels, and how to put answers back."""
        texts = [i["text"] for i in items]
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        back = [0] * len(order)
        for at, i in enumerate(order):
            back[i] = at
        return [texts[i] for i in order], items[0]["labels"], back

    def cast(self, model):
        return model.to(self.torch.bfloat16) if self.precision == "bf16" else model


class Gliner(Package):
    """The package gliner. Texts longer than it reads at once are cut into windows of words."""

    def load(self, cache):
        import gliner

        self.versions["gliner"] = gliner.__version__
        self.model = gliner.GLiNER.from_pretrained(str(self.folder))
        self.model.eval()
        self.cast(self.model.model)
        self.vectors = {}

    def windows(self, text):
        words = list(self.model.data_processor.words_splitter(text))
        size, step = self.row["limit"], self.row["limit"] - OVERLAP
        if len(words) <= size:
            return [(0, text)]
        starts = range(0, len(words) - OVERLAP, step)
        return [(words[s][1], text[words[s][1]:words[min(s + size, len(words)) - 1][2]]) for s in starts]

    def answers(self, items):
        texts, labels, back = self.sorted(items)
        given = dict(flat_ner=True, threshold=self.made["thresholds"][str(len(labels))],
                     batch_size=self.setting.get("batch", 1))
        pieces = [(i, start, part) for i, text in enumerate(texts) for start, part in self.windows(text)]
        with self.torch.inference_mode():
            found = self.run([p for _, _, p in pieces], labels, given)
        out = [[] for _ in texts]
        for (i, start, _), entities in zip(pieces, found):
            out[i] += [[start + e["start"], start + e["end"], e["label"], e["score"]] for e in entities]
        return [out[b] for b in back]

    def run(self, texts, labels, given):
        if "labels" not in self.row:
            return self.model.inference(texts, labels, **given)
        key = tuple(labels)
        if key not in self.vectors:
            self.vectors[key] = self.model.encode_labels(labels, batch_size=32)
        return self.model.batch_predict_with_embeds(texts, self.vectors[key], labels, **given)


class GlinerOnnx(Gliner):
    """The graph that the package exports, run by ONNX Runtime through the package."""

    def load(self, cache):
        import gliner
        import onnxruntime

        self.versions |= {"gliner": gliner.__version__, "onnxruntime": onnxruntime.__version__}
        into = Path(cache) / f"{self.folder.name}-onnx"
        if not (into / "model.onnx").exists():
            parts = Path(f"{into}.parts-{os.getpid()}")
            model = gliner.GLiNER.from_pretrained(str(self.folder))
            model.eval()
            model.export_to_onnx(str(parts))
            os.replace(parts, into)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self.model = gliner.GLiNER.from_pretrained(str(into), load_onnx_model=True,
                                                   load_tokenizer=True, session_options=options)
        self.vectors = {}


class Gliclass(Package):
    """The pipeline of the package gliclass."""

    def load(self, cache):
        import gliclass
        import transformers

        self.versions["gliclass"] = getattr(gliclass, "__version__", "0.1.21")
        model = self.cast(gliclass.GLiClassModel.from_pretrained(str(self.folder)).eval())
        words = transformers.AutoTokenizer.from_pretrained(str(self.folder))
        self.pipe = gliclass.ZeroShotClassificationPipeline(
            model, words, classification_type="multi-label", device="cpu", progress_bar=False,
            max_length=self.row["limit"])

    def answers(self, items):
        texts, labels, back = self.sorted(items)
        with self.torch.inference_mode():
            found = self.pipe(texts, labels, threshold=0.0, batch_size=self.setting.get("batch", 1))
        out = []
        for b in back:
            scores = {c["label"]: c["score"] for c in found[b]}
            out.append([[name, scores[name]] for name in labels])
        return out


class Pairs(Package):
    """transformers' zero-shot pipeline: a pair of text and hypothesis for each label, with the hypothesis
    of sie-server and one softmax over the labels, which both sides compute alike. (With several labels
    at once the pipeline compares entailment with contradiction, sie-server takes entailment alone.)"""

    def load(self, cache):
        import transformers

        model = self.cast(transformers.AutoModelForSequenceClassification.from_pretrained(
            str(self.folder)).eval())
        words = transformers.AutoTokenizer.from_pretrained(str(self.folder))
        self.pipe = transformers.pipeline("zero-shot-classification", model=model, tokenizer=words)

    def answers(self, items):
        texts, labels, back = self.sorted(items)
        with self.torch.inference_mode():
            found = self.pipe(texts, labels, hypothesis_template=extractshapes.HYPOTHESIS,
                              batch_size=self.setting.get("batch", 1))
        found = found if isinstance(found, list) else [found]
        out = []
        for b in back:
            scores = dict(zip(found[b]["labels"], found[b]["scores"]))
            out.append([[name, scores[name]] for name in labels])
        return out


ENGINES = {
    "gliner-fp32": (Gliner, "fp32"), "gliner-bf16": (Gliner, "bf16"),
    "onnxruntime-fp32": (GlinerOnnx, "fp32"),
    "gliclass-fp32": (Gliclass, "fp32"), "gliclass-bf16": (Gliclass, "bf16"),
    "transformers-fp32": (Pairs, "fp32"), "transformers-bf16": (Pairs, "bf16"),
}


def of(row):
    """The engines that run a row's models."""
    names = {"gliner": ("gliner-fp32", "gliner-bf16", "onnxruntime-fp32"),
             "gliclass": ("gliclass-fp32", "gliclass-bf16"),
             "transformers": ("transformers-fp32", "transformers-bf16")}
    return names[row["package"]]
