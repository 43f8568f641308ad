"""Makes the files that ONNX Runtime and OpenVINO load, once, into the bench cache.

Both get the whole encoder in one graph, mean pooling and L2 norm included, as the best deployments
of them do.
"""

import hashlib
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

import texts

LIMIT = texts.LIMIT
INPUTS = ("input_ids", "attention_mask")


def open_tokenizer(model, limit=LIMIT):
    """The model's tokenizer, without padding and cut at the limit."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit)
    return tokenizer


def counter(model):
    """A function that counts a text's tokens, special ones included, uncut."""
    tokenizer = open_tokenizer(model, 1 << 20)
    return lambda text: len(tokenizer.encode(text).ids)


def artefact(kind, model, cache):
    """Path of the file for kind: onnx-fp32, onnx-int8, openvino-fp32 or openvino-int8; made when it
    isn't there."""
    make = {"onnx-fp32": _onnx, "onnx-int8": _onnx_int8, "openvino-fp32": _openvino,
            "openvino-int8": _openvino_int8}[kind]
    folder = Path(cache) / f"{kind}-{key(model, (Path(__file__), Path(texts.__file__)))}"
    path = folder / ("model.onnx" if kind.startswith("onnx") else "model.xml")
    if not path.exists():
        parts = Path(f"{folder}.parts-{os.getpid()}")
        parts.mkdir(parents=True, exist_ok=True)
        make(parts / path.name, model, cache)
        os.replace(parts, folder)
    return path


def key(model, code):
    """Changes whenever the weights, a library or one of the files of code does."""
    h = hashlib.sha256()
    for name in ("torch", "transformers", "onnx", "onnxruntime", "openvino", "nncf"):
        h.update(f"{name} {version(name)}\n".encode())
    for f in (*code, Path(model, "model.safetensors"), Path(model, "config.json")):
        h.update(hashlib.sha256(f.read_bytes()).digest())
    return h.hexdigest()[:12]


def _encoder(model, attention):
    import torch
    from transformers import AutoModel

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = AutoModel.from_pretrained(model, attn_implementation=attention).eval()

        def forward(self, input_ids, attention_mask):
            hidden = self.bert(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=torch.zeros_like(input_ids)
            ).last_hidden_state
            mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
            return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), p=2, dim=1)

    modules = json.loads(Path(model, "modules.json").read_text())
    pooling = json.loads(Path(model, "1_Pooling", "config.json").read_text())
    mode = pooling.get("pooling_mode")  # as releases from 5.4 on write it; before, one flag a mode
    mean = pooling.get("pooling_mode_mean_tokens", False) if mode is None else mode in ("mean", ["mean"])
    if len(modules) != 3 or not mean:
        raise SystemExit(
            "the bench exports mean-pooled, normalised models only: take a model like all-MiniLM-L6-v2")
    return Encoder()


def _example():
    import torch

    ids = torch.arange(1000, 1014).reshape(2, 7)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0  # a padded row, so that the trace keeps the mask
    return ids, mask


def _onnx(path, model, cache):
    import torch

    axes = {name: {0: "batch", 1: "length"} for name in INPUTS} | {"embedding": {0: "batch"}}
    torch.onnx.export(
        _encoder(model, "eager"),
        _example(),
        str(path),
        dynamo=False,
        opset_version=17,
        input_names=list(INPUTS),
        output_names=["embedding"],
        dynamic_axes=axes,
    )


def _onnx_int8(path, model, cache):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(artefact("onnx-fp32", model, cache), path, per_channel=True, weight_type=QuantType.QInt8)


def _openvino(path, model, cache):
    import openvino as ov

    ids, mask = _example()
    converted = ov.convert_model(_encoder(model, "sdpa"), example_input=dict(zip(INPUTS, (ids, mask))))
    ov.save_model(converted, path, compress_to_fp16=False)


def _openvino_int8(path, model, cache):
    import nncf
    import numpy as np
    import openvino as ov

    tokenizer = open_tokenizer(model)

    def inputs(text):
        ids = np.array([tokenizer.encode(text).ids], np.int64)
        return {"input_ids": ids, "attention_mask": np.ones_like(ids)}

    seen = texts.calibration(counter(model))
    graph = ov.Core().read_model(artefact("openvino-fp32", model, cache))
    quantised = nncf.quantize(
        graph,
        nncf.Dataset(seen, inputs),
        model_type=nncf.ModelType.TRANSFORMER,
        preset=nncf.QuantizationPreset.MIXED,
        subset_size=len(seen),
    )
    ov.save_model(quantised, path, compress_to_fp16=False)


def main():
    """export.py MODEL CACHE KIND…: makes what is missing."""
    model, cache, *kinds = sys.argv[1:]
    for kind in kinds:
        print(artefact(kind, model, cache))


if __name__ == "__main__":
    main()
