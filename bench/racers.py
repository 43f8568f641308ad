"""Processes that take turns. Only the one whose turn it is may run: the others are stopped, so that
no thread pool that spins after its work takes time from the next engine."""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess

PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """An engine that ended, or answered nothing in time; the text ends with what it said last."""


def die_with_parent():
    """For preexec_fn: a stopped child would otherwise outlive an interrupted race."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def child(cpus=None):
    """For preexec_fn: dies with its parent, and runs on these CPUs alone where they are given."""

    def start():
        die_with_parent()
        if cpus:
            os.sched_setaffinity(0, cpus)

    return start


class Racer:
    """A process of the line protocol of peer.py and `sie-server race`; created running, held after
    its first answer."""

    def __init__(self, name, command, env, log, ready_within=900):
        self.name, self.log = name, log
        with open(log, "wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=err, env=env, preexec_fn=die_with_parent)
        self.buffer = b""
        try:
            self.ready = self._answer(ready_within)
            self._signal(signal.SIGSTOP)
        except BaseException:
            self.close()
            raise

    def ask(self, line, within=300):
        with self.turn():
            self._send(line)
            return self._answer(within)

    @contextlib.contextmanager
    def turn(self):
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def _signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def _send(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("ended") from None

    def _answer(self, within):
        out = self.process.stdout
        while b"\n" not in self.buffer:
            if not select.select([out], [], [], within)[0]:
                raise self._failure(f"gave no answer in {within} s")
            part = os.read(out.fileno(), 1 << 16)
            if not part:
                raise self._failure("ended")
            self.buffer += part
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def _failure(self, what):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            said = [line.strip() for line in f.read()[-4000:].splitlines() if line.strip()]
        return Failed(f"{self.name} {what}: {said[-1] if said else 'it said nothing'}")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()


class Peer(Racer):
    """A peer: one process holds all sets of texts."""

    def tune(self, name):
        return self.ask(f"tune {name}", 600)["setting"]

    def tune_each(self, name):
        return self.ask(f"tune-each {name}", 600)["setting"]

    def go(self, name, times):
        return self.ask(f"go {name} {times}", 600)["seconds"]

    def each(self, name):
        return self.ask(f"each {name}", 600)["each"]

    def vectors(self, name, path):
        self.ask(f"vectors {name} {path}", 600)

    def answers(self, name):
        return self.ask(f"answers {name}", 600)["answers"]


class Ours:
    """Our library path: `sie-server race` knows one set of texts, so there is a process for each,
    started when first asked for. tokens is what the server's tokenizer counted in the last pass."""

    def __init__(self, name, command, files, env, log):
        self.name, self.command, self.files, self.env, self.log = name, command, files, env, log
        self.running, self.tokens = {}, 0

    def _racer(self, name, *flags):
        key = (name, *flags)
        if key not in self.running:
            command = [*self.command, str(self.files[name]), *flags]
            self.running[key] = Racer(
                f"{self.name} on {name}", command, self.env, f"{self.log}-{name}{''.join(flags)}.log"
            )
        return self.running[key]

    def tune(self, name):
        self.go(name, 1)  # unmeasured, as the peers' first runs are
        return {"precision": self._racer(name).ready["precision"]}

    def tune_each(self, name):
        self.each(name)
        return {"precision": self._racer(name, "--one").ready["precision"]}

    def go(self, name, times):
        racer = self._racer(name)
        answers = [racer.ask("go") for _ in range(times)]
        self.tokens = answers[-1]["tokens"]
        return sum(a["seconds"] for a in answers)

    def each(self, name):
        return self._racer(name, "--one").ask("go")["each"]

    def drop(self, name):
        """Ends the processes of a set of texts: each holds the weights."""
        for key in [k for k in self.running if k[0] == name]:
            self.running.pop(key).close()

    def close(self):
        for racer in self.running.values():
            racer.close()
