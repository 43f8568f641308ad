"""Our server as its users see it: started here, loaded over HTTP by bench/load, watched through
/proc and /metrics."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

from racers import Failed, child

MIB = 1 << 20


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url, within=5):
    with urllib.request.urlopen(url, timeout=within) as r:
        return r.read().decode()


class Server:
    """A running server, ready to answer; held (stopped) outside turn(). cpus: those it may run on,
    default all."""

    def __init__(self, command, model, env, log, ready_within=60, cpus=None):
        self.url, self.model, self.log = f"http://127.0.0.1:{free_port()}", model, log
        with open(log, "ab") as out:
            start = time.perf_counter()
            self.process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "-p", self.url.rsplit(":", 1)[1], "--preload", model],
                stdout=out,
                stderr=out,
                env=env,
                preexec_fn=child(cpus),
            )
        try:
            self._wait(start + ready_within)
            self.ready_seconds = time.perf_counter() - start
            self.weights = self._weights()
            self.hold()
        except BaseException:
            self.close()
            raise

    def _wait(self, until):
        while time.perf_counter() < until:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError, urllib.error.URLError):
                get(self.url + "/readyz", 1)
                return
            time.sleep(0.003)
        said = Path(self.log).read_text(encoding="utf-8", errors="replace").splitlines()
        raise Failed(f"the server did not become ready: {said[-1] if said else 'it said nothing'}")

    def _weights(self):
        """Bytes of the packed weights."""
        found = re.search(r"^sie_model_memory_bytes\{[^}]*\} (\S+)$", get(self.url + "/metrics"), re.M)
        if not found:
            raise Failed("the model is not loaded: /metrics has no sie_model_memory_bytes")
        return float(found.group(1))

    def memory(self):
        """Resident bytes now and at most since start, and how much of it is file pages."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        kib = {k: int(v) * 1024 for k, v in re.findall(r"^(\w+):\s+(\d+) kB$", status, re.M)}
        return {"rss": kib["VmRSS"], "peak": kib["VmHWM"], "file": kib["RssFile"]}

    def hold(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def turn(self):
        self.process.send_signal(signal.SIGCONT)
        try:
            yield self
        finally:
            self.hold()

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


class Remote:
    """A server that somebody else runs; it can't be held between turns."""

    def __init__(self, dialect, url, model):
        self.dialect, self.url, self.model = dialect, url, model

    @contextlib.contextmanager
    def turn(self):
        yield self

    def close(self):
        pass


class Load:
    """Runs the load generator; texts are the files of the sets by name. own: CPUs that are the
    generator's alone, where the server has others; by default they share `cpus` CPUs."""

    def __init__(self, binary, files, cpus, own=None):
        self.binary, self.files, self.cpus, self.own = str(binary), files, cpus, own

    def run(self, server, name, seconds, clients=64, rate=0.0, per_request=1, dialect=None):
        """One run and the share of the machine's CPU time that it left to the server."""
        command = [
            self.binary,
            "-url",
            server.url,
            "-dialect",
            dialect or getattr(server, "dialect", "sie"),
            "-model",
            server.model,
            "-texts",
            str(self.files[name]),
            "-clients",
            str(clients),
            "-per-request",
            str(per_request),
            "-duration",
            f"{seconds:.2f}s",
            "-verify",
        ]
        if rate:
            command += ["-rate", f"{rate:.3f}"]
        with server.turn():
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=seconds + 300, preexec_fn=child(self.own)
            )
        if done.returncode:
            raise Failed(f"load on {server.url}: {done.stderr.strip()[-300:]}")
        report = json.loads(done.stdout)
        taken = 0 if self.own else report["generator_cpu_seconds"] / (self.cpus * report["seconds"])
        report["left"] = 1 - taken
        return report


def starts(command, model, env, log, times):
    """Seconds from exec to the first 200 of /readyz, weights in the page cache, once per start."""
    seconds = []
    for _ in range(times):
        server = Server(command, model, env, log)
        seconds.append(server.ready_seconds)
        server.close()
    return seconds


def clean_env():
    """The environment without settings of ours, which would change what is measured."""
    return {k: v for k, v in os.environ.items() if not k.startswith("SIE_")}
