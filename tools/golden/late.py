"""Texts through sie-server's own ColBERT adapter and post-processors: tokens, token vectors, and
what is folded from them.

    build/venv-sie/bin/python tools/golden/late.py        (make golden-sie; the adapter needs sie-server whole, and Python 3.12)

One case, testdata/golden/late. The models are those of colbert-linear and colbert-dense with the
tokenizer of st-mean, so the case has none of its own: texts.json holds the texts, and the
manifest's notes the settings, by name, each with its model, the adapter's load-time options by the
reference's keys, and the folds asked of it. In golden.safetensors, for the role "query" and
"document":

    <setting>.<role>          [T, 24] f32   unit token vectors of all texts, and <setting>.<role>.cu [B+1] int32
    <setting>.<role>.<fold>   [B, F] f32    muvera; <fold>.float16, .int8, .uint8, .binary as quantise.py stores them
    <setting>.<role>.<fold>.counts [B] int32, .columns int32, .values f32    smve

"muvera filled" has our own fill_empty, which fold.py defines over the original's parts. Every text
is run alone, in float32. Nothing is near a tie: the vectors of another implementation, 1e-5 off,
fall into the same parts and keep the same products.
"""

import json
import logging
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from safetensors.numpy import save_file
from sie_server.adapters.colbert import ColBERTAdapter
from sie_server.core.postprocessor import MuveraConfig, MuveraPostprocessor, SmveConfig, SmvePostprocessor
from sie_server.types.inputs import Item

import fold
import manifest
import quantise

COLUMNS = 24
TEXTS = [
    "the cat sat on the mat",
    "zebra, quiz! 42?",
    "a",
    "",
    "what is the tallest mountain in the world, and how tall is it really when one counts from the sea floor?",
    "Words In Capitals - AND accents: éàü.",
]
MARKED = {"query_prefix": "q ", "doc_prefix": "d"}  # both are tokens of that tokenizer
SMALL = {"num_repetitions": 3, "num_simhash_projections": 3, "final_projection_dim": None}
FOLDS = {
    "muvera": SMALL,
    "muvera projected": SMALL | {"projection_dim": 8, "seed": 7},
    "muvera sketch": SMALL | {"projection_dim": 8, "final_projection_dim": 100, "normalize": True},
    "muvera centred": SMALL | {"center_tokens": True},
    "muvera filled": SMALL | {"projection_dim": 8, "fill_empty": True},
}
SMVE = {"smve": {"width": 256, "k": 4},
        "smve repeated": {"width": 100, "k": 3, "num_repetitions": 2, "seed": 3, "max_nonzeros": 40}}
DEFAULTS = {"muvera usual": {}, "smve usual": {}}
SETTINGS = {
    # name: model, load-time options, folds
    "expanded": ("colbert-linear", {"query_max_length": 12, "skip_special_tokens": False}, FOLDS | SMVE),
    "marked": ("colbert-dense", {"query_max_length": 16, "skip_special_tokens": False, **MARKED},
               {"muvera": SMALL}),
    "plain": ("colbert-linear",
              {"query_expansion": False, "doc_punctuation_skiplist": False, "doc_max_length": 20}, DEFAULTS),
    "bare": ("colbert-linear", {"query_max_length": 12, **MARKED}, {}),
}
ALONE = ("muvera usual", "smve usual")  # of their many columns one text is enough
QUANTISED = ("muvera projected", "muvera filled")


def model(name: str, root: Path) -> Path:
    folder = root / name
    shutil.copytree(manifest.GOLDEN / name, folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(manifest.GOLDEN / "st-mean" / file, folder)
    return folder


def folded(name: str, options: dict, items: list[np.ndarray], query: bool) -> np.ndarray:
    options = dict(options)
    folder = (fold.Filled if options.pop("fill_empty", False) else MuveraPostprocessor)(
        COLUMNS, MuveraConfig(**options))
    for x in items:
        x = x - x.mean(0) if folder.config.center_tokens else x
        near = min(np.abs(x @ planes).min() for planes in folder._get_random_cache().simhash_matrices)
        assert near > 1e-5 or len(x) == 1, f"{name}: a token is {near} from a plane"
    output = SimpleNamespace(multivector=items, dense=None, dense_dim=None, batch_size=len(items))
    folder.transform(output, is_query=query)
    return output.dense


def sparse(name: str, options: dict, items: list[np.ndarray], query: bool) -> dict[str, np.ndarray]:
    folder = SmvePostprocessor(COLUMNS, SmveConfig(**options))
    near = min(fold.gap(x @ a.numpy(), folder.config.k) for a in folder._get_anchors() for x in items)
    assert near > 1e-5, f"{name}: products {near} apart decide"
    rows = folder.encode(items, is_query=query)
    return {"counts": np.array([len(r.indices) for r in rows]),
            "columns": np.concatenate([r.indices for r in rows]),
            "values": np.concatenate([r.values for r in rows])}


def main() -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    tensors, notes = {}, {}
    with tempfile.TemporaryDirectory() as root:
        models = {name: model(name, Path(root)) for name in {s[0] for s in SETTINGS.values()}}
        for setting, (name, options, folds) in SETTINGS.items():
            adapter = ColBERTAdapter(models[name], token_dim=COLUMNS, max_seq_length=60, **options)
            adapter.load("cpu")
            notes[setting] = {"model": name, "options": options, "folds": folds}
            for role in ("query", "document"):
                query = role == "query"
                items = [adapter.encode([Item(text=t)], ["multivector"], is_query=query).multivector[0]
                         for t in TEXTS]
                key = f"{setting}.{role}"
                tensors[key] = np.concatenate(items)
                tensors[key + ".cu"] = np.cumsum([0] + [len(i) for i in items])
                print(key, [len(i) for i in items])
                for what, config in folds.items():
                    some = items[:1] if what in ALONE else items
                    if what.startswith("smve"):
                        tensors |= {f"{key}.{what}.{k}": v
                                    for k, v in sparse(what, config, some, query).items()}
                        continue
                    rows = tensors[f"{key}.{what}"] = folded(what, config, some, query)
                    if what in QUANTISED:
                        tensors |= {f"{key}.{what}.{d}": quantise.stored(quantise.quantised(rows, d, False))
                                    for d in quantise.DTYPES}

    case = manifest.GOLDEN / "late"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    (case / "texts.json").write_text(json.dumps(TEXTS, indent=1, ensure_ascii=False) + "\n")
    for key, x in tensors.items():
        x = np.asarray(x)
        tensors[key] = np.ascontiguousarray(x, dtype=np.int32 if x.dtype == np.int64 else x.dtype)
    save_file(tensors, case / "golden.safetensors")
    manifest.write(case, "build/venv-sie/bin/python tools/golden/late.py", "colbert-linear, colbert-dense",
                   "float32", {"sie-server": version("sie-server"), "settings": notes})
    print(sum(t.nbytes for t in tensors.values()), "bytes")


if __name__ == "__main__":
    main()
