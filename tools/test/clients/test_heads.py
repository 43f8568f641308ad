"""What models have besides dense vectors, over the real server: tiny models of the golden data, three generations of the SDK."""
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from conftest import ROOT, Server, tensors

HERE = ROOT / "tools/test/clients"
GOLDEN = ROOT / "testdata/golden"
MODEL = """sie_id: {id}
weights_path: {path}
tasks: {tasks}
max_sequence_length: 60
profiles:
  default:
    adapter_path: sie_server.adapters.{adapter}:Adapter
    max_batch_tokens: 4096
    adapter_options: {{loadtime: {loadtime}}}
{more}"""
FOLD = "{num_repetitions: 4, num_simhash_projections: 3, projection_dim: 8, final_projection_dim: null}"


def with_tokenizer(case, to, **config):
    shutil.copytree(GOLDEN / case, to)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(GOLDEN / "st-mean" / name, to)
    path = to / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return to


@pytest.fixture(scope="module")
def heads(tmp_path_factory):
    root = tmp_path_factory.mktemp("heads")
    entails = {"0": "contradiction", "1": "neutral", "2": "entailment"}
    lora = with_tokenizer("lora-bert", root / "lora")
    models = root / "models"
    models.mkdir()
    for name, path, adapter, tasks, loadtime, more in [
        ("splade", GOLDEN / "splade-bert", "splade_flash", "{encode: {sparse: {dim: 101}}}", "{}", ""),
        ("colbert", with_tokenizer("colbert-linear", root / "colbert"), "colbert", "{encode: {multivector: {dim: 24}}, score: {}}",
         f"{{muvera_config: {FOLD}}}", "  muvera: {extends: default, adapter_options: {runtime: {muvera: {}, output_types: [dense]}}}"),
        ("moods", with_tokenizer("classify-bert", root / "moods"), "sequence_classification", "{extract: {}}", "{}", ""),
        ("entails", with_tokenizer("classify-bert", root / "entails", id2label=entails, label2id={v: int(k) for k, v in entails.items()}),
         "nli_classification", "{extract: {}}", "{}", ""),
        ("lora", lora, "bert_flash", "{encode: {dense: {dim: 64}}}", f"{{lora_paths: {{four: {lora}/adapters/rank4}}}}", ""),
    ]:
        (models / f"{name}.yaml").write_text(MODEL.format(id=name, path=path, adapter=adapter, tasks=tasks, loadtime=loadtime, more=more))
    s = Server("--precision", "fp32", "--models-dir", str(models), models="splade,colbert,colbert:muvera,moods,entails,lora", preload="splade")
    yield s
    assert s.alive(), "the server died:\n" + s.text()
    assert s.stop() == 0


@pytest.mark.parametrize("version", ["0.3.4", "0.6.30", "0.10.1"])
def test_sdk(heads, version, tmp_path):
    texts = json.loads((GOLDEN / "splade-bert/texts.json").read_text())
    np.savez(tmp_path / "golden.npz", texts=np.array(texts), splade=tensors(GOLDEN / "splade-bert/golden.safetensors")["splade"])
    env = dict(os.environ)
    if version != "0.10.1":
        env["PYTHONPATH"] = str(ROOT / f"build/venv-clients/sdk-{version}")
    run = subprocess.run([sys.executable, str(HERE / "sdk_heads.py"), heads.url, version, str(tmp_path / "golden.npz")],
                         env=env, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"ok {version}" in run.stdout
