"""Which class of instructions a machine races in, and what its peers may use."""

import re
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

# The modules below import it, and nothing here computes: this runs where no peer is installed.
sys.modules.setdefault("numpy", types.ModuleType("numpy"))

import goals
import limit
import machine
import peer

ROOT = Path(__file__).resolve().parent.parent
SKYLAKE = {"avx2", "avx512f", "avx512dq", "avx512bw", "avx512vl"}
CASCADE_LAKE = SKYLAKE | {"avx512_vnni"}
ZEN4 = CASCADE_LAKE | {"avx512_bf16"}
SAPPHIRE_RAPIDS = ZEN4 | {"amx_tile", "amx_bf16", "amx_int8"}


def on(flags, asked):
    with mock.patch.object(machine, "flags", return_value=set(flags)):
        return machine.classes(asked)


class Classes(unittest.TestCase):
    def test_a_machine_races_in_its_best_class(self):
        for flags, best in ((SAPPHIRE_RAPIDS, "amx"), (ZEN4, "avx512-bf16"), (CASCADE_LAKE, "avx512"),
                            (SKYLAKE, "native"), ({"avx2"}, "native"), (set(), "native")):
            self.assertEqual(on(flags, "best"), [best])

    def test_it_can_show_those_below(self):
        self.assertEqual(on(SAPPHIRE_RAPIDS, "all"), ["amx", "avx512-bf16", "avx512"])
        self.assertEqual(on(ZEN4, "all"), ["avx512-bf16", "avx512"])
        self.assertEqual(on({"avx2"}, "all"), ["native"])
        self.assertEqual(on(SAPPHIRE_RAPIDS, "avx512-bf16"), ["avx512-bf16"])

    def test_another_class_is_refused_with_what_is_missing(self):
        with self.assertRaisesRegex(SystemExit, "no avx512_bf16; it can race avx512"):
            on(CASCADE_LAKE, "avx512-bf16")

    def test_the_server_takes_each_isa(self):
        source = (ROOT / "cmd/sie-server/engine.go").read_text()
        takes = re.search(r'env:"SIE_ISA" default:"best" enum:"([^"]*)"', source)[1].split(",")
        for name, c in machine.CLASSES.items():
            self.assertIn(c["isa"], takes, name)

    def test_every_class_is_whole(self):
        self.assertEqual(set(goals.WANTED), set(machine.CLASSES))
        for name, c in machine.CLASSES.items():
            self.assertIn(c["served"], c["precisions"], name)
            self.assertEqual("bf16" in c["precisions"], name in ("amx", "avx512-bf16"), name)

    def test_who_multiplies_bf16(self):
        for flags, does in ((SAPPHIRE_RAPIDS, True), (ZEN4, True), (CASCADE_LAKE, False),
                            (CASCADE_LAKE | {"amx_bf16"}, True)):
            with mock.patch.object(machine, "flags", return_value=flags):
                self.assertIs(machine.multiplies_bf16(), does)


class Peers(unittest.TestCase):
    def start(self, *more):
        """What a peer that is started so is told: the most of oneDNN, and whether it may multiply bf16."""
        made, taken = [], []
        module = types.ModuleType("made_up_engines")
        module.ENGINES = {"made-up": (lambda *args: made.append(args), "fp32")}
        args = peer.arguments().parse_args(
            ["made-up", "texts", "--model", "m", "--cache", "c", "--threads", "3", *more])
        with mock.patch.dict(sys.modules, {"made_up_engines": module}), \
                mock.patch.object(limit, "without_amx", taken.append), mock.patch.dict("os.environ"):
            peer.start(args, "made_up_engines")
        self.assertEqual(made[0][:4], ("fp32", "m", "c", 3))
        return taken, made[0][4]

    def test_a_class_without_amx_takes_it_from_its_peers(self):
        told = {name: self.start(*(["--without-amx", c["onednn"]] if c["onednn"] else []))
                for name, c in machine.CLASSES.items()}
        self.assertEqual(told, {"amx": ([], True), "avx512-bf16": (["AVX512_CORE_BF16"], True),
                                "avx512": (["AVX512_CORE_VNNI"], False), "native": ([], True)})


if __name__ == "__main__":
    unittest.main()
