"""The shapes that make bench-arch races. An architecture more is a row more.

A row is a dictionary:

    config   the class of transformers and its keys, in the published sizes
    source   the repository whose sizes they are
    pooling  mean, cls or last; or what a reranker does: pair (a classifier over query and document)
             or yesno (two words of a language model's head at the last token)
    decoder  whether a token sees only those before it
    window   (n, w): all blocks but every n-th see w tokens to each side; None: none do
    limit    tokens of the longest text
    sharpness  factor of the queries' and keys' weights, where archmodels.py's own leaves attention
             uniform: plain post-norm blocks mix tokens until they are alike
    special  ids in front of a text, behind it, and of padding; pairs have "behind" twice between them
    share    what was predicted, before the first run, of the share of the machine's FMAs that our fp32
             reaches on passages
    ratio    what was predicted of our fp32 to transformers' fp32, on passages and on mixed lengths
    note     where the row differs from the published model

The predictions are kept as they were made: 2026-11-24, before any of these shapes was run; those of bert-base
and xlm-r-large on 2026-11-30, before these two were, from what xlm-r-base had come to.
"""

QWEN3 = {"vocab_size": 151669, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
         "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-6,
         "max_position_embeddings": 32768, "tie_word_embeddings": True, "use_sliding_window": False,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1000000}}
XLMR = {"vocab_size": 250002, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "max_position_embeddings": 514, "type_vocab_size": 1,
        "layer_norm_eps": 1e-5, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
MODERNBERT = {"vocab_size": 50368, "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22,
              "num_attention_heads": 12, "max_position_embeddings": 8192, "local_attention": 128}

ROWS = {
    "bert-base": {
        "config": ("BertConfig", {"vocab_size": 30522, "hidden_size": 768, "intermediate_size": 3072,
                                  "num_hidden_layers": 12, "num_attention_heads": 12,
                                  "max_position_embeddings": 512, "type_vocab_size": 2}),
        "source": "BAAI/bge-base-en-v1.5", "pooling": "cls", "decoder": False, "window": None, "limit": 512,
        "special": ([101], [102], 0), "sharpness": 3,
        "share": 0.88, "ratio": {"passage": 2.5, "mixed": 2.6},
    },
    "xlm-r-large": {
        "config": ("XLMRobertaConfig", XLMR | {"hidden_size": 1024, "intermediate_size": 4096,
                                               "num_hidden_layers": 24, "num_attention_heads": 16}),
        "source": "intfloat/multilingual-e5-large", "pooling": "mean", "decoder": False, "window": None,
        "limit": 512, "special": ([0], [2], 1), "sharpness": 3,
        "share": 0.90, "ratio": {"passage": 2.4, "mixed": 2.6},
    },
    "xlm-r-base": {
        "config": ("XLMRobertaConfig", XLMR), "source": "intfloat/multilingual-e5-base", "pooling": "mean",
        "decoder": False, "window": None, "limit": 512, "special": ([0], [2], 1), "sharpness": 3,
        "share": 0.75, "ratio": {"passage": 1.3, "mixed": 1.4},
    },
    "modernbert-base": {
        "config": ("ModernBertConfig", MODERNBERT), "source": "nomic-ai/modernbert-embed-base",
        "pooling": "mean", "decoder": False, "window": (3, 64), "limit": 8192,
        "special": ([50281], [50282], 50283),
        "share": 0.68, "ratio": {"passage": 1.4, "mixed": 1.6},
    },
    "gte-base-new": {
        "config": ("GteConfig", {"vocab_size": 250048, "hidden_size": 768, "intermediate_size": 3072,
                                 "num_hidden_layers": 12, "num_attention_heads": 12,
                                 "max_position_embeddings": 8192, "type_vocab_size": 1, "pad_token_id": 1}),
        "source": "Alibaba-NLP/gte-multilingual-base", "pooling": "cls", "decoder": False, "window": None,
        "limit": 8192, "special": ([0], [2], 1),
        "share": 0.72, "ratio": {"passage": 1.3, "mixed": 1.5},
        "note": "without the NTK factor, which changes angles and no time",
    },
    "mpnet-base": {
        "config": ("MPNetConfig", {"vocab_size": 30527, "hidden_size": 768, "intermediate_size": 3072,
                                   "num_hidden_layers": 12, "num_attention_heads": 12,
                                   "max_position_embeddings": 514, "layer_norm_eps": 1e-5}),
        "source": "sentence-transformers/all-mpnet-base-v2", "pooling": "mean", "decoder": False,
        "window": None, "limit": 512, "special": ([0], [2], 1),
        "share": 0.73, "ratio": {"passage": 1.4, "mixed": 1.6},
    },
    "nomic-v1.5": {
        "config": ("NomicBertConfig", {"vocab_size": 30528, "hidden_size": 768, "intermediate_size": 3072,
                                       "num_hidden_layers": 12, "num_attention_heads": 12,
                                       "max_position_embeddings": 2048, "type_vocab_size": 2,
                                       "rope_parameters": {"rope_type": "default", "rope_theta": 1000}}),
        "source": "nomic-ai/nomic-embed-text-v1.5", "pooling": "mean", "decoder": False, "window": None,
        "limit": 2048, "special": ([101], [102], 0),
        "share": 0.72, "ratio": {"passage": 1.3, "mixed": 1.5},
    },
    "qwen3-embedding-0.6b": {
        "config": ("Qwen3Config", QWEN3), "source": "Qwen/Qwen3-Embedding-0.6B", "pooling": "last",
        "decoder": True, "window": None, "limit": 8192, "special": ([], [151643], 151643),
        "share": 0.70, "ratio": {"passage": 1.3, "mixed": 1.5},
        "note": "texts end at 8,192 tokens, where the model takes 32,768",
    },
    "qwen3-reranker-0.6b": {
        "config": ("Qwen3Config", QWEN3), "source": "Qwen/Qwen3-Reranker-0.6B", "pooling": "yesno",
        "decoder": True, "window": None, "limit": 8192, "special": ([], [], 151643),
        "share": 0.70, "ratio": {"rerank": 1.5},
    },
    "embeddinggemma-300m": {
        "config": ("Gemma3TextConfig", {"vocab_size": 262144, "hidden_size": 768, "intermediate_size": 1152,
                                        "num_hidden_layers": 24, "num_attention_heads": 3,
                                        "num_key_value_heads": 1, "head_dim": 256,
                                        "query_pre_attn_scalar": 256, "sliding_window": 512,
                                        "max_position_embeddings": 2048,
                                        "use_bidirectional_attention": True}),
        "source": "google/embeddinggemma-300m", "pooling": "mean", "decoder": False, "window": (6, 256),
        "limit": 2048, "special": ([2], [1], 0),
        "share": 0.60, "ratio": {"passage": 1.3, "mixed": 1.4},
        "note": "without its two Dense modules, which see one row a text",
    },
    "qwen2-7b-block": {
        "config": ("Qwen2Config", {"vocab_size": 4096, "hidden_size": 3584, "intermediate_size": 18944,
                                   "num_hidden_layers": 1, "num_attention_heads": 28,
                                   "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
                                   "max_position_embeddings": 32768,
                                   "use_sliding_window": False, "tie_word_embeddings": False,
                                   "rope_parameters": {"rope_type": "default", "rope_theta": 1000000}}),
        "source": "Qwen/Qwen2-7B", "pooling": "last", "decoder": True, "window": None, "limit": 8192,
        "special": ([], [4095], 4095),
        "share": 0.80, "ratio": {"passage": 1.2, "mixed": 1.3},
        "note": "one block of 28, and 4,096 words of 152,064: whole, it takes 28 GB in fp32",
    },
    "xlm-r-base-reranker": {
        "config": ("XLMRobertaConfig", XLMR | {"num_labels": 1}), "source": "BAAI/bge-reranker-base",
        "pooling": "pair", "decoder": False, "window": None, "limit": 512, "special": ([0], [2], 1),
        "sharpness": 3, "share": 0.75, "ratio": {"rerank": 1.3},
    },
    "modernbert-base-reranker": {
        "config": ("ModernBertConfig", MODERNBERT | {"num_labels": 1, "classifier_pooling": "mean"}),
        "source": "Alibaba-NLP/gte-reranker-modernbert-base", "pooling": "pair", "decoder": False,
        "window": (3, 64), "limit": 8192, "special": ([50281], [50282], 50283),
        "share": 0.68, "ratio": {"rerank": 1.5},
    },
}
RERANKERS = ("pair", "yesno")


def size(row, key):
    return row["config"][1][key]


def is_reranker(row):
    return row["pooling"] in RERANKERS


def attention_flop(row, layers, length):
    """FLOP of scores and of their sums over values, of one text, in so many blocks: pairs that the
    masks leave alone."""
    heads = size(row, "num_attention_heads")
    width = heads * row["config"][1].get("head_dim", size(row, "hidden_size") // heads)
    every, half = row["window"] or (1, 0)
    # transformers puts ModernBERT's blocks that see all at 0, n, 2n …, and Gemma's at n-1, 2n-1 …
    wide = layers // every if row["config"][0].startswith("Gemma") else -(-layers // every)
    near = length * length - max(0, length - half - 1) * max(0, length - half)
    pairs = wide * length * length + (layers - wide) * near
    return 4 * width * (pairs / 2 if row["decoder"] else pairs)
