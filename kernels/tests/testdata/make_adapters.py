"""Writes adapters.bin: linears with a LoRA adapter, as PEFT's lora.Linear computes them
(arXiv:2106.09685).

    pip install -r ../../../tools/golden/requirements.txt
    python3 make_adapters.py

PEFT's own words for it are result + lora_B(lora_A(x))·scaling, scaling = alpha/r or, with rslora,
alpha/√r; here by the same modules of PyTorch in float64. Inputs are exact in every storage type
(golden_file.bf16), and so are the adapters: scaling is a power of two, and folded into B.
"""

import math
import pathlib

import golden_file
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(20261122)
cases = []
ACTS = {"none": 0, "gelu": 1}
SWIGLU = 1


def draw(*shape, scale=0.5):
    return golden_file.bf16(np.clip(rng.standard_normal(shape) * scale, -1.9, 1.9))


def t(x):
    return torch.tensor(np.asarray(x, dtype=np.float64))


def add(operation, name, numbers, **arrays):
    cases.append((operation, name, numbers, {k: np.asarray(v) for k, v in arrays.items() if v is not None}))


class Adapter:
    """lora_A, lora_B and scaling of one PEFT adapter; a and b as the operation takes them, b with
    the scaling."""

    def __init__(self, k, n, rank, alpha, rslora=False):
        self.lora_a, self.lora_b = nn.Linear(k, rank, bias=False), nn.Linear(rank, n, bias=False)
        self.scaling = alpha / math.sqrt(rank) if rslora else alpha / rank
        self.a, self.b = draw(rank, k), draw(n, rank, scale=0.25)
        self.lora_a.weight.data, self.lora_b.weight.data = t(self.a), t(self.b)
        self.b = self.b * np.float32(self.scaling)

    @torch.no_grad()
    def __call__(self, x):
        return self.lora_b(self.lora_a(x)) * self.scaling


def addends():
    n, k = 18, 64
    x, w, bias, residual, addend = draw(5, k), draw(n, k, scale=0.2), draw(n), draw(5, n), draw(5, n)
    z = F.linear(t(x), t(w), t(bias)) + t(addend)
    add("linear", "addend", {"act": ACTS["none"], "gate": 0}, x=x, w=w, bias=bias, addend=addend, y=z)
    add("linear", "addend, gelu", {"act": ACTS["gelu"], "gate": 0}, x=x, w=w, bias=bias, addend=addend,
        residual=residual, y=F.gelu(z) + t(residual))
    add("linear", "addend, swiglu", {"act": ACTS["none"], "gate": SWIGLU}, x=x, w=w, bias=bias, addend=addend,
        y=F.silu(z[:, 0::2]) * z[:, 1::2])


def adapters(name, lengths, adapter, *of, n, k):
    x = draw(sum(lengths), k)
    y = [of[i](part) if i >= 0 else torch.zeros(len(part), n)
         for i, part in zip(adapter, torch.split(t(x), lengths))]
    numbers = {"adapters": len(of), **{f"rank{i}": len(one.a) for i, one in enumerate(of)}}
    arrays = {f"{key}{i}": getattr(one, key) for i, one in enumerate(of) for key in ("a", "b")}
    add("lora", name, numbers, x=x, lengths=np.array(lengths), adapter=np.array(adapter), y=torch.cat(y),
        **arrays)


def loras():
    adapters("one", [9, 1, 4], [0, 0, 0], Adapter(64, 40, 8, 16), n=40, k=64)
    adapters("two and none", [5, 70, 3, 2], [1, 0, -1, 1], Adapter(48, 33, 16, 16), Adapter(48, 33, 4, 8),
             n=33, k=48)
    adapters("rslora", [12, 7], [0, 1], Adapter(96, 24, 16, 8, rslora=True),
             Adapter(96, 24, 64, 16, rslora=True), n=24, k=96)


def main():
    addends()
    loras()
    golden_file.write(pathlib.Path(__file__).with_name("adapters.bin"), cases)


main()
