"""Writes muvera.bin: encodings that sie-server 0.10.1 makes, and the random tables it makes them
with.

    pip install numpy==2.4.6 && pip install --no-deps sie-server==0.10.1 (Apache-2.0)
    python3 make_muvera.py

Tokens that the original puts on other sides of a plane in float32 than float64 does would be in no
one's partition for sure: none are, and the script says how far the nearest is.
"""

import pathlib
from types import SimpleNamespace

import golden_file
import numpy as np
from sie_server.core.postprocessor import MuveraConfig, MuveraPostprocessor

rng = np.random.default_rng(20261121)


def signed(index, sign):
    """The index for +1, ~index for −1 (sie_muvera_args)."""
    return np.where(np.asarray(sign) > 0, index, ~np.asarray(index, dtype=np.int64))


def case(name, lengths, c, query, normalize_rows=False, **options):
    config = MuveraConfig(**options)
    muvera = MuveraPostprocessor(c, config)
    cache = muvera._get_random_cache()
    shared = rng.standard_normal(c) * 0.2
    tokens = [golden_file.bf16(np.clip(rng.standard_normal((n, c)) * 0.4 + shared, -1.9, 1.9))
              for n in lengths]
    given = tokens
    if normalize_rows:  # as the original's models hand them over; the operation gets them as they were
        wide = [x.astype(np.float64) for x in tokens]
        given = [(x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32) for x in wide]
    output = SimpleNamespace(multivector=given, dense=None, dense_dim=None, batch_size=len(tokens))
    muvera.transform(output, is_query=query)
    simhash = np.stack(cache.simhash_matrices)
    nearest = 1.0
    for x in given:
        x = x.astype(np.float64) - (x.mean(0, dtype=np.float64) if config.center_tokens else 0)
        for plane in simhash.astype(np.float64):
            sums = np.abs(x @ plane) / (np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(plane, axis=0) +
                                        1e-30)
            nearest = min([nearest, *(sums[sums > 1e-12])])
    print(f"{name}: nearest plane {nearest:.1e}")
    assert nearest > 3e-7
    arrays = {"lengths": lengths, "x": np.concatenate(tokens),
              "simhash": simhash.reshape(-1, simhash.shape[-1]), "y": np.stack(output.dense)}
    if cache.ams_projection_matrices:
        ams = np.stack(cache.ams_projection_matrices)
        column = np.abs(ams).argmax(-1)
        arrays["ams"] = signed(column, np.take_along_axis(ams, column[..., None], -1)[..., 0])
    if cache.count_sketch_indices is not None:
        arrays["sketch"] = signed(cache.count_sketch_indices.astype(np.int64), cache.count_sketch_signs)
    numbers = {"c": c, "repetitions": config.num_repetitions, "bits": config.num_simhash_projections,
               "projected": config.projection_dim or 0, "final_dims": muvera._final_dim or 0,
               "query": int(query), "center_tokens": int(config.center_tokens),
               "normalize": int(config.normalize), "normalize_rows": int(normalize_rows)}
    return "muvera", name, numbers, arrays


def main():
    cases = []
    for query in (False, True):
        word = "query" if query else "document"
        cases.append(case(f"{word}", [17, 1, 5], 24, query, num_repetitions=2, num_simhash_projections=3,
                          final_projection_dim=None))
        cases.append(case(f"{word} projected", [17, 5], 32, query, num_repetitions=3,
                          num_simhash_projections=4, projection_dim=8, final_projection_dim=None))
        cases.append(case(f"{word} sketch", [21, 3], 32, query, num_repetitions=2, num_simhash_projections=4,
                          final_projection_dim=200))
        cases.append(case(f"{word} projected sketch normalized", [21, 3], 32, query, num_repetitions=3,
                          num_simhash_projections=4, projection_dim=8, final_projection_dim=150,
                          normalize=True))
        cases.append(case(f"{word} centred tokens", [17, 5], 24, query, num_repetitions=2,
                          num_simhash_projections=4, projection_dim=8, final_projection_dim=None,
                          center_tokens=True))
    for query in (False, True):
        word = "query" if query else "document"
        cases.append(case(f"{word} of normalised rows", [17, 1, 5], 24, query, normalize_rows=True,
                          num_repetitions=2, num_simhash_projections=4, projection_dim=8,
                          final_projection_dim=None))
        cases.append(case(f"{word} of normalised centred rows", [17, 5], 32, query, normalize_rows=True,
                          num_repetitions=2, num_simhash_projections=3, final_projection_dim=None,
                          center_tokens=True))
    golden_file.write(pathlib.Path(__file__).with_name("muvera.bin"), cases)


main()
