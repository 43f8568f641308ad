"""What the published packages decide otherwise in bfloat16 than in float32, on random items.

    python tools/golden/decisions.py [name ...]

Prints a row for each model of runtime/task/decisions_test.go, made as that test makes its items, from
random tokens: its decisions, the share that differ at the median of the logits and at the logit that
one in 100 is above, and the difference that 99 of 100 scores keep. That test takes its bounds from
here. A minute; nothing is written.
"""

import random
import sys

import numpy as np
import torch
from gliclass import GLiClassModel
from gliner import GLiNER
from transformers import AutoModelForSequenceClassification

import manifest

SPECIAL, MARKERS = 5, 3  # tokens at the head and at the end of each vocabulary that are no word's


class Items:
    """Random items of one model, the same for each precision."""

    def __init__(self, vocab):
        self.rng, self.vocab = random.Random(22), vocab

    def upto(self, n):
        return 1 + self.rng.randrange(n)

    def tokens(self, n):
        return [self.rng.randrange(SPECIAL, self.vocab - MARKERS) for _ in range(n)]


def one(ids):
    """A batch of one sequence."""
    return dict(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long))


class Spans:
    """A GLiNER model whose labels are in the prompt."""

    count = 400

    def __init__(self, case):
        whole = GLiNER.from_pretrained(str(case)).eval()
        self.model, self.config = whole.model, whole.config
        self.items = Items(len(whole.data_processor.transformer_tokenizer))
        self.width = 0 if self.config.span_mode == "token_level" else self.config.max_width

    def item(self):
        it = self.items
        labels, words = it.upto(it.upto(8)), it.upto(it.upto(30))
        ids = [2]
        for _ in range(labels):
            ids += [it.vocab - 2, *it.tokens(it.upto(2))]
        ids.append(it.vocab - 1)
        mask = [0] * len(ids)
        for word in range(1, words + 1):
            new = it.tokens(it.upto(3))
            ids += new
            every = self.config.subtoken_pooling == "mean"
            mask += [word if every or i == 0 else 0 for i in range(len(new))]
        return [*ids, 3], [*mask, 0], words

    def logits(self, item):
        ids, mask, words = item
        batch = dict(one(ids), words_mask=torch.tensor([mask]), text_lengths=torch.tensor([[words]]))
        if not self.width:
            return self.model(**batch).logits[0, :words]
        places = [(i, i + w) for i in range(words) for w in range(self.width)]
        inside = torch.tensor([[end < words for _, end in places]])
        out = self.model(**batch, span_idx=torch.tensor([places]), span_mask=inside).logits[0, :words]
        return out[inside.view(words, self.width)]


class Classes:
    """A GLiClass model."""

    count = 2000

    def __init__(self, case):
        self.model = GLiClassModel.from_pretrained(str(case), dtype=torch.float32).eval()
        self.config = self.model.config
        self.items = Items(self.config.encoder_config.vocab_size)

    def item(self):
        it, c = self.items, self.config
        labels, text = it.upto(8), it.tokens(it.upto(40))
        ids = [2] if c.prompt_first else [2, *text]
        for _ in range(labels):
            ids += [c.class_token_index, *it.tokens(it.upto(2))]
        ids.append(c.text_token_index)
        return [*ids, *(text if c.prompt_first else []), 3], labels

    def logits(self, item):
        ids, labels = item
        return self.model(**one(ids)).logits[0, :labels]


class Pairs:
    """A classifier of a text and a hypothesis, whose last class is taken for entailment."""

    count = 2000

    def __init__(self, case):
        self.model = AutoModelForSequenceClassification.from_pretrained(str(case), dtype=torch.float32).eval()
        self.types = self.model.config.type_vocab_size
        self.items = Items(self.model.config.vocab_size)

    def item(self):
        it = self.items
        text, hypothesis = it.tokens(it.upto(40)), it.tokens(it.upto(6))
        return [2, *text, 3], [*hypothesis, 3]

    def logits(self, item):
        a, b = item
        batch = one(a + b)
        if self.types > 1:
            batch["token_type_ids"] = torch.tensor([[0] * len(a) + [1] * len(b)])
        out = self.model(**batch).logits[0]
        return out[-1:] - out[:1]


FORMS = {
    "gliner-bert-span": Spans, "gliner-deberta-span": Spans, "gliner-modernbert-span": Spans,
    "gliner-bert-token": Spans, "gliner-modernbert-token": Spans,
    "gliclass-deberta": Classes, "gliclass-dot": Classes, "gliclass-mlp": Classes,
    "classify-deberta": Pairs, "classify-bert": Pairs,
}


def score(logits):
    return 1 / (1 + np.exp(-logits.astype(np.float64)))


@torch.no_grad()
def main(names):
    torch.set_num_threads(1)
    print("| model | items | decisions | differ at the median | at 1 in 100 | 99 % of scores differ by at most |")
    print("|---|---|---|---|---|---|")
    for name in names or FORMS:
        form = FORMS[name](manifest.GOLDEN / name)
        items = [form.item() for _ in range(form.count)]

        def run(form=form, items=items):
            return torch.cat([form.logits(i).float().flatten() for i in items]).numpy()

        want = run()
        form.model.to(torch.bfloat16)
        got = run()
        ordered = np.sort(want)
        median, rare = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
        shares = [100 * np.mean((want >= at) != (got >= at)) for at in (median, rare)]
        apart = np.sort(np.abs(score(want - median) - score(got - median)))
        print(f"| {name} | {form.count} | {len(want):,} | {shares[0]:.3f} % | {shares[1]:.3f} % | "
              f"{apart[len(apart) * 99 // 100]:.4f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
