"""Joins the steps' results into one file and one picture."""

import html
import os

import host
import plan
from measures import median
from results import WARNING, put

STEPS = ("doctor", "prepare", "headline", "latency", "load", "overload", "memory", "quality", "compiled")
OURS, PEER, INK = "#2f6fb0", "#9aa5b1", "#222"


def join(results):
    facts = host.describe(host.bundle_text(os.environ.get("SIE_GPU_BUNDLE", ".")))
    missed = {step: results.load(f"missed-{step}") for step in STEPS}
    record = {
        "what": "gpu-check: models and server",
        "rehearsal": results.rehearsal,
        **({"WARNING": WARNING} if results.rehearsal else {}),
        "about": facts,
        "bars": {"cosine": plan.COSINE, "norm": plan.NORM, "device_bytes": "equal",
                 "rss_growth_bytes": plan.RSS_BYTES},
        # A step without an entry in missed did not end: it was stopped, or never ran.
        "passed": [s for s in STEPS if missed[s] == []],
        "missed": {s: m for s, m in missed.items() if m},
        "not_finished": [s for s in STEPS if missed[s] is None],
    }
    return record | {s: found for s in STEPS if (found := results.load(s)) is not None}


def write(results, folder):
    record = join(results)
    name = host.slug(record["about"])
    put(folder / f"{name}.json", record)
    (folder / f"{name}.svg").write_text(picture(record))
    print(
        f"# {folder / name}.json and .svg: {len(record['passed'])} steps passed, "
        f"{len(record['missed'])} missed something, {len(record['not_finished'])} did not end"
    )
    return 0


def value(rows, key):
    """The median of a key over rounds; None where nothing was measured, the word itself in a
    rehearsal."""
    values = [row[key] for row in rows if key in row]
    if not values or isinstance(values[0], str):
        return values[0] if values else None
    return median(values)


def panels(record):
    """(title, [(label, value)]) of each panel, from what there is."""
    for model, found in record.get("load", {}).items():
        for texts, by in found["sets"].items():
            rows = [(name, value(runs, "tokens_per_second")) for name, runs in by.items()]
            yield f"{model}, {named(texts)}: tokens/s", rows, "{:,.0f}"
    turned = record.get("compiled", {})
    for texts, by in turned.get("sets", {}).items():
        rows = [(f"sentence-transformers {name}", value(runs, "tokens_per_second"))
                for name, runs in by.items()]
        yield f"{turned['model']}, {named(texts)}, torch.compile: tokens/s", rows, "{:,.0f}"
    for model, found in record.get("latency", {}).items():
        for texts, by in found.items():
            rows = [(f"{name}, {q}", value(runs, f"{q}_ms")) for name, runs in by.items()
                    for q in ("p50", "p99")]
            yield f"{model}, one text of {texts.removeprefix('one-')} tokens: ms", rows, "{:.2f}"


def named(texts):
    return f"{texts} tokens" if texts.isdigit() else texts


def picture(record):
    """Bars by panel, three panels a line, ours in colour."""
    shown = list(panels(record))
    width, bar, left, columns = 460, 15, 210, 3
    tall = max([len(rows) for _, rows, _ in shown], default=0) * bar + 40
    lines = -(-len(shown) // columns)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * columns}" height="{60 + lines * tall}" '
        f'font-family="sans-serif" font-size="10" fill="{INK}">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="22" font-size="15">{html.escape(title(record))}</text>',
        '<text x="12" y="40">medians over the rounds, in turns on the same card; ours over HTTP, '
        "sentence-transformers bf16 SDPA in process</text>",
    ]
    for i, (heading, rows, form) in enumerate(shown):
        x, y = i % columns * width + 12, 60 + i // columns * tall
        out.append(
            f'<text x="{x}" y="{y + 10}" font-size="11" font-weight="bold">{html.escape(heading)}</text>')
        longest = max([v for _, v in rows if isinstance(v, float)], default=1.0) or 1.0
        for k, (label, v) in enumerate(rows):
            at = y + 18 + k * bar
            size = (v / longest if isinstance(v, float) else 1.0) * (width - left - 75)
            colour = PEER if label.startswith("sentence") else OURS
            text = form.format(v) if isinstance(v, float) else (v or "–")
            out.append(
                f'<text x="{x + left - 6}" y="{at + 10}" text-anchor="end">{html.escape(label)}</text>')
            out.append(
                f'<rect x="{x + left}" y="{at + 1}" width="{size:.1f}" height="{bar - 4}" fill="{colour}"/>')
            out.append(f'<text x="{x + left + size + 4:.1f}" y="{at + 10}">{html.escape(text)}</text>')
    if record["rehearsal"]:
        out.append(
            f'<text x="40" y="{60 + lines * tall // 2}" font-size="64" fill="#c00" opacity="0.35" '
            'transform="rotate(-8)">REHEARSAL: nothing measured</text>'
        )
    return "\n".join(out + ["</svg>"]) + "\n"


def title(record):
    about = record["about"]
    return f"{about['card'].get('name')}, driver {about['card'].get('driver_version', '–')}, commit {about['commit'][:12]}, {about['date'][:10]}"
