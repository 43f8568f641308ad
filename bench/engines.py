"""The peers: each encodes texts to unit vectors, tokenising, pooling and normalising included.

An engine has choices, the values worth trying of each setting for throughput, most promising first;
choices_one, the same for one text at a time; use(setting), and encode(texts) with that setting.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

import export

BATCHES = (32, 16, 8, 64)  # texts
GRAPH_BATCHES = ("512 tokens", "1024 tokens", "2048 tokens", "256 tokens", 32, 8)  # padding counted


class SentenceTransformers:
    def __init__(self, precision, model, cache, threads, bf16):
        import sentence_transformers
        import torch

        torch.set_num_threads(threads)
        self.torch, self.precision, self.models = torch, precision, {}
        self.load = lambda kind: sentence_transformers.SentenceTransformer(
            str(model), device="cpu", model_kwargs={"dtype": kind}
        )
        self.choices_one = {"bf16": ["weights", "autocast"]} if precision == "bf16" else {}
        self.choices = self.choices_one | {"batch": BATCHES}
        self.versions = {"sentence-transformers": sentence_transformers.__version__,
                         "torch": torch.__version__}

    def use(self, setting):
        kind = self.torch.bfloat16 if setting.get("bf16") == "weights" else self.torch.float32
        if kind not in self.models:
            self.models[kind] = self.load(kind)
        self.model, self.setting = self.models[kind], setting

    def encode(self, texts):
        autocast = self.setting.get("bf16") == "autocast"
        with self.torch.autocast("cpu", self.torch.bfloat16, enabled=autocast):
            return self.model.encode(texts, batch_size=self.setting.get("batch", 1), show_progress_bar=False)


class Graph:
    """What ONNX Runtime and OpenVINO share: length-sorted padded batches, spread over streams."""

    def __init__(self, precision, model, cache, threads, bf16):
        self.precision, self.threads, self.bf16 = precision, threads, bf16
        self.tokenizer = export.open_tokenizer(model)
        kind = f"{self.exported}-{'int8' if precision == 'int8' else 'fp32'}"
        self.path = export.artefact(kind, model, cache)
        self.choices = {"batch": GRAPH_BATCHES, "streams": sorted({1, threads}, reverse=True)}
        self.choices_one = {"streams": sorted({1, threads})}  # several streams: one thread for the query
        self.compiled = {}

    def use(self, setting):
        streams = setting["streams"]
        if streams not in self.compiled:
            self.compiled[streams] = self.compile(streams)
        self.run, self.setting = self.compiled[streams], setting

    def token_ids(self, texts):
        return [e.ids for e in self.tokenizer.encode_batch_fast(texts)]

    def pad(self):
        return 0

    def batches(self, texts):
        ids = self.token_ids(texts)
        order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
        size, *unit = str(self.setting.get("batch", 1)).split()
        start = 0
        while start < len(order):
            width = len(ids[order[start]])  # the longest is first, so this is what the others are padded to
            rows = order[start : start + (max(1, int(size) // width) if unit else int(size))]
            start += len(rows)
            tokens = np.full((len(rows), width), self.pad(), np.int64)
            mask = np.zeros_like(tokens)
            for r, i in enumerate(rows):
                tokens[r, : len(ids[i])] = ids[i]
                mask[r, : len(ids[i])] = 1
            yield rows, {"input_ids": tokens, "attention_mask": mask}

    def encode(self, texts):
        out = [None] * len(texts)
        for rows, vectors in self.run(self.batches(texts)):
            for r, i in enumerate(rows):
                out[i] = vectors[r]
        return np.stack(out)


class OnnxRuntime(Graph):
    exported = "onnx"

    def __init__(self, *args):
        import onnxruntime

        self.ort = onnxruntime
        self.versions = {"onnxruntime": onnxruntime.__version__}
        super().__init__(*args)

    def compile(self, streams):
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = max(1, self.threads // streams)
        options.inter_op_num_threads = 1
        session = self.ort.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])

        def work(item):
            return item[0], session.run(None, item[1])[0]

        if streams == 1:
            return lambda batches: map(work, batches)
        pool = ThreadPoolExecutor(streams)  # run() leaves the interpreter lock, so each thread is one stream
        return lambda batches: pool.map(work, batches)


class OnnxRuntimeBatch32(OnnxRuntime):
    """The session most users have: every thread on one batch of 32 length-sorted texts."""

    def __init__(self, *args):
        super().__init__(*args)
        self.choices = {"batch": (32,), "streams": (1,)}
        self.choices_one = {"streams": (1,)}


class OpenVino(Graph):
    exported = "openvino"

    def __init__(self, *args):
        import openvino

        self.ov = openvino
        self.core = openvino.Core()
        self.versions = {"openvino": openvino.__version__}
        super().__init__(*args)

    def compile(self, streams):
        config = {"NUM_STREAMS": streams, "INFERENCE_NUM_THREADS": self.threads}
        if self.precision != "int8":
            config["INFERENCE_PRECISION_HINT"] = {"fp32": "f32", "bf16": "bf16"}[self.precision]
        elif not self.bf16:
            # where the CPU multiplies bf16, OpenVINO's own choice for what is not int8: bf16
            config["INFERENCE_PRECISION_HINT"] = "f32"
        model = self.core.compile_model(str(self.path), "CPU", config)
        queue = self.ov.AsyncInferQueue(model, streams)

        def run(batches):
            done = []
            queue.set_callback(
                lambda request, rows: done.append((rows, request.get_output_tensor(0).data.copy())))
            for rows, inputs in batches:
                queue.start_async(inputs, rows)
            queue.wait_all()
            return done

        request = model.create_infer_request()
        if streams == 1:
            return lambda batches: ((rows, request.infer(inputs)[0]) for rows, inputs in batches)
        return run


ENGINES = {
    "sentence-transformers-fp32": (SentenceTransformers, "fp32"),
    "sentence-transformers-bf16": (SentenceTransformers, "bf16"),
    "onnxruntime-fp32": (OnnxRuntime, "fp32"),
    "onnxruntime-batch32-fp32": (OnnxRuntimeBatch32, "fp32"),
    "onnxruntime-int8": (OnnxRuntime, "int8"),
    "openvino-fp32": (OpenVino, "fp32"),
    "openvino-bf16": (OpenVino, "bf16"),
    "openvino-int8": (OpenVino, "int8"),
}
