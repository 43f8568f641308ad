"""The measurements of one class: each fills its part of the result, a plain dictionary that
report.py reads."""

import statistics
import time

import numpy as np

from racers import Failed
from served import MIB, starts

SETS = ("short", "passage", "mixed")
QUEUE = 2048  # items that our server queues by default: an overload must last until it is full


def median(values):
    return statistics.median(values) if values else float("nan")


def quantile(values, p):
    ordered = sorted(values)
    return ordered[int(p * (len(ordered) - 1))]


def tune(race, racers, result):
    """Every engine's best settings, and how often it passes over a set to fill its turn. Drops
    engines that fail."""
    times = {}
    for name, racer in list(racers.items()):
        try:
            chosen = {s: racer.tune(s) for s in SETS}
            chosen["one"] = racer.tune_each("one")
            for s in SETS:
                times[name, s] = max(1, min(64, round(race.turn_seconds / racer.go(s, 1))))
        except Failed as err:
            racers.pop(name).close()
            result["failed"][name] = str(err)
            race.say(f"{name} left the race: {err}")
            continue
        result["settings"][name] = chosen
        race.say(f"{name}: {chosen['passage']}")
    return times


def throughput(race, racers, times, tokens, result):
    """Tokens per second, engines in turns: A B C, A B C, …"""
    for s in SETS:
        result["throughput"][s] = {name: [] for name in racers}
    for r in range(race.rounds):
        for s in SETS:
            for name, racer in racers.items():
                n = times[name, s]
                result["throughput"][s][name].append(n * tokens[s] / racer.go(s, n))
                if name.startswith("sie-") and racer.tokens != tokens[s]:
                    result["failed"][name] = f"{s}: counted {racer.tokens} tokens, the tokenizers library {tokens[s]}"
        race.say(f"throughput: round {r + 1} of {race.rounds}")


def single(race, racers, servers, load, result):
    """One short query after the other: in process, and over HTTP from one client. HTTP also at a
    low fixed rate, where latency counts from when a request was due and the CPU has gone to sleep
    meanwhile."""
    rows = result["single"]
    for r in range(race.rounds):
        for name, racer in racers.items():
            ms = [1e3 * t for t in racer.each("one")[2:]]  # the first two wake the caches up
            rows.setdefault(name, []).append({"p50_ms": quantile(ms, 0.5), "p99_ms": quantile(ms, 0.99)})
        for name, server in servers.items():
            for label, how in ((name, {"clients": 1}), (f"{name}-20rps", {"clients": 64, "rate": 20})):
                out = load.run(server, "one", race.http_seconds, **how)
                rows.setdefault(label, []).append(
                    {k: out.get(k) for k in ("p50_ms", "p99_ms", "outside_p50_ms", "tokenize_share_p50",
                                             "failed", "refused")}
                )
        race.say(f"one short query: round {r + 1} of {race.rounds}")


def quality(race, racers, encode, result):
    """Smallest and mean cosine to sentence-transformers fp32 on texts that nothing was calibrated
    on. encode(name, path) makes ours write its vectors to path."""

    def unit(path):
        v = np.load(path).astype(np.float64)
        return v / np.linalg.norm(v, axis=1, keepdims=True)

    reference, kept = "sentence-transformers-fp32", {}
    for name in sorted(racers, key=lambda n: n != reference):
        path = race.out / f"vectors-{name}.npy"
        encode(name, path) if name.startswith("sie-") else racers[name].vectors("held", path)
        kept[name] = unit(path)
        if reference in kept:
            cosine = (kept[name] * kept[reference]).sum(1)
            result["quality"][name] = {"min": float(cosine.min()), "mean": float(cosine.mean()),
                                       "texts": len(cosine)}
    race.say("quality: " + ", ".join(f"{n} {q['min']:.5f}" for n, q in result["quality"].items()))


def clients64(race, racer, server, load, tokens, times, result):
    """64 closed-loop clients with one passage per request, in turns with the offline passes of the
    library path."""
    rows = []
    load.run(server, "passage", 1)  # unmeasured
    for r in range(race.rounds):
        offline = times * tokens["passage"] / racer.go("passage", times)
        out = load.run(server, "passage", race.http_seconds, clients=64)
        out["tokens_per_second"] = out["texts"] * race.mean_tokens("passage") / out["seconds"]
        out["offline"] = offline
        out["share"] = out["tokens_per_second"] / (offline * out["left"])
        rows.append(out)
        race.say(f"64 clients: round {r + 1} of {race.rounds}: {out['share']:.3f} of offline")
    result["clients64"] = rows
    result["memory"] = {**server.memory(), "weights": server.weights}


def overload(race, server, load, result):
    """Ten times the requests that 64 clients got answered, sent at a fixed rate whatever comes
    back. Several times, so that memory which each burst leaves behind would show beside what the
    collector lets one heap size vary."""
    peak = [row["tokens_per_second"] / row["left"] for row in result["clients64"]]
    requests = median([row["texts"] / row["seconds"] / row["left"] for row in result["clients64"]])
    seconds = min(60, max(2 * race.http_seconds, 3 * QUEUE / (10 * requests)))
    runs = []
    for _ in range(4 if race.quick else 6):
        before = server.memory()
        out = load.run(server, "passage", seconds, clients=3000, rate=10 * requests)
        with server.turn():
            time.sleep(1)
        out["rate"] = 10 * requests
        out["tokens_per_second"] = out["texts"] * race.mean_tokens("passage") / out["seconds"]
        out["kept"] = out["tokens_per_second"] / out["left"] / median(peak)
        out["memory_before"], out["memory_after"] = before, server.memory()
        runs.append(out)
        race.say(
            f"overload: {out['kept']:.3f} of peak kept, {out['refused']} refused, {out['failed']} failed, {out['wrong']} "
            f"wrong, {out['memory_after']['rss'] / MIB:.0f} MiB")
    result["overload"] = runs


def start_up(race, command, env, result):
    seconds = starts(command, race.model, env, race.out / "starts.log", 2 if race.quick else 5)
    result["start_seconds"] = seconds
    race.say(f"start to ready: {median(seconds):.3f} s")


def over_http(race, servers, load, result):
    """Servers in turns: 8 clients with 16 texts a request on every set, and 64 clients with one
    passage each."""
    shapes = [(s, 8, 16) for s in SETS] + [("passage", 64, 1)]
    for name, server in servers.items():
        # unmeasured, and says early that a peer is not there
        load.run(server, "passage", 1, clients=8, per_request=16)
    for r in range(race.rounds):
        for s, clients, per_request in shapes:
            for name, server in servers.items():
                out = load.run(server, s, race.http_seconds, clients=clients, per_request=per_request)
                out["tokens_per_second"] = out["texts"] * race.mean_tokens(s) / out["seconds"]
                result["http"].setdefault(f"{s} {clients}x{per_request}", {}).setdefault(name, []).append(out)
        race.say(f"over HTTP: round {r + 1} of {race.rounds}")
