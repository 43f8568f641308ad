"""Writes draws.json: what numpy.random.default_rng draws, for nprand_test.go.

    pip install numpy==2.4.6
    python3 make.py

Floats are hexadecimal, integers decimal. Of the long runs of normals there are those beyond the
ziggurat's last strip, with their places, and the SHA-256 of all others' little-endian bytes (the
ones in the tail as zeros): two releases of the C library give other last bits there.
"""

import hashlib
import json
import pathlib

import numpy as np

TAIL = 3.6541528853610088
SEEDS = [0, 1, 42, 43, 81, 2**32 - 1, 2**32, 42 + 2**40, 2**53, 2**63 - 1, 2**64 - 1]
BOUNDS = [1, 2, 3, 8, 10, 96, 10240, 65536, 2**24, 3 * 2**29 + 1, 2**31 - 1]


def run(values):
    at = np.flatnonzero(np.abs(values) > TAIL)
    inside = values.copy()
    inside[at] = 0
    return {"count": len(values), "sha256": hashlib.sha256(inside.tobytes()).hexdigest(),
            "at": at.tolist(), "tail": [float(values[i]).hex() for i in at]}


def seeded(seed):
    def new():
        return np.random.default_rng(seed)

    rng = new()
    mixed = [int(rng.integers(0, 2**32, dtype=np.uint32)), int(rng.integers(0, 2**64, dtype=np.uint64)),
             int(rng.integers(0, 2**32, dtype=np.uint32)), int(rng.integers(0, 10)),
             int(rng.random() * 2**53), int(rng.choice(np.array([-1, 1])))]
    return {
        "seed": str(seed),
        "uint64": [str(v) for v in new().integers(0, 2**64, 4, dtype=np.uint64)],
        "uint32": new().integers(0, 2**32, 6, dtype=np.uint32).tolist(),
        "random": [v.hex() for v in new().random(4).tolist()],
        "random32": [v.hex() for v in new().random(4, dtype=np.float32).tolist()],
        "normal": [v.hex() for v in new().normal(size=6).tolist()],
        "normal32": [v.hex() for v in new().standard_normal(6, dtype=np.float32).tolist()],
        "mixed": [str(v) for v in mixed],
    }


def bounded(n):
    """integers and then choice, as one generator draws them for a sketch."""
    rng = np.random.default_rng(42)
    index = rng.integers(0, n, size=20001)
    sign = rng.choice(np.array([-1.0, 1.0], dtype=np.float32), size=20001)
    return {"n": n, "first": index[:8].tolist(), "sum": int(index.sum()),
            "signs": sign[:8].astype(int).tolist(), "sign_sum": int(sign.sum())}


def main():
    out = {
        "numpy": np.__version__,
        "seeds": [seeded(s) for s in SEEDS],
        "bounds": [bounded(n) for n in BOUNDS],
        "normal": run(np.random.default_rng(42).normal(size=3_000_000)),
        "normal32": run(np.random.default_rng(42).standard_normal(3_000_000, dtype=np.float32)),
    }
    path = pathlib.Path(__file__).with_name("draws.json")
    path.write_text(json.dumps(out) + "\n")
    print(path.name, len(out["normal"]["at"]), "and", len(out["normal32"]["at"]), "in the tails")


main()
