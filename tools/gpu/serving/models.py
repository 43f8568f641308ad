"""Random models and texts, made on the spot: no network is needed and every host makes the same
ones.

A model is a BERT from transformers with weights of a fixed seed, saved as sentence-transformers
saves one: config.json, model.safetensors (fp32), tokenizer.json, modules.json. There is no
Normalize module: norms are compared, too. Every word of the vocabulary is one token, so a text of S
tokens is S - 2 words.
"""

import json
import math
import random

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
POOLING = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}


def words(count, seed=5):
    """Different random words, two to nine letters."""
    dice, found = random.Random(seed), {}
    while len(found) < count:
        found["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(2, 9)))] = None
    return list(found)


def text(dice, vocabulary, tokens):
    """A text of exactly so many tokens, [CLS] and [SEP] included; at least 2."""
    return " ".join(dice.choices(vocabulary, k=tokens - 2))


def tokenizer(shape):
    """A WordPiece tokenizer as BERT has it, over random words."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = words(shape.vocabulary - len(SPECIAL))
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(SPECIAL + vocabulary)}, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(True, True, None, True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=t,
        model_max_length=shape.positions,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def randomise(model, seed, device):
    """Fan-in scaled normals, queries and keys stronger: attention is neither uniform nor one-hot,
    so that a wrong attention shows. transformers' own start values, 0.02 everywhere, would hide
    one."""
    import torch

    generator = torch.Generator(device).manual_seed(seed)

    def normal(shape, std):
        return torch.randn(shape, generator=generator, device=device) * std

    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("LayerNorm.weight"):
                p.copy_(1 + normal(p.shape, 0.1))
            elif name.endswith("bias"):
                p.copy_(normal(p.shape, 0.1))
            elif "embeddings" in name:
                p.copy_(normal(p.shape, 0.7 if "word" in name else 0.3))
            else:
                gain = 1.4 if ".query." in name or ".key." in name else 0.7
                p.copy_(normal(p.shape, gain / math.sqrt(p.shape[1])))


def write(shape, folder, seed, device="cpu"):
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.inner,
        max_position_embeddings=shape.positions,
    )
    with torch.device(device):
        model = BertModel(config, add_pooling_layer=False)
    randomise(model, seed, device)
    model.save_pretrained(folder)
    tokenizer(shape).save_pretrained(folder)

    def put(name, value):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(value, indent=1) + "\n")

    package = "sentence_transformers.models"
    put(
        "modules.json",
        [
            {"idx": 0, "name": "0", "path": "", "type": f"{package}.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{package}.Pooling"},
        ],
    )
    put(
        "1_Pooling/config.json",
        {"word_embedding_dimension": shape.hidden, POOLING[shape.pooling]: True}
        | {mode: False for p, mode in POOLING.items() if p != shape.pooling},
    )
    put("sentence_bert_config.json", {"max_seq_length": shape.positions, "do_lower_case": False})


def sets(plan):
    """Name → texts: one set for each length, "mixed" (8 to the longest, short ones more frequent,
    as in real corpora), "random" (any length), "quality" (all of these) and single queries."""
    shape = next(iter(plan.shapes.values()))
    vocabulary = words(shape.vocabulary - len(SPECIAL))
    dice = random.Random(7)

    def some(count, tokens):
        return [text(dice, vocabulary, tokens()) for _ in range(count)]

    def mixed():
        return int(8 * (plan.longest / 8) ** dice.random())

    out = {str(n): some(plan.texts, lambda n=n: n) for n in plan.lengths}
    out["mixed"] = some(plan.texts, mixed)
    out["random"] = some(plan.texts, lambda: dice.randint(3, plan.longest))
    ends = [text(dice, vocabulary, n) for n in (3, plan.longest - 1, plan.longest)]
    out["quality"] = ends + some(plan.quality_texts - len(ends), mixed)
    return out | {f"one-{n}": some(plan.queries, lambda n=n: n) for n in plan.single}


def tokens(text):
    """How many tokens a text of ours has."""
    return 2 + len(text.split())
