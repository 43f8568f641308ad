"""Writes lstm.bin: torch.nn.LSTM, bidirectional, in float64.

    pip install -r ../../../tools/golden/requirements.txt
    python3 make_lstm.py

A case is a layer: the products of its input with W_ih, both biases added, as the kernel takes them,
W_hh of both directions, and its states. A second layer's input are the first one's states. Gates
are rounded to f32 once; what follows from them is the mathematics.
"""

import pathlib

import golden_file
import numpy as np
import torch

torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(20261124)
cases = []
PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
DIRECTIONS = ("", "_reverse")


def draw(scale, *shape):
    return torch.tensor(np.asarray(golden_file.bf16(rng.uniform(-scale, scale, shape)), dtype=np.float64))


def states(lstm, x):
    return lstm(x[None])[0][0] if len(x) > 0 else torch.zeros(0, 2 * lstm.hidden_size)


@torch.no_grad()
def recurrent(name, inputs, hidden, layers, lengths):
    lstm = torch.nn.LSTM(inputs, hidden, layers, batch_first=True, bidirectional=True)
    for weight in lstm.parameters():
        weight.copy_(draw(1.5 / np.sqrt(hidden), *weight.shape))
    x = [draw(1.9, n, inputs) for n in lengths]
    whole = [states(lstm, s) for s in x]
    for layer in range(layers):
        w = {(n, d): getattr(lstm, f"{n}_l{layer}{d}") for n in PARTS for d in DIRECTIONS}
        one = torch.nn.LSTM(x[0].shape[1], hidden, 1, batch_first=True, bidirectional=True)
        for (n, d), value in w.items():
            getattr(one, f"{n}_l0{d}").copy_(value)
        gates = [torch.cat([s @ w["weight_ih", d].T + w["bias_ih", d] + w["bias_hh", d]
                            for d in DIRECTIONS], dim=1) for s in x]
        x = [states(one, s) for s in x]
        cases.append(("lstm", f"{name}, layer {layer + 1} of {layers}", {}, {
            "gates": torch.cat(gates).numpy(), "lengths": np.array(lengths),
            "forward": w["weight_hh", ""].numpy(), "reverse": w["weight_hh", "_reverse"].numpy(),
            "y": torch.cat(x).numpy()}))
    assert all(torch.allclose(a, b, rtol=0, atol=1e-14) for a, b in zip(whole, x))


def main():
    recurrent("one layer", 12, 6, 1, [1, 2, 17, 0, 384])
    recurrent("two layers", 9, 5, 2, [17, 1, 384, 2])
    golden_file.write(pathlib.Path(__file__).with_name("lstm.bin"), cases)


main()
