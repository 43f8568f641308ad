"""What the parts of the table of test_same.py share: models, texts, native routes."""
from conftest import JUDGE, MODEL, TINY

KEY = "Bearer marker-key-5bd2"
MARKER = "markertext5bd2"
MSGPACK = {"Content_Type": "application/msgpack"}
BOTH = {"Content_Type": "application/msgpack", "Accept": "application/msgpack"}
WORDS = ("the cat sat on a mat and saw the tallest mountain of the world where zebra and whale live in naïve "
         "cafés 東京 🙂").split()
SDKS = [None, "0.3.4", "0.6.30", "0.10.1", "unknown", "0.7.3", "1", "x" * 80, "99999999.1"]
# native routes: path, a body with one text, the name of the list
NATIVE = {
    "dense": ("/v1/encode/" + TINY, {}),
    "minilm": ("/v1/encode/" + MODEL, {}),
    "sparse": ("/v1/encode/splade", {
        "params": {
            "output_types": ["sparse"]
        }
    }),
    "tokens": ("/v1/encode/colbert", {
        "params": {
            "output_types": ["multivector"]
        }
    }),
    "folded": ("/v1/encode/colbert:muvera", {}),
    "score": ("/v1/score/" + JUDGE, {
        "query": {
            "text": "how tall is it"
        }
    }),
    "score of vectors": ("/v1/score/colbert", {
        "query": {
            "text": "how tall is it"
        }
    }),
    "moods": ("/v1/extract/moods", {}),
    "tags": ("/v1/extract/tags", {}),
    "entails": ("/v1/extract/entails", {
        "params": {
            "labels": ["animals", "sea"]
        }
    }),
    "lora": ("/v1/encode/lora", {}),
}
GUESTS = [
    "/v1/embeddings", "/embeddings", "/v1/rerank", "/v2/rerank", "/embed", "/embed_all", "/embed_sparse",
    "/rerank", "/predict", "/similarity", "/tokenize", "/decode", "/"
]


def text(i, n=None):
    """The i-th text of the table, of n words."""
    return " ".join(WORDS[(i * 7 + j * (1 + i % 5)) % len(WORDS)] for j in range(n or 2 + i % 9))


def texts(n):
    return [text(i) for i in range(n)]


def items(n):
    return [{"text": t} for t in texts(n)]


def with_items(of, list_):
    path, rest = NATIVE[of]
    return path, rest | {"items": list_}
