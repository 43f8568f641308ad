"""Starts the real binary with the real model once, for all client tests."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.request

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
MODEL_DIR = ROOT / "build/models/all-MiniLM-L6-v2"
JUDGE = "cross-encoder/ms-marco-MiniLM-L-6-v2"  # the id of a reranker; its weights are the tiny ones of the golden data


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A running sie-server; stop() asks it to drain and returns its exit code."""

    def __init__(self, *flags, models=f"{MODEL}={MODEL_DIR}", preload=MODEL, env=None, ready=True):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        cmd = [str(ROOT / "bin/sie-server"), "serve", "--host", "127.0.0.1", "--port", str(self.port),
               "--no-hf-fallback", "-m", models, *flags]
        if preload:
            cmd += ["--preload", preload]
        self.log = open(ROOT / f"build/client-test-{self.port}.log", "w+")
        self.proc = subprocess.Popen(cmd, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})})
        deadline = time.time() + 60
        while ready:
            if self.proc.poll() is not None or time.time() > deadline:
                raise RuntimeError("sie-server did not start:\n" + self.text())
            try:
                if urllib.request.urlopen(self.url + "/readyz", timeout=1).status == 200:
                    break
            except OSError:
                time.sleep(0.02)

    def text(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()

    def rss(self):
        for line in open(f"/proc/{self.proc.pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) << 10

    def alive(self):
        return self.proc.poll() is None

    @contextlib.contextmanager
    def context(self):
        try:
            yield self
            assert self.alive(), "the server died:\n" + self.text()
        finally:
            self.stop()

    def stop(self):
        if self.alive():
            self.proc.send_signal(signal.SIGTERM)
        code = self.proc.wait(timeout=60)
        self.log.close()
        os.unlink(self.log.name)
        return code


@pytest.fixture(scope="session")
def server():
    s = Server()
    yield s
    assert s.alive(), "the server died:\n" + s.text()
    text = s.text()
    assert s.stop() == 0
    assert "panic" not in text, text


@pytest.fixture(scope="session")
def judge():
    """A tiny reranker under the id of a known one, in the reference's precision, beside the encoder."""
    s = Server("--precision", "fp32", models=f"{JUDGE}={ROOT / 'testdata/golden/rerank-sigmoid'},{MODEL}={MODEL_DIR}", preload=JUDGE)
    yield s
    assert s.alive(), "the server died:\n" + s.text()
    assert s.stop() == 0


@pytest.fixture(scope="session")
def fp32():
    """The same model in the reference's precision."""
    s = Server("--precision", "fp32")
    yield s
    assert s.stop() == 0


def tensors(path):
    b = path.read_bytes()
    n = int.from_bytes(b[:8], "little")
    head = json.loads(b[8:8 + n])
    kinds = {"F32": np.float32, "I32": np.int32, "I64": np.int64, "U16": np.uint16}
    return {k: np.frombuffer(b, kinds[v["dtype"]], offset=8 + n + v["data_offsets"][0],
                             count=int(np.prod(v["shape"]))).reshape(v["shape"])
            for k, v in head.items() if k != "__metadata__"}


@pytest.fixture(scope="session")
def golden():
    """Texts and sentence-transformers' vectors of them."""
    d = ROOT / "testdata/golden/minilm"
    rows = [json.loads(x) for x in (d / "texts.jsonl").read_text().splitlines()]
    texts = [r if isinstance(r, str) else r["text"] for r in rows]
    return texts, tensors(d / "golden.safetensors")["vectors"]
