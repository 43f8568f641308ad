"""Races a build of this tree against a build of an earlier commit: the same texts, the same
weights, in turns.

It says whether a change costs time, and whether it changes a bit of any vector. Nothing but
Python's own library is needed.
"""

import argparse
import array
import contextlib
import hashlib
import http.client
import json
import random
import shutil
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

import machine
import records
import texts
from racers import Failed, Ours
from served import Server, clean_env

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "bench-against"
MINILM = ROOT / "build" / "models" / "all-MiniLM-L6-v2"
SETS = ("short", "passage", "mixed")
QUERY = "which instrument measures the pressure of the air before a storm"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("base", help="the commit to race against")
    p.add_argument("--rounds", type=int, default=15, help="turns of each build")
    p.add_argument("--threads", type=int, default=machine.usable_cpus(), help="threads of each build")
    p.add_argument("--seconds", type=float, default=0.8, help="about the length of a turn")
    p.add_argument("--precisions", type=lambda s: s.split(","),
                   help="of fp32, bf16, int8; default: those of this CPU's class")
    p.add_argument("--results", type=Path, help="a folder to write table and record to")
    args = p.parse_args()
    args.kind = machine.CLASSES[machine.classes("best")[0]]
    args.precisions = args.precisions or args.kind["precisions"]
    return args


def build(commit):
    """The server of a commit, built in a work tree that is kept for the next run."""
    found = subprocess.run(["git", "rev-parse", "--verify", "--short=12", commit + "^{commit}"], cwd=ROOT,
                           capture_output=True, text=True)
    if found.returncode:
        raise Failed(f"there is no commit {commit}: {found.stderr.strip()}")
    commit = found.stdout.strip()
    tree = OUT / commit
    if not (tree / "Makefile").exists():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "-q", "--detach", str(tree), commit], cwd=ROOT, check=True)
        (tree / "build").mkdir()
        # taken as they are where nothing they are made of differs
        for name in ("libsie_tokenizers.a", "libsie_tokenizers.stamp"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copy2(ROOT / "build" / name, tree / "build" / name)
    print(f"bench: building {commit}", file=sys.stderr, flush=True)
    subprocess.run(["make", "-s", "-C", str(tree), "build"], check=True)
    return commit, tree / "bin" / "sie-server"


def make_sets():
    """Texts by set. Lengths are counted in words, four tokens to three words."""
    count = lambda text: len(text.split()) * 4 // 3
    sets = {"short": texts.short_queries(256), "passage": texts.passages(96, count),
            "mixed": texts.mixed(96, count), "one": texts.short_queries(66, seed=41)}
    files = {}
    for name, s in sets.items():
        files[name] = OUT / f"{name}.json"
        files[name].write_text(json.dumps(s), encoding="utf-8")
    return sets, files


def read_checkpoint(path):
    """A safetensors file as its header and its data."""
    data = path.read_bytes()
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n])
    header.pop("__metadata__", None)
    return header, data[8 + n :]


def write_checkpoint(path, header, data, added):
    """The same with more f32 tensors: name → shape and values."""
    header, parts, end = {f"bert.{k}": v for k, v in header.items()}, [data], len(data)
    for name, (shape, values) in added.items():
        raw = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + len(raw)]}
        parts.append(raw)
        end += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def make_heads():
    """MiniLM with a classifier of one label, and with a masked-language head that fires for about
    one word in a hundred."""
    dice = random.Random(1)
    normal = lambda n, width: [dice.gauss(0, width) for _ in range(n)]
    config = json.loads((MINILM / "config.json").read_text())
    c, v = config["hidden_size"], config["vocab_size"]
    header, data = read_checkpoint(MINILM / "model.safetensors")
    begin, end = header["embeddings.word_embeddings.weight"]["data_offsets"]
    width = statistics.pstdev(array.array("f", data[begin:end])[:: 1009])
    heads = {
        "judge": ("BertForSequenceClassification",
                  {"classifier.weight": ([1, c], normal(c, 0.02)), "classifier.bias": ([1], [0.0])}),
        "sparse": ("BertForMaskedLM", {
            "cls.predictions.transform.dense.weight": ([c, c], normal(c * c, c**-0.5)),
            "cls.predictions.transform.dense.bias": ([c], [0.0] * c),
            "cls.predictions.transform.LayerNorm.weight": ([c], [1.0] * c),
            "cls.predictions.transform.LayerNorm.bias": ([c], [0.0] * c),
            "cls.predictions.bias": ([v], [-3.4 * width * c**0.5] * v)}),
    }
    for name, (architecture, added) in heads.items():
        folder = OUT / name
        folder.mkdir(exist_ok=True)
        more = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}} if name == "judge" else {}
        (folder / "config.json").write_text(json.dumps(config | {"architectures": [architecture]} | more))
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (folder / file).write_bytes((MINILM / file).read_bytes())
        write_checkpoint(folder / "model.safetensors", header, data, added)
    kind = "sentence_transformers.sparse_encoder.models."
    modules = [("", "MLMTransformer"), ("1_SpladePooling", "SpladePooling")]
    (OUT / "sparse" / "modules.json").write_text(
        json.dumps([{"idx": i, "name": str(i), "path": path, "type": kind + name}
                    for i, (path, name) in enumerate(modules)]))
    (OUT / "sparse" / "1_SpladePooling").mkdir(exist_ok=True)
    (OUT / "sparse" / "1_SpladePooling" / "config.json").write_text(
        json.dumps({"pooling_strategy": "max", "activation_function": "relu"}))
    return OUT / "judge", OUT / "sparse"


def ask(server, path, body, tries=60):
    """Seconds to the answer, and the answer without its timing."""
    with server.turn():
        c = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=120)
        begun = time.perf_counter()
        c.request("POST", path, json.dumps(body),
                  {"Content-Type": "application/json", "Accept": "application/json"})
        r = c.getresponse()
        said = r.read()
        took = time.perf_counter() - begun
        c.close()
    if r.status == 503 and tries:  # the model is being loaded
        time.sleep(0.5)
        return ask(server, path, body, tries - 1)
    if r.status != 200:
        raise Failed(f"{path}: {r.status} {said[:300]!r}")
    answer = json.loads(said)
    answer.pop("timing", None)
    return took, json.dumps(answer, sort_keys=True)


def over_http(args, builds, sets, record):
    """Reranking and sparse encoding over HTTP."""
    judge, sparse = make_heads()
    asked = {"score": ("/v1/score/judge",
                       {"query": {"text": QUERY}, "items": [{"text": t} for t in sets["passage"]]}),
             "sparse": ("/v1/encode/sparse", {"items": [{"text": t} for t in sets["passage"]],
                                              "params": {"output_types": ["sparse"]}})}
    with contextlib.ExitStack() as stack:
        servers = {}
        for name, binary in builds.items():
            command = [str(binary), "serve", "-m", f"judge={judge},sparse={sparse}", "--no-hf-fallback",
                       "--precision", "fp32", "--threads", str(args.threads), "--isa", args.kind["isa"]]
            servers[name] = Server(command, "judge", clean_env(), OUT / f"server-{name}.log")
            stack.callback(servers[name].close)
        for task, (path, body) in asked.items():
            for server in servers.values():
                ask(server, path, body)  # unmeasured
            rows, answers = {name: [] for name in builds}, {}
            for r in range(args.rounds):
                for name in turns(builds, r):
                    took, answers[name] = ask(servers[name], path, body)
                    rows[name].append(len(sets["passage"]) / took)
            record["rates"][f"fp32 {task} over HTTP"] = rows
            record["same_bits"][task] = len(set(answers.values())) == 1
            if task == "sparse":
                weights = [len(i["sparse"]["indices"]) for i in json.loads(answers["now"])["items"]]
                record["sparse_weights_a_text"] = statistics.mean(weights)
                if min(weights) == 0:
                    raise Failed("the sparse head fires for no word: nothing was compared")
            say(f"{task}: {ratio(rows)}")


def in_process(args, builds, files, record):
    """The library path: tokenising, forward pass, pooling."""
    for precision in args.precisions:
        racers = {}
        try:
            for name, binary in builds.items():
                command = [str(binary), "race", "-m", f"minilm={MINILM}", "--threads", str(args.threads),
                           "--isa", args.kind["isa"], "--precision", precision, "--model", "minilm"]
                racers[name] = Ours(name, command, files, clean_env(), OUT / f"{name}-{precision}")
            for s in SETS:
                passes = max(1, min(
                    64, round(args.seconds / min(r.go(s, 1) + r.go(s, 1) for r in racers.values()) * 2)))
                rows = {name: [] for name in builds}
                for r in range(args.rounds):
                    for name in turns(builds, r):
                        seconds = racers[name].go(s, passes)
                        rows[name].append(passes * racers[name].tokens / seconds)
                record["rates"][f"{precision} {s}"] = rows
                say(f"{precision} {s}: {ratio(rows)}")
            rows = {name: [] for name in builds}
            for r in range(args.rounds):
                for name in turns(builds, r):
                    rows[name].append(1 / statistics.median(racers[name].each("one")[2:]))
            record["rates"][f"{precision} one query"] = rows
            say(f"{precision} one query: {ratio(rows)}")
        finally:
            for racer in racers.values():
                racer.close()


def vectors(args, builds, sets, record):
    """The bits of all vectors, of one run of the command line."""
    lines = OUT / "texts.txt"
    lines.write_text("\n".join(t for s in SETS for t in sets[s]) + "\n", encoding="utf-8")
    for precision in args.precisions:
        sums = set()
        for name, binary in builds.items():
            out = OUT / f"{name}.npy"
            subprocess.run([str(binary), "encode", "-m", f"minilm={MINILM}", "--model", "minilm",
                            "--precision", precision, "--file", str(lines), "--out", str(out)],
                           env=clean_env(), check=True, capture_output=True)
            sums.add(hashlib.sha256(out.read_bytes()).hexdigest())
        record["same_bits"][f"{precision} vectors"] = len(sums) == 1


def turns(builds, r):
    """A B, B A, A B, …: what drifts within a round hits both alike."""
    return list(builds) if r % 2 == 0 else list(builds)[::-1]


def ratios(rows):
    base, now = rows.values()
    return sorted(b / a for a, b in zip(base, now))


def ratio(rows):
    r = ratios(rows)
    return f"{statistics.median(r):.3f} (quartiles {r[len(r) // 4]:.3f} to {r[-1 - len(r) // 4]:.3f})"


def say(what):
    print(f"bench: {what}", file=sys.stderr, flush=True)


def markdown(record):
    rows = []
    for what, r in record["rates"].items():
        base, now = (statistics.median(v) for v in r.values())
        rows.append([what, f"{base:,.1f}", f"{now:,.1f}", ratio(r)])
    bits = ", ".join(f"{k} {'the same' if same else '**differ**'}" for k, same in record["same_bits"].items())
    return (
        f"{record['base']} against this tree, {record['rounds']} rounds in turns, {record['threads']} threads. Tokens a second; texts a "
        f"second over HTTP; queries a second for one query. Medians; the ratio is that of a round.\n\n" +
        records.table(["", "before", "now", "now ÷ before"], rows) + f"\n\nBits: {bits}.\n")


def main():
    args = arguments()
    OUT.mkdir(parents=True, exist_ok=True)
    base, binary = build(args.base)
    builds = {"before": binary, "now": ROOT / "bin" / "sie-server"}
    sets, files = make_sets()
    record = {"about": records.about("bench-against"), "base": base, "rounds": args.rounds,
              "threads": args.threads, "rates": {}, "same_bits": {}}
    with records.kept(record, args.results, "against"):
        vectors(args, builds, sets, record)
        in_process(args, builds, files, record)
        over_http(args, builds, sets, record)
    if args.results:
        records.write(args.results, "against", record, markdown(record))
    else:
        print(markdown(record))
    if not all(record["same_bits"].values()):
        raise Failed("vectors differ")


if __name__ == "__main__":
    try:
        main()
    except Failed as err:
        sys.exit(f"bench: {err}")
    except KeyboardInterrupt:
        sys.exit("bench: interrupted")
