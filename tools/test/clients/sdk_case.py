"""One release of the official SDK against a server; run in a process of its own, with the release
on PYTHONPATH.

Usage: sdk_case.py URL MODEL VERSION GOLDEN.npz. Exits non-zero when anything differs from what that
release documents.
"""
import asyncio
import importlib.metadata
import logging
import sys

import numpy as np
from sie_sdk import SIEAsyncClient, SIEClient

url, model, version, golden = sys.argv[1:5]
data = np.load(golden, allow_pickle=False)
texts, want = [str(t) for t in data["texts"]], data["vectors"]
assert importlib.metadata.version("sie-sdk") == version, importlib.metadata.version("sie-sdk")

warnings = []
handler = logging.Handler()
handler.emit = lambda record: warnings.append(record.getMessage())
logging.getLogger().addHandler(handler)


def close(got, ref, least=0.9995):
    got = np.asarray(got, np.float32)
    cos = float(got @ ref / (np.linalg.norm(got) * np.linalg.norm(ref)))
    assert cos >= least, cos
    assert abs(np.linalg.norm(got) - 1) < 1e-2, np.linalg.norm(got)


client = SIEClient(url)

one = client.encode(model, {"text": texts[0]})
assert one["dense"].dtype == np.float32 and one["dense"].shape == (384,), one["dense"]
assert "id" not in one, one
close(one["dense"], want[0])
assert one["timing"]["total_ms"] > 0, one["timing"]

many = client.encode(model, [{"id": f"t{i}", "text": t} for i, t in enumerate(texts)])
assert [r["id"] for r in many] == [f"t{i}" for i in range(len(texts))]
for r, ref in zip(many, want):
    close(r["dense"], ref)

query = client.encode(model, {"text": texts[0]}, is_query=True, output_types=["dense"])
assert np.array_equal(query["dense"], one["dense"])  # this model has no templates

ids = client.encode(model, {"text": texts[0]}, instruction="find: ")
assert not np.array_equal(ids["dense"], one["dense"])

x = one["dense"]
kinds = {"float16": np.float16, "int8": np.int8, "uint8": np.uint8, "binary": np.uint8}
for dtype, np_type in kinds.items():
    y = client.encode(model, {"text": texts[0]}, output_dtype=dtype)["dense"]
    assert y.dtype == np_type, (dtype, y.dtype)
    if dtype == "float16":
        ref = x.astype(np.float16)
    elif dtype == "int8":
        ref = np.rint(x / np.abs(x).max() * np.float32(127)).astype(np.int8)
    elif dtype == "uint8":
        ref = np.rint((x - x.min()) / (x.max() - x.min()) * np.float32(255)).astype(np.uint8)
    else:
        ref = np.packbits(x > 0)
    assert np.array_equal(y, ref), dtype

for bad, status, words in [
        (lambda: client.encode("sentence-transformers/all-MiniLM-L6-v3", {"text": "x"}), 404, "Did you mean"),
        (lambda: client.encode(model, {"text": "x"}, output_types=["sparse"]), 400,
         "does not support output types"),
        (lambda: client.encode(model, {"text": "x"}, output_dtype="bfloat16"), 400, "bfloat16"),
        (lambda: client.encode(model, {"text": "x"}, options={"profile": "nope"}), 400,
         "Profile 'nope' not found"),
        (lambda: client.score(model, {"text": "q"}, [{"text": "d"}]), 400, "does not support scoring"),
        (lambda: client.extract(model, {"text": "q"}, labels=["a"]), 400, "does not support extraction"),
]:
    try:
        bad()
    except Exception as e:  # the class moved between releases; status and text are the contract
        assert getattr(e, "status_code", None) == status, (e, status)
        assert words in str(e), (str(e), words)
        assert getattr(e, "code", None), e
    else:
        raise AssertionError(f"no error for {words}")

names = {m["name"]: m for m in client.list_models()}
assert names[model]["dims"]["dense"] == 384 and names[model]["loaded"], names[model]
assert client.get_model(model)["max_sequence_length"] == 256


async def several():
    async with SIEAsyncClient(url) as c:
        got = await asyncio.gather(*(c.encode(model, {"id": str(i), "text": t}) for i, t in enumerate(texts)))
    for i, (r, ref) in enumerate(zip(got, want)):
        assert r["id"] == str(i)
        close(r["dense"], ref)


asyncio.run(several())

if hasattr(client, "watch"):
    for message in client.watch():  # it asks /health which kind of server this is
        if "loaded_models" in message:  # one process
            assert message["ready"] and model in message["loaded_models"], message
        else:
            assert message["cluster"]["worker_count"] == 2, message
            assert {w["name"] for w in message["workers"]} == {"worker-0", "worker-1"}, message
        break

assert not [w for w in warnings if "version" in w.lower()], warnings
client.close()
print("ok", version)
