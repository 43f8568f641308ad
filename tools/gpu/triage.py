"""triage.py TOOL EXPECTED OUTPUT — judges what compute-sanitizer printed.

EXPECTED is a list of what is known (sanitizer-expected.txt says its form); OUTPUT ends with the line
"exit status N" of the program. Prints a line for each kind of report. Exit 1: a report that nobody
expected, a program that failed, or reports that the tool counted and did not print. Standard library
only."""

import collections
import fnmatch
import re
import sys
from dataclasses import dataclass
from pathlib import Path

MARK = "========= "
# Lines of the tool that are no reports.
CHATTER = re.compile(r"COMPUTE-SANITIZER|(ERROR|RACECHECK|LEAK) SUMMARY|No attached|Target application returned|Saved |$")


class Unreadable(Exception):
    """A list or an output of another form."""


@dataclass(frozen=True)
class Known:
    tool: str  # a glob
    most: float  # reports
    absent: bool
    form: re.Pattern
    why: str
    line: int


def read_known(text):
    known = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        # The expression may hold a bar.
        parts = re.fullmatch(r"(\S+) \| (any|absent|\d+) \| (.+) \| ([^|]+)", line.strip())
        if not parts:
            raise Unreadable(f"line {number}: TOOL | HOW MANY | REGULAR EXPRESSION | WHY")
        tool, many, form, why = parts.groups()
        try:
            form = re.compile(form)
        except re.error as err:
            raise Unreadable(f"line {number}: {err}") from None
        most = float("inf") if many in ("any", "absent") else int(many)
        known.append(Known(tool, most, many == "absent", form, why, number))
    return known


def reports(text):
    """The reports of an output: a heading behind the mark and the indented lines below it, joined."""
    found, current = [], None
    for line in text.splitlines():
        if not line.startswith(MARK.rstrip()):
            continue
        said = line[len(MARK):]
        if said.startswith(" "):
            if current is not None:
                current.append(said.strip())
        elif CHATTER.match(said):
            current = None
        else:
            current = [said.strip()]
            found.append(current)
    return [" ".join(lines) for lines in found]


def counted(text):
    """How many reports the tool says there were; None where it does not say."""
    numbers = re.findall(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", text)
    return sum(int(a or b) for a, b in numbers) if numbers else None


def judge(tool, known, text):
    """(lines to print, whether it is as it must be)."""
    known = [k for k in known if fnmatch.fnmatchcase(tool, k.tool)]
    said, good = [], True
    by_line, strange = collections.Counter(), collections.Counter()
    found = reports(text)
    for report in found:
        match = next((k for k in known if k.form.search(report)), None)
        if match:
            by_line[match] += 1
        else:
            strange[report] += 1
    if any(k.absent for k in by_line):
        return [f"absent: {next(k for k in by_line if k.absent).why}"], True
    for k in known:
        if by_line[k] > k.most:
            said.append(f"UNEXPECTED {by_line[k]} times, {k.most} are known: {k.why}")
            good = False
        elif by_line[k]:
            said.append(f"known {by_line[k]} times: {k.why}")
        elif not k.absent:
            said.append(f"nothing matches line {k.line} of the list: {k.why}")
    for report, times in strange.most_common():
        said.append(f"UNEXPECTED {times} times: {report[:400]}")
        good = False
    total = counted(text)
    if total is None:
        said.append("the tool did not reach its summary")
        good = False
    elif total > len(found):
        said.append(f"UNEXPECTED {total - len(found)} reports were counted and not printed")
        good = False
    status = re.findall(r"^exit status (\d+)$", text, re.M)
    if not status or status[-1] != "0":
        said.append(f"the program ended with {status[-1] if status else 'no status'}")
        good = False
    said.append(f"{tool}: {len(found)} reports, {'all known' if good else 'NOT all known'}")
    return said, good


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    try:
        known = read_known(Path(sys.argv[2]).read_text())
    except Unreadable as err:
        sys.exit(f"triage: {sys.argv[2]}: {err}")
    said, good = judge(sys.argv[1], known, Path(sys.argv[3]).read_text(errors="replace"))
    print("\n".join(said))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
