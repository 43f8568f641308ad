"""Starts the real binaries with the real model, for all client tests. Tests that ask for server,
judge or heads run twice: against one sie-server, and against the gateway of a cluster with the same
models. Tests about one process ask for alone or fp32, or start a Server themselves."""
import contextlib
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
import yaml

from cluster import Cluster
from sdk import VERSIONS, Release, die_with_parent

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "testdata/golden"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
# Seconds after which what has not happened is taken for hung: no test depends on how fast anything is.
PATIENCE = 600
MODEL_DIR = ROOT / "build/models/all-MiniLM-L6-v2"
# the id of a reranker; its weights are the tiny ones of the golden data
JUDGE = "cross-encoder/ms-marco-MiniLM-L-6-v2"
# a dense model of a few thousand weights, from the golden data
TINY = "tiny"
QUERY = "how tall is the mountain"
DOCS = ["the cat sat on the mat", "zebra", "the tallest mountain in the world is 8849 metres tall", "zebra"]


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


# What client tests are run against; SIE_TARGETS names some of them.
TARGETS = os.environ.get("SIE_TARGETS", "sie-server,cluster").split(",")
# Of the files whose tests do not ask for a target those that need a cluster. The others start a sie-server.
OF_CLUSTERS = {"test_changed_models", "test_live_models", "test_pinned", "test_quota", "test_same",
               "test_sdk_gateway", "test_traces"}


def pytest_collection_modifyitems(config, items):
    """Leaves out the tests that are about a target which SIE_TARGETS does not name."""
    def wanted(test):
        kind = "cluster" if test.module.__name__ in OF_CLUSTERS else "sie-server"
        return "target" in test.fixturenames or kind in TARGETS

    config.hook.pytest_deselected(items=[test for test in items if not wanted(test)])
    items[:] = [test for test in items if wanted(test)]


@pytest.fixture(scope="session", params=TARGETS)
def target(request):
    """Which kind of server a test that asks for server, judge or heads is run against."""
    return request.param


def clustered(folder, *flags, **settings):
    """A cluster of two workers that serves and has loaded the models of a folder of model files,
    with the settings of Server. The first of the folder that fits a task is its default."""
    env = {"SIE_HF_FALLBACK": "false", "SIE_REQUEST_TIMEOUT": f"{PATIENCE}s"}
    env |= {"SIE_PRELOAD_MODELS": ids_of(folder), "SIE_DEFAULT_MODEL": ids_of(folder)}
    return Cluster("--models-dir", str(folder), *flags, env=env | settings, patience=PATIENCE)


def ended(s):
    """Stops a server or a cluster, which must have lived until now and drain well."""
    assert s.alive(), "it died:\n" + s.text()
    text = s.text()
    assert s.stop() == 0, text
    assert "panic" not in text, text


@pytest.fixture(scope="session")
def releases(tmp_path_factory):
    """The releases of the official SDK, each in a process, by version."""
    folder = tmp_path_factory.mktemp("releases")
    started = {version: Release(version, folder) for version in VERSIONS}
    yield started
    for release in started.values():
        release.stop()


@pytest.fixture(params=VERSIONS)
def sdk(releases, request):
    """Runs a program sdk_*.py with each release of the official SDK."""
    def run(program, *arguments):
        release = releases[request.param]
        release.end(release.start(program, *arguments), PATIENCE)

    run.version = request.param
    return run


@pytest.fixture(scope="session")
def alone():
    """One sie-server, for tests about a process: its memory, its counters."""
    s = Server()
    yield s
    ended(s)


@pytest.fixture(scope="session")
def server(target, request, tmp_path_factory):
    if target == "sie-server":
        yield request.getfixturevalue("alone")
        return
    folder = tmp_path_factory.mktemp("models")
    (folder / "minilm.yaml").write_text(known(MODEL, MODEL_DIR))
    s = clustered(folder)
    yield s
    ended(s)


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    """A cluster of all models of these tests, in the reference's precision."""
    s = clustered(all_models(tmp_path_factory.mktemp("all")), SIE_PRECISION="fp32",
                  SIE_MAX_QUEUE_WAIT="0s")
    yield s
    ended(s)


def known(model, path):
    """The catalog's file of a model, with weights of ours."""
    file = ROOT / "catalog/models" / (model.replace("/", "__") + ".yaml")
    return file.read_text() + f"weights_path: {path}\n"


def all_models(root):
    """The folder of the files of all models of these tests."""
    folder, _ = head_models(root)
    (folder / "0tiny.yaml").write_text(ENTRY.format(
        id=TINY, path=GOLDEN / "st-mean", adapter="sentence_transformer", loadtime="{}", more="",
        tasks="{encode: {dense: {dim: 32}}}"))
    (folder / "1minilm.yaml").write_text(known(MODEL, MODEL_DIR))
    (folder / "2judge.yaml").write_text(known(JUDGE, GOLDEN / "rerank-sigmoid"))
    return folder


def ids_of(folder):
    """The ids of the models of a folder and of their profiles, by file name."""
    ids = []
    for file in sorted(folder.glob("*.yaml")):
        model = yaml.safe_load(file.read_text())
        # candle and others of the catalog's have weights of their own
        ids += [model["sie_id"]] + [f"{model['sie_id']}:{p}" for p in model["profiles"]
                                    if p != "default" and "adapter_path" not in model["profiles"][p]]
    return ",".join(ids)


@pytest.fixture(scope="session")
def judge(target, tmp_path_factory):
    """A tiny reranker under the id of a known one, in the reference's precision, beside the
    encoder."""
    if target == "cluster":
        folder = tmp_path_factory.mktemp("judge")
        (folder / "0judge.yaml").write_text(known(JUDGE, GOLDEN / "rerank-sigmoid"))
        (folder / "1minilm.yaml").write_text(known(MODEL, MODEL_DIR))
        s = clustered(folder, SIE_PRECISION="fp32")
        yield s
        ended(s)
        return
    s = Server("--precision", "fp32", models=f"{JUDGE}={GOLDEN / 'rerank-sigmoid'},{MODEL}={MODEL_DIR}",
               preload=JUDGE)
    yield s
    ended(s)


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
    """The same model in the reference's precision, in one sie-server."""
    s = Server("--precision", "fp32")
    yield s
    ended(s)


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


def head_models(root):
    """Writes the configurations of tiny models of every head, from the golden data, and returns
    their folder and what serves them all."""
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
            ("deberta", GOLDEN / "text-deberta-zero", "nli_classification_flash", "{extract: {}}", "{}", ""),
            ("tags", with_tokenizer("tag-bert", root / "tags"), "token_classification", "{extract: {}}", "{}",
             ""),
            ("lora", lora, "bert_flash", "{encode: {dense: {dim: 64}}}",
             f"{{lora_paths: {{four: {lora}/adapters/rank4}}}}", ""),
    ]:
        (models / f"{name}.yaml").write_text(ENTRY.format(id=name, path=path, adapter=adapter, tasks=tasks,
                                                          loadtime=loadtime, more=more))
    ids = "splade,colbert,colbert:muvera,colbert:both,late,late:muvera,moods,entails,deberta,tags,lora"
    return models, ",".join([ids, *extractors(models)])


EXTRACTOR = """sie_id: {id}
hf_id: acme/{id}
hf_revision: "{commit}"
{path}tasks: {{extract: {{}}}}
max_sequence_length: 192
profiles:
  default:
    adapter_path: sie_server.adapters.{adapter}
    max_batch_tokens: 4096
    adapter_options: {options}
"""
COMMIT = "0123456789" * 4


def extractors(models):
    """Writes the configurations of a span model, a token model, a union of them and a classifier, and
    returns their ids."""
    gliner, gliclass = "gliner:GLiNERAdapter", "gliclass:GLiClassAdapter"
    for name, case, adapter in [("spans", "gliner-bert-span", gliner), ("words", "gliner-bert-token", gliner),
                                ("classes", "gliclass-modern", gliclass)]:
        (models / f"{name}.yaml").write_text(EXTRACTOR.format(
            id=name, commit=COMMIT, path=f"weights_path: {GOLDEN / case}\n", adapter=adapter, options="{}"))
    options = {"loadtime": {"members": [{"model": "acme/words", "revision": COMMIT}]},
               "runtime": {"default_labels": ["person", "city"], "score_floor": 0.6,
                           "propagate_label": "person"}}
    union = EXTRACTOR.format(id="union", commit=COMMIT, path="",
                             adapter="gliner_union.adapter:GLiNERUnionAdapter", options=json.dumps(options))
    (models / "union.yaml").write_text(union.replace("acme/union", "acme/spans"))
    return ["spans", "words", "classes", "union"]


@pytest.fixture(scope="session")
def heads(target, request, tmp_path_factory):
    """Tiny models of every head, from the golden data."""
    if target == "cluster":
        yield request.getfixturevalue("everything")
        return
    folder, ids = head_models(tmp_path_factory.mktemp("heads"))
    s = Server("--precision", "fp32", "--models-dir", str(folder), models=ids, preload="splade")
    yield s
    ended(s)
