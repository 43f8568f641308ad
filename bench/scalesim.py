"""A simulator of executors on many cores, nodes and L3 caches. It replays what was recorded of each
operation on one core: its seconds with its weights in cache (hot) and from memory (cold), and the bytes
of those weights.

An executor takes slabs of the older of two batches in flight, then of the other, and does a slab's
operations one after another. An operation whose weights another core of the same L3 has read lately takes
its hot time. Otherwise it takes its cold time, or longer: as long as its bytes take at the rate that is
left for it, of what one core can read, of the memory of each node that it reads from, and of the links to
other nodes. All that read at one time share these equally. Executors begin at random moments of a slab:
texts of many lengths keep them from reading the same weights at the same time for long.

Not in it: activations that leave the caches, clocks that fall as more cores work, and the host.

A text alone is one slab, which a team computes (alone): each operation takes as long as its largest part,
then the members meet.
"""

import heapq
import random
from dataclasses import dataclass

SLAB_TOKENS, LEAST_LOAD = 512, 64
PANEL, VECTOR, BLOCK = 32, 8, 6  # columns and rows that the AVX2 kernels do not divide
WHOLE_PANELS = 4  # with so many for each part, parts are of whole panels
# Seconds of a meeting and of each member of it: 0.44 µs was measured for two members; the rest is assumed.
MEETING, MEMBER = 0.3e-6, 0.06e-6
# csrc/run_plan.cc, executor.h and program.h
USUAL_TEAM, MOST_MEMBERS, FLOPS_OF_MEETING = 16, 64, 4e4
LATE_BYTES = 512 << 10


@dataclass(frozen=True)
class Machine:
    nodes: int
    cores: int  # of a node
    shared: int  # cores of an L3
    l3: float  # bytes, of which weights get half
    core_rate: float  # bytes a second that one core reads from its own node
    far: float  # part of core_rate that it reads from another node
    node_rate: float  # of a node's memory
    link_rate: float  # from one node to another, one way

    @property
    def all(self):
        return self.nodes * self.cores


def line(points):
    """(a, b) of the line a + b·n, both at least 0, whose relative errors at the points (n, time) have the
    least sum of squares."""
    w = [1 / max(t, 1e-12) ** 2 for _, t in points]
    sw, sx = sum(w), sum(v * n for v, (n, _) in zip(w, points))
    sxx, sy = sum(v * n * n for v, (n, _) in zip(w, points)), sum(v * t for v, (_, t) in zip(w, points))
    sxy = sum(v * n * t for v, (n, t) in zip(w, points))
    b = (sw * sxy - sx * sy) / (sw * sxx - sx * sx)
    a = (sy - b * sx) / sw
    if a < 0:
        return 0.0, sxy / sxx
    return (a, b) if b >= 0 else (sy / sw, 0.0)


class Recording:
    """Operations by the tokens of a slab. Each one's time is taken as a line over the recorded slabs: what a
    slab costs, and what a token of it does. So one slab that was recorded while the machine was busy counts
    for little."""

    def __init__(self, slabs, speed=1.0):
        slabs = sorted(slabs, key=lambda s: s["tokens"])
        self.speed = speed  # a machine this much faster than the recorded one
        self.weights = [op["weight_bytes"] for op in slabs[0]["ops"]]
        self.lines = [[line([(s["tokens"], s["ops"][i][kind]) for s in slabs]) for kind in ("hot", "cold")]
                      for i in range(len(self.weights))]
        self._known = {}

    def times(self, tokens):
        """[(hot, cold)] of a slab's operations."""
        if tokens not in self._known:
            every = [[max(a + b * tokens, 1e-9) / self.speed for a, b in kinds] for kinds in self.lines]
            self._known[tokens] = [(hot, max(hot, cold)) for hot, cold in every]
        return self._known[tokens]


def slabs_of(tokens, text, executors):
    """The tokens of each slab of a batch of equal texts: dealt to loads, each to as few slabs as hold them
    (csrc/slabs.cc)."""
    texts = max(1, tokens // text)
    loads = min(executors, texts, max(1, -(-texts * text // LEAST_LOAD)))
    most = max(1, SLAB_TOKENS // text)
    slabs = []
    for load in range(loads):
        own = texts // loads + (load < texts % loads)
        count = -(-own // most)
        slabs += [(own // count + (i < own % count)) * text for i in range(count)]
    return sorted(slabs, reverse=True)


class Memory:
    """Who reads from where at this moment, and the rate that is left for one more."""

    def __init__(self, machine, placement):
        self.m, self.placement = machine, placement
        self.load = [0.0] * machine.nodes
        self.links = {}

    def parts(self, node):
        """The part of a weight that an executor of the node reads from each."""
        if self.placement == "first":
            return {0: 1.0}
        if self.placement == "copy":
            return {node: 1.0}
        return {k: 1.0 / self.m.nodes for k in range(self.m.nodes)}

    def change(self, node, sign):
        for home, part in self.parts(node).items():
            self.load[home] += sign * part
            if home != node:
                self.links[home, node] = self.links.get((home, node), 0.0) + sign * part

    def rate(self, node):
        m, slow = self.m, 0.0
        parts = self.parts(node)
        for home, part in parts.items():
            slow += part / (m.core_rate * (1.0 if home == node else m.far))
        rate = 1.0 / slow
        for home in parts:
            rate = min(rate, m.node_rate / max(self.load[home], 1e-9))
            if home != node:
                rate = min(rate, m.link_rate / max(self.links[home, node], 1e-9))
        return rate


class Cache:
    """Which weights an L3 still holds: those read within its size."""

    def __init__(self, size):
        self.size, self.read, self.last = size, 0.0, {}

    def touch(self, op, size):
        """Whether the weight is there; it is afterwards. A hit moves it to the front, too."""
        at = self.last.get(op)
        hit = at is not None and self.read - at + size <= self.size
        if not hit:
            self.read += size
        self.last[op] = self.read
        return hit


def starts(threads, slab):
    """When each executor begins: somewhere in its first slab, the same in every run; one alone, at once."""
    chance = random.Random(threads)
    return [0.0 if threads == 1 else slab * chance.random() for _ in range(threads)]


def throughput(machine, recording, placement, batch_tokens, text=128, batches=8, threads=None):
    """Tokens a second of batches of equal texts, two in flight, after the first two. placement: "first" (all
    weights on node 0), "interleave" or "copy"."""
    threads = threads or machine.all
    memory = Memory(machine, placement)
    nodes = [e * machine.nodes // threads for e in range(threads)]  # as the engine seats them
    places = [(n, (e - nodes.index(n)) // machine.shared) for e, n in enumerate(nodes)]
    caches = {place: Cache(machine.l3 / 2) for place in places}
    queue, left = [], []  # slabs that wait, with their batch; by batch: slabs that are not done
    tokens_done, done_at = 0, []  # of batches that are done: when, and the tokens of all slabs until then

    def submit():
        slabs = slabs_of(batch_tokens, text, threads)
        left.append(len(slabs))
        queue.extend((len(left) - 1, tokens) for tokens in slabs)

    submit()
    submit()
    at = [None] * threads  # (batch, tokens, times, next operation, reading)
    slab = sum(cold for _, cold in recording.times(queue[0][1]))
    events = [(begin, e) for e, begin in enumerate(starts(threads, slab))]
    heapq.heapify(events)
    idle = set()
    while events:
        now, e = heapq.heappop(events)
        node = nodes[e]
        if at[e] is not None:
            batch, tokens, times, op, reading = at[e]
            if reading:
                memory.change(node, -1)
            if op == len(times):
                at[e] = None
                left[batch] -= 1
                tokens_done += tokens
                if left[batch] == 0:
                    done_at.append((now, tokens_done))
                    if len(done_at) == batches:
                        break
                    submit()
                    for other in sorted(idle):
                        heapq.heappush(events, (now, other))
                    idle.clear()
        if at[e] is None:
            if not queue:
                idle.add(e)
                continue
            batch, tokens = queue.pop(0)
            at[e] = (batch, tokens, recording.times(tokens), 0, False)
        batch, tokens, times, op, _ = at[e]
        hot, cold = times[op]
        size, took, reading = recording.weights[op], hot, False
        if size > 0 and not caches[places[e]].touch(op, size):
            reading = True
            memory.change(node, 1)
            took = max(cold, size / memory.rate(node))
        at[e] = (batch, tokens, times, op + 1, reading)
        heapq.heappush(events, (now + took, e))
    (begin, before), (end, after) = done_at[1], done_at[-1]
    return (after - before) / (end - begin)


def grid(rows, panels, parts):
    """The part of a product of rows and panels that the largest of `parts` parts does (part_of of
    kernels/cpu/linear_part.h)."""
    blocks = -(-rows // BLOCK)
    most = 1 if panels >= WHOLE_PANELS * parts else min(parts, blocks)
    least = min(-(-blocks // down) * -(-panels // min(parts // down, panels)) for down in range(1, most + 1))
    return least / (blocks * panels)


def team(cores, flops, operations, after):
    """The members of a lone slab's team."""
    if not after:
        return min(cores, USUAL_TEAM)
    pays = (flops / operations / FLOPS_OF_MEETING) ** 0.5
    return min(cores, max(USUAL_TEAM, min(MOST_MEMBERS, int(pays))))


def alone(recording, kinds, shape, tokens, cores, int8, after):
    """Seconds of a lone text. kinds: of the recorded operations; shape: layers, heads, columns of a head and
    of the feed-forward. after: teams of up to 64, int8 linears in two dimensions, the feed-forward's first by
    columns."""
    layers, heads, head_dim, ffn = shape
    hidden = heads * head_dim
    linears = [(3 * hidden, hidden), (hidden, hidden), (ffn, hidden), (hidden, ffn)]
    flops = 2 * tokens * layers * sum(n * k for n, k in linears)
    members = team(cores, flops, len(kinds), after)
    seconds, seen = 0.0, 0
    rows = -(-tokens // members)
    for kind, (hot, _), (few, _) in zip(kinds, recording.times(tokens), recording.times(rows)):
        meetings = 1
        if kind == "linear":
            (n, k), quantised = linears[seen % 4], int8 and seen % 4 == 2
            seen += 1
            if not int8:
                took = hot * -(-(n // VECTOR) // members) / (n // VECTOR)
            elif quantised and (not after or 8 * tokens >= k * (members - 1)):
                took = few  # whole rows, and all weights
            else:
                panels = n // PANEL
                part = grid(tokens, panels, members) if after else -(-panels // members) / panels
                took = hot * part
                if quantised:
                    meetings = 2 * -(-tokens * n * 4 // LATE_BYTES)
        elif kind == "attention":
            parts = heads if heads >= members else heads * -(-members // heads)
            took = hot * -(-parts // members) / parts
        else:
            took = hot * rows / tokens
        seconds += took + meetings * (MEETING + MEMBER * members)
    return seconds
