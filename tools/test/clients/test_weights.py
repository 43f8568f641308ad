"""A weights file that is cut short while it is loaded fails its load; the process and its other
models go on."""
import json
import os
import shutil
import time
import urllib.error
import urllib.request

import pytest
from conftest import GOLDEN, Server

SMALL = GOLDEN / "st-xlmr-mean-torch"
WORDS = 500_000  # rows of the large table: 122 MiB


def large(path):
    """The golden model with a table so large that loading it takes many reads; its file is
    sparse."""
    shutil.copytree(SMALL, path)
    config = json.loads((path / "config.json").read_text())
    (path / "pytorch_model.bin").unlink()
    (path / "config.json").write_text(json.dumps({**config, "vocab_size": WORDS}))
    h, f = config["hidden_size"], config["intermediate_size"]
    shapes = {"embeddings.word_embeddings.weight": [WORDS, h],
              "embeddings.position_embeddings.weight": [config["max_position_embeddings"], h],
              "embeddings.token_type_embeddings.weight": [config["type_vocab_size"], h]}

    def norm(name):
        shapes.update({name + ".weight": [h], name + ".bias": [h]})

    def linear(name, n, k):
        shapes.update({name + ".weight": [n, k], name + ".bias": [n]})

    norm("embeddings.LayerNorm")
    for i in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{i}."
        for part in ("query", "key", "value"):
            linear(at + "attention.self." + part, h, h)
        linear(at + "attention.output.dense", h, h)
        norm(at + "attention.output.LayerNorm")
        linear(at + "intermediate.dense", f, h)
        linear(at + "output.dense", h, f)
        norm(at + "output.LayerNorm")
    head, end = {}, 0
    for name, shape in shapes.items():
        size = 4
        for n in shape:
            size *= n
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path / "model.safetensors", "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + end)
    return path / "model.safetensors"


def encode(server, model):
    body = json.dumps({"items": [{"text": "a"}]}).encode()
    request = urllib.request.Request(f"{server.url}/v1/encode/{model}", body,
                                     {"Content-Type": "application/json", "Accept": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def bytes_read(server):
    for line in open(f"/proc/{server.proc.pid}/io"):
        if line.startswith("rchar:"):
            return int(line.split()[1])


@pytest.mark.parametrize("after", [0, 1, WORDS * 64 * 4])
def test_weights_cut_short_while_they_load(tmp_path, after):
    """The file shrinks after the server has read so many bytes of it: before, within and behind the
    large table."""
    file = large(tmp_path / "large")
    whole = file.stat().st_size
    with Server("--load-wait", "1ms", models=f"large={tmp_path / 'large'},small={SMALL}",
                preload="small").context() as server:
        status, small = encode(server, "small")
        assert status == 200, small
        before = bytes_read(server)
        status, text = encode(server, "large")
        while server.alive() and status == 503 and bytes_read(server) < before + after:
            status, text = encode(server, "large")
        os.truncate(file, 4096 if after == 0 else whole - 200)
        while server.alive() and status == 503:
            status, text = encode(server, "large")
            time.sleep(0.01)
        assert server.alive(), server.text()
        # A load that was through before the cut has succeeded; every other one ends in an error
        # that names the file.
        assert status in (200, 502), text
        if status == 502:
            assert "model.safetensors" in server.text()
        again = encode(server, "small")
        assert again[0] == 200 and json.loads(again[1])["items"] == json.loads(small)["items"]
