"""The steps. Each does one thing, saves what it finds, and returns what is not as it must be, in
words. Those that time are in speed.py."""

import json
import subprocess
import time

import models
import ours
import plan as plans
import quality as judge
import speed
from racers import Failed


def doctor(run):
    """What our binary says of this host, for the record, and that it can leave out graphs: latency
    measures both."""
    command, missed, says = [ours.program("sie-server"), "doctor", "--device", plans.device()], [], {}
    for name, graphs in (("graphs", True), ("no graphs", False)):
        done = subprocess.run(command, capture_output=True, text=True, env=ours.environment(graphs),
                              timeout=60)
        says[name] = (done.stdout + done.stderr).splitlines()
        if done.returncode:
            missed.append(f"sie-server doctor: {ours.last(done.stderr)}")
    run.results.save("doctor", says)
    run.say("\n".join(says["graphs"]))
    if not missed and plans.device() != "cpu" and "no CUDA graphs" not in " ".join(says["no graphs"]):
        missed.append("doctor says nothing of graphs that SIE_CUDA_GRAPHS=off leaves out")
    return missed


def prepare(run):
    """Models and texts, and the reference's vectors: fp32, and bf16 to show what the type alone
    costs."""
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
            np.save(run.work / f"{name}-{kind}.npy",
                    torch_side.vectors(run.model(name), kind, texts["quality"]))
        found["models"][name] = vars(shape)
        run.results.save("prepare", found)
        run.say(f"{name} made", {"seconds": time.perf_counter() - start})
    return []


def quality(run):
    """Ours against PyTorch fp32 on the same card, every model in every precision; PyTorch bf16
    beside."""
    import numpy as np

    found, missed = {}, []
    for precision in plans.precisions():
        for model in run.made():
            reference = np.load(run.work / f"{model}-float32.npy")
            row = found.setdefault(
                model, {"pytorch bf16": judge.compare(np.load(run.work / f"{model}-bfloat16.npy"), reference)}
            )
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
            run.say(f"{model} {precision}: " +
                    (f"smallest cosine {shown:.6f}" if shown else "; ".join(wrong)))
            run.results.save("quality", found)
    return missed


def memory(run):
    """Device bytes and resident memory after two numbers of random batches. Nothing may stay
    behind."""
    first, second = run.plan.memory_marks
    longest = str(run.plan.lengths[-1])
    # Texts, clients, texts a request: from single short texts, whose batches are graphs, to batches
    # at the bound.
    mixes = [
        ("random", 1, 1),
        (f"one-{run.plan.single[0]}", 1, 1),
        ("random", 4, 3),
        ("mixed", 8, 2),
        ("random", 16, 7),
        (longest, 6, 8),
    ]
    model = "minilm" if "minilm" in run.made() else run.made()[0]
    load, found, missed = run.load(), {"model": model, "readings": []}, []
    server = run.serve(model)
    try:
        for mark in (first, second):
            done, turn = 0, 0
            while done < mark or turn % len(mixes):
                texts, clients, each = mixes[turn % len(mixes)]
                out = load.run(
                    server,
                    texts,
                    run.plan.turn_seconds / 3,
                    clients=min(clients, 4 * run.plan.clients),
                    per_request=each,
                )
                if out["failed"] or out["wrong"] or out["refused"]:
                    missed.append(
                        f"{texts}, {clients} clients × {each}: {out['failed']} failed, {out['refused']} refused, {out['wrong']} wrong")
                with server.turn():
                    done = int(server.metrics().get("sie_device_batch_items_count", 0))
                turn += 1
            with server.turn():
                time.sleep(1)  # the collector gives back what the load left
                readings = [reading(server) for _ in range(3)]
            found["readings"].append(
                {"batches": done, **readings[-1], "rss_bytes": min(r["rss_bytes"] for r in readings)}
            )
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
        out.append(
            f"device memory changed by {more:.0f} bytes between {before['batches']} and {after['batches']} batches")
    more = after["rss_bytes"] - before["rss_bytes"]
    if more > plans.RSS_BYTES:
        out.append(
            f"resident memory grew by {more / 2**20:.1f} MiB; at most {plans.RSS_BYTES >> 20} MiB is allowed")
    return out


STEPS = {
    "doctor": doctor,
    "prepare": prepare,
    "headline": speed.headline,
    "latency": speed.latency,
    "load": speed.throughput,
    "overload": speed.overload,
    "memory": memory,
    "quality": quality,
    "compiled": speed.compiled,
}
