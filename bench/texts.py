"""Texts for the benchmark: generated, so that every machine races on the same ones.

A small grammar writes English-looking sentences on twelve subjects from a linear congruential
generator of its own, so that neither Python's version nor a download changes a byte. Every function
takes count, which says how many tokens a text has, special ones included. Subjects are split in two
halves: quantised engines are calibrated on one, quality is measured on the other, so no engine is
judged on words it was calibrated with.
"""

import re

SUBJECTS = {
    "medicine": "patient surgeon antibiotic fever vaccine kidney diagnosis therapy infection ward dosage anaesthesia "
    "hypertension radiology prescription nurse biopsy cardiologist inflammation immunoglobulin",
    "finance": "bond dividend auditor mortgage inflation ledger broker portfolio liquidity invoice bankruptcy hedge "
    "collateral shareholder treasury currency pension underwriter arbitrage amortisation",
    "cooking": "saucepan basil oven dough garlic marinade butter simmer pastry cinnamon vinegar roast lentil whisk "
    "saffron chopping-board casserole zest caramel béchamel",
    "astronomy": "telescope nebula orbit comet galaxy eclipse asteroid spectrum quasar supernova parallax satellite "
    "redshift observatory moon photosphere exoplanet magnetar constellation heliopause",
    "law": "plaintiff statute tribunal verdict counsel appeal contract negligence jurisdiction clause testimony "
    "injunction barrister liability evidence arbitration precedent affidavit parole indemnification",
    "sport": "goalkeeper marathon referee league sprint coach penalty stadium medal racket tournament relay "
    "midfielder decathlon podium scoreboard wicket peloton freestyle over-time",
    "software": "compiler mutex database router packet kernel regression garbage-collector thread cache latency "
    "container scheduler checksum deadlock refactoring hypervisor tokenizer endpoint heap",
    "gardening": "compost tulip greenhouse pruning seedling mulch hedge trellis orchard fertiliser lawn perennial "
    "wheelbarrow aphid rhododendron irrigation bulb topsoil ivy shears",
    "music": "violin chord orchestra tempo soprano melody rehearsal drummer symphony accordion lyric conductor "
    "octave counterpoint saxophone libretto bassoon vibrato metronome glissando",
    "railways": "locomotive signal platform timetable freight carriage junction sleeper gauge conductor tunnel "
    "terminus shunting pantograph viaduct ticket overhead-line bogie level-crossing ballast",
    "history": "dynasty treaty siege parchment emperor archive revolution cathedral merchant plague monastery "
    "conquest manuscript colony aristocracy guild pharaoh reformation excavation suffrage",
    "weather": "blizzard monsoon barometer humidity thunderstorm drizzle drought hailstone forecast gale frost "
    "cyclone isobar avalanche fog heatwave anemometer thermal permafrost cumulonimbus",
}
PLACES = "Lisbon Nairobi Kraków Osaka Montréal Tromsø Adelaide Quito Aarhus Ljubljana Samarkand Halifax".split()
NAMES = "Okafor Lindqvist Moreau Takahashi Ó'Brien Petrović Haddad Castellanos van-der-Meer Nguyen".split()
QUALITIES = (
    "reliable unexpected temporary expensive ordinary fragile remarkable late careful obsolete independent "
    "quiet controversial inexpensive thorough second-hand"
).split()
VERBS = (
    "replaced inspected described postponed measured delivered repaired borrowed examined recommended ignored "
    "catalogued photographed demonstrated abandoned restored").split()
SENTENCES = (
    "The {q} {a} was {v} by {n} before the {b} arrived in {p}",
    "In {y}, about {d} per cent of every {a} in {p} had been {v} together with a {q} {b}",
    "Nobody knows why the {a} needs a {q} {b}, although {n} {v} it {d} times",
    "{n} says that a {b} without a {a} is {q}, and that the {c} should be {v} first",
    "If the {a} fails, the {b} must be {v} within {d} days, and a {q} {c} is sent to {p}",
    "Because the {c} looked {q}, the {a} and the {b} were {v} again",
    "There were {d} reports of a {q} {a} near {p} in {y}",
    "Compared with the {b}, the {a} is {q}; it costs {d} euros and was last {v} in {y}",
)
QUERIES = (
    "how is a {q} {a} {v} with a {b}",
    "best {a} for a {q} {b} in {p}",
    "what does {n} say about the {a} and {b}",
    "{a} or {b}: which is more {q}?",
    "why was the {a} {v} in {y}",
    "difference between a {a}, a {b} and a {c}",
)
LIMIT = 256  # positions the model reads: longer texts are cut there by every engine


class Dice:
    """Knuth's MMIX generator, high bits: the same numbers in every Python."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n

    def pick(self, options):
        return options[self.below(len(options))]


def _fill(pattern, dice, words):
    text = pattern.format(
        a=dice.pick(words),
        b=dice.pick(words),
        c=dice.pick(words),
        q=dice.pick(QUALITIES),
        v=dice.pick(VERBS),
        n=dice.pick(NAMES),
        p=dice.pick(PLACES),
        d=dice.below(97) + 2,
        y=1800 + dice.below(226),
    )
    return re.sub(r"\b(a)(?= [aeiou])", "an", text)


def _sentence(dice, words):
    text = _fill(dice.pick(SENTENCES), dice, words)
    return text[0].upper() + text[1:] + "."


def passage_of(dice, words, tokens, count):
    """A text of at most the given number of tokens, and hardly fewer."""
    text = ""
    for _ in range(tokens):  # a sentence has several tokens
        if count(text) >= tokens:
            break
        text += (" " if text else "") + _sentence(dice, words)
    cut = text.split(" ")
    while len(cut) > 1 and count(" ".join(cut)) > tokens:
        cut.pop()
    return " ".join(cut)


def subjects_of(half):
    names = sorted(SUBJECTS)
    return [SUBJECTS[n].split() for n in names[half::2]]


def short_queries(n, half=0, seed=11):
    """About 12 tokens each."""
    dice, subjects = Dice(seed), subjects_of(half)
    return [_fill(dice.pick(QUERIES), dice, dice.pick(subjects)) for _ in range(n)]


def passages(n, count, half=0, seed=23):
    """About 127 tokens each."""
    dice, subjects = Dice(seed), subjects_of(half)
    return [passage_of(dice, dice.pick(subjects), 120 + dice.below(15), count) for _ in range(n)]


def mixed(n, count, half=0, seed=37):
    """8 to 512 tokens before the cut at 256; short ones are the more frequent, as in real
    corpora."""
    dice, subjects = Dice(seed), subjects_of(half)
    return [passage_of(dice, dice.pick(subjects), int(8 * 2 ** (6 * dice.below(1000) / 999)), count)
            for _ in range(n)]


def sentences(n, half=0, seed=61):
    """Single sentences."""
    dice, subjects = Dice(seed), subjects_of(half)
    return [_sentence(dice, dice.pick(subjects)) for _ in range(n)]


def spread(n, most, count, half=0, seed=43):
    """n texts of 8 to `most` tokens, each length as likely as half of it: evenly on a logarithmic
    scale, in an order without one."""
    dice, subjects = Dice(seed), subjects_of(half)
    lengths = [int(8 * (most / 8) ** (i / (n - 1))) for i in range(n)]
    made = [passage_of(dice, dice.pick(subjects), tokens, count) for tokens in lengths]
    return [made.pop(dice.below(len(made))) for _ in range(n)]


def long_text(tokens, count, half=0, seed=47):
    """One text of so many tokens, and hardly fewer."""
    dice, subjects = Dice(seed), subjects_of(half)
    text = " ".join(_sentence(dice, dice.pick(subjects)) for _ in range(tokens // 24))
    return text + " " + passage_of(dice, dice.pick(subjects), max(8, tokens - count(text)), count)


def calibration(count):
    """What int8 engines may look at: all three kinds, from the half of the subjects that the race
    uses."""
    return short_queries(64, 0, 101) + passages(96, count, 0, 103) + mixed(96, count, 0, 107)


def held_out(count):
    """What quality is judged on: all three kinds, from the other half of the subjects."""
    return short_queries(64, 1, 211) + passages(64, count, 1, 223) + mixed(96, count, 1, 227)
