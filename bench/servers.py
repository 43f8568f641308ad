"""Races our server against sie-server 0.10.1 as published, over HTTP: both started here with the
same weights, stopped between their turns, asked for the same texts by the same load generator.
Prints a table and writes it, with the whole record, into bench/results/. README.md says what that
leaves out.
"""

import argparse
import contextlib
import math
import shlex
import sys
from pathlib import Path

import machine
import measures
import race
import records
import report
from goals import MIN_HTTP, middle, name_of, pair
from options import ROOT
from racers import Failed
from served import Load, Server, clean_env

PUBLISHED = "sie-server 0.10.1"
PRECISIONS = ("fp32", "bf16", "int8")
# The model's entry of the published catalogue, with the weights of this machine: no hub is asked.
ENTRY = """\
sie_id: {model}
weights_path: {weights}
inputs: {{text: true}}
tasks: {{encode: {{dense: {{dim: 384}}}}}}
max_sequence_length: 256
profiles:
  default:
    max_batch_tokens: 16384
    adapter_path: sie_server.adapters.sentence_transformer:SentenceTransformerDenseAdapter
    adapter_options: {{runtime: {{pooling: mean, normalize: true}}}}
"""


class Published(Server):
    """It takes our flags; /metrics it has none."""

    def _weights(self):
        return math.nan


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--class", dest="classes", choices=("best", *machine.CLASSES), default="best")
    p.add_argument("--quick", action="store_true", help="short turns, for a look; not for results to quote")
    p.add_argument("--rounds", type=int, default=0, help="rounds of turns; default 5, 2 with --quick")
    p.add_argument("--precisions", type=lambda s: s.split(","), default=PRECISIONS,
                   help="only these of ours: fp32, bf16, int8")
    p.add_argument("--published", type=Path, default=Path(sys.executable).with_name("sie-server"),
                   help="its program")
    p.add_argument("--server", type=Path, default=ROOT / "bin" / "sie-server", help="our binary")
    p.add_argument("--weights", type=Path, default=ROOT / "build" / "models" / "all-MiniLM-L6-v2")
    p.add_argument("--load", type=Path, default=ROOT / "build" / "sie-load",
                   help="where the load generator is built")
    p.add_argument("--results", type=Path, default=ROOT / "bench" / "results",
                   help="where results are written")
    args = p.parse_args()
    args.threads, args.model = 0, "sentence-transformers/all-MiniLM-L6-v2"
    if unknown := set(args.precisions) - set(PRECISIONS):
        p.error(f"unknown precisions {', '.join(sorted(unknown))}: {', '.join(PRECISIONS)}")
    return args


def open_servers(stack, run, args, kind):
    """Ours at every precision of the class, by name, and the published one, all held."""
    servers, env = {}, clean_env()
    for p in (p for p in kind["precisions"] if p in args.precisions):
        command = [
            *[str(args.server), "serve", "-m", f"{run.model}={args.weights}", "--threads", str(run.threads)],
            *["--isa", kind["isa"], "--precision", p],
        ]
        servers[f"sie-http-{p}"] = Server(command, run.model, env, run.out / f"servers-{p}.log")
        stack.callback(servers[f"sie-http-{p}"].close)
    catalogue = run.out / "published-models"
    catalogue.mkdir(exist_ok=True)
    (catalogue / "model.yaml").write_text(ENTRY.format(model=run.model, weights=args.weights.resolve()))
    if kind["onednn"]:
        env["ONEDNN_MAX_CPU_ISA"] = kind["onednn"]
    servers[PUBLISHED] = Published(
        [str(args.published), "serve", "-d", "cpu", "--models-dir", str(catalogue)],
        run.model,
        env | {"HF_HUB_OFFLINE": "1", "SIE_TELEMETRY_DISABLED": "1"},
        run.out / "servers-published.log",
        ready_within=300,
    )
    stack.callback(servers[PUBLISHED].close)
    return servers


def single(run, servers, load, record):
    """One short query after the other, from one client."""
    for r in range(run.rounds):
        for name, server in servers.items():
            record["single"].setdefault(name, []).append(load.run(server, "one", run.http_seconds, clients=1))
        run.say(f"one short query: round {r + 1} of {run.rounds}")


def rows(record):
    """A row for each shape of load and each server of ours: both sides' tokens per second, and the
    ratio."""
    for shape, servers in record["http"].items():
        theirs = [r["tokens_per_second"] for r in servers[PUBLISHED]]
        for name in (n for n in servers if n != PUBLISHED):
            runs = [r["tokens_per_second"] for r in servers[name]]
            mid, low, high = pair(runs, theirs)
            yield [
                *[shape, name_of(name), f"{middle(runs):,.0f}", f"{middle(theirs):,.0f}"],
                *[f"{mid:.2f}× ({low:.2f} to {high:.2f})", "met" if mid >= MIN_HTTP else "**missed**"],
            ]


def markdown(record):
    about = record["about"]
    refused = sum(r["refused"] + r["failed"] for s in record["http"].values() for runs in s.values()
                  for r in runs)
    single = ", ".join(
        f"{name_of(n)} {middle([r['p50_ms'] for r in runs]):.2f}" for n, runs in record["single"].items()
    )
    return "\n\n".join([
        f"# {about['cpu']}, class {record['class']}, against {PUBLISHED}",
        f"{about['date']} · {about['threads']} threads · kernel {about['kernel']} · commit {about['commit']} · "
        f"`{about['command']}` · {about['rounds']} rounds"
        f"{' · quick: a look, not a result' if about['quick'] else ''} · load average at the start "
        f"{about['load_at_start']:.1f}",
        f"Real tokens per second over HTTP, medians; the load generator's share of the CPU is in both. Wanted: "
        f"≥ {MIN_HTTP}×. Requests refused or failed: {refused}.",
        records.table(["texts, clients × texts a request", "ours", "tokens/s", PUBLISHED, "ratio", ""],
                      rows(record)),
        f"One short query, p50 ms: {single}.",
    ])


def main():
    args = arguments()
    if not args.published.exists():
        raise Failed(f"{args.published} is not there: make bench-sie installs it")
    with race.alone(), contextlib.ExitStack() as stack:
        run = race.Race(args)
        name = machine.classes(args.classes)[0]
        command = "make bench-sie" + (f" BENCHFLAGS={shlex.quote(' '.join(sys.argv[1:]))}" if sys.argv[1:]
                                      else "")
        record = {"about": race.about(run, args, command), "class": name, "http": {}, "single": {}}
        race.build_load(run, args)
        stack.enter_context(records.kept(record, args.results, f"{name}-sie-server"))
        servers = open_servers(stack, run, args, machine.CLASSES[name])
        load = Load(args.load, run.files, run.threads)
        measures.over_http(run, servers, load, record)
        single(run, servers, load, record)
        text = markdown(record) + "\n"
        base = args.results / f"{machine.slug(record['about']['cpu'])}-{name}-sie-server"
        base.with_suffix(".json").write_text(records.dumps(record), encoding="utf-8")
        base.with_suffix(".md").write_text(text, encoding="utf-8")
        print(text)


if __name__ == "__main__":
    try:
        main()
    except Failed as err:
        sys.exit(f"bench: {err}")
    except KeyboardInterrupt:
        sys.exit("bench: interrupted")
