"""What every step has: a plan, the folder that models and texts live in, and the results."""

import json
import os
import time
from pathlib import Path

import host
import ours
import plan as plans
from racers import Failed, Racer
from results import disguise

HERE = Path(__file__).resolve().parent


class Run:
    def __init__(self, plan, work, results):
        self.plan, self.work, self.results = plan, work, results
        self.logs = work / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.precision = plans.precisions()[0]
        self.until = time.monotonic() + float(os.environ.get("SIE_GPU_STEP_SECONDS", "inf"))

    def left(self):
        """Seconds that the step has, at most ten minutes."""
        return min(600, self.until - time.monotonic())

    def time_for_model(self):
        return self.left() > self.plan.model_seconds

    def model(self, name):
        return self.work / "models" / name

    def file(self, name):
        return self.work / "texts" / f"{name}.json"

    def texts(self, name):
        return json.loads(self.file(name).read_text())

    def log(self, name):
        return str(self.logs / f"{name}.log")

    def made(self):
        """Names of the models that prepare has finished."""
        names = [n for n in self.plan.shapes if (self.model(n) / "modules.json").exists()]
        if not names or not self.file("all").exists():
            raise Failed("there are no models and texts: the step prepare has not ended well")
        return names

    def serve(self, model, precision=None, graphs=True, flags=()):
        precision = precision or self.precision
        log = self.log(f"serve-{model}-{precision}{'' if graphs else '-no-graphs'}")
        return ours.Serving(precision, model, self.model(model), log, graphs, flags)

    def library(self, model, texts, *flags, precision=None, graphs=True):
        precision = precision or self.precision
        log = self.log(f"race-{model}-{precision}-{texts}{''.join(flags)}{'' if graphs else '-no-graphs'}")
        return ours.library(precision, model, self.model(model), self.file(texts), log, *flags, graphs=graphs)

    def peer(self, model, *flags):
        command = [
            host.python(),
            "-B",
            str(HERE / "torch_side.py"),
            str(self.model(model)),
            str(self.file("all")),
            *flags,
        ]
        return Racer(f"sentence-transformers, {model}", command, None,
                     self.log(f"peer-{model}{''.join(flags)}"), self.left())

    def load(self):
        sets = [n.stem for n in (self.work / "texts").glob("*.json")]
        return ours.load({name: self.file(name) for name in sets})

    def last_words(self):
        """The last line of the log that was written last."""
        logs = sorted(self.logs.glob("*.log"), key=lambda p: p.stat().st_mtime)
        return f"{logs[-1].name}: {ours.last(logs[-1].read_text(errors='replace'))}" if logs else "no logs"

    def fp8(self):
        """None where the card can, else why not."""
        capability = host.capability()
        return f"compute capability {capability} has no fp8" if capability and capability < 8.9 else None

    def say(self, text, found=None):
        """For the step's log; found is measured, so a rehearsal hides it here, too."""
        if found is not None:
            text += ": " + json.dumps(disguise(found) if self.plan.rehearsal else found)
        print(text, flush=True)
