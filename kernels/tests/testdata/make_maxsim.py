"""Writes maxsim.bin: late interaction (ColBERT, arXiv:2004.12832) by PyTorch in float64.

    pip install -r ../../../tools/golden/requirements.txt
    python3 make_maxsim.py

The inputs are exact in every storage type (golden_file.bf16), so the expected scores are the
mathematics.
"""

import pathlib

import golden_file
import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(20261123)
cases = []


def draw(*shape):
    return golden_file.bf16(np.clip(rng.standard_normal(shape) * 0.5, -1.9, 1.9))


def t(x):
    return torch.tensor(np.asarray(x, dtype=np.float64))


def score(query, document, normalize):
    """ColBERT's score of one pair: similarities [query rows, document rows], maximum over the
    document, sum."""
    if normalize:
        document = F.normalize(document, p=2, dim=-1, eps=1e-12)
    return (query @ document.transpose(0, 1)).max(dim=1).values.sum()


def late(name, c, query_lengths, lengths, partner, normalize):
    queries, x = draw(sum(query_lengths), c), draw(sum(lengths), c)
    # What a model's queries are: unit rows, in f32.
    queries = F.normalize(t(queries), dim=-1).float().numpy()
    of = torch.split(t(queries), query_lengths)
    documents = torch.split(t(x), lengths)
    y = [score(of[p], d, normalize) if p >= 0 and len(d) > 0 and len(of[p]) > 0 else torch.zeros(())
         for p, d in zip(partner, documents)]
    cases.append(("maxsim", name, {"normalize": int(normalize)}, {
        "x": x, "queries": queries, "query_lengths": np.array(query_lengths), "lengths": np.array(lengths),
        "partner": np.array(partner), "y": torch.stack(y)[:, None].numpy()}))


def main():
    late("one query", 96, [32], [70, 9, 1, 130], [0, 0, 0, 0], True)
    late("as they are", 64, [32], [33, 64, 65], [0, 0, 0], False)
    late("pairs", 48, [5, 32, 7], [12, 40, 3], [0, 1, 2], True)
    late("without a query", 32, [6, 0, 34], [9, 4, 0, 21, 11], [2, -1, 0, 1, 0], True)
    golden_file.write(pathlib.Path(__file__).with_name("maxsim.bin"), cases)


main()
