"""Writes dtypes.safetensors with the Python reference: python make.py dtypes.safetensors

Made with safetensors 0.8.0 and torch 2.15.0. The values are repeated in golden_test.go.
"""

import sys

import torch
from safetensors.torch import save_file

tensors = {
    "embeddings.word_embeddings.weight": torch.arange(24, dtype=torch.float32).reshape(4, 6) / 8 - 1,
    "half": torch.tensor([0.0, -0.0, 1.0, -2.5, 65504.0, 6e-8, 6.1e-5, float("inf")], dtype=torch.float16),
    "brain": torch.tensor([[1.0, -3.140625], [3e38, 1e-38]], dtype=torch.bfloat16),
    "double": torch.tensor([1 / 3, -1e-300], dtype=torch.float64),
    "ids": torch.tensor([[-1, 2**40], [3, -4]], dtype=torch.int64),
    "i32": torch.tensor([-(2**31), 7], dtype=torch.int32),
    "i16": torch.tensor([-300], dtype=torch.int16),
    "i8": torch.tensor([-128, 127, 5], dtype=torch.int8),
    "u8": torch.tensor([0, 255], dtype=torch.uint8),
    "mask": torch.tensor([True, False, True]),
    "f8": torch.tensor([1.0, -0.5, 448.0]).to(torch.float8_e4m3fn),
    "f8b": torch.tensor([1.0, -0.5, 57344.0]).to(torch.float8_e5m2),
    "scalar": torch.tensor(42.5),
    "empty": torch.zeros(0, 7),
    'größe"\\\n名': torch.tensor([9.0]),
}
save_file(tensors, sys.argv[1], metadata={"format": "pt"})
