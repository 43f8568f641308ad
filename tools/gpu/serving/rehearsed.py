"""rehearsed.py RESULTS — what the results of a rehearsal must be: every step there and passed, a
warning at the top, no number that could be taken for a measurement. Exit 1 says what is not so."""

import json
import sys
from pathlib import Path

from results import COUNTED, MEASURED


def numbers(value, path, key=""):
    """Where there are numbers that are no counts."""
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in numbers(v, f"{path}.{k}", k)]
    if isinstance(value, list):
        return [p for i, v in enumerate(value) for p in numbers(v, f"{path}[{i}]", key)]
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return [path] if plain and key not in COUNTED else []


def wrong(record, picture):
    out = [f"{step}: did not end" for step in record["not_finished"]]
    out += [f"{step}: {what}" for step, all_missed in record["missed"].items() for what in all_missed]
    if record.get("rehearsal") is not True or "REHEARSAL" not in record.get("WARNING", ""):
        out.append("the record does not say that it is a rehearsal")
    if "REHEARSAL" not in picture:
        out.append("the picture does not say that it is a rehearsal")
    for step in MEASURED:
        if not record.get(step):
            out.append(f"{step}: nothing in the record")
        out += [f"{path} is a number in a rehearsal" for path in numbers(record.get(step), step)]
    for model, by in record.get("load", {}).items():
        out += [f"load: {model}, {s} has {len(runs)} contenders" for s, runs in by["sets"].items()
                if len(runs) < 4]
    return out


def main():
    folder = Path(sys.argv[1])
    found = [p.name for p in folder.glob("*.json") if p.name != "summary.json"]
    if found != ["rehearsal.json"]:
        sys.exit(f"rehearsed.py: {folder} holds {found}; rehearsal.json alone is needed")
    record = json.loads((folder / "rehearsal.json").read_text())
    bad = wrong(record, (folder / "rehearsal.svg").read_text())
    sys.exit("\n".join(f"rehearsed.py: {what}" for what in bad) if bad else 0)


if __name__ == "__main__":
    main()
