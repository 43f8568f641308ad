"""Starts the real binary with the real model once, for all client tests."""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "testdata/golden"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
# Seconds after which what has not happened is taken for hung: no test depends on how fast anything is.
PATIENCE = 600
MODEL_DIR = ROOT / "build/models/all-MiniLM-L6-v2"
# the id of a reranker; its weights are the tiny ones of the golden data
JUDGE = "cross-encoder/ms-marco-MiniLM-L-6-v2"
QUERY = "how tall is the mountain"
DOCS = ["the cat sat on the mat", "zebra", "the tallest mountain in the world is 8849 metres tall", "zebra"]


def die_with_parent():
    """For preexec_fn: what a test starts ends with it, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Server:
    """A running sie-server; stop() asks it to drain and returns its exit code."""

    def __init__(self, *flags, models=f"{MODEL}={MODEL_DIR}", preload=MODEL, env=None):
        cmd = [str(ROOT / "bin/sie-server"), "serve", "--host", "127.0.0.1", "--port", "0",
               "--no-hf-fallback", "-m", models, "--request-timeout", f"{PATIENCE}s", *flags]
        if preload:
            cmd += ["--preload", preload]
        self.log = tempfile.NamedTemporaryFile("w+", prefix="sie-client-test-", suffix=".log")
        self.proc = subprocess.Popen(cmd, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})},
                                     preexec_fn=die_with_parent)
        deadline = time.time() + PATIENCE
        while not (ready := re.search(r"msg=ready url=\S+:(\d+)", self.text())):
            if not self.alive() or time.time() > deadline:
                self.proc.kill()
                raise RuntimeError("sie-server did not start:\n" + self.text())
            time.sleep(0.02)
        self.port = int(ready[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def text(self):
        return pathlib.Path(self.log.name).read_text()

    def rss(self):
        for line in open(f"/proc/{self.proc.pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) << 10

    def metric(self, name, **labels):
        """The sum of a metric's series that have these labels."""
        text = urllib.request.urlopen(self.url + "/metrics", timeout=PATIENCE).read().decode()
        lines = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.M)
        return sum(float(v) for series, v in lines if all(f'{k}="{x}"' in series for k, x in labels.items()))

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
        try:
            code = self.proc.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
            raise
        self.log.close()
        return code


def until(condition, what):
    """Waits for an event that is sure to come."""
    deadline = time.time() + PATIENCE
    while not condition():
        assert time.time() < deadline, f"{what} did not happen in {PATIENCE} s"
        time.sleep(0.01)


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
    """A tiny reranker under the id of a known one, in the reference's precision, beside the
    encoder."""
    s = Server("--precision", "fp32",
               models=f"{JUDGE}={ROOT / 'testdata/golden/rerank-sigmoid'},{MODEL}={MODEL_DIR}", preload=JUDGE)
    yield s
    assert s.alive(), "the server died:\n" + s.text()
    assert s.stop() == 0


@pytest.fixture(scope="session")
def ranking(judge):
    """DOCS best first for QUERY, by index, and the scores."""
    from sie_sdk import SIEClient

    with SIEClient(judge.url) as c:
        scores = c.score(JUDGE, {"text": QUERY},
                         [{"id": str(i), "text": d} for i, d in enumerate(DOCS)])["scores"]
    return [int(s["item_id"]) for s in scores], [s["score"] for s in scores]


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


ENTRY = """sie_id: {id}
weights_path: {path}
tasks: {tasks}
max_sequence_length: 60
profiles:
  default:
    adapter_path: sie_server.adapters.{adapter}:Adapter
    max_batch_tokens: 4096
    adapter_options: {{loadtime: {loadtime}}}
{more}"""
LATE = json.loads((GOLDEN / "late/MANIFEST.json").read_text())["notes"]["settings"]["expanded"]
FOLD = "{num_repetitions: 4, num_simhash_projections: 3, projection_dim: 8, final_projection_dim: null}"


def with_tokenizer(case, to, **config):
    shutil.copytree(GOLDEN / case, to)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(GOLDEN / "st-mean" / name, to)
    path = to / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return to


@pytest.fixture(scope="session")
def heads(tmp_path_factory):
    """Tiny models of every head, from the golden data."""
    root = tmp_path_factory.mktemp("heads")
    entails = {"0": "contradiction", "1": "neutral", "2": "entailment"}
    lora = with_tokenizer("lora-bert", root / "lora")
    models = root / "models"
    models.mkdir()
    for name, path, adapter, tasks, loadtime, more in [
            ("splade", GOLDEN / "splade-bert", "splade_flash", "{encode: {sparse: {dim: 101}}}", "{}", ""),
            ("colbert", with_tokenizer("colbert-linear", root / "colbert"), "colbert",
             "{encode: {multivector: {dim: 24}}, score: {}}",
             f"{{skip_special_tokens: false, muvera_config: {FOLD}}}",
             "  muvera: {extends: default, adapter_options: {runtime: {muvera: {}, output_types: [dense]}}}\n"
             "  both: {extends: default, adapter_options: {runtime: {muvera: {}, smve: {}, output_types: [dense, sparse, multivector]}}}"),
            ("late", with_tokenizer("colbert-linear", root / "late"), "colbert",
             "{encode: {multivector: {dim: 24}}, score: {}}",
             json.dumps(LATE["options"] | {"muvera_config": LATE["folds"]["muvera projected"]}),
             "  muvera: {extends: default, adapter_options: {runtime: {muvera: {}, output_types: [dense]}}}"),
            ("moods", with_tokenizer("classify-bert", root / "moods"), "sequence_classification",
             "{extract: {}}", "{}", ""),
            ("entails", with_tokenizer("classify-bert", root / "entails", id2label=entails, label2id={
                v: int(k) for k, v in entails.items()}), "nli_classification", "{extract: {}}", "{}", ""),
            ("tags", with_tokenizer("tag-bert", root / "tags"), "token_classification", "{extract: {}}", "{}",
             ""),
            ("lora", lora, "bert_flash", "{encode: {dense: {dim: 64}}}",
             f"{{lora_paths: {{four: {lora}/adapters/rank4}}}}", ""),
    ]:
        (models / f"{name}.yaml").write_text(ENTRY.format(id=name, path=path, adapter=adapter, tasks=tasks,
                                                          loadtime=loadtime, more=more))
    s = Server("--precision", "fp32", "--models-dir", str(models),
               models="splade,colbert,colbert:muvera,colbert:both,late,late:muvera,moods,entails,tags,lora",
               preload="splade")
    yield s
    assert s.alive(), "the server died:\n" + s.text()
    assert s.stop() == 0
