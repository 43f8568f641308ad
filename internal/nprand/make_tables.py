"""Writes ziggurat.bin: the constants by which NumPy draws normals, read out of NumPy's own build.

    pip install numpy==2.4.6
    python3 make_tables.py

Three tables of 256 little-endian numbers: wi float64 (the widths of the strips, times 2⁻⁵²), fi
float64 (the density at their edges), ki uint64 (below it a point is inside for sure). They cannot
be computed: NumPy prints constants that somebody once computed with rounding errors of up to 90
units in the last place, and a generator that is to agree draw by draw needs the same errors. The
float32 tables do follow from them, which this script checks.

The wheel has the tables in the static library that it ships for C programs; they are found there by
their values.
"""

import hashlib
import math
import pathlib

import numpy as np

R, V = 3.6541528853610088, 0.004928673233974655


def computed():
    x = [0.0] * 255 + [R]
    for i in range(254, 0, -1):
        x[i] = math.sqrt(-2 * math.log(V / x[i + 1] + math.exp(-x[i + 1] ** 2 / 2)))
    wi = np.array(x) / 2**52
    wi[0] = V / math.exp(-R * R / 2) / 2**52
    fi = np.exp(-np.square(x) / 2)
    ki = np.zeros(256)
    ki[2:] = wi[1:-1] / wi[2:] * 2**52
    ki[0] = R * math.exp(-R * R / 2) / V * 2**52
    return wi, fi, ki


def find(data, near, dtype, tolerance):
    """The one place of `data` whose 256 elements are those of `near` but for the tolerance."""
    found = []
    for shift in range(near.dtype.itemsize):
        all_of_them = np.frombuffer(data[shift : shift + (len(data) - shift) // 8 * 8], dtype)
        with np.errstate(invalid="ignore"):
            starts = np.flatnonzero(np.abs(all_of_them - near[0]) <= tolerance * near[0])
        found += [all_of_them[s : s + 256] for s in starts if s + 256 <= len(all_of_them) and
                  np.allclose(all_of_them[s : s + 256], near, rtol=tolerance, atol=0)]
    assert len(found) == 1, f"{len(found)} places"
    return found[0]


def main():
    library = pathlib.Path(np.__file__).parent / "random/lib/libnpyrandom.a"
    data = library.read_bytes()
    near_wi, near_fi, near_ki = computed()
    wi, fi = find(data, near_wi, "<f8", 1e-12), find(data, near_fi, "<f8", 1e-12)
    ki = find(data, near_ki, "<u8", 1e-12)
    derived = [np.float32(wi * 2**29), np.float32(fi), ((ki + 2**28) >> np.uint64(29)).astype("<u4")]
    assert all(d.tobytes() in data
               for d in derived), "a table of float32 does not follow from that of float64"
    pathlib.Path(__file__).with_name("ziggurat.bin").write_bytes(wi.tobytes() + fi.tobytes() + ki.tobytes())
    print("numpy", np.__version__, "float32 tables",
          hashlib.sha256(b"".join(d.tobytes() for d in derived)).hexdigest())


main()
