"""A GLiNER bi-encoder of a published size with random weights, for BenchmarkGLiNERBiLabels.

    build/venv-golden/bin/python bench/bimodel.py {edge,small,base,large} DIR

Sizes are those of the Ettin encoders and of the label towers that the published v2.0 models name. The
tokenizers are tiny: a word costs a few tokens more than with the published ones.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools" / "golden"))

from gliner.model import BiEncoderSpanGLiNER
from gliner_spans import BERT, MODERNBERT, bytelevel, wordpiece

# columns, blocks, heads and columns inside an MLP of the text's encoder, then of the label tower
SIZES = {
    "edge": ((384, 10, 6, 576), (384, 6, 12, 1536)),
    "small": ((512, 19, 8, 768), (384, 12, 12, 1536)),
    "base": ((768, 22, 12, 1152), (384, 12, 12, 1536)),
    "large": ((1024, 28, 16, 2624), (768, 12, 12, 3072)),
}


def sized(base: dict, sizes: tuple, **more) -> dict:
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    return {**base, **dict(zip(names, sizes)), **more}


def main(size: str, folder: str) -> None:
    text, labels = SIZES[size]
    words, names = bytelevel(), wordpiece()
    config = BiEncoderSpanGLiNER.config_class(
        encoder_config=sized(
            MODERNBERT, text, vocab_size=len(words), max_position_embeddings=1024, local_attention=128
        ),
        model_name=f"sie/{size}",
        labels_encoder="sie/labels",
        labels_encoder_config=sized(BERT, labels, vocab_size=len(names), max_position_embeddings=512),
        hidden_size=512,
        span_mode="markerV0",
        max_width=12,
        max_len=1024,
    )
    torch.manual_seed(7)
    model = BiEncoderSpanGLiNER(
        config, tokenizer=words, labels_tokenizer=names, backbone_from_pretrained=False
    )
    model.save_pretrained(folder, safe_serialization=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
