"""The control plane with many models and many workers: a real sie-config with its store in a directory, a
real gateway and a real broker, and workers without a server that follow sie-config by the package that
sidecars use (bench/control), all on the same CPUs. What is measured is printed beside what is wanted of
it, and written to --results. Standard library only; run by `make bench-control`.
"""

import argparse
import contextlib
import http.client
import json
import os
import queue
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import records
from served import clean_env, free_port

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 300
TICK = os.sysconf("SC_CLK_TCK")

# name: (what, unit, the most it may be, prediction before measuring)
WANTED = {
    "gateway start": ("start of a gateway with all models, to /readyz", "s", 3.0, 2.8),
    "gateway idle": ("CPU of the gateway while nothing happens, of one core", "%", 2.0, 1.0),
    "config idle": ("CPU of sie-config while nothing happens, of one core", "%", 2.0, 0.5),
    "delta": ("one change, from its POST to the last worker that has it", "s", 1.0, 0.5),
    "posts": ("all models posted, one after the other", "s", None, 6.0),
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", type=Path, default=ROOT / "bin")
    p.add_argument("--models", type=int, default=1000)
    p.add_argument("--workers", type=int, default=200)
    p.add_argument("--changes", type=int, default=20, help="that are timed one by one")
    p.add_argument("--idle", type=float, default=30, help="seconds of idleness that are measured")
    p.add_argument("--starts", type=int, default=5, help="of the gateway")
    p.add_argument("--results", type=Path, help="a folder to write table and record to")
    return p.parse_args()


def document(i, tokens=4096):
    return {"model_id": f"bench/model-{i:04d}", "hf_id": f"bench/model-{i:04d}",
            "inputs": {"text": True},
            "tasks": {"encode": {"dense": {"dim": 384}}}, "max_sequence_length": 512,
            "profiles": {"default": {
                "adapter_path": "sie_server.adapters.bert_flash:BertFlashAdapter", "max_batch_tokens": tokens,
                "adapter_options": {"runtime": {"pooling": "mean", "normalize": True}}}}}


class Process:
    """A program of --bin, its log in a file."""

    def __init__(self, name, command, folder, env=None, ready=None, pipe=False):
        self.name, self.log = name, open(folder / f"{name}.log", "ab")
        self.begun = time.monotonic()
        self.proc = subprocess.Popen([str(x) for x in command], stderr=self.log,
                                     stdin=subprocess.PIPE if pipe else None,
                                     stdout=subprocess.PIPE if pipe else self.log,
                                     env={**clean_env(), **(env or {})})
        while ready and not ready():
            if self.proc.poll() is not None or time.monotonic() - self.begun > PATIENCE:
                raise SystemExit(f"{name} did not start:\n" + Path(self.log.name).read_text()[-3000:])
            time.sleep(0.005)
        self.start_seconds = time.monotonic() - self.begun

    def cpu(self):
        fields = Path(f"/proc/{self.proc.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def rss(self):
        lines = Path(f"/proc/{self.proc.pid}/status").read_text().splitlines()
        return next(int(x.split()[1]) for x in lines if x.startswith("VmRSS")) / 1024

    def stop(self):
        if self.proc.stdin:
            self.proc.stdin.close()
        else:
            self.proc.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.proc.wait(timeout=30)
        self.proc.kill()
        self.proc.wait()
        self.log.close()


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as r:
            return r.status == 200
    except (OSError, urllib.error.URLError):
        return False


def reader(stream):
    """The JSON lines of a stream, as a queue."""
    out = queue.Queue()

    def read():
        for line in stream:
            out.put(json.loads(line))

    threading.Thread(target=read, daemon=True).start()
    return out


def until(lines, epoch):
    """When the last worker had an epoch, or a later one that all had first."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            line = lines.get(timeout=max(deadline - time.monotonic(), 0.01))
        except queue.Empty:
            raise SystemExit(f"not all workers had epoch {epoch} after {PATIENCE} s") from None
        if line["epoch"] >= epoch:
            return line["at"]


class Caller:
    """A client of one connection."""

    def __init__(self, port):
        self.conn = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.conn.connect()
        self.conn.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, method, path, body=None):
        self.conn.request(method, path, None if body is None else json.dumps(body),
                          {"Content-Type": "application/json"})
        a = self.conn.getresponse()
        text = a.read()
        if a.status >= 300:
            raise SystemExit(f"{method} {path}: {a.status} {text[:500]}")
        return json.loads(text)


def measure(o, folder):
    ports = {name: free_port() for name in ("nats", "config", "gateway")}
    nats, config = f"nats://127.0.0.1:{ports['nats']}", f"http://127.0.0.1:{ports['config']}"
    gateway = f"http://127.0.0.1:{ports['gateway']}"
    bundle, models = "default", folder / "models"
    lanes = json.dumps([{"pool": "default", "machineProfile": "cpu", "bundle": bundle}])
    out, stack = {}, contextlib.ExitStack()

    def run(name, *a, **kw):
        p = Process(name, *a, **kw)
        stack.callback(p.stop)
        return p

    def start_gateway():
        command = [o.bin / "sie-gateway", "serve", "--host", "127.0.0.1", "--port", ports["gateway"]]
        return run("gateway", command, folder, {
            "SIE_NATS_URL": nats, "SIE_CONFIG_SERVICE_URL": config,
            "SIE_GATEWAY_CONFIGURED_PHYSICAL_LANES": lanes, "SIE_PAYLOAD_STORE_URL": str(folder / "payloads"),
        }, ready=lambda: answers(gateway + "/readyz"))

    def start_config():
        command = [o.bin / "sie-config", "serve", "--host", "127.0.0.1", "--port", ports["config"]]
        return run("config", command, folder, {
            "SIE_NATS_URL": nats, "SIE_CONFIG_STORE_DIR": str(folder / "store"),
            "SIE_MODELS_DIR": str(models),
        }, ready=lambda: answers(config + "/readyz"))

    with stack:
        command = [o.bin / "sie-gateway", "nats", "--port", ports["nats"], "--store-dir", folder / "nats"]
        run("nats", command, folder)
        models.mkdir()
        first = document(0)
        first["sie_id"] = first.pop("model_id") + "-built-in"
        (models / "first.yaml").write_text(json.dumps(first, indent=1))
        sie_config = start_config()
        gate = start_gateway()
        workers = run("workers", [o.bin / "tools/control", "-nats", nats, "-config", config,
                                  "-workers", o.workers, "-bundle", bundle], folder, pipe=True)
        lines = reader(workers.proc.stdout)
        until(lines, 0)
        caller = Caller(ports["gateway"])

        cpu = {p.name: p.cpu() for p in (sie_config, gate, workers)}
        begun, times = time.time(), []
        for i in range(o.models):
            one = time.monotonic()
            epoch = caller.call("POST", "/v1/configs/models", document(i))["epoch"]
            times.append(time.monotonic() - one)
        out["posts"] = time.time() - begun
        out["posts until all workers have them"] = until(lines, epoch) - begun
        tenth = max(len(times) // 10, 1)
        out["a POST, ms: first tenth, last tenth, most"] = [
            round(1000 * x, 2) for x in (statistics.median(times[:tenth]), statistics.median(times[-tenth:]),
                                         max(times))]
        out["CPU of the posts, s"] = {
            p.name: round(p.cpu() - cpu[p.name], 2) for p in (sie_config, gate, workers)}

        deltas, acked = [], []
        for i in range(o.changes):
            begun = time.time()
            path = f"/v1/configs/models/{document(i)['model_id']}"
            epoch = caller.call("PUT", path, document(i, 8192))["epoch"]
            deltas.append(until(lines, epoch) - begun)
            while True:
                s = caller.call("GET", path + "/status")
                if s["config_epoch"] >= epoch and s["all_bundles_acked"]:
                    break
                if time.time() - begun > PATIENCE:
                    raise SystemExit(f"the gateway does not see that all workers have the model: {s}")
                time.sleep(0.02)
            acked.append(time.time() - begun)
            time.sleep(0.3)
        out["delta"], out["deltas"] = max(deltas), deltas
        out["deltas until the gateway knows that all have them, median and most"] = [
            statistics.median(acked), max(acked)]

        time.sleep(3)
        watched = (sie_config, gate, workers)
        cpu, begun = {p.name: p.cpu() for p in watched}, time.monotonic()
        time.sleep(o.idle)
        for p in watched:
            out[f"{p.name} idle"] = 100 * (p.cpu() - cpu[p.name]) / (time.monotonic() - begun)
        out["resident, MiB"] = {p.name: round(p.rss(), 1) for p in watched}

        starts, used = [], []
        for _ in range(o.starts):
            gate.stop()
            gate = start_gateway()
            starts.append(gate.start_seconds)
            used.append(gate.cpu())
            if len(json.loads(urllib.request.urlopen(gateway + "/v1/models").read())["models"]) < o.models:
                raise SystemExit("a gateway is ready without all models")
        out["gateway start"], out["gateway starts"] = max(starts), starts
        out["CPU of a start, s"] = statistics.median(used)
        sie_config.stop()
        sie_config = start_config()
        out["sie-config start"] = sie_config.start_seconds
        files = [p.stat().st_size for p in (folder / "store").iterdir()]
        out["store, files and bytes"] = [len(files), sum(files)]
    return out


def shown(v):
    if isinstance(v, float):
        return f"{v:.3g}"
    if isinstance(v, list):
        return ", ".join(shown(x) for x in v)
    if isinstance(v, dict):
        return ", ".join(f"{k} {shown(x)}" for k, x in v.items())
    return str(v)


def main():
    o = arguments()
    record = {"about": records.about("bench-control"), "models": o.models, "workers": o.workers}
    folder = Path(tempfile.mkdtemp(prefix="sie-control-"))
    try:
        record["measured"] = measured = measure(o, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows, missed = [], []
    for name, (what, unit, most, prediction) in WANTED.items():
        value = measured[name]
        held = "–" if most is None else "met" if value <= most else "MISSED"
        missed += [what] if held == "MISSED" else []
        rows.append((what, f"{value:.3g} {unit}", "–" if most is None else f"≤ {most:g} {unit}",
                     f"{prediction:g} {unit}", held))
    rows += [(name, shown(v), "–", "–", "–") for name, v in measured.items() if name not in WANTED]
    text = (f"{o.models} models, {o.workers} workers, load average at the end {os.getloadavg()[0]:.1f}.\n\n"
            + records.table(("what", "measured", "wanted", "predicted", ""), rows))
    if o.results:
        records.write(o.results, "control", record, text)
    else:
        print(text)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
