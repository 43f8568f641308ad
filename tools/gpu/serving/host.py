"""What the run ran on: card, driver, clocks, versions, commit."""

import contextlib
import datetime
import functools
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import machine

FIELDS = (
    "name",
    "driver_version",
    "compute_cap",
    "memory.total",
    "vbios_version",
    "ecc.mode.current",
    "power.limit",
    "clocks.max.sm",
    "clocks.max.mem",
    "persistence_mode",
    "mig.mode.current",
)
CLOCKS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw", "clocks_event_reasons.active")


def python():
    return sys.executable


def ask(fields):
    """Values of the first card by nvidia-smi; empty without one. A field this nvidia-smi does not
    know costs the field."""
    if rehearsed():
        return {}
    values = query(fields)
    return values or {f: v for f in fields for v in query((f,)).values()}


def query(fields):
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "-i", "0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [v.strip() for v in done.stdout.strip().split(",")]
    return dict(zip(fields, values)) if done.returncode == 0 and len(values) == len(fields) else {}


def rehearsed():
    return bool(os.environ.get("SIE_GPU_REHEARSE"))


@functools.cache
def capability():
    """As 9.0, or None where nobody says."""
    try:
        return float(ask(("compute_cap",)).get("compute_cap", ""))
    except ValueError:
        return None


def clocks():
    return ask(CLOCKS)


@contextlib.contextmanager
def clocks_after(seconds):
    """Yields a dictionary that has the clocks of a moment within the block, once the block is
    left."""
    found = {}
    timer = threading.Timer(seconds, lambda: found.update(clocks()))
    timer.start()
    try:
        yield found
    finally:
        timer.join()


def describe(bundle):
    """bundle: the text of bundle.txt, which says what the programs were built from."""
    commit = re.search(r"^commit (.*)$", bundle, re.M)
    card = ask(FIELDS) or {"name": "no card: a rehearsal" if rehearsed() else "unknown"}
    return {
        "card": card,
        "clocks": clocks(),
        "host": {k: v for k, v in machine.describe().items() if k not in ("commit", "lscpu")},
        "commit": commit.group(1) if commit else "unknown",
        "bundle": bundle.splitlines(),
        "command": os.environ.get("SIE_GPU_COMMAND", " ".join(sys.argv)),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def slug(facts):
    return "rehearsal" if rehearsed() else machine.slug(facts["card"]["name"])


def bundle_text(folder):
    path = Path(folder) / "bundle.txt"
    return path.read_text() if path.exists() else ""
