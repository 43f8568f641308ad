"""Configurations by architecture, and what makes a row of make.py of them."""

CARD = "derived: the sizes known of the model, in the form of its architecture's configuration"
CLASS = "derived: the names of transformers 5.23's class and the configuration's sizes"
CODE = "derived: the names in the model's published code, as transformers' conversion mapping lists them"
TYPE = "derived: the element type known of the model"


def copy(repo: str, path: str) -> str:
    return f"read, the keys that count: a copy in github.com/{repo}, {path}"


def modules(*kinds: str) -> list[dict]:
    """modules.json: Transformer in the directory itself, others in folders of their own."""
    out = []
    for i, kind in enumerate(kinds):
        name, _, package = kind.partition("@")
        short = name.rsplit(".", 1)[-1]
        out.append(
            {
                "idx": i,
                "name": str(i),
                "path": f"{i}_{short}" if i else "",
                "type": (package or "sentence_transformers.models") + "." + name,
            }
        )
    return out


def pooling(width: int, mode: str) -> dict:
    flags = {
        "cls": "pooling_mode_cls_token",
        "mean": "pooling_mode_mean_tokens",
        "last": "pooling_mode_lasttoken",
    }
    return {"word_embedding_dimension": width, **{flag: name == mode for name, flag in flags.items()}}


def bert(width: int, blocks: int, heads: int, vocab: int = 30522, cls: str = "BertModel", **more) -> dict:
    return {
        "architectures": [cls],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "type_vocab_size": 2,
        "vocab_size": vocab,
        **more,
    }


def xlmr(
    width: int,
    blocks: int,
    heads: int,
    cls: str = "XLMRobertaModel",
    positions: int = 514,
    vocab: int = 250002,
    kind: str = "xlm-roberta",
    **more,
) -> dict:
    return {
        "architectures": [cls],
        "model_type": kind,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "hidden_act": "gelu",
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": positions,
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "pad_token_id": 1,
        "position_embedding_type": "absolute",
        "type_vocab_size": 1,
        "vocab_size": vocab,
        **more,
    }


def distilbert(cls: str = "DistilBertForMaskedLM") -> dict:
    return {
        "architectures": [cls],
        "model_type": "distilbert",
        "activation": "gelu",
        "dim": 768,
        "hidden_dim": 3072,
        "max_position_embeddings": 512,
        "n_heads": 12,
        "n_layers": 6,
        "pad_token_id": 0,
        "sinusoidal_pos_embds": False,
        "tie_weights_": True,
        "vocab_size": 30522,
    }


def modernbert(
    width: int, blocks: int, heads: int, inner: int, cls: str = "ModernBertModel", vocab: int = 50368, **more
) -> dict:
    return {
        "architectures": [cls],
        "model_type": "modernbert",
        "attention_bias": False,
        "classifier_activation": "gelu",
        "classifier_bias": False,
        "classifier_pooling": "mean",
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "hidden_activation": "gelu",
        "hidden_size": width,
        "intermediate_size": inner,
        "layer_norm_eps": 1e-5,
        "local_attention": 128,
        "local_rope_theta": 10000.0,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "norm_bias": False,
        "norm_eps": 1e-5,
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "pad_token_id": 50283,
        "vocab_size": vocab,
        **more,
    }


def qwen3(
    width: int,
    blocks: int,
    heads: int,
    inner: int,
    vocab: int,
    positions: int,
    cls: str = "Qwen3ForCausalLM",
    tie: bool = True,
    **more,
) -> dict:
    return {
        "architectures": [cls],
        "model_type": "qwen3",
        "attention_bias": False,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": inner,
        "max_position_embeddings": positions,
        "max_window_layers": blocks,
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": tie,
        "use_sliding_window": False,
        "vocab_size": vocab,
        **more,
    }


def qwen2(
    width: int,
    blocks: int,
    heads: int,
    kv: int,
    inner: int,
    vocab: int,
    positions: int,
    cls: str = "Qwen2ForCausalLM",
    tie: bool = False,
    **more,
) -> dict:
    return {
        "architectures": [cls],
        "model_type": "qwen2",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": inner,
        "max_position_embeddings": positions,
        "max_window_layers": blocks,
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "num_key_value_heads": kv,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "sliding_window": 131072,
        "tie_word_embeddings": tie,
        "use_sliding_window": False,
        "vocab_size": vocab,
        **more,
    }


def row(
    id: str,
    config: dict,
    dtype: str,
    *,
    kinds=(),
    mode: str = "",
    cls: str = "",
    config_from=CARD,
    names_from=CLASS,
    dtype_from=TYPE,
    file="model.safetensors",
    files=None,
    parts=(),
    limit=None,
    read=None,  # file → its source, where it was read
    **weights,
) -> dict:
    out = {
        "id": id,
        "files": {"config.json": config},
        "source": {
            "config.json": config_from,
            "names": names_from,
            "shapes": names_from,
            "dtype": dtype_from,
        },
    }
    width = config.get("hidden_size", config.get("dim", config.get("n_embd")))
    if kinds:
        out["files"]["modules.json"] = modules(*kinds)
        out["source"]["modules.json"] = "derived: the chain known of the model"
        for i, kind in enumerate(kinds):
            if kind == "Pooling":
                out["files"][f"{i}_Pooling/config.json"] = pooling(width, mode)
    if limit:
        out["files"]["sentence_bert_config.json"] = {"max_seq_length": limit, "do_lower_case": False}
        out["source"]["sentence_bert_config.json"] = "derived: the length that the catalog states"
    out["files"].update(files or {})
    out["source"].update(read or {})
    for name in out["files"]:
        out["source"].setdefault(name, "derived: what such a module of the architecture has")
    out["weights"] = [
        {"file": file, "dtype": dtype, "class": cls or config["architectures"][0], **weights},
        *parts,
    ]
    return out


def dense(folder: str, out: int, inp: int, bias: bool, act: str, package: str = "") -> tuple[dict, dict]:
    """A Dense module: its configuration file, and its part of the weights."""
    config = {"in_features": inp, "out_features": out, "bias": bias, "activation_function": act}
    if package == "pylate":
        config["use_residual"] = False
    tensors = {"linear.weight": [out, inp], **({"linear.bias": [out]} if bias else {})}
    return (
        {f"{folder}/config.json": config},
        {"file": f"{folder}/model.safetensors", "dtype": "F32", "tensors": tensors},
    )


IDENTITY = "torch.nn.modules.linear.Identity"
IDS = {"embeddings.position_ids": [1, 512]}  # int64
NORMAL = ("Transformer", "Pooling", "Normalize")
PLAIN = ("Transformer", "Pooling")
SPLADE = (
    "MLMTransformer@sentence_transformers.sparse_encoder.models",
    "SpladePooling@sentence_transformers.sparse_encoder.models",
)
LABEL = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
