"""What sie-server's quantisation makes of dense rows and of the token rows of multivectors.

    python tools/golden/quantise.py

One case, testdata/golden/quantise. Its manifest's notes list the inputs: "dense" by name,
"multivector" by name. Of each, in golden.safetensors:

    <name>.x       [N, D] f32   the rows; of a multivector all items' tokens, and <name>.cu [B+1] int32
    <name>.float16 [N, D] u16   the bits
    <name>.int8    [N, D] i32   codes, for JSON-sized files as numbers
    <name>.uint8   [N, D] u16
    <name>.binary  [N, ceil(D/8)] u16   bytes, the first column in the highest bit; ubinary is the same

The results must be equal, not near: every rounding is float32's.
"""

import shutil
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
from safetensors.numpy import save_file
from sie_server.core.postprocessor import QuantizePostprocessor

import manifest

rng = np.random.default_rng(20261123)
DTYPES = ("float16", "int8", "uint8", "binary")


def hard(columns):
    """Rows that ask for every rule: ties, constant rows, signed zeros, values that float16
    overflows, rounds and flushes."""
    normal = rng.standard_normal((3, columns))
    odd = np.resize(np.arange(-253, 254, 2), columns).astype(np.float64)
    odd[-1] = 254
    steps = np.resize(np.arange(0, 510), columns).astype(np.float64)
    steps[-1] = 510
    edges = [1 + 2**-11, 1 + 3 * 2**-11, 65504, 65519.996, 65520, 1e6, -65520, 2**-24, 2**-25,
             2**-25 * 1.0001, 3 * 2**-25, 2**-14, 2**-14 - 2**-25, -(2**-26), 0.1, 1 / 3]
    rows = [*normal, normal[0] * 1e4, normal[1] * 1e-5, normal[2] * 1e-40, odd, steps,
            np.resize(edges, columns), np.zeros(columns), np.full(columns, 0.3), np.full(columns, -0.3),
            np.resize([0.0, -0.0], columns), normal[0] / np.linalg.norm(normal[0])]
    return np.stack(rows).astype(np.float32)


def quantised(x, dtype, multivector):
    output = SimpleNamespace(dense=None, sparse=None, multivector=None)
    if multivector:
        output.multivector = x
    else:
        output.dense = x
    with np.errstate(over="ignore"):
        QuantizePostprocessor().quantize(output, output_dtype=dtype)
    return output.multivector if multivector else output.dense


def stored(values):
    if values.dtype == np.float16:
        return values.view(np.uint16)
    return values.astype(np.int32 if values.dtype == np.int8 else np.uint16)


def main():
    tensors, names = {}, {"dense": [], "multivector": []}
    for columns in (1, 7, 8, 9, 33, 128, 384):
        name, x = f"dense {columns}", hard(columns)
        names["dense"].append(name)
        tensors[f"{name}.x"] = x
        tensors |= {f"{name}.{dtype}": stored(quantised(x, dtype, False)) for dtype in DTYPES}
    for columns in (48, 65, 128):
        name, x = f"multivector {columns}", hard(columns)
        names["multivector"].append(name)
        cu = [0, 3, 3, 4, len(x)]  # an item without tokens, and one with one
        items = [x[a:b] for a, b in zip(cu[:-1], cu[1:])]
        tensors |= {f"{name}.x": x, f"{name}.cu": np.array(cu, dtype=np.int32)}
        for dtype in DTYPES:
            # the original cannot reduce no rows
            rows = [quantised([item], dtype, True)[0] for item in items if len(item)]
            tensors[f"{name}.{dtype}"] = stored(np.concatenate(rows))
    assert all((quantised(tensors[f"{n}.x"], "ubinary", False) == tensors[f"{n}.binary"]).all()
               for n in names["dense"])

    case = manifest.GOLDEN / "quantise"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, case / "golden.safetensors")
    manifest.write(case, "python tools/golden/quantise.py", "hard rows", "float32",
                   {"sie-server": version("sie-server"), **names})
    print(sum(t.nbytes for t in tensors.values()), "bytes")


if __name__ == "__main__":
    main()
