"""What bench-arch is held against, and its tables."""

import math
import statistics

import archshapes
from goals import pair
from records import table

# What is wanted, medians of the ratios round by round, by class of instructions and our precision.
GOALS = {
    ("avx512", "fp32"): {"transformers": {"passage": 1.3, "mixed": 1.6}, "openvino": 1.15, "decoder": 1.3,
                         "one": 1.0, "long": 2.0, "rerank": 1.5},
    ("amx", "bf16"): {"transformers": {"passage": 2.0, "mixed": 2.5}, "openvino": 1.5, "decoder": 1.8,
                      "one": 0.7, "long": 2.5, "rerank": 2.5},
}
GOALS["amx", "fp32"] = GOALS["avx512", "fp32"]  # an AMX machine has AVX-512 too
TITLES = {"short": "short", "passage": "passages", "mixed": "mixed", "long": "8,192 tokens",
          "one": "one query p50, ms", "rerank": "reranking"}


def class_of(flags):
    if {"amx_tile", "amx_bf16"} <= flags:
        return "amx"
    return "avx512" if "avx512f" in flags else "none"


def ours(runs):
    """Our engines by precision; builds given by --also are not among them."""
    return {n.removeprefix("sie-"): n for n in runs if n in ("sie-fp32", "sie-bf16")}


def ratio(runs, s, a, b):
    """How many times as fast a is as b: median, smallest, largest."""
    if s == "one":  # milliseconds
        return pair(runs[s][b], runs[s][a])
    return pair(runs[s][a], runs[s][b])


def goals_of(row, name, goal, precision):
    """(set, peer, least ratio): what a row must reach."""
    transformers, openvino = f"transformers-{precision}", f"openvino-{precision}"
    if archshapes.is_reranker(row):
        return [("rerank", transformers, goal["rerank"])]
    if row["decoder"]:
        found = [(s, transformers, goal["decoder"]) for s in ("passage", "mixed")]
    else:
        found = [(s, transformers, goal["transformers"][s]) for s in ("passage", "mixed")]
        found += [(s, openvino, goal["openvino"]) for s in ("passage", "mixed")]
    if name == "modernbert-base":
        found.append(("long", transformers, goal["long"]))
    return found


def held(name, result, kind):
    """Rows of what was wanted of a shape: [what, measured, wanted, verdict]."""
    row, runs, rows = archshapes.ROWS[name], result["runs"], []
    for precision in ("fp32", "bf16"):
        goal = GOALS.get((kind, precision))
        if goal is None:
            continue
        mine = f"sie-{precision}"
        for s, peer, least in goals_of(row, name, goal, precision):
            what = f"{name}: {mine} / {peer}, {TITLES[s]}"
            found = runs.get(s, {})
            if mine in found and peer in found:
                mid, low, high = ratio(runs, s, mine, peer)
                rows.append([what, f"{mid:.2f}× ({low:.2f} to {high:.2f})", f"≥ {least}×",
                             "met" if mid >= least else "**missed**"])
            else:
                rows.append([what, why_not(result, mine, peer, s), f"≥ {least}×", "not measured"])
        rows += one_query(name, result, mine, precision, goal["one"])
    return rows


def one_query(name, result, mine, precision, most):
    found = result["runs"].get("one", {})
    peers = {n: statistics.median(v) for n, v in found.items() if not n.startswith("sie-") and v}
    if mine not in found or not peers:
        return []
    best = min(peers, key=peers.get)
    times = [a / b for a, b in zip(found[mine], found[best])]
    mid = statistics.median(times)
    return [[f"{name}: time of one short query, {mine} / {best}, the fastest peer",
             f"{mid:.2f}× ({min(times):.2f} to {max(times):.2f})", f"≤ {most}×",
             "met" if mid <= most else "**missed**"]]


def why_not(result, mine, peer, s):
    if mine in result["not_served"]:
        return "not served yet"
    for engine in (mine, peer):
        if engine in result["failed"]:
            return f"{engine}: {result['failed'][engine]}"[:120]
    return f"{peer if mine in result['runs'].get(s, {}) else mine} was not raced on them"


def cell(values, form="{:,.0f}"):
    return form.format(statistics.median(values)) if values else "–"


def share(result, s, name):
    """Median share of the most FMAs that the machine did in any round of the shape."""
    rates, most = result["runs"][s].get(name), roof(result)
    if not rates or not most:
        return math.nan
    return statistics.median(rates) * result["flop"][s] / result["tokens"][s] / (most * 1e9)


def roof(result):
    return max((p for values in result["peak_gflops"].values() for p in values if p), default=0)


def answer(told):
    if "score" in told:
        return f"scores ±{told['score']:.1e} (they spread by {told['spread']:.1e})"
    return f"{told['cosine']:.6f}, norm ±{told['norm']:.1e}"


def engines_table(result):
    runs, sets = result["runs"], list(result["runs"])
    names = dict.fromkeys(n for s in sets for n in runs[s])
    rows = []
    for n in names:
        speeds = [cell(runs[s].get(n, []), "{:,.1f}" if s == "one" else "{:,.0f}") for s in sets]
        told = result["answers"].get(n)
        setting = result["settings"].get(n, {}).get("mixed" if "mixed" in sets else sets[0], {})
        rows.append([n, *speeds, answer(told) if told else "not compared",
                     ", ".join(f"{k} {v}" for k, v in setting.items() if k != "precision")])
    return table(["engine", *(TITLES[s] for s in sets), "smallest cosine, norm", "settings"], rows)


def ratios_table(result):
    runs, sets, rows = result["runs"], list(result["runs"]), []
    mine = [n for n in dict.fromkeys(n for s in sets for n in runs[s]) if n in ("sie-fp32", "sie-bf16")]
    others = dict.fromkeys(n for s in sets for n in runs[s] if n not in mine)
    for a in mine:
        for b in others:
            cells = []
            for s in sets:
                both = a in runs[s] and b in runs[s]
                cells.append("{:.2f}× ({:.2f} to {:.2f})".format(*ratio(runs, s, a, b)) if both else "–")
            rows.append([f"{a} / {b}", *cells])
    return table(["times as fast", *(TITLES[s] for s in sets)], rows) if rows else ""


def predicted_table(name, result):
    """What was predicted and what came."""
    row, rows = archshapes.ROWS[name], []
    for s in result["runs"]:
        if s == "one":
            continue
        for n in result["runs"][s]:
            reached = share(result, s, n)
            wanted = row["share"] if n == "sie-fp32" and s in ("passage", "rerank") else None
            if not math.isnan(reached):
                rows.append([f"{n}, {TITLES[s]}: share of the FMAs", f"{wanted:.0%}" if wanted else "–",
                             f"{reached:.0%}"])
        guess, runs = row["ratio"].get(s), result["runs"][s]
        if guess and "sie-fp32" in runs and "transformers-fp32" in runs:
            rows.append([f"sie-fp32 / transformers-fp32, {TITLES[s]}", f"{guess:.2f}×",
                         f"{ratio(result['runs'], s, 'sie-fp32', 'transformers-fp32')[0]:.2f}×"])
    return table(["", "predicted", "came"], rows) if rows else ""


def shape_text(name, of):
    row = archshapes.ROWS[name]
    parts = [f"## {name}"]
    if "model" in of:
        made = of["model"]
        first, last = made["entropy_first_last"]
        whole = archshapes.size(row, "num_hidden_layers")
        blocks = f"{made['layers']} of {whole} blocks" if made["layers"] != whole else f"{whole} blocks"
        parts.append(
            f"Shape of {row['source']}{', ' + row['note'] if 'note' in row else ''}; {blocks}, "
            f"{made['parameters'] / 1e6:.0f} M weights, {made['linear_flop_per_token'] / 1e6:.0f} MFLOP a "
            f"token in linear layers; entropy of attention in the first and the last block "
            f"{first:.2f} and {last:.2f} of the uniform one's.")
    if "left_out" in of:
        return "\n\n".join([*parts, f"**Not measured**: {of['left_out']}."])
    for threads, result in of["threads"].items():
        n = result["texts"]
        texts = ", ".join(f"{TITLES[s].split(',')[0]} {n[s]} × {t / n[s]:,.0f} tokens"
                          for s, t in result["tokens"].items())
        peaks = [p for values in result["peak_gflops"].values() for p in values if p]
        parts.append(f"### {name}, {threads} thread{'s' if threads != '1' else ''}\n\n{texts}. FMAs alone: " +
                     (f"{max(peaks):.0f} GFLOP/s at most, {min(peaks):.0f} at least." if peaks
                      else "not measured."))
        parts += [f"**Not served yet** ({n}): {why}" for n, why in result["not_served"].items()]
        if any(result["runs"].values()):
            parts += [engines_table(result), ratios_table(result), predicted_table(name, result)]
        parts += [f"Left out, {n}: {why}" for n, why in result["failed"].items()]
    return "\n\n".join(p for p in parts if p)


def state(of):
    """One line on what became of a shape."""
    if "left_out" in of:
        return "not measured"
    first = next(iter(of["threads"].values()))
    if first["not_served"]:
        return "not served yet"
    mine = ours(first["answers"])
    if not mine:
        why = "; ".join(f"{n}: {w}" for n, w in first["failed"].items() if n.startswith("sie"))
        return f"failed: {why[:200]}"
    return "served"


def flop(of):
    return f"{of['model']['linear_flop_per_token'] / 1e6:.0f} M" if "model" in of else "–"


def markdown(record):
    told, shapes = record["about"], record["shapes"]
    kind = told["class"]
    versions = {}
    for of in shapes.values():
        for result in of.get("threads", {}).values():
            versions |= result.get("versions", {})
    rows = []
    for name, of in shapes.items():
        for threads, result in list(of.get("threads", {}).items())[:1]:
            rows += held(name, result, kind)
    left = [n for n in archshapes.ROWS if n not in shapes]
    parts = [
        f"Class {kind}; bf16 instructions: {', '.join(told['bf16_instructions'])}. {told['rounds']} rounds "
        f"in turns. {', '.join(f'{k} {v}' for k, v in sorted(versions.items()))}. Random weights, one "
        "byte-level BPE blown up to each vocabulary. Real tokens a second, medians, tokenising included; "
        "settings are those on mixed lengths.",
        table(["shape", "ours", "FLOP a token, linear"],
              [[n, state(of), flop(of)] for n, of in shapes.items()] +
              [[n, "not asked for in this run", "–"] for n in left]),
        "What is wanted (first number of threads):",
        table(["what", "measured", "wanted", ""], rows) if rows else "Nothing was measured that has a goal.",
    ]
    no_goal = [p for p in ("fp32", "bf16") if (kind, p) not in GOALS]
    if no_goal:
        why = "; the engine computes bf16 with AMX alone" if "bf16" in no_goal else ""
        parts.append(f"No goal for this class: {', '.join(no_goal)}{why}. Ratios to bf16 peers are shown, "
                     "and nothing is held against them.")
    if not told["also"]:
        parts.append("Pruning of the last block on and off: not measured in this run; "
                     "`--also LABEL=BINARY` races a build without it.")
    parts.append("On a GPU: not measured.")
    parts += [shape_text(n, of) for n, of in shapes.items()]
    return "\n\n".join(parts) + "\n"
