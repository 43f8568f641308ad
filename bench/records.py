"""Records of benchmarks: what they ran on, a markdown table and a JSON file in results/, and what
is kept of a run that is ended early; and the main program of a bench that has a bound to hold.
"""

import contextlib
import datetime
import json
import signal
import sys
import tempfile
from pathlib import Path

import machine
from racers import Failed


def about(target):
    """The machine, the commit, the date, and the command by which anyone can run the same."""
    # where is no matter
    flags = " ".join(a for i, a in enumerate(sys.argv[1:], 1) if "--results" not in (a, sys.argv[i - 1]))
    return machine.describe() | {
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
        "command": f"make {target}" + (f" BENCHFLAGS='{flags}'" if flags else ""),
    }


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows])


WIDEST = 200  # columns


def dumps(record):
    """JSON in which what has no lists or objects in it, or fits into WIDEST columns, has one line."""
    return _laid_out(record, "") + "\n"


def _laid_out(value, indent):
    line = json.dumps(value, separators=(",", ":"))
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    if len(indent) + len(line) <= WIDEST or not any(isinstance(v, (dict, list)) for v in within):
        return line
    rows = [_laid_out(v, indent + " ") for v in within]
    if isinstance(value, dict):
        rows = [f"{json.dumps(key)}: {row}" for key, row in zip(value, rows)]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n{indent} " + f",\n{indent} ".join(rows) + f"\n{indent}{end}"


def write(folder, kind, record, text):
    """Writes <cpu>-<kind>.md and .json; text is the table and what it is of."""
    told = record["about"]
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / f"{machine.slug(told['cpu'])}-{kind}"
    head = (
        f"# {told['cpu']}, {kind}\n\n{told['date']} · {told['usable_cpus']} CPUs · kernel {told['kernel']} · commit {told['commit']} · "
        f"`{told['command']}` · load average at the start {told['load_at_start']:.1f}\n\n")
    base.with_name(base.name + ".md").write_text(head + text, encoding="utf-8")
    base.with_name(base.name + ".json").write_text(dumps(record), encoding="utf-8")
    print(head + text)


def _interrupt(number, _):
    raise KeyboardInterrupt(signal.Signals(number).name)


@contextlib.contextmanager
def kept(record, folder, kind):
    """Keeps what was measured when the block ends early, by an error, Ctrl-C or SIGTERM:
    <cpu>-<kind>.interrupted.json in the folder, or in build/ without one. record is a dictionary
    that the block fills. Such a file of an earlier run goes when the block ends well.
    """
    folder = Path(folder or Path(__file__).resolve().parent.parent / "build")
    path = folder / f"{machine.slug(machine.describe()['cpu'])}-{kind}.interrupted.json"
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except BaseException as why:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record | {"interrupted": f"{type(why).__name__}: {why}"}, indent=1,
                                   default=str) + "\n", encoding="utf-8")
        print(f"bench: ended early; what was measured is in {path}", file=sys.stderr, flush=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    path.unlink(missing_ok=True)


def bounded(o, kind, measure, markdown, file=None):
    """Runs a bench that fills a record, and ends with 1 where the bound does not hold: measure(o,
    folder, record) sets record["held"], markdown(o, record) returns the table. The record goes to
    o.results as <cpu>-<kind>, or -<file>, or the table to the terminal.
    """
    record, file = {"about": about(f"bench-{kind}")}, file or kind
    try:
        with kept(record, o.results, file), tempfile.TemporaryDirectory(prefix=f"sie-{kind}-") as into:
            measure(o, Path(into), record)
    except Failed as err:
        sys.exit(f"bench-{kind}: {err}")
    except KeyboardInterrupt:
        sys.exit(f"bench-{kind}: interrupted")
    if o.results:
        write(o.results, file, record, markdown(o, record))
    else:
        print(markdown(o, record))
    if not record["held"]:
        sys.exit(f"bench-{kind}: the bound is not held")
