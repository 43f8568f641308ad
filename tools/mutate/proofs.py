"""equivalent/*.txt: mutants that change nothing, each with the reason.

    # a comment
    file | function | before => after            as `mutate.py list` prints it, one or several lines,
    file | function | before => after | 2
        and why they change nothing,             then indented lines.
"""

import dataclasses
import pathlib


class Unreadable(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Proof:
    place: str  # file and line
    text: str


def load(folder):
    """{mutant's id: Proof} of all files of the folder."""
    proofs = {}
    for path in sorted(pathlib.Path(folder).glob("*.txt")):
        for name, proof in parse(path.read_text(), path.name).items():
            if name in proofs:
                raise Unreadable(f"{proof.place}: listed in {proofs[name].place}, too")
            proofs[name] = proof
    return proofs


def parse(text, file="-"):
    """{mutant's id: Proof} of a file's text."""
    proofs, waiting, words, first = {}, [], [], 0

    def finish():
        nonlocal waiting, words
        if waiting and len(" ".join(words).split()) < 5:
            raise Unreadable(f"{file} line {waiting[0][0]}: a mutant without a proof")
        for line, name in waiting:
            if name in proofs:
                raise Unreadable(f"{file} line {line}: listed twice")
            proofs[name] = Proof(f"{file} line {line}", " ".join(words))
        waiting, words = [], []

    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace():
            if not waiting:
                raise Unreadable(f"{file} line {number}: a proof without a mutant")
            words.append(line.strip())
            continue
        if words:
            finish()
        if line.count(" | ") < 2 or " => " not in line:
            raise Unreadable(f"{file} line {number}: not 'file | function | before => after'")
        waiting.append((number, line.rstrip()))
    finish()
    return proofs


def compare(proofs, mutants, verdicts):
    """What is wrong, as lines. mutants: ids of all there are; verdicts: {id: Verdict}, of some or
    all of them."""
    wrong = []
    for name, proof in proofs.items():
        if name not in mutants:
            wrong.append(f"stale: {proof.place}: there is no such mutant any more: {name}")
        elif name in verdicts and verdicts[name].outcome != "survived":
            v = verdicts[name]
            wrong.append(f"stale: {proof.place}: {v.outcome} ({v.by} in {v.test}): {name}")
    for name, verdict in verdicts.items():
        if verdict.outcome == "survived" and name not in proofs:
            wrong.append(f"survived: {name}" + (f"    ({verdict.by})" if verdict.by else ""))
    return wrong
