"""Makes model directories in the shapes of extractshapes.py, from seeds and without a hub: random
weights as the packages save them, and a tokenizer whose words are those of the race.

    extractmodels.py ROW FOLDER [--layers N]

made.json says what the race needs to know, among it a threshold for each number of labels: the one
above which the package finds a span in about WORDS_A_SPAN words, in a gap of the scores.
"""

import argparse
import json
import math
import os
import shutil
import sys
from pathlib import Path

import archmodels
import extractshapes
import extracttexts

WORDS_A_SPAN = 12
CLASS_SCALE = 0.1  # of a classifier's last layer: its scores spread over 0 to 1
MARKERS = {"gliner": ["[FLERT]", "<<ENT>>", "<<SEP>>"], "gliclass": ["<<LABEL>>", "<<SEP>>", "<<EXAMPLE>>"],
           "transformers": []}


def learned(spaced):
    """Tokens and merges of the race's words. spaced: a space is ▁ as in SentencePiece, not Ġ."""
    merges = archmodels.learn()
    if spaced:
        merges = [tuple(p.replace("Ġ", "▁") for p in m) for m in merges]
    letters = sorted({c for m in merges for part in m for c in part} | {"▁"} if spaced else [])
    return letters, merges


def tokenizer(row, encoder):
    """A fast tokenizer of the encoder's vocabulary. The tokens that occur are spread over the table as a
    real vocabulary's are; the rest is filled up with tokens that no text has."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    spaced = not extractshapes.is_bytes(row)
    letters, merges = learned(spaced)
    if not spaced:
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    front, behind = (encoder["cls_token_id"], encoder["sep_token_id"]) if not spaced else (1, 2)
    fixed = {encoder["pad_token_id"]: "[PAD]", front: "[CLS]", behind: "[SEP]"}
    fixed |= {} if not spaced else {3: "[UNK]"}
    tokens = list(dict.fromkeys(letters + ["".join(m) for m in merges]))
    free = [i for i in range(encoder["vocab_size"]) if i not in fixed]
    ids = {t: free[i * (len(free) // len(tokens))] for i, t in enumerate(tokens)}
    taken = set(ids.values())
    ids |= {t: i for i, t in fixed.items()} | {f"<filler {i}>": i for i in free if i not in taken}
    unknown = {"unk_token": "[UNK]"} if spaced else {}
    made = Tokenizer(models.BPE(vocab=ids, merges=merges, **unknown))
    if spaced:
        made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
        made.decoder = decoders.Metaspace()
    else:
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", front), ("[SEP]", behind)])
    made.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in fixed.values()])
    loaded = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", cls_token="[CLS]",
                                     sep_token="[SEP]", unk_token="[UNK]" if spaced else None,
                                     model_max_length=row["limit"])
    added = MARKERS[row["package"]]
    if added:
        loaded.add_tokens([AddedToken(t, normalized=False, special=True) for t in added], special_tokens=True)
    return loaded


def sharpen(model):
    """Draws every tensor from its name, in bfloat16's numbers."""
    import torch

    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            archmodels.draw(name, p, torch.Generator().manual_seed(archmodels.hash_of(name)), 1.6)
            p.copy_(p.bfloat16().float())


def gliner(row, encoder, into):
    from gliner import GLiNER
    from gliner import model as kinds

    words = tokenizer(row, encoder)
    encoder = encoder | {"vocab_size": max(encoder["vocab_size"], len(words))}
    given = dict(encoder_config=encoder, model_name="bench/" + row["source"].split("/")[1],
                 vocab_size=len(words),
                 class_token_index=words.convert_tokens_to_ids("<<ENT>>"), **row["head"])
    name = "Token" if row["head"]["span_mode"] == "token_level" else "Span"
    kind = getattr(kinds, f"{'Bi' if 'labels' in row else 'Uni'}Encoder{name}GLiNER")
    of_labels = {}
    if "labels" in row:
        tower = row["labels"] | {"pad_token_id": 0, "num_hidden_layers": min(
            row["labels"]["num_hidden_layers"], encoder["num_hidden_layers"])}
        given |= {"labels_encoder": "bench/labels", "labels_encoder_config": tower}
        del given["class_token_index"]
        of_labels["labels_tokenizer"] = tokenizer(
            {"package": "transformers", "encoder": tower, "limit": 512}, tower)
    made = kind(kind.config_class(**given), tokenizer=words, backbone_from_pretrained=False, **of_labels)
    sharpen(made.model)
    made.save_pretrained(into, safe_serialization=True)
    return GLiNER.from_pretrained(str(into))


def gliclass(row, encoder, into):
    import torch
    import transformers
    from gliclass import GLiClassModel, GLiClassModelConfig

    words = tokenizer(row, encoder)
    encoder = encoder | {"vocab_size": max(encoder["vocab_size"], len(words))}
    config = GLiClassModelConfig(
        encoder_model_name="bench/" + row["source"].split("/")[1],
        encoder_config=transformers.AutoConfig.for_model(**encoder), vocab_size=encoder["vocab_size"],
        hidden_size=encoder["hidden_size"], class_token_index=words.convert_tokens_to_ids("<<LABEL>>"),
        text_token_index=words.convert_tokens_to_ids("<<SEP>>"),
        example_token_index=words.convert_tokens_to_ids("<<EXAMPLE>>"), **row["head"])
    torch.manual_seed(22)
    made = GLiClassModel(config, from_pretrained=False).eval()
    sharpen(made)
    last = [p for n, p in made.named_parameters() if "scorer" in n and p.dim() == 2][-1]
    with torch.no_grad():
        last.mul_(CLASS_SCALE)
    made.save_pretrained(into)
    words.save_pretrained(into)
    return made


def classifier(row, encoder, into):
    import torch
    import transformers

    names = {int(i): n for i, n in row["head"]["id2label"].items()}
    config = transformers.AutoConfig.for_model(**encoder, id2label=names, num_labels=len(names),
                                               label2id={n: i for i, n in names.items()})
    torch.manual_seed(22)
    made = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    sharpen(made)
    with torch.no_grad():
        made.classifier.weight.mul_(CLASS_SCALE)
    made.save_pretrained(into)
    tokenizer(row, encoder).save_pretrained(into)
    return made


MAKERS = {"gliner": gliner, "gliclass": gliclass, "transformers": classifier}


def threshold(model, labels):
    """The score that about one span in WORDS_A_SPAN words has, in the widest gap near it."""
    import torch

    scores, words = [], 0
    for text in extracttexts.items(6):
        prepared = model.prepare_batch([text], labels)
        batch = model.collate_batch(prepared["input_x"], prepared["entity_types"], model.create_collator())
        with torch.no_grad():
            logits = model.model(**{k: v for k, v in batch.items() if isinstance(v, torch.Tensor)}).logits
        if logits.dim() == 4 and logits.shape[-1] == 3:
            logits = logits.min(-1).values
        scores += torch.sigmoid(logits.float()).flatten().tolist()
        words += len(text.split())
    scores.sort(reverse=True)
    at = min(len(scores) - 2, words // WORDS_A_SPAN)
    near = range(max(0, at - 8), min(len(scores) - 1, at + 8))
    best = max(near, key=lambda i: scores[i] - scores[i + 1])
    return (scores[best] + scores[best + 1]) / 2


def make(name, folder, layers=0):
    """Writes the directory if it isn't there, and returns what made.json says."""
    import torch

    row, folder = extractshapes.ROWS[name], Path(folder)
    if not (folder / "made.json").exists():
        parts = Path(f"{folder}.parts-{os.getpid()}")
        parts.mkdir(parents=True)
        try:
            encoder = row["encoder"] | ({"num_hidden_layers": layers} if layers else {})
            torch.manual_seed(22)
            model = MAKERS[row["package"]](row, encoder, parts)
            core = getattr(model, "model", model)
            told = {"row": name, "layers": encoder["num_hidden_layers"],
                    "parameters": sum(p.numel() for p in core.parameters()), "thresholds": {}}
            if row["package"] == "gliner":
                model.eval()
                told["thresholds"] = {n: threshold(model, extracttexts.labels(n))
                                      for n in extractshapes.COUNTS}
            (parts / "made.json").write_text(json.dumps(told))
            os.replace(parts, folder)
        finally:
            shutil.rmtree(parts, ignore_errors=True)
    return json.loads((folder / "made.json").read_text())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("row", choices=extractshapes.ROWS)
    p.add_argument("folder", type=Path)
    p.add_argument("--layers", type=int, default=0)
    args = p.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    print(json.dumps(make(args.row, args.folder, args.layers)), file=sys.stdout)


if __name__ == "__main__":
    main()
