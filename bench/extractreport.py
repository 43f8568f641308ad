"""What bench-extract is held against, and its tables."""

import statistics

import extractparts
import extractshapes
from goals import middle, pair
from records import table

# What is wanted, medians of the ratios round by round, by class of instructions: ours, the peer's
# kind, the least ratio.
WANTED = {
    "avx512": [("fp32", "package-fp32", 2.0), ("fp32", "onnxruntime-fp32", 1.3)],
    "amx": [("bf16", "package-fp32", 4.0), ("bf16", "package-bf16", 2.0), ("fp32", "onnxruntime-fp32", 1.3)],
    "avx2": [],
}
MOST_ONE, LEAST_HTTP = 0.5, 3.0  # of the package's time for one item; of sie-server 0.10.1's items a second


def class_of(flags):
    if {"amx_tile", "amx_bf16"} <= flags:
        return "amx"
    return "avx512" if "avx512f" in flags else "avx2"


def peer(row, kind):
    """The engine's name of a peer's kind."""
    package = extractshapes.ROWS[row]["package"]
    return kind.replace("package", package)


def ratio(runs, s, ours, other):
    """How many times as fast: median, smallest, largest."""
    if s == "one":  # milliseconds
        return pair(runs[other], runs[ours])
    return pair(runs[ours], runs[other])


def held(name, of, kind):
    """Rows of what was wanted of a shape."""
    rows = []
    for s, runs in of.get("runs", {}).items():
        wanted = WANTED[kind] if s != "one" else [
            ("bf16" if kind == "amx" else "fp32", "package-fp32", 1 / MOST_ONE)] if kind != "avx2" else []
        for precision, other, least in wanted:
            ours, other = f"sie-{precision}", peer(name, other)
            if ours in runs and other in runs:
                mid, low, high = ratio(runs, s, ours, other)
                rows.append([name, s, f"{ours} to {other}", f"{mid:.2f} ({low:.2f} to {high:.2f})",
                             f"≥ {least:g}", "met" if mid >= least else "**missed**"])
    http = of.get("http", {}).get("runs", {})
    if len(http) == 2:
        (ours, theirs), s = http.values(), of["http"]["set"]
        mid, low, high = pair(ours, theirs)
        rows.append([name, f"{s}, HTTP", "to sie-server 0.10.1", f"{mid:.2f} ({low:.2f} to {high:.2f})",
                     f"≥ {LEAST_HTTP:g}", "met" if mid >= LEAST_HTTP else "**missed**"])
    return rows


def parts_held(name, of):
    """Rows of the parts, which are wanted of every class."""
    what = {"outside": "time outside the encoder", "lstm": "LSTM over 384 words to the encoder, one thread",
            "labels": "1,000 kept labels to 10"}
    rows = []
    for key, runs in of.get("parts", {}).items():
        part, _, s = key.partition(", ")
        mid, most = middle(runs), extractparts.WANTED[part]
        shown = [f"{x:.2f}" if part == "labels" else f"{100 * x:.1f} %"
                 for x in (mid, min(runs), max(runs), most)]
        rows.append([name, s, what[part], f"{shown[0]} ({shown[1]} to {shown[2]})", f"≤ {shown[3]}",
                     "met" if mid <= most else "**missed**"])
    return rows


def speeds(name, of):
    """A row for each set and engine: items a second, or milliseconds, and our fp32 to it."""
    for s, runs in of.get("runs", {}).items():
        for engine, figures in runs.items():
            mine = ""
            if engine != "sie-fp32" and "sie-fp32" in runs:
                mine = "{:.2f} ({:.2f} to {:.2f})".format(*ratio(runs, s, "sie-fp32", engine))
            unit = "ms" if s == "one" else "items/s"
            yield [name, s, engine, f"{statistics.median(figures):,.2f} {unit}", mine]


def markdown(record):
    about, shapes = record["about"], record["shapes"]
    of = about["layers"]
    parts = [
        f"Class {about['class']}, {about['threads']} threads, {about['rounds']} rounds, {about['items']} items of "
        f"20 to 300 words, medians{f', {of} blocks of each encoder' if of else ''}. Random weights in published "
        "sizes; ratios are of rounds, median, smallest and largest. One item: p50 of items asked for one by one "
        "with 5 labels."]
    wanted = [r for name, s in shapes.items() for r in held(name, s, about["class"])]
    if wanted:
        parts.append(table(["shape", "set", "what", "measured", "wanted", ""], wanted))
    own = [r for name, s in shapes.items() for r in parts_held(name, s)]
    if own:
        parts.append(table(["shape", "set", "part", "measured", "wanted", ""], own))
    raced = [r for name, s in shapes.items() for r in speeds(name, s)]
    if raced:
        parts.append(table(["shape", "set", "engine", "median", "our fp32 to it"], raced))
        head = ["shape", "engine", "equal decisions", "largest difference of scores", "decisions"]
        parts.append(table(head, [
            [name, engine, f"{a['equal']:.4f}", f"{a['score']:.1e}", a["decisions"]]
            for name, s in shapes.items() for engine, a in s.get("answers", {}).items()]))
    left = [[name, what, why] for name, s in shapes.items()
            for what, why in [*s["failed"].items(), *s["not_served"].items(),
                              *([("all", s["left_out"])] if "left_out" in s else []),
                              *([("HTTP", s["http"]["failed"])] if "failed" in s.get("http", {}) else [])]]
    if left:
        parts.append(table(["shape", "not measured", "because"], left))
    return "\n\n".join(parts) + "\n"
