"""Requests of the routes of other APIs: OpenAI's, Cohere's and Jina's, text-embeddings-inference's."""
import msgpack

from conftest import JUDGE, MODEL, TINY
from same_texts import BOTH, GUESTS, SDKS, text, texts
from same_wire import Case


def guests():
    cat = text(1)
    one = {
        "/v1/embeddings": {
            "model": MODEL,
            "input": cat
        },
        "/v1/rerank": {
            "model": JUDGE,
            "query": cat,
            "documents": texts(4)
        },
        "/embed": {
            "inputs": cat
        },
        "/rerank": {
            "query": cat,
            "texts": texts(4)
        },
        "/predict": {
            "inputs": cat
        },
        "/similarity": {
            "inputs": {
                "source_sentence": cat,
                "sentences": texts(3)
            }
        },
        "/tokenize": {
            "inputs": cat
        },
        "/decode": {
            "ids": [101, 1996, 102]
        }
    }
    one["/embeddings"], one["/v2/rerank"] = one["/v1/embeddings"], one["/v1/rerank"]
    one["/embed_all"] = one["/embed_sparse"] = one["/"] = one["/embed"]
    more = {
        "model": [
            MODEL, TINY, "splade", "colbert", "moods", JUDGE, "nope", "", None, 3,
            MODEL.replace("/", "__"), TINY + ":nope", "colbert:muvera"
        ],
        "encoding_format": ["float", "base64", "hex", None, 1],
        "dimensions": [8, 0, 385, "8", None],
        "user": ["u", None, 1],
        "input": [[], "", ["a", ""], [[]], [[101, 102]], [101, 7, 102], [[-1]], {}, 1.5, None],
        "inputs": [[], "", ["a", ""], [["a", "b"], ["c"]], [["a", "b", "c"]], [[101, 102]], {}, 1, None, {
            "sentences": ["a"]
        }, {
            "source_sentence": "a",
            "sentences": []
        }, {
            "source_sentence": 1
        }],
        "texts": [[], ["a", ""], "a", None, [1]],
        "query": ["", " ", None, 1, "x" * 9000],
        "documents": [[], [" "], [{
            "text": "a"
        }], [{
            "title": "t",
            "text": "x"
        }], [{}], "a", [1], None],
        "rank_fields": [["title"], ["text", "text"], [], "x"],
        "top_n": [1, 0, 9, None, "1"],
        "return_documents": [True, False, 1],
        "max_chunks_per_doc": [10, 0],
        "max_tokens_per_doc": [2, 4096, 0],
        "truncation": [True, False, 3],
        "return_embeddings": [True],
        "priority": [3],
        "normalize": [True, False, 1],
        "truncate": [True, False, None, 2],
        "truncation_direction": ["left", "Left", "right", "up", None],
        "prompt_name": ["query", "document", "nope", None],
        "raw_scores": [True, False, "x"],
        "return_text": [True, False],
        "add_special_tokens": [True, False, 1],
        "skip_special_tokens": [True, False],
        "ids": [[], [1, 2], [[1], [2]], "x", [-1], [10**7], [[]]],
        "parameters": [{}, {
            "truncate": True
        }, 1],
        "options": [{
            "max_seq_length": 4
        }, {
            "nope": 1
        }, [], None],
        "nope": [1, None],
        "extra_body": [{}],
    }
    for path in GUESTS:
        for sdk in SDKS[:3]:
            yield Case(f"{path} of SDK {sdk}", path, one[path], X_SIE_SDK_Version=sdk)
        for accept in ("application/msgpack", "*/*", None):
            yield Case(f"{path}, Accept {accept}", path, one[path], Accept=accept)
        yield Case(f"{path} in msgpack", path, msgpack.packb(one[path]), **BOTH)
        for bad in (b"", b"{", b"[]", b"{}", b"null", b'{"a":1}}', b"\xff", b'{"inputs":"\xff"}',
                    b"[" * 100_000, b'{"model":' * 5000):
            yield Case(f"{path} with {bad[:12]!r}", path, bad)
        for key, values in more.items():
            for value in values:
                yield Case(f"{path} with {key} {str(value)[:30]}", path, one[path] | {key: value})
        for key in one[path]:
            yield Case(f"{path} without {key}", path, {k: v for k, v in one[path].items() if k != key})
        if path.endswith("embed") or path.endswith("embed_all") or path == "/":
            for d in "left", "right":
                yield Case(f"{path} cut {d}", path, {
                    "inputs": [text(9, 400), cat],
                    "truncate": True,
                    "truncation_direction": d
                })
