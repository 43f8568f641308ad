"""Three tenants of a cluster whose workers sleep 50 ms a batch: two at their usual rate, the third at its own
or at ten times that. With quotas the third's excess is refused (429); without them it waits its turn, or is
refused (503). What the others' p99 becomes is printed. Standard library only; run by `make bench-tenants`.
"""

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlparse

ROOT = Path(__file__).resolve().parent.parent
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
TEXT = "!sleep=50ms "  # the null device takes so long for a batch that holds such a text


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=10, help="of each measurement, after 3 that do not count")
    p.add_argument("--rate", type=int, default=40, help="requests of a tenant in a second, at its usual rate")
    p.add_argument("--texts", type=int, default=4, help="of a request")
    p.add_argument("--workers", type=int, default=2)
    return p.parse_args()


def tenant(url, token, texts, rate, seconds, out):
    """Sends requests at a rate, whatever comes back, and notes the times of those that are answered."""
    body = json.dumps({"items": [{"text": TEXT.ljust(60, ".")}] * texts}).encode()
    headers = {"Content-Type": "application/json", "X-API-Key": token}
    start, lock, turn = time.monotonic() + 0.2, threading.Lock(), iter(range(int(rate * (seconds + 3))))

    def client():
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
            conn.request("POST", f"/v1/encode/{MODEL}", body, headers)
            answer = conn.getresponse()
            answer.read()
            if due - start > 3:
                out.append((answer.status, time.monotonic() - begun))

    threads = [threading.Thread(target=client) for _ in range(min(64, max(8, rate // 4)))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def percentile(times, part):
    return sorted(times)[int(part * len(times))] if times else 0


def measure(url, texts, rates, seconds):
    results = {name: [] for name in rates}
    threads = [threading.Thread(target=tenant, args=(url, name, texts, rate, seconds, results[name]))
               for name, rate in rates.items()]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return {name: {
        "answered": sum(s == 200 for s, _ in list_),
        "refused": sum(s in (429, 503) for s, _ in list_),
        "p50": 1e3 * statistics.median([d for s, d in list_ if s == 200] or [0]),
        "p99": 1e3 * percentile([d for s, d in list_ if s == 200], 0.99),
    } for name, list_ in results.items()}


def run(o, into, quota):
    limit = f", items_per_s: {o.rate * o.texts * 1.2}" if quota else ""
    tokens = into / "tokens.yaml"
    tokens.write_text("tenants:\n" + "".join(f"- {{name: {n}, tokens: [{n}]{limit}}}\n" for n in "abc"))
    state = into / "state"
    log = open(into / "log", "w")
    command = [ROOT / "bin/sie-gateway", "dev", "--port", "0", "--workers", str(o.workers),
               "--device", "null", "-m", MODEL, "--state-dir", state]
    dev = subprocess.Popen(command, env=os.environ | {"SIE_AUTH_TOKENS_FILE": str(tokens)},
                           stdout=log, stderr=log)
    try:
        while not (state / "cluster.json").exists():
            if dev.poll() is not None:
                raise SystemExit((into / "log").read_text())
            time.sleep(0.1)
        url = urlparse(json.loads((state / "cluster.json").read_text())["gateways"][0]["url"])
        measure(url, o.texts, dict.fromkeys("abc", o.rate), 1)  # the model is loaded
        rounds = {1: [], 10: []}
        for _ in range(o.rounds):
            for times, list_ in rounds.items():
                rates = {"a": o.rate * times, "b": o.rate, "c": o.rate}
                list_.append(measure(url, o.texts, rates, o.seconds))
        return rounds
    finally:
        dev.terminate()
        dev.wait()


def main():
    o = arguments()
    for quota in (True, False):
        with tempfile.TemporaryDirectory() as into:
            rounds = run(o, Path(into), quota)
        print("with quotas of 1.2 times the usual rate" if quota else "without quotas")
        p99 = {}
        for times, list_ in rounds.items():
            p99[times] = statistics.median(max(r["b"]["p99"], r["c"]["p99"]) for r in list_)
            for r in list_:
                print(f"  a at {times:2}×:", "; ".join(
                    f"{n} {x['answered']} answered, {x['refused']} refused, p50 {x['p50']:.0f}, "
                    f"p99 {x['p99']:.0f} ms"
                    for n, x in r.items()))
        print(f"  the others' p99: {p99[1]:.0f} and {p99[10]:.0f} ms, {100 * (p99[10] / p99[1] - 1):+.0f} %")


if __name__ == "__main__":
    main()
