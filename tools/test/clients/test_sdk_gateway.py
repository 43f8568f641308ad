"""The official SDK, three generations, unmodified, with a gateway whose cluster starts at zero."""
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from conftest import MODEL, PATIENCE, ROOT, die_with_parent

HERE = ROOT / "tools/test/clients"
GATEWAY = str(ROOT / "bin/sie-gateway")
VERSIONS = ["0.3.4", "0.6.30", "0.10.1"]


@pytest.fixture
def cluster(tmp_path):
    """A cluster of null devices without a worker: its URL, and a function that starts workers."""
    state = tmp_path / "state"
    log = open(tmp_path / "log", "w+")
    flags = ["--state-dir", str(state)]
    proc = subprocess.Popen(
        [GATEWAY, "dev", "start", "--port", "0", "--workers", "0", "--device", "null", *flags],
        stdout=log, stderr=log, preexec_fn=die_with_parent)

    def text():
        return (tmp_path / "log").read_text()

    deadline = time.time() + PATIENCE
    while "Ctrl-C drains" not in text():
        assert proc.poll() is None and time.time() < deadline, text()
        time.sleep(0.05)
    url = json.loads((state / "cluster.json").read_text())["gateways"][0]["url"]

    def scale(n):
        subprocess.run([GATEWAY, "dev", "scale", str(n), *flags], check=True, timeout=PATIENCE)

    yield url, scale
    proc.send_signal(signal.SIGINT)
    assert proc.wait(timeout=PATIENCE) == 0, text()


def test_sdks_wait_for_the_first_worker(cluster):
    url, scale = cluster
    runs = []
    for version in VERSIONS:
        env = dict(os.environ)
        if version != "0.10.1":
            env["PYTHONPATH"] = str(ROOT / f"build/venv-clients/sdk-{version}")
        runs.append(subprocess.Popen(
            [sys.executable, str(HERE / "sdk_gateway.py"), url, MODEL, version], env=env,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=die_with_parent))
    for run in runs:  # each has seen the cluster without workers before there is one
        assert run.stdout.readline() == "waiting\n", run.stdout.read()
    scale(2)
    for version, run in zip(VERSIONS, runs):
        limit = threading.Timer(PATIENCE, run.kill)
        limit.start()
        rest = run.stdout.read()
        limit.cancel()
        assert run.wait() == 0 and f"ok {version}" in rest, rest
