"""The table of test_same.py: good, bad and hostile requests of every route."""
import msgpack

from conftest import JUDGE, MODEL, TINY
from same_guests import guests
from same_hostile import hostile, literals, markers, msgspec
from same_texts import BOTH, MSGPACK, NATIVE, items, text, texts, with_items
from same_wire import Case


def good():
    for of in NATIVE:
        path, body = with_items(of, [{"id": "a", "text": text(1)}, {"text": text(2)}, {"id": "", "text": ""}])
        for accept in ("application/json", "application/msgpack", "*/*", None, "text/html",
                       "application/json;q=0.1, application/msgpack", "application/x-msgpack"):
            yield Case(f"{of}, Accept {accept}", path, body, Accept=accept)
            yield Case(f"{of} in msgpack, Accept {accept}", path, msgpack.packb(body),
                       Content_Type="application/msgpack", Accept=accept)
        for kind in ("application/json; charset=utf-8", "text/plain", None, "application/x-msgpack", "x"):
            yield Case(f"{of} as {kind}", path, body, Content_Type=kind)
    path, body = with_items("dense", items(3))
    for dtype in ("float32", "float16", "int8", "uint8", "binary", "ubinary", "bfloat16", "FLOAT32", "",
                  None):
        for of in ("dense", "minilm", "sparse", "tokens", "folded"):
            path, body = with_items(of, items(3))
            body["params"] = body.get("params", {}) | {"output_dtype": dtype}
            yield Case(f"{of} as {dtype}", path, msgpack.packb(body), **BOTH)
    for of in NATIVE:
        path, _ = NATIVE[of]
        for kinds in (["dense"], ["sparse"], ["multivector"], ["dense", "sparse", "multivector"], [], None,
                      ["x"], ["dense", "dense"]):
            _, body = with_items(of, items(2))
            body["params"] = body.get("params", {}) | {"output_types": kinds}
            yield Case(f"{of} with types {kinds}", path, body)
    for key, values in {
            "is_query": [True, False, None, 1, "yes"],
            "instruction": ["find: ", "", None, 3, "x" * 5000],
            "labels": [["a"], [], None, "a", [1], ["a", "a"], ["x" * 3000],
                       [f"label {i}" for i in range(40)]],
            "threshold": [0.5, 0, 1, 2, -1, None, "x"],
            "output_schema": [{}, {
                "a": 1
            }, [], None],
            "unknown": [1],
            "top_k": [1],
    }.items():
        for value in values:
            for of in ("dense", "minilm", "tokens", "score", "moods", "entails", "tags"):
                path, body = with_items(of, items(2))
                body["params"] = body.get("params", {}) | {key: value}
                yield Case(f"{of} with {key} {str(value)[:20]}", path, body)
                yield Case(f"{of} with top {key} {str(value)[:20]}", path, body | {key: value})
    for key, values in {
            "normalize": [True, False, 1, None],
            "dimensions": [8, 0, -1, 9999, "8", 2**40],
            "pooling": ["cls", "x"],
            "overflow_policy": ["error", "truncate", "truncate_left", "x", 1],
            "max_seq_length": [4, 0, 10**9, "x"],
            "profile": ["default", "muvera", "nope", "", 1],
            "lora_id": ["four", "/etc", "nope", 3],
            "top_k": [1, 0, 2.5],
            "multi_label": [True],
            "hypothesis_template": ["about {}", "none", "{} {}"],
            "muvera": [True, {}, False, {
                "x": 1
            }],
            "smve": [True, {}],
            "threshold": [0.3],
            "typo": [1],
            "": [1],
            "output_dtype": ["float16", "int8"],
            "query_template": ["q: {text}"],
            "is_query": [True],
            "aggregation_strategy": ["simple", "first", "x"],
            "raw_scores": [True],
            "activation": ["none"],
    }.items():
        for value in values:
            for of in NATIVE:
                path, body = with_items(of, [{"text": text(3)}, {"text": text(4, 90)}])
                body["params" if of != "score" else "options"] = (body.get("params", {}) | {
                    "options": {
                        key: value
                    }
                } if of != "score" else {
                    key: value
                })
                yield Case(f"{of} with option {key} {value}", path, body)
    for of in NATIVE:
        path, body = with_items(of, items(40))
        body["items"][17] = {"id": "long", "text": text(5, 400)}
        if of.startswith("score"):
            body["options"] = {"overflow_policy": "error"}
        else:
            body["params"] = body.get("params", {}) | {"options": {"overflow_policy": "error"}}
        yield Case(f"{of}, one of 40 too long", path, body)
        body["items"][3] = {"text": text(6, 400)}
        yield Case(f"{of}, two of 40 too long", path, msgpack.packb(body), **BOTH)


def counts():
    """Every number of items, so that slices are cut everywhere, and bad ones among them."""
    for n in range(1, 201):
        for of in ("dense", "score"):
            path, body = with_items(of, items(n))
            yield Case(f"{of}, {n} items", path, msgpack.packb(body), **BOTH)
        if n % 9 == 0 or n in (31, 32, 33, 63, 64, 65, 97, 128, 129, 200):
            for of in NATIVE:
                if of == "minilm" and n not in (32, 33, 65, 128):
                    continue  # the only model here that takes its time
                path, body = with_items(of, items(n))
                yield Case(f"{of}, {n} items in JSON", path, body)
            yield Case(f"embeddings of {n}", "/v1/embeddings", {"model": TINY, "input": texts(n)})
            yield Case(f"rerank of {n}", "/v1/rerank", {
                "model": JUDGE,
                "query": "how tall",
                "documents": texts(n),
                "return_documents": n % 2 == 0
            })
            yield Case(f"rerank v2 of {n}, best 3", "/v2/rerank", {
                "model": JUDGE,
                "query": "how tall",
                "documents": texts(n),
                "top_n": 3
            })
            yield Case(f"embed of {n}", "/embed", {"inputs": texts(n)})
            yield Case(f"embed_sparse of {n}", "/embed_sparse", {"inputs": texts(n)})
            yield Case(f"embed_all of {n}", "/embed_all", {"inputs": texts(min(n, 40))})
            yield Case(f"TEI rerank of {n}", "/rerank", {
                "query": "how tall",
                "texts": texts(n),
                "return_text": True
            })
            yield Case(f"similarity of {n}", "/similarity",
                       {"inputs": {
                           "source_sentence": "how tall",
                           "sentences": texts(n)
                       }})
            yield Case(f"predict of {n}", "/predict", {"inputs": [[t] for t in texts(n)]})
            yield Case(f"tokenize {n}", "/tokenize", {"inputs": texts(n)})
            yield Case(f"decode {n}", "/decode", {"ids": [[101, 1000 + i, 102] for i in range(n)]})
    for n, bad in (1, 0), (38, 37), (40, 37), (101, 100), (150, 100), (200, 199):
        for what, item in (("number", {
                "text": 1
        }), ("nothing", {}), ("null", {
                "text": None
        }), ("list", []), ("bytes", {
                "text": b"x"
        }), ("image", {
                "images": [{
                    "data": b"\xff\xd8\xff"
                }]
        }), ("id", {
                "id": 7,
                "text": "x"
        }), ("metadata", {
                "text": "x",
                "metadata": 1
        }), ("blank", {
                "text": " \n"
        }), ("large", {
                "text": "a" * 2_100_000
        })):
            for of in ("dense", "score", "moods", "tags"):
                path, body = with_items(of, items(n))
                body["items"][bad] = item
                yield Case(f"{of}, {what} at {bad} of {n}", path, msgpack.packb(body), **MSGPACK)
        raw = msgpack.packb({"items": items(n)}).replace(msgpack.packb(text(bad)), b"\xa2\xff\xfe", 1)
        yield Case(f"bad UTF-8 at the first text like {bad} of {n}", NATIVE["dense"][0], raw, **MSGPACK)
        many = texts(n)
        for what, value in ("number", 3), ("blank", " "), ("null", None), ("object", {"text": 1}):
            some = many[:bad] + [value] + many[bad + 1:]
            yield Case(f"embeddings, {what} at {bad}", "/v1/embeddings", {"model": TINY, "input": some})
            yield Case(f"embed, {what} at {bad}", "/embed", {"inputs": some})
            yield Case(f"rerank, {what} at {bad}", "/v1/rerank", {
                "model": JUDGE,
                "query": "q",
                "documents": some
            })
            yield Case(f"TEI rerank, {what} at {bad}", "/rerank", {"query": "q", "texts": some})
            yield Case(f"tokenize, {what} at {bad}", "/tokenize", {"inputs": some})
        ids = [[101, 1000, 102]] * n
        ids[bad] = [10**6]
        yield Case(f"no such token at {bad} of {n}", "/v1/embeddings", {"model": MODEL, "input": ids})
        yield Case(f"embed, no such token at {bad} of {n}", "/embed", {"inputs": ids})
        yield Case(f"decode, no such token at {bad} of {n}", "/decode", {"ids": ids})
        some = many[:bad] + [text(8, 500)] + many[bad + 1:]
        yield Case(f"embed, too long at {bad} of {n}", "/embed", {"inputs": some, "truncate": False})
        yield Case(f"TEI rerank, too long at {bad} of {n}", "/rerank", {
            "query": "q",
            "texts": some,
            "truncate": False
        })
        yield Case(f"rerank, too long at {bad} of {n}", "/v1/rerank", {
            "model": JUDGE,
            "query": "q",
            "documents": some,
            "truncation": False
        })
    yield Case("5,000 items", NATIVE["dense"][0], msgpack.packb({"items": items(5000)}), **BOTH)
    yield Case("70,000 items", NATIVE["dense"][0], msgpack.packb({"items": [{"text": "a"}] * 70_000}), **BOTH)


def table():
    for part in good, counts, guests, msgspec, literals, hostile, markers:
        yield from part()
