"""The shapes that make bench-extract races: published extractors with random weights. A model more is
a row more.

A row is a dictionary:

    source   the repository whose sizes they are
    package  what runs the model elsewhere: gliner, gliclass or transformers
    encoder  the encoder's configuration
    head     the package's configuration of what stands behind it
    labels   the label encoder's configuration, of models with one
    limit    words (gliner) or tokens of the longest text that the package reads at once
    ratio    what was predicted of our fp32 to the package's fp32 on items of 25 labels, by AVX-512
    note     where the row differs from the published model

The predictions are kept as they were made: 2026-11-28, before any of these shapes was run.
"""


def deberta(hidden, layers, heads, inner):
    """DeBERTa v3 as its repositories have it."""
    return {"model_type": "deberta-v2", "vocab_size": 128100, "hidden_size": hidden,
            "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": inner,
            "hidden_act": "gelu", "max_position_embeddings": 512, "relative_attention": True,
            "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"], "layer_norm_eps": 1e-7, "max_relative_positions": -1,
            "position_biased_input": False, "type_vocab_size": 0, "pad_token_id": 0}


def ettin(hidden, layers, heads, inner):
    """Ettin: ModernBERT's architecture."""
    return {"model_type": "modernbert", "vocab_size": 50368, "hidden_size": hidden,
            "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": inner,
            "max_position_embeddings": 7999, "local_attention": 128, "global_attn_every_n_layers": 3,
            "pad_token_id": 50283, "bos_token_id": 50281, "eos_token_id": 50282, "cls_token_id": 50281,
            "sep_token_id": 50282}


SMALL, BASE = deberta(768, 6, 12, 3072), deberta(768, 12, 12, 3072)
LARGE = deberta(1024, 24, 16, 4096)
SPANS = {"span_mode": "markerV0", "hidden_size": 512, "num_rnn_layers": 1, "max_width": 12, "max_len": 384}

ROWS = {
    "gliner_small-v2.1": {
        "source": "urchade/gliner_small-v2.1", "package": "gliner", "encoder": SMALL, "head": SPANS,
        "limit": 384, "ratio": 2.2,
    },
    "gliner_medium-v2.1": {
        "source": "urchade/gliner_medium-v2.1", "package": "gliner", "encoder": BASE, "head": SPANS,
        "limit": 384, "ratio": 2.2,
    },
    "gliner_large-v2.1": {
        "source": "urchade/gliner_large-v2.1", "package": "gliner", "encoder": LARGE, "head": SPANS,
        "limit": 384, "ratio": 2.0,
    },
    "nuner_zero": {
        "source": "numind/NuNER_Zero", "package": "gliner", "encoder": LARGE,
        "head": SPANS | {"span_mode": "token_level"}, "limit": 384, "ratio": 2.0,
    },
    "gliner-bi-base-v2.0": {
        "source": "knowledgator/gliner-bi-base-v2.0", "package": "gliner",
        "encoder": ettin(768, 22, 12, 1152),
        "labels": {"model_type": "bert", "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 12,
                   "num_attention_heads": 12, "intermediate_size": 1536},
        "head": SPANS | {"max_len": 1024}, "limit": 1024, "ratio": 2.0,
        "note": "label vectors are made before the first turn by every engine",
    },
    "gliclass-base-v3.0": {
        "source": "knowledgator/gliclass-base-v3.0", "package": "gliclass", "encoder": BASE,
        "head": {"scorer_type": "mlp", "pooling_strategy": "first", "prompt_first": True,
                 "class_token_pooling": "first"}, "limit": 1024, "ratio": 2.2,
    },
    "gliclass-edge-v3.0": {
        "source": "knowledgator/gliclass-edge-v3.0", "package": "gliclass",
        "encoder": ettin(384, 10, 6, 576),
        "head": {"scorer_type": "mlp", "pooling_strategy": "first", "prompt_first": True,
                 "class_token_pooling": "first"}, "limit": 1024, "ratio": 2.0,
    },
    "nli-deberta-v3-base": {
        "source": "MoritzLaurer/deberta-v3-base-zeroshot-v2.0", "package": "transformers", "encoder": BASE,
        "head": {"id2label": {"0": "entailment", "1": "not_entailment"}}, "limit": 512, "ratio": 2.2,
        "note": "25 and 100 labels are as many pairs a text; 100 are left out, which take minutes a turn",
    },
}
COUNTS = (5, 25, 100)  # labels
HYPOTHESIS = "This text is about {}."  # of sie-server, ours and the published one


def is_bytes(row):
    """Whether the model's words are pieces of bytes; else a space is ▁."""
    return row["encoder"]["model_type"] == "modernbert"
