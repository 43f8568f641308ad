"""Turns a record into a markdown table, a plot and a JSON file."""

import math

import records
from goals import goals, middle, name_of, pair, single
from measures import SETS
from records import table

VERDICTS = {True: "met", False: "**missed**", None: "not measured"}


def same_precision(record):
    """Rows of ratios of ours to every peer of the same precision."""
    rows = []
    runs = record["throughput"]
    for ours in (e for e in runs["passage"] if e.startswith("sie-")):
        for peer in (e for e in runs["passage"] if not e.startswith("sie-") and
                     e.endswith(ours.removeprefix("sie"))):
            cells = [pair(runs[s][ours], runs[s][peer]) for s in SETS]
            rows.append(
                [
                    f"{name_of(ours)} / {name_of(peer)}",
                    *(f"{mid:.2f}× ({low:.2f} to {high:.2f})" for mid, low, high in cells),
                ]
            )
    return rows


def number(value, form):
    return "–" if value is None or math.isnan(value) else form.format(value)


def markdown(record):
    about, failed = record["about"], record["failed"]
    sets = about["texts"]
    rows = []
    for engine in dict.fromkeys([*record["throughput"].get("passage", {}), *record["single"]]):
        speeds = [number(middle(record["throughput"].get(s, {}).get(engine, [])), "{:,.0f}") for s in SETS]
        setting = record["settings"].get(engine, {}).get("passage", {})
        rows.append(
            [
                name_of(engine),
                *speeds,
                number(single(record, engine, "p50_ms"), "{:.2f}"),
                number(single(record, engine, "p99_ms"), "{:.2f}"),
                number(record["quality"].get(engine, {}).get("min"), "{:.5f}"),
                ", ".join(f"{k} {v}" for k, v in setting.items() if k != "precision"),
            ]
        )
    parts = [
        f"# {about['cpu']}, class {record['class']}",
        f"{about['date']} · {about['threads']} threads · kernel {about['kernel']} · commit {about['commit']} · "
        f"`{about['command']}` · {about['rounds']} rounds{' · quick: a look, not a result' if about['quick'] else ''} · "
        f"load average at the start {about['load_at_start']:.1f}",
        f"{about['model']}; " + ", ".join(f"{k} {v}" for k, v in sorted(record["versions"].items())) +
        f", Python {about['python']}.",
        "Real tokens per second (special tokens counted, padding not), median; milliseconds for one short query. "
        "In process, except where HTTP is named.",
        table(
            [
                "engine",
                *(f"{s} (~{sets[s]['mean_tokens']:.0f})" for s in SETS),
                "one query p50",
                "p99",
                "min cosine",
                "settings on passages",
            ],
            rows,
        ),
        "Ratios at the same precision: medians of the ratios round by round (smallest to largest).",
        table(["", *SETS], same_precision(record)),
        "What it must reach:",
        table(["what", "measured", "wanted", ""], [[w, m, b, VERDICTS[ok]] for w, m, b, ok in goals(record)]),
    ]
    if record["http"]:
        rows = [
            [
                shape,
                name_of(n),
                number(middle([r["tokens_per_second"] for r in runs]), "{:,.0f}"),
                number(middle([r["p50_ms"] for r in runs]), "{:.1f}"),
                number(middle([r["p99_ms"] for r in runs]), "{:.1f}"),
                number(middle([100 * r["tokenize_share_p50"] for r in runs
                               if r.get("tokenize_share_p50") is not None]),
                       "{:.0f} %"),
                sum(r["refused"] for r in runs),
                sum(r["failed"] for r in runs),
            ]
            for shape, servers in record["http"].items()
            for n, runs in servers.items()
        ]
        parts += [
            "Over HTTP, the load generator on the same CPUs and its time not taken out. Tokenising before a batch: "
            "its share in the server's preprocess_ms and tokenization_ms together, median of the answers.",
            table(
                ["texts, clients × texts a request", "server", "tokens/s", "p50 ms", "p99 ms",
                 "tokenising before a batch", "refused", "failed"],
                rows,
            ),
        ]
    if failed:
        parts.append("Left out: " + "; ".join(f"{name_of(n)}: {why}" for n, why in failed.items()) + ".")
    return "\n\n".join(parts) + "\n"


def plot(record, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image

    engines = list(record["throughput"]["passage"])
    rows = max(len(engines), len(record["single"]))
    fig, axes = plt.subplots(1, 4, figsize=(16, 0.32 * rows + 1.6), width_ratios=(1, 1, 1, 1.15),
                             layout="constrained")

    def bars(ax, title, values, form):
        colours = ["#1b7f5c" if n.startswith("sie") else "#9aa5b1" for n in values]
        shown = ax.barh([name_of(n) for n in values], list(values.values()), color=colours)
        ax.bar_label(shown, fmt=form, padding=2, fontsize=8)
        ax.set_title(title, fontsize=10)
        ax.tick_params(labelsize=8)
        ax.set_xticks([])
        ax.margins(x=0.2, y=0.01)
        ax.invert_yaxis()
        ax.spines[["top", "right", "bottom"]].set_visible(False)

    for ax, s in zip(axes, SETS):
        mean = record["about"]["texts"][s]["mean_tokens"]
        speeds = {n: middle(record["throughput"][s][n]) for n in engines}
        bars(ax, f"tokens/s, {s} (~{mean:.0f} tokens)", speeds, "{:,.0f}")
        if ax is not axes[0]:
            ax.set_yticklabels([])
    bars(axes[3], "one short query, p50 ms", {n: single(record, n, "p50_ms") for n in record["single"]},
         "{:.2f}")
    about = record["about"]
    fig.suptitle(
        f"{about['model']}, {about['cpu']}, class {record['class']}, {about['threads']} threads, {about['date']}",
        fontsize=10,
    )
    fig.savefig(path, dpi=120)
    plt.close(fig)
    with Image.open(path) as drawn:
        few = drawn.convert("RGB").quantize(16, dither=Image.Dither.NONE)  # looks the same in two thirds of the bytes
    few.save(path, optimize=True)


def write(record, folder, cpu):
    """Writes the three files and returns the markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / f"{cpu}-{record['class']}"
    text = markdown(record)
    base.with_name(base.name + ".json").write_text(records.dumps(record), encoding="utf-8")
    base.with_name(base.name + ".md").write_text(text, encoding="utf-8")
    plot(record, base.with_name(base.name + ".png"))
    return text
