"""Our side of bench-arch: `sie-server race` for texts, and `sie-server serve` for pairs, since the
library path of the race encodes only."""

import http.client
import json
import subprocess
import time

import numpy as np

from racers import Failed, Ours
from served import Server

MODEL = "bench/model"


# A decoder says nothing of being a reranker: the model's file does, as the catalog's does for
# Qwen3-Reranker.
JUDGE = """sie_id: {id}
weights_path: {folder}
max_sequence_length: {limit}
tasks: {{score: {{}}}}
profiles:
  default:
    adapter_path: "sie_server.adapters.qwen2_flash_cross_encoder.adapter:X"
    max_batch_tokens: 16384
    compute_precision: float32
    adapter_options:
      loadtime: {{yes_token: "yes", no_token: "no", input_format: qwen3, score_mode: log_softmax}}
"""


def source(row, folder, catalog):
    """The flags that name the model. A decoder that reranks gets a model file, in the directory
    catalog."""
    if row["pooling"] != "yesno":
        return ["-m", f"{MODEL}={folder}"]
    catalog.mkdir(parents=True, exist_ok=True)
    (catalog / "model.yaml").write_text(JUDGE.format(id=MODEL, folder=folder.resolve(), limit=row["limit"]))
    return ["--models-dir", str(catalog), "-m", MODEL]


def flags(source, threads, precision):
    return [*source, "--threads", str(threads), "--precision", precision, "--device", "cpu",
            "--no-hf-fallback"]


def refusal(binary, source, threads, precision, env, reranker):
    """Why our server does not serve the model; None where it does. Any other end than a refusal of the
    configuration raises Failed."""
    if reranker:
        return None  # Scorer's server says it, when it is to be ready
    done = subprocess.run([str(binary), "encode", *flags(source, threads, precision), "--model", MODEL, "a"],
                          env=env, capture_output=True, text=True, timeout=900)
    if not done.returncode:
        return None
    said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][-300:]
    if not refused(said):
        raise Failed(f"sie-server encode ended with {done.returncode}: {said}")
    return said


def refused(said):
    """Whether our server says that it does not know the architecture."""
    return "is not supported" in said and ("CONFIG" in said or "config.json" in said)


class Encoder(Ours):
    """Texts, in process."""

    def __init__(self, name, binary, source, threads, precision, files, env, log, prefix):
        self.flags = flags(source, threads, precision)
        self.binary, self.prefix = str(binary), prefix
        super().__init__(name, [*prefix, self.binary, "race", *self.flags, "--model", MODEL], files, env, log)

    def vectors(self, name, path):
        lines = path.with_suffix(".txt")
        lines.write_text("\n".join(json.loads(self.files[name].read_text())) + "\n", encoding="utf-8")
        done = subprocess.run([*self.prefix, self.binary, "encode", *self.flags, "--model", MODEL, "--file",
                               str(lines), "--out", str(path)], env=self.env, capture_output=True, text=True,
                              timeout=900)
        if done.returncode:
            raise Failed(f"sie-server encode: {done.stderr.strip()[-300:]}")


class Scorer:
    """Pairs of one query and many documents, over HTTP."""

    def __init__(self, name, binary, source, threads, precision, files, env, log, prefix):
        self.name, self.files = name, files
        command = [*prefix, str(binary), "serve", *flags(source, threads, precision)]
        self.server = Server(command, MODEL, env, f"{log}-server.log", ready_within=300)

    def tune(self, name):
        self.go(name, 1)
        return {}

    def go(self, name, times):
        seconds = 0
        for _ in range(times):
            start = time.perf_counter()
            self.score(name)
            seconds += time.perf_counter() - start
        return seconds

    def score(self, name):
        pairs = json.loads(self.files[name].read_text())
        body = json.dumps({"query": {"text": pairs[0][0]}, "items": [{"text": d} for _, d in pairs]})
        with self.server.turn():
            c = http.client.HTTPConnection(self.server.url.removeprefix("http://"), timeout=600)
            c.request("POST", f"/v1/score/{MODEL}", body,
                      {"Content-Type": "application/json", "Accept": "application/json"})
            r = c.getresponse()
            said = r.read()
            c.close()
        if r.status != 200:
            raise Failed(f"score: {r.status} {said[:300].decode(errors='replace')}")
        scores = np.zeros((len(pairs), 1), np.float32)
        for s in json.loads(said)["scores"]:
            scores[int(s["item_id"].removeprefix("item-"))] = s["score"]
        return scores

    def vectors(self, name, path):
        np.save(path, self.score(name))

    def drop(self, name):
        pass

    def close(self):
        self.server.close()
