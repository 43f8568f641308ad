"""Writes python.json: what Python's difflib and str.format answer, for the Go tests to match.

Usage: python3 golden.py > python.json    (any Python 3; standard library only)
"""
import difflib
import hashlib
import json
import random
import sys

IDS = [
    "BAAI/bge-m3", "BAAI/bge-base-en-v1.5", "BAAI/bge-small-en-v1.5", "BAAI/bge-large-en-v1.5",
    "BAAI/bge-small-zh-v1.5", "intfloat/e5-small-v2", "intfloat/e5-base-v2", "intfloat/e5-large-v2",
    "intfloat/multilingual-e5-small", "sentence-transformers/all-MiniLM-L6-v2", "thenlper/gte-base",
    "thenlper/gte-large", "naver/splade-v3", "colbert-ir/colbertv2.0", "WhereIsAI/UAE-Large-V1",
]
KEYS = ["extends", "adapter_path", "max_batch_tokens", "compute_precision", "adapter_options",
        "adaptive_batching"]
WORDS = [
    "BAAI/bge-m4", "baai/bge-m3", "bge-m3", "BAAI/bge-base-en", "bge-small-en-v1.5", "intfloat/e5-smal-v2",
    "all-MiniLM-L6-v2", "sentence-transformers/all-minilm-l6-v2", "thenlper/gte", "naver/splade", "x", "",
    "zzzzzzzzzz", "colbertv2", "UAE-Large", "e5", "intfloat/e5-xlarge-v2", "aaaaaaaa", "héllo/wörld", "模型/小",
    "adapter_option", "adaptor_options", "max_batch_token", "extend", "precision", "batching_adaptive",
]
PAIRS = [["abcd", "bcde"], ["", ""], ["", "a"], ["aaaa", "aa"], ["abxcd", "abcd"], ["qabxcd", "abycdf"],
         ["private", "tide"], ["héllo", "hello"], ["模型小", "小模型"], ["ababab", "bababa"]]


def ratio(word, other):
    return difflib.SequenceMatcher(None, other, word).ratio()


def fmt(template, text, instruction):
    try:
        return template.format(text=text, instruction=instruction)
    except (KeyError, IndexError, ValueError):
        return None


rng = random.Random(7)
for _ in range(300):
    PAIRS.append(["".join(rng.choice("abcde/-") for _ in range(rng.randrange(0, 40))) for _ in range(2)])

TEMPLATES = ["{text}", "query: {text}", "Instruct: {instruction}\nQuery: {text}", "{{{text}}}", "{{text}}",
             "}}{{", "", "{text}{text}{instruction}", "{", "}", "{}", "{0}", "{other}", "a{text", "a}b",
             "{te{xt}", "é{text}模", "<|user|>\n{instruction}\n<|embed|>\n{text}", "{ text}", "{text }",
             "{{}}", "{{{{{text}}}}}", "{text}}", "{{text}"]

def profile(name, adapter, load, run):
    """A profile as sie-config and a worker hash it, with all that it inherits."""
    options = {k: v for k, v in (("loadtime", load), ("runtime", run)) if v}
    return {"name": name, "config": {"adapter_path": adapter, "max_batch_tokens": 16384,
                                     "compute_precision": None, "adapter_options": options}}


GLINER, GLICLASS = "sie_server.adapters.gliner:GLiNERAdapter", "sie_server.adapters.gliclass:GLiClassAdapter"
SINGLE = {"classification_type": "single-label", "cuda_graphs": "bucketed"}
# What the bundle gliner has of the documents of TestGLiNERBundleHash.
BUNDLE = [
    {"sie_id": "acme/classes", "revision": None, "profiles": [
        profile("default", GLICLASS, SINGLE, {"threshold": 0.0}),
        profile("multi-label", GLICLASS, SINGLE, {"classification_type": "multi-label", "threshold": 0.0})]},
    {"sie_id": "acme/names", "revision": "a" * 40, "profiles": [
        profile("default", GLINER, {}, {"merge_adjacent_entities": True, "threshold": 0.75})]},
]
json.dump({
    "bundle": hashlib.sha256(json.dumps(BUNDLE, sort_keys=True, separators=(",", ":")).encode()).hexdigest(),
    "close": [{"word": w, "in": name, "want": difflib.get_close_matches(w, lst)}
              for name, lst in (("ids", IDS), ("keys", KEYS)) for w in WORDS],
    "lists": {"ids": IDS, "keys": KEYS},
    "ratios": [{"word": a, "other": b, "want": ratio(a, b)} for a, b in PAIRS],
    "format": [{"template": t, "text": x, "instruction": i, "want": fmt(t, x, i)}
               for t in TEMPLATES for x, i in (("hi", "do"), ("{text} {x}", ""), ("", "{"))],
}, sys.stdout, ensure_ascii=False, indent=0)
print()
