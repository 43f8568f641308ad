"""A model that is changed while a cluster runs answers as it is then: real processes, a real worker with
weights. What a document is loaded with and what each request reads of it are changed, and changed back."""
import urllib.request

import pytest

from cluster import Cluster
from conftest import GOLDEN
from test_live_models import call, settled

TEXT = " ".join(["the tallest mountain in the world is far away"] * 3)
CHANGES = {
    "weights": {"weights_path": str(GOLDEN / "st-cls-normalize")},
    "length": {"max_sequence_length": 8},
    "pooling": {"pooling": "cls"},
    "batch": {"max_batch_tokens": 2048},  # other documents, the same answers
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    c = Cluster(workers=1, env={"SIE_CONFIG_STORE_DIR": str(tmp_path_factory.mktemp("store")),
                                "SIE_PRECISION": "fp32"})
    yield c
    assert c.stop() == 0


def document(model, weights_path=str(GOLDEN / "st-mean"), max_sequence_length=60, pooling="mean",
             max_batch_tokens=4096):
    return {"model_id": model, "weights_path": weights_path, "tasks": {"encode": {"dense": {"dim": 32}}},
            "max_sequence_length": max_sequence_length, "profiles": {"default": {
                "adapter_path": "sie_server.adapters.sentence_transformer:Adapter",
                "max_batch_tokens": max_batch_tokens,
                "adapter_options": {"runtime": {"pooling": pooling}}}}}


def put(cluster, model, **change):
    """Makes a model what the change says, and returns its vector once all workers have it."""
    status, a = call(f"{cluster.url}/v1/configs/models/{model}", "PUT", document(model, **change))
    assert status == 200, a
    settled(cluster.url, model, a["epoch"])
    return vector(cluster, model)


def vector(cluster, model):
    while True:
        status, a = call(f"{cluster.url}/v1/encode/{model}", "POST", {"items": [{"text": TEXT}]})
        if status == 200:
            return a["items"][0]["dense"]["values"]
        assert status in (202, 503), a


def test_a_changed_model_answers_as_it_is_now(cluster):
    before = put(cluster, "test/changed")
    for name, change in CHANGES.items():
        want = put(cluster, f"test/{name}", **change)  # never was anything else
        assert (want == before) == (name == "batch"), name
        assert put(cluster, "test/changed", **change) == want, f"{name}: the model from before answers"
        assert put(cluster, "test/changed") == before, f"{name}: changed back"


def test_what_sie_config_counts(cluster):
    """Its metrics, on a port of their own without a token."""
    port = cluster.state()["gateways"][0]["url"].rsplit(":", 1)[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{int(port) + 9}/metrics", timeout=60) as r:
        text = r.read().decode()
    epoch = call(f"{cluster.url}/v1/configs/epoch")[1]["epoch"]
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(lines["sie_config_epoch"]) == epoch and float(lines["sie_config_nats_connected"]) == 1
    assert float(lines['sie_config_writes_total{method="PUT",outcome="changed"}']) == epoch
    assert float(lines['sie_config_nats_publishes_total{result="success"}']) == epoch
    assert float(lines['sie_config_exports_total{kind="changes"}']) > 0
    assert "test/changed" not in text
