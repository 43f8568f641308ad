"""One table and one picture of what was timed.

    report.py FOLDER BENCH.jsonl [TORCH.jsonl …]

Writes FOLDER/kernels.md (every case: ours, the peers', the ratio to the best peer) and
FOLDER/kernels.svg (share of the floor by case; ours as bars, peers as marks). Needs nothing but
Python.
"""

import html
import json
import os
import sys

COLOURS = {"cublaslt": "#d08700"}
OFF = 0.15  # of what was predicted
OURS, TORCH, INK, GRID = "#2f6fb0", "#b03060", "#222", "#ddd"


def read(paths):
    head, cases = {}, {}
    for path in paths:
        if not os.path.exists(path):
            continue
        with open(path) as file:
            for line in map(json.loads, filter(str.strip, file)):
                if "name" not in line:
                    head.update(line)
                elif line["status"] == 0:
                    cases.setdefault(line["name"], {})[line["impl"]] = line
    return head, {name: by for name, by in cases.items() if "sie" in by}


def short(name):
    return " ".join(part.split("=", 1)[1] for part in name.split("/")[1:])


def prediction(line):
    """What was predicted, in µs, and how far what came is off."""
    predicted = line.get("predicted_us")
    if not predicted:
        return ["", ""]
    off = line["us"]["p50"] / predicted - 1
    return [f"{predicted:.2f}", f"{off:+.0%}" if abs(off) <= OFF else f"**{off:+.0%}**"]


def off(cases):
    """Every case beside its prediction, and then by itself what is further off than it may be."""
    rows = [(name, by["sie"]["us"]["p50"], by["sie"].get("predicted_us")) for name, by in cases.items()]
    rows = [row for row in rows if row[2]]
    lines = [f"# {short(name)}: {us:.2f} us, predicted {predicted:.2f}" for name, us, predicted in rows]
    far = [(us / predicted - 1, name) for name, us, predicted in rows if abs(us / predicted - 1) > OFF]
    lines.append(f"# {len(far)} of {len(rows)} are more than {OFF:.0%} off what was predicted")
    return lines + [f"#   {share:+.0%} {short(name)}" for share, name in sorted(far, key=lambda f: -abs(f[0]))]


def table(head, cases):
    lines = [
        f"# Kernels on {head['gpu']}",
        "",
        f"Driver {head['driver']}, CUDA runtime {head['runtime']}, cuBLASLt {head['cublaslt']}.",
        "Ceilings of the same run: copy {gbs:.0f} GB/s, bf16 {bf16_tflops:.0f} TFLOP/s, fp8 {fp8_tflops:.0f} TFLOP/s, "
        "a launch in a graph {launch_us:.2f} µs.".format(**head["ceilings"]),
        "",
        "Predicted by the cost model (kernels/cuda/cost.h) before any card ran; more than "
        f"{OFF:.0%} off is in bold and wants its reason in bench/results/NOTES.md.",
        "",
        "| case | µs | predicted | off | GB/s | TFLOP/s | bound | % of floor | noise % | best peer | its µs | ours is |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | --- | ---: | ---: |",
    ]
    for name, by in cases.items():
        our, peers = by["sie"], [line for impl, line in by.items() if impl != "sie"]
        best = min(peers, key=lambda line: line["us"]["p50"], default=None)
        row = [short(name), f"{our['us']['p50']:.2f}", *prediction(our), f"{our['gbs']:.0f}",
               f"{our['tflops']:.1f}", our["bound"], f"{our['pct_floor']:.0f}",
               f"{our['pct_noise']:.1f}"]
        row += [best["impl"], f"{best['us']['p50']:.2f}",
                f"{best['us']['p50'] / our['us']['p50']:.2f}×"] if best else ["", "", ""]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def picture(head, cases):
    row, left, width, top = 16, 380, 600, 46
    height = top + row * len(cases) + 30
    scale = lambda percent: left + min(percent, 120) / 120 * width
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 60}" height="{height}" '
        f'font-family="sans-serif" font-size="10" fill="{INK}">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="18" font-size="14">Share of the floor, {html.escape(head["gpu"])}</text>',
        f'<text x="10" y="34">bars: ours · <tspan fill="{COLOURS["cublaslt"]}">◆ cuBLASLt</tspan> · '
        f'<tspan fill="{TORCH}">◆ PyTorch</tspan> · 100 %: what the card\'s own ceilings allow</text>',
    ]
    for percent in range(0, 121, 20):
        x = scale(percent)
        out.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{height - 24}" stroke="{GRID}"/>')
        out.append(f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle">{percent} %</text>')
    for i, (name, by) in enumerate(cases.items()):
        y = top + i * row
        share = by["sie"]["pct_floor"]
        out.append(f'<text x="{left - 6}" y="{y + 11}" text-anchor="end">{html.escape(short(name))}</text>')
        out.append(
            f'<rect x="{left}" y="{y + 3}" width="{scale(share) - left:.1f}" height="{row - 6}" fill="{OURS}"/>')
        out.append(f'<text x="{left + width + 8}" y="{y + 11}">{share:.0f} %</text>')
        for impl, line in by.items():
            if impl != "sie":
                x, middle = scale(line["pct_floor"]), y + row / 2
                out.append(
                    f'<path d="M{x - 4:.1f} {middle} l4 -4 l4 4 l-4 4 z" fill="{COLOURS.get(impl, TORCH)}"/>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder, head_and_cases = sys.argv[1], read(sys.argv[2:])
    head, cases = head_and_cases
    if not cases:
        sys.exit("report: nothing was timed")
    os.makedirs(folder, exist_ok=True)
    for name, text in (("kernels.md", table(head, cases)), ("kernels.svg", picture(head, cases))):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    print(f"# {len(cases)} cases in {folder}/kernels.md and kernels.svg")
    for line in off(cases):
        print(line)


if __name__ == "__main__":
    main()
