"""Writes smve.bin: sparse multi-vector encodings that sie-server 0.10.1 makes, and the anchors it
makes them with.

    pip install numpy==2.4.6 torch==2.15.0 && pip install --no-deps sie-server==0.10.1 (Apache-2.0)
    python3 make_smve.py

Choices that float32 makes other than float64 would be in no one's encoding for sure: none are, and
the script says how near the nearest is.
"""

import pathlib

import golden_file
import numpy as np
from sie_server.core.postprocessor import SmveConfig, SmvePostprocessor

rng = np.random.default_rng(20261122)


def case(name, lengths, c, query, normalize=False, **options):
    config = SmveConfig(**options)
    smve = SmvePostprocessor(c, config)
    tokens = [golden_file.bf16(np.clip(rng.standard_normal((n, c)) * 0.5, -1.9, 1.9)) for n in lengths]
    given = tokens
    if normalize:  # as the original's models hand them over; the operation gets them as they were
        wide = [x.astype(np.float64) for x in tokens]
        given = [(x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32) for x in wide]
    anchors = np.stack([a.numpy().T for a in smve._get_anchors()])  # [repetitions, width, c]
    y = np.zeros((len(lengths), config.output_dim))
    nearest = 1.0
    for row, x, vector in zip(y, given, smve.encode(given, is_query=query)):
        row[vector.indices] = vector.values
        for a in anchors.astype(np.float64):
            best = -np.sort(-(x.astype(np.float64) @ a.T), axis=1)
            nearest = min(nearest, (best[:, config.k - 1] - best[:, config.k]).min() / np.abs(best).max())
        size = -np.sort(-np.abs(row))
        if config.max_nonzeros and np.count_nonzero(row) == config.max_nonzeros:
            nearest = min(nearest, size[config.max_nonzeros - 1])
    print(f"{name}: {np.count_nonzero(y, axis=1).tolist()} of {config.output_dim} columns, nearest choice {nearest:.1e}")
    assert nearest > 1e-6
    numbers = {"c": c, "repetitions": config.num_repetitions, "width": config.width, "top": config.k,
               "max_nonzeros": config.max_nonzeros or 0, "query": int(query),
               "normalize_rows": int(normalize)}
    arrays = {"lengths": lengths, "x": np.concatenate(tokens), "anchors": anchors.reshape(-1, c), "y": y}
    return "smve", name, numbers, arrays


def main():
    cases = []
    for query in (False, True):
        word = "query" if query else "document"
        cases.append(case(f"{word}", [17, 1, 5], 16, query, width=100, k=4))
        cases.append(case(f"{word} in repetitions", [9, 5], 12, query, width=70, k=3, num_repetitions=2))
        cases.append(case(f"{word} limited", [9, 5], 12, query, width=90, k=6, max_nonzeros=11))
        cases.append(case(f"{word} of normalised rows", [9, 2], 24, query, normalize=True, width=64, k=5))
    golden_file.write(pathlib.Path(__file__).with_name("smve.bin"), cases)


main()
