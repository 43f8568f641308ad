#!/usr/bin/env python3
"""Writes judge.json.gz: what sie-config 0.10.1 answers to REQUESTS, in this order, for each of MODES.

Run it in build/venv-config (tools/setup/venv.sh config); the S3 modes need build/bin/versitygw
(tools/setup/buckets.sh):
    build/venv-config/bin/python configd/testdata/judge.py
"""
import gzip
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

here = pathlib.Path(__file__).parent
MODES = [f"{auth}-{store}" for auth in ("open", "auth") for store in ("none", "file", "s3")]
FLASH = "adapter_path: 'sie_server.adapters.bert_flash:BertFlashAdapter'"
CANDLE = "adapter_path: 'sie_server_rust.adapters.candle:CandleEmbeddingAdapter'"
DEFAULT = "  default: {" + FLASH + ", max_batch_tokens: 8}\n"
HEAD = "hf_id: org/x\ninputs: {text: true}\ntasks: {encode: {dense: {dim: 8}}}\n"
MODELS = "/v1/configs/models"


def doc(id_: str, profiles: str = DEFAULT, more: str = "") -> str:
    return f"sie_id: {id_}\n{HEAD}{more}profiles:\n{profiles}"


def req(method: str, path: str, body=None, who: str = "admin", key: str = ""):
    return {"method": method, "path": path, "body": body, "who": who, "key": key}


def post(body, **more):
    return req("POST", MODELS, body, **more)


def put(id_: str, body, **more):
    return req("PUT", f"{MODELS}/{id_}", body, **more)


def delete(id_: str, **more):
    return req("DELETE", f"{MODELS}/{id_}", **more)


def get(path: str, who: str = "reader"):
    return req("GET", "/v1/configs" + path, who=who)


def resolve(body: str):
    return req("POST", "/v1/configs/resolve", body, who="reader")


def differ(q: dict, status: int, why: str) -> dict:
    """Says that this project answers a request otherwise, with a status, and why."""
    return {**q, "ours": status, "why": why}


STATE = [get("/epoch"), get("/models"), get("/export")]
B = "  b: {extends: default, max_batch_tokens: 4}\n"
REQUESTS = [
    req("GET", "/healthz", who=""), req("GET", "/readyz", who=""), *STATE, get("/bundles"),
    # who may write and read
    *[post(doc("new/auth"), who=who) for who in ("", "wrong", "reader", "caller")],
    *[put("new/auth", doc("new/auth"), who=who) for who in ("", "wrong", "reader", "caller")],
    *[delete("new/auth", who=who) for who in ("", "wrong", "reader", "caller")],
    *[get(path, who) for path in ("/epoch", "/export", "/models", "/models/org/team")
      for who in ("", "wrong", "caller", "admin")],
    # a new model, and the same again
    post(doc("new/a")), *STATE, post(doc("new/a")), get("/epoch"), get("/models/new/a"),
    resolve('{"model":"new/a"}'), resolve('{"model":"fast:/new/a"}'), resolve('{"model":"candle:/new/a"}'),
    # JSON is YAML
    post(json.dumps({"sie_id": "new/json", "hf_id": "org/x", "inputs": {"text": True},
                     "tasks": {"encode": {"dense": {"dim": 8}}},
                     "profiles": {"default": {"adapter_path": "sie_server.adapters.bert_flash:X",
                                              "max_batch_tokens": 16}}})),
    # more profiles
    post(doc("new/a", DEFAULT + B)), get("/models"), differ(
        get("/models/new/a:b"), 200, "the reference says filesystem of a profile of an added model"), resolve('{"model":"new/a:b"}'),
    post("sie_id: new/a\nprofiles:\n  c: {" + CANDLE + ", max_batch_tokens: 5}\n"), *STATE,
    resolve('{"model":"new/a:c"}'), resolve('{"model":"candle:/new/a"}'),
    # what contradicts
    post(doc("new/a", DEFAULT.replace("8}", "9}"))), get("/epoch"),
    post("sie_id: new/a\npool: other\nprofiles:\n  d: {extends: default, max_batch_tokens: 5}\n"),
    post("sie_id: new/a\nhf_id: org/y\nprofiles:\n" + DEFAULT),
    post("sie_id: org/plain\nprofiles:\n  fast: {" + CANDLE + "}\n"),
    get("/epoch"),
    # pools, revisions and options
    post(doc("new/pool", more="pool: Gold\nhf_revision: " + "a" * 40 + "\n")), get("/export"),
    post(doc("new/opt", "  default: {" + FLASH + ", max_batch_tokens: 8, compute_precision: float16,\n"
             "    adapter_options: {loadtime: {}, runtime: {pooling: mean, normalize: true}}}\n")), *STATE,
    # idempotency
    post(doc("new/k"), key="k1"), post(doc("new/k"), key="k1"), post(doc("new/k") + "#", key="k1"),
    post(doc("new/k2", "  default: {adapter_path: 'no.such:X', max_batch_tokens: 1}\n"), key="k2"),
    post(doc("new/k2"), key="k2"), get("/epoch"),
    # bodies that are none
    *[post(body) for body in ("", "[1]", "a: [1", "x", "\t: 1", "{", "sie_id: new/x\n  b: 1\n")],
    {**post(None), "spaces": 1048577},
    differ(post("sie_id: &a [*a]\n"), 400, "no value contains itself"),
    # documents that are none of a model
    *[post(body) for body in (
        "a: 1", "sie_id: 5\nprofiles: {}\n", "sie_id: new/b\n", "sie_id: new/b\nprofiles: {}\n",
        "sie_id: new/b\nprofiles: {default: {}}\n", "profiles:\n" + DEFAULT, doc("new/b", more="bogus: 1\n"),
        doc("new/c", "  default: {adapter_path: 'no.such:X', max_batch_tokens: 8}\n"),
        doc("new/c", "  default: {extends: nope, max_batch_tokens: 8}\n"),
        doc("new/c", "  default: {" + FLASH + ", max_batch_tokens: x}\n"),
        doc("new/c", "  default: {" + FLASH + ", max_batch_tokens: 8, bogus: 1}\n"), doc("null"))],
    # ids that are none
    *[post(doc(i)) for i in ("a/../b", "'a\\b'", "a/status", "status", "/a", "'a b'", "'..'", "''", "-a")],
    get("/models/new/a/status"), put("new/a/status", doc("new/a/status")),
    get("/epoch"),
    # replace
    put("new/a", doc("new/a", DEFAULT.replace("8}", "9}"))), get("/models/new/a"), *STATE,
    put("new/a", doc("new/a", DEFAULT.replace("8}", "9}"))), get("/epoch"),
    put("new/put", doc("new/put")), put("new/a", doc("new/b")), put("new/a", "x: ["),
    put("new/a", doc("new/a", "  default: {adapter_path: 'no.such:X', max_batch_tokens: 8}\n")),
    put("new/a", doc("new/a", more="bogus: 1\n")), put("new/a", HEAD + "profiles:\n" + DEFAULT), get("/models/new/a"),
    put("org/plain", doc("org/plain")), *STATE, resolve('{"model":"org/plain:candle"}'),
    # remove
    delete("org/plain"), get("/models/org/plain"), delete("org/plain"), delete("org/two"), delete("nope"),
    delete("new/a"), delete("new/a"), get("/models/new/a"), resolve('{"model":"new/a"}'), *STATE,
    post(doc("new/a")), get("/epoch"), differ(req("PATCH", MODELS + "/new/a"), 405, "the error body of every SIE server"),
    # the last, because what follows them would differ too
    differ(post(doc("new/a", more="max_sequence_length: 12\n")), 200, "equal, and the new key is kept"),
    post("sie_id: org/team\nprofiles:\n  z: {extends: default, max_batch_tokens: 5}\n"),
    differ(get("/epoch"), 200, "the new key above has counted"),
    differ(get("/export"), 200, "built-in and added profiles of org/team, which the reference loses (weak point 19)"),
    post("sie_id: org/team\nprofiles:\n  z: {extends: default, max_batch_tokens: 5}\n"),
    differ(post(doc("a__b")), 400, "with a store 500, and __ stands for / elsewhere (weak point 23)"),
    differ(delete("a__b"), 400, "with a store 500"),
    differ(post(doc("a:b")), 400, "a colon separates the profile"),
    differ(post(doc("x" * 300)), 400, "with a store 500"),
    differ(post(doc("new/e").replace("sie_id", "model_id")), 201, "model_id is another name of sie_id"),
    differ(post("model_id: new/f\n" + doc("new/e")), 400, "two ids"),
    differ(post("sie_id: new/g\n" + doc("new/h")), 400, "two ids; the reference takes the last"),
    differ(post("sie_id: new/b\nprofiles:\n" + DEFAULT), 422, "no worker could load a model without weights"),
]


def versitygw(root: str) -> tuple[subprocess.Popen, dict]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % s.getsockname()[1]
    os.makedirs(root + "/data/models")
    os.makedirs(root + "/meta")
    env = dict(os.environ, ROOT_ACCESS_KEY="tester", ROOT_SECRET_KEY="not-a-secret")
    gateway = subprocess.Popen(
        ["build/bin/versitygw", "--address", address, "--sidecar", root + "/meta", root + "/data"],
        env=env, stdout=subprocess.DEVNULL)
    for _ in range(100):
        try:
            socket.create_connection(tuple(address.split(":"))).close()
            break
        except OSError:
            time.sleep(0.05)
    return gateway, {"AWS_ENDPOINT_URL": "http://" + address, "AWS_ACCESS_KEY_ID": "tester",
                     "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1", "NO_PROXY": "*"}


def answers(mode: str) -> list:
    """Asks all requests of one reference server; its environment is set."""
    from fastapi.testclient import TestClient
    from sie_config.app_factory import AppFactory

    out = []
    with TestClient(AppFactory.create_app(), raise_server_exceptions=False) as client:
        for q in REQUESTS:
            headers = {"Idempotency-Key": q["key"]} if q["key"] else {}
            if q["who"]:
                headers["Authorization"] = "Bearer " + q["who"]
            body = " " * q["spaces"] if "spaces" in q else q["body"]
            r = client.request(q["method"], q["path"], headers=headers, content=body)
            kind = r.headers.get("content-type", "").split(";")[0]
            answer = r.json() if kind == "application/json" else r.text
            if isinstance(answer, dict):
                answer.pop("generated_at", None)
                for model in answer.get("models", []) if q["path"].endswith("/export") else []:
                    del model["raw_yaml"]  # model_config says the same
            out.append({"status": r.status_code, "type": kind, "answer": answer})
    return out


def main() -> None:
    if len(sys.argv) > 1:
        json.dump(answers(sys.argv[1]), sys.stdout)
        return
    by_mode = {}
    for mode in MODES:
        auth, store = mode.split("-")
        with tempfile.TemporaryDirectory() as root:
            env = dict(os.environ, SIE_MODELS_DIR=str(here / "models"), SIE_BUNDLES_DIR=str(here / "bundles"))
            gateway = None
            if auth == "auth":
                env |= {"SIE_CONFIG_READ_TOKEN": "reader", "SIE_AUTH_TOKEN": "caller", "SIE_ADMIN_TOKEN": "admin"}
            if store == "file":
                env["SIE_CONFIG_STORE_DIR"] = root + "/store"
            elif store == "s3":
                gateway, more = versitygw(root)
                env |= more | {"SIE_CONFIG_STORE_DIR": "s3://models/config"}
            try:
                text = subprocess.run([sys.executable, __file__, mode], env=env, check=True,
                                      stdout=subprocess.PIPE).stdout
            finally:
                if gateway:
                    gateway.kill()
                    gateway.wait()
            by_mode[mode] = json.loads(text)
    out = []
    for i, q in enumerate(REQUESTS):
        answer = {}  # by the first mode that has it; the modes of the same answer beside it
        for mode in MODES:
            for known in answer.values():
                if known["answer"] == by_mode[mode][i]:
                    known["modes"].append(mode)
                    break
            else:
                answer[mode] = {"modes": [mode], "answer": by_mode[mode][i]}
        q = {k: v for k, v in q.items() if v not in (None, "")}
        out.append({**q, "answers": [{"modes": a["modes"], **a["answer"]} for a in answer.values()]})
    lines = ",\n".join(json.dumps(x, ensure_ascii=False) for x in out)
    packed = gzip.compress(f"[\n{lines}\n]\n".encode(), 9, mtime=0)
    (here / "judge.json.gz").write_bytes(packed)
    print(len(out), "requests")


if __name__ == "__main__":
    main()
