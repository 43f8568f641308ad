"""Tokens of a C++ file, and the little of its structure that mutations need: brackets, template
arguments, functions, statements and what must be constant.

It reads the house style as clang-format writes it: a binary operator has white space on both sides,
the brackets of template arguments have none inside. That is what tells `a < b` from `f<b>`, and `a
* b` from `T *b`.
"""

import dataclasses
import re

_TOKEN = re.compile(
    r"""
    (?P<comment> //[^\n]* | /\*.*?\*/ )
  | (?P<directive> (?m:^)[ \t]*\#(?:[^\n\\]|\\\n|\\.)* )
  | (?P<string> (?:u8|u|U|L)?R"(?P<delimiter>[^()\s\\]{0,16})\(.*?\)(?P=delimiter)" | (?:u8|u|U|L)?"(?:[^"\\\n]|\\.)*" )
  | (?P<character> '(?:[^'\\\n]|\\.)+' )
  | (?P<number> \.?[0-9](?:[eEpP][+-]|[0-9a-zA-Z_.]|'(?=[0-9a-fA-F]))* )
  | (?P<name> [A-Za-z_][A-Za-z_0-9]* )
  | (?P<symbol> <<= | >>= | \.\.\. | -> | :: | \+\+ | -- | <= | >= | == | != | && | \|\| | [-+*/%&|^]= | << | >>
      | [^\s] )
    """,
    re.VERBOSE | re.DOTALL,
)

OPENING = {"(": ")", "[": "]", "{": "}"}
_CONTROL = {"if", "for", "while", "switch", "else", "do", "catch"}
_NOT_A_FUNCTION = _CONTROL | {"__launch_bounds__", "alignas", "decltype", "noexcept", "return", "sizeof",
                              "static_assert"}


@dataclasses.dataclass
class Token:
    kind: str  # name, number, string, character, symbol
    text: str
    start: int
    end: int
    spaced: bool = False  # white space (or a comment) on both sides
    angle: bool = False  # a bracket of template arguments
    pair: int = -1  # the other bracket's index
    parent: int = -1  # the innermost bracket around it; -1: none


class File:
    """The tokens of a text. `function(i)` and `constant(i)` say where token i stands."""

    def __init__(self, text):
        self.text = text
        self.tokens = []
        last_directive = -1
        self._breaks = set()  # tokens before which a directive stood
        for match in _TOKEN.finditer(text):
            kind = match.lastgroup if match.lastgroup != "delimiter" else "string"
            if kind == "directive":
                last_directive = len(self.tokens)
                self._breaks.add(last_directive)
            elif kind != "comment":
                self.tokens.append(Token(kind, match.group(), match.start(), match.end()))
        for token in self.tokens:
            before = text[token.start - 1 : token.start]
            after = text[token.end : token.end + 1]
            token.spaced = (before.isspace() or before == "/") and (after.isspace() or after == "/")
        self._split_closing_angles()
        self._match_brackets()
        self._scopes()

    # ---- brackets

    def _split_closing_angles(self):
        """`>>` that is no shift (no space before it) closes two lists."""
        tokens = []
        for token in self.tokens:
            if token.text == ">>" and not self.text[token.start - 1].isspace():
                for at in (token.start, token.start + 1):
                    tokens.append(Token("symbol", ">", at, at + 1))
            else:
                tokens.append(token)
        self.tokens = tokens

    def _opens_angle(self, i):
        token = self.tokens[i]
        if token.text != "<" or token.spaced or i == 0:
            return False
        previous = self.tokens[i - 1]
        if previous.text == "template":
            return True
        return previous.kind == "name" and previous.end == token.start

    def _match_brackets(self):
        stack = []
        for i, token in enumerate(self.tokens):
            top = self.tokens[stack[-1]] if stack else None
            closes = top is not None and (
                (top.angle and token.text == ">" and not token.spaced)
                or (not top.angle and OPENING.get(top.text) == token.text)
            )
            if closes:
                start = stack.pop()
                self.tokens[start].pair, token.pair = i, start
                token.angle = self.tokens[start].angle
            token.parent = stack[-1] if stack else -1
            if not closes and (token.text in OPENING or self._opens_angle(i)):
                token.angle = token.text == "<"
                stack.append(i)
        if stack:
            token = self.tokens[stack[-1]]
            line = self.text.count("\n", 0, token.start) + 1
            raise ValueError(f"line {line}: {token.text!r} is never closed")

    def enclosing(self, i):
        """Indices of the brackets around token i, innermost first."""
        i = self.tokens[i].parent
        while i >= 0:
            yield i
            i = self.tokens[i].parent

    # ---- statements and scopes

    def statement(self, i):
        """First token of the statement that holds token i: behind a ';', a brace or a directive of
        its block."""
        block = next((b for b in self.enclosing(i) if self.tokens[b].text == "{"), -1)
        while i > block + 1:
            if i in self._breaks:
                return i
            before = self.tokens[i - 1]
            if before.text in (";", "}") and before.parent == block:
                return i
            i -= 1
        return i

    def _scopes(self):
        self._scope = {}  # opening brace → (kind, name); kind: function, type, other
        self._fixed = set()  # braces of constexpr functions
        for i, token in enumerate(self.tokens):
            if token.text != "{":
                continue
            header = [j for j in range(self.statement(i), i) if self.tokens[j].parent == token.parent]
            texts = [self.tokens[j].text for j in header]
            kind, name = "other", ""
            keyword = next((k for k in ("struct", "class", "union") if k in texts[:8]), None)
            if keyword is not None:
                following = texts[texts.index(keyword) + 1 :]
                kind, name = "type", next((t for t in following if re.match(r"[A-Za-z_]\w*$", t)), "")
            elif texts and texts[0] not in _CONTROL and "=" not in texts and "return" not in texts:
                for place, j in enumerate(header[:-1]):
                    if self.tokens[header[place + 1]].text == "(" and self.tokens[j].kind == "name":
                        if self.tokens[j].text not in _NOT_A_FUNCTION:
                            kind, name = "function", self.tokens[j].text
                            break
            if kind == "function" and "constexpr" in texts:
                self._fixed.add(i)
            self._scope[i] = (kind, name)

    def function(self, i):
        """The name of the function around token i, with its type's; '-' outside functions."""
        found, inside_function = [], False
        for brace in self.enclosing(i):
            kind, name = self._scope.get(brace, ("other", ""))
            if kind == "function" and not inside_function:
                found.append(name)
                inside_function = True
            elif kind == "type" and name:
                found.append(name)
        return "::".join(reversed(found)) or "-"

    def constant(self, i):
        """Whether token i must be known when the file is compiled: no run-time switch may stand
        there."""
        if any(b in self._fixed for b in self.enclosing(i)):
            return True
        start = self.statement(i)
        words = [t.text for t in self.tokens[start : i + 1]]
        if "constexpr" in words or "static_assert" in words or words[:1] == ["case"]:
            # `if constexpr (…) {` has ended where its block begins.
            return True
        return False

    def in_extent(self, i):
        """Whether token i stands in the extent of an array that is declared."""
        return any(self.tokens[b].text == "[" and self._is_extent(b) for b in self.enclosing(i))

    def _is_extent(self, bracket):
        """`float a[n], b[m][k]` and `float (&a)[n]`; not `a[i] = …`."""
        i = bracket - 1
        while self.tokens[i].text == "]":
            i = self.tokens[i].pair - 1
        if self.tokens[i].text == ")":  # (&a)
            return self.tokens[self.tokens[i].pair + 1].text in ("&", "*")
        if self.tokens[i].kind != "name":
            return False
        before = self.tokens[i - 1]
        if before.kind == "name":
            return before.text not in ("return", "else", "case")
        if before.text == ">" and before.angle:
            return True
        start = self.statement(i)
        declares = self.tokens[start].kind == "name" and self.tokens[start + 1].kind == "name"
        return before.text == "," and declares and self.tokens[bracket].parent == self.tokens[start].parent

    def line(self, i):
        return self.text.count("\n", 0, self.tokens[i].start) + 1

    def source(self, start, end, edits=()):
        """Text of tokens [start, end), each edit (first, last + 1, text) in place of its tokens;
        one line."""
        out, at = [], self.tokens[start].start
        for first, last, text in sorted(edits):
            out.append(self.text[at : self.tokens[first].start])
            out.append(text)
            at = self.tokens[last - 1].end if last > first else self.tokens[first].start
        out.append(self.text[at : self.tokens[end - 1].end])
        return one_line("".join(out))


def one_line(text):
    """Without comments, white space as single spaces."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"(?m)^[ \t]*#[^\n]*$", " ", text)
    return " ".join(text.split())
