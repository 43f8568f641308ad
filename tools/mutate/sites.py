"""The mutants of a file: one or two for each barrier, wait, mask, shuffle, bound and stride.

  barrier  a call that orders threads, copies or memory is left out
  wait     one more group may be under way; the other parity; 16 bytes or one arrival more are expected
  mask     an operand of && or || is left out; == and != trade places; a bare condition or a vote is negated;
           a bit mask (x & m) is left out, or a lane leaves its warp's mask
  shuffle  the lane, or its distance, has its lowest bit flipped; a butterfly over the warp is left out
  bound    < and <=, > and >=, min and max trade places; an offset n of a sum becomes n + 1
  stride   a factor, divisor, shift, step of a loop or leading dimension is one more; a term of a sum or of a
           swizzle is left out; another swizzle

A mutant has a region: the smallest whole expression around what changes. It is replaced by a choice
between the mutated and the original expression (instrument.py), so one build holds many mutants.
Where the compiler must know the value, a mutant needs a build of its own: `fixed`.
"""

import dataclasses
import re

from cpp import File

CLASSES = ("barrier", "wait", "mask", "shuffle", "bound", "stride")

# Not grid_dependency_launch: who never says that the next grid may start lets it start later, and
# no result tells.
_ORDERING = re.compile(
    r"(__syncthreads|__syncwarp|sync|sync_warp|__threadfence\w*|named_barrier_\w+|cluster_(sync|arrive|wait)"
    r"|mbarrier_(init|wait|arrive\w*)|cp_async_(commit|wait\w*)|fence_\w+|wgmma_(fence|commit|wait|keep)"
    r"|tma_store_(commit|wait\w*)|grid_dependency_wait|\w+_release"
    r"|arrive_and_wait|wait_while|futex_wake|amx_load_config|amx_zero)$"
)
_COUNTED_WAIT = re.compile(r"(cp_async_wait|wgmma_wait|tma_store_wait\w*)$")
_SHUFFLE = re.compile(r"shuffle_(xor|from|up|down)$")
_BUTTERFLY = re.compile(r"warp_(sum|max|min)$")
_SWAPPED = {
    "min": "max", "max": "min", "fminf": "fmaxf", "fmaxf": "fminf",
    "reduce_min": "reduce_max", "reduce_max": "reduce_min",
}
_RELATION = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_EQUALITY = {"==": "!=", "!=": "=="}
_LEADING = re.compile(r"(\w+(\.|->|::))*(ld|\w*_ld|ld_|stride|\w*_stride|stride_|\w*_atom|\w*_pass)$")
# A template's parameter, or a constant of a type: what selects a form, and no predicate.
_COMPILE_TIME = re.compile(r"[A-Z]\w*(<[^>]*>)?(::\w+)?$")

# From loose to tight; what is missing binds tighter than all of them.
_PRECEDENCE = {"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7,
               "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,}
_FACTOR = {"*", "/", "%", "<<", ">>"}
_ASSIGNMENT = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
_BOUNDARY = {",", ";", "{", "}", "(", ")", "[", "]", "?", ":", "&&", "||"} | _ASSIGNMENT
_LEFT_WORDS = {"return", "else", "case", "do"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    function: str
    kind: str  # one of CLASSES
    before: str  # the region's text, as one line
    after: str
    nth: int  # among mutants of this function with the same texts, from 1
    region: tuple  # first token, last + 1
    edits: tuple  # (first token, last + 1, text), within the region
    statement: bool  # the region is a whole statement
    fixed: bool
    line: int

    @property
    def id(self):
        tail = f" | {self.nth}" if self.nth > 1 else ""
        return f"{self.file} | {self.function} | {self.before} => {self.after}{tail}"


class _Finder:
    def __init__(self, name, file):
        self.name, self.file, self.tokens = name, file, file.tokens
        self.found = []

    # ---- extents

    def _angle_outside(self, i):
        """The outermost brackets of template arguments around token i with no other bracket in
        between, or i."""
        for bracket in self.file.enclosing(i):
            if not self.tokens[bracket].angle:
                break
            i = bracket
        return i

    def region(self, first, last):
        """The smallest expression around tokens [first, last)."""
        first = self._angle_outside(first)
        if 0 <= self.tokens[first].pair < first:
            first = self.tokens[first].pair
        last = max(last, self.tokens[first].pair + 1)
        while first > 0:
            token = self.tokens[first - 1]
            if token.text == ")" and self.tokens[first].kind in ("name", "number"):
                if not self._is_cast(token.pair):
                    break  # if (…) call(…);
                first = token.pair  # (char *)p + n is ((char *)p) + n
                continue
            if 0 <= token.pair < first - 1 and (token.text != "}" or self._is_value(token.pair)):
                first = token.pair
                continue
            if token.text in _BOUNDARY or token.text in _LEFT_WORDS:
                break
            first -= 1
        while last < len(self.tokens):
            token = self.tokens[last]
            if token.pair > last and (token.angle or token.text in ("(", "[")):
                last = token.pair + 1
                continue
            if token.text == "{" and self.tokens[last - 1].kind == "name":  # int64_t{x}
                last = token.pair + 1
                continue
            if token.text in _BOUNDARY:
                break
            last += 1
        return first, last

    def _is_cast(self, opening):
        """Whether the bracket, which stands in front of an operand, holds a type: that of a call or
        a condition has a word in front of it."""
        before = self.tokens[opening - 1]
        return before.kind != "name" or before.text in _LEFT_WORDS

    def _is_value(self, opening):
        """Whether the brace begins a value, int64_t{x}, and no block."""
        before = self.tokens[opening - 1]
        return before.kind == "name" and before.end == self.tokens[opening].start

    def operand_end(self, i, operator):
        """End of the right operand of the operator in front of token i."""
        limit = _PRECEDENCE[operator]
        while i < len(self.tokens):
            token = self.tokens[i]
            if token.pair > i:
                i = token.pair + 1
                continue
            if token.text in _BOUNDARY or token.angle:
                break
            if token.text in _PRECEDENCE and token.spaced and _PRECEDENCE[token.text] <= limit:
                break
            i += 1
        return i

    def is_binary(self, i):
        token = self.tokens[i]
        return token.kind == "symbol" and token.spaced and not token.angle and i > 0

    def arguments(self, i):
        """Ranges of the arguments of the call whose '(' is token i."""
        end, start, ranges = self.tokens[i].pair, i + 1, []
        j = start
        while j < end:
            if self.tokens[j].pair > j:
                j = self.tokens[j].pair
            elif self.tokens[j].text == ",":
                ranges.append((start, j))
                start = j + 1
            j += 1
        if start < end:
            ranges.append((start, end))
        return ranges

    def call(self, i):
        """Index of the '(' if token i names a function that is called (possibly behind template
        arguments)."""
        j = i + 1
        if j < len(self.tokens) and self.tokens[j].angle and self.tokens[j].text == "<":
            j = self.tokens[j].pair + 1
        return j if j < len(self.tokens) and self.tokens[j].text == "(" else None

    # ---- findings

    def add(self, kind, first, last, edits, statement=False):
        for edit in edits:
            if any(self.tokens[j].kind == "string" for j in range(edit[0], edit[1])):
                return
        region = (first, last) if statement else self.region(first, last)
        self.found.append((kind, region, tuple(edits), statement))

    def replace(self, kind, first, last, text):
        self.add(kind, first, last, [(first, last, text)])

    def text(self, first, last):
        return self.file.source(first, last)

    def _calls(self, i):
        token = self.tokens[i]
        opening = self.call(i)
        if opening is None or self.is_declared(i):
            return
        name, closing = token.text, self.tokens[opening].pair
        arguments = self.arguments(opening)
        if _ORDERING.match(name):
            first = i
            while first >= 2 and self.tokens[first - 1].text in ("::", ".", "->"):
                first -= 2
            if self.tokens[closing + 1].text == ";" and self.region(i, closing + 1) == (first, closing + 1):
                self.add("barrier", first, closing + 1, [(first, closing + 1, "")], statement=True)
        if _COUNTED_WAIT.match(name) and self.tokens[i + 1].angle:
            count = (i + 2, self.tokens[i + 1].pair)
            self.add("wait", i, closing + 1, [(*count, f"{self.text(*count)} + 1")])
        if name == "mbarrier_wait" and len(arguments) == 2:
            self.replace("wait", *arguments[1], f"({self.text(*arguments[1])}) ^ 1")
        if name == "mbarrier_arrive_expect" and len(arguments) == 2:
            self.replace("wait", *arguments[1], f"{self.text(*arguments[1])} + 16")
        if name == "mbarrier_init" and len(arguments) == 2:
            self.replace("wait", *arguments[1], f"{self.text(*arguments[1])} + 1")
        if _SHUFFLE.match(name) and len(arguments) >= 2:
            self.replace("shuffle", *arguments[1], f"({self.text(*arguments[1])}) ^ 1")
            if len(arguments) == 3:
                self.replace("mask", *arguments[2], f"({self.text(*arguments[2])}) & 0x7fffffffu")
        if name == "ballot" and arguments:
            self.replace("mask", *arguments[0], f"!({self.text(*arguments[0])})")
        if _BUTTERFLY.match(name) and len(arguments) == 1:
            start = i - 2 if self.tokens[i - 1].text == "::" else i
            self.add("shuffle", i, closing + 1, [(start, closing + 1, f"({self.text(*arguments[0])})")])
        if name in _SWAPPED and len(arguments) >= 1 and self.tokens[i - 1].text not in (".", "->"):
            self.replace_name("bound", i, _SWAPPED[name])
        for first, last in arguments:
            if _LEADING.match(self.text(first, last)):
                self.replace("stride", first, last, f"{self.text(first, last)} + 1")

    def replace_name(self, kind, i, name):
        self.add(kind, i, i + 1, [(i, i + 1, name)])

    def is_declared(self, i):
        """`void sync() {` declares; so does `float max(float x) {`."""
        before = self.tokens[i - 1]
        if before.kind == "name":
            return before.text not in _LEFT_WORDS
        return before.text in ("*", "&") and not before.spaced

    def _operators(self, i):
        token = self.tokens[i]
        if not self.is_binary(i) or token.text not in _PRECEDENCE:
            return
        text, after = token.text, self.tokens[i + 1]
        if text in _RELATION:
            mutated = _FLIPPED[text] if self._is_choice_of_operands(i) else _RELATION[text]
            self.replace("bound", i, i + 1, mutated)
        elif text in _EQUALITY:
            if not self._is_whole_side(i):  # there it is left out as a whole
                self.replace("mask", i, i + 1, _EQUALITY[text])
        elif text in ("&&", "||"):
            for first, last in self._sides(i):
                self.replace("mask", first, last, "true" if text == "&&" else "false")
        elif text in ("&", "^", "|"):
            end = self.operand_end(i + 1, text)
            self.add("mask" if text == "&" else "stride", i, end, [(i, end, "")])
        elif text in ("+", "-"):
            end = self.operand_end(i + 1, text)
            if self._is_float(i + 1, end) or self._is_float(i - 1, i):
                return
            if end == i + 2 and _is_integer(after):
                self.replace("bound", i + 1, i + 2, _plus_one(after.text))
            # they have their own
            elif not any(t.text in _FACTOR and t.spaced for t in self.tokens[i + 1 : end]):
                self.add("stride", i, end, [(i, end, "")])
        else:
            self._factor(i, text)

    def _factor(self, i, text):
        """One more of the literal, or of the right operand."""
        before, after = self.tokens[i - 1], self.tokens[i + 1]
        end = self.operand_end(i + 1, text)
        if self._is_float(i + 1, end) or self._is_float(i - 1, i):
            return
        if text == "*" and _is_integer(before) and not self._continues(i - 1):
            self.replace("stride", i - 1, i, _plus_one(before.text))
        elif end == i + 2 and _is_integer(after):
            self.replace("stride", i + 1, i + 2, _plus_one(after.text))
        else:
            self.replace("stride", i + 1, end, f"({self.text(i + 1, end)} + 1)")

    def _continues(self, i):
        """Whether token i is the right operand of an operator that binds like '*'."""
        return self.tokens[i - 1].text in ("*", "/", "%") and self.tokens[i - 1].spaced

    def _is_float(self, first, last):
        return any(t.kind == "number" and not _is_integer(t) for t in self.tokens[first:last])

    def _sides(self, i):
        """The operands of && or || at i: the right one, and the left one where it is the first of
        its chain."""
        left = i
        first, last = self.region(i - 1, i)
        before = self.tokens[first - 1].text if first > 0 else ""
        if before != self.tokens[i].text or not self.tokens[first - 1].spaced:
            yield first, left
        yield self.region(i + 1, i + 2)

    def _is_whole_side(self, i):
        first, last = self.region(i, i + 1)
        before, after = self.tokens[first - 1], self.tokens[last]
        return before.text in ("&&", "||") and before.spaced or after.text in ("&&", "||") and after.spaced

    def _is_choice_of_operands(self, i):
        """a < b ? a : b, where <= would choose alike."""
        first, last = self.region(i, i + 1)
        if last >= len(self.tokens) or self.tokens[last].text != "?":
            return False
        left, right = self.text(first, i), self.text(i + 1, last)
        colon = last + 1
        while colon < len(self.tokens) and self.tokens[colon].text != ":":
            colon = self.tokens[colon].pair + 1 if self.tokens[colon].pair > colon else colon + 1
        end = self.region(colon + 1, colon + 2)[1]
        return {left, right} == {self.text(last + 1, colon), self.text(colon + 1, end)}

    def _conditions(self, i):
        """`if (flag)` and `flag ? … : …` without a relation or logic of their own."""
        token = self.tokens[i]
        if token.text == "if" and self.tokens[i + 1].text == "(":
            first, last = i + 2, self.tokens[i + 1].pair
        elif token.text == "?":
            first, last = self.region(i - 1, i)
        else:
            return
        plain = (t for t in self.tokens[first:last] if t.kind == "symbol" and not t.angle)
        if any(t.text in _RELATION or t.text in _EQUALITY or t.text in ("&&", "||", ";", "=") for t in plain):
            return
        if _COMPILE_TIME.match(self.text(first, last)):
            return
        if self.region(first, last) == (first, last):
            self.replace("mask", first, last, f"!({self.text(first, last)})")

    def _steps(self, i):
        token = self.tokens[i]
        if token.text not in ("+=", "-=", "/=", "*=") or token.kind != "symbol":
            return
        first, last = self.region(i + 1, i + 2)
        inner = [t for t in self.tokens[first:last] if t.kind == "symbol"]
        if any(t.text in _PRECEDENCE and t.spaced for t in inner) or self._is_float(first, last):
            return
        self.replace("stride", first, last, f"({self.text(first, last)}) + 1")

    def _swizzles(self, i):
        token = self.tokens[i]
        if token.text in ("b128", "b64", "b32") and self.tokens[i - 2].text == "Swizzle":
            self.replace_name("stride", i, "b64" if token.text == "b128" else "b128")

    def mutants(self):
        for i, token in enumerate(self.tokens):
            if any(self.tokens[b].angle and
                   self.tokens[b - 1].text == "template" for b in self.file.enclosing(i)):
                continue  # a list of parameters
            if token.kind == "name":
                self._calls(i)
                self._swizzles(i)
            self._operators(i)
            self._conditions(i)
            self._steps(i)
        return list(self._numbered())

    def _numbered(self):
        seen, ids, strides = {}, set(), set()
        for kind, region, edits, statement in self.found:
            if self._is_no_code(region[0]) or self._only_fetches(region[0]):
                continue
            function = self.file.function(edits[0][0])
            before = self.file.source(*region)
            after = self.file.source(*region, edits) or "(nothing)"
            if (region, after) in ids or before == after:
                continue  # two rules, one change
            ids.add((region, after))
            fixed = self.file.constant(region[0])
            if fixed and kind == "stride":  # a build each: one for each expression
                if region in strides:
                    continue
                strides.add(region)
            key = (function, before, after)
            seen[key] = seen.get(key, 0) + 1
            yield Mutant(
                self.name, function, kind, before, after, seen[key], region, edits, statement,
                fixed, self.file.line(edits[0][0]),
            )

    def _only_fetches(self, i):
        """Of the host's sources, what only brings memory nearer, which no result tells: a function
        of that name, what is given to a prefetch or to a variable of that name, and the loop around
        one."""
        if "/" not in self.name:
            return False
        if re.match(r"(.*::)?(pre)?fetch_\w+$", self.file.function(i)):
            return True
        j = self.file.statement(i)
        while self.tokens[j].text == "for":
            j = self.tokens[j + 1].pair + 1
        while self.tokens[j].text not in ("=", "+=", "(", ";", "{", "}"):
            if "prefetch" in self.tokens[j].text:
                return True
            j += 1
        return False

    def _is_no_code(self, i):
        """static_assert, forms chosen by `if constexpr`, extents of arrays, and what only nvcc
        reads."""
        words = [t.text for t in self.tokens[self.file.statement(i) : i + 1]]
        if "static_assert" in words or "__CUDA_ARCH__" in words or words[:2] == ["if", "constexpr"]:
            return True
        if self.file.in_extent(i):
            return True
        for bracket in self.file.enclosing(i):
            if self.tokens[bracket].text == "(" and self.tokens[bracket - 1].text in ("__launch_bounds__",
                                                                                      "alignas"):
                return True
        return False


def _is_integer(token):
    return token.kind == "number" and re.fullmatch(r"(0[xX][0-9a-fA-F']+|[0-9']+)[uUlL]*",
                                                   token.text) is not None


def _plus_one(literal):
    digits, suffix = re.fullmatch(r"(0[xX][0-9a-fA-F']+|[0-9']+)([uUlL]*)", literal).groups()
    return f"{int(digits.replace(chr(39), ''), 0) + 1}{suffix}"


def find(name, text):
    """The mutants of a file, in the order of its tokens. ids are unique."""
    finder = _Finder(name, File(text))
    return sorted(finder.mutants(), key=lambda m: (m.edits[0][0], m.id)), finder.file
