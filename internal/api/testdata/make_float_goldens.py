"""Writes floats.gz: how Python prints 10,000 float32 (widened), 1,000 float16 and 1,000 float64
values.

Run:  python make_float_goldens.py > floats.gz      (needs numpy)

A line is the bits in hex (4, 8 or 16 digits) and repr() of the value as a Python float.
"""

import gzip
import random
import struct
import sys

import numpy as np

rng = random.Random(7)
lines = []
special = [0.0, -0.0, 1.0, -1.0, 0.1, 1e-4, 9.9999e-5, 1e-5, 1e15, 1e16, 9999999986991104.0, 123456789.0,
           2**24, 1e22, 3.4028235e38, 1e-45]
for x in special:
    lines.append((struct.pack(">f", x).hex(), repr(float(np.float32(x)))))
    lines.append((struct.pack(">d", x).hex(), repr(float(x))))
while len(lines) < 5000:  # any bits
    b = rng.randbytes(4)
    x = struct.unpack(">f", b)[0]
    if x == x and abs(x) != float("inf"):
        lines.append((b.hex(), repr(x)))
# like embeddings
for x in np.random.default_rng(7).standard_normal(5000).astype(np.float32) * np.float32(0.05):
    lines.append((struct.pack(">f", x).hex(), repr(float(x))))
for _ in range(1000):
    x = np.frombuffer(rng.randbytes(2), "<f2")[0]
    if np.isfinite(x):
        lines.append((x.tobytes()[::-1].hex(), repr(float(x))))
for _ in range(1000):
    b = rng.randbytes(8)
    x = struct.unpack(">d", b)[0] if rng.random() < 0.5 else rng.uniform(-1, 1) * 10 ** rng.randint(-8, 20)
    if x == x and abs(x) != float("inf"):
        lines.append((struct.pack(">d", x).hex(), repr(x)))
sys.stdout.buffer.write(gzip.compress("".join(f"{b} {r}\n" for b, r in lines).encode(), mtime=0))
