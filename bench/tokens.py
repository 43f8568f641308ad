#!/usr/bin/env python3
"""Ids-only tokenizing on one core: ours beside the tokenizers library's own batch calls, in turns.

    make bench-tokenizers                    # about a minute; writes results/<cpu>-tokenizers.md
    make bench-tokenizers BENCHFLAGS='--rounds 21 mistral'

Each family has the small vocabulary of testdata/golden/tokenizer-files. The library's pipeline is the
one that transformers makes of the same files. A round is one pass of each over the same texts; the
ratio is that of the round, the table has medians. Ids are compared before anything is timed.
"""

import argparse
import gzip
import hashlib
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"

import machine
import records
import texts

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "testdata/golden/tokenizer-files"
CASES = ["bert", "mpnet/plain", "roberta/plain", "modernbert/plain", "qwen/added", "llama3/plain",
         "deberta/plain", "xlmr/plain", "t5/plain", "albert/plain", "deberta2/lower", "mistral/plain",
         "gemma/plain"]
WANTED = 0.9


def fill(folder, case):
    """Writes the files of a case. deberta2 is compared where class and converter agree (ADR 0034)."""
    if case == "bert":
        for file in (ROOT / "testdata/golden/tokenizer/minilm").iterdir():
            if file.name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
                (folder / file.name).write_bytes(file.read_bytes())
        return
    family, name = case.split("/")
    for file in (GOLDEN / family).iterdir():
        if file.suffix != ".gz":
            (folder / file.name).write_bytes(file.read_bytes())
        elif not file.name.endswith(".json.gz") or file.name == "vocab.json.gz":
            (folder / file.name[:-3]).write_bytes(gzip.decompress(file.read_bytes()))
    golden = json.loads(gzip.decompress((GOLDEN / family / f"{name}.json.gz").read_bytes()))
    for file, value in golden["files"].items():
        (folder / file).write_text(json.dumps(value), encoding="utf-8")


def library(folder, case):
    """The library's tokenizer as transformers makes it of the files."""
    import transformers
    transformers.logging.set_verbosity_error()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    name = config["tokenizer_class"].removesuffix("Fast")
    kind = getattr(transformers, name, transformers.AutoTokenizer)
    if name.startswith("PreTrained"):
        kind = transformers.AutoTokenizer
    backend = kind.from_pretrained(folder).backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return backend


def passage_texts():
    """Passages of 200 words and more, and short queries: what a server gets."""
    import re
    words = lambda text: len(re.findall(r"\w+|[^\w\s]", text))  # noqa: E731
    return texts.passages(384, words) + texts.short_queries(512)


def race(case, rounds, program):
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        fill(folder, case)
        theirs = library(folder, case)
        all_texts = passage_texts()
        ours = subprocess.Popen([program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ours.stdin.write(json.dumps(all_texts).encode() + b"\n")

        def our_pass():
            ours.stdin.write(b"\n")
            ours.stdin.flush()
            took, tokens, ids = ours.stdout.readline().split()
            return float(took), int(tokens), ids.decode()

        def their_pass(call):
            start = time.perf_counter()
            encoded = call(all_texts)
            return time.perf_counter() - start, encoded

        _, tokens, ids = our_pass()
        encoded = their_pass(theirs.encode_batch)[1]
        flat = [i for e in encoded for i in e.ids]
        same = hashlib.sha256(struct.pack(f"<{len(flat)}i", *flat)).hexdigest() == ids
        their_pass(theirs.encode_batch_fast)
        times = {"ours": [], "batch": [], "fast": []}
        for k in range(rounds):
            turn = [("ours", lambda: our_pass()[0]), ("batch", lambda: their_pass(theirs.encode_batch)[0]),
                    ("fast", lambda: their_pass(theirs.encode_batch_fast)[0])]
            for name, one in turn[k % 3:] + turn[:k % 3]:
                times[name].append(one())
        ours.stdin.close()
        ours.wait()
        ratio = {name: statistics.median(b / a for a, b in zip(times["ours"], times[name]))
                 for name in ("batch", "fast")}
        return {"case": case, "texts": len(all_texts), "tokens": tokens, "same_ids": same, "rounds": rounds,
                "tokens_per_s": {n: round(tokens / statistics.median(t)) for n, t in times.items()},
                "ratio": {n: round(r, 3) for n, r in ratio.items()}, "seconds": times}


def table(record):
    lines = ["# Tokenizing on one core, ids only", "",
             f"{record['machine']}; `{record['command']}`; tokenizers {record['tokenizers']}, "
             f"transformers {record['transformers']}; {record['rounds']} rounds in turns; medians of the "
             "round-by-round ratios (above 1: ours is faster). Small vocabularies of 2,500 tokens, "
             "BERT's own of 30,522.", "",
             "| family | ours, tokens/s | encode_batch | encode_batch_fast | to encode_batch | "
             "to the fast call | ids |", "|---|---|---|---|---|---|---|"]
    for r in record["families"]:
        s = r["tokens_per_s"]
        ratio = f"{r['ratio']['batch']:.2f} | {r['ratio']['fast']:.2f}"
        speed = " | ".join(f"{s[n]:,}" for n in ("ours", "batch", "fast"))
        lines.append(f"| {r['case']} | {speed} | {ratio} | "
                     f"{'equal' if r['same_ids'] else 'OTHER'} |")
    return "\n".join(lines + ["", "```", record["lscpu"].strip(), "```"]) + "\n"


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--rounds", type=int, default=11)
    args.add_argument("--out", type=Path, default=ROOT / "bench/results")
    args.add_argument("cases", nargs="*")
    args = args.parse_args()
    cpu = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})  # ours inherits it
    os.environ["GOMAXPROCS"] = "1"
    import tokenizers
    import transformers
    program = str(ROOT / "bin/tools/tokenize")
    cases = [c for c in CASES if not args.cases or c.split("/")[0] in args.cases]
    families = [race(c, args.rounds, program) for c in cases]
    lscpu = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    keep = [line for line in lscpu.splitlines()
            if line.startswith(("Architecture", "CPU(s)", "Model name", "Thread", "Core", "L1d", "L2", "L3"))]
    record = {"machine": machine.cpu_name(lscpu), "command": "make bench-tokenizers", "rounds": args.rounds,
              "tokenizers": tokenizers.__version__, "transformers": transformers.__version__,
              "families": families, "lscpu": "\n".join(keep)}
    print(table(record))
    bad = [f["case"] for f in families if not f["same_ids"] or f["ratio"]["batch"] < WANTED]
    if not args.cases:
        name = machine.slug(record["machine"]) + "-tokenizers"
        (args.out / f"{name}.md").write_text(table(record), encoding="utf-8")
        for f in families:
            f["seconds"] = {n: [round(x, 6) for x in t] for n, t in f["seconds"].items()}
        (args.out / f"{name}.json").write_text(records.dumps(record), encoding="utf-8")
    if bad:
        sys.exit(f"below {WANTED} of encode_batch, or with other ids: {', '.join(bad)}")


if __name__ == "__main__":
    main()
