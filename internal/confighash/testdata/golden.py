"""Writes python.json: canonical JSON and hashes as Python computes them, for the Go tests to match.

Usage: python3 golden.py > python.json    (any Python 3; standard library only)
"""
import hashlib
import json
import sys

VALUES = [None, True, False, 0, -1, 9007199254740993, 1.0, -0.0, 0.5, 0.1, 1e-5, 1.5e-7, 1e15, 1e16, 1.5e300,
          123456789.125, 0.0001, 0.00012345, 5e-324, 1.7976931348623157e308, 0.3, 85.0, "", "a", "<>&",
          "\u2028\u2029", "\x00\x01\x1f\x7f", "\"\\/\b\f\n\r\t", "é模😀", "\ufffd", [], {}, [[], {}],
          {"b": 1, "a": 2, "B": 3, "é": 4, "": 5}, {"z": {"y": [1, 2.5, None, "x"]}, "a": True},
          {"query_template": "query: {text}", "normalize": True, "muvera": {}},]


def text(value, ascii_only):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=ascii_only)


def digest(value, ascii_only=False):
    return hashlib.sha256(text(value, ascii_only).encode()).hexdigest()


def config(path, tokens=None, precision=None, options=None):
    return {"adapter_path": path, "max_batch_tokens": tokens, "compute_precision": precision,
            "adapter_options": options}


def model(name, revision, **profiles):
    return {"sie_id": name, "revision": revision,
            "profiles": [{"name": n, "config": profiles[n]} for n in sorted(profiles)]}


CONFIGS = {
    "plain": [model("org/a", None, default=config("mod.a:A", 16384))],
    "revision": [model("org/a", "0123456789abcdef0123456789abcdef01234567",
                       default=config("mod.a:A", 16384, "bfloat16"))],
    "options": [
        model("org/a", None, default=config(
            "mod.a:A", 8192, None, {"runtime": {"pooling": "mean", "threshold": 0.5, "normalize": True}}),
              fast=config("mod.b:B", 1, "float16", {"loadtime": {"token_dim": 128, "ratio": 1.0},
                                                    "runtime": {"doc_template": "<p> & {text}\u2028é"}})),
        model("org/b", None, only=config("mod.b:B", 2)),
    ],
}
json.dump({
    "values": [{"value": v, "utf8": text(v, False), "ascii": text(v, True)} for v in VALUES],
    "configs": {name: digest(value) for name, value in CONFIGS.items()},
}, sys.stdout, ensure_ascii=True, indent=0)
print()
