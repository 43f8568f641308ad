"""Models that come, change and go while a cluster runs: real processes, null devices."""
import json
import time
import urllib.error
import urllib.request

import pytest

from cluster import Cluster

ID = "test/posted"
PATIENCE = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    c = Cluster("--device", "null", "--gateways", "2", workers=2, env={"SIE_CONFIG_STORE_DIR": str(store)})
    yield c
    assert c.stop() == 0


def call(url, method="GET", body=None):
    """The status and the JSON of an answer."""
    q = urllib.request.Request(url, method=method, data=None if body is None else json.dumps(body).encode(),
                               headers={"Content-Type": "application/json", "Accept": "application/json"})
    try:
        with urllib.request.urlopen(q, timeout=PATIENCE) as a:
            return a.status, json.load(a)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def document(dim):
    return {"model_id": ID, "hf_id": "test/weights", "tasks": {"encode": {"dense": {"dim": dim}}},
            "max_sequence_length": 256, "profiles": {"default": {
                "adapter_path": "sie_server.adapters.bert_flash:BertFlashAdapter", "max_batch_tokens": 4096}}}


def acked(url):
    """Waits until all workers have what sie-config has of the model, and returns how long that took."""
    begun = time.monotonic()
    while True:
        status, a = call(f"{url}/v1/configs/models/{ID}/status")
        if status == 200 and a["all_bundles_acked"]:
            assert all(len(b["acked_workers"]) == 2 and not b["pending_workers"] for b in a["bundles"]), a
            return time.monotonic() - begun
        assert time.monotonic() - begun < PATIENCE, a
        time.sleep(0.02)


def settled(url, model, epoch):
    """Waits until a gateway has an epoch and all workers have what sie-config has of a model."""
    begun = time.monotonic()
    while True:
        status, a = call(f"{url}/v1/configs/models/{model}/status")
        if status == 200 and a["config_epoch"] >= epoch and a["all_bundles_acked"]:
            return
        assert time.monotonic() - begun < PATIENCE, a
        time.sleep(0.02)


def encode(url, text):
    """A vector's length, waiting out what may be tried again as an SDK does."""
    begun = time.monotonic()
    while True:
        status, a = call(f"{url}/v1/encode/{ID}", "POST", {"items": [{"text": text}]})
        if status == 200:
            return len(a["items"][0]["dense"]["values"])
        assert status in (202, 503) and time.monotonic() - begun < PATIENCE, (status, a)
        time.sleep(0.1)


def test_a_posted_model_is_served(cluster):
    urls = [g["url"] for g in cluster.state()["gateways"]]
    assert call(f"{urls[0]}/v1/encode/{ID}", "POST", {"items": [{"text": "a"}]})[0] == 404
    status, a = call(f"{urls[0]}/v1/configs/models", "POST", document(64))
    assert status == 201 and a["model_id"] == ID, a
    took = [acked(url) for url in urls]
    print("acknowledged by all workers after", took, "s")
    assert [encode(url, "a") for url in urls] == [64, 64]
    status, a = call(f"{urls[1]}/v1/configs/models/{ID}", "PUT", document(32))
    assert status == 200 and a["replaced"], a
    for url in urls:
        while call(f"{url}/v1/configs/models/{ID}/status")[1]["config_epoch"] < 2:
            time.sleep(0.02)
        acked(url)
    assert [encode(url, "a") for url in urls] == [32, 32]
    status, a = call(f"{urls[0]}/v1/configs/models/{ID}", "DELETE")
    assert status == 200 and a["deleted"], a
    begun = time.monotonic()
    for url in urls:
        while call(f"{url}/v1/encode/{ID}", "POST", {"items": [{"text": "a"}]})[0] != 404:
            assert time.monotonic() - begun < PATIENCE
            time.sleep(0.05)
