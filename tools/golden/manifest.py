"""MANIFEST.json of a golden case: what made it, with which versions, and the sha256 of every file.

A case is one folder under testdata/golden. `write` is called last by each maker; Go's
internal/golden checks the sums, so a golden file that changes without its maker is noticed. `write`
makes the case's archive, too, which git tracks instead of the large files (packed.py).
"""

import hashlib
import json
import pathlib
import platform
import re

import packed

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "testdata" / "golden"
STATES = re.compile(r"(^|\.)(hidden_\d+|vectors|word_logits|token_logits)$")


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


def settle(path: pathlib.Path) -> None:
    """Rounds the states, vectors and logits of a golden.safetensors to multiples of 2^-20. No bound of a
    comparison is below 1e-5, twenty times the largest change, and a quarter of the bits are gone, which
    are noise of float32 and do not compress."""
    import numpy

    data = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    for name, tensor in json.loads(data[8:begin]).items():
        if name != "__metadata__" and tensor["dtype"] == "F32" and STATES.search(name):
            part = slice(*(begin + at for at in tensor["data_offsets"]))
            values = numpy.frombuffer(bytes(data[part]), dtype=numpy.float32)
            steps = numpy.round(values.astype(numpy.float64) * 2**20)
            data[part] = (steps / 2**20).astype(numpy.float32).tobytes()
    path.write_bytes(data)


def write(case: pathlib.Path, command: str, model: str, dtype: str, notes: dict) -> None:
    files = {}
    if (case / "golden.safetensors").exists():
        settle(case / "golden.safetensors")
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
