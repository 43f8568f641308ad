"""One release of the official SDK, driven by lines; run in a process of its own with the release on
PYTHONPATH.

Usage: driver.py VERSION THREADS. Each line of standard input is a request as JSON: id, url, op,
model, texts, query, labels. Each is answered by one line: id, then `error`, or what the SDK
returned: `dense` as base64 of float32, `scores`, or `items`. It ends with its input.
"""
import base64
import concurrent.futures
import importlib.metadata
import json
import sys
import threading

import numpy as np
from sie_sdk import SIEClient

version, threads = sys.argv[1], int(sys.argv[2])
assert importlib.metadata.version("sie-sdk") == version, importlib.metadata.version("sie-sdk")

local = threading.local()
out = threading.Lock()


def client(url):
    """A client belongs to a thread; the SDK promises nothing about sharing one."""
    if not hasattr(local, "clients"):
        local.clients = {}
    if url not in local.clients:
        local.clients[url] = SIEClient(url)
    return local.clients[url]


def many(answer):
    return answer if isinstance(answer, list) else [answer]


def answer(r):
    c, items = client(r["url"]), [{"id": f"{r['id']}.{i}", "text": t} for i, t in enumerate(r["texts"])]
    if r["op"] == "score":
        lines = c.score(r["model"], {"text": r["query"]}, items)["scores"]
        return {"scores": [{"ID": s["item_id"], "Score": float(s["score"]), "Rank": int(s["rank"])}
                           for s in lines]}
    if r["op"] == "extract":
        rows = many(c.extract(r["model"], items, labels=r["labels"]))
        return {"ids": [row.get("id") for row in rows], "items": [dict(row) for row in rows]}
    rows = many(c.encode(r["model"], items))
    dense = [np.asarray(row["dense"]) for row in rows]
    assert all(d.dtype == np.float32 for d in dense), dense[0].dtype
    return {"ids": [row.get("id") for row in rows],
            "dense": [base64.b64encode(d.tobytes()).decode() for d in dense]}


def number(x):
    return float(x) if isinstance(x, np.floating) else int(x) if isinstance(x, np.integer) else str(x)


def serve(line):
    r = json.loads(line)
    try:
        a = answer(r)
    except Exception as e:  # whatever the SDK raises is its answer
        a = {"error": f"{type(e).__name__}: {e} (status {getattr(e, 'status_code', None)}, "
                      f"code {getattr(e, 'code', None)})"[:600]}
    text = json.dumps({"id": r["id"], **a}, default=number)
    with out:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


with concurrent.futures.ThreadPoolExecutor(threads) as pool:
    print(json.dumps({"id": "ready"}), flush=True)
    for line in sys.stdin:
        pool.submit(serve, line)
