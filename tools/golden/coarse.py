"""Random weights of few values, which pack small.

Weights of a golden model are noise, and float32 noise does not compress. Here a matrix has at most 15
different values: multiples of three quarters of its standard deviation, -7 to 7 of them. As codes of
a palette (packed.py) they take two and a half bits each. The standard deviation is what was asked for.

The values are float32 numbers whose low bits are not zero, on purpose: a reader that drops the
low half of a float32, or a product that rounds its weights to bf16, still gives other vectors.

Vectors (gammas, biases) stay as drawn, and so does what a maker plants afterwards.
"""

import math

import torch

WIDTH = 0.75  # of a step, in standard deviations
STEP = WIDTH / math.sqrt(1 + WIDTH * WIDTH / 12)  # rounding adds to the variance, and this takes it away
MOST = 7
FEWEST = 64  # values: a smaller matrix stays as drawn


def normal(shape, std: float, generator: torch.Generator | None = None) -> torch.Tensor:
    """Normal numbers with mean 0, of few values where there are many."""
    drawn = torch.randn(shape, generator=generator, dtype=torch.float32)
    if drawn.dim() < 2 or drawn.numel() <= FEWEST:
        return drawn * std
    return (drawn / WIDTH).round().clamp(-MOST, MOST).add(0.0) * (std * STEP)  # + 0.0: no negative zeros
