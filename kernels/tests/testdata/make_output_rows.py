"""Writes output_rows.bin: rows and the bytes NumPy makes of them, for golden_test.cc.

    python3 make_output_rows.py

File, little-endian: int32 count, then per case int32 dtype (sie_dtype), int32 columns, int32 bytes,
float32 row [columns], then the bytes.
"""

import pathlib

import numpy as np

F32, F16, I8, U8, BINARY = 1, 2, 4, 5, 8


def convert(row, dtype):
    """The documented formulas, in float32 throughout."""
    if dtype == F32:
        return row
    if dtype == F16:
        with np.errstate(over="ignore"):
            return row.astype(np.float16)
    if dtype == I8:
        scale = np.abs(row).max()
        scale = scale if scale != 0 else np.float32(1)
        return np.rint(row / scale * np.float32(127)).astype(np.int8)
    if dtype == U8:
        low = row.min()
        span = row.max() - low
        span = span if span != 0 else np.float32(1)
        return np.rint((row - low) / span * np.float32(255)).astype(np.uint8)
    return np.packbits(row > 0)


def rows():
    rng = np.random.default_rng(20260101)
    for columns in (1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 384, 385):
        yield rng.standard_normal(columns)
    yield rng.standard_normal(130) * 1e4
    yield rng.standard_normal(130) * 1e-5
    yield rng.standard_normal(130) * 1e-40
    yield np.zeros(40)
    yield np.full(40, 0.3)
    yield np.full(40, -0.3)
    yield np.where(np.arange(50) % 2 == 0, 0.0, -0.0)
    # Ties: x / s * 127 and (x - min) / r * 255 end in .5.
    yield np.concatenate([np.arange(-253, 254, 2), [254.0]])
    yield np.concatenate([np.arange(0, 510, 1), [510.0]])
    # Halves of the last place of f16, its overflow and its subnormals.
    yield np.array([1 + 2**-11, 1 + 3 * 2**-11, 65504, 65519.996, 65520, 1e6, -65520, 2**-24, 2**-25,
                    2**-25 * 1.0001, 3 * 2**-25, 2**-14, 2**-14 - 2**-25, -(2**-26), 0.1, 1 / 3])


def main():
    cases = []
    for row in rows():
        row = row.astype(np.float32)
        for dtype in (F32, F16, I8, U8, BINARY):
            cases.append((dtype, row, convert(row, dtype).tobytes()))
    out = bytearray(np.int32(len(cases)).tobytes())
    for dtype, row, data in cases:
        out += np.array([dtype, len(row), len(data)], dtype=np.int32).tobytes()
        out += row.tobytes() + data
    pathlib.Path(__file__).with_name("output_rows.bin").write_bytes(out)


main()
