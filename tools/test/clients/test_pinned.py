"""pinned_models of a pool: a real worker, whose memory budget holds two of three models."""
import json
import os
import shutil
import time
import urllib.error
import urllib.request

from cluster import Cluster
from conftest import ENTRY, MODEL_DIR, PATIENCE, Server

IDS = ["a", "b", "c"]


def call(url, method="GET", body=None, **headers):
    """The status and the JSON of an answer."""
    headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
    q = urllib.request.Request(url, method=method, data=None if body is None else json.dumps(body).encode(),
                               headers=headers)
    try:
        with urllib.request.urlopen(q, timeout=PATIENCE) as a:
            return a.status, json.loads(a.read() or b"null")
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read() or b"null")


def encode(url, model, **headers):
    """Asks for a vector until there is one, as an SDK does."""
    begun = time.monotonic()
    while True:
        status, a = call(f"{url}/v1/encode/{model}", "POST", {"items": [{"text": "a"}]}, **headers)
        if status == 200:
            return
        assert status in (202, 503) and time.monotonic() - begun < PATIENCE, (status, a)
        time.sleep(0.05)


def loaded(url, model):
    return next(m["loaded"] for m in call(url + "/v1/models")[1]["models"] if m["name"] == model)


def until(url, model, is_loaded):
    begun = time.monotonic()
    while loaded(url, model) != is_loaded:
        assert time.monotonic() - begun < PATIENCE, (model, is_loaded)
        time.sleep(0.05)


def test_pinned_models_stay(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    for i in IDS:  # weights of its own for each: models of one directory share them
        path = shutil.copytree(MODEL_DIR, tmp_path / i, copy_function=os.symlink)
        (folder / f"{i}.yaml").write_text(ENTRY.format(
            id=i, path=path, adapter="sentence_transformer", loadtime="{}", more="",
            tasks="{encode: {dense: {dim: 384}}}"))
    s = Server("--precision", "fp32", "--models-dir", str(folder), models="a", preload="a")
    with s.context():
        size = s.metric("sie_model_memory_bytes", model="a")
    assert size > 1 << 20, size
    cluster = Cluster("--models-dir", str(folder), workers=1, env={
        "SIE_HF_FALLBACK": "false", "SIE_PRECISION": "fp32", "SIE_MEMORY_BUDGET": str(int(2.6 * size)),
        "SIE_REQUEST_TIMEOUT": f"{PATIENCE}s"})
    with cluster.context():
        url = cluster.url
        for model in IDS:
            encode(url, model)
        until(url, "a", False)  # the one that was used longest ago

        status, pool = call(url + "/v1/pools", "POST",
                            {"name": "mine", "gpus": {"cpu": 1}, "pinned_models": ["A"]})
        assert status == 201 and pool["spec"]["pinned_models"] == ["a"], pool
        until(url, "a", True)  # nobody asked for it
        for _ in range(3):
            for model in "b", "c":
                encode(url, model, **{"X-SIE-Pool": "mine"})
                until(url, model, True)
                assert loaded(url, "a")
        until(url, "b", False)  # the budget does not hold all three

        assert call(url + "/v1/pools/mine", "DELETE")[0] in (200, 204)
        for model in "b", "c", "b":
            encode(url, model)
        until(url, "a", False)
