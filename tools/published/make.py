"""What the checkpoints of the catalog's models hold: testdata/published/<org>__<name>.json.

    python tools/published/make.py [id ...]

A file has the configuration files, and the name, shape and dtype of every tensor, in patterns such
as "encoder.layer.{0-11}.output.dense.weight". No weights are read and nothing is downloaded. `source`
says of each part where it is from:

    read      from the model's own file, or from a copy of it in a public repository that is named
    derived   nobody read the file for this: the sizes are those known of the model, and the tensor
              names those of its class in transformers, or of its published code where transformers
              has other names

To add a model, add its row to the file of its architecture and run this program with its id.
"""

import json
import pathlib
import re
import sys

import torch
import transformers

import models

OUT = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "published"
# The second name of a tensor that is the table of words; safetensors files leave it out.
TIED = {
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
    "lm_head.decoder.weight",
    "lm_head.decoder.bias",
    "vocab_projector.weight",
    "decoder.weight",
    "lm_head.weight",
}


def class_tensors(config: dict, name: str) -> dict[str, list[int]]:
    """The tensors of transformers' class for the configuration, without memory for them."""
    kept = {k: v for k, v in config.items() if k not in ("auto_map", "architectures", "model_type")}
    with torch.device("meta"):
        cls = getattr(transformers, name)
        model = cls(cls.config_class(**kept))
    tied = config.get("tie_word_embeddings", True)
    return {k: list(v.shape) for k, v in model.state_dict().items() if not (tied and k in TIED)}


def patterns(tensors: dict[str, list[int]]) -> dict[str, list[int]]:
    """Folds names that differ in the number of a block, where all have one shape."""
    groups: dict[tuple, list[int]] = {}
    for name, shape in tensors.items():
        m = re.search(r"(?<=\.)\d+(?=\.)", name)
        at = (name[: m.start()], name[m.end() :]) if m else (name, None)
        groups.setdefault((*at, tuple(shape)), []).append(int(m.group()) if m else -1)
    out = {}
    for (head, tail, shape), numbers in groups.items():
        if tail is None:
            out[head] = list(shape)
            continue
        numbers.sort()
        start = 0
        for i in range(1, len(numbers) + 1):
            if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
                first, last = numbers[start], numbers[i - 1]
                key = str(first) if first == last else f"{{{first}-{last}}}"
                out[head + key + tail] = list(shape)
                start = i
    return out


def write(row: dict) -> None:
    config = row["files"].get("config.json")
    weights = []
    for part in row["weights"]:
        tensors = part.get("tensors")
        if tensors is None:
            tensors = class_tensors(config, part["class"])
        elif callable(tensors):  # of a package's class, which is slow to build
            tensors = tensors()
        tensors = {
            part.get("prefix", "") + k.removeprefix(part.get("strip", "")): v
            for k, v in tensors.items()
            if not k.startswith(part.get("without", "\0"))
        }
        tensors.update(part.get("extra", {}))
        ids = {k: "I64" for k in tensors if k.endswith("position_ids")}
        weights.append(
            {
                "file": part["file"],
                "dtype": part["dtype"],
                "dtypes": ids,
                "shards": part.get("shards", 1),
                "tensors": patterns(tensors),
            }
        )
    text = json.dumps(
        {"id": row["id"], "source": row["source"], "files": row["files"]}, indent=1, ensure_ascii=False
    )
    lines = [text[:-2] + ',\n "weights": [']
    for i, part in enumerate(weights):
        head = {k: part[k] for k in ("file", "dtype", "dtypes", "shards") if part[k]}
        lines.append("  " + json.dumps(head)[:-1] + ', "tensors": {')
        rows = [f"   {json.dumps(k)}: {json.dumps(v)}" for k, v in part["tensors"].items()]
        lines.append(",\n".join(rows))
        lines.append("  }}" + ("," if i + 1 < len(weights) else ""))
    lines.append(" ]\n}")
    path = OUT / (row["id"].replace("/", "__") + ".json")
    path.write_text("\n".join(lines) + "\n")
    json.loads(path.read_text())


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    rows = [r for r in models.rows() if len(sys.argv) < 2 or r["id"] in sys.argv[1:]]
    for row in rows:
        write(row)
    print(len(rows), "models,", sum(p.stat().st_size for p in OUT.iterdir()), "bytes")


if __name__ == "__main__":
    main()
