"""What one release of the official SDK does with a gateway; run in a process of its own.

Usage: sdk_gateway.py URL MODEL VERSION [auto KEY]. The cluster has no worker at first; this program prints
"waiting" before the call that waits for one, and the test then starts workers. With auto the cluster
starts them, for whoever asks first, and they go again. Exits non-zero when anything differs from what
that release documents.
"""
import importlib.metadata
import sys
import time

from sie_sdk import SIEClient

url, model, version = sys.argv[1:4]
assert importlib.metadata.version("sie-sdk") == version, importlib.metadata.version("sie-sdk")
client = SIEClient(url, api_key=(sys.argv[5:] or [None])[0])

if "auto" not in sys.argv[4:]:
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

c = client.wait_for_capacity("CPU", timeout_s=600, poll_interval_s=0.1)  # there is some: at once
assert c["worker_count"] >= 1, c
c = client.wait_for_capacity("cpu", model=model)  # by a request of its own
assert c["worker_count"] >= 1 and all(w["gpu"] == "cpu" for w in c["workers"]), c
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
assert client.get_pool("nope") is None

# A pool of its own: more than there is for three releases at once, so it may be pending for a while.
mine = "mine-" + version.replace(".", "_")
client.create_pool(mine, {"CPU": 1}, bundle="default", minimum_worker_count=1)
p = client.get_pool(mine)
assert p["name"] == mine and p["spec"]["gpus"] == {"cpu": 1} and p["spec"]["bundle"] == "default", p
assert p["status"]["created_at"] > 1.6e9 and p["status"]["last_renewed"] >= p["status"]["created_at"], p
while client.get_pool(mine)["status"]["state"] != "active":
    time.sleep(0.05)
r = client.encode(model, {"id": "y", "text": "a"}, gpu=f"{mine}/cpu")
assert r["id"] == "y" and len(r["dense"]) == 384, r
w = client.get_pool(mine)["status"]["assigned_workers"]
assert len(w) == 1 and w[0]["gpu"] == "cpu" and w[0]["url"] == "http://" + w[0]["name"], w
for mode in ("auto", "cluster", "worker"):  # the pool keeps its worker for as long as this takes
    for i, frame in enumerate(client.watch(mode=mode)):
        assert frame["cluster"]["worker_count"] >= 1 and frame["workers"], frame
        if i == 1:
            break
if version != "0.3.4":  # which has none of these
    client.create_pool(mine, {"cpu": 1}, gpu_caps={"cpu": 1}, pinned_models=[model], queue_pool="default")
    assert client.get_pool(mine)["spec"]["pinned_models"] == [model]
for gpus, why in (({"cpu": 5}, "at most 4"), ({"none": 1}, "there are: cpu"), ({}, "required")):
    try:
        client.create_pool("wrong", gpus)
        raise AssertionError(f"a pool of {gpus} was made")
    except Exception as e:
        assert why in str(e), (gpus, repr(e))
for call in (lambda: client.create_pool("default", {"cpu": 1}), lambda: client.delete_pool("default")):
    try:
        call()
        raise AssertionError("the default pool was changed")
    except Exception as e:
        assert "efault" in str(e) and "rror" in type(e).__name__, repr(e)
assert client.delete_pool(mine) is True
assert client.get_pool(mine) is None and client.delete_pool(mine) is False
try:
    client.encode(model, {"text": "a"}, gpu=f"{mine}/cpu")
    raise AssertionError("an answer of a pool that is gone")
except Exception as e:
    assert "not known to this cluster" in str(e), repr(e)
while True:  # the others' pools may still have all workers
    p = client.get_pool("default")
    if p["status"]["state"] == "active" and p["status"]["assigned_workers"]:
        break
    client.encode(model, {"text": "a"})
print("ok", version, flush=True)
