"""Files of named cases for tests/golden_file.h: what make_operations.py and make_muvera.py write.

Little-endian: int32 cases; each: operation, name; int32 numbers, each key, float64; int32 arrays,
each key, int32 sie_dtype (100 for int32), int32 rows, int32 columns, elements. Strings: int32
length, UTF-8.
"""

import numpy as np

F32, BF16, U8, I32 = 1, 3, 5, 100


def bf16(x):
    """Values that bf16, f16 and f32 all hold, so that one case serves every storage type: multiples
    of 1/64."""
    x = np.rint(np.asarray(x, dtype=np.float64) * 64) / 64
    assert np.abs(x).max(initial=0) < 2, "more than 7 bits"
    return x.astype(np.float32)


def packed(values, exact):
    """An array's sie_dtype and bytes; floats as bf16 where they are exact in it."""
    values = np.asarray(values)
    if values.dtype == np.uint8:
        return U8, values.tobytes()
    if values.dtype.kind in "iu":
        return I32, values.astype("<i4").tobytes()
    values = values.astype("<f4")
    bits = values.view("<u4")
    if exact and not np.any(bits & 0xFFFF):
        return BF16, (bits >> 16).astype("<u2").tobytes()
    return F32, values.tobytes()


def write(path, cases):
    """cases: (operation, name, numbers by key, arrays by key)."""
    out = bytearray()

    def integer(n):
        out.extend(np.int32(n).tobytes())

    def text(s):
        integer(len(s.encode()))
        out.extend(s.encode())

    integer(len(cases))
    for operation, name, numbers, arrays in cases:
        text(operation)
        text(name)
        integer(len(numbers))
        for key, value in numbers.items():
            text(key)
            out.extend(np.float64(value).tobytes())
        integer(len(arrays))
        for key, value in arrays.items():
            value = np.atleast_2d(np.asarray(value))
            value = value.reshape(-1, value.shape[-1])
            dtype, data = packed(value, exact=key not in ("y", "k_out", "out"))
            text(key)
            for n in (dtype, value.shape[0], value.shape[1]):
                integer(n)
            out.extend(data)
    path.write_bytes(out)
    print(f"{path.name}: {len(cases)} cases, {len(out)} bytes")
