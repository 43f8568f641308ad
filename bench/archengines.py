"""The peers of bench-arch: each encodes texts to vectors that are pooled and not normalised, so that
their lengths can be compared too, or scores pairs of a query and a document. Tokenising is included.

All of them get length-sorted padded batches, whose size is tuned; see engines.py for what an engine
has. The model directory is one of archmodels.py.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

import archmodels
import archshapes
import engines
import export

BATCHES = ("1024 tokens", "512 tokens", "2048 tokens", 1, 8)  # padding counted
# Qwen3-Reranker's pieces (its README): only the document is cut.
BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n')
ASKED = ("<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
         "<Query>: {}\n<Document>: ")
BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


class Row:
    """What an engine needs to know of its model directory."""

    def __init__(self, model):
        self.name = json.loads(Path(model, "made.json").read_text())["row"]
        self.row = archshapes.ROWS[self.name]
        self.pooling, self.pad = self.row["pooling"], self.row["special"][2]
        self.tokenizer = export.open_tokenizer(model, self.row["limit"])

    def ids(self, items):
        """Token ids of texts, or of pairs [query, document]."""
        if self.pooling == "yesno":
            return self.prompts(items)
        items = [i if isinstance(i, str) else tuple(i) for i in items]
        return [e.ids for e in self.tokenizer.encode_batch_fast(items)]

    def prompts(self, pairs):
        def bare(texts):
            return [e.ids for e in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

        before, behind = bare([BEFORE, BEHIND])
        asked, documents = bare([ASKED.format(q) for q, _ in pairs]), bare([d for _, d in pairs])
        room = self.row["limit"] - len(before) - len(behind)
        return [before + (a + d)[:room] + behind for a, d in zip(asked, documents)]

    def words(self):
        """Ids of "no" and "yes"."""
        return [self.tokenizer.token_to_id(w) for w in ("no", "yes")]


def load(model, row, dtype, attention):
    """The model of transformers; with its eager attention where the class has no other."""
    import transformers

    auto = getattr(transformers, archmodels.CLASSES.get(row.pooling, "AutoModel"))
    try:
        loaded = auto.from_pretrained(model, dtype=dtype, attn_implementation=attention,
                                      local_files_only=True)
    except ValueError as err:
        if "does not support an attention implementation" not in str(err):
            raise
        return load(model, row, dtype, "eager")
    loaded.config.use_cache = False
    return loaded


def masks(attention_mask, half):
    """What a model with windows adds to its scores, by kind of block. transformers makes these masks by
    functions that no exporter can trace, and a row without any key becomes NaN in OpenVINO."""
    import torch

    far = torch.finfo(torch.float32).min
    place = torch.arange(attention_mask.shape[1])
    near = ((place[:, None] - place[None, :]).abs() <= half)[None, None]
    real = attention_mask[:, None, None, :].bool() & torch.ones_like(near)
    return {"full_attention": torch.where(real, 0.0, far),
            "sliding_attention": torch.where(real & near, 0.0, far)}


def module(model, row, dtype, attention, traced=False):
    """A torch module from ids and mask to what is compared: pooled vectors, or a column of scores."""
    import torch

    loaded = load(model, row, dtype, attention)
    words, window = row.words(), row.row["window"]

    def encoder(given):
        body = loaded.base_model
        if not (traced and window):
            return body(**given).last_hidden_state
        return body(given["input_ids"], attention_mask=masks(given["attention_mask"], window[1])
                    ).last_hidden_state

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.loaded = loaded

        def forward(self, input_ids, attention_mask):
            given = {"input_ids": input_ids, "attention_mask": attention_mask}
            if row.pooling == "pair" and not (traced and window):
                return self.loaded(**given).logits[:, :1].float().sigmoid()
            last = attention_mask.sum(1) - 1
            rows = torch.arange(len(input_ids))
            if row.pooling == "yesno":  # the head is multiplied with one row a text, and not with all
                hidden = encoder(given)[rows, last]
                logits = self.loaded.lm_head.weight[words].float() @ hidden.float().T
                return torch.softmax(logits, 0)[1:].T
            hidden = encoder(given)
            if row.pooling == "cls":
                return hidden[:, 0].float()
            if row.pooling == "last":
                return hidden[rows, last].float()
            mask = attention_mask.unsqueeze(-1).float()
            mean = (hidden.float() * mask).sum(1) / mask.sum(1)
            if row.pooling == "pair":  # ModernBERT's head, behind its mean
                return self.loaded.classifier(self.loaded.head(mean))[:, :1].sigmoid()
            return mean

    return Whole().eval()


class Sorted(engines.Graph):
    """Length-sorted padded batches of texts or of pairs."""

    def __init__(self, precision, model, cache, threads, bf16):
        self.precision, self.threads, self.bf16, self.row = precision, threads, bf16, Row(model)
        self.choices, self.choices_one, self.compiled = {"batch": BATCHES}, {}, {}

    def token_ids(self, items):
        return self.row.ids(items)

    def pad(self):
        return self.row.pad


class Transformers(Sorted):
    def __init__(self, precision, model, cache, threads, bf16):
        import torch
        import transformers

        torch.set_num_threads(threads)
        super().__init__(precision, model, cache, threads, bf16)
        self.torch = torch
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        self.model = module(model, self.row, dtype, "sdpa")
        self.versions = {"transformers": transformers.__version__, "torch": torch.__version__}

    def use(self, setting):
        self.setting, self.run = setting, self.forward

    def forward(self, batches):
        with self.torch.inference_mode():
            for rows, inputs in batches:
                yield rows, self.model(**{k: self.torch.from_numpy(v) for k, v in inputs.items()}).numpy()


class Exported(Sorted):
    """A graph of the whole model, with several streams or one."""

    def __init__(self, precision, model, cache, threads, bf16):
        super().__init__(precision, model, cache, threads, bf16)
        self.path = artefact(self.exported, model, cache)
        self.choices = {"batch": BATCHES, "streams": sorted({1, threads}, reverse=True)}
        self.choices_one = {"streams": sorted({1, threads})}


class OnnxRuntime(Exported):
    exported = "onnx"

    def __init__(self, *args):
        import onnxruntime

        self.ort = onnxruntime
        self.versions = {"onnxruntime": onnxruntime.__version__}
        super().__init__(*args)

    compile = engines.OnnxRuntime.compile


class OpenVino(Exported):
    exported = "openvino"

    def __init__(self, *args):
        import openvino

        self.ov, self.core = openvino, openvino.Core()
        self.versions = {"openvino": openvino.__version__}
        super().__init__(*args)

    compile = engines.OpenVino.compile


ENGINES = {
    "transformers-fp32": (Transformers, "fp32"),
    "transformers-bf16": (Transformers, "bf16"),
    "openvino-fp32": (OpenVino, "fp32"),
    "openvino-bf16": (OpenVino, "bf16"),
    "onnxruntime-fp32": (OnnxRuntime, "fp32"),
}


def artefact(kind, model, cache):
    """Path of the graph for kind, onnx or openvino; made when it isn't there."""
    folder = Path(cache) / f"{kind}-{export.key(model, (Path(__file__), Path(export.__file__)))}"
    path = folder / ("model.onnx" if kind == "onnx" else "model.xml")
    if not path.exists():
        parts = Path(f"{folder}.parts-{os.getpid()}")
        parts.mkdir(parents=True, exist_ok=True)
        {"onnx": to_onnx, "openvino": to_openvino}[kind](parts / path.name, model)
        os.replace(parts, folder)
    return path


def example(row):
    import torch

    ids = torch.arange(100, 114).reshape(2, 7)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0  # a padded row, so that the trace keeps the mask
    return ids, mask


def to_onnx(path, model):
    import torch

    row = Row(model)
    axes = {n: {0: "batch", 1: "length"} for n in export.INPUTS} | {"embedding": {0: "batch"}}
    whole = module(model, row, torch.float32, "eager", traced=True)
    torch.onnx.export(whole, example(row), str(path), dynamo=False, opset_version=17,
                      input_names=list(export.INPUTS), output_names=["embedding"], dynamic_axes=axes)


def to_openvino(path, model):
    import openvino as ov
    import torch

    row = Row(model)
    given = dict(zip(export.INPUTS, example(row)))
    converted = ov.convert_model(module(model, row, torch.float32, "sdpa", traced=True), example_input=given)
    ov.save_model(converted, path, compress_to_fp16=False)


def main():
    """archengines.py MODEL CACHE KIND: makes the graph, or ends with the exporter's error."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    print(artefact(sys.argv[3], Path(sys.argv[1]), sys.argv[2]))


if __name__ == "__main__":
    main()
