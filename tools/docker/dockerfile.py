"""Reads Dockerfiles and .dockerignore: as much of their grammar as this repository's use, refusing
the rest by name."""

import dataclasses
import json
import re
import shlex

INSTRUCTIONS = {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL",
                "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}
UNREAD = {"ADD", "ONBUILD", "SHELL"}  # not used here; reading them half would be worse than refusing them


class Broken(Exception):
    """What is wrong with a Dockerfile or with the image it describes."""


@dataclasses.dataclass
class Instruction:
    line: int
    word: str
    flags: list  # of (name, value): --mount=type=cache,… and the like
    text: str  # what follows the flags, continuation lines joined


@dataclasses.dataclass
class Stage:
    base: str
    name: str
    platform: str  # of --platform, as it is written; "" for the image's own
    instructions: list


def parse(text):
    """The stages of a Dockerfile, variables of FROM replaced by the defaults before the first of
    them."""
    stages, arguments = [], {}
    for instruction in read_instructions(text):
        if instruction.word == "FROM":
            words = expand(instruction.text, arguments).split()
            if len(words) not in (1, 3) or len(words) == 3 and words[1].upper() != "AS":
                raise Broken(f"line {instruction.line}: FROM {instruction.text}: want FROM IMAGE [AS NAME]")
            stages.append(Stage(words[0], words[2] if len(words) == 3 else str(len(stages)),
                                dict(instruction.flags).get("platform", ""), []))
        elif stages:
            stages[-1].instructions.append(instruction)
        elif instruction.word == "ARG":
            name, _, value = instruction.text.partition("=")
            arguments[name] = value.strip('"')
        else:
            raise Broken(f"line {instruction.line}: {instruction.word} before the first FROM")
    if not stages:
        raise Broken("no FROM")
    return stages


def read_instructions(text):
    """The instructions in order, comments left out and continuation lines joined."""
    found, pending, begun = [], "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or pending and not line.strip():
            continue
        begun = begun if pending else number
        pending += line.strip() if not pending else " " + line.strip()
        if pending.endswith("\\"):
            pending = pending[:-1].rstrip() or " "
            continue
        if pending.strip():
            found.append(instruction_of(begun, pending.strip()))
        pending = ""
    if pending.strip():
        raise Broken(f"line {begun}: the last line ends in a continuation")
    return found


def instruction_of(line, text):
    word, _, rest = text.partition(" ")
    word, rest, flags = word.upper(), rest.strip(), []
    if word not in INSTRUCTIONS:
        raise Broken(f"line {line}: {word} is no instruction")
    if word in UNREAD:
        raise Broken(f"line {line}: this check does not read {word}; use COPY or RUN")
    while match := re.match(r"--([a-z-]+)(?:=(\S+))?\s+", rest):
        flags.append((match[1], match[2] or ""))
        rest = rest[match.end():]
    if "<<" in rest and word in ("RUN", "COPY"):
        raise Broken(f"line {line}: this check reads no here-documents")
    return Instruction(line, word, flags, rest)


def expand(text, variables):
    """$NAME, ${NAME} and ${NAME:-DEFAULT} replaced; a name nobody set is empty, as in Docker."""
    def value(match):
        name, default = match[1] or match[2], match[3]
        return variables.get(name) or default or ""
    return re.sub(r"\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})", value, text)


def pairs(instruction, variables):
    """NAME=VALUE of an ENV or LABEL."""
    found = {}
    for word in shlex.split(expand(instruction.text, variables)):
        name, equals, value = word.partition("=")
        if not equals:
            raise Broken(f"line {instruction.line}: {instruction.word} {word}: want NAME=VALUE")
        found[name] = value
    return found


def command(instruction, text=None):
    """The words of a CMD, ENTRYPOINT or HEALTHCHECK CMD. Only the JSON form: the other one starts a
    shell, which becomes process 1 and keeps SIGTERM to itself."""
    text = instruction.text if text is None else text
    try:
        words = json.loads(text)
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise Broken(f'line {instruction.line}: {instruction.word} {text}: want the form ["WORD", …]')
    return words


class Ignore:
    """The patterns of a .dockerignore: the last one that matches a path or a folder above it
    decides."""

    def __init__(self, text):
        self.rules = []
        for line in text.splitlines():
            line = line.strip()
            if line and not line.startswith("#"):
                keep = line.startswith("!")
                self.rules.append((keep, re.compile(pattern(line.lstrip("!").strip("/")))))

    def ignores(self, path):
        parts = path.split("/")
        above = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
        ignored = False
        for keep, rule in self.rules:
            if any(rule.fullmatch(folder) for folder in above):
                ignored = not keep
        return ignored


def pattern(glob):
    """A regular expression for a pattern of Go's filepath.Match, in which ** also matches any
    number of folders."""
    out = ""
    for token in re.findall(r"\*\*/?|\*|\?|\[[^\]]*\]|[^*?\[]+", glob):
        if token == "**/":
            out += "(?:.*/)?"
        elif token == "**":
            out += ".*"
        elif token == "*":
            out += "[^/]*"
        elif token == "?":
            out += "[^/]"
        else:
            out += token if token.startswith("[") else re.escape(token)
    return out
