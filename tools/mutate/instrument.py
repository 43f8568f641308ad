"""One text with all its mutants in it, each behind a number: `a < b` becomes `(SIE_MUTANT(7) ? (a
<= b) : (a < b))`.

Lines keep their numbers, so a compiler's complaint finds the mutant it is about (`blame`).
"""

import dataclasses
import re

# What the text needs; the variables are in switch.cc. An enumeration aliases nothing but itself, so
# that the compiler need not load anything again behind a choice.
HEADER = """\
#pragma once
#include <type_traits>
enum SieMutantState : unsigned char { sie_mutant_off, sie_mutant_watched, sie_mutant_on };
extern "C" SieMutantState sie_mutant_states[];
extern "C" SieMutantState *sie_mutant_reached;
[[gnu::always_inline]] inline bool sie_mutant(int number) {
  if (__builtin_expect(sie_mutant_states[number] == sie_mutant_off, 1)) return false;
  sie_mutant_reached[number] = sie_mutant_watched;
  return sie_mutant_states[number] == sie_mutant_on;
}
#define SIE_MUTANT(number) sie_mutant(number)
#define SIE_MUTANT_ON(number) (sie_mutant_states[number] == sie_mutant_on)
template <class A, class B>
[[gnu::always_inline]] inline void sie_mutant_compare(int number, A original, B mutated) {
  constexpr bool plain = !std::is_floating_point<A>::value && !std::is_floating_point<B>::value;
  if constexpr (plain && std::is_scalar<A>::value && std::is_scalar<B>::value) {
    if (original == mutated) return;
  }
  sie_mutant_reached[number] = sie_mutant_watched;
}
#define SIE_MUTANT_COMPARED(number, original, mutated)                  \\
  (__builtin_expect(sie_mutant_states[number] != sie_mutant_watched, 1) \\
       ? (void)0                                                        \\
       : sie_mutant_compare(number, original, mutated))
"""

# Functions that only compute, and conversions.
_PURE = {"min", "max", "size", "static_cast", "sizeof", "round_up", "ceil_div", "int32_t", "int64_t",
         "size_t"}
_CALL = re.compile(r"(\w+|\w+>)\s*\(")
_CAST = re.compile(r"\b(static_cast|reinterpret_cast)<[^()]*?>\s*\(")
_CHANGES = re.compile(r"\+\+|--|(?<![=<>!])=(?!=)|\[[&=\]]|\bnew\b|\"")


def _comparable(*texts):
    """Whether the expressions may be computed once more at any time: none changes anything or calls
    what might."""
    texts = [_CAST.sub("static_cast(", text) for text in texts]
    return not any(_CHANGES.search(text) or set(_CALL.findall(text)) - _PURE for text in texts)


def _of_threads(text):
    """Whether the file's values depend on the order of threads: what one run saw tells nothing
    about the next."""
    return any(word in text for word in ("compare_exchange", "Watched", "WaitWord"))


# SIE_MUTANT=n selects a mutant, none otherwise. SIE_MUTANTS_REACHED=path: at exit a byte for each
# number below SIE_MUTANT_COUNT, 1 where the program came by.
SWITCH = """\
#include <stdio.h>
#include <stdlib.h>
#include "mutant.h"
static SieMutantState reached[SIE_MUTANT_COUNT + 1];
extern "C" {
SieMutantState sie_mutant_states[SIE_MUTANT_COUNT + 1];
SieMutantState *sie_mutant_reached = reached;
extern const int sie_mutant_count = SIE_MUTANT_COUNT;
}
static void write_reached() {
  FILE *file = fopen(getenv("SIE_MUTANTS_REACHED"), "wb");
  if (file == nullptr) return;
  fwrite(reached, 1, SIE_MUTANT_COUNT, file);
  fclose(file);
}
[[gnu::constructor(101)]] static void choose() {
  if (getenv("SIE_MUTANTS_REACHED") != nullptr) {
    for (int n = 0; n < SIE_MUTANT_COUNT; n++) sie_mutant_states[n] = sie_mutant_watched;
    atexit(write_reached);
  }
  if (const char *text = getenv("SIE_MUTANT")) {
    const int number = atoi(text);
    if (number >= 0 && number < SIE_MUTANT_COUNT) sie_mutant_states[number] = sie_mutant_on;
  }
}
"""


@dataclasses.dataclass
class Instrumented:
    text: str
    # Of each number: (line, first column, last column) of its own text, and the lines its region covers.
    own: dict
    lines: dict

    def blame(self, line, column):
        """The numbers a complaint at this place is about: those whose own text it is in, else all
        of the line."""
        inside = [n for n, (at, first, last) in self.own.items() if at == line and first <= column <= last]
        return inside or [n for n, (first, last) in self.lines.items() if first <= line <= last]


class _Writer:
    def __init__(self):
        self.parts, self.line, self.column = [], 1, 1

    def write(self, text):
        self.parts.append(text)
        breaks = text.count("\n")
        self.line += breaks
        # g++ counts bytes.
        tail = len(text.rsplit("\n", 1)[-1].encode())
        self.column = tail + 1 if breaks else self.column + tail


def instrument(file, numbered, compare=False):
    """file: cpp.File; numbered: [(number, Mutant)] of that file, none of them fixed. compare: see
    above."""
    regions = {}
    for number, mutant in numbered:
        regions.setdefault(mutant.region, []).append((number, mutant))
    starts = {}
    for region in regions:
        starts.setdefault(region[0], []).append(region)
    for candidates in starts.values():
        candidates.sort(key=lambda r: -r[1])
    out, own, lines, tokens = _Writer(), {}, {}, file.tokens
    compares = compare and not _of_threads(file.text)

    def render(first, last, skip):
        """Tokens [first, last) and the space in between; skip: regions that are being rendered."""
        i = first
        while i < last:
            region = next((r for r in starts.get(i, ()) if r not in skip and r[1] <= last), None)
            if region is None:
                out.write(tokens[i].text)
                end = i + 1
            else:
                choose(region, skip | {region})
                end = region[1]
            if end < last:
                out.write(file.text[tokens[end - 1].end : tokens[end].start])
            i = end

    def choose(region, skip):
        statement = any(m.statement for _, m in regions[region])
        wrap = "(void)" if statement else ""
        first_line = out.line
        plain = file.source(*region)
        out.write("(")
        compared = set()
        # A pointer, too, may be the condition that is negated.
        conditions = {number for number, mutant in regions[region]
                      if mutant.after in ("true", "false", f"!({plain})")}
        for number, mutant in regions[region]:
            if compares and not statement and _comparable(plain, mutant.after):
                compared.add(number)
                original = f"static_cast<bool>({plain})" if number in conditions else f"({plain})"
                out.write(f"SIE_MUTANT_COMPARED({number}, {original}, ({mutant.after})), ")
        for number, mutant in regions[region]:
            out.write(f"SIE_MUTANT_ON({number}) ? " if number in compared else f"SIE_MUTANT({number}) ? ")
            at = out.column
            text = mutant.after if mutant.after != "(nothing)" else "0"
            if conditions:
                text = f"static_cast<bool>({text})"
            out.write(f"{wrap}({text})")
            own[number] = (out.line, at, out.column)
            out.write(" : ")
        out.write("static_cast<bool>(" if conditions else f"{wrap}(")
        render(region[0], region[1], skip)
        out.write("))")
        for number, _ in regions[region]:
            lines[number] = (first_line, out.line)

    if not tokens:
        return Instrumented(file.text, {}, {})
    out.write(file.text[: tokens[0].start])
    render(0, len(tokens), frozenset())
    out.write(file.text[tokens[-1].end :])
    return Instrumented("".join(out.parts), own, lines)


def mutate(file, mutant):
    """The text with this one mutant."""
    out, at = [], 0
    for first, last, text in sorted(mutant.edits):
        out.append(file.text[at : file.tokens[first].start])
        removed = file.text[file.tokens[first].start : file.tokens[last - 1].end]
        out.append((text or "(void)0" if mutant.statement else text) + "\n" * removed.count("\n"))
        at = file.tokens[last - 1].end
    return "".join(out) + file.text[at:]


REQUIRED = re.compile(
    r"^(?P<path>[^:\n]+):(?P<line>\d+):(?P<column>\d+):   (?:recursively )?required (?:from|by) ")
INLINED = re.compile(r"^ +inlined from .* at (?P<path>[^:\n]+):(?P<line>\d+):(?P<column>\d+)[,:]$")
ERROR = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<text>.*)$",
                   re.MULTILINE)
