#!/usr/bin/env python3
"""Writes testdata/golden/tokenizer-files/: a small vocabulary of each tokenizer family in its published
files, without a tokenizer.json where the family can do without, and what transformers makes of them:
the pipeline as tokenizer.json, ids, pairs under a limit, and places.

    pip install -r requirements.txt
    tools/golden/tokenizer_files.py

Vocabularies are kept when they exist (--retrain makes them anew). The reference is transformers'
own class; for DeBERTa v2 it is transformers' converter, for the class of 5.23 loses the character map.
"""

import argparse
import gzip
import hashlib
import json
import os
import pathlib
import shutil
import struct
import tempfile
import types

os.environ["HF_HUB_OFFLINE"] = "1"

import sentencepiece
import tokenizers
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import decoders

import packed
import texts as corpora
import tokenizer as first

VERSION = "5.23.0"
OUT = pathlib.Path(__file__).resolve().parents[2] / "testdata/golden/tokenizer-files"
SIZE = 2500
LIMITS = [(9, "longest_first"), (9, "only_second"), (24, "longest_first"), (24, "only_second"),
          (25, "longest_first"), (64, "only_second")]
WHOLE = 1 << 20  # bytes of the texts without a space

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def token(content, special=True, **flags):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False,
            "single_word": False, "special": special, **flags}


QWEN_ADDED = {str(SIZE): token("<|endoftext|>"), str(SIZE + 1): token("<|im_start|>"),
              str(SIZE + 2): token("<tool_call>", special=False)}
GEMMA_ADDED = {"0": token("<pad>"), "1": token("<eos>"), "2": token("<bos>"), "3": token("<unk>"),
               "4": token("<mask>", special=False),
               "5": token("<start_of_turn>"), "6": token("<end_of_turn>")}

# By family: the files, and the configurations to read them with (None: no such file).
FAMILIES = {
    "roberta": (["vocab.json", "merges.txt"], {
        "plain": {"tokenizer_config.json": {"tokenizer_class": "RobertaTokenizer"}},
        "prefix": {"tokenizer_config.json": {
            "tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": True, "trim_offsets": False,
            "mask_token": token("<mask>", lstrip=True, normalized=True) | {"__type": "AddedToken"},
            "additional_special_tokens": ["<new>"], "model_max_length": 10**30}},
        "model": {"config.json": {"model_type": "roberta"}}}),
    "gpt2": (["vocab.json", "merges.txt"], {
        "bos": {"tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True}},
        "model": {"config.json": {"model_type": "gpt2"}}}),
    "qwen": (["vocab.json", "merges.txt"], {
        "added": {"tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": QWEN_ADDED, "add_eos_token": True,
            "additional_special_tokens": ["<|im_start|>"], "add_prefix_space": False, "unk_token": None,
            "eos_token": "<|im_start|>", "pad_token": "<|endoftext|>", "bos_token": None}},
        "model": {"config.json": {"model_type": "qwen3"}}}),
    "deberta": (["vocab.json", "merges.txt"], {
        "plain": {"tokenizer_config.json": {"tokenizer_class": "DebertaTokenizer"}}}),
    "bert": (["vocab.txt"], {
        "plain": {"tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "do_lower_case": True}},
        "cased": {"tokenizer_config.json": {"tokenizer_class": "BertTokenizerFast", "do_lower_case": False,
                                            "strip_accents": None, "tokenize_chinese_chars": True}},
        "model": {"config.json": {"model_type": "bert"}}}),
    "mpnet": (["vocab.txt"], {
        "plain": {"tokenizer_config.json": {"tokenizer_class": "MPNetTokenizer"}},
        "cased": {"tokenizer_config.json": {"tokenizer_class": "MPNetTokenizer", "do_lower_case": False,
                                            "strip_accents": True, "tokenize_chinese_chars": False}},
        "model": {"config.json": {"model_type": "mpnet"}}}),
    "modernbert": (["tokenizer.json"], {
        "plain": {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast",
                                            "clean_up_tokenization_spaces": True}}}),
    "llama3": (["tokenizer.json"], {
        "plain": {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast",
                                            "add_bos_token": False, "extra_special_tokens": ["<|later|>"]}},
        "literal": {"tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast",
                                              "split_special_tokens": True}}}),
    "xlmr": (["sentencepiece.bpe.model"], {
        "plain": {"tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizer"}},
        "model": {"config.json": {"model_type": "xlm-roberta"}},
        "map": {"tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizerFast"},
                "special_tokens_map.json": {"mask_token": token("<mask>", lstrip=True, normalized=True),
                                            "bos_token": "<s>"},
                "added_tokens.json": {"<later>": SIZE + 2}},
        "camembert": {"tokenizer_config.json": {"tokenizer_class": "CamembertTokenizer"}}}),
    "t5": (["spiece.model"], {
        "plain": {"tokenizer_config.json": {"tokenizer_class": "T5Tokenizer"}},
        "extra": {"tokenizer_config.json": {
            "tokenizer_class": "T5TokenizerFast", "extra_ids": 2,
            "additional_special_tokens": ["<extra_id_0>", "<extra_id_1>"]}}}),
    "albert": (["spiece.model"], {
        "plain": {"tokenizer_config.json": {"tokenizer_class": "AlbertTokenizer"}},
        "accents": {"tokenizer_config.json": {"tokenizer_class": "AlbertTokenizer", "keep_accents": True,
                                              "do_lower_case": False}}}),
    "deberta2": (["spm.model"], {
        "plain": {"tokenizer_config.json": {"tokenizer_class": "DebertaV2Tokenizer", "do_lower_case": False,
                                            "vocab_type": "spm"},
                  "added_tokens.json": {"[MASK]": SIZE}},
        "lower": {"tokenizer_config.json": {"tokenizer_class": "DebertaV2TokenizerFast",
                                            "do_lower_case": True, "split_by_punct": True}}}),
    "mistral": (["tokenizer.model"], {
        "plain": {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True,
                                            "add_eos_token": False, "legacy": False}},
        "legacy": {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizerFast", "legacy": True,
                                             "add_bos_token": True, "add_eos_token": True,
                                             "added_tokens_decoder": {"0": token("<unk>"), "1": token("<s>"),
                                                                      "2": token("</s>")}}},
        "bare": {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False}},
        "literal": {"tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer",
                                              "split_special_tokens": True}}}),
    "gemma": (["tokenizer.model"], {
        "plain": {"tokenizer_config.json": {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True,
                                            "add_eos_token": True, "added_tokens_decoder": GEMMA_ADDED}},
        "model": {"config.json": {"model_type": "gemma3_text"}}}),
}


def lines():
    queries, passages = corpora.generate()
    return [s for t in queries + passages for s in t.split("\n") if s.strip()]


def train_sentencepiece(folder, name, **options):
    with tempfile.TemporaryDirectory() as work:
        path = pathlib.Path(work)
        (path / "corpus").write_text("\n".join(lines()), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(path / "corpus"), model_prefix=str(path / "m"), vocab_size=SIZE, minloglevel=2,
            num_threads=1, character_coverage=0.9995, **options)
        shutil.copy(path / "m.model", folder / name)


def train_bytes(folder, special, pre, normalizer=None):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.train_from_iterator(lines(), trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.model.save(str(folder))
    return t


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def modernbert(folder):
    t = train_bytes(folder, [], pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC())
    t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    t.add_tokens([AddedToken("|||IP_ADDRESS|||", normalized=True)])
    t.add_special_tokens([AddedToken("<|padding|>"), AddedToken("<|endoftext|>")])
    t.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    t.add_special_tokens(["[UNK]", "[CLS]", "[SEP]", "[PAD]", AddedToken("[MASK]", lstrip=True)])
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(s, t.token_to_id(s)) for s in ("[CLS]", "[SEP]")])
    return t


def llama3(folder):
    t = train_bytes(folder, [], split(first.LLAMA3))
    t.model = models.BPE(*models.BPE.read_file(str(folder / "vocab.json"), str(folder / "merges.txt")),
                         ignore_merges=True)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    begin = "<|begin_of_text|>"
    template = processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1",
                                             special_tokens=[(begin, t.token_to_id(begin))])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return t


def train(family, folder):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    identity = {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity",
                "split_digits": True, "allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False}
    if family == "roberta":
        train_bytes(folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], byte_level)
    elif family == "gpt2":
        train_bytes(folder, ["<|endoftext|>"], byte_level)
    elif family == "qwen":
        train_bytes(folder, [], split(QWEN), normalizers.NFC())
    elif family == "deberta":
        train_bytes(folder, ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"], byte_level)
    elif family == "bert":
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        t.train_from_iterator(lines(), trainers.WordPieceTrainer(
            vocab_size=SIZE, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
            show_progress=False))
        words = sorted(t.get_vocab(), key=t.get_vocab().get)
        (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    elif family == "mpnet":
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        t.train_from_iterator(lines(), trainers.WordPieceTrainer(
            vocab_size=SIZE, special_tokens=["<s>", "<pad>", "</s>", "[UNK]"], show_progress=False))
        words = sorted(t.get_vocab(), key=t.get_vocab().get) + ["<mask>"]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    elif family in ("modernbert", "llama3"):
        make = modernbert if family == "modernbert" else llama3
        make(folder).save(str(folder / "tokenizer.json"), pretty=False)
    elif family == "xlmr":
        train_sentencepiece(folder, "sentencepiece.bpe.model", model_type="unigram")
    elif family == "t5":
        train_sentencepiece(folder, "spiece.model", model_type="unigram", pad_id=0, eos_id=1, unk_id=2,
                            bos_id=-1)
    elif family == "albert":
        train_sentencepiece(folder, "spiece.model", model_type="unigram", pad_id=0, unk_id=1, bos_id=-1,
                            eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"])
    elif family == "deberta2":
        train_sentencepiece(folder, "spm.model", model_type="unigram", pad_id=0, bos_id=1, eos_id=2, unk_id=3,
                            pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]", unk_piece="[UNK]")
    elif family == "mistral":
        train_sentencepiece(folder, "tokenizer.model", **identity)
    elif family == "gemma":
        train_sentencepiece(folder, "tokenizer.model", **identity, add_dummy_prefix=False, pad_id=0, eos_id=1,
                            bos_id=2, unk_id=3, bos_piece="<bos>", eos_piece="<eos>",
                            user_defined_symbols=["<mask>", "<start_of_turn>", "<end_of_turn>", "\n", "  "])


def more_texts():
    """What the corpus of tokenizer.py has not: long texts without a space, and hard characters."""
    pairs = ["caf\u00e9", "\u212bngstr\u00f6m", "\u1e9b\u0323",
             "\ufb01n \uff21\uff22\uff23 \u2460\u00bd\u33a5",
             "\uac00\uac01\u11a8 \u1100\u1161", "\u0958\u0929", "\u03d3\u03d4 \u2126"]
    import unicodedata
    out = [unicodedata.normalize(form, p) for p in pairs for form in ("NFC", "NFD", "NFKC", "NFKD")]
    out += [
        "\0", "a\0b \0", "\ufffd\ufffd a\ufffdb", "ภาษาไทยไม่มีช่องว่างระหว่างคำ กำ น้ำ",
        "ٱلرَّحْمَٰنِ ٱلرَّحِيمِ بِسْمِ ـــ ﷲ",
        "👩🏽‍🚀👨‍👩‍👧‍👦🏴󠁧󠁢󠁥󠁮󠁧󠁿🇩🇪🇫🇷❤️‍🔥1️⃣",
        "\u0378\u0379 \U000e0fff \U0003ffff x\u0380", "\u2581 \u2581a \u2581\u2581 b\u2581",
        "a\u00a0b\u2003c\u3000d\u200be\ufeff",
        "\t\ttabs\tand\nnewlines\r\n\r\n  two  spaces   three ", "``quoted'' ''x``",
        "DON'T Don't don\u2019t I'VE \u2019ve", "1234567890 12 3.14 \u0661\u0662\u0663", "x" * 3000, "ab" * 2000, "\u00df" * 1500]
    whole = [("abcdefghijklmnopqrstuvwxyz", 1), ("the", 1), ("x", 1), ("0123456789abcdef", 1),
             ("北京市是中华人民共和国的首都", 3),
             ("ไม่มีช่องว่าง", 3), ("\"k\":[1,2,3],", 1)]
    return out + [{"repeat": u, "times": WHOLE // len(u.encode())} for u, _ in whole]


def special_texts(tok):
    """Every token that is found in a text as it is, written in a text of a user."""
    out = []
    for t in sorted(tok.added_tokens_encoder):
        if "<extra_id_" in t and t[-2] not in "01" or len(t) > 8 and not t.strip():
            continue
        out += [f"a {t} b", f"a{t}b", f"{t}{t}", t.lower(), t.upper(), f" {t}", f"{t} ", t[:-1],
                f"{t[:1]} {t[1:]}"]
    return out


def short(values):
    packed = struct.pack(f"<{len(values)}i", *values)
    return f"{len(values)}:{hashlib.sha256(packed).hexdigest()[:16]}"


def pipeline(backend):
    """tokenizer.json with the vocabulary, the merges and the character map as checksums."""
    doc = json.loads(backend.to_str())
    model = doc["model"]

    def digest(rows):
        return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest()
    vocab = model["vocab"]
    if isinstance(vocab, list):
        model["vocab"] = digest(f"{t} {struct.pack('<d', s).hex()}" for t, s in vocab)
    else:
        model["vocab"] = digest(f"{t} {i}" for t, i in sorted(vocab.items(), key=lambda x: x[1]))
    if "merges" in model:
        model["merges"] = digest(f"{a} {b}" for a, b in model["merges"])
    stack = [doc]
    while stack:
        x = stack.pop()
        if isinstance(x, dict):
            if "precompiled_charsmap" in x:
                x["precompiled_charsmap"] = hashlib.sha256(x["precompiled_charsmap"].encode()).hexdigest()
            stack += x.values()
        elif isinstance(x, list):
            stack += x
    return doc


def load(family, folder, config):
    if family in ("mistral", "gemma", "xlmr", "t5", "albert", "deberta2") and "config.json" not in config:
        name = config["tokenizer_config.json"]["tokenizer_class"].removesuffix("Fast")
        tok = getattr(transformers, name).from_pretrained(folder)
    else:
        tok = transformers.AutoTokenizer.from_pretrained(folder)
    if family == "deberta2":
        from transformers.convert_slow_tokenizer import DebertaV2Converter
        settings = config["tokenizer_config.json"]
        made = DebertaV2Converter(types.SimpleNamespace(
            vocab_file=str(folder / "spm.model"), do_lower_case=settings["do_lower_case"],
            split_by_punct=settings.get("split_by_punct", False), add_prefix_space=True,
            convert_tokens_to_ids=tok.convert_tokens_to_ids)).converted()
        for part in ("normalizer", "pre_tokenizer", "decoder", "post_processor"):
            setattr(tok.backend_tokenizer, part, getattr(made, part))
        plain = json.loads(made.to_str())["model"], json.loads(tok.backend_tokenizer.to_str())["model"]
        assert plain[0] == plain[1]
    return tok


def golden(tok, all_texts):
    backend = tok.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    special = special_texts(tok)
    ids = []
    for t in all_texts + special:
        text = first.expand(t)
        ids.append(short(backend.encode(text).ids))
        if len(text) < 200:
            assert short(tok(text)["input_ids"]) == ids[-1]
    spots = []
    for t in all_texts[:first.LONG] + special[:40]:
        e = backend.encode(t)
        spots.append(short([v for i, (a, b) in zip(e.ids, e.offsets) for v in (i, a, b)]))
    pairs = []
    for k, (n, strategy) in enumerate(LIMITS * 8):
        i, j = (7 * k) % first.LONG, (11 * k + 3) % first.LONG
        backend.enable_truncation(n, strategy=strategy)
        try:
            e = backend.encode(all_texts[i][:200], all_texts[j][:200])
            pairs.append([i, j, n, strategy, short(e.ids), short(e.type_ids)])
        except Exception as failure:
            assert "too short" in str(failure), failure
            pairs.append([i, j, n, strategy, None, None])
    backend.no_truncation()
    return {"class": type(tok).__name__, "length": tok.model_max_length if tok.model_max_length < 10**9 else 0,
            "pipeline": pipeline(backend), "special": special, "ids": ids, "places": spots, "pairs": pairs}


def squeeze(path, data):
    path.write_bytes(gzip.compress(data, 9, mtime=0))


# Models of SentencePiece and tokenizer.json lie in the archive (packed.py), which keeps four alike in the room
# of one; other files are compressed.

def of(kept, name):
    return kept / (name if packed.is_packed(name) else f"{name}.gz")


def keep(kept, name, data):
    of(kept, name).write_bytes(data if packed.is_packed(name) else gzip.compress(data, 9, mtime=0))


def read(kept, name):
    data = of(kept, name).read_bytes()
    return data if packed.is_packed(name) else gzip.decompress(data)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--retrain", action="store_true")
    args.add_argument("families", nargs="*")
    args = args.parse_args()
    if transformers.__version__ != VERSION or tokenizers.__version__ != first.VERSION:
        raise SystemExit("install requirements.txt")
    all_texts = first.texts() + more_texts()
    OUT.mkdir(parents=True, exist_ok=True)
    squeeze(OUT / "more.json.gz", json.dumps(more_texts()).encode())
    for family, (files, variants) in FAMILIES.items():
        if args.families and family not in args.families:
            continue
        kept = OUT / family
        kept.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work)
            if args.retrain or not all(of(kept, f).exists() for f in files):
                train(family, folder)
                for f in files:
                    keep(kept, f, (folder / f).read_bytes())
            for name, config in variants.items():
                place = folder / name
                place.mkdir()
                for f in files:
                    (place / f).write_bytes(read(kept, f))
                for f, value in config.items():
                    (place / f).write_text(json.dumps(value), encoding="utf-8")
                result = {"files": config, **golden(load(family, place, config), all_texts)}
                squeeze(kept / f"{name}.json.gz", json.dumps(result).encode())
                print(family, name, result["class"], (kept / f"{name}.json.gz").stat().st_size, flush=True)
    packed.pack(OUT)


if __name__ == "__main__":
    main()
