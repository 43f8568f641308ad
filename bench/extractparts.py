"""Parts of bench-extract: what an extraction costs beside its encoder, what an LSTM costs beside it, and
what a thousand labels cost whose vectors are kept. Ours alone, in turns; README.md says how.
"""

import itertools
import json
import re
import subprocess
import typing
from pathlib import Path

import extractengines
import extractshapes
import extracttexts
import texts
from racers import Failed, Racer

PARTS = ("outside", "lstm", "labels")
# At most: of a pass, of deberta-v3-base's time for the item, and times the time of FEW labels.
WANTED = {"outside": 0.12, "lstm": 0.08, "labels": 1.3}
LSTM_SHAPE, LSTM_WORDS = "gliner_medium-v2.1", 384  # whose encoder is deberta-v3-base
FEW, MANY, LABELS_WORDS = 10, 1000, 100
LONGEST = 8192  # tokens of a text, in place of the encoder's number
WORDS = re.compile(r"\w+(?:[-_]\w+)*|\S")
TABLES = ("embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight")


def encoder_alone(shape):
    """The directory of a shape's encoder: the same weights, and behind them the mean of all rows, or the
    first where classifiers read hardly more, so that the last block is computed for as few."""
    from safetensors.torch import load_file, save_file

    into = shape.folder.with_name(shape.folder.name + "-encoder")
    if (into / "modules.json").exists():
        return into
    (into / "1_Pooling").mkdir(parents=True, exist_ok=True)
    tensors = load_file(shape.folder / "model.safetensors")
    found = [k for k in tensors if k.endswith(TABLES) and "labels_" not in k]
    if len(found) != 1:
        raise Failed(f"{shape.name}: {len(found)} tables of words in {shape.folder}")
    before = found[0][:found[0].index("embeddings.")]
    save_file({k[len(before):]: v.contiguous() for k, v in tensors.items() if k.startswith(before)},
              into / "model.safetensors")
    kind, mean = shape.row["encoder"]["model_type"], shape.row["package"] == "gliner"
    config = shape.row["encoder"] | {
        "architectures": [{"deberta-v2": "DebertaV2Model", "modernbert": "ModernBertModel"}[kind]],
        "num_hidden_layers": shape.made["layers"], "vocab_size": len(tensors[found[0]]),
        "max_position_embeddings": LONGEST}
    write(into / "config.json", config)
    write(into / "tokenizer_config.json", {"model_max_length": LONGEST})
    words = json.loads((shape.folder / "tokenizer.json").read_text(encoding="utf-8"))
    if shape.row["package"] == "gliner" and extractshapes.is_bytes(shape.row):  # words have no space there
        words["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": False},
            words["pre_tokenizer"]]}
    write(into / "tokenizer.json", words)
    write(into / "sentence_bert_config.json", {"max_seq_length": LONGEST})
    write(into / "1_Pooling" / "config.json", {"word_embedding_dimension": config["hidden_size"],
                                               "pooling_mode_mean_tokens": mean,
                                               "pooling_mode_cls_token": not mean})
    kinds = "sentence_transformers.models."
    write(into / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": kinds + "Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": kinds + "Pooling"}])
    return into


def write(path, value):
    path.write_text(json.dumps(value))


def windows(text, size):
    """The windows that words are read in, each word on its own: with a space before it."""
    words, step = WORDS.findall(text), size - extractengines.OVERLAP
    starts = range(0, len(words) - extractengines.OVERLAP, step) if len(words) > size else [0]
    return [" ".join(words[s:s + size]) for s in starts]


def rows_read(shape, items, labels):
    """What the encoder reads of a set, a text for each sequence: its tokens are those of the model's."""
    package = shape.row["package"]
    if package == "transformers":
        return [f"{t} [SEP] This text is about {name}." for t in items for name in labels]
    if package == "gliclass":
        prompt = "".join(f"<<LABEL>>{name}" for name in labels) + "<<SEP>>"
        return [prompt + t for t in items]
    prompt = ""
    if "labels" not in shape.row:
        prompt = "".join(f"<<ENT>> {name} " for name in labels) + "<<SEP>> "
    return [prompt + w for t in items for w in windows(t, shape.row["limit"])]


def encodes(shape, name, read, threads, ours, flags=("--ids",)):
    """`sie-server race` on what the encoder reads, tokenized before the first pass."""
    file = ours.out / f"{shape.name}-{name}-encoder.json"
    file.write_text(json.dumps(read), encoding="utf-8")
    model = f"{ours.model}-encoder"
    return Racer(f"{shape.name}'s encoder", [
        *ours.prefix(threads), str(shape.args.server), "race", "-m", f"{model}={encoder_alone(shape)}",
        "--threads", str(threads), "--precision", ours.precision, "--device", "cpu", "--no-hf-fallback",
        "--model", model, str(file), *flags], ours.env, ours.out / f"{shape.name}-{name}-encoder.log")


def outside(shape, extractor, ours, result):
    """The share of a pass that is not the encoder's: words, tokenizing, windows, the layers behind the
    encoder, and decoding. The encoder's time is that of its weights alone on the same sequences."""
    for s in [s for s in shape.sets if s != "one"]:
        items, count = shape.sets[s]
        read = rows_read(shape, items, extracttexts.labels(count))
        encoder = encodes(shape, s, read, shape.args.threads, ours)
        try:
            extractor.tune(s)
            tokens = encoder.ask("go", 600)["tokens"]
            if tokens < 0.98 * extractor.tokens:  # pairs are joined by their text here
                raise Failed(f"{shape.name}, {s}: the encoder alone read {tokens} tokens of {extractor.tokens}")
            result[f"outside, {s}"] = [
                1 - encoder.ask("go", 600)["seconds"] / extractor.go(s, 1) for _ in range(shape.args.rounds)]
        finally:
            encoder.close()
            extractor.drop(s)


def lstm(shape, ours, result):
    """The LSTM over 384 words of 512 columns, 256 in each direction, on one thread, to the encoder's time
    for an item of as many words."""
    if shape.name != LSTM_SHAPE or ours.precision != "fp32":
        return
    text = texts.passage_of(texts.Dice(7), texts.subjects_of(0)[0], LSTM_WORDS, lambda t: len(t.split()))
    encoder = encodes(shape, "lstm", [text], 1, ours)
    try:
        encoder.ask("go", 600)
        result["lstm"] = [bench_seconds(ours) / encoder.ask("go", 600)["seconds"]
                          for _ in range(shape.args.rounds)]
    finally:
        encoder.close()


def bench_seconds(ours):
    """What BenchmarkLSTM says of one pass."""
    done = subprocess.run([*ours.prefix(1), "go", "test", "-tags", "native", "-run", "-", "-bench",
                           "^BenchmarkLSTM$", "-benchtime", "20x", "./runtime/engine"], cwd=ours.root,
                          capture_output=True, text=True)
    found = re.search(r"^BenchmarkLSTM\S*\s+\d+\s+([\d.]+) ns/op", done.stdout, re.M)
    if not found:
        raise Failed(f"BenchmarkLSTM: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    return float(found.group(1)) / 1e9


def labels(shape, extractor, ours, result):
    """A text of 100 words with 1,000 labels to the same with 10, when the vectors of all are kept."""
    if "labels" not in shape.row:
        return
    text = texts.passage_of(texts.Dice(8), texts.subjects_of(0)[0], LABELS_WORDS, lambda t: len(t.split()))
    names = [f"{name} {i}" for i, name in zip(range(MANY), itertools.cycle(extracttexts.labels(100)))]
    for n in (FEW, MANY):
        s = f"kept-{n}"
        shape.files[s] = ours.out / f"{shape.name}-{s}.json"
        write(shape.files[s], [text])
        shape.params[s] = ours.out / f"{shape.name}-{s}-params.json"
        write(shape.params[s], {"labels": names[:n], "options": {
            "threshold": max(shape.made["thresholds"].values())}})
        extractor.tune(s)
    result["labels"] = [extractor.go(f"kept-{MANY}", 1) / extractor.go(f"kept-{FEW}", 1)
                        for _ in range(max(7, shape.args.rounds))]
    for n in (FEW, MANY):
        extractor.drop(f"kept-{n}")


class Ourselves(typing.NamedTuple):
    """How the parts start our programs."""

    root: Path
    out: Path
    model: str
    precision: str
    env: dict
    prefix: typing.Callable


def race(shape, extractor, ours, result):
    """Ratios of each round, by part; what fails is named and the others go on."""
    runs = result["parts"] = {}
    for part, measure in (("outside", lambda: outside(shape, extractor, ours, runs)),
                          ("lstm", lambda: lstm(shape, ours, runs)),
                          ("labels", lambda: labels(shape, extractor, ours, runs))):
        if part not in shape.args.parts:
            continue
        try:
            measure()
        except Failed as err:
            result["failed"][part] = str(err)
            shape.say(f"{shape.name}, {part}: {err}")
    shape.say(f"{shape.name}, parts: " + ", ".join(
        f"{n} {sorted(v)[len(v) // 2]:.3f}" for n, v in runs.items()))
