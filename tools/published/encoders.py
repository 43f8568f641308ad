"""Encoders that transformers has under other names than their files: GTE, Jina, Nomic."""

from rows import CODE, IDENTITY, LABEL, NORMAL, PLAIN, SPLADE, bert, dense, modules, row, xlmr


def gte(
    id: str,
    width: int,
    blocks: int,
    heads: int,
    vocab: int,
    types: int,
    dtype: str,
    kind="new",
    head=None,
    prefix="",
    positions=8192,
    scaling=None,
    code=None,
    theta=None,
    **more,
) -> dict:
    """A checkpoint by the names of Alibaba-NLP/new-impl."""
    config = {
        "architectures": ["NewModel"],
        "model_type": kind,
        "auto_map": code
        or {
            "AutoConfig": "Alibaba-NLP/new-impl--configuration.NewConfig",
            "AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel",
            "AutoModelForMaskedLM": "Alibaba-NLP/new-impl--modeling.NewForMaskedLM",
        },
        "hidden_act": "gelu",
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "layer_norm_eps": 1e-12,
        "layer_norm_type": "layer_norm",
        "max_position_embeddings": positions,
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "pack_qkv": True,
        "pad_token_id": 0,
        "position_embedding_type": "rope",
        "rope_scaling": scaling,
        "rope_theta": theta or 500000,
        "type_vocab_size": types,
        "unpad_inputs": False,
        "use_memory_efficient_attention": False,
        "logn_attention_clip1": False,
        "logn_attention_scale": False,
        "vocab_size": vocab,
    }
    t = {
        "embeddings.word_embeddings.weight": [vocab, width],
        "embeddings.LayerNorm.weight": [width],
        "embeddings.LayerNorm.bias": [width],
    }
    if types:
        t["embeddings.token_type_embeddings.weight"] = [types, width]
    for i in range(blocks):
        at = f"encoder.layer.{i}."
        t.update(
            {
                at + "attention.qkv_proj.weight": [3 * width, width],
                at + "attention.qkv_proj.bias": [3 * width],
                at + "attention.o_proj.weight": [width, width],
                at + "attention.o_proj.bias": [width],
                at + "attn_ln.weight": [width],
                at + "attn_ln.bias": [width],
                at + "mlp.up_gate_proj.weight": [8 * width, width],
                at + "mlp.down_proj.weight": [width, 4 * width],
                at + "mlp.down_proj.bias": [width],
                at + "mlp_ln.weight": [width],
                at + "mlp_ln.bias": [width],
            }
        )
    return row(id, config, dtype, names_from=CODE, tensors=t, prefix=prefix, extra=head or {}, **more)


def others() -> list[dict]:
    stella = dense("2_Dense_1024", 1024, 1024, True, IDENTITY)
    chain = {
        **stella[0],
        "modules.json": [
            *modules("Transformer", "Pooling"),
            {"idx": 2, "name": "2", "path": "2_Dense_1024", "type": "sentence_transformers.models.Dense"},
        ],
    }
    arctic = {
        "AutoConfig": "configuration_hf_alibaba_nlp_gte.GteConfig",
        "AutoModel": "modeling_hf_alibaba_nlp_gte.GteModel",
    }
    mlm = {
        "lm_head.dense.weight": [768, 768],
        "lm_head.dense.bias": [768],
        "lm_head.norm.weight": [768],
        "lm_head.norm.bias": [768],
        "lm_head.decoder.bias": [30522],
    }
    ntk = {"type": "ntk", "factor": 8.0}
    return [
        gte(
            "Alibaba-NLP/gte-multilingual-base",
            768,
            12,
            12,
            250048,
            1,
            "F16",
            prefix="new.",
            scaling=ntk,
            theta=20000,
            head={"classifier.weight": [1, 768], "classifier.bias": [1]},
            kinds=NORMAL,
            mode="cls",
        ),
        gte(
            "Snowflake/snowflake-arctic-embed-m-v2.0",
            768,
            12,
            12,
            250048,
            1,
            "F32",
            "gte",
            scaling=ntk,
            theta=20000,
            code=arctic,
            kinds=NORMAL,
            mode="cls",
        ),
        gte(
            "NovaSearch/stella_en_400M_v5",
            1024,
            24,
            16,
            30528,
            2,
            "F32",
            scaling={"type": "ntk", "factor": 2.0},
            theta=160000,
            prefix="new.",
            kinds=PLAIN,
            mode="mean",
            files=chain,
            parts=[stella[1]],
            limit=512,
        ),
        gte(
            "opensearch-project/opensearch-neural-sparse-encoding-doc-v3-gte",
            768,
            12,
            12,
            30522,
            0,
            "F32",
            prefix="new.",
            head=mlm,
            kinds=SPLADE,
            files={
                "1_SpladePooling/config.json": {
                    "pooling_strategy": "max",
                    "activation_function": "log1p_relu",
                }
            },
        ),
        *jina_berts(),
        *jina_xlmr(),
        nomic(),
    ]


def jina_berts() -> list[dict]:
    def one(name: str, width: int, blocks: int, heads: int, vocab: int, code: bool = False) -> dict:
        repo = "jina-bert-v2-qk-post-norm" if code else "jina-bert-implementation"
        config = bert(
            width,
            blocks,
            heads,
            vocab,
            "JinaBertModel",
            attn_implementation="torch",
            emb_pooler="mean",
            feed_forward_type="geglu",
            model_max_length=8192,
            auto_map={
                "AutoConfig": f"jinaai/{repo}--configuration_bert.JinaBertConfig",
                "AutoModel": f"jinaai/{repo}--modeling_bert.JinaBertModel",
                "AutoModelForMaskedLM": f"jinaai/{repo}--modeling_bert.JinaBertForMaskedLM",
            },
        )
        config.update(position_embedding_type="alibi", max_position_embeddings=8192)
        if code:
            config["intermediate_size"] = 4 * width
        inner = 4 * width
        t = {
            "embeddings.word_embeddings.weight": [vocab, width],
            "embeddings.token_type_embeddings.weight": [2, width],
            "embeddings.LayerNorm.weight": [width],
            "embeddings.LayerNorm.bias": [width],
            "pooler.dense.weight": [width, width],
            "pooler.dense.bias": [width],
        }
        for i in range(blocks):
            at = f"encoder.layer.{i}."
            for x in (
                "attention.self.query",
                "attention.self.key",
                "attention.self.value",
                "attention.output.dense",
            ):
                t[f"{at}{x}.weight"], t[f"{at}{x}.bias"] = [width, width], [width]
            norms = ["attention.output.LayerNorm", "mlp.layernorm"]
            if code:
                norms = [
                    "attention.output.LayerNorm",
                    "attention.self.layer_norm_q",
                    "attention.self.layer_norm_k",
                    "layer_norm_1",
                    "layer_norm_2",
                ]
                t[at + "mlp.up_gated_layer.weight"] = [2 * inner, width]
                t[at + "mlp.down_layer.weight"], t[at + "mlp.down_layer.bias"] = [width, inner], [width]
            else:
                t[at + "mlp.gated_layers.weight"] = [2 * inner, width]
                t[at + "mlp.wo.weight"], t[at + "mlp.wo.bias"] = [width, inner], [width]
            for x in norms:
                t[f"{at}{x}.weight"], t[f"{at}{x}.bias"] = [width], [width]
        return row(
            "jinaai/jina-embeddings-v2-" + name,
            config,
            "F16",
            kinds=PLAIN,
            mode="mean",
            limit=8192,
            tensors=t,
            names_from="derived: the names in the model's published code",
        )

    return [
        one("base-en", 768, 12, 12, 30528),
        one("small-en", 512, 4, 8, 30528),
        one("base-de", 768, 12, 12, 61056),
        one("base-es", 768, 12, 12, 61056),
        one("base-zh", 768, 12, 12, 61056),
        one("base-code", 768, 12, 12, 61056, True),
    ]


def jina_xlmr() -> list[dict]:
    def one(
        name: str,
        width: int,
        blocks: int,
        heads: int,
        cls: str,
        head: dict,
        kind: str,
        positions: int,
        prefix: str,
        **more,
    ) -> dict:
        flash = "jinaai/xlm-roberta-flash-implementation--"
        config = xlmr(width, blocks, heads, cls, positions, vocab=more.pop("vocab", 250002))
        config["auto_map"] = {
            "AutoConfig": flash + "configuration_xlm_roberta.XLMRobertaFlashConfig",
            "AutoModel": flash + "modeling_xlm_roberta.XLMRobertaModel",
            "AutoModelForSequenceClassification": flash
            + "modeling_xlm_roberta.XLMRobertaForSequenceClassification",
        }
        config.update(position_embedding_type=kind, **more.pop("keys", {}))
        t = {
            "embeddings.word_embeddings.weight": [config["vocab_size"], width],
            "embeddings.token_type_embeddings.weight": [1, width],
            "emb_ln.weight": [width],
            "emb_ln.bias": [width],
        }
        if kind == "absolute":
            t["embeddings.position_embeddings.weight"] = [positions, width]
        for i in range(blocks):
            at = f"encoder.layers.{i}."
            t.update(
                {
                    at + "mixer.Wqkv.weight": [3 * width, width],
                    at + "mixer.Wqkv.bias": [3 * width],
                    at + "mixer.out_proj.weight": [width, width],
                    at + "mixer.out_proj.bias": [width],
                    at + "mlp.fc1.weight": [4 * width, width],
                    at + "mlp.fc1.bias": [4 * width],
                    at + "mlp.fc2.weight": [width, 4 * width],
                    at + "mlp.fc2.bias": [width],
                }
            )
            for x in ("norm1", "norm2"):
                t[f"{at}{x}.weight"], t[f"{at}{x}.bias"] = [width], [width]
        return row(
            "jinaai/" + name, config, "BF16", names_from=CODE, tensors=t, prefix=prefix, extra=head, **more
        )

    score = {
        "classifier.dense.weight": [768, 768],
        "classifier.dense.bias": [768],
        "classifier.out_proj.weight": [1, 768],
        "classifier.out_proj.bias": [1],
    }
    return [
        one(
            "jina-reranker-v2-base-multilingual",
            768,
            12,
            12,
            "XLMRobertaForSequenceClassification",
            score,
            "absolute",
            1026,
            "roberta.",
            keys=LABEL,
        ),
        one(
            "jina-colbert-v2",
            1024,
            24,
            16,
            "HF_ColBERT",
            {"linear.weight": [128, 1024]},
            "rotary",
            8194,
            "roberta.",
            vocab=250005,
            keys={"rotary_emb_base": 20000.0, "use_flash_attn": True},
        ),
    ]


def nomic() -> dict:
    width, inner = 768, 3072
    t = {
        "embeddings.word_embeddings.weight": [30528, width],
        "embeddings.token_type_embeddings.weight": [2, width],
        "emb_ln.weight": [width],
        "emb_ln.bias": [width],
    }
    for i in range(12):
        at = f"encoder.layers.{i}."
        t.update(
            {
                at + "attn.Wqkv.weight": [3 * width, width],
                at + "attn.out_proj.weight": [width, width],
                at + "mlp.fc11.weight": [inner, width],
                at + "mlp.fc12.weight": [inner, width],
                at + "mlp.fc2.weight": [width, inner],
            }
        )
        for x in ("norm1", "norm2"):
            t[f"{at}{x}.weight"], t[f"{at}{x}.bias"] = [width], [width]
    code = "nomic-ai/nomic-bert-2048--"
    config = {
        "architectures": ["NomicBertModel"],
        "model_type": "nomic_bert",
        "activation_function": "swiglu",
        "auto_map": {
            "AutoConfig": code + "configuration_hf_nomic_bert.NomicBertConfig",
            "AutoModel": code + "modeling_hf_nomic_bert.NomicBertModel",
        },
        "causal": False,
        "layer_norm_epsilon": 1e-12,
        "max_trained_positions": 2048,
        "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
        "n_embd": width,
        "n_head": 12,
        "n_inner": inner,
        "n_layer": 12,
        "n_positions": 8192,
        "parallel_block": False,
        "prenorm": False,
        "qkv_proj_bias": False,
        "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "rotary_scaling_factor": None,
        "type_vocab_size": 2,
        "use_rms_norm": False,
        "vocab_size": 30528,
    }
    return row(
        "nomic-ai/nomic-embed-text-v1.5",
        config,
        "F32",
        kinds=PLAIN,
        mode="mean",
        limit=8192,
        tensors=t,
        names_from=CODE,
    )
