"""Qwen2, Qwen3 and Gemma."""

from rows import IDENTITY, NORMAL, PLAIN, copy, dense, modules, qwen2, qwen3, row

# Qwen's ChatML: a message for the query, one for the document, and the beginning of an answer.
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>' + '\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}"
)
ZERANK = "read, the keys that count: huggingface.co/zeroentropy/zerank-2"


def qwens() -> list[dict]:
    last = dict(kinds=NORMAL, mode="last")
    bare = dict(strip="model.", without="lm_head.")  # saved without the head and its prefix
    qwen2_code = {
        "auto_map": {
            "AutoModel": "modeling_qwen.Qwen2Model",
            "AutoModelForCausalLM": "modeling_qwen.Qwen2ForCausalLM",
            "AutoModelForSequenceClassification": "modeling_qwen.Qwen2ForSequenceClassification",
        },
        "is_causal": False,
    }
    width = dense("2_Dense_1024", 1024, 1536, True, IDENTITY)
    chain = {
        **width[0],
        "modules.json": [
            *modules("Transformer", "Pooling"),
            {"idx": 2, "name": "2", "path": "2_Dense_1024", "type": "sentence_transformers.models.Dense"},
        ],
    }
    score = {
        "1_LogitScore/config.json": {
            "true_token_id": 9454,
            "false_token_id": None,
            "module_input_name": "causal_logits",
        },
        "chat_template.jinja": TEMPLATE,
        "sentence_bert_config.json": {
            "transformer_task": "text-generation",
            "modality_config": {
                "text": {"method": "forward", "method_output_name": "logits"},
                "message": {"method": "forward", "method_output_name": "logits", "format": "flat"},
            },
        },
        "config_sentence_transformers.json": {
            "activation_fn": IDENTITY,
            "model_type": "CrossEncoder",
            "prompts": {},
            "default_prompt_name": None,
        },
        "modules.json": [
            {
                "idx": 0,
                "name": "0",
                "path": "",
                "type": "sentence_transformers.base.modules.transformer.Transformer",
            },
            {
                "idx": 1,
                "name": "1",
                "path": "1_LogitScore",
                "type": "sentence_transformers.cross_encoder.modules.logit_score.LogitScore",
            },
        ],
    }
    return [
        row("Qwen/Qwen3-Embedding-0.6B", qwen3(1024, 28, 16, 3072, 151669, 32768), "BF16", **bare, **last),
        row(
            "Qwen/Qwen3-Embedding-4B",
            qwen3(2560, 36, 32, 9728, 151665, 40960),
            "BF16",
            shards=2,
            **bare,
            **last,
        ),
        row(
            "Qwen/Qwen3-Embedding-8B",
            qwen3(4096, 36, 32, 12288, 151665, 40960, tie=False),
            "BF16",
            shards=4,
            **bare,
            **last,
        ),
        row("Qwen/Qwen3-Reranker-0.6B", qwen3(1024, 28, 16, 3072, 151669, 40960), "BF16"),
        row("Qwen/Qwen3-Reranker-4B", qwen3(2560, 36, 32, 9728, 151669, 40960), "BF16", shards=2),
        row("tencent/R3-embedding-0.6b", qwen3(1024, 28, 16, 3072, 151669, 32768), "BF16", **bare, **last),
        row("tencent/R3-rerank-0.6b", qwen3(1024, 28, 16, 3072, 151669, 40960), "BF16"),
        row(
            "zeroentropy/zerank-2-reranker",
            qwen3(2560, 36, 32, 9728, 151936, 40960),
            "BF16",
            shards=2,
            files=score,
            names_from="derived: the names of transformers 5.23's class and the configuration's sizes; "
            "their number of values is that of the checkpoint's index in huggingface.co/zeroentropy/zerank-2",
            read={
                "1_LogitScore/config.json": ZERANK + ", commit d3fb3320",
                "modules.json": ZERANK + ", refs/pr/8",
            },
        ),
        row(
            "Alibaba-NLP/gte-Qwen2-1.5B-instruct",
            qwen2(1536, 28, 12, 2, 8960, 151646, 131072, **qwen2_code),
            "F32",
            shards=2,
            **bare,
            **last,
        ),
        row(
            "Alibaba-NLP/gte-Qwen2-7B-instruct",
            qwen2(3584, 28, 28, 4, 18944, 151646, 131072, **qwen2_code),
            "F32",
            shards=7,
            **bare,
            **last,
        ),
        row(
            "NovaSearch/stella_en_1.5B_v5",
            qwen2(1536, 28, 12, 2, 8960, 151646, 131072, **qwen2_code),
            "F32",
            kinds=PLAIN,
            mode="mean",
            files=chain,
            parts=[width[1]],
            limit=512,
            **bare,
        ),
        row(
            "mixedbread-ai/mxbai-rerank-base-v2", qwen2(896, 24, 14, 2, 4864, 151936, 32768, tie=True), "BF16"
        ),
        row(
            "mixedbread-ai/mxbai-rerank-large-v2",
            qwen2(1536, 28, 12, 2, 8960, 151936, 131072, tie=True),
            "BF16",
        ),
    ]


def gemma() -> dict:
    config = {
        "architectures": ["Gemma3TextModel"],
        "model_type": "gemma3_text",
        "_sliding_window_pattern": 6,
        "attention_bias": False,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 768,
        "intermediate_size": 1152,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 4,
        "max_position_embeddings": 2048,
        "num_attention_heads": 3,
        "num_hidden_layers": 24,
        "num_key_value_heads": 1,
        "pad_token_id": 0,
        "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-6,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": 512,
        "use_bidirectional_attention": True,
        "vocab_size": 262144,
    }
    up, down = dense("2_Dense", 3072, 768, False, IDENTITY), dense("3_Dense", 768, 3072, False, IDENTITY)
    return row(
        "google/embeddinggemma-300m",
        config,
        "F32",
        kinds=("Transformer", "Pooling", "Dense", "Dense", "Normalize"),
        mode="mean",
        files={**up[0], **down[0]},
        parts=[up[1], down[1]],
        limit=2048,
        # transformers 4.57 saves the window halved, as it keeps it in memory
        config_from=copy("sarashahine/eschool-chatbot-main", "embeddinggemma-300m/config.json")
        + "; but sliding_window, which that copy has halved",
    )
