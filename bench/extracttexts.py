"""The texts and labels of bench-extract, by the grammar of texts.py: words are counted, which every
engine splits alike."""

import itertools

import texts

SHORTEST, LONGEST = 20, 300  # words of an item
DOCUMENT = 5000  # words of the one long text


def _words(text):
    return len(text.split())


def items(n, seed=53):
    """n texts of SHORTEST to LONGEST words, all lengths as likely, in an order without one."""
    dice, subjects = texts.Dice(seed), texts.subjects_of(0)
    return [texts.passage_of(dice, dice.pick(subjects), SHORTEST + dice.below(LONGEST - SHORTEST + 1), _words)
            for _ in range(n)]


def document():
    return texts.long_text(DOCUMENT, _words)


def labels(n):
    """n labels of one or two words."""
    nouns = [w for s in sorted(texts.SUBJECTS) for w in texts.SUBJECTS[s].split()]
    pairs = (f"{q} {a}" for q, a in itertools.product(texts.QUALITIES, nouns[3:]))
    return sorted(itertools.islice(itertools.chain(*zip(nouns[::3], pairs)), n))
