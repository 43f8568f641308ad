"""DeBERTa v3: zero-shot classifiers by entailment, and rerankers."""

from rows import LABEL, row


def deberta(width: int, blocks: int, heads: int, vocab: int = 128100, **more) -> dict:
    return {
        "architectures": ["DebertaV2ForSequenceClassification"],
        "model_type": "deberta-v2",
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": width,
        "initializer_range": 0.02,
        "intermediate_size": 4 * width,
        "layer_norm_eps": 1e-7,
        "max_position_embeddings": 512,
        "max_relative_positions": -1,
        "norm_rel_ebd": "layer_norm",
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "pad_token_id": 0,
        "pooler_dropout": 0,
        "pooler_hidden_act": "gelu",
        "pooler_hidden_size": width,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "position_buckets": 256,
        "relative_attention": True,
        "share_att_key": True,
        "type_vocab_size": 0,
        "vocab_size": vocab,
        **more,
    }


def labelled(*labels: str) -> dict:
    return {
        "id2label": {str(i): x for i, x in enumerate(labels)},
        "label2id": {x: i for i, x in enumerate(labels)},
    }


def debertas() -> list[dict]:
    two = labelled("entailment", "not_entailment")
    three = labelled("contradiction", "entailment", "neutral")
    return [
        row("MoritzLaurer/deberta-v3-base-zeroshot-v2.0", deberta(768, 12, 12, **two), "F16"),
        row("MoritzLaurer/deberta-v3-large-zeroshot-v2.0", deberta(1024, 24, 16, **two), "F16"),
        row("cross-encoder/nli-deberta-v3-base", deberta(768, 12, 12, **three), "F32"),
        row("mixedbread-ai/mxbai-rerank-xsmall-v1", deberta(384, 12, 6, **LABEL), "F16"),
        row("mixedbread-ai/mxbai-rerank-base-v1", deberta(768, 12, 12, **LABEL), "F16"),
        row("mixedbread-ai/mxbai-rerank-large-v1", deberta(1024, 24, 16, **LABEL), "F16"),
    ]
