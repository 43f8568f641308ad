"""Checkpoints with random weights in the shapes of well-known encoders, where only the time of a
forward pass matters. Standard library only: every matrix is one random block again and again.
"""

import json
import random
import shutil
import struct

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
        "max_position_embeddings": 512}
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
         "max_position_embeddings": 8192}

BLOCK = struct.pack("<65536e", *(random.Random(1).gauss(0, 0.02) for _ in range(65536)))


def filled(count):
    """So many random numbers in half precision."""
    whole, rest = divmod(2 * count, len(BLOCK))
    return [BLOCK] * whole + [BLOCK[:rest]]


def make(shape, source, into):
    """Writes a BERT of the shape into a new directory, with the tokenizer of source and mean
    pooling."""
    config = json.loads((source / "config.json").read_text()) | shape
    config.pop("_name_or_path", None)
    shutil.copytree(source, into,
                    ignore=shutil.ignore_patterns("*.safetensors", "MANIFEST.json", ".complete*", "onnx"))
    (into / "config.json").write_text(json.dumps(config))
    (into / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": shape["max_position_embeddings"], "do_lower_case": False}))
    pooling = json.loads((into / "1_Pooling/config.json").read_text()) | {
        "word_embedding_dimension": shape["hidden_size"]}
    (into / "1_Pooling/config.json").write_text(json.dumps(pooling))
    write(tensors(config), into / "model.safetensors")
    return into


def tensors(config):
    """Names and shapes of BERT's tensors."""
    c, f = config["hidden_size"], config["intermediate_size"]
    yield "embeddings.word_embeddings.weight", [config["vocab_size"], c]
    yield "embeddings.position_embeddings.weight", [config["max_position_embeddings"], c]
    yield "embeddings.token_type_embeddings.weight", [config["type_vocab_size"], c]
    yield from norm("embeddings.LayerNorm", c)
    for i in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{i}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value",
                     "attention.output.dense"):
            yield from linear(at + name, c, c)
        yield from norm(at + "attention.output.LayerNorm", c)
        yield from linear(at + "intermediate.dense", f, c)
        yield from linear(at + "output.dense", c, f)
        yield from norm(at + "output.LayerNorm", c)


def linear(name, n, k):
    yield name + ".weight", [n, k]
    yield name + ".bias", [n]


def norm(name, n):
    yield name + ".weight", [n]
    yield name + ".bias", [n]


def write(named, path):
    """A safetensors file in half precision; the weights of norms are about 1."""
    header, bodies, at = {}, [], 0
    one = struct.pack("<e", 1)
    for name, shape in named:
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + 2 * count]}
        bodies.append([one * count] if name.endswith("LayerNorm.weight") else filled(count))
        at += 2 * count
    head = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(head)) + head)
        for body in bodies:
            out.writelines(body)
