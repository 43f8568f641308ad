"""What one release of the official SDK does with a gateway; run in a process of its own.

Usage: sdk_gateway.py URL MODEL VERSION. The cluster has no worker at first; this program prints
"waiting" before the call that waits for one, and the test then starts workers. Exits non-zero when
anything differs from what that release documents.
"""
import importlib.metadata
import sys
import time

from sie_sdk import SIEClient

url, model, version = sys.argv[1:4]
assert importlib.metadata.version("sie-sdk") == version, importlib.metadata.version("sie-sdk")
client = SIEClient(url)

c = client.get_capacity()
assert c["status"] == "degraded" and c["worker_count"] == 0 and c["workers"] == [], c
assert c["configured_gpu_types"] == ["cpu"] and c["live_gpu_types"] == [], c
try:
    client.encode(model, {"text": "a"}, wait_for_capacity=False)
    raise AssertionError("an answer without a worker")
except Exception as e:  # the releases have different classes for it
    assert "rovision" in str(e) or "202" in str(e) or "503" in str(e) or "apacity" in str(e), repr(e)

print("waiting", flush=True)
r = client.encode(model, {"id": "x", "text": "a"})  # for as long as there is no worker
assert r["id"] == "x" and len(r["dense"]) == 384, r
many = client.encode(model, [{"id": str(i), "text": "b" * (i % 7)} for i in range(100)])
assert [m["id"] for m in many] == [str(i) for i in range(100)]

c = client.get_capacity(gpu="CPU")
assert c["status"] == "healthy" and c["worker_count"] >= 1, c
w = c["workers"][0]
assert w["gpu"] == "cpu" and w["healthy"] and w["url"].startswith("http://"), w
while not any(model in w["loaded_models"] for w in client.get_capacity(gpu="CPU")["workers"]):
    time.sleep(0.05)  # the next heartbeat says it; the test ends this program if none does
assert model in [m["name"] for m in client.list_models()]
if hasattr(client, "get_model"):
    m = client.get_model(model)
    assert m["bundles"] == ["default"] and m["worker_count"] >= 1 and m["loaded"], m
p = client.get_pool("default")
assert p["status"]["state"] == "active" and p["status"]["assigned_workers"], p
assert client.get_pool("nope") is None
try:
    client.create_pool("mine", {"cpu": 1})
    raise AssertionError("a pool was made")
except Exception as e:
    assert "makes, renews and deletes no pools" in str(e), repr(e)
for i, frame in enumerate(client.watch()):
    assert frame["cluster"]["worker_count"] >= 1 and frame["workers"], frame
    if i == 1:
        break
print("ok", version, flush=True)
