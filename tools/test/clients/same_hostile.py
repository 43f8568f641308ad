"""Hostile requests, those of the decoders' tests, and those by which logs are searched."""
import base64
import gzip
import json
import re

import msgpack
import numpy as np

from conftest import JUDGE, MODEL, ROOT, TINY
from same_texts import BOTH, GUESTS, KEY, MARKER, NATIVE, SDKS, items, text, with_items
from same_wire import Case


def msgspec():
    """What internal/api compares with the reference's decoder, byte by byte."""
    of = {"encode": "/v1/encode/" + TINY, "score": "/v1/score/" + JUDGE, "extract": "/v1/extract/moods"}
    with gzip.open(ROOT / "internal/api/testdata/msgspec.jsonl.gz", "rt") as f:
        for n, line in enumerate(f):
            request, kind, body, _ = json.loads(line)
            yield Case(f"msgspec {n}", of[request], bytes.fromhex(body), Content_Type="application/" + kind)


def literals():
    """Every JSON body that stands in a Go test of a route or a decoder, sent to the routes that it
    may be for, and again with the names of models that are here."""
    seen = set()
    for file in sorted([
            *ROOT.glob("internal/api/*_test.go"), *ROOT.glob("internal/compat/*_test.go"),
            *ROOT.glob("internal/inference/*_test.go"), *ROOT.glob("runtime/server/*_test.go"),
            *ROOT.glob("gateway/**/*_test.go")
    ]):
        for body in re.findall(r"`([{\[][^`]*)`", file.read_text()):
            for b in (body, re.sub(r'"model":\s*"[^"]*"', f'"model":"{TINY}"',
                                   body), re.sub(r'"model":\s*"[^"]*"', f'"model":"{JUDGE}"', body)):
                if b in seen:
                    continue
                seen.add(b)
                if '"items"' in b:
                    paths = [NATIVE[x][0] for x in ("dense", "score", "moods", "entails")]
                elif '"documents"' in b:
                    paths = ["/v1/rerank", "/v2/rerank"]
                elif '"input"' in b:
                    paths = ["/v1/embeddings"]
                elif '"texts"' in b:
                    paths = ["/rerank"]
                elif '"ids"' in b:
                    paths = ["/decode"]
                elif '"inputs"' in b:
                    paths = [
                        "/embed", "/predict", "/similarity", "/tokenize", "/embed_sparse", "/embed_all", "/"
                    ]
                else:
                    paths = ["/v1/embeddings", "/v1/rerank", NATIVE["dense"][0]]
                for path in paths:
                    yield Case(f"{file.name} to {path}", path, b.encode())


def hostile():
    path = NATIVE["dense"][0]
    ok = {"items": items(2)}
    nest = b'{"items":[{"text":"a","metadata":'
    for name, body, kind in [
        ("json nesting", b"[" * 10**6, "json"),
        ("deep metadata", nest + b'{"a":' * 2000 + b"1" + b"}" * 2002, "json"),
        ("deep unknown", b'{"x":' + b'{"a":' * 10**5, "json"),
        ("msgpack nesting", b"\x81\xa5items" + b"\x91" * 10**6, "msgpack"),
        ("huge array", b"\x81\xa5items\xdd\xff\xff\xff\xff", "msgpack"),
        ("huge map", b"\xdf\xff\xff\xff\xff", "msgpack"),
        ("huge string", b"\x81\xa5items\x91\x81\xa4text\xdb\xff\xff\xff\xff", "msgpack"),
        ("huge bin", b"\x81\xa5items\x91\x81\xa4text\xc6\xff\xff\xff\xff", "msgpack"),
        ("ext", b"\x81\xa5items\x91\x81\xa4text\xd4\x05\x00", "msgpack"),
        ("reserved", b"\xc1", "msgpack"),
        ("trailing", msgpack.packb(ok) + b"\0", "msgpack"),
        ("bad text", b'{"items":[{"text":"\xff"}]}', "json"),
        ("lone surrogate", b'{"items":[{"text":"\\ud83d"}]}', "json"),
        ("escaped", b'{"items":[{"text":"\\u0000\\ud83d\\ude00"}]}', "json"),
        ("control", b'{"items":[{"text":"a\x01"}]}', "json"),
        ("twice", b'{"items":[],"items":[{"text":"a"}]}', "json"),
        ("keys of numbers", b"\x81\x05\x90", "msgpack"),
        ("bom", "\ufeff{}".encode(), "json"),
        ("big options", json.dumps(ok | {
            "params": {
                "options": {
                    "k": [None] * 10_001
                }
            }
        }).encode(), "json"),
        ("a MiB id", json.dumps({
            "items": [{
                "id": "i" * 2**20,
                "text": "a"
            }]
        }).encode(), "json"),
        ("half", json.dumps(ok).encode()[:-3], "json"),
        ("longest text", json.dumps({
            "items": [{
                "text": "a " * 2**20
            }]
        }).encode(), "json"),
        ("nul", msgpack.packb({"items": [{
            "text": "a\0b"
        }]}), "msgpack"),
    ]:
        for where in (path, NATIVE["score"][0], NATIVE["moods"][0]):
            yield Case(f"{name} to {where}", where, body, Content_Type="application/" + kind)
    jpeg = base64.b64encode(b"\xff\xd8\xff").decode()
    for item in ({
            "images": [{
                "data": jpeg,
                "format": "jpeg"
            }]
    }, {
            "images": [jpeg]
    }, {
            "text": "a",
            "images": []
    }, {
            "audio": {
                "data": jpeg,
                "sample_rate": 16000
            }
    }, {
            "video": {
                "data": jpeg
            }
    }, {
            "document": {
                "data": jpeg
            }
    }, {
            "images": [{
                "data": "Zg="
            }]
    }, {
            "content": "a"
    }, {
            "text": "a",
            "content": "b"
    }, {
            "text": "a",
            "metadata": {
                "k": [1, {
                    "x": None
                }]
            }
    }, {
            "text": "a",
            "nobody": {
                "knows": [1]
            }
    }, {
            "multivector": [[0.5] * 24] * 3
    }, {
            "text": "a",
            "id": "i" * 300
    }, {
            "id": "\u0000",
            "text": "a"
    }):
        for of in NATIVE:
            where, body = with_items(of, [{"text": "first"}, item])
            yield Case(f"{of} with item {str(item)[:30]}", where, body)
        yield Case(f"query {str(item)[:30]}", NATIVE["score"][0], {"query": item, "items": items(2)})
    array = {
        b"nd": True,
        b"type": "<f4",
        b"kind": b"",
        b"shape": [2, 24],
        b"data": np.arange(48, dtype="<f4").tobytes()
    }
    yield Case("token vectors as an item", NATIVE["score of vectors"][0],
               msgpack.packb({
                   "query": {
                       "text": "a"
                   },
                   "items": [{
                       "multivector": array
                   }]
               }), **BOTH)
    for model in ("nope", "all-MiniLM", MODEL + "x", "sentence-transformers%2Fall-MiniLM-L6-v2",
                  MODEL + ":default", MODEL + ":nope", TINY + ":default", "colbert:both", ":", "a:b:c", "%00",
                  "%zz", "sentence-transformers__all-MiniLM-L6-v2", "*", ">", "a.b", "x" * 600,
                  "%F0%9F%99%82", "a//b", "../models", "", "splade", JUDGE, "moods", "entails", "tags",
                  "late", "late:muvera"):
        for route in ("encode", "score", "extract"):
            yield Case(f"{route} of {model[:40]}", f"/v1/{route}/{model}", {
                "query": {
                    "text": "q"
                },
                "items": items(2),
                "params": {
                    "labels": ["a"]
                }
            })
        yield Case(f"model {model[:40]}", f"/v1/models/{model}", method="GET")
    for sdk in SDKS:
        for where, body in ((path, ok), (path, {
                "items": []
        }), ("/v1/encode/nope", ok), (NATIVE["score"][0], ok), ("/v1/generate/x", {}),
                            ("/v1/encode/" + JUDGE, ok), ("/v1/extract/moods", {
                                "items": [{
                                    "text": "a"
                                }, {
                                    "text": text(1, 300)
                                }],
                                "params": {
                                    "options": {
                                        "overflow_policy": "error"
                                    }
                                }
                            })):
            yield Case(f"{where} of SDK {str(sdk)[:20]}", where, body, X_SIE_SDK_Version=sdk)
            yield Case(f"{where} of SDK {str(sdk)[:20]}, msgpack", where, msgpack.packb(body),
                       X_SIE_SDK_Version=sdk, **BOTH)
    for name, values in {
            "X-SIE-Remote": ["forbid", "allow", "", "FORBID"],
            # what stands before a slash is a pool, which a gateway alone knows (docs/compatibility.md)
            "X-SIE-MACHINE-PROFILE": ["", "nosuchprofile", "nosuchprofile-spot"],
            "Authorization": [KEY, "Basic x", "", "Bearer"],
            "traceparent": ["00-" + "4b" * 16 + "-" + "0f" * 8 + "-01", "x"],
            "X-Request-ID": ["mine", "x" * 500, "a\tb", "\xff"],
            "Expect": ["100-continue", "x"],
            "Content-Encoding": ["gzip", "identity", "br"],
            "Origin": ["http://evil.example"],
            "Accept-Encoding": ["gzip", "identity;q=0"],
            "X-SIE-Pool": [""],
            "Content-Type": ["a/b; \xff"],
    }.items():
        for value in values:
            # a gateway names the profiles of its pool, a worker its own
            yield Case(f"{name}: {value[:20]}", path, ok, words=not value.startswith("nosuchprofile"),
                       **{name.replace("-", "_"): value.encode("latin1")})
    packed = gzip.compress(json.dumps(ok).encode(), mtime=0)
    yield Case("gzip", path, packed, Content_Encoding="gzip")
    yield Case("half of a gzip", path, packed[:-5], Content_Encoding="gzip")
    yield Case("a bomb", path, gzip.compress(b" " * (100 << 20), mtime=0), Content_Encoding="gzip")
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "BREW"):
        for where in (path, "/v1/models", "/embed", "/healthz", "/nothing", "/v1/embeddings"):
            if method != "HEAD":
                yield Case(f"{method} {where}", where, method=method)
    for where in ("/v1/generate/x", "/v1/chat/completions", "/v1/completions", "/v1/responses",
                  "/v1/audio/speech", "/v1/jobs/1/cancel", "/v1/files", "/v1/batches", "/v1/nothing",
                  "/v2/embed", "/v1/encode", "/v1/encode/", "/v1//encode/x", "/v1/encode/a//b",
                  "/v1/encode/../models", "/%2e%2e/", "/v1/encode/tiny?x=1", "/V1/ENCODE/tiny",
                  "/v1/encode/tiny/", "//", "/info", "/health", "/v1/moderations"):
        yield Case(f"POST {where}", where, ok)
        yield Case(f"GET {where}", where, method="GET")
    for where in ("/", "/docs", "/openapi.json", "/readyz", "/livez", "/metrics", "/ws/status"):
        yield Case(f"GET {where}", where, method="GET")
    for raw in (b"\x00\x01\x02 garbage\r\n\r\n",
                b"POST / HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 100_000 + b"\r\n\r\n", b"POST " +
                path.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
                b"POST " + path.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                b"POST " + path.encode() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: x\r\n\r\n", b"POST " +
                path.encode() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                b"GET /v1/models HTTP/0.9\r\n\r\n", b"POST " + path.encode() + b" HTTP/1.1\r\n\r\n"):
        yield Case(f"head {raw[:60]!r} of {len(raw)} bytes", raw=raw)


def markers():
    """Texts and keys by which the logs are searched afterwards."""
    for of in NATIVE:
        path, body = with_items(of, [{
            "id": MARKER,
            "text": MARKER + " in a text",
            "metadata": {
                "m": MARKER
            }
        }, {
            "text": 1
        }])
        yield Case(f"{of} with a marker and an error", path, body, Authorization=KEY)
        body["items"][1] = {"text": (MARKER + " ") * 300}
        yield Case(f"{of} with a marker", path, body, Authorization=KEY)
        yield Case(
            f"{of} with a marker, too long", path, body |
            {"params": {
                "labels": [MARKER],
                "instruction": MARKER,
                "options": {
                    "overflow_policy": "error"
                }
            }}, Authorization=KEY)
    for path in GUESTS:
        yield Case(
            f"{path} with a marker", path, {
                "inputs": MARKER,
                "input": MARKER,
                "query": MARKER,
                "documents": [MARKER],
                "texts": [MARKER],
                "model": MODEL,
                "user": MARKER
            }, Authorization=KEY)
        yield Case(f"{path} with markers only", path, {
            "inputs": [MARKER, 1],
            "input": [MARKER, 1]
        }, Authorization=KEY)
