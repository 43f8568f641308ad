"""The steps that time: single queries, the server under load and overload, and the peer compiled.
Everybody takes turns."""

import host
import models
import ours
import plan as plans
from measures import quantile
from racers import Failed

PRIMER_SECONDS = 0.5  # unmeasured load before a measured one
# for all that the load step has in flight: what is measured is no refusal
ROOM = ("--max-concurrent-requests", "16384")


def headline(run):
    """The numbers that everybody asks for first: texts of the shortest and the longest length through
    the first models, in process from token ids (what the device does) and over HTTP. Each is saved as
    it comes; what they stand beside is the load step's."""
    load, found, missed = run.load(), {}, []
    lengths = (str(run.plan.lengths[0]), str(run.plan.lengths[-1]))
    for model in run.made()[:2]:
        rows = found[model] = {s: {} for s in lengths}
        server = None
        try:
            for s in lengths:
                racer = run.library(model, s, "--ids")
                try:
                    rows[s]["token ids in process"] = passes(racer, run.plan.turn_seconds)
                finally:
                    racer.close()
                run.results.save("headline", found)
                server = server or run.serve(model, flags=ROOM)
                load.run(server, s, PRIMER_SECONDS, clients=run.plan.clients, per_request=per_request(run, s))
                out = under_load(run, load, server, s, run.plan.clients, per_request(run, s))
                rows[s]["over HTTP"] = out
                run.results.save("headline", found)
                run.say(f"{model}, {s} tokens", rows[s])
                if out["failed"] or out["wrong"] or out["tokens_miscounted"]:
                    missed.append(f"{model}, {s}: {out['failed']} failed, {out['wrong']} wrong, tokens off by "
                                  f"{out['tokens_miscounted']}")
        finally:
            if server:
                server.close()
    return missed


def latency(run):
    """One text at a time: over HTTP and by the library path, each with CUDA graphs and without, and
    the peer."""
    load, found = run.load(), {}
    sets = [f"one-{n}" for n in run.plan.single]
    for model in run.made()[: run.plan.query_models]:
        if not run.time_for_model():
            run.say(f"{model}: no time for it")
            continue
        rows = found.setdefault(model, {s: {} for s in sets})
        racers = {}
        try:
            racers["http, graphs"] = run.serve(model)
            racers["http, no graphs"] = run.serve(model, graphs=False)
            for s in sets:
                racers["library, graphs", s] = run.library(model, s, "--one")
                racers["library, no graphs", s] = run.library(model, s, "--one", graphs=False)
                racers["library, graphs, token ids", s] = run.library(model, s, "--one", "--ids")
            peer, why = peer_or_why(run, model)
            if peer:
                racers["sentence-transformers"] = peer
            else:
                run.say(f"without sentence-transformers: {why}")
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


def peer_or_why(run, model):
    """The peer, or None and why: that it does not run is no fault of ours, and ours is measured
    alone."""
    try:
        return run.peer(model), None
    except Failed as err:
        return None, str(err)


def one_by_one(run, load, name, racer, texts):
    """Milliseconds of single texts, one after the other."""
    if not name.startswith("http"):
        return in_ms(racer.ask(f"default each {texts}" if name.startswith("sentence") else "go")["each"])
    out = load.run(racer, texts, run.plan.turn_seconds, clients=1)
    if out["failed"] or not out["texts"]:
        raise Failed(
            f"{name}: {out['failed']} of {out['requests']} single queries failed: {out.get('errors')}")
    return {"p50_ms": out["p50_ms"], "p99_ms": out["p99_ms"]}


def in_ms(seconds):
    return {"p50_ms": 1e3 * quantile(seconds, 0.5), "p99_ms": 1e3 * quantile(seconds, 0.99)}


def throughput(run):
    """The server under load beside sentence-transformers, in turns: everybody else is stopped
    meanwhile."""
    load, found, missed = run.load(), {}, []
    sets = [str(n) for n in run.plan.lengths] + ["mixed"]
    for model in run.made()[: run.plan.load_models]:
        if not run.time_for_model():
            found[model] = {"left_out": "no time for it", "sets": {}}
            run.results.save("load", found)
            continue
        rows = found[model] = {"settings": {}, "clocks": {}, "sets": {s: {} for s in sets}, "failed": {}}
        servers, offline_ours, peer = {}, {}, None
        try:
            for precision in plans.precisions():
                if precision == "fp8" and run.fp8():
                    rows["failed"][f"ours {precision}"] = run.fp8()
                    continue
                try:
                    servers[f"ours {precision}"] = run.serve(model, precision, flags=ROOM)
                    # the shortest texts and the longest: each is a process to start
                    for s in (sets[0], sets[-2]):
                        label = f"ours {precision}, token ids in process"
                        offline_ours[label, s] = run.library(model, s, "--ids", precision=precision)
                except Failed as err:
                    rows["failed"][f"ours {precision}"] = str(err)
                    missed.append(f"{model} {precision}: {err}")
            if not servers:
                continue
            peer, why = peer_or_why(run, model)
            if not peer:
                rows["failed"]["sentence-transformers"] = why
            for s in sets:
                rows["settings"][s] = {"per_request": per_request(run, s), "clients": run.plan.clients}
                if peer:
                    rows["settings"][s] |= peer.ask(f"best tune {s}")["setting"]
                for name, server in servers.items():
                    with host.clocks_after(PRIMER_SECONDS / 2) as clocks:
                        load.run(server, s, PRIMER_SECONDS, clients=run.plan.clients,
                                 per_request=per_request(run, s))
                    rows["clocks"][f"{s}, {name}"] = clocks
            for turn in range(run.plan.rounds):
                for s in sets:
                    for name, server in servers.items():
                        out = under_load(run, load, server, s, run.plan.clients, per_request(run, s))
                        rows["sets"][s].setdefault(name, []).append(out)
                    # One text a request, from more clients, is how a search front end asks.
                    name, server = next(iter(servers.items()))
                    out = under_load(run, load, server, s, 4 * run.plan.clients, 1)
                    rows["sets"][s].setdefault(f"{name}, 1 text a request", []).append(out)
                    # What the device does, with batching around it: no HTTP, no tokenising.
                    for (name, of), racer in offline_ours.items():
                        if of == s:
                            rows["sets"][s].setdefault(name, []).append(passes(racer, run.plan.turn_seconds))
                    if not peer:
                        continue
                    for which in ("default", "best"):
                        rows["sets"][s].setdefault(f"sentence-transformers {which}", []).append(
                            offline(run, peer, which, s)
                        )
                    calls = peer.ask(f"default calls {s} {per_request(run, s)}")["each"]
                    rows["sets"][s]["sentence-transformers default"][-1] |= in_ms(calls)
                run.results.save("load", found)
                run.say(f"{model}: round {turn + 1} of {run.plan.rounds}")
        finally:
            for racer in [*servers.values(), *offline_ours.values(), peer]:
                if racer:
                    racer.close()
        missed += [
            f"{model}, {s}, {name}: {r['failed']} failed, {r['wrong']} wrong, tokens off by {r['tokens_miscounted']}"
            for s, by in rows["sets"].items() for name, runs in by.items() for r in runs if r.get("failed") or
            r.get("wrong") or r.get("tokens_miscounted")]
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
    return {"tokens_per_second": tokens / out["seconds"], "tokens_miscounted": off} | {
        key: out[key] for key in ("p50_ms", "p99_ms", "texts", "failed", "refused", "wrong",
                                  "generator_cpu_seconds", "seconds")}


def passes(racer, seconds):
    """Whole passes of a library process over its set for about so many seconds, after one that is
    not counted."""
    once = racer.ask("go")["seconds"]
    done = [racer.ask("go") for _ in range(max(1, min(200, round(seconds / once))))]
    return {"tokens_per_second": sum(d["tokens"] for d in done) / sum(d["seconds"] for d in done)}


def overload(run):
    """Ten times the requests that a few clients get answered, at a fixed rate whatever comes back:
    what is kept of the peak. No answer may be wrong or lost, and every refusal must say when to
    come back."""
    load, found, missed = run.load(), {}, []
    s = str(run.plan.lengths[0])
    per, seconds = per_request(run, s), 2 * run.plan.turn_seconds
    for model in run.made()[: run.plan.query_models]:
        server, rows = run.serve(model), []
        found[model] = {"texts": s, "per_request": per, "rows": rows}
        try:
            load.run(server, s, PRIMER_SECONDS, clients=run.plan.clients, per_request=per)
            for _ in range(run.plan.rounds):
                peak = load.run(server, s, seconds, clients=run.plan.clients, per_request=per)
                rate = 10 * peak["requests"] / peak["seconds"]
                out = load.run(
                    server, s, seconds, clients=run.plan.overload_clients, per_request=per, rate=rate
                )
                kept = (out["texts"] / out["seconds"] / out["left"]) / (
                    peak["texts"] / peak["seconds"] / peak["left"])
                rows.append({"kept": kept, "rate": rate} | {
                    k: out[k] for k in ("texts", "failed", "refused", "held_back", "wrong", "seconds")})
                if out["failed"] or out["wrong"] or out["no_retry_after"]:
                    missed.append(
                        f"{model}: {out['failed']} failed, {out['wrong']} wrong, {out['no_retry_after']} refused "
                        "without Retry-After")
                run.results.save("overload", found)
            run.say(model, rows)
        finally:
            server.close()
    return missed


def offline(run, peer, which, name):
    """Whole passes over a set for about a turn."""
    tokens = sum(map(models.tokens, run.texts(name)))
    once = peer.ask(f"{which} go {name} 1")["seconds"]
    times = max(1, min(200, round(run.plan.turn_seconds / once)))
    return {"tokens_per_second": tokens * times / peer.ask(f"{which} go {name} {times}")["seconds"]}


def compiled(run):
    """The peer with torch.compile, in turns with itself without. Compiling may not work, or take
    longer than there is time: then the results say so, and nothing of ours is wrong."""
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
