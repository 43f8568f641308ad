"""The flags of race.py."""

import argparse
from pathlib import Path

import engines
import machine

ROOT = Path(__file__).resolve().parent.parent


def arguments(about):
    p = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    peer = lambda s: (
        tuple(s.split("=", 1))
        if s.split("=", 1)[0] in ("tei", "sie", "openai") and "=http" in s
        else p.error(f"--peer {s}: use tei=URL, sie=URL or openai=URL")
    )
    p.add_argument(
        "--class",
        dest="classes",
        choices=("best", "all", *machine.CLASSES),
        default="best",
        help="instruction set class to race; best: the machine's own; all: every one it can show",
    )
    p.add_argument("--quick", action="store_true",
                   help="about four minutes, for a look; not for results to quote")
    p.add_argument("--rounds", type=int, default=0, help="rounds of turns; default 5, 2 with --quick")
    p.add_argument("--threads", type=int, default=0, help="threads of every engine; default: all usable CPUs")
    p.add_argument(
        "--peer",
        type=peer,
        action="append",
        default=[],
        help="a server to race over HTTP: tei=URL, sie=URL or openai=URL",
    )
    p.add_argument(
        "--engines",
        type=lambda s: s.split(","),
        default=[],
        help="only these in-process peers: " + ", ".join(engines.ENGINES),
    )
    p.add_argument(
        "--precisions",
        type=lambda s: s.split(","),
        default=["fp32", "bf16", "int8"],
        help="only these of ours: fp32, bf16, int8",
    )
    p.add_argument("--server", type=Path, default=ROOT / "bin" / "sie-server", help="our binary")
    p.add_argument(
        "--model", default="sentence-transformers/all-MiniLM-L6-v2", help="the id that servers are asked for"
    )
    p.add_argument("--weights", type=Path, default=ROOT / "build" / "models" / "all-MiniLM-L6-v2",
                   help="its directory")
    p.add_argument("--cache", type=Path, default=ROOT / "build" / "bench-cache",
                   help="where exported models are kept")
    p.add_argument("--load", type=Path, default=ROOT / "build" / "sie-load",
                   help="where the load generator is built")
    p.add_argument("--results", type=Path, default=ROOT / "bench" / "results",
                   help="where results are written")
    args = p.parse_args()
    for path, how in ((args.server, "make build"), (args.weights / "config.json", "make minilm")):
        if not path.exists():
            p.error(f"{path} is not there: run {how}")
    unknown = [*(set(args.engines) - set(engines.ENGINES)),
               *(set(args.precisions) - {"fp32", "bf16", "int8"})]
    if unknown:
        p.error(
            f"unknown: {', '.join(unknown)}; engines are {', '.join(engines.ENGINES)}; precisions fp32, bf16, int8")
    if not 0 <= args.rounds <= 100:
        p.error("--rounds must be between 1 and 100")
    return args
