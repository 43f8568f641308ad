"""The official SDK, three generations, unmodified."""
import os
import subprocess
import sys

import numpy as np
import pytest

from conftest import MODEL, PATIENCE, ROOT

HERE = ROOT / "tools/test/clients"


@pytest.mark.parametrize("version", ["0.3.4", "0.6.30", "0.10.1"])
def test_sdk(server, golden, version, tmp_path):
    texts, vectors = golden
    np.savez(tmp_path / "golden.npz", texts=np.array(texts[:40]), vectors=vectors[:40])
    env = dict(os.environ)
    if version != "0.10.1":
        env["PYTHONPATH"] = str(ROOT / f"build/venv-clients/sdk-{version}")
    run = subprocess.run(
        [sys.executable, str(HERE / "sdk_case.py"), server.url, MODEL, version, str(tmp_path / "golden.npz")],
        env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"ok {version}" in run.stdout
