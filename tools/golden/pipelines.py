"""What transformers' pipelines make of whole texts, with tiny random models over a byte-level
tokenizer.

    python tools/golden/pipelines.py

testdata/golden/pipeline-tags        texts.json: [text, [[label, start, end], ...]] of "token-classification", aggregation "simple",
                                     places in code points; some tokens are single bytes of a character
testdata/golden/pipeline-zero-shot   texts.json: objects with text, labels, template, multi_label, and names, the model's own labels;
                                     of "zero-shot-classification"
golden.safetensors                   scores [N] f32: of all entities, or of all labels, in the order of texts.json

Texts run one by one, float32. A text longer than the model is cut as the pipeline of tags does it.
"""

import json
import shutil

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, RobertaConfig, pipeline

import bert
import manifest

TAGS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC", 5: "MISC"}
MAX = 40
TEXTS = [
    "Angela Merkel lived in Berlin, not in New York.",
    "e\u0301 a\u0300\u0301\u0302 \u0301 na\u00efve Z\u00fcrich \ufb01nal \u0130stanbul",
    "\U0001f642 \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea ok\U0001f642\U0001f642!",
    "\u4e2d\u6587 \u65e5\u672c\u8a9e\u30c6\u30ad\u30b9\u30c8 \ud55c\uad6d\uc5b4 \u0645\u0631\u062d\u0628\u0627",
    "one\r\ntwo\r\n\r\nthree\ttabs\u00a0and\u2028lines",
    "NUL\0inside \0 and \ufeff marks\u200b <s> in </s> the <mask> text",
    "  leading and trailing  spaces   ",
    "   ",
    "the cat " * 30,
    "\U0001d4b3\U0001d4b4 x\u0316\u0301y mixed\U0001f642words\u4e2dand a\U0001f469\u200d\U0001f467b",
]
QUESTIONS = [
    ("Angela Merkel spoke", ["politics", "sport", "sea"], "This text is about {}."),
    ("the cat \U0001f642", ["cats", "\u4e2d\u6587", "Cats", "a, b"], "{}"),
    ("goal!", ["sport"], "It is {}, yes."),
    ("   ", ["nothing", "all"], "This text is about {}."),
]
NAMES = {"last": ["contradiction", "neutral", "ENTAILMENT"],
         "first": ["entailment", "neutral", "contradiction"], "middle": ["no", "entailment", "maybe"]}


def tokenizer() -> PreTrainedTokenizerFast:
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    t.train_from_iterator(TEXTS[:1] * 3 + ["the cat spoke"] * 3, trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True,
                                                    add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", pad_token="<pad>",
                                   unk_token="<unk>", mask_token="<mask>", cls_token="<s>", sep_token="</s>",
                                   model_max_length=MAX)


def build(name: str, seed: int, class_name: str, labels: dict):
    case = manifest.GOLDEN / name
    shutil.rmtree(case, ignore_errors=True)
    t = tokenizer()
    config = RobertaConfig(vocab_size=len(t), hidden_size=32, num_hidden_layers=2, num_attention_heads=1,
                           intermediate_size=48, max_position_embeddings=MAX + 2, type_vocab_size=1,
                           layer_norm_eps=1e-5, id2label=labels, label2id={v: k for k, v in labels.items()})
    torch.manual_seed(seed)
    model = getattr(transformers, class_name)(config).eval()
    bert.randomise(model, seed, 1.2)
    model.save_pretrained(case)
    t.save_pretrained(case)
    return case, model, t


def write(case, answers: list, scores: list, class_name: str, seed: int, counts: dict) -> None:
    save_file({"scores": torch.tensor(scores)}, case / "golden.safetensors")
    (case / "texts.json").write_text(json.dumps(answers, indent=1) + "\n")
    manifest.write(case, "python tools/golden/pipelines.py", f"random {class_name}, seed {seed}", "float32",
                   counts)
    print(case.name, counts)


def tags(seed: int) -> None:
    case, model, t = build("pipeline-tags", seed, "RobertaForTokenClassification", TAGS)
    run = pipeline("token-classification", model=model, tokenizer=t, aggregation_strategy="simple",
                   device="cpu")
    found = [run([text])[0] for text in TEXTS]
    answers = [[text, [[e["entity_group"], e["start"], e["end"]] for e in list_]]
               for text, list_ in zip(TEXTS, found)]
    scores = [float(e["score"]) for list_ in found for e in list_]
    back = sum(b[1] < a[2] for _, found in answers for a, b in zip(found, found[1:]))
    if not back:
        raise SystemExit("no entity begins inside the one before it: these texts prove too little")
    write(case, answers, scores, "RobertaForTokenClassification", seed,
          {"entities": len(scores), "overlapping": back})


def zero_shot(seed: int) -> None:
    case, model, t = build("pipeline-zero-shot", seed, "RobertaForSequenceClassification",
                           dict(enumerate(NAMES["last"])))
    answers, scores = [], []
    for names in NAMES.values():
        model.config.id2label, model.config.label2id = dict(enumerate(names)), {v: k
                                                                                for k, v in enumerate(names)}
        run = pipeline("zero-shot-classification", model=model, tokenizer=t, device="cpu")
        for text, labels, template in QUESTIONS:
            for multi in (False, True):
                found = run(text, labels, hypothesis_template=template, multi_label=multi)
                score = dict(zip(found["labels"], found["scores"]))
                answers.append({"text": text, "labels": labels, "template": template, "multi_label": multi,
                                "names": names})
                scores += [score[label] for label in labels]
    write(case, answers, scores, "RobertaForSequenceClassification", seed, {"questions": len(answers)})


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    tags(909)
    zero_shot(902)
