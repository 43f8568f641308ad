"""What a run does and how large it is: on a card, and as a rehearsal without one."""

import os
from dataclasses import dataclass

# What must hold on any card. Speed has no bar here: it is reported.
COSINE = {"bf16": 0.999, "fp16": 0.999, "fp32": 0.9999, "fp8": 0.99, "int8": 0.99}
NORM = 0.01  # |ours| / |reference| is within 1 ± this
RSS_BYTES = 8 << 20  # growth between the two readings of the memory step


@dataclass(frozen=True)
class Shape:
    """A BERT of this shape with random weights; pooling is mean or cls."""

    hidden: int
    layers: int
    heads: int
    inner: int
    pooling: str
    vocabulary: int = 30522
    positions: int = 512


@dataclass(frozen=True)
class Plan:
    rehearsal: bool
    shapes: dict  # by name, the order in which they are measured
    lengths: tuple  # sets of texts that all have so many tokens, special ones included
    texts: int  # in each set
    quality_texts: int
    single: tuple  # tokens of a single query
    queries: int  # in a pass
    query_rounds: int
    query_models: int  # of the shapes, in the latency step
    load_models: int  # and in the load step
    request_tokens: int  # that a request of the load step has, about
    clients: int
    overload_clients: int  # requests in flight of the open loop, at most
    turn_seconds: float
    rounds: int
    model_seconds: float  # what a model of the load step takes at least: with less left it is not begun
    batches: tuple  # of the peer, tried for its best setting
    memory_marks: tuple  # batches after which memory is read

    @property
    def longest(self):
        return next(iter(self.shapes.values())).positions


REAL = Plan(
    rehearsal=False,
    shapes={
        "bert-base": Shape(768, 12, 12, 3072, "cls"),
        "bert-large": Shape(1024, 24, 16, 4096, "mean"),
        "minilm": Shape(384, 6, 12, 1536, "mean"),
    },
    lengths=(50, 128, 512),
    texts=1024,
    quality_texts=96,
    single=(12, 32),
    queries=150,
    query_rounds=3,
    query_models=2,
    load_models=3,
    request_tokens=8192,
    clients=16,
    overload_clients=2048,
    turn_seconds=0.8,
    rounds=2,
    model_seconds=60,
    batches=(32, 64, 128, 256),
    memory_marks=(1000, 10000),
)

# The same steps in seconds, where every kernel runs on the CPU, thread by thread.
TOY = Plan(
    rehearsal=True,
    shapes={
        "bert-base": Shape(64, 2, 1, 128, "cls", 512, 64),
        "bert-large": Shape(128, 1, 2, 160, "mean", 512, 64),
        "minilm": Shape(64, 1, 2, 96, "mean", 512, 64),
    },
    lengths=(5, 13),
    texts=8,
    quality_texts=6,
    single=(5,),
    queries=3,
    query_rounds=1,
    query_models=1,
    load_models=1,
    request_tokens=20,
    clients=2,
    overload_clients=200,
    turn_seconds=0.3,
    rounds=1,
    model_seconds=0,
    batches=(2, 8),
    memory_marks=(50, 250),
)


def current():
    return TOY if os.environ.get("SIE_GPU_REHEARSE") else REAL


def device():
    """What --device gets. Another one than cuda is for work on this check itself."""
    return os.environ.get("SIE_GPU_DEVICE", "cuda")


def precisions():
    """The precisions to check; the first is the one that is measured."""
    return os.environ.get("SIE_GPU_PRECISIONS", "bf16 fp8").split()
