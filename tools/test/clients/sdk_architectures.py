"""Vectors and scores of several architectures with one release of the official SDK; run in a process
of its own.

Usage: sdk_architectures.py URL VERSION GOLDEN.json. Exits non-zero when anything differs from the
golden data.
"""
import importlib.metadata
import json
import sys

import numpy as np
from sie_sdk import SIEClient

url, version, path = sys.argv[1:4]
assert importlib.metadata.version("sie-sdk") == version, importlib.metadata.version("sie-sdk")
golden = json.load(open(path))
with SIEClient(url) as client:
    for model, cases in golden["vectors"].items():
        for is_query in True, False:
            of = [c for c in cases if c["is_query"] == is_query]
            if not of:
                continue
            got = client.encode(model, [{"text": c["text"]} for c in of], is_query=is_query)
            for case, row in zip(of, got, strict=True):
                assert np.abs(row["dense"] - np.float32(case["vector"])).max() < 1e-5, (model, case["text"])
    for model, cases in golden["scores"].items():
        for query in {c["query"] for c in cases}:
            of = [c for c in cases if c["query"] == query]
            answer = client.score(model, {"text": query}, [{"id": str(i), "text": c["document"]}
                                                           for i, c in enumerate(of)])
            assert len(answer["scores"]) == len(of), answer
            for s in answer["scores"]:
                want = of[int(s["item_id"])]["score"]
                assert abs(s["score"] - want) < 1e-4, (model, s, want)
print("ok", version)
