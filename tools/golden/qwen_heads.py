"""What the heads of transformers give behind tiny random Qwen2s and Qwen3s, in the form of heads.py.

    python tools/golden/qwen_heads.py

    testdata/golden/classify-qwen3, classify-qwen2, tag-qwen3

A text is classified by its last token that is not the padding token, wherever others of that stand:
texts of the first two cases end with none, one or three of it, have it in the middle, or are nothing
else.
"""

import shutil

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import heads
import manifest
import qwen

COMMAND = "python tools/golden/qwen_heads.py"
PAD = 9
SMALL = dict(vocab_size=101, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
             intermediate_size=24, max_position_embeddings=60, rope_parameters=qwen.PLAIN, pad_token_id=PAD)
CASES = [
    ("classify-qwen3", "logits", "Qwen3ForSequenceClassification",
     dict(hidden_size=24, head_dim=32, id2label=heads.EMOTIONS,
          label2id={v: k for k, v in heads.EMOTIONS.items()})),
    ("classify-qwen2", "logits", "Qwen2ForSequenceClassification", dict(hidden_size=64, num_labels=1)),
    ("tag-qwen3", "token_logits", "Qwen3ForTokenClassification",
     dict(hidden_size=24, head_dim=32, id2label=heads.TAGS, label2id={v: k for k, v in heads.TAGS.items()})),
]


def padded(b: dict) -> dict:
    """The batch with padding tokens in its texts, which have 7, 1, 40, 16 and 33 tokens."""
    first = b["cu_seqlens"][:-1]
    for text, places in enumerate([(6,), (0,), (), (5, 13, 14, 15), (0, 20)]):
        for at in places:
            b["ids"][first[text] + at] = PAD
    return b


def head(name, key, class_name, own, seed):
    case = manifest.GOLDEN / name
    shutil.rmtree(case, ignore_errors=True)
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(**SMALL | own, attn_implementation="eager")
    model = model_class(config).eval()
    qwen.randomise(model, seed)
    model.save_pretrained(case)
    b = heads.batch(config, seed)
    if key == "logits":
        b = padded(b)
    take = (lambda o: o.logits) if key == "logits" else (lambda o: o.logits[0])
    b[key] = np.concatenate(heads.alone(model, b, take)).astype(np.float32)
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in b.items()},
              case / "golden.safetensors")
    manifest.write(case, COMMAND, f"random {class_name}, seed {seed}", "float32", {})
    print(name, b[key].shape, float(np.abs(b[key]).max()))


def main():
    torch.set_num_threads(1)
    for seed, spec in enumerate(CASES, start=391):
        head(*spec, seed)


if __name__ == "__main__":
    main()
