"""Writes splade.bin: SPLADE pooling of vocabulary logits as Sentence Transformers does it.

    pip install -r ../../../tools/golden/requirements.txt
    python3 make_splade.py

Everything is computed in float64 from inputs that every storage type holds exactly
(golden_file.bf16).
"""

import pathlib

import golden_file
import numpy as np
import torch
import torch.nn.functional as F
from sentence_transformers.sparse_encoder.modules import SpladePooling

torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(20261122)


def draw(*shape, scale=0.5):
    return golden_file.bf16(np.clip(rng.standard_normal(shape) * scale, -1.9, 1.9))


def t(x):
    return torch.tensor(np.asarray(x, dtype=np.float64))


def case(name, lengths, n, k, transform, activation, biased=True):
    x, w = draw(sum(lengths), k), draw(n, k, scale=0.2)
    # Most columns of a SPLADE head are below 0 for every token.
    bias = golden_file.bf16(np.clip(rng.standard_normal(n) - 1, -1.9, 1.9)) if biased else None
    logits = F.linear(t(x), t(w), t(bias) if biased else None)
    # The padded batch that the module takes; its mask makes a padding's logits 0.
    padded = torch.zeros(len(lengths), max(lengths), n)
    mask = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    at = 0
    for b, length in enumerate(lengths):
        padded[b, :length] = logits[at:at + length]
        mask[b, :length] = 1
        at += length
    module = SpladePooling(pooling_strategy="max", activation_function=activation).eval()
    y = module({"token_embeddings": padded, "attention_mask": mask})["sentence_embedding"]
    print(f"{name}: {(y > 0).sum(1).tolist()} of {n} columns")
    arrays = {"lengths": lengths, "x": x, "w": w, "bias": bias, "y": y}
    return "splade", name, {"transform": transform}, {key: np.asarray(v) for key, v in arrays.items()
                                                      if v is not None}


def main():
    cases = [
        case("log", [9, 1, 4], 50, 64, 1, "relu"),
        case("log log", [17, 3, 1], 70, 48, 2, "log1p_relu"),
        case("without bias", [5, 2], 33, 40, 1, "relu", biased=False),
        case("long", [70, 1, 60], 130, 32, 1, "relu"),
    ]
    golden_file.write(pathlib.Path(__file__).with_name("splade.bin"), cases)


main()
