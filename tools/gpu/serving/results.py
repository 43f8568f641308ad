"""Where results go: a file for each step, written again whenever there is more, so that a step
whose time is up leaves what it has. In a rehearsal no file holds a number that could be taken for a
measurement."""

import json
import math
import os

WARNING = (
    "REHEARSAL: no GPU was used. The kernels ran on a CPU, thread by thread, over a stand-in driver, on toy models. "
    "Nothing in this file was measured; times, rates and bytes are replaced by the word rehearsal.")
# Steps whose numbers a rehearsal hides.
MEASURED = ("headline", "load", "latency", "overload", "compiled", "memory")
COUNTED = ("failed", "refused", "held_back", "wrong", "batches", "texts", "clients", "per_request", "batch",
           "tokens_miscounted")


def disguise(value, key=""):
    """A copy with the word rehearsal for every number but counts; a number that is none is an error
    all the same."""
    if isinstance(value, dict):
        return {k: disguise(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [disguise(v, key) for v in value]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or key in COUNTED:
        return value
    if not math.isfinite(value):
        raise ValueError(f"{key} is {value}")
    return "rehearsal"


class Results:
    def __init__(self, folder, rehearsal):
        self.folder, self.rehearsal = folder, rehearsal
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, step, found):
        if self.rehearsal and step in MEASURED:
            found = disguise(found)
        put(self.folder / f"{step}.json", found)

    def load(self, step):
        path = self.folder / f"{step}.json"
        return json.loads(path.read_text()) if path.exists() else None


def put(path, value):
    """Whole or not at all; NaN is no JSON."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")
    os.replace(part, path)
