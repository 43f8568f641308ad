"""The steps: each measures one thing and saves it. A step returns what is not as it must be, in words."""

import json
import os
import subprocess
import time
from pathlib import Path

import host
import models
import ours
import plan as plans
import quality as judge
from measures import quantile
from racers import Failed, Racer
from results import disguise

HERE = Path(__file__).resolve().parent
PRIMER_SECONDS = 0.5  # unmeasured load before a measured one


class Run:
    """A plan, the folder that models and texts live in, and the results."""

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

    def serve(self, model, precision=None, graphs=True):
        precision = precision or self.precision
        log = self.log(f"serve-{model}-{precision}{'' if graphs else '-no-graphs'}")
        return ours.Serving(precision, model, self.model(model), log, graphs)

    def peer(self, model, *flags):
        command = [host.python(), "-B", str(HERE / "torch_side.py"), str(self.model(model)), str(self.file("all")), *flags]
        return Racer(f"sentence-transformers, {model}", command, None, self.log(f"peer-{model}{''.join(flags)}"), self.left())

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


def prepare(run):
    """Models and texts, and the reference's vectors: fp32, and bf16 to show what the type alone costs."""
    import numpy as np

    import torch_side

    texts = models.sets(run.plan)
    run.file("all").parent.mkdir(parents=True, exist_ok=True)
    for name, some in texts.items():
        run.file(name).write_text(json.dumps(some))
    (run.work / "quality.txt").write_text("\n".join(texts["quality"]) + "\n")
    run.file("all").write_text(json.dumps(texts))
    found = {"versions": torch_side.versions(), "models": {}}
    for seed, (name, shape) in enumerate(run.plan.shapes.items(), start=1):
        start = time.perf_counter()
        part = run.work / "models" / f"{name}.part"
        part.mkdir(parents=True, exist_ok=True)
        models.write(shape, part, seed, torch_side.device())
        part.rename(run.model(name))
        for kind in ("float32", "bfloat16"):
            np.save(run.work / f"{name}-{kind}.npy", torch_side.vectors(run.model(name), kind, texts["quality"]))
        found["models"][name] = vars(shape)
        run.results.save("prepare", found)
        run.say(f"{name} made", {"seconds": time.perf_counter() - start})
    return []


def quality(run):
    """Ours against PyTorch fp32 on the same card, every model in every precision; PyTorch bf16 beside."""
    import numpy as np

    found, missed = {}, []
    for precision in plans.precisions():
        for model in run.made():
            reference = np.load(run.work / f"{model}-float32.npy")
            row = found.setdefault(model, {"pytorch bf16": judge.compare(np.load(run.work / f"{model}-bfloat16.npy"), reference)})
            if precision == "fp8" and run.fp8():
                row[precision] = {"absent": run.fp8()}
                continue
            out = run.work / f"{model}-{precision}.npy"
            try:
                ours.encode(precision, model, run.model(model), run.work / "quality.txt", out, 120)
            except Failed as err:
                row[precision] = {"failed": str(err)}
                wrong = [str(err)]
            else:
                row[precision] = judge.compare(np.load(out), reference)
                wrong = [f"{model} {precision}: {w}" for w in judge.misses(precision, row[precision])]
            missed += wrong
            shown = row[precision].get("cosine_min")
            run.say(f"{model} {precision}: " + (f"smallest cosine {shown:.6f}" if shown else "; ".join(wrong)))
            run.results.save("quality", found)
    return missed


def latency(run):
    """One text at a time: over HTTP and by the library path, each with CUDA graphs and without, and the peer."""
    load, found = run.load(), {}
    sets = [f"one-{n}" for n in run.plan.single]
    for model in run.made()[: run.plan.query_models]:
        if not run.time_for_model():
            break
        rows = found.setdefault(model, {s: {} for s in sets})
        racers = {}
        try:
            racers["http, graphs"] = run.serve(model)
            racers["http, no graphs"] = run.serve(model, graphs=False)
            for s in sets:
                for graphs in (True, False):
                    label = "graphs" if graphs else "no graphs"
                    racers[f"library, {label}", s] = ours.library(
                        run.precision, model, run.model(model), run.file(s), run.log(f"race-{model}-{s}-{label}"), graphs
                    )
            racers["sentence-transformers"] = run.peer(model)
            for turn in range(run.plan.query_rounds + 1):
                for s in sets:
                    for key, racer in racers.items():
                        name, of = key if isinstance(key, tuple) else (key, s)
                        if of != s:
                            continue
                        row = one_by_one(run, load, name, racer, s)
                        if turn:  # the first round wakes everything up: graphs are captured, caches filled
                            rows[s].setdefault(name, []).append(row)
                run.results.save("latency", found)
        finally:
            for racer in racers.values():
                racer.close()
        run.say(model, rows)
    return []


def one_by_one(run, load, name, racer, texts):
    """Milliseconds of single texts, one after the other."""
    if not name.startswith("http"):
        return in_ms(racer.ask(f"default each {texts}" if name.startswith("sentence") else "go")["each"])
    out = load.run(racer, texts, run.plan.turn_seconds, clients=1)
    if out["failed"] or not out["texts"]:
        raise Failed(f"{name}: {out['failed']} of {out['requests']} single queries failed: {out.get('errors')}")
    return {"p50_ms": out["p50_ms"], "p99_ms": out["p99_ms"]}


def in_ms(seconds):
    return {"p50_ms": 1e3 * quantile(seconds, 0.5), "p99_ms": 1e3 * quantile(seconds, 0.99)}


def memory(run):
    """Device bytes and resident memory after two numbers of random batches. Nothing may stay behind."""
    first, second = run.plan.memory_marks
    longest = str(run.plan.lengths[-1])
    # Texts, clients, texts a request: from single short texts, whose batches are graphs, to batches at the bound.
    mixes = [("random", 1, 1), (f"one-{run.plan.single[0]}", 1, 1), ("random", 4, 3), ("mixed", 8, 2), ("random", 16, 7), (longest, 6, 8)]
    model = "minilm" if "minilm" in run.made() else run.made()[0]
    load, found, missed = run.load(), {"model": model, "readings": []}, []
    server = run.serve(model)
    try:
        for mark in (first, second):
            done, turn = 0, 0
            while done < mark or turn % len(mixes):
                texts, clients, each = mixes[turn % len(mixes)]
                out = load.run(server, texts, run.plan.turn_seconds / 3, clients=min(clients, 4 * run.plan.clients), per_request=each)
                if out["failed"] or out["wrong"] or out["refused"]:
                    missed.append(f"{texts}, {clients} clients × {each}: {out['failed']} failed, {out['refused']} refused, {out['wrong']} wrong")
                with server.turn():
                    done = int(server.metrics().get("sie_device_batch_items_count", 0))
                turn += 1
            with server.turn():
                time.sleep(1)  # the collector gives back what the load left
                readings = [reading(server) for _ in range(3)]
            found["readings"].append({"batches": done, **readings[-1], "rss_bytes": min(r["rss_bytes"] for r in readings)})
            run.results.save("memory", found)
            run.say(f"after {done} batches", readings[-1])
    finally:
        server.close()
    return missed + grown(found["readings"], plans.device() != "cpu")


def reading(server):
    values = server.metrics()
    return {"device_bytes": values.get("sie_device_memory_used_bytes"), "rss_bytes": server.memory()["rss"]}


def grown(readings, on_card):
    """What the memory step must not find."""
    before, after = readings[0], readings[-1]
    out = []
    if on_card and None in (before["device_bytes"], after["device_bytes"]):
        out.append("/metrics has no sie_device_memory_used_bytes: device memory cannot be compared")
    elif before["device_bytes"] != after["device_bytes"]:
        more = after["device_bytes"] - before["device_bytes"]
        out.append(f"device memory changed by {more:.0f} bytes between {before['batches']} and {after['batches']} batches")
    more = after["rss_bytes"] - before["rss_bytes"]
    if more > plans.RSS_BYTES:
        out.append(f"resident memory grew by {more / 2**20:.1f} MiB; at most {plans.RSS_BYTES >> 20} MiB is allowed")
    return out


def throughput(run):
    """The server under load beside sentence-transformers, in turns: everybody else is stopped meanwhile."""
    load, found, missed = run.load(), {}, []
    sets = [str(n) for n in run.plan.lengths] + ["mixed"]
    for model in run.made()[: run.plan.load_models]:
        if not run.time_for_model():
            found[model] = {"left_out": "no time for it", "sets": {}}
            run.results.save("load", found)
            continue
        rows = found[model] = {"settings": {}, "sets": {s: {} for s in sets}, "failed": {}}
        servers, peer = {}, None
        try:
            for precision in plans.precisions():
                if precision == "fp8" and run.fp8():
                    rows["failed"][f"ours {precision}"] = run.fp8()
                    continue
                try:
                    servers[f"ours {precision}"] = run.serve(model, precision)
                except Failed as err:
                    rows["failed"][f"ours {precision}"] = str(err)
                    missed.append(f"{model} {precision}: {err}")
            peer = run.peer(model)
            for s in sets:
                rows["settings"][s] = {"per_request": per_request(run, s), "clients": run.plan.clients,
                                       **peer.ask(f"best tune {s}")["setting"]}
                for server in servers.values():
                    load.run(server, s, PRIMER_SECONDS, clients=run.plan.clients, per_request=per_request(run, s))
            for turn in range(run.plan.rounds):
                for s in sets:
                    for name, server in servers.items():
                        out = under_load(run, load, server, s, run.plan.clients, per_request(run, s))
                        rows["sets"][s].setdefault(name, []).append(out)
                    # One text a request, from more clients, is how a search front end asks.
                    name, server = next(iter(servers.items()))
                    out = under_load(run, load, server, s, 4 * run.plan.clients, 1)
                    rows["sets"][s].setdefault(f"{name}, 1 text a request", []).append(out)
                    for which in ("default", "best"):
                        rows["sets"][s].setdefault(f"sentence-transformers {which}", []).append(offline(run, peer, which, s))
                    calls = peer.ask(f"default calls {s} {per_request(run, s)}")["each"]
                    rows["sets"][s]["sentence-transformers default"][-1] |= in_ms(calls)
                rows.setdefault("clocks", []).append(host.clocks())
                run.results.save("load", found)
                run.say(f"{model}: round {turn + 1} of {run.plan.rounds}")
        finally:
            for racer in [*servers.values(), peer]:
                if racer:
                    racer.close()
        missed += [f"{model}, {s}, {name}: {r['failed']} failed, {r['wrong']} wrong, tokens off by {r['tokens_miscounted']}"
                   for s, by in rows["sets"].items() for name, runs in by.items() for r in runs
                   if r.get("failed") or r.get("wrong") or r.get("tokens_miscounted")]
    return missed


def per_request(run, name):
    """Texts of a request, so that requests of every set have about the same number of tokens."""
    texts = run.texts(name)
    mean = sum(map(models.tokens, texts)) / len(texts)
    return max(1, min(len(texts), round(run.plan.request_tokens / mean)))


def under_load(run, load, server, name, clients, per):
    with server.turn():
        before = server.metrics().get("sie_tokens_processed_total", 0)
    out = load.run(server, name, run.plan.turn_seconds, clients=clients, per_request=per)
    with server.turn():
        tokens = server.metrics()["sie_tokens_processed_total"] - before
    # Where all texts are of one length we know how many tokens there were.
    length = {models.tokens(t) for t in run.texts(name)}
    off = int(tokens - out["texts"] * length.pop()) if len(length) == 1 and not out["failed"] else 0
    return {"tokens_per_second": tokens / out["seconds"], "tokens_miscounted": off}  | {
        key: out[key] for key in ("p50_ms", "p99_ms", "texts", "failed", "refused", "wrong", "generator_cpu_seconds", "seconds")}


def offline(run, peer, which, name):
    """Whole passes over a set for about a turn."""
    tokens = sum(map(models.tokens, run.texts(name)))
    once = peer.ask(f"{which} go {name} 1")["seconds"]
    times = max(1, min(200, round(run.plan.turn_seconds / once)))
    return {"tokens_per_second": tokens * times / peer.ask(f"{which} go {name} {times}")["seconds"]}


def compiled(run):
    """The peer with torch.compile, in turns with itself without. Compiling may not work, or take longer than there is
    time: then the results say so, and nothing of ours is wrong."""
    model = run.made()[0]
    found, peer = {"model": model, "settings": {}, "sets": {}}, None
    try:
        peer = run.peer(model, "--compile")
        for s in (str(run.plan.lengths[1]), "mixed"):
            rows = found["sets"][s] = {"best": [], "compiled": []}
            for which in rows:
                found["settings"][f"{s}, {which}"] = peer.ask(f"{which} tune {s}", run.left() - 5)["setting"]
            for _ in range(run.plan.rounds):
                for which in rows:
                    rows[which].append(offline(run, peer, which, s))
            run.results.save("compiled", found)
            run.say(s, rows)
    except Failed as err:
        found["absent"] = str(err)
        run.results.save("compiled", found)
        run.say(f"not measured: {err}")
    finally:
        if peer:
            peer.close()
    return []


def doctor(run):
    """What our binary says of this host, for the record, and that it can leave out graphs: latency measures both."""
    command, missed, says = [ours.program("sie-server"), "doctor", "--device", plans.device()], [], {}
    for name, graphs in (("graphs", True), ("no graphs", False)):
        done = subprocess.run(command, capture_output=True, text=True, env=ours.environment(graphs), timeout=60)
        says[name] = (done.stdout + done.stderr).splitlines()
        if done.returncode:
            missed.append(f"sie-server doctor: {ours.last(done.stderr)}")
    run.results.save("doctor", says)
    run.say("\n".join(says["graphs"]))
    if not missed and plans.device() != "cpu" and "no CUDA graphs" not in " ".join(says["no graphs"]):
        missed.append("doctor says nothing of graphs that SIE_CUDA_GRAPHS=off leaves out")
    return missed


STEPS = {"doctor": doctor, "prepare": prepare, "quality": quality, "memory": memory, "latency": latency, "load": throughput, "compiled": compiled}
