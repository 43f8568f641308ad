"""The official SDK, three generations, unmodified, with a gateway whose cluster starts at zero."""
import contextlib
import json
import os
import signal
import subprocess
import threading
import time

from conftest import MODEL, PATIENCE, ROOT, die_with_parent, until

GATEWAY = str(ROOT / "bin/sie-gateway")


@contextlib.contextmanager
def started(tmp_path, *more, env=None):
    """A cluster of null devices without a worker: its URL, and a function that starts workers."""
    state = tmp_path / "state"
    log = open(tmp_path / "log", "w+")
    flags = ["--state-dir", str(state)]
    proc = subprocess.Popen(
        [GATEWAY, "dev", "start", "--port", "0", "--device", "null", *flags, *more],
        stdout=log, stderr=log, env={**os.environ, **(env or {})}, preexec_fn=die_with_parent)

    def text():
        return (tmp_path / "log").read_text()

    deadline = time.time() + PATIENCE
    while "Ctrl-C drains" not in text():
        assert proc.poll() is None and time.time() < deadline, text()
        time.sleep(0.05)
    url = json.loads((state / "cluster.json").read_text())["gateways"][0]["url"]

    def scale(n):
        subprocess.run([GATEWAY, "dev", "scale", str(n), *flags], check=True, timeout=PATIENCE)

    try:
        yield url, scale
    finally:
        proc.send_signal(signal.SIGINT)
        code = proc.wait(timeout=PATIENCE)
    assert code == 0, text()


def test_sdks_wait_for_the_first_worker(releases, tmp_path):
    with started(tmp_path, "--workers", "0") as (url, scale):
        run_sdks(releases, url, lambda: scale(2))


# Some of deploy/helm/sie-cluster/files/triggers.yaml, in a hurry.
TRIGGERS = """apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: cpu
  labels:
    sie.superlinked.com/pool: default
    sie.superlinked.com/machine-profile: cpu
    sie.superlinked.com/bundle: default
spec:
  pollingInterval: 1
  cooldownPeriod: 20
  minReplicaCount: 0
  maxReplicaCount: 4
  advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleDown: {stabilizationWindowSeconds: 3}}}}
  triggers:
""" + "".join(f"""  - type: prometheus
    metadata:
      query: max({metric}{{pool="default",machine_profile="cpu",bundle="default"}})
      threshold: "{threshold}"
      ignoreNullValues: "false"
""" for metric, threshold in (("sie_gateway_pending_demand", 1), ("sie_gateway_lane_queue_depth", 10),
                              ("sie_gateway_active_lease_gpus", 1)))


def test_sdks_start_workers_by_themselves(releases, tmp_path):
    """From no worker to as many as the pools and the requests ask for, and to none again; the gateways
    ask for a key, as the callers have it."""
    (tmp_path / "triggers.yaml").write_text(TRIGGERS)
    more = ["--autoscale", "--triggers", str(tmp_path / "triggers.yaml"), "--gateways", "2"]
    with started(tmp_path, *more, env={"SIE_API_KEYS": "a-key"}) as (url, _):
        state = tmp_path / "state" / "cluster.json"
        seen, over = {0}, threading.Event()

        def watch():
            while not over.wait(0.05):
                seen.add(len(json.loads(state.read_text())["workers"]))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            run_sdks(releases, url, lambda: None, "auto", "a-key")
        finally:
            over.set()
            watcher.join()
        assert 1 <= max(seen) <= 4, seen
        deadline = time.time() + PATIENCE
        while json.loads(state.read_text())["workers"]:
            assert time.time() < deadline, state.read_text()
            time.sleep(0.2)


def run_sdks(releases, url, start, *how):
    """Runs every release; start is called when each has seen the cluster without a worker."""
    said = {version: release.start("sdk_gateway.py", url, MODEL, version, *how)
            for version, release in releases.items()}
    for version, release in releases.items():
        until(lambda: said[version].read_text() or release.ended(), f"a call of {version}")
        assert said[version].read_text() == "waiting\n", said[version].read_text()
    start()
    for version, release in releases.items():
        release.end(said[version], PATIENCE)
