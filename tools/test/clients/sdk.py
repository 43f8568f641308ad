"""Runs the programs sdk_*.py with a release of the official SDK. Each is a process of its own, forked
from one that has imported the release: to import it takes two seconds.

As a program, with the release on PYTHONPATH, it reads a line of JSON for each program that it is to
run: its arguments and the file for what it says. It answers with a line at its end: its exit status."""
import ctypes
import json
import os
import pathlib
import runpy
import select
import signal
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
NEWEST = "0.10.1"  # the release that build/venv-clients itself has
VERSIONS = ["0.3.4", "0.6.30", NEWEST]


def die_with_parent():
    """For preexec_fn: what a test starts ends with it, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Release:
    """A process that has imported a release. It runs one program at a time, and ends with the tests."""

    def __init__(self, version, folder):
        self.version, self.folder, self.runs, self.running = version, folder, 0, False
        env = dict(os.environ)
        if version != NEWEST:
            env["PYTHONPATH"] = str(pathlib.Path(sys.prefix) / f"sdk-{version}")
        self.process = subprocess.Popen([sys.executable, __file__], env=env, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, preexec_fn=die_with_parent)

    def start(self, program, *arguments):
        """Starts a program of this folder. Returns the file for what it says."""
        if self.running:  # nobody has waited for it: its test has failed
            self.process.stdout.readline()
        self.runs, self.running = self.runs + 1, True
        out = self.folder / f"{self.version}-{self.runs}"
        out.touch()
        command = [str(HERE / program), *map(str, arguments)]
        print(json.dumps([command, str(out)]), file=self.process.stdin, flush=True)
        return out

    def ended(self):
        """Whether the program that was started has ended."""
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def end(self, out, patience):
        """Waits for the end of the program that was started, which must be a good one."""
        limit = threading.Timer(patience, self.process.kill)
        limit.start()
        status, self.running = self.process.stdout.readline(), False
        limit.cancel()
        said = out.read_text()
        assert status == "0\n" and f"ok {self.version}" in said, f"{said}\nexit status {status or 'unknown'}"

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def serve():
    """Forks for each line. Returns in a child, with its arguments, and at the end of the input."""
    for line in sys.stdin:
        command, out = json.loads(line)
        if (child := os.fork()) == 0:
            die_with_parent()
            file = os.open(out, os.O_WRONLY)
            os.dup2(file, 1)
            os.dup2(file, 2)
            return command
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    import sie_sdk  # noqa: F401

    if command := serve():
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
