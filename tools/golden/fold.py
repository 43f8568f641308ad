"""Multivectors folded into one vector: what sie-server's MUVERA and SMVE post-processors make of
them.

    python tools/golden/fold.py

One case, testdata/golden/fold. Its manifest's notes list "muvera" and "smve" encodings: a name, the
configuration by the keys of muvera_config or smve_config (with fill_empty, which the original
lacks), the width of the tokens, and whether they are queries. Of each, in golden.safetensors:

    <name>.x       [T, C] f32    the tokens: multiples of 1/64 below 2, which f16 and bf16 hold too
    <name>.cu      [B+1] int32
    <name>.out     [B, F] f32    muvera
    <name>.counts  [B] int32     smve: columns of each item; <name>.columns int32, <name>.values f32 of all items
    <name>.anchor_places int32, <name>.anchors [n, C] f32    smve: some anchors, and which (repetition·width + anchor)

and in the notes the SHA-256 of a muvera's tables as runtime/fold has them. Nothing is near a tie:
no token within rounding's reach of a plane, no product or value near the one that decides what is
kept.
"""

import hashlib
import shutil
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import torch
from safetensors.numpy import save_file
from sie_server.core.postprocessor import MuveraConfig, MuveraPostprocessor, SmveConfig, SmvePostprocessor

import manifest

rng = np.random.default_rng(20261122)


class Filled(MuveraPostprocessor):
    """With the paper's fill_empty for documents: an empty part takes the token whose bits differ
    least from its own."""

    def _compute_repetition(self, tokens, rep_num, *, is_query):
        block = super()._compute_repetition(tokens, rep_num, is_query=is_query).reshape(
            self.config.num_partitions, -1)
        if is_query:
            return block.ravel()
        cache = self._get_random_cache()
        part = self._sketches_to_gray_partitions(tokens @ cache.simhash_matrices[rep_num])
        projected = tokens if self._use_identity else tokens @ cache.ams_projection_matrices[rep_num]
        gray = part ^ (part >> 1)
        for empty in set(range(self.config.num_partitions)) - set(part.tolist()):
            differing = np.bitwise_count(gray ^ (empty ^ (empty >> 1)))
            block[empty] = projected[np.argmin(differing)]  # the first of equals
        return block.ravel()


def tokens_of(lengths, c):
    """Tokens with a shared part, as trained models give them."""
    shared = rng.standard_normal(c) * 0.2
    values = [np.clip(rng.standard_normal((n, c)) * 0.4 + shared, -1.9, 1.9) for n in lengths]
    return [(np.rint(v * 64) / 64).astype(np.float32) for v in values]


def signed(index, sign):
    """The index for +1, ~index for −1."""
    index = index.astype(np.int64)
    return np.where(sign > 0, index, ~index).astype("<i4")


def muvera(name, lengths, c, query, fill_empty=False, **options):
    config = MuveraConfig(**options)
    folder = (Filled if fill_empty else MuveraPostprocessor)(c, config)
    cache = folder._get_random_cache()
    items = tokens_of(lengths, c)
    output = SimpleNamespace(multivector=items, dense=None, dense_dim=None, batch_size=len(items))
    folder.transform(output, is_query=query)

    nearest = 1.0
    for x in items:
        x = x.astype(np.float64)
        x = x - x.mean(0) if config.center_tokens and len(x) else x
        for planes in cache.simhash_matrices:
            cosine = np.abs(x @ planes) / (
                np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(planes, axis=0) + 1e-30)
            nearest = min([nearest, *cosine[cosine > 1e-12]])
    assert nearest > 3e-7, f"{name}: a token is {nearest} from a plane"

    tables = np.stack(cache.simhash_matrices).astype("<f4").tobytes()
    if cache.ams_projection_matrices:
        ams = np.stack(cache.ams_projection_matrices)
        column = np.abs(ams).argmax(-1)
        tables += signed(column, np.take_along_axis(ams, column[..., None], -1)[..., 0]).tobytes()
    if cache.count_sketch_indices is not None:
        tables += signed(cache.count_sketch_indices, cache.count_sketch_signs).tobytes()

    keys = {"num_repetitions": config.num_repetitions,
            "num_simhash_projections": config.num_simhash_projections,
            "projection_dim": config.projection_dim or 0,
            "final_projection_dim": config.final_projection_dim or 0, "seed": config.seed,
            "normalize": config.normalize, "center_tokens": config.center_tokens, "fill_empty": fill_empty}
    note = {"name": name, "token_dim": c, "query": query, "config": keys, "dims": folder.target_dim,
            "tables": hashlib.sha256(tables).hexdigest()}
    print(f"{name}: {folder.target_dim} columns, nearest plane {nearest:.1e}")
    return note, {"x": np.concatenate(items), "cu": np.cumsum([0, *lengths]), "out": output.dense}


def gap(values, keep):
    """How much the last of the `keep` largest is above the first that is not kept, per row; rows of
    zeros do not count."""
    if keep >= values.shape[-1]:
        return 1.0
    ordered = -np.sort(-values, axis=-1)
    between = ordered[..., keep - 1] - ordered[..., keep]
    return between[ordered[..., 0] > 0].min(initial=1.0)


def smve(name, lengths, c, query, sample, **options):
    config = SmveConfig(**options)
    folder = SmvePostprocessor(c, config)
    items = tokens_of(lengths, c)
    items[-1][-1] = 0  # a token without any product: it counts nowhere
    encoded = folder.encode(items, is_query=query)

    anchors = [a.numpy() for a in folder._get_anchors()]
    nearest = min(gap(x.astype(np.float64) @ a, config.k) for a in anchors for x in items if len(x))
    assert nearest > 3e-6, f"{name}: products {nearest} apart decide"
    if config.max_nonzeros:
        every = SmvePostprocessor(c, SmveConfig(**(options | {"max_nonzeros": None}))).encode(items,
                                                                                              is_query=query)
        nearest = min(gap(np.abs(e.values.astype(np.float64)), config.max_nonzeros) for e in every
                      if len(e.values))
        assert nearest > 3e-6, f"{name}: values {nearest} apart decide"

    places = np.sort(rng.choice(config.output_dim, min(sample, config.output_dim), replace=False))
    keys = {"width": config.width, "k": config.k, "num_repetitions": config.num_repetitions,
            "seed": config.seed, "max_nonzeros": config.max_nonzeros or 0}
    print(f"{name}: {[len(e.indices) for e in encoded]} columns, nearest tie {nearest:.1e}")
    return {"name": name, "token_dim": c, "query": query, "config": keys}, {
        "x": np.concatenate(items), "cu": np.cumsum([0, *lengths]),
        "counts": [len(e.indices) for e in encoded], "columns": np.concatenate([e.indices for e in encoded]),
        "values": np.concatenate([e.values for e in encoded]), "anchor_places": places,
        "anchors": np.concatenate(anchors, axis=1).T[places]}


def main():
    torch.set_num_threads(1)
    small = {"num_repetitions": 3, "num_simhash_projections": 4}
    folded, sparse = [], []
    for query in (False, True):
        word = "query" if query else "document"
        folded += [
            muvera(f"{word}", [17, 0, 1, 5], 24, query, final_projection_dim=None, **small),
            muvera(f"{word} projected", [33, 5], 40, query, projection_dim=8, final_projection_dim=None,
                   seed=7, **small),
            muvera(f"{word} sketch", [21, 3], 32, query, final_projection_dim=200, **small),
            muvera(f"{word} projected sketch normalized", [21, 3, 0], 32, query, projection_dim=8,
                   final_projection_dim=150, normalize=True, **small),
            muvera(f"{word} centred", [17, 1, 5], 24, query, projection_dim=5, final_projection_dim=None,
                   center_tokens=True, **small),
            muvera(f"{word} sketch of as many", [9], 16, query, projection_dim=4, final_projection_dim=192,
                   **small),
            muvera(f"{word} one column", [9, 2], 20, query, projection_dim=1, final_projection_dim=None,
                   num_repetitions=2, num_simhash_projections=1),
            muvera(f"{word} colbert", [40], 128, query, projection_dim=8, final_projection_dim=None),
            muvera(f"{word} paper", [30], 96, query),
        ]
        sparse += [
            smve(f"{word} sparse", [17, 3, 1], 24, query, 64, width=256, k=8),
            smve(f"{word} sparse repetitions", [9, 0, 12], 32, query, 200, width=100, k=5, num_repetitions=2,
                 seed=3),
            smve(f"{word} sparse bounded", [19, 2], 24, query, 64, width=300, k=9, max_nonzeros=20),
            smve(f"{word} sparse all", [3, 4], 16, query, 7, width=7, k=7),
            smve(f"{word} sparse usual", [12, 5], 48, query, 40, width=65536, k=32),
        ]
    for more in ({}, {"projection_dim": 8}, {"final_projection_dim": 100},
                 {"center_tokens": True, "normalize": True}):
        name = "document filled " + " ".join(more)
        folded.append(muvera(name.strip(), [6, 0, 1, 29], 24, False, fill_empty=True,
                             **({"final_projection_dim": None} | small | more)))

    case = manifest.GOLDEN / "fold"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    tensors = {}
    for note, arrays in folded + sparse:
        for key, values in arrays.items():
            values = np.asarray(values)
            dtype = np.float32 if values.dtype.kind == "f" else np.int32
            tensors[f"{note['name']}.{key}"] = np.ascontiguousarray(values, dtype=dtype)
    save_file(tensors, case / "golden.safetensors")
    manifest.write(case, "python tools/golden/fold.py", "random tokens", "float32",
                   {"sie-server": version("sie-server"), "muvera": [n for n, _ in folded],
                    "smve": [n for n, _ in sparse]})
    print(sum(t.nbytes for t in tensors.values()), "bytes")


if __name__ == "__main__":
    main()
