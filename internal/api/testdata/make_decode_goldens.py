"""Writes msgspec.jsonl.gz: what a server built on msgspec says about thousands of damaged request
bodies.

Run:  python make_decode_goldens.py > msgspec.jsonl.gz      (needs msgspec and msgpack; made with msgspec 0.22.0)

Each line is [request, format, body in hex, message]; an empty message means accepted. The request
types are our own statement of the public request schema. Bodies that this project deliberately
treats differently are left out: see `ours`.
"""

import gzip
import json
import random
import re
import sys
from typing import Any, TypedDict

import msgpack
import msgspec


class Media(TypedDict, total=False):
    data: bytes
    format: str | None


class Audio(msgspec.Struct, forbid_unknown_fields=True):
    data: bytes
    format: str | None = None
    sample_rate: int | None = None


class Item(msgspec.Struct):
    id: str | None = None
    text: str | None = None
    images: list[Media] | None = None
    audio: Audio | None = None
    video: Media | None = None
    document: Media | None = None
    metadata: dict[str, Any] | None = None


class EncodeParams(msgspec.Struct):
    output_types: list[str] | None = None
    output_dtype: str | None = None
    instruction: str | None = None
    options: dict[str, Any] | None = None


class ExtractParams(msgspec.Struct):
    labels: list[str] | None = None
    output_schema: dict[str, Any] | None = None
    instruction: str | None = None
    options: dict[str, Any] | None = None


class NonEmpty:
    def __post_init__(self) -> None:
        if not self.items:
            raise msgspec.ValidationError("Field 'items' must not be empty")


class Encode(NonEmpty, msgspec.Struct):
    items: list[Item]
    params: EncodeParams | None = None


class Score(NonEmpty, msgspec.Struct):
    query: Item
    items: list[Item]
    instruction: str | None = None
    options: dict[str, Any] | None = None


class Extract(NonEmpty, msgspec.Struct):
    items: list[Item]
    params: ExtractParams | None = None


TYPES = {"encode": Encode, "score": Score, "extract": Extract}


def verdict(request: str, fmt: str, body: bytes) -> str:
    module = msgspec.msgpack if fmt == "msgpack" else msgspec.json
    try:
        module.decode(body, type=TYPES[request])
    except (msgspec.ValidationError, msgspec.DecodeError) as e:
        return str(e)
    except Exception as e:  # noqa: BLE001
        return f"Failed to parse request body: {e}"
    return ""


def ours(message: str) -> bool:
    """Differences on purpose: bare images, timestamps, keys that only Python refuses."""
    bare_image = re.search(r"got `(bytes|str)` - at `\$\.items\[\d+\]\.images\[\d+\]`$", message)
    return bool(bare_image) or "imestamp" in message or "hashable" in message


FULL = {"id": "a", "text": "Zoë €😀", "images": [{"data": b"\xff\xd8", "format": "jpeg"}],
        "audio": {"data": b"RIFF", "format": None, "sample_rate": 16000},
        "video": {"data": b"v", "zz": [1, {"y": None}]}, "document": {"data": b"%PDF", "format": "pdf"},
        "metadata": {"k": [1, -2, 2.5, True, None, {"é": "x"}]},
        "multivector": {b"nd": True, b"data": b"\0\1"}, "later": [{"a": [False]}]}
BODIES = [
    ("encode", {"items": [{"text": "Hi"}]}),
    ("encode", {"items": [FULL, {}, {"id": None, "text": None}], "params": {"output_types": [
        "dense", "sparse"], "output_dtype": "int8", "instruction": "I", "options": {"k": {"z": [1]}}}}),
    ("score", {"query": {"id": "q", "text": "t"}, "items": [{"text": "d2", "id": "x"}, {"text": ""}],
               "instruction": "I", "options": {"k": 1}}),
    ("extract",
     {"items": [{"text": "t"}], "params": {"labels": ["person", ""], "output_schema": {"type": "object"},
                                           "instruction": None, "options": None}}),
]
WRONG = [None, True, 1, 300, -5, 2.5, "s", b"b", [], [1], ["s"], [[]], {}, {"a": 1}, {1: 2}, [None], [{}],
         [{"data": 5}], {"data": None}, {"data": "AA=="}, {"format": 1}, {"sample_rate": 1.5, "data": b""},
         {"data": b"", "x": 1}, msgpack.ExtType(78, b"<f4|1|\0\0\0\0")]
FIELDS = ["items", "params", "query", "instruction", "options", "zzz"]
ITEM = ["id", "text", "images", "audio", "video", "document", "metadata", "multivector"]
PARAM = ["output_types", "output_dtype", "instruction", "options", "labels", "output_schema"]
JSON_TEXTS = ["", " ", "null", "[]", "5", "-", "-x", "01", "1.", "1.e5", "1e", "1e+", "1e400", "-1e400",
              "1e5", "1E-5", "NaN", "Infinity", "-Infinity", "nul", "nulx", "tru", "trux", "falsx", "fals",
              '"', '"a', '"\\', '"\\x"', '"\\u12', '"\\u12g4"', '"\\ud800"', '"\\ud800\\n12345"',
              '"\\ud800\\u0041"', '"\\udc00"', '"\\ud83d\\ude00"', '"\\u0000"', '"\x01"', '"a\tb"',
              '"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9"', "[1,]", "[,1]", "[1 2]", "[", "[1", "[1,", "{", "{,",
              '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', '{"a" 1}', "{1:2}", '{"a":1 "b":2}', "{}",
              "{}x", "\ufeff{}", "/**/{}", "'a'", "+1", ".5", "1x", "\\", "99999999999999999999999", "[[[]]]",
              '{"a":{"b":[1,{"c":null}]}}', '{"\\ud800":1}', '{"\x02":1}',
              '"' + "x" * 40 + '\\n' + "é" * 9 + '"', '["Zm9v","Zg==","Zg=","Z===","Zm9v\\n","Zm 9"]',]
RAW_TEXTS = [b'"\xff"', b'"\xc3"', b'"\xc3("', b'"\xe2\x82"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"',
             b'"\xf0\x9f\x98"', b'"ok\\n\xff"', b'"\xc0\x80"', b'"a\xe2\x28\xa1"']


def json_bytes(o: Any) -> bytes:
    return msgspec.json.encode(o, enc_hook=lambda x: "ext")


def jsonable(o: Any) -> bool:
    try:
        json_bytes(o)
    except Exception:  # noqa: BLE001
        return False
    return True


def strip(o: Any) -> Any:  # JSON has no byte keys
    if isinstance(o, dict):
        return {k: strip(v) for k, v in o.items() if not isinstance(k, bytes)}
    return [strip(v) for v in o] if isinstance(o, list) else o


def bodies():
    pack = lambda o: msgpack.packb(o, use_bin_type=True)  # noqa: E731
    rng = random.Random(20)
    for request, o in BODIES:
        for fmt, body in (("msgpack", pack(o)), ("json", json_bytes(strip(o))),
                          ("json", json.dumps(strip(json.loads(json_bytes(strip(o)))), indent=1).encode())):
            yield request, fmt, body
            for cut in range(len(body)) if len(body) < 120 else range(0, len(body), 5):
                yield request, fmt, body[:cut]
            for _ in range(260):
                b = bytearray(body)
                for _ in range(rng.choice([1, 1, 1, 2])):
                    at = rng.randrange(len(b))
                    match rng.randrange(3):
                        case 0: b[at] = rng.randrange(256)
                        case 1: b.insert(at, rng.choice(b'{}[],:"\\ 0-e\xc1\xc0\x91\x81\xff\xdd'))
                        case 2: del b[at]
                yield request, fmt, bytes(b)
    for w in WRONG:
        todo = [("encode", w), ("score", w), ("encode", {"items": w}), ("encode", {"items": [w]}),
                ("encode", {"items": [{}], "params": w}), ("score", {"query": w, "items": [{}]}),
                ("score", {"items": w, "query": {}}),
                ("score", {"items": [{}], "query": {}, "instruction": w})]
        todo += [("encode", {"items": [{}, {f: w}]}) for f in ITEM] + [("encode",
                                                                        {"items": [{"images": [w]}]})]
        todo += [(r, {"items": [{}], "params": {f: w}}) for f in PARAM for r in ("encode", "extract")
                 if f != "options"]
        todo += [("encode", {"items": [{"metadata": {"a": w}}]}), ("encode", {"items": [{"zz": w}], "zz": w})]
        for request, o in todo:
            yield request, "msgpack", pack(o)
            if jsonable(o):
                yield request, "json", json_bytes(o)
    for t in [x.encode("utf-8", "surrogatepass") for x in JSON_TEXTS] + RAW_TEXTS:
        for pre, post in ((b"", b""), (b'{"items":', b"}"), (b'{"items":[{"text":', b"}]}"),
                          (b'{"items":[{"zz":', b"}]}"), (b'{"items":[{"metadata":{"k":', b"}}]}"),
                          (b'{"items":[{}],"params":{"output_types":', b"}}"),
                          (b'{"items":[{}],"x":[', b"]}"), (b'{"items":[{"images":', b"}]}"),
                          (b'{"items":[{"images":[{"data":', b"}]}]}"), (b'{"items":[{}],', b"}"),
                          (b'{"items":[{}]} ', b"")):
            yield "encode", "json", pre + t + post
    for b in (b"", b"\xc1", b"\xc0", b"\x90", b"\x81", b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff",
              b"{}", b"hello", b"\x81\xa5items\xdd\xff\xff\xff\xff", b"\x81\xa5items\x91\x80\x00",
              b"\x81\xa5items\x91\x81\xa4text\xdb\xff\xff\xff\xff",
              b"\x81\xa5items\x91\x81\xa4text\xa3\xff\xfe\xfd", b"\x82\xa5items\x91\x80\xa5items\x90",
              b"\x82\xa5items\x90\xa5items\x91\x80", b"\x81\xc4\x05items\x91\x80", b"\x81\x05\x91\x80"):
        yield "encode", "msgpack", b


def main() -> None:
    seen, lines = set(), []
    for request, fmt, body in bodies():
        if (request, fmt, body) in seen:
            continue
        seen.add((request, fmt, body))
        message = verdict(request, fmt, body)
        if not ours(message):
            line = json.dumps([request, fmt, body.hex(), message], ensure_ascii=False, separators=(",", ":"))
            lines.append(line.encode() + b"\n")
    sys.stdout.buffer.write(gzip.compress(b"".join(lines), mtime=0))


main()
