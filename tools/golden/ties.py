#!/usr/bin/env python3
"""Writes testdata/golden/tokenizer-ties/: two small SentencePiece unigram models in whose texts many
segmentations score the same, and the ids that transformers' fast class and the sentencepiece library,
which the slow class calls, give for them.

    pip install -r requirements.txt
    tools/golden/ties.py

In `exact` every sum of scores is exact, in float32 and in float64: both take the same segmentation. In
`rounded` sums round, so that a tie in one is none in the other; the texts on which the two differ are
counted. ids are a count and a checksum, as in tokenizer_files.py.
"""

import gzip
import itertools
import json
import pathlib
import random
import tempfile

import sentencepiece
import transformers
from sentencepiece import sentencepiece_model_pb2

import tokenizer_files

VERSION = "5.23.0"
OUT = pathlib.Path(__file__).resolve().parents[2] / "testdata/golden/tokenizer-ties"
SPACE = "\u2581"


def words():
    return [SPACE, SPACE + "ab",
            *("".join(p) for n in range(1, 5) for p in itertools.product("ab", repeat=n))]


def scores(kind):
    """By length, so that every segmentation ties, then of few values, so that many do."""
    rng = random.Random(7)
    unit = 1.0 if kind == "exact" else 0.1
    by_length = {w: -unit * len(w) for w in words()}
    few = {w: -unit * rng.choice([11, 22, 33]) for w in words()}
    return {"length": by_length, "few": few}


def model(by_word):
    m = sentencepiece_model_pb2.ModelProto()
    for piece, score, kind in [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3)] + [
            (w, s, 1) for w, s in by_word.items()]:
        p = m.pieces.add()
        p.piece, p.score, p.type = piece, score, kind
    m.trainer_spec.model_type = 1
    m.trainer_spec.unk_id, m.trainer_spec.bos_id, m.trainer_spec.eos_id, m.trainer_spec.pad_id = 0, 1, 2, -1
    m.normalizer_spec.name = "identity"
    m.normalizer_spec.add_dummy_prefix = True
    m.normalizer_spec.remove_extra_whitespaces = True
    m.normalizer_spec.escape_whitespaces = True
    return m.SerializeToString()


def texts():
    rng = random.Random(11)
    out = []
    for _ in range(200):
        n = rng.choice([1, 2, 3, 5, 9, 20, 60])
        out.append("".join(rng.choice("aabbabx ") for _ in range(n)).strip() or "a")
    return out + ["".join(rng.choice("ab") for _ in range(n)) for n in (3000, 9000, 30000)]


def main():
    if transformers.__version__ != VERSION:
        raise SystemExit("install requirements.txt")
    OUT.mkdir(parents=True, exist_ok=True)
    all_texts, cases = texts(), {}
    for kind in ("exact", "rounded"):
        for name, by_word in scores(kind).items():
            raw = model(by_word)
            library = sentencepiece.SentencePieceProcessor(model_proto=raw)
            with tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / "sentencepiece.bpe.model").write_bytes(raw)
                fast = transformers.XLMRobertaTokenizer.from_pretrained(folder)
            both = []
            for text in all_texts:
                # fairseq's ids: <s> 0, </s> 2, <unk> 3, others one behind those of the file
                slow = [0, *(i + 1 if i else 3 for i in library.encode(text)), 2]
                both.append([tokenizer_files.short(fast(text)["input_ids"]), tokenizer_files.short(slow)])
            differ = sum(a != b for a, b in both)
            assert (differ == 0) == (kind == "exact"), (kind, name, differ)
            cases[f"{kind}-{name}"] = {"fast": [a for a, _ in both], "slow": [b for _, b in both]}
            (OUT / f"{kind}-{name}.model").write_bytes(raw)
            print(kind, name, len(both), "texts, the classes differ on", differ)
    packed = json.dumps({"texts": all_texts, "cases": cases}).encode()
    (OUT / "ids.json.gz").write_bytes(gzip.compress(packed, 9, mtime=0))


if __name__ == "__main__":
    main()
