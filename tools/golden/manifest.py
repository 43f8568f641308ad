"""MANIFEST.json of a golden case: what made it, with which versions, and the sha256 of every file.

A case is one folder under testdata/golden. `write` is called last by each maker; Go's
internal/golden checks the sums, so a golden file that changes without its maker is noticed. `write`
makes the case's archive, too, which git tracks instead of the large files (packed.py).
"""

import hashlib
import json
import pathlib
import platform

import packed

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "testdata" / "golden"


def versions() -> dict[str, str]:
    import numpy
    import safetensors
    import sentence_transformers
    import tokenizers
    import torch
    import transformers

    modules = (numpy, safetensors, sentence_transformers, tokenizers, torch, transformers)
    out = {"python": platform.python_version()}
    out.update({m.__name__: m.__version__.split("+")[0] for m in modules})
    return out


def write(case: pathlib.Path, command: str, model: str, dtype: str, notes: dict) -> None:
    files = {}
    for path in sorted(case.rglob("*")):
        if path.is_file() and path.name != "MANIFEST.json":
            path.chmod(0o644)
            files[path.relative_to(case).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest = {
        "command": command,
        "model": model,
        "dtype": dtype,
        "versions": versions(),
        "notes": notes,
        "sha256": files,
    }
    (case / "MANIFEST.json").write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    packed.pack(case)
