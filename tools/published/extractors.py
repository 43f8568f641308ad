"""GLiNER and GLiClass: an encoder and a head, by the classes of the packages that save them.

A GLiNER model has gliner_config.json in place of config.json. Its first releases name the backbone alone
(model_name); later ones repeat the backbone's configuration (encoder_config), as GLiClass does.
"""

import torch
from rows import bert, modernbert

CARD = "derived: the backbone and the sizes that the model card states, in the package's form"
SIZE = (
    "derived: the backbone and the head whose number of values is that of the published files; "
    "the card does not name them"
)
GLINER = "derived: the names of gliner 0.2.29's class and the configuration's sizes"
GLICLASS = "derived: the names of gliclass 0.1.21's class and the configuration's sizes"
TYPE = "derived: the element type that the size of the published file has"


def again(repo: str, path: str) -> str:
    """The source of a configuration whose sizes stand in a copy that the package saved again."""
    return f"read, the keys that count: a copy in github.com/{repo}, {path}"


# columns, blocks, heads, columns inside an MLP
DEBERTAS = {
    "small": (768, 6, 12, 3072),
    "base": (768, 12, 12, 3072),
    "large": (1024, 24, 16, 4096),
}
ETTINS = {
    "32m": (384, 10, 6, 576),
    "68m": (512, 19, 8, 768),
    "150m": (768, 22, 12, 1152),
    "400m": (1024, 28, 16, 2624),
}


def deberta(size: str, vocab: int) -> dict:
    width, blocks, heads, inner = DEBERTAS[size]
    return {
        "model_type": "deberta-v2",
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": width,
        "intermediate_size": inner,
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
    }


def ettin(size: str, vocab: int) -> dict:
    """Ettin has ModernBERT's form with one base for all blocks."""
    config = modernbert(
        *ETTINS[size], vocab=vocab, local_rope_theta=160000.0, max_position_embeddings=7999
    )
    return encoder(config)


def mmbert(vocab: int) -> dict:
    return encoder(
        modernbert(384, 22, 6, 1152, vocab=vocab, local_rope_theta=160000.0, pad_token_id=0)
    )


def mt5() -> dict:
    """The configuration of mT5-XL, of which the encoder is used."""
    return {
        "model_type": "mt5",
        "d_ff": 5120,
        "d_kv": 64,
        "d_model": 2048,
        "dense_act_fn": "gelu_new",
        "feed_forward_proj": "gated-gelu",
        "hidden_size": 2048,
        "is_encoder_decoder": True,
        "is_gated_act": True,
        "layer_norm_epsilon": 1e-6,
        "num_decoder_layers": 24,
        "num_heads": 32,
        "num_layers": 24,
        "pad_token_id": 0,
        "relative_attention_max_distance": 128,
        "relative_attention_num_buckets": 32,
        "vocab_size": 250112,
    }


def encoder(config: dict) -> dict:
    return {k: v for k, v in config.items() if k != "architectures"}


ENGLISH = 128001  # tokens of DeBERTa-v3's tokenizer
MULTI = 250102  # of mDeBERTa-v3's
MODERN = 50368  # of ModernBERT's and Ettin's
MMBERT = 256000


def gliner_config(hidden: int, name: str, inner: dict | None = None, **more) -> dict:
    """gliner_config.json: with inner as the package has it since 0.2, without as it was before."""
    config = {
        "model_name": name,
        "name": "correct",
        "max_width": 12,
        "hidden_size": hidden,
        "dropout": 0.4,
        "fine_tune": True,
        "subtoken_pooling": "first",
        "span_mode": "markerV0",
        "max_types": 25,
        "max_len": 384,
    }
    if inner is not None:
        config |= {
            "class_token_index": inner["vocab_size"] - 2,
            "embed_ent_token": True,
            "encoder_config": inner,
            "ent_token": "<<ENT>>",
            "fuse_layers": False,
            "labels_encoder": None,
            "num_post_fusion_layers": 1,
            "num_rnn_layers": 1,
            "post_fusion_schema": "",
            "sep_token": "<<SEP>>",
            "vocab_size": inner["vocab_size"],
            "words_splitter_type": "whitespace",
        }
    return config | more


def gliner_tensors(config: dict, inner: dict) -> dict[str, list[int]]:
    """The tensors of the package's class for the configuration, without memory for them."""
    from gliner import GLiNER

    settings = GLiNER._config_from_dict({**config, "encoder_config": dict(inner)})
    kind = GLiNER._get_gliner_class(settings)
    typed = kind.config_class(**settings.to_dict())
    with torch.device("meta"):
        model = kind.model_class(typed)
    return {k: list(v.shape) for k, v in model.state_dict().items()}


def gliner(
    id: str,
    config: dict,
    inner: dict | None = None,
    *,
    config_from: str = CARD,
    file: str = "pytorch_model.bin",
    dtype: str = "F32",
) -> dict:
    """A row; inner is the encoder's configuration where config has none."""
    used = inner or config["encoder_config"]
    return {
        "id": id,
        "files": {"gliner_config.json": config},
        "source": {
            "gliner_config.json": config_from,
            "names": GLINER,
            "shapes": GLINER,
            "dtype": TYPE,
        },
        "weights": [{"file": file, "dtype": dtype, "tensors": lambda: gliner_tensors(config, used)}],
    }


def legacy(id: str, backbone: str, size: str, base: int, hidden: int, **more) -> dict:
    """A model of the form without encoder_config, whose tokenizer got [FLERT] and two markers."""
    source = {k: more.pop(k) for k in ("config_from", "file") if k in more}
    config = gliner_config(hidden, f"microsoft/{backbone}", **more)
    return gliner(id, config, deberta(size, base + 3), **source)


def gliners() -> list[dict]:
    small, large = "deberta-v3-small", "deberta-v3-large"
    multi = "mdeberta-v3-base"

    def v25(size: str) -> dict:
        config = gliner_config(512, f"microsoft/deberta-v3-{size}", deberta(size, ENGLISH + 3))
        return gliner(f"gliner-community/gliner_{'medium' if size == 'base' else size}-v2.5", config)

    def pii(size: str, inner: dict, name: str, **more) -> dict:
        config = gliner_config(768, name, inner, max_types=100, **{"max_len": 2048, **more})
        if size == "base":  # names its backbone alone, and says how many ids there are
            del config["encoder_config"]
        return gliner(f"knowledgator/gliner-pii-{size}-v1.0", config, inner, config_from=SIZE)

    tiny = encoder(bert(128, 2, 2, vocab=30525))
    return [
        legacy("EmergentMethods/gliner_large_news-v2.1", large, "large", ENGLISH, 512),
        gliner(
            "Ihor/gliner-biomed-large-v1.0",
            gliner_config(512, f"microsoft/{large}", deberta("large", ENGLISH + 3)),
        ),
        gliner("NeuML/gliner-bert-tiny", gliner_config(128, "google/bert_uncased_L-2_H-128_A-2", tiny)),
        v25("large"),
        v25("base"),
        v25("small"),
        pii("base", deberta("small", ENGLISH + 3), f"microsoft/{small}"),
        pii("edge", ettin("32m", MODERN + 3), "jhu-clsp/ettin-encoder-32m", span_mode="token_level"),
        pii(
            "large",
            deberta("large", ENGLISH + 3),
            f"microsoft/{large}",
            span_mode="token_level",
            max_len=768,
        ),
        pii("small", ettin("68m", MODERN + 3), "jhu-clsp/ettin-encoder-68m", span_mode="token_level"),
        legacy(
            "numind/NuNER_Zero",
            large,
            "large",
            ENGLISH,
            768,
            span_mode="marker",
            max_width=1,
            config_from=again("ner-ml-models/nuner_zero", "gliner_config.json"),
        ),
        legacy(
            "numind/NuNER_Zero-span",
            large,
            "large",
            ENGLISH,
            768,
            span_mode="marker",
            config_from="derived: NuNER Zero's configuration, with spans of 12 words",
        ),
        legacy(
            "urchade/gliner_large-v2.1",
            large,
            "large",
            ENGLISH,
            512,
            config_from=again("sarinregmi/gliner-onnx", "models/gliner_config.json"),
        ),
        legacy("urchade/gliner_medium-v2.1", "deberta-v3-base", "base", ENGLISH, 512),
        legacy("urchade/gliner_multi-v2.1", multi, "base", MULTI, 512),
        legacy("urchade/gliner_multi_pii-v1", multi, "base", MULTI, 512),
        legacy(
            "urchade/gliner_small-v2.1",
            small,
            "small",
            ENGLISH,
            512,
            config_from=again("shsolomo/myelin", "models/gliner/gliner_config.json"),
        ),
    ]


def relex() -> dict:
    """Entities and relations of one encoder: a marker <<REL>> more than GLiNER has."""
    inner = deberta("large", ENGLISH + 3)
    config = gliner_config(
        512,
        "microsoft/deberta-v3-large",
        inner,
        class_token_index=ENGLISH,
        embed_rel_token=True,
        max_len=2048,
        model_type="gliner_uni_encoder_span_relex",
        rel_token="<<REL>>",
        rel_token_index=ENGLISH + 2,
        relations_layer="dot",
        triples_layer=None,
    )
    source = (
        "derived: the backbone and the markers that the published server states; which adjacency "
        "and which scorer of pairs the model has is not known here"
    )
    return gliner("knowledgator/gliner-relex-large-v1.0", config, config_from=source)


# columns, blocks, heads
LABEL_TOWERS = {
    "sentence-transformers/all-MiniLM-L6-v2": (384, 6, 12),
    "sentence-transformers/all-MiniLM-L12-v2": (384, 12, 12),
    "BAAI/bge-small-en-v1.5": (384, 12, 12),
    "BAAI/bge-base-en-v1.5": (768, 12, 12),
}


def bi(id: str, name: str, inner: dict, labels: str, hidden: int, words: int) -> dict:
    """A tower for texts and one for labels. The LSTM is saved and never run."""
    config = gliner_config(
        hidden,
        name,
        inner,
        class_token_index=-1,
        labels_encoder=labels,
        labels_encoder_config=encoder(bert(*LABEL_TOWERS[labels])),
        max_len=words,
        model_type="gliner_bi_encoder_span",
    )
    return gliner(f"knowledgator/{id}", config)


def bis() -> list[dict]:
    ettins = "jhu-clsp/ettin-encoder-"
    modern = encoder(modernbert(768, 22, 12, 1152, vocab=MODERN))
    mini, small = "sentence-transformers/all-MiniLM-", "BAAI/bge-small-en-v1.5"
    return [
        bi("gliner-bi-edge-v2.0", ettins + "32m", ettin("32m", MODERN), mini + "L6-v2", 512, 1024),
        bi("gliner-bi-small-v2.0", ettins + "68m", ettin("68m", MODERN), mini + "L12-v2", 512, 1024),
        bi("gliner-bi-base-v2.0", ettins + "150m", ettin("150m", MODERN), small, 512, 1024),
        bi(
            "gliner-bi-large-v2.0",
            ettins + "400m",
            ettin("400m", MODERN),
            "BAAI/bge-base-en-v1.5",
            512,
            1024,
        ),
        bi("modern-gliner-bi-base-v1.0", "answerdotai/ModernBERT-base", modern, small, 768, 2048),
    ]


def gliclass_config(inner: dict, name: str, base: int, **more) -> dict:
    """config.json, with the markers behind the base tokens of the tokenizer."""
    return {
        "architectures": ["GLiClassModel"],
        "model_type": "GLiClass",
        "architecture_type": "uni-encoder",
        "class_token_index": base,
        "text_token_index": base + 1,
        "example_token_index": base + 2,
        "class_token_pooling": "first",
        "embed_class_token": True,
        "encoder_config": inner,
        "encoder_layer_id": -1,
        "encoder_model_name": name,
        "extract_text_features": False,
        "hidden_size": inner["hidden_size"],
        "logit_scale_init_value": 2.6592,
        "max_num_classes": 25,
        "normalize_features": False,
        "pooling_strategy": "first",
        "projector_hidden_act": "gelu",
        "prompt_first": True,
        "scorer_type": "simple",
        "squeeze_layers": False,
        "use_lstm": False,
        "use_segment_embeddings": False,
        "vocab_size": inner["vocab_size"],
        **more,
    }


def gliclass_tensors(config: dict) -> dict[str, list[int]]:
    from gliclass import GLiClassModel, GLiClassModelConfig

    kept = {k: v for k, v in config.items() if k not in ("architectures", "model_type")}
    kept["encoder_config"] = dict(kept["encoder_config"])
    with torch.device("meta"):
        model = GLiClassModel(GLiClassModelConfig(**kept))
    return {k: list(v.shape) for k, v in model.state_dict().items()}


def gliclass(id: str, backbone: tuple[dict, str, int], config_from: str = CARD, **more) -> dict:
    config = gliclass_config(*backbone, **more)
    return {
        "id": f"knowledgator/{id}",
        "files": {"config.json": config},
        "source": {
            "config.json": config_from,
            "names": GLICLASS,
            "shapes": GLICLASS,
            "dtype": TYPE,
        },
        "weights": [
            {"file": "model.safetensors", "dtype": "F32", "tensors": lambda: gliclass_tensors(config)}
        ],
    }


LAYOUT = (
    "derived: the backbone that the model card states, and the head that the tests of the published "
    "server list for it"
)


def gliclasses() -> list[dict]:
    def english(size: str, markers: int = 3) -> tuple[dict, str, int]:
        return deberta(size, ENGLISH + markers), f"microsoft/deberta-v3-{size}", ENGLISH

    def modern(size: str, *sizes: int) -> tuple[dict, str, int]:
        inner = encoder(modernbert(*sizes, vocab=MODERN + 3))
        return inner, f"answerdotai/ModernBERT-{size}", MODERN

    edge = ettin("32m", MODERN + 3), "jhu-clsp/ettin-encoder-32m", MODERN
    many = mmbert(MMBERT + 3), "jhu-clsp/mmBERT-small", MMBERT
    multi = deberta("base", MULTI + 3), "microsoft/mdeberta-v3-base", MULTI

    mlp = {"scorer_type": "mlp"}
    instruct = {
        "scorer_type": "mlp",
        "class_token_pooling": "average",
        "use_segment_embeddings": True,
        "config_from": LAYOUT,
    }
    cross = {
        "scorer_type": "cross-attn",
        "class_token_pooling": "average",
        "pooling_strategy": "pass",
        "extract_text_features": True,
        "scorer_num_heads": 16,
        "scorer_mlp_hidden_size": 1024,
        "config_from": LAYOUT,
    }
    dot = {"prompt_first": False, "config_from": LAYOUT}
    old = {"squeeze_layers": True}
    return [
        gliclass("gliclass-base-v1.0", english("base", 2)),
        gliclass("gliclass-base-v1.0-lw", english("base", 2), **old),
        gliclass("gliclass-base-v3.0", english("base"), **mlp),
        gliclass("gliclass-edge-v3.0", edge, LAYOUT, **mlp),
        gliclass("gliclass-instruct-base-v1.0", english("base"), **instruct),
        gliclass("gliclass-instruct-edge-v1.0", edge, **instruct),
        gliclass("gliclass-instruct-large-v1.0", english("large"), **instruct),
        gliclass("gliclass-large-v1.0", english("large", 2)),
        gliclass("gliclass-large-v1.0-lw", english("large", 2), **old),
        gliclass("gliclass-large-v3.0", english("large"), **mlp),
        gliclass("gliclass-modern-base-v3.0", modern("base", 768, 22, 12, 1152), **dot),
        gliclass("gliclass-modern-large-v3.0", modern("large", 1024, 28, 16, 2624), **dot),
        gliclass("gliclass-multilang-edge", many, **cross),
        gliclass("gliclass-multilang-mini", multi, **cross),
        gliclass("gliclass-multilang-ultra", (mt5(), "google/mt5-xl", 250100), **cross),
        gliclass("gliclass-small-v1.0", english("small", 2)),
        gliclass("opir-edge-multilang-v1.0", many, **cross),
        gliclass("opir-edge-v1.0", edge, LAYOUT, **mlp),
        gliclass("opir-multitask-large-v1.0", english("large"), use_segment_embeddings=True, **cross),
        gliclass("opir-multitask-multilang-v1.0", multi, use_segment_embeddings=True),
    ]
