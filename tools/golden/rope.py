"""The angles of rotary position embeddings, from the functions that transformers computes them with.

    python tools/golden/rope.py

One case, testdata/golden/rope, with

    cases.json           [{"config": what config.json says, "head_dim", "length", "theta": the base
                         of a file without one, "scale": the factor of cos and sin}]
    golden.safetensors   angles_<i> [pairs] f32: the angle of each pair for one position

Most are the results of ROPE_INIT_FUNCTIONS after transformers has read the configuration. It has no
"ntk": that one is written down here from the published modelling file of Alibaba's GTE
(NTKScalingRotaryEmbedding of new-impl), in float64.
"""

import json
import shutil

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import LlamaConfig, StableLmConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.stablelm.modeling_stablelm import StableLmRotaryEmbedding

import manifest


def sized(heads, dim, positions, **keys):
    shape = {"hidden_size": heads * dim, "num_attention_heads": heads}
    return shape | {"max_position_embeddings": positions} | keys


def scaling(kind, heads, dim, positions, theta=None, old=True, **keys):
    """A configuration with scaled embeddings, in the old form or in the new one."""
    base = {} if theta is None else {"rope_theta": theta}
    if old:
        return sized(heads, dim, positions, rope_scaling={"type": kind} | keys, **base)
    return sized(heads, dim, positions, rope_parameters={"rope_type": kind} | keys | base)


def cases():
    yield sized(4, 64, 2048)
    yield sized(2, 32, 512, rope_theta=160000.0)
    yield sized(3, 64, 8192, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    yield sized(2, 128, 32768, rope_theta=1000000)
    yield sized(4, 64, 2048, head_dim=128, rope_theta=5e6)
    yield sized(4, 80, 2048, rope_theta=1000, rope_scaling=None)
    yield sized(4, 80, 4096, partial_rotary_factor=0.25)
    half = {"rope_type": "default", "rope_theta": 2e4, "partial_rotary_factor": 0.5}
    yield sized(2, 64, 4096, rope_parameters=half)
    for old in (True, False):
        yield scaling("linear", 4, 64, 4096, old=old, factor=2.0)
        yield scaling("linear", 2, 96, 4096, 160000, old, factor=8)
        yield scaling("dynamic", 4, 64, 2048, 1000, old, factor=2.0)
        yield scaling("llama3", 4, 64, 131072, 500000.0, old, factor=8.0, low_freq_factor=1.0,
                      high_freq_factor=4.0, original_max_position_embeddings=8192)
        yield scaling("llama3", 2, 128, 131072, 500000.0, old, factor=32.0, low_freq_factor=1.0,
                      high_freq_factor=4.0, original_max_position_embeddings=8192)
        yield scaling("llama3", 2, 32, 512, 300.0, old, factor=3.0, low_freq_factor=1.5, high_freq_factor=9.0,
                      original_max_position_embeddings=77)
        yield scaling("yarn", 4, 128, 131072, 1000000, old, factor=4.0,
                      original_max_position_embeddings=32768)
        yield scaling("yarn", 4, 64, 8192, 10000, old, factor=16.0, original_max_position_embeddings=512,
                      beta_fast=20, beta_slow=2)
        yield scaling("yarn", 4, 64, 8192, 160000, old, factor=3.0, original_max_position_embeddings=1000,
                      attention_factor=0.75)
        yield scaling("yarn", 4, 64, 4096, 10000, old, factor=40, original_max_position_embeddings=4096,
                      mscale=1.0, mscale_all_dim=0.8)
        yield scaling("yarn", 4, 64, 4096, 10000, old, factor=40, original_max_position_embeddings=4096,
                      mscale=0.7)
        yield scaling("yarn", 2, 64, 4096, 50000, old, factor=5.0, original_max_position_embeddings=900,
                      truncate=False)
        yield scaling("yarn", 2, 64, 4096, 50000, old, factor=None, original_max_position_embeddings=512)
        yield scaling("yarn", 2, 64, 4096, 50000, old, factor=2.0)
        yield scaling("yarn", 2, 64, 64, 10000, old, factor=0.5, original_max_position_embeddings=128)
        yield scaling("yarn", 2, 32, 64, 1.5, old, factor=4.0, original_max_position_embeddings=7)
        yield scaling("yarn", 2, 64, 2048, 10000, old, factor=4.0, original_max_position_embeddings=512,
                      partial_rotary_factor=0.5)
    yield scaling("linear", 2, 50, 512, 10000, False, factor=3.0, partial_rotary_factor=0.5)
    # what counts where a file says it twice
    twice = {"rope_type": "linear", "factor": 2.0, "rope_theta": 99.0}
    yield sized(2, 64, 512, rope_theta=777, rope_parameters=twice)
    yield sized(2, 64, 512, rope_scaling={"type": "linear", "rope_type": "dynamic", "factor": 2.0})
    yield sized(2, 64, 512, rope_scaling={"rope_type": "linear", "factor": 2.0},
                rope_parameters={"rope_type": "linear", "factor": 5.0, "rope_theta": 99.0})
    yield sized(2, 64, 4096, rope_theta=1e4, original_max_position_embeddings=300,
                rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512})


def ntk(theta, dim, factor, mixed):
    steps = np.arange(0, dim, 2, dtype=np.float64)
    angles = 1.0 / ((theta * factor if mixed is None else theta)**(steps / dim))
    if mixed is None:
        return angles / factor**(2 / dim)
    a = np.log(factor) / (dim / 2)**mixed
    return angles / np.exp(a * np.arange(1, dim // 2 + 1)**mixed)


def reference(plain, length):
    """The angles and the scale that transformers has for the configuration and a text's length."""
    keys = json.loads(json.dumps(plain))
    partial = "partial_rotary_factor" in json.dumps(plain)
    kind = StableLmConfig if partial else LlamaConfig
    config = kind(**keys)
    if "head_dim" not in keys and hasattr(config, "head_dim"):
        config.head_dim = keys["hidden_size"] // keys["num_attention_heads"]
    name = config.rope_parameters["rope_type"]
    if name != "default":
        return ROPE_INIT_FUNCTIONS[name](config, torch.device("cpu"), seq_len=length)
    module = StableLmRotaryEmbedding if partial else LlamaRotaryEmbedding
    return module.compute_default_rope_parameters(config)


def main():
    case = manifest.GOLDEN / "rope"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    listed, tensors = [], {}

    def add(plain, length, angles, scale):
        tensors[f"angles_{len(listed)}"] = np.asarray(angles, dtype=np.float32)
        head_dim = plain.get("head_dim") or plain["hidden_size"] // plain["num_attention_heads"]
        listed.append({"config": plain, "head_dim": head_dim, "length": length, "theta": 10000.0,
                       "scale": float(scale)})

    for plain in cases():
        lengths = [plain["max_position_embeddings"]]
        if "dynamic" in json.dumps(plain):
            lengths = [1, lengths[0], lengths[0] + 1, 3 * lengths[0]]
        for length in lengths:
            angles, scale = reference(plain, length)
            add(plain, length, angles.numpy(), scale)
    for theta, dim, factor, mixed in ((20000, 64, 8.0, None), (10000, 64, 2, None), (160000, 32, 4.0, 0.625)):
        keys = {"type": "ntk", "factor": factor} | ({} if mixed is None else {"mixed_b": mixed})
        add(sized(2, dim, 8192, rope_theta=theta, rope_scaling=keys), 8192, ntk(theta, dim, factor, mixed), 1)
    (case / "cases.json").write_text(json.dumps(listed, indent=1) + "\n")
    save_file(tensors, case / "golden.safetensors")
    manifest.write(case, "python tools/golden/rope.py", "none", "float32", {"cases": len(listed)})
    print(len(listed), "cases")


if __name__ == "__main__":
    main()
