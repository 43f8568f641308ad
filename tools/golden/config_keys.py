#!/usr/bin/env python3
"""Writes testdata/golden/config-keys/keys.json: the keys that transformers' configuration class of each
model_type has, those of all models among them, for the test that says of each what it means here.

    pip install -r requirements.txt
    tools/golden/config_keys.py
"""

import dataclasses
import json
import pathlib

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VERSION = "5.23.0"
OUT = pathlib.Path(__file__).resolve().parents[2] / "testdata/golden/config-keys"
TYPES = ["albert", "bert", "camembert", "deberta-v2", "distilbert", "electra", "eurobert", "gemma3_text",
         "gte", "modernbert", "mpnet", "mt5", "nomic_bert", "qwen2", "qwen3", "roberta", "t5", "umt5",
         "xlm-roberta"]


def keys(kind):
    """Fields of the class and what it writes, names of other classes included."""
    found = set(kind().to_dict()) | set(kind.attribute_map)
    return sorted(found | {f.name for f in dataclasses.fields(kind)})


def main():
    if transformers.__version__ != VERSION:
        raise SystemExit("install requirements.txt")
    OUT.mkdir(parents=True, exist_ok=True)
    found = {name: keys(CONFIG_MAPPING[name]) for name in TYPES}
    text = json.dumps({"transformers": VERSION, "keys": found}, indent=1) + "\n"
    (OUT / "keys.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
