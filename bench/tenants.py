"""Three tenants of a cluster whose workers sleep 50 ms a batch: two at their usual rate, the third at its own
or at ten times that. With quotas the third's excess is refused (429), also by two gateways together; without
them it waits its turn, or is refused (503). A table says what is wanted and what was measured, and goes to
--results with all rounds; of a run that is ended early the cases that were measured are kept. Standard
library only; run by `make bench-tenants` on a machine that does nothing else.
"""

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import urlparse

import records

ROOT = Path(__file__).resolve().parent.parent
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
BATCH_MS = 50
TEXT = f"!sleep={BATCH_MS}ms "  # the null device takes so long for a batch that holds such a text
CREDIT = 2  # batches that a worker has in hand
QUOTA = 1.2  # of the usual rate
LOST = 0  # the status of a request without an answer


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=10, help="of each measurement, after 3 that do not count")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--results", type=Path, help="a folder to write table and record to")
    return p.parse_args()


def tenant(urls, token, texts, rate, seconds, out):
    """Sends requests at a rate, whatever comes back, and notes the times of those that are answered."""
    body = json.dumps({"items": [{"text": TEXT.ljust(60, ".")}] * texts}).encode()
    headers = {"Content-Type": "application/json", "X-API-Key": token}
    start, lock, turn = time.monotonic() + 0.2, threading.Lock(), iter(range(int(rate * (seconds + 3))))

    def client(url):
        conn = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
        conn.connect()
        conn.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            with lock:
                n = next(turn, None)
            if n is None:
                return
            due = start + n / rate
            time.sleep(max(due - time.monotonic(), 0))
            begun = time.monotonic()
            try:
                conn.request("POST", f"/v1/encode/{MODEL}", body, headers)
                answer = conn.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):  # the cluster has ended, or is at fault
                out.append((LOST, time.monotonic() - begun))
                return
            if due - start > 3:
                out.append((answer.status, time.monotonic() - begun))

    threads = [threading.Thread(target=client, args=(urls[i % len(urls)],))
               for i in range(min(64, max(8, rate // 4)))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def percentile(times, part):
    return sorted(times)[int(part * len(times))] if times else 0


def measure(urls, texts, rates, seconds):
    results = {name: [] for name in rates}
    threads = [threading.Thread(target=tenant, args=(urls, name, texts, rate, seconds, results[name]))
               for name, rate in rates.items()]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return {name: {
        "answered": sum(s == 200 for s, _ in list_),
        "refused": sum(s in (429, 503) for s, _ in list_),
        "lost": sum(s == LOST for s, _ in list_),
        "p50": 1e3 * statistics.median([d for s, d in list_ if s == 200] or [0]),
        "p99": 1e3 * percentile([d for s, d in list_ if s == 200], 0.99),
    } for name, list_ in results.items()}


# What is measured: with quotas or without, gateways, requests of a tenant in a second, texts of each.
CASES = [
    ("quotas", True, 1, 40, 4),
    ("quotas, two gateways", True, 2, 40, 4),
    ("turns alone", False, 1, 40, 4),
    ("turns alone, near saturation", False, 1, 12, 512),
]


def run(o, into, quota, gateways, rate, texts):
    """The rounds of one case: with the third at its usual rate, and at ten times that."""
    limit = f", items_per_s: {rate * texts * QUOTA}" if quota else ""
    tokens = into / "tokens.yaml"
    tokens.write_text("tenants:\n" + "".join(f"- {{name: {n}, tokens: [{n}]{limit}}}\n" for n in "abc"))
    state = into / "state"
    log = open(into / "log", "w")
    command = [ROOT / "bin/sie-gateway", "dev", "--port", "0", "--workers", str(o.workers), "--gateways",
               str(gateways), "--device", "null", "-m", MODEL, "--state-dir", state]
    dev = subprocess.Popen(command, env=os.environ | {"SIE_AUTH_TOKENS_FILE": str(tokens)},
                           stdout=log, stderr=log)
    try:
        while not (state / "cluster.json").exists():
            if dev.poll() is not None:
                raise SystemExit((into / "log").read_text())
            time.sleep(0.1)
        urls = [urlparse(g["url"]) for g in json.loads((state / "cluster.json").read_text())["gateways"]]
        measure(urls, texts, dict.fromkeys("abc", rate), 1)  # the model is loaded
        rounds = {1: [], 10: []}
        for _ in range(o.rounds):
            for times, list_ in rounds.items():
                list_.append(measure(urls, texts, {"a": rate * times, "b": rate, "c": rate}, o.seconds))
        return rounds
    finally:
        dev.terminate()
        dev.wait()


def rows(o, name, quota, rate, texts, rounds):
    """What is wanted of a case, what was measured, and whether it is held."""
    p99 = {times: statistics.median(max(r["b"]["p99"], r["c"]["p99"]) for r in list_)
           for times, list_ in rounds.items()}
    refused = sum(r[n]["refused"] + r[n]["lost"] for list_ in rounds.values() for r in list_ for n in "bc")
    growth, part = p99[10] - p99[1], p99[10] / p99[1] - 1
    measured = f"{p99[1]:.0f} to {p99[10]:.0f} ms, {growth:+.0f} ms, {100 * part:+.0f} %"
    if quota:
        yield name, "others' p99 grows by at most 10 %", measured, part <= 0.1
        admitted = max(r["a"]["answered"] for r in rounds[10]) * texts
        most = rate * texts * QUOTA * (o.seconds + 1) + texts
        yield name, f"a gets at most {most:.0f} items", f"{admitted} items", admitted <= most
    else:
        bound = (CREDIT + 1) * BATCH_MS
        yield name, f"others' p99 grows by at most {bound} ms", measured, growth <= bound
    yield name, "no request of the others is refused or lost", str(refused), refused == 0


def measure_cases(o, into, record):
    """Fills record: the rounds of each case by its name, the rows of the table, and whether all are held."""
    record |= {"rounds": {}, "table": []}
    for name, quota, gateways, rate, texts in CASES:
        here = into / name.replace(" ", "-")
        here.mkdir()
        rounds = record["rounds"][name] = run(o, here, quota, gateways, rate, texts)
        print(f"{name}: {rate} requests of {texts} texts in a second", flush=True)
        for times, list_ in rounds.items():
            for r in list_:
                print(f"  a at {times:2}×:", "; ".join(
                    f"{n} {x['answered']} answered, {x['refused']} refused, p50 {x['p50']:.0f}, "
                    f"p99 {x['p99']:.0f} ms" for n, x in r.items()), flush=True)
        record["table"] += rows(o, name, quota, rate, texts, rounds)
    record["held"] = all(held for *_, held in record["table"])


def markdown(o, record):
    return records.table(("case", "wanted", "measured", "held"),
                         [(*row, "yes" if held else "no") for *row, held in record["table"]]) + "\n"


if __name__ == "__main__":
    records.bounded(arguments(), "tenants", measure_cases, markdown)
