"""Reranking and sparse encoding beside sentence-transformers' CrossEncoder and SparseEncoder:
MiniLM's own encoder with a head of each kind on it, random but the same for both, so that scores
and weights are compared as well as timed. Engines take turns; the one that does not run is stopped
or idle. Every answer of ours comes over HTTP.
"""

import argparse
import contextlib
import http.client
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import machine
import records
from served import clean_env

ROOT = Path(__file__).resolve().parent.parent
MINILM = ROOT / "build/models/all-MiniLM-L6-v2"
QUERY = "which instrument measures the pressure of the air before a storm"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5, help="turns of each engine")
    p.add_argument("--texts", type=int, default=256, help="texts of 128 tokens in a turn")
    p.add_argument("--threads", type=int, default=machine.usable_cpus(), help="threads of every engine")
    p.add_argument("--results", type=Path, default=ROOT / "bench/results",
                   help="the folder that table and record go to")
    return p.parse_args()


def make_models(into):
    """MiniLM with a classifier of one label, and with a masked-language head that fires for about
    one word in a hundred."""
    import torch
    from transformers import AutoTokenizer, BertForMaskedLM, BertForSequenceClassification

    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(MINILM, local_files_only=True)
    tokenizer.model_max_length = 256
    judge = BertForSequenceClassification.from_pretrained(MINILM, num_labels=1, local_files_only=True)
    splade = BertForMaskedLM.from_pretrained(MINILM, local_files_only=True)
    with torch.no_grad():
        splade.cls.predictions.decoder.weight.normal_(0, 0.05)
        splade.cls.predictions.bias.fill_(-3.0)
    for name, model in (("judge", judge), ("splade", splade)):
        model.save_pretrained(into / name)
        tokenizer.save_pretrained(into / name)
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.models import MLMTransformer, SpladePooling

    peer = SparseEncoder(modules=[MLMTransformer(str(into / "splade"), max_seq_length=256),
                                  SpladePooling("max")], device="cpu")
    peer.save(str(into / "sparse"))
    return into / "judge", into / "sparse"


class Ours:
    """A server of ours with both models, over one connection."""

    def __init__(self, judge, sparse, precision, threads, log):
        import socket
        import subprocess

        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                [str(ROOT / "bin/sie-server"), "serve", "--host", "127.0.0.1", "-p", str(self.port),
                 "--no-hf-fallback", "-m", f"judge={judge},sparse={sparse}", "--preload", "judge,sparse",
                 "--precision", precision, "--threads", str(threads)], stdout=out, stderr=out,
                env=clean_env())
        until = time.time() + 60
        while True:
            try:
                if self.call("GET", "/readyz", None)[0] == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.time() > until:
                raise SystemExit("sie-server did not start:\n" + Path(log).read_text())
            time.sleep(0.05)

    def call(self, method, path, body):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        c.request(method, path, body and json.dumps(body),
                  {"Content-Type": "application/json", "Accept": "application/json"})
        r = c.getresponse()
        answer = r.status, r.read()
        c.close()
        return answer

    def score(self, texts):
        status, body = self.call("POST", "/v1/score/judge",
                                 {"query": {"text": QUERY}, "items": [{"text": t} for t in texts]})
        assert status == 200, body
        scores = [0.0] * len(texts)
        for s in json.loads(body)["scores"]:
            scores[int(s["item_id"].removeprefix("item-"))] = s["score"]
        return scores

    def sparse(self, texts):
        status, body = self.call("POST", "/v1/encode/sparse", {"items": [{"text": t} for t in texts],
                                                               "params": {"output_types": ["sparse"]}})
        assert status == 200, body
        return [dict(zip(i["sparse"]["indices"], i["sparse"]["values"])) for i in json.loads(body)["items"]]

    def close(self):
        self.process.terminate()
        self.process.wait(30)


def peers(judge, sparse, threads):
    """sentence-transformers as its documentation runs it, with the better of two batch sizes for
    each."""
    import torch
    from sentence_transformers import CrossEncoder, SparseEncoder

    torch.set_num_threads(threads)
    cross, encoder = CrossEncoder(str(judge), device="cpu"), SparseEncoder(str(sparse), device="cpu")

    def score(texts, batch):
        return cross.predict([(QUERY, t) for t in texts], batch_size=batch, show_progress_bar=False).tolist()

    def encode(texts, batch):
        rows = encoder.encode(texts, batch_size=batch, show_progress_bar=False,
                              convert_to_sparse_tensor=True).coalesce()
        out = [{} for _ in texts]
        for (row, column), value in zip(rows.indices().T.tolist(), rows.values().tolist()):
            out[row][column] = value
        return out

    return {"score": score, "sparse": encode}


def timed(f, *args):
    begun = time.perf_counter()
    result = f(*args)
    return len(args[0]) / (time.perf_counter() - begun), result


def difference(ours, theirs):
    """The largest of any score or weight."""
    if isinstance(ours[0], dict):
        return max(max((abs(a.get(k, 0) - b.get(k, 0)) for k in a.keys() | b.keys()), default=0)
                   for a, b in zip(ours, theirs))
    return max(abs(a - b) for a, b in zip(ours, theirs))


TITLES = {"score": "reranking, one query", "sparse": "sparse vectors (SPLADE)"}


def markdown(record):
    rows = []
    for task, found in record["tasks"].items():
        for name, rate in found["median"].items():
            ratios = found["ratios"][name]
            rows.append(
                [TITLES[task], name +
                 (f", batches of {found['peer_batch']}" if name.startswith("sentence") else " over HTTP"),
                 f"{rate:.1f}", f"{statistics.median(ratios):.2f}× ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                 f"{found['largest_difference'][name]:.1e}" if name in found["largest_difference"] else ""])
    head = ["", "engine", "texts/s", "ratio, round by round", "largest difference of any score or weight"]
    return (
        f"{record['texts']} texts of 128 tokens, {record['threads']} threads, {record['rounds']} rounds in turns. MiniLM's encoder "
        f"with heads of random weights, the same for both. sentence-transformers computes in fp32; auto is what our server picks: "
        f"bf16 where the CPU has AMX, else fp32.\n\n{records.table(head, rows)}\n")


def main():
    args = arguments()
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    import texts as generated

    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(MINILM, local_files_only=True)
    texts = generated.passages(args.texts, lambda t: len(tokenizer(t)["input_ids"]))
    with tempfile.TemporaryDirectory() as folder:
        judge, sparse = make_models(Path(folder))
        theirs = peers(judge, sparse, args.threads)
        ours = {p: Ours(judge, sparse, p, args.threads, Path(folder) / f"{p}.log") for p in ("fp32", "auto")}
        record = {"about": records.about("bench-heads"), "texts": len(texts), "threads": args.threads,
                  "rounds": args.rounds, "tasks": {}}
        with records.kept(record, args.results, "heads"), contextlib.ExitStack() as stack:
            for server in ours.values():
                stack.callback(server.close)
            for task in ("score", "sparse"):
                best = max((8, 32), key=lambda b: timed(theirs[task], texts[:64], b)[0])
                rates, off = {"sentence-transformers": []}, {}
                record["tasks"][task] = {"texts_per_second": rates}
                for name, server in ours.items():
                    rates["SIE " + name] = []
                    getattr(server, task)(texts)
                for _ in range(args.rounds):
                    rate, want = timed(theirs[task], texts, best)
                    rates["sentence-transformers"].append(rate)
                    for name, server in ours.items():
                        rate, got = timed(getattr(server, task), texts)
                        rates["SIE " + name].append(rate)
                        off["SIE " + name] = difference(got, want)
                middle = {k: statistics.median(v) for k, v in rates.items()}
                peer = middle["sentence-transformers"]
                against = rates["sentence-transformers"]
                ratios = {k: sorted(a / b for a, b in zip(v, against)) for k, v in rates.items()}
                record["tasks"][task] = {"texts_per_second": rates, "median": middle, "ratios": ratios,
                                         "largest_difference": off, "peer_batch": best,
                                         "columns": statistics.mean(map(len, want)) if task == "sparse"
                                         else None}
                for name, rate in middle.items():
                    print(f"{task:7} {name:24} {rate:8.1f} texts/s  {rate / peer:5.2f}x  largest difference {off.get(name, 0):.2g}",
                          flush=True)
    records.write(args.results, "heads", record, markdown(record))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("bench: interrupted")
