"""PyTorch at the shapes that sie_bench has timed, the same way: cold, in graphs, medians.

    torch_peer.py BENCH.jsonl TORCH.jsonl [SECONDS]

Reads what sie_bench wrote and writes a line of the same form for each of PyTorch's ways to do the
same: F.linear (and _scaled_mm in e4m3, one scale a tensor), F.scaled_dot_product_attention by each
backend that takes the shape, F.layer_norm or F.rms_norm, and embeddings. What our kernel has in one
pass (GELU, gates, residuals) PyTorch has as eager calls behind it, as a model in eager mode does.
Sequences of different lengths are padded, as SDPA needs them; its GB/s and TFLOP/s count what the
case needs, not what the padding adds. Exit 0, also without PyTorch or a GPU: it says so.
"""

import json
import sys
import time

TURNS, LEAST_CALLS = 15, 64


def import_torch():
    try:
        import torch
    except ImportError as error:
        return None, f"no PyTorch: {error}"
    if not torch.cuda.is_available():
        return None, "PyTorch sees no GPU"
    return torch, f"PyTorch {torch.__version__}"


class Timer:
    """Times a function of a replica number, over graphs that call it for one replica after the
    other."""

    def __init__(self, torch, l2_bytes):
        self.torch = torch
        self.l2_bytes = l2_bytes
        self.other = torch.zeros(2 * l2_bytes // 4 + (8 << 20), dtype=torch.float32, device="cuda")

    def replicas(self, footprint):
        free = self.torch.cuda.mem_get_info()[0]
        wanted = max(4 * self.l2_bytes, 256 << 20) // footprint + 1
        return int(max(1, min(128, max(4, wanted), free // 3 // footprint)))

    def microseconds(self, call, count):
        torch = self.torch
        calls = -(-LEAST_CALLS // count) * count
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for replica in range(min(count, 3)):
                call(replica)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for n in range(calls):
                call(n % count)
        begin = time.monotonic()
        while time.monotonic() - begin < 0.02:
            graph.replay()
            torch.cuda.synchronize()
        samples = []
        for _ in range(TURNS):
            self.other.sum()  # fills L2 with what nobody needs
            before = torch.cuda.Event(enable_timing=True)
            after = torch.cuda.Event(enable_timing=True)
            before.record()
            graph.replay()
            after.record()
            after.synchronize()
            samples.append(before.elapsed_time(after) * 1e3 / calls)
        samples.sort()
        at = lambda q: samples[int(q * (len(samples) - 1) + 0.5)]
        return {"p10": at(0.1), "p50": at(0.5), "p90": at(0.9)}


GATE_SWIGLU, NORM_RMS = 1, 1
MASK_CAUSAL, MASK_WINDOW = 1, 2


class Peers:
    """For a case: (name of the implementation, bytes of a replica, make(count) ->
    call(replica))."""

    def __init__(self, torch):
        self.torch = torch
        self.F = torch.nn.functional

    def of(self, case):
        find = getattr(self, case["op"], None)
        return find(case) if find else []

    def random(self, *shape):
        return self.torch.randn(*shape, dtype=self.torch.bfloat16, device="cuda")

    def linear(self, case):
        torch, F, m, part = self.torch, self.F, case["model"], case["part"]
        tokens, heads, kv = sum(case["lengths"]), m["heads"] * m["head_dim"], m["kv_heads"] * m["head_dim"]
        gate = m["gate"] if part == "up" else 0
        n, k = {
            "qkv": (heads + 2 * kv, m["width"]),
            "attention_out": (m["width"], heads),
            "up": (m["inner"] * (2 if gate else 1), m["width"]),
            "down": (m["width"], m["inner"]),
        }[part]
        residual = part in ("attention_out", "down")
        fp8 = case["type"] == "fp8"

        def make(count):
            x = [self.random(tokens, k) for _ in range(count)]
            w = [self.random(n, k) for _ in range(count)]
            b = None if m["rotary"] else self.random(n)
            r = [self.random(tokens, n) for _ in range(count)] if residual else None
            if fp8:
                one = torch.ones((), device="cuda")
                x = [t.to(torch.float8_e4m3fn) for t in x]
                w = [t.to(torch.float8_e4m3fn) for t in w]

            def call(i):
                if fp8:
                    z = torch._scaled_mm(x[i], w[i].t(), scale_a=one, scale_b=one, bias=b,
                                         out_dtype=torch.bfloat16)
                else:
                    z = F.linear(x[i], w[i], b)
                if part == "up" and gate:
                    half = z[:, : n // 2], z[:, n // 2 :]
                    return (F.silu(half[0]) if gate == GATE_SWIGLU else F.gelu(half[0])) * half[1]
                if part == "up":
                    return F.gelu(z)
                return z + r[i] if residual else z

            return call

        return [("torch", 2 * (tokens * (k + n) + n * k), make)]

    def linear_f32(self, case):
        torch, F = self.torch, self.F
        rows, width = len(case["lengths"]), case["model"]["width"]

        def make(count):
            new = lambda *shape: [torch.randn(*shape, device="cuda") for _ in range(count)]
            x, w, b = new(rows, width), new(width, width), new(width)
            return lambda i: torch.tanh(F.linear(x[i], w[i], b[i]))

        return [("torch", 4 * (2 * rows * width + width * width), make)]

    def attention(self, case):
        torch, m, lengths = self.torch, case["model"], case["lengths"]
        from torch.nn.attention import SDPBackend, sdpa_kernel

        batch, longest, d = len(lengths), max(lengths), m["head_dim"]
        mask = None
        if m["mask"] == MASK_WINDOW or len(set(lengths)) > 1:
            at = torch.arange(longest, device="cuda")
            length = torch.tensor(lengths, device="cuda")
            mask = (at[None, :] < length[:, None])[:, None, None, :]
            distance = at[None, :] - at[:, None]
            if m["mask"] == MASK_WINDOW:
                mask = mask & (distance.abs() <= m["window"])
            if m["mask"] == MASK_CAUSAL:
                mask = mask & (distance <= 0)
        peers = []
        for name, backend in (
            ("flash", SDPBackend.FLASH_ATTENTION),
            ("cudnn", SDPBackend.CUDNN_ATTENTION),
            ("efficient", SDPBackend.EFFICIENT_ATTENTION),
        ):
            if mask is not None and name == "flash":
                continue

            def make(count, backend=backend):
                sizes = ((m["heads"], longest), (m["kv_heads"], longest), (m["kv_heads"], longest))
                qkv = [[self.random(batch, rows, h, d).transpose(1, 2) for h, rows in sizes]
                       for _ in range(count)]

                def call(i):
                    with sdpa_kernel(backend):
                        return self.F.scaled_dot_product_attention(
                            *qkv[i],
                            attn_mask=mask,
                            is_causal=mask is None and m["mask"] == MASK_CAUSAL,
                            enable_gqa=m["heads"] != m["kv_heads"],
                        )

                return call

            peers.append((f"torch-sdpa-{name}", 2 * batch * longest * d * 2 * (m["heads"] + m["kv_heads"]),
                          make))
        return peers

    def norm_of(self, m):
        gamma, beta = self.random(m["width"]), self.random(m["width"])
        if m["norm"] == NORM_RMS:
            return lambda x: self.F.rms_norm(x, (m["width"],), gamma, 1e-6)
        return lambda x: self.F.layer_norm(x, (m["width"],), gamma, beta, 1e-12)

    def layernorm(self, case):
        m, tokens = case["model"], sum(case["lengths"])
        if case["type"] != "bf16":
            return []

        def make(count):
            norm = self.norm_of(m)
            x = [self.random(tokens, m["width"]) for _ in range(count)]
            r = [self.random(tokens, m["width"]) for _ in range(count)] if m["rotary"] else None
            return lambda i: norm(x[i] + r[i] if m["rotary"] else x[i])

        return [("torch", 2 * tokens * m["width"] * 4, make)]

    def embed_layernorm(self, case):
        torch, F, m, lengths = self.torch, self.F, case["model"], case["lengths"]
        tokens = sum(lengths)

        def make(count):
            norm = self.norm_of(m)
            word, position, kind = (self.random(rows, m["width"]) for rows in (30000, 700, 2))
            ids = [torch.randint(30000, (tokens,), device="cuda") for _ in range(count)]
            at = torch.cat([torch.arange(length, device="cuda") for length in lengths])
            kinds = torch.zeros(tokens, dtype=torch.long, device="cuda")

            def call(i):
                x = F.embedding(ids[i], word)
                if not m["rotary"]:
                    x = x + F.embedding(at, position) + F.embedding(kinds, kind)
                return norm(x)

            return call

        return [("torch", 4 * tokens * m["width"], make)]


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    torch, what = import_torch()
    print(f"# {what}")
    if torch is None:
        return
    with open(sys.argv[1]) as file:
        lines = [json.loads(line) for line in file if line.strip()]
    deadline = time.monotonic() + (float(sys.argv[3]) if len(sys.argv) == 4 else 1e9)
    timer, peers, left = Timer(torch, lines[0]["l2"]), Peers(torch), 0
    with open(sys.argv[2], "w") as out:
        for case in (line for line in lines[1:] if line.get("impl") == "sie" and line["status"] == 0):
            for impl, footprint, make in peers.of(case):
                if time.monotonic() > deadline:
                    left += 1
                    continue
                try:
                    count = timer.replicas(footprint)
                    us = timer.microseconds(make(count), count)
                except RuntimeError as error:
                    print(f"# {case['name']}/impl={impl}: {str(error).splitlines()[0]}")
                    continue
                finally:
                    torch.cuda.synchronize()
                p50 = us["p50"]
                line = dict(case, impl=impl, us=us, gbs=case["bytes"] / p50 / 1e3,
                            tflops=case["flop"] / p50 / 1e6)
                line.update(pct_floor=100 * case["floor_us"] / p50, pct_noise=0, torch=torch.__version__)
                out.write(json.dumps(line) + "\n")
                out.flush()
                print(f"BenchmarkKernel/{case['name']}/impl={impl} 1 {p50 * 1e3:.0f} ns/op {line['gbs']:.1f} GB/s "
                      f"{line['tflops']:.2f} TFLOP/s {line['pct_floor']:.1f} %floor", flush=True)
    if left:
        print(f"# {left} cases were left when the time was up")


if __name__ == "__main__":
    main()
