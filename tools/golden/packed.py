"""Golden files in the form that git tracks: one archive for each case, testdata/packed/CASE.packed.

    python tools/golden/packed.py [--quiet]       write the files of every archive into testdata/golden
    python tools/golden/packed.py pack CASE…      make the archives of cases anew from their files

Only files that PACKED names are in archives; git ignores them where they lie (testdata/golden/.gitignore).
What is there with the right bytes is left alone, so a second run writes nothing. Standard library of
Python 3.11 only: a GPU host has that and the checkout. One built without lzma unpacks nothing.

An archive is MAGIC, the length of the compressed index (4 bytes, little endian), the index, and
streams. A file is cut into regions, and a region takes its bytes from streams:

    literal N           the next N bytes of the stream "text"
    planes W N          N values of W bytes: the first byte of each from the stream "W.0", then the second …
    coded W N palette   N values of W bytes, each one of a palette: a code each from the stream "codes"
    same I              the bytes of region I, counted from the first of the archive

A tensor of at most 256 different values is coded. Weights of golden cases are drawn so (coarse.py),
and a code has about three bits once the stream is compressed. Codes are sorted by how often they
occur, so all tensors of a file share one Huffman table.
"""

import collections
import fnmatch
import hashlib
import json
import lzma
import os
import pathlib
import struct
import sys
import tempfile
import zipfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "testdata" / "golden"
ARCHIVES = ROOT / "testdata" / "packed"
MAGIC = b"sie-packed-1\n"
# Names of files, in any folder of a case.
PACKED = ("*.safetensors", "pytorch_model.bin", "adapter_model.bin", "*.pt", "*.model",
          "tokenizer.json", "golden.json", "places.json", "left.json", "texts.json", "texts.jsonl",
          "cases.json", "adjacent.json", "merge.json", "relations.json", "spans.json", "tokens.json",
          "triples.json", "union.json", "splits.json", "unicode.json", "windows.json",
          "accents.json", "added.json", "cased.json", "items.json", "llama.json", "minilm.json",
          "roberta.json", "sentencepiece.json", "xlmr.json")
WIDTHS = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
FORMATS = {2: "H", 4: "I", 8: "Q"}


class Corrupt(Exception):
    """An archive that cannot be read, with its path and why."""


def is_packed(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name.rsplit("/", 1)[-1], pattern) for pattern in PACKED)


# ---- packing -----------------------------------------------------------------------------------------------------


def spans(path: pathlib.Path, data: bytes):
    """(begin, end, bytes a value) of what in a file is tensors, in order; what is between them is text."""
    if path.suffix == ".safetensors":
        size = struct.unpack("<Q", data[:8])[0]
        tensors = {k: v for k, v in json.loads(data[8:8 + size]).items() if k != "__metadata__"}
        found = [(8 + size + v["data_offsets"][0], 8 + size + v["data_offsets"][1], WIDTHS.get(v["dtype"], 1))
                 for v in tensors.values()]
    elif path.suffix in (".bin", ".pt") and zipfile.is_zipfile(path):  # of torch.save: one stored entry for each tensor
        found = []
        with zipfile.ZipFile(path) as z:
            for entry in z.infolist():
                if "/data/" in entry.filename and entry.compress_type == zipfile.ZIP_STORED:
                    name, extra = struct.unpack("<HH", data[entry.header_offset + 26:entry.header_offset + 30])
                    begin = entry.header_offset + 30 + name + extra
                    found.append((begin, begin + entry.file_size, 4 if entry.file_size % 4 == 0 else 1))
    else:
        found = []
    return sorted(s for s in found if s[0] < s[1])


class Packer:
    def __init__(self):
        self.streams = collections.defaultdict(bytearray)
        self.palettes = {}  # a palette's values as bytes → its number
        self.regions = {}  # bytes of a region → its number
        self.count = 0

    def region(self, data: bytes, width: int) -> list:
        """A region of bytes that are there already costs nothing: adapters share states, variants share weights."""
        self.count += 1
        first = self.regions.setdefault(data, self.count - 1)
        return ["s", first] if first < self.count - 1 else self.fresh(data, width)

    def fresh(self, data: bytes, width: int) -> list:
        if width == 1:
            self.streams["text"] += data
            return ["l", len(data)]
        values = memoryview(data).cast(FORMATS[width])
        count = collections.Counter(values)
        if len(count) <= 256 and len(values) >= 4 * len(count):
            order = [v for v, _ in sorted(count.items(), key=lambda item: (-item[1], item[0]))]
            code = {v: i for i, v in enumerate(order)}
            self.streams["codes"] += bytes(map(code.__getitem__, values))
            palette = b"".join(struct.pack("<" + FORMATS[width], v) for v in order)
            return ["c", width, len(values), self.palettes.setdefault(palette, len(self.palettes))]
        for k in range(width):
            self.streams[f"{width}.{k}"] += data[k::width]
        return ["p", width, len(values)]

    def file(self, path: pathlib.Path) -> dict:
        data, at, regions = path.read_bytes(), 0, []
        for begin, end, width in spans(path, data):
            if begin > at:
                regions.append(self.region(data[at:begin], 1))
            regions.append(self.region(data[begin:end], width))
            at = end
        if at < len(data):
            regions.append(self.region(data[at:], 1))
        return {"sha256": hashlib.sha256(data).hexdigest(), "regions": regions}


# Of words lzma makes two thirds of what zlib does.
LZMA = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 1 << 20, "lc": 4, "lp": 0, "pb": 0}]


def smallest(data: bytes) -> tuple[str, bytes]:
    """The shortest form of a stream, and which it is. zlib's two strategies are for words and for codes."""
    tried = [("stored", data), ("lzma", lzma.compress(data, lzma.FORMAT_RAW, filters=LZMA))]
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY):
        c = zlib.compressobj(9, zlib.DEFLATED, -15, 9, strategy)
        tried.append(("deflate", c.compress(data) + c.flush()))
    return min(tried, key=lambda item: len(item[1]))


def pack(case: pathlib.Path, archive: pathlib.Path | None = None) -> None:
    """Makes a case's archive, or leaves it where it already has these files; removes it where there are none."""
    if archive is None:  # a case may be a folder in a folder; the archive is of the outer one
        case = GOLDEN / case.relative_to(GOLDEN).parts[0]
        archive = ARCHIVES / f"{case.name}.packed"
    found = (p for p in case.rglob("*") if p.is_file() and is_packed(p.name))
    names = sorted(p.relative_to(case).as_posix() for p in found)
    if not names:
        archive.unlink(missing_ok=True)
        return
    if archive.exists():
        try:
            sums = {name: entry["sha256"] for name, entry in Archive(archive).files.items()}
            if sums == {name: hashlib.sha256((case / name).read_bytes()).hexdigest() for name in names}:
                return
        except Corrupt:
            pass
    packer = Packer()
    files = {name: packer.file(case / name) for name in names}
    streams, blobs = {}, []
    for name, data in sorted(packer.streams.items()):
        method, blob = smallest(bytes(data))
        streams[name] = [method, len(data), len(blob)]
        blobs.append(blob)
    index = {"files": files, "palettes": [p.hex() for p in packer.palettes], "streams": streams}
    index = zlib.compress(json.dumps(index, separators=(",", ":")).encode(), 9)
    body = MAGIC + struct.pack("<I", len(index)) + index + b"".join(blobs)
    archive.parent.mkdir(parents=True, exist_ok=True)
    write(archive, body)
    for name, data in Archive(archive).contents():
        assert data == (case / name).read_bytes(), name


# ---- unpacking ---------------------------------------------------------------------------------------------------


class Archive:
    """An archive's index; contents reads the files."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.data = path.read_bytes()
        if not self.data.startswith(MAGIC):
            raise Corrupt(f"{path} is no archive of golden files: restore it with git")
        try:
            at = len(MAGIC) + 4
            size = struct.unpack("<I", self.data[at - 4:at])[0]
            index = json.loads(zlib.decompress(self.data[at:at + size]))
            self.files, self.palettes, self.streams = index["files"], index["palettes"], index["streams"]
            self.begin = at + size
            stored = sum(s[2] for s in self.streams.values())
        except (struct.error, zlib.error, ValueError, KeyError, TypeError) as e:
            raise Corrupt(f"{path}: its index cannot be read ({e}): restore it with git") from e
        if len(self.data) != self.begin + stored:
            raise Corrupt(f"{path} has {len(self.data)} bytes and should have {self.begin + stored}: restore it with git")
        for name in self.files:
            if name.startswith("/") or ".." in name.split("/") or not is_packed(name):
                raise Corrupt(f"{path}: {name} is no name of a packed file: restore it with git")

    def contents(self):
        """(name, bytes) of every file. A file whose checksum is wrong is an error."""
        try:
            yield from self._contents()
        except (zlib.error, lzma.LZMAError, EOFError, ValueError, IndexError, KeyError, TypeError) as e:
            raise Corrupt(f"{self.path} cannot be read ({e}): restore it with git") from e

    def _contents(self):
        at, streams, place = self.begin, {}, collections.Counter()
        for name, (method, size, stored) in self.streams.items():
            blob = self.data[at:at + stored]
            if method == "deflate":
                streams[name] = zlib.decompress(blob, -15, max(size, 1))
            elif method == "lzma":
                streams[name] = lzma.decompress(blob, lzma.FORMAT_RAW, filters=LZMA)
            else:
                streams[name] = blob
            at += stored

        def take(stream, count):
            begin = place[stream]
            place[stream] += count
            return streams[stream][begin:begin + count]

        tables = {}
        for number, palette in enumerate(self.palettes):
            tables[number] = bytes.fromhex(palette)

        regions = []
        for name, entry in self.files.items():
            begin = len(regions)
            for kind, *region in entry["regions"]:
                if kind in "ls":
                    regions.append(take("text", region[0]) if kind == "l" else regions[region[0]])
                    continue
                width, count = region[:2]
                out = bytearray(width * count)
                codes = take("codes", count) if kind == "c" else b""
                for k in range(width):
                    if kind == "c":
                        out[k::width] = codes.translate(tables[region[2]][k::width].ljust(256, b"\0"))
                    else:
                        out[k::width] = take(f"{width}.{k}", count)
                regions.append(out)
            data = b"".join(regions[begin:])
            if hashlib.sha256(data).hexdigest() != entry["sha256"]:
                raise Corrupt(f"{self.path}: {name} has another checksum than the index says: restore it with git")
            yield name, data


def write(path: pathlib.Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def unpack(archive: pathlib.Path, case: pathlib.Path) -> int:
    """Writes the files of an archive that are not there as it has them. Returns how many it wrote."""
    packed = Archive(archive)
    there = set()
    for name, entry in packed.files.items():
        path = case / name
        try:
            if hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]:
                there.add(name)
        except FileNotFoundError:
            pass
    if len(there) == len(packed.files):
        return 0
    for name, data in packed.contents():
        if name not in there:
            (case / name).parent.mkdir(parents=True, exist_ok=True)
            write(case / name, data)
    return len(packed.files) - len(there)


def main(words: list[str]) -> int:
    if words[:1] == ["pack"]:
        for name in words[1:]:
            if not (GOLDEN / name).is_dir():
                sys.exit(f"packed: {GOLDEN / name} is no folder")
            pack(GOLDEN / name)
        return 0
    if words not in ([], ["--quiet"]):
        sys.exit(__doc__)
    written, archives = 0, sorted(ARCHIVES.glob("*.packed"))
    if not archives:
        sys.exit(f"packed: {ARCHIVES} has no archives: restore it with git")
    for archive in archives:
        try:
            written += unpack(archive, GOLDEN / archive.stem)
        except Corrupt as e:
            sys.exit(f"packed: {e}")
    if written and not words:
        print(f"sie: {written} golden files from {len(archives)} archives in testdata/packed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
