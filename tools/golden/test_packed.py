"""Tests of packed.py: every byte comes back, what is broken is refused, and what is right is left alone.
python -m unittest discover -s tools/golden -p 'test_*.py'"""

import contextlib
import io
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
import zlib
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import packed

FORMATS = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "I16": "h", "U8": "B"}


def tensors(named: dict) -> bytes:
    """A safetensors file of {name: (dtype, values)}."""
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, values) in named.items():
        data = struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": [len(values)],
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    words = json.dumps(header).encode()
    return struct.pack("<Q", len(words)) + words + body


def few(count, seed=1, most=7):
    """Normal numbers of few values, as coarse.py draws them."""
    drawn = random.Random(seed)
    return [max(-most, min(most, round(2 * drawn.gauss(0, 1)))) * 0.0497 for _ in range(count)]


def noise(count, seed=1):
    drawn = random.Random(seed)
    return [drawn.gauss(0, 1) for _ in range(count)]


class Packed(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name)
        self.case, self.archive = self.root / "golden/case", self.root / "packed/case.packed"
        self.case.mkdir(parents=True)
        for name, path in ("GOLDEN", self.case.parent), ("ARCHIVES", self.archive.parent):
            patch = mock.patch.object(packed, name, path)
            patch.start()
            self.addCleanup(patch.stop)

    def write(self, files: dict) -> dict:
        for name, data in files.items():
            (self.case / name).parent.mkdir(parents=True, exist_ok=True)
            (self.case / name).write_bytes(data)
        return files

    def unpack(self) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(packed.main([]), 0)
        return out.getvalue()

    def back(self, files: dict) -> None:
        """Packs, takes away, unpacks, compares."""
        packed.pack(self.case)
        for name in files:
            (self.case / name).unlink()
        self.unpack()
        for name, data in files.items():
            self.assertEqual((self.case / name).read_bytes(), data, name)

    def test_tensors_of_every_width_and_number_of_values(self):
        named = {}
        for dtype in FORMATS:
            whole = dtype[0] in "IU"
            for count in (0, 1, 2, 255, 257, 1029, 3000):
                for kind, values in ("few", few(count)), ("noise", noise(count)), ("same", [3.0] * count):
                    values = [abs(int(40 * v)) % 128 for v in values] if whole else values
                    named[f"{dtype}.{kind}.{count}"] = (dtype, values)
        for count in (255, 256, 257):  # a palette holds 256 values and no more
            named[f"palette.{count}"] = ("I32", [7919 * i for i in range(count)] * 6)
        self.back(self.write({"model.safetensors": tensors(named), "deep/er/adapter_model.safetensors":
                              tensors({"a": ("F32", few(999, 2))})}))

    def test_bits_that_compare_strangely(self):
        odd = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, -1e-45] * 40
        data = bytearray(tensors({"a": ("F32", odd), "b": ("F64", odd), "c": ("F16", odd[:5] * 40)}))
        data[-3:] = b"\xff\x7f\xff"  # a NaN with a payload
        self.back(self.write({"model.safetensors": bytes(data)}))

    def test_bytes_between_and_after_tensors(self):
        data = tensors({"a": ("F32", few(300)), "b": ("F32", noise(300))})
        self.back(self.write({"model.safetensors": data + b"tail"}))

    def test_torch_files(self):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as z:
            z.writestr("archive/data.pkl", b"words" * 20)
            z.writestr("archive/data/0", struct.pack("<4096f", *few(4096)))
            z.writestr("archive/data/1", struct.pack("<100f", *noise(100)))
            z.writestr("archive/data/2", b"odd")
            z.writestr("archive/data/3", b"deflated" * 99, zipfile.ZIP_DEFLATED)
        files = self.write({"pytorch_model.bin": buffer.getvalue(), "linear.pt": buffer.getvalue(),
                            "a/adapter_model.bin": b"no zip file at all"})
        self.back(files)
        self.assertLess(self.archive.stat().st_size, 2700)  # three bits a weight, once for both

    def test_weights_of_few_values_pack_small(self):
        count = 200_000
        self.write({"model.safetensors": tensors({f"w{i}": ("F32", few(count // 10, i)) for i in range(10)})})
        packed.pack(self.case)
        self.assertLess(self.archive.stat().st_size, count * 3.3 / 8)

    def test_equal_files_are_stored_once(self):
        data = tensors({"a": ("F32", noise(2000))})
        self.write({"model.safetensors": data})
        packed.pack(self.case)
        one = self.archive.stat().st_size
        files = self.write({f"{n}/model.safetensors": data for n in "abc"})
        self.back(files)
        self.assertLess(self.archive.stat().st_size, one + 300)

    def test_equal_tensors_are_stored_once(self):
        one = ("F32", noise(20_000))  # more than zlib's window
        files = self.write({"golden.safetensors": tensors({"a": one, "b": ("F32", few(90)), "c": one}),
                            "model.safetensors": tensors({"x": ("F16", few(90)), "y": one})})
        self.back(files)
        self.assertLess(self.archive.stat().st_size, 85_000)

    def test_other_files_stay_outside(self):
        files = self.write({"model.safetensors": tensors({"a": ("F32", few(300))}), "config.json": b"{}"})
        packed.pack(self.case)
        self.assertEqual(list(packed.Archive(self.archive).files), ["model.safetensors"])
        (self.case / "model.safetensors").unlink()
        packed.pack(self.case)
        self.assertFalse(self.archive.exists())
        self.assertEqual((self.case / "config.json").read_bytes(), files["config.json"])

    def test_folders_of_a_case_share_its_archive(self):
        self.write({f"{n}/model.safetensors": tensors({n: ("F32", few(300))}) for n in "ab"})
        packed.pack(self.case / "b")
        self.assertEqual(sorted(packed.Archive(self.archive).files),
                         ["a/model.safetensors", "b/model.safetensors"])
        self.assertEqual([p.name for p in self.archive.parent.iterdir()], ["case.packed"])

    def test_a_second_run_writes_nothing(self):
        self.write({"model.safetensors": tensors({"a": ("F32", few(300))}),
                    "golden.safetensors": tensors({"a": ("F32", noise(300))})})
        packed.pack(self.case)
        self.assertEqual(self.unpack(), "")
        before = {p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in self.root.rglob("*")}
        with mock.patch.object(packed, "write", side_effect=AssertionError("written")):
            packed.pack(self.case)
            self.assertEqual(self.unpack(), "")
        self.assertEqual({p: (p.stat().st_mtime_ns, p.stat().st_ino) for p in self.root.rglob("*")}, before)
        (self.case / "golden.safetensors").unlink()
        self.assertIn("1 golden files", self.unpack())
        model = self.case / "model.safetensors"
        self.assertEqual((model.stat().st_mtime_ns, model.stat().st_ino), before[model])

    def test_a_file_of_other_bytes_is_written_anew(self):
        files = self.write({"model.safetensors": tensors({"a": ("F32", few(300))})})
        packed.pack(self.case)
        whole = files["model.safetensors"]
        for other in (whole[:-1], whole + b"x", whole[:-1] + bytes([whole[-1] ^ 1]), b""):
            (self.case / "model.safetensors").write_bytes(other)
            self.assertIn("1 golden files", self.unpack())
            self.assertEqual((self.case / "model.safetensors").read_bytes(), whole)

    def test_a_changed_file_gets_another_archive(self):
        self.write({"model.safetensors": tensors({"a": ("F32", few(300))})})
        packed.pack(self.case)
        self.back(self.write({"model.safetensors": tensors({"a": ("F32", few(300, 2))})}))

    def test_a_file_appears_whole_or_not_at_all(self):
        self.write({"model.safetensors": tensors({"a": ("F32", few(300))})})
        packed.pack(self.case)
        (self.case / "model.safetensors").unlink()
        with mock.patch.object(os, "replace", side_effect=OSError("no room")):
            with self.assertRaisesRegex(OSError, "no room"):
                packed.main([])
        self.assertEqual(list(self.case.iterdir()), [])

    def test_every_broken_byte_is_noticed(self):
        files = self.write({"model.safetensors": tensors({"a": ("F32", few(600)), "b": ("F16", noise(50))})})
        packed.pack(self.case)
        whole = self.archive.read_bytes()
        for data in [whole[:n] for n in range(0, len(whole), 7)] + [whole + b"x"]:
            self.archive.write_bytes(data)
            with self.assertRaisesRegex(packed.Corrupt, "restore it with git"):
                packed.Archive(self.archive)
        broken = [whole[:i] + bytes([whole[i] ^ 0x55]) + whole[i + 1:] for i in range(0, len(whole), 3)]
        for data in broken:
            (self.case / "model.safetensors").unlink(missing_ok=True)
            self.archive.write_bytes(data)
            try:
                packed.main([])
            except SystemExit as e:
                self.assertRegex(str(e), r"^packed: .*case\.packed.*: restore it with git$")
                self.assertFalse((self.case / "model.safetensors").exists())
            else:  # a bit that zlib does not read
                self.assertEqual((self.case / "model.safetensors").read_bytes(), files["model.safetensors"])

    def test_a_name_outside_of_the_case_is_refused(self):
        self.write({"model.safetensors": tensors({"a": ("F32", few(300))})})
        packed.pack(self.case)
        whole = self.archive.read_bytes()
        at = len(packed.MAGIC) + 4
        size = struct.unpack("<I", whole[at - 4:at])[0]
        index = json.loads(zlib.decompress(whole[at:at + size]))
        entry = index["files"]["model.safetensors"]
        for name in ("../model.safetensors", "/tmp/model.safetensors", "a/../../model.safetensors",
                     "config.json"):
            words = zlib.compress(json.dumps(index | {"files": {name: entry}}).encode())
            self.archive.write_bytes(packed.MAGIC + struct.pack("<I", len(words)) + words + whole[at + size:])
            with self.assertRaisesRegex(SystemExit, "is no name of a packed file"):
                packed.main([])

    def test_no_archives_and_wrong_words_are_errors(self):
        with self.assertRaisesRegex(SystemExit, "has no archives"):
            packed.main([])
        with self.assertRaisesRegex(SystemExit, "nothing is no folder|is no folder"):
            packed.main(["pack", "nothing"])
        with self.assertRaisesRegex(SystemExit, "python tools/golden/packed.py"):
            packed.main(["unpack"])


class Checkout(unittest.TestCase):
    def test_git_ignores_what_is_packed_and_nothing_else(self):
        lines = (HERE.parents[1] / "testdata/golden/.gitignore").read_text().splitlines()
        self.assertEqual([line for line in lines if line and line[0] != "#"], list(packed.PACKED))

    def test_matrices_of_models_have_few_values(self):
        """coarse.py draws them. What a class draws by itself, a pooler that nothing reads, has 64 × 64."""
        seen = 0
        for archive in packed.ARCHIVES.glob("*.packed"):
            for name, entry in packed.Archive(archive).files.items():
                if name.endswith((".safetensors", ".bin", ".pt")) and not name.endswith("golden.safetensors"):
                    seen += 1
                    noise = max([r[2] for r in entry["regions"] if r[0] == "p"], default=0)
                    self.assertLessEqual(noise, 64 * 64, f"{archive.stem}/{name}")
        self.assertGreater(seen, 300)

    def test_git_tracks_no_packed_file(self):
        root = HERE.parents[1]
        if not (root / ".git").exists():
            return  # a copy without git tracks nothing
        names = subprocess.run(["git", "ls-files", "testdata/golden"], cwd=root, capture_output=True,
                               text=True, check=True).stdout.split()
        self.assertGreater(len(names), 500)
        self.assertEqual([n for n in names if packed.is_packed(n)], [])


if __name__ == "__main__":
    unittest.main()
