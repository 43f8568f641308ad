#!/usr/bin/env python3
"""Writes testdata/golden/word-tokens/: what the tokenizers library makes of items that are split into
words (is_split_into_words in transformers), with the markers of GLiNER's prompts added to the
vocabularies of testdata/golden/tokenizer and to a DeBERTa v2 one.

    tools/golden/word_tokens.py
"""

import json
import random
import re
import shutil

import tokenizers
from tokenizers import AddedToken

import manifest

OUT = manifest.GOLDEN / "word-tokens"
FOLDER = manifest.GOLDEN / "tokenizer"
KINDS = ["minilm", "cased", "accents", "roberta", "llama", "xlmr", "added", "sentencepiece"]
EXTRA = ["[FLERT]", "<<ENT>>", "<<SEP>>"]
WORD = re.compile(r"\w+(?:[-_]\w+)*|\S")
LIMITS = [6, 17]


def items(rng, texts):
    """Words of texts, each item behind a prompt of labels or alone."""
    labels = ["person", "phone number", "Größe", "日付", "e-mail", "  spaced  ", "", "a\nb", "\u00ad",
              "x" * 90]
    out = [{"words": words, "marks": []} for words in ([], [""], ["\u200b", "a", "\u0301"])]
    for text in texts:
        words, marks = [], []
        if rng.random() < 0.7:
            for label in rng.sample(labels, rng.randint(1, 4)):
                marks.append(len(words))
                words += ["<<ENT>>", label]
            marks.append(len(words))
            words.append("<<SEP>>")
        words += [m.group() for m in WORD.finditer(text)][:60]
        out.append({"words": words, "marks": marks})
    return out


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    rng = random.Random(22)
    raw = json.loads((FOLDER / "texts.json").read_text())
    short = [t for t in raw if isinstance(t, str) and 0 < len(t) < 400]
    cases = items(rng, rng.sample(short, 45))
    (OUT / "items.json").write_text(json.dumps(cases, ensure_ascii=True, separators=(",", ":")) + "\n")
    for kind in KINDS:
        tok = tokenizers.Tokenizer.from_file(str(FOLDER / kind / "tokenizer.json"))
        tok.no_truncation()
        tok.no_padding()
        tok.add_tokens([AddedToken(t, special=True, normalized=False) for t in EXTRA])
        rows = []
        for case in cases:
            full = tok.encode(case["words"], is_pretokenized=True)
            plain = tok.encode(case["words"], is_pretokenized=True, add_special_tokens=False)
            row = {"ids": full.ids, "words": [-1 if w is None else w for w in full.word_ids],
                   "plain": len(plain.ids), "cut": []}
            for limit in LIMITS:
                tok.enable_truncation(limit)
                row["cut"].append(tok.encode(case["words"], is_pretokenized=True).ids)
            tok.no_truncation()
            rows.append(row)
        ids = {t: tok.token_to_id(t) for t in EXTRA}
        (OUT / f"{kind}.json").write_text(json.dumps(
            {"extra": [ids[t] for t in EXTRA], "rows": rows}, separators=(",", ":")) + "\n")
    manifest.write(OUT, "tools/golden/word_tokens.py", "none", "none", {"limits": LIMITS, "extra": EXTRA})


main()
