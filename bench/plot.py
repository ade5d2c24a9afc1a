#!/usr/bin/env python3
"""Draws attention time against context as SVG from the JSON of kvaxis_bench or kvaxis_peers. Needs nothing but Python.

    kvaxis_bench --contexts --benchmark_repetitions=3 --benchmark_min_time=0.05 \\
                 --benchmark_out=contexts.json --benchmark_out_format=json
    bench/plot.py contexts.json [more.json...] [--heads 4] [--rows REGEX] [--out attention.svg]

One line for every kind, instruction set and policy that was measured at two contexts or more: medians over the repetitions,
ns per token and kv head, at --heads query heads per kv head. --rows chooses among the names <kind>/<isa>/<policy>.
"""
import argparse
import math
import re
import statistics
import sys
from xml.sax.saxutils import escape

sys.dont_write_bytecode = True  # no folder of it in the sources
from tables import Results  # noqa: E402

WIDTH, HEIGHT = 1060, 560
LEFT, RIGHT, TOP, BOTTOM = 70, 400, 50, 60  # margins; the legend is on the right
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf", "#7f7f7f", "#bcbd22"]
DASHES = ["", "7 4", "2 3", "10 3 2 3", "14 4", "5 2 2 2 2 2"]
MEMORY_CONTEXT = 65536  # see bench/common.hpp


def read_series(paths, heads, rows):
    """{(kind, isa, policy): {context: ns}}, and what the machines were."""
    series, machines = {}, []
    for path in paths:
        results = Results(path)
        machine = results.context.get("cpu", "unknown CPU")
        if machine not in machines:
            machines.append(machine)
        for (kind, isa, policy, h, dim, ctx), repeats in results.rows.items():
            # No query takes part in reading, so one query head stands for all there.
            wanted = h == ("1" if kind == "read_limit" else str(heads)) and dim == "128"
            if wanted and rows.search(f"{kind}/{isa}/{policy}") and "ns_per_key" in repeats[0]:
                ns = statistics.median(row["ns_per_key"] for row in repeats)
                series.setdefault((kind, isa, policy), {})[int(ctx)] = ns
    return {name: points for name, points in series.items() if len(points) > 1}, machines


def words(tokens):
    return f"{tokens // 1024}K"


class Axes:
    def __init__(self, series):
        contexts = [c for points in series.values() for c in points]
        times = [t for points in series.values() for t in points.values()]
        self.low_x, self.high_x = math.log2(min(contexts)), math.log2(max(contexts))
        self.low_y, self.high_y = math.log10(min(times)) - 0.05, math.log10(max(times)) + 0.05

    def x(self, context):
        return LEFT + (math.log2(context) - self.low_x) / (self.high_x - self.low_x) * (WIDTH - LEFT - RIGHT)

    def y(self, ns):
        return HEIGHT - BOTTOM - (math.log10(ns) - self.low_y) / (self.high_y - self.low_y) * (HEIGHT - TOP - BOTTOM)

    def context_ticks(self):
        return [2 ** i for i in range(math.ceil(self.low_x), math.floor(self.high_x) + 1)]

    def time_ticks(self):
        ticks = [d * 10 ** e for e in range(-1, 6) for d in (1, 2, 5)]
        return [t for t in ticks if self.low_y <= math.log10(t) <= self.high_y]


def text(x, y, content, anchor="start", size=12, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{extra}>{escape(content)}</text>'


def line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def draw_axes(axes):
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    out = []
    for c in axes.context_ticks():
        out.append(line(axes.x(c), TOP, axes.x(c), bottom, 'stroke="#eee"'))
        out.append(text(axes.x(c), bottom + 18, words(c), "middle"))
    for t in axes.time_ticks():
        out.append(line(LEFT, axes.y(t), right, axes.y(t), 'stroke="#ddd"'))
        out.append(text(LEFT - 8, axes.y(t) + 4, f"{t:g}", "end"))
    if LEFT < axes.x(MEMORY_CONTEXT) < right:
        out.append(line(axes.x(MEMORY_CONTEXT), TOP, axes.x(MEMORY_CONTEXT), bottom, 'stroke="#999" stroke-dasharray="3 3"'))
        out.append(text(axes.x(MEMORY_CONTEXT) + 5, TOP + 13, "from memory", size=11))
    out.append(text((LEFT + right) / 2, HEIGHT - 18, "tokens in the cache", "middle", 13))
    middle = (TOP + bottom) / 2
    out.append(text(18, middle, "ns per token and kv head", "middle", 13, f' transform="rotate(-90 18 {middle:.1f})"'))
    return out


def draw_series(axes, series):
    policies = list(dict.fromkeys(policy for kind, isa, policy in series))
    kernels = list(dict.fromkeys((kind, isa) for kind, isa, policy in series))
    # The legend in the order of the lines' right ends, so that each is near its line.
    ordered = sorted(series, key=lambda name: -series[name][max(series[name])])
    step = min(19, (HEIGHT - TOP - 10) / max(1, len(ordered)))
    out = []
    for i, name in enumerate(ordered):
        kind, isa, policy = name
        colour = COLOURS[policies.index(policy) % len(COLOURS)]
        style = (f'stroke="{colour}" stroke-width="2" fill="none" '
                 f'stroke-dasharray="{DASHES[kernels.index((kind, isa)) % len(DASHES)]}"')
        points = [(axes.x(c), axes.y(t)) for c, t in sorted(series[name].items())]
        out.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" {style}/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
        y = TOP + 6 + i * step
        out.append(line(WIDTH - RIGHT + 15, y, WIDTH - RIGHT + 45, y, style))
        out.append(text(WIDTH - RIGHT + 51, y + 4, f"{kind}, {isa}, {policy}", size=11))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rows", type=re.compile, default=re.compile(""))
    parser.add_argument("--out", default="attention.svg")
    arguments = parser.parse_args()
    series, machines = read_series(arguments.results, arguments.heads, arguments.rows)
    if not series:
        print("no row was measured at two contexts or more", file=sys.stderr)
        return 1
    axes = Axes(series)
    title = f"Attention of one token, {arguments.heads} query heads per kv head, one thread; {', '.join(machines)}"
    body = [text(LEFT, 28, title, size=15)] + draw_axes(axes) + draw_series(axes, series)
    with open(arguments.out, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
                   f'height="{HEIGHT}" font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n')
        file.write("\n".join(body) + "\n</svg>\n")
    print(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
