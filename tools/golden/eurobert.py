"""Tiny random EuroBERTs of each variant that changes the computation, in the form of qwen.py, and what
the heads of transformers give, in the form of heads.py.

    python tools/golden/eurobert.py

    testdata/golden/eurobert-gqa, eurobert-biases
    testdata/golden/classify-eurobert, classify-eurobert-bos, tag-eurobert, masked-eurobert
"""

import shutil

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers import EuroBertConfig, EuroBertModel

import heads
import manifest
import qwen

COMMAND = "python tools/golden/eurobert.py"
SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, mask_token_id=3)
CASES = {
    # Two heads on one of keys, an odd MLP, the published base and names.
    "eurobert-gqa": dict(config=dict(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
        intermediate_size=45, max_position_embeddings=140,
        rope_parameters={"rope_type": "default", "rope_theta": 250000.0}, **SPECIAL),
                         dtype=torch.bfloat16, prefix="model.", lengths=[1, 2, 3, 127, 129]),
    # Biases round attention, GeGLU, another epsilon, own heads of keys, linear scaling.
    "eurobert-biases": dict(config=dict(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=1, intermediate_size=24,
        max_position_embeddings=60, attention_bias=True, rms_norm_eps=1e-2, hidden_act="gelu",
        rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 10000.0}, **SPECIAL),
                            dtype=torch.float16, prefix="", lengths=[5, 33, 1]),
}
SMALL = dict(vocab_size=101, hidden_size=32, num_hidden_layers=2, num_attention_heads=1, intermediate_size=24,
             max_position_embeddings=60, **SPECIAL,
             rope_parameters={"rope_type": "default", "rope_theta": 250000.0})
HEADS = [
    ("classify-eurobert", "logits", "EuroBertForSequenceClassification",
     dict(id2label=heads.EMOTIONS, label2id={v: k for k, v in heads.EMOTIONS.items()})),
    ("classify-eurobert-bos", "logits", "EuroBertForSequenceClassification",
     dict(num_labels=1, classifier_pooling="bos")),
    ("tag-eurobert", "token_logits", "EuroBertForTokenClassification",
     dict(id2label=heads.TAGS, label2id={v: k for k, v in heads.TAGS.items()})),
    ("masked-eurobert", "word_logits", "EuroBertForMaskedLM", {}),
]


def head(name, key, class_name, own, seed):
    case = manifest.GOLDEN / name
    shutil.rmtree(case, ignore_errors=True)
    config = EuroBertConfig(**SMALL | own, attn_implementation="eager")
    model = getattr(transformers, class_name)(config).eval()
    qwen.randomise(model, seed)
    model.save_pretrained(case)
    b = heads.batch(config, seed)
    take = (lambda o: o.logits) if key == "logits" else (lambda o: o.logits[0])
    b[key] = np.concatenate(heads.alone(model, b, take)).astype(np.float32)
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in b.items()},
              case / "golden.safetensors")
    manifest.write(case, COMMAND, f"random {class_name}, seed {seed}", "float32", {})
    print(name, b[key].shape, float(np.abs(b[key]).max()))


def main():
    torch.set_num_threads(1)
    qwen.FAMILIES["eurobert"] = (EuroBertConfig, EuroBertModel)
    for seed, (name, spec) in enumerate(CASES.items(), start=701):
        qwen.make(name, spec, seed, COMMAND)
    for seed, spec in enumerate(HEADS, start=711):
        head(*spec, seed)


if __name__ == "__main__":
    main()
