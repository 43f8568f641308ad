"""A cluster on this machine: real processes, started by `sie-gateway dev` and ended with whoever
started it. Standard library only: benches use it too."""
import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
TICK = os.sysconf("SC_CLK_TCK")


def die_with_parent():
    """For preexec_fn: what a test starts ends with it, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG; dev drains what it started


class Cluster:
    """A running cluster. models: as `-m` takes them, a list. env: settings of all its processes.
    url is its first gateway's; logs() are the logs of all of them."""

    def __init__(self, *flags, models=(), workers=2, env=None, patience=600, bin_dir=ROOT / "bin"):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="sie-", dir="/tmp"))  # short, for its sockets
        self.patience = patience
        command = [str(bin_dir / "sie-gateway"), "dev", "start", "--port", "0", "--workers", str(workers),
                   "--state-dir", str(self.dir), *flags]
        for m in models:
            command += ["--model", m]
        self.out = open(self.dir / "dev.out", "w+b")
        begun = time.monotonic()
        self.proc = subprocess.Popen(command, stdout=self.out, stderr=self.out,
                                     env={**os.environ, **(env or {})}, preexec_fn=die_with_parent)
        try:
            while not self.ready(workers):
                if not self.alive() or time.monotonic() - begun > patience:
                    raise RuntimeError("the cluster did not start:\n" + self.text())
                time.sleep(0.05)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - begun
        self.url = self.state()["gateways"][0]["url"]
        self.port = int(self.url.rsplit(":", 1)[1])

    def state(self):
        """What cluster.json says, or None before there is one."""
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.dir / "cluster.json").read_text())

    def ready(self, workers):
        """Whether the gateway and all workers would take work."""
        state = self.state()
        if not state or len(state.get("workers") or []) < workers:
            return False
        pages = [g["url"] + "/readyz" for g in state["gateways"]]
        pages += [w["probe_url"].removesuffix("/readyz") + "/readyz" for w in state["workers"]]
        return all(answers(url) for url in pages)

    def alive(self):
        return self.proc.poll() is None

    def text(self):
        """The end of every log, for messages."""
        return "\n".join(f"== {name}\n{text[-3000:]}" for name, text in self.logs().items())

    def logs(self):
        """All that every process has written, by file."""
        return {str(p.relative_to(self.dir)): p.read_text(errors="replace")
                for p in sorted(self.dir.rglob("*")) if p.is_file() and p.suffix in (".log", ".out")}

    def pids(self):
        """Process ids by role."""
        state = self.state()
        workers = state.get("workers") or []
        brokers = state["nats"] if isinstance(state["nats"], list) else [state["nats"]]
        return {"gateway": [g["pid"] for g in state["gateways"]], "nats": [n["pid"] for n in brokers],
                "config": [state["config"]["pid"]] if state.get("config") else [],
                "sidecar": [w["sidecar_pid"] for w in workers], "server": [w["server_pid"] for w in workers],
                "dev": [self.proc.pid]}

    def cpu(self):
        """Seconds of CPU that the processes have used, by role."""
        return {role: sum(cpu(pid) for pid in pids) for role, pids in self.pids().items()}

    def rss(self):
        """Resident bytes of the processes, by role."""
        return {role: sum(rss(pid) for pid in pids) for role, pids in self.pids().items()}

    @contextlib.contextmanager
    def context(self):
        try:
            yield self
            assert self.alive(), "the cluster ended:\n" + self.text()
        finally:
            self.stop()

    def stop(self):
        """Asks it to drain, and returns its exit code. Its folder goes when that is 0."""
        if self.alive():
            self.proc.send_signal(signal.SIGTERM)
        try:
            code = self.proc.wait(timeout=self.patience)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            code = self.proc.wait()
        self.out.close()
        if code == 0:
            shutil.rmtree(self.dir, ignore_errors=True)
        return code


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as r:
            return r.status == 200
    except (OSError, urllib.error.URLError):
        return False


def cpu(pid):
    """Seconds of CPU that a process has used, or 0 where it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


def rss(pid):
    try:
        for line in open(f"/proc/{pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0
