"""sentence-transformers on the card: the reference of the quality step, and the peer that is
measured beside ours."""

import argparse
import json
import os
import sys

import plan


def device():
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def load(folder, kind):
    """As a user runs it: bf16 or fp32 weights, PyTorch's scaled dot product attention."""
    import torch
    from sentence_transformers import SentenceTransformer

    settings = {"dtype": getattr(torch, kind), "attn_implementation": "sdpa"}
    return SentenceTransformer(str(folder), device=device(), model_kwargs=settings)


def vectors(folder, kind, texts):
    import numpy as np
    import torch

    torch.set_float32_matmul_precision("highest")  # no TF32: fp32 is the reference
    return np.asarray(load(folder, kind).encode(texts, show_progress_bar=False), np.float32)


def versions():
    import sentence_transformers
    import torch
    import transformers

    return {
        "sentence-transformers": sentence_transformers.__version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
    }


class Engine:
    """What bench/peer.py drives: encode() with the batch of use()."""

    def __init__(self, folder, batches):
        self.model, self.batch = load(folder, "bfloat16"), 32
        self.choices, self.choices_one = {"batch": batches}, {}

    def use(self, setting):
        self.batch = setting.get("batch", 32)

    def encode(self, texts):
        return self.model.encode(texts, batch_size=self.batch, show_progress_bar=False)


def main():
    """Answers lines "ENGINE COMMAND SET [TIMES]" with lines of JSON. Engines: default (encode's own
    batches of 32), best (the fastest batch that tune found) and, where asked for, compiled (the
    same with torch.compile). Commands: tune, go, each as in bench/peer.py, and calls, which encodes
    so many texts a call and gives each call's seconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("texts", help="JSON file: name of a set → texts")
    parser.add_argument("--compile", action="store_true", help="have the engine compiled")
    args = parser.parse_args()
    out = os.fdopen(os.dup(1), "w", buffering=1)  # libraries print: they get standard error
    os.dup2(2, 1)

    from peer import Peer, timed

    with open(args.texts, encoding="utf-8") as f:
        sets = json.load(f)
    batches = plan.current().batches
    plain = Engine(args.model, batches)
    peers = {"default": Peer(plain, sets, False), "best": Peer(plain, sets, False)}
    if args.compile:
        engine = Engine(args.model, batches)
        # A rehearsal only traces: compiling for a CPU takes a minute and would show nothing.
        engine.model.compile(dynamic=True, backend="eager" if plan.current().rehearsal else "inductor")
        peers["compiled"] = Peer(engine, sets, False)
    for name in sets:
        peers["default"].settings[name] = peers["default"].settings["each", name] = {}
    print(json.dumps({"ready": True, "versions": versions()}), file=out)
    for line in sys.stdin:
        which, verb, name, *rest = line.split()
        peer = peers[which]
        if verb == "calls":
            plain.use({})
            size, texts = int(rest[0]), sets[name]
            answer = {"each": [timed(plain.encode, texts[i : i + size])
                               for i in range(0, len(texts) - size + 1, size)]}
        else:
            answer = getattr(peer, verb)(name, *rest)
        print(json.dumps(answer), file=out)


if __name__ == "__main__":
    main()
