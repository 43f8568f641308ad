"""Our binary on the card: one-shot encoding, a server, and the library path, all through its
command line."""

import os
import re
import subprocess
from pathlib import Path

import machine
import plan
from racers import Failed, Racer, die_with_parent
from served import Load, Server, clean_env, get

KEPT = ("SIE_LIBCUDA", "SIE_STANDIN")  # how a rehearsal names its stand-in driver


def program(name):
    return str(Path(os.environ["SIE_GPU_BIN"]) / name)


def environment(graphs=True):
    """Ours, without settings that the caller's shell may hold and that would change what is
    measured."""
    env = clean_env() | {k: v for k, v in os.environ.items() if k.startswith(KEPT)}
    return env if graphs else env | {"SIE_CUDA_GRAPHS": "off"}


def command(verb, precision, model, folder):
    named = f"gpu-check/{model}"
    chosen = ["--device", plan.device(), "--precision", precision, "-m", f"{named}={folder}"]
    return named, [program("sie-server"), verb, *chosen]


def encode(precision, model, folder, lines, out, within):
    """Writes the vectors of a file of lines as .npy; raises Failed with what the program said
    last."""
    named, start = command("encode", precision, model, folder)
    try:
        done = subprocess.run(
            [*start, "-M", named, "--file", str(lines), "--out", str(out)],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=within,
            preexec_fn=die_with_parent,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"sie-server encode, {model} {precision}: no end after {within} s") from None
    if done.returncode:
        raise Failed(
            f"sie-server encode, {model} {precision}: {last(done.stderr) or f'exit {done.returncode}'}")


def last(said):
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


class Serving(Server):
    """A server with one model. As in bench/, it is stopped (SIGSTOP) outside turn()."""

    def __init__(self, precision, model, folder, log, graphs=True, flags=()):
        named, start = command("serve", precision, model, folder)
        super().__init__([*start, *flags], named, environment(graphs), log, cpus=cpus()[0])

    def metrics(self):
        """Sum of each metric over its labels, and the samples with their labels as they stand."""
        return parse(get(self.url + "/metrics"))


def parse(text):
    found = {}
    for name, labels, value in re.findall(r"^(\w+)(\{[^}]*\})? (\S+)$", text, re.M):
        found[name] = found.get(name, 0.0) + float(value)
        if labels:
            found[name + labels] = float(value)
    return found


def library(precision, model, folder, texts, log, *flags, graphs=True):
    """A process that encodes all texts for each line it is asked. --one: one after the other;
    --ids: tokenised before."""
    named, start = command("race", precision, model, folder)
    return Racer(f"ours, {model}", [*start, str(texts), "--model", named, *flags], environment(graphs), log)


def cpus():
    """The server's CPUs and the load generator's own, a quarter; None twice where there are too few
    to part."""
    mine = sorted(os.sched_getaffinity(0))[: machine.usable_cpus()]
    if len(mine) < 8:
        return None, None
    own = len(mine) // 4
    return set(mine[:-own]), set(mine[-own:])


def load(files):
    return Load(program("sie-load"), files, machine.usable_cpus(), cpus()[1])
