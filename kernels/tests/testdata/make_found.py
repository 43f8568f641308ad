"""Writes found.bin: the scores of GLiNER's span layer and of the scorer of its token models, by the
published package's own modules in float64.

    pip install -r ../../../tools/golden/requirements.txt gliner==0.2.29
    python3 make_found.py

A case holds what goes into the last part of the layer, and that part's weights: golden_found_test.cc
folds them.
"""

import pathlib

import golden_file
import torch
from gliner.modeling.scorers import Scorer
from gliner.modeling.span_rep import SpanMarkerV0

torch.manual_seed(20261124)
torch.set_default_dtype(torch.float64)
cases = []


def spread(module):
    """Weights of PyTorch's own draw, and biases as large, rounded to f32."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            scale = 1.7 / (p.shape[-1] ** 0.5) if p.dim() > 1 else 0.3
            p.copy_((torch.randn_like(p) * scale).float().double())
    return module.eval()


def rows(n, d):
    return torch.randn(n, d).float().double()


def array(x):
    return x.detach().float().numpy()


def spans(name, d, words, labels, widest):
    """Logits [words·widest, labels] as UniEncoderSpanModel computes them. The test leaves out spans
    that end behind the text, as the package's mask does."""
    layer = spread(SpanMarkerV0(d, widest, dropout=0.0))
    h, p = rows(words, d), rows(labels, d)
    index = torch.tensor([[i, min(i + w, words - 1)] for i in range(words) for w in range(widest)])
    with torch.no_grad():
        # The projected words as the case holds them, in f32, go on into the layer.
        s, e = layer.project_start(h).float().double(), layer.project_end(h).float().double()
        layer.project_start, layer.project_end = Given(s), Given(e)
        y = torch.einsum("BLKD,BCD->BLKC", layer(h[None], index[None]), p[None])
    first, second = layer.out_project[0], layer.out_project[3]
    cases.append(("spans", name, {"widest": widest}, {
        "s": array(s), "e": array(e), "p": array(p), "w1": array(first.weight), "b1": array(first.bias),
        "w3": array(second.weight), "b3": array(second.bias), "y": array(y.reshape(-1, labels))}))


def pairs(name, d, words, labels):
    """Logits [words·labels, 3] of Scorer: of start, end and inside."""
    scorer = spread(Scorer(d, dropout=0.0))
    x, p = rows(words, d), rows(labels, d)
    with torch.no_grad():
        t, of_label = scorer.proj_token(x).float().double(), scorer.proj_label(p).float().double()
        scorer.proj_token, scorer.proj_label = Given(t), Given(of_label)
        y = scorer(x[None], p[None])
    first, second = scorer.out_mlp[0], scorer.out_mlp[3]
    cases.append(("pairs", name, {}, {
        "t": array(t), "l": array(of_label), "w1": array(first.weight), "b1": array(first.bias),
        "w2": array(second.weight), "b2": array(second.bias), "y": array(y.reshape(-1, 3))}))


class Given(torch.nn.Module):
    """A projection whose result is known."""

    def __init__(self, rows):
        super().__init__()
        self.rows = rows

    def forward(self, _):
        return self.rows[None]


def main():
    spans("as published", 16, 30, 7, 12)
    spans("one word", 16, 1, 1, 12)
    spans("narrow", 8, 13, 50, 3)
    pairs("as published", 16, 30, 7)
    pairs("one word", 16, 1, 1)
    pairs("many labels", 8, 5, 130)
    golden_file.write(pathlib.Path(__file__).with_name("found.bin"), cases)


main()
