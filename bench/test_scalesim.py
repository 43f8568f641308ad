"""What the simulator must give where the answer is known. python3 -B -m unittest discover bench"""

import unittest
from unittest import mock

import scalesim

TOKENS = (64, 128, 256, 512)
PLENTY = 1e15


def recording(seconds=1e-5, size=1e6, ops=10, stall=0.0):
    """Operations of so many seconds a token; every second one reads a weight."""
    def of(tokens):
        return [{"op": "linear", "weight_bytes": size * (i % 2), "hot": seconds * tokens,
                 "cold": seconds * tokens + stall * (i % 2)} for i in range(ops)]
    return scalesim.Recording([{"tokens": t, "ops": of(t)} for t in TOKENS])


def machine(nodes=1, cores=1, shared=1, l3=0.0, core=PLENTY, node=PLENTY, link=PLENTY, far=1.0):
    return scalesim.Machine(nodes, cores, shared, l3, core, far, node, link)


def rate(m, r, placement="first", tokens=16384):
    return scalesim.throughput(m, r, placement, tokens)


class Simulator(unittest.TestCase):
    def near(self, got, want, part=0.01):
        self.assertLess(abs(got / want - 1), part, f"{got} instead of {want}")

    def test_one_core_takes_the_sum_of_its_operations(self):
        self.near(rate(machine(), recording()), 1 / (10 * 1e-5))

    def test_cold_operations_stall(self):
        # Five stalls of 10 ms in each slab of 512 tokens.
        self.near(rate(machine(), recording(stall=0.01)), 512 / (512 * 1e-4 + 0.05))

    def test_cores_without_limits_add_up(self):
        one = rate(machine(), recording())
        for n in (2, 8, 64):
            self.near(rate(machine(cores=n), recording(), tokens=512 * n), n * one)

    def test_a_nodes_memory_bounds_its_readers(self):
        # Nothing but reading: 5 MB a slab of 512 tokens at 1 GB/s in all.
        r = recording(seconds=1e-12)
        self.near(rate(machine(cores=8, node=1e9), r, tokens=512 * 32), 512 * 1e9 / 5e6, 0.1)
        self.near(rate(machine(cores=1, core=1e8, node=1e9), r), 512 * 1e8 / 5e6, 0.1)

    def test_copies_use_every_nodes_memory(self):
        r, two = recording(seconds=1e-12), machine(nodes=2, cores=4, node=1e9, link=1e9)
        first, copies = (rate(two, r, p, 512 * 32) for p in ("first", "copy"))
        self.near(copies, 2 * first, 0.1)
        self.near(rate(two, r, "interleave", 512 * 32), copies, 0.1)

    def test_links_bound_far_readers(self):
        r, two = recording(seconds=1e-12), machine(nodes=2, cores=4, node=1e9, link=1e8)
        copies, first, turns = (rate(two, r, p, 512 * 32) for p in ("copy", "first", "interleave"))
        self.assertLess(first, 0.65 * copies)
        self.assertLess(turns, 0.35 * copies)  # half of what each reads comes over a slow link

    def test_a_shared_cache_is_read_once(self):
        # All weights fit, so one core reads for all; in a cache of nothing each reads alone.
        r = recording(seconds=1e-12)
        shared = rate(machine(cores=8, shared=8, l3=2e7, node=1e9), r, tokens=512 * 32)
        self.assertGreater(shared, 20 * rate(machine(cores=8, node=1e9), r, tokens=512 * 32))

    def test_far_memory_is_read_slowly(self):
        # A core of each node, nothing but reading: half as fast from the other node's memory.
        r, two = recording(seconds=1e-12), machine(nodes=2, core=1e9, far=0.5)
        self.near(rate(two, r, "copy"), 2 * 512 * 1e9 / 5e6)
        self.near(rate(two, r, "first"), 1.5 * 512 * 1e9 / 5e6)

    def test_cores_of_one_l3_read_for_each_other(self):
        # Half of the L3 holds three of five weights: a core alone finds none, two that share it read each
        # once.
        r, alone = recording(seconds=1e-12), 512 * 1e9 / 5e6
        self.near(rate(machine(core=1e9, l3=6e6), r), alone)
        self.near(rate(machine(cores=2, shared=1, core=1e9, l3=6e6), r), 2 * alone)
        self.near(rate(machine(cores=2, shared=2, core=1e9, l3=6e6), r), 4 * alone, 0.05)

    def test_a_cache_holds_what_was_used_last(self):
        cache = scalesim.Cache(3)
        self.assertEqual([cache.touch(op, 1) for op in "abacdabefc"],
                         [False, False, True, False, False, True, True, False, False, False])

    def test_executors_begin_at_moments_of_their_own(self):
        self.assertEqual(scalesim.starts(1, 5.0), [0.0])
        begin = scalesim.starts(64, 5.0)
        self.assertEqual(begin, scalesim.starts(64, 5.0))
        self.assertEqual(len(set(begin)), 64)
        self.assertTrue(0 <= min(begin) < 1 and 4 < max(begin) < 5)

    def test_two_batches_are_in_flight(self):
        # 16 texts are slabs of 3, 3, 3, 2, 3 and 2: three executors that waited for a batch to end would do
        # 16 texts in the time of 18.
        self.near(rate(machine(cores=3), recording(), tokens=2048), 3 * rate(machine(), recording()))

    def test_slabs_are_those_of_the_engine(self):
        self.assertEqual(scalesim.slabs_of(16384, 128, 2), [512] * 32)
        self.assertEqual(scalesim.slabs_of(16384, 128, 64), [256] * 64)
        self.assertEqual(scalesim.slabs_of(16384, 128, 100), [256] * 28 + [128] * 72)
        for tokens, text, executors in ((16384, 128, 48), (65536, 128, 128), (1000, 20, 7), (64, 128, 4)):
            slabs = scalesim.slabs_of(tokens, text, executors)
            self.assertEqual(sum(slabs), max(1, tokens // text) * text)
            self.assertLessEqual(max(slabs), max(512, text))

    def test_grids_are_those_of_the_engine(self):
        # kernels/tests/linear_part_test.cc holds part_of to the least of these.
        self.near(scalesim.grid(36, 12, 1), 1)
        self.near(scalesim.grid(36, 12, 12), 1 / 12)
        self.near(scalesim.grid(36, 12, 5), 18 / 72)  # 6 blocks × 3 panels
        self.near(scalesim.grid(36, 12, 64), 2 / 72)  # 36 of 64 parts: two panels of a block
        self.near(scalesim.grid(1, 12, 64), 1 / 12)
        self.near(scalesim.grid(36, 29, 7), 30 / 174)  # whole panels: 6 blocks × 5, though 1 × 29 were less
        self.near(scalesim.grid(36, 27, 7), 24 / 162)  # fewer than four panels a part: 6 × 4
        self.near(scalesim.grid(36, 25, 7), 24 / 150)

    def test_teams_are_those_of_the_engine(self):
        self.assertEqual(scalesim.team(64, 1e12, 50, after=False), 16)
        self.assertEqual(scalesim.team(8, 1e12, 50, after=True), 8)
        self.assertEqual(scalesim.team(64, 0, 50, after=True), 16)
        self.assertEqual(scalesim.team(64, 50 * 17 * 17 * 4e4, 50, after=True), 17)
        self.assertEqual(scalesim.team(200, 1e15, 50, after=True), 64)

    def test_a_lone_text_is_faster_with_more_members(self):
        kinds, shape = ["linear"] * 4, (1, 12, 64, 3072)
        ops = [{"hot": n * 1e-5, "cold": n * 1e-5, "weight_bytes": 1e6} for n in TOKENS]
        r = scalesim.Recording([{"tokens": n, "ops": [op] * 4} for n, op in zip(TOKENS, ops)])
        one = scalesim.alone(r, kinds, shape, 96, 1, False, after=True)
        self.near(one, 4 * (96e-5 + scalesim.MEETING + scalesim.MEMBER))
        many = scalesim.alone(r, kinds, shape, 96, 16, False, after=True)
        self.near(many, 4 * (96e-5 / 16 + scalesim.MEETING + 16 * scalesim.MEMBER))

    # BERT-base's linears have 2,304, 768, 3,072 and 768 columns of 768, 768, 768 and 3,072. Here each takes
    # 10 µs a token.
    def alone(self, tokens, cores, int8, after, kinds=("linear",) * 4):
        ops = lambda n: [{"hot": n * 1e-5, "cold": n * 1e-5, "weight_bytes": 1e6}] * len(kinds)
        r = scalesim.Recording([{"tokens": n, "ops": ops(n)} for n in TOKENS])
        return scalesim.alone(r, kinds, (1, 12, 64, 3072), tokens, cores, int8, after)

    def meetings(self, n, members):
        return n * (scalesim.MEETING + members * scalesim.MEMBER)

    def test_members_divide_columns(self):
        # Groups of 8 columns: 288, 96, 384 and 96 of them for 10 members.
        self.near(self.alone(96, 10, False, True),
                  96e-5 * (29 / 288 + 10 / 96 + 39 / 384 + 10 / 96) + self.meetings(4, 10), 1e-9)

    def test_int8_before_and_after(self):
        # Panels of 32 columns: 72, 24, 96 and 24. Before: whole panels, and whole rows of the third linear.
        self.near(self.alone(96, 10, True, False),
                  96e-5 * (8 / 72 + 3 / 24 + 3 / 24) + 10e-5 + self.meetings(4, 10), 1e-9)
        # After: 24 panels are 2 × 5 parts of 16 blocks of rows; the third linear's f32 rows are 1.1 MiB,
        # three groups.
        self.near(self.alone(96, 10, True, True),
                  96e-5 * (8 / 72 + 40 / 384 + 10 / 96 + 40 / 384) + self.meetings(3 + 6, 10), 1e-9)
        # Eight times the rows are not fewer than 768 columns: whole rows for two members, as before.
        self.near(self.alone(512, 2, True, True), 4 * 256e-5 + self.meetings(4, 2), 1e-9)
        self.near(self.alone(95, 2, True, True),
                  95e-5 * (36 / 72 + 12 / 24 + 48 / 96 + 12 / 24) + self.meetings(3 + 6, 2), 1e-9)

    def test_members_divide_heads_and_rows(self):
        of = lambda kind, members: self.alone(96, members, False, False, (kind,)) - self.meetings(1, members)
        self.near(of("attention", 10), 96e-5 * 2 / 12, 1e-9)
        self.near(of("attention", 12), 96e-5 / 12, 1e-9)
        self.near(of("layernorm", 10), 96e-5 * 10 / 96, 1e-9)
        # 32 members of 12 heads: 36 parts, two for the largest share.
        with mock.patch.object(scalesim, "team", return_value=32):
            self.near(of("attention", 32), 96e-5 * 2 / 36, 1e-9)

    def test_a_faster_machine_takes_less(self):
        ops = lambda n: [{"hot": 3e-6 * n, "cold": 2e-6 * n, "weight_bytes": 1}]
        slabs = [{"tokens": n, "ops": ops(n)} for n in TOKENS]
        for speed in (1, 4):
            (hot, cold), = scalesim.Recording(slabs, speed).times(100)
            self.near(hot, 3e-4 / speed)
            self.near(cold, 3e-4 / speed)  # never less than with its weights in cache

    def test_times_are_on_the_line(self):
        r = recording()
        self.near(r.times(384)[0][0], 384e-5)
        self.near(r.times(32)[0][0], 32e-5)
        a, b = scalesim.line([(n, 3 + 2 * n) for n in TOKENS])
        self.near(a, 3)
        self.near(b, 2)

    def test_a_line_never_falls_nor_begins_below_zero(self):
        self.assertEqual(scalesim.line([(n, 2 * n - 90) for n in TOKENS])[0], 0)
        self.assertEqual(scalesim.line([(n, 9 / n) for n in TOKENS])[1], 0)


if __name__ == "__main__":
    unittest.main()
