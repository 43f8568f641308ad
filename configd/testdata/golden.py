#!/usr/bin/env python3
"""Writes reference.json: what sie-config 0.10.1 answers for the models and bundles beside this file.

Run it with Python 3.12 in an environment with sie-config==0.10.1 from PyPI:
    python golden.py
"""
import json
import os
import pathlib

here = pathlib.Path(__file__).parent
os.environ["SIE_MODELS_DIR"] = str(here / "models")
os.environ["SIE_BUNDLES_DIR"] = str(here / "bundles")
os.environ["SIE_CONFIG_READ_TOKEN"] = "reader"
os.environ["SIE_AUTH_TOKEN"] = "caller"

from fastapi.testclient import TestClient  # noqa: E402
from sie_config.app_factory import AppFactory  # noqa: E402

READER = {"Authorization": "Bearer reader"}
REQUESTS = [
    ("GET", path, headers, body)
    for path, headers, body in [
        ("/healthz", {}, None),
        ("/readyz", {}, None),
        ("/v1/configs/epoch", READER, None),
        ("/v1/configs/export", READER, None),
        ("/v1/configs/models", READER, None),
        ("/v1/configs/bundles", READER, None),
        *[(f"/v1/configs/bundles/{b}", READER, None) for b in ("default", "candle", "fast", "nope", "DEFAULT")],
        *[
            (f"/v1/configs/models/{m}", READER, None)
            for m in ("org/plain", "org/team", "org/plain:candle", "org/onlycandle", "org/onlycandle:candle",
                      "org/nowhere", "org/nope", "ORG/Plain", "org/two", "org/two:b")
        ],
        ("/v1/configs/epoch", {}, None),
        ("/v1/configs/epoch", {"Authorization": "reader"}, None),
        ("/v1/configs/epoch", {"Authorization": "bEARER  reader "}, None),
        ("/v1/configs/epoch", {"Authorization": "Bearer wrong"}, None),
        ("/v1/configs/epoch", {"Authorization": "Bearer caller"}, None),
        ("/v1/configs/models", {}, None),
        ("/v1/configs/bundles", {"Authorization": "Bearer x"}, None),
        ("/v1/configs/export", {"Authorization": "Bearer caller"}, None),
        ("/v1/configs/export", {}, None),
        ("/nope", {}, None),
    ]
] + [
    ("POST", "/v1/configs/resolve", READER, body)
    for body in (
        '{"model":"org/plain"}', '{"model":"fast:/org/plain"}', '{"model":"FAST:/org/plain"}',
        '{"model":"org/plain","bundle":"candle"}', '{"model":"fast:/org/plain","bundle":"candle"}',
        '{"model":"org/plain:candle"}', '{"model":"org/plain:candle","bundle":"default"}',
        '{"model":"org/team"}', '{"model":"org/team","bundle":"candle"}', '{"model":"org/team","bundle":"nope"}',
        '{"model":"org/onlycandle"}', '{"model":"org/onlycandle:candle"}', '{"model":"org/two"}',
        '{"model":"org/nowhere"}', '{"model":"org/nope"}', '{"model":"ORG/PLAIN"}', "{}", "", '{"model":""}',
        '{"model":":/org/plain"}', '{"model":"fast:/"}',
    )
]


def main() -> None:
    out = []
    with TestClient(AppFactory.create_app()) as client:
        for method, path, headers, body in REQUESTS:
            r = client.request(method, path, headers=headers, content=body)
            kind = r.headers.get("content-type", "").split(";")[0]
            answer = r.json() if kind == "application/json" else r.text
            if path.endswith("/export") and r.status_code == 200:
                del answer["generated_at"]
            out.append({"method": method, "path": path, "headers": headers, "body": body,
                        "status": r.status_code, "type": kind, "answer": answer})
    (here / "reference.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
