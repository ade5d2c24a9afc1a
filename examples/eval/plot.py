#!/usr/bin/env python3
"""Draws results of eval as SVG: error against bits, or recall against length. Needs nothing but Python.

    eval --text FILE ... --json > text.json;  eval --retrieval ... --json > retrieval.json
    examples/eval/plot.py text.json [more.json...] --out error.svg
    examples/eval/plot.py retrieval.json [more.json...] --out recall.svg

A text gives one point for each policy: --figure (kl_mean, logit_error, added_loss, ...) on a logarithmic axis against bits
per value, with its sampling error; policies that nothing beats at their bits are joined by a line. Retrieval gives one line
for each policy: accuracy, or another --figure, against the length of the texts. --rows REGEX chooses among the policies.
Figures are comparable only with the same window, pins and prefill, so results with others are refused.
"""
import argparse
import json
import math
import re
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 1060, 560
LEFT, RIGHT, TOP, BOTTOM = 80, 400, 50, 60  # margins; the legend is on the right
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf", "#7f7f7f", "#bcbd22"]
DASHES = ["", "7 4", "2 3", "10 3 2 3"]
ERRORS = {"kl_mean": "kl_error", "top1_agreement": "top1_error"}  # the others are <figure>_error
WORDS = {"kl_mean": "KL divergence to the f32 cache (nats)", "accuracy": "accuracy of the answers' tokens",
         "logit_error": "relative error of the logits", "key_error": "relative error of the keys",
         "value_error": "relative error of the values", "added_loss": "added loss (nats per token)",
         "top1_agreement": "same likeliest token as the f32 cache"}


def read(paths):
    """The rows of all files, what they have in common as words, and whether they are of retrieval."""
    rows, settings = [], set()
    for path in paths:
        with open(path) as file:
            results = json.load(file)
        is_retrieval = "texts" in results
        settings.add((is_retrieval, f"window {results['window']}, {results['pinned']} pinned, prefill {results['prefill']}"))
        rows += results["results"]
    if len(settings) > 1:
        sys.exit(f"the files differ in what they measured: {sorted(words for _, words in settings)}")
    is_retrieval, words = settings.pop()
    return rows, words, is_retrieval


class Axis:
    """From numbers to places between two ends of the picture; ticks at round numbers."""

    def __init__(self, numbers, low_end, high_end, logarithmic=False):
        self.logarithmic = logarithmic
        self.low_end, self.high_end = low_end, high_end
        places = [self.scaled(x) for x in numbers]
        margin = 0.05 * (max(places) - min(places)) or 0.5
        self.low, self.high = min(places) - margin, max(places) + margin

    def scaled(self, number):
        return math.log10(number) if self.logarithmic else number

    def place(self, number):
        share = (self.scaled(number) - self.low) / (self.high - self.low)
        return self.low_end + min(max(share, 0), 1) * (self.high_end - self.low_end)

    def ticks(self):
        if self.logarithmic:
            powers = range(math.floor(self.low), math.ceil(self.high) + 1)
            steps = (1, 2, 5) if self.high - self.low < 4 else (1,)
            ticks = [d * 10.0 ** e for e in powers for d in steps]
        else:
            raw = (self.high - self.low) / 8
            power = 10.0 ** math.floor(math.log10(raw))
            step = next(power * d for d in (1, 2, 5, 10) if power * d >= raw)
            ticks = [i * step for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [t for t in ticks if self.low <= self.scaled(t) <= self.high]


def text(x, y, content, anchor="start", size=12, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{extra}>{escape(content)}</text>'


def line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def polyline(points, style):
    return f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" {style}/>'


def draw_axes(x, y, x_words, y_words):
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    out = []
    for t in x.ticks():
        out.append(line(x.place(t), TOP, x.place(t), bottom, 'stroke="#eee"'))
        out.append(text(x.place(t), bottom + 18, f"{t:g}", "middle"))
    for t in y.ticks():
        out.append(line(LEFT, y.place(t), right, y.place(t), 'stroke="#ddd"'))
        out.append(text(LEFT - 8, y.place(t) + 4, f"{t:.6g}", "end"))
    out.append(text((LEFT + right) / 2, HEIGHT - 18, x_words, "middle", 13))
    middle = (TOP + bottom) / 2
    out.append(text(18, middle, y_words, "middle", 13, f' transform="rotate(-90 18 {middle:.1f})"'))
    return out


def ends(point, logarithmic):
    """One standard deviation up and one down; a logarithmic axis does not reach down to zero."""
    _, value, error = point
    return value + error, max(value - error, value / 10) if logarithmic else value - error


def draw_point(x, y, point, colour):
    number, value, _ = point
    up, down = ends(point, y.logarithmic)
    return [line(x.place(number), y.place(up), x.place(number), y.place(down), f'stroke="{colour}"'),
            f'<circle cx="{x.place(number):.1f}" cy="{y.place(value):.1f}" r="3.5" fill="{colour}"/>']


def draw_legend(names, styles):
    out = []
    step = min(19, (HEIGHT - TOP - 10) / max(1, len(names)))
    for i, name in enumerate(names):
        y = TOP + 6 + i * step
        colour, dash = styles[name]
        out.append(line(WIDTH - RIGHT + 15, y, WIDTH - RIGHT + 45, y, f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'))
        out.append(f'<circle cx="{WIDTH - RIGHT + 30}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')
        out.append(text(WIDTH - RIGHT + 51, y + 4, name, size=11))
    return out


def unbeaten(points):
    """The points that no other one beats in both bits and figure, by bits."""
    out = []
    for point in sorted(points):
        if not out or point[1] < out[-1][1]:
            out.append(point)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    parser.add_argument("--figure")
    parser.add_argument("--rows", type=re.compile, default=re.compile(""))
    parser.add_argument("--out", default="eval.svg")
    arguments = parser.parse_args()
    rows, settings, is_retrieval = read(arguments.results)
    figure = arguments.figure or ("accuracy" if is_retrieval else "kl_mean")
    error = ERRORS.get(figure, f"{figure}_error")
    series = {}  # policy: [(bits or length, figure, its error)]
    for row in rows:
        number = row["length"] if is_retrieval else row["bits_per_value"]
        wanted = number != "all" and row["depth"] == "all" if is_retrieval else row["policy"] != "f32"
        if wanted and row.get(figure) is not None and arguments.rows.search(row["policy"]):
            series.setdefault(row["policy"], []).append((number, row[figure], row.get(error) or 0))
    logarithmic = figure not in ("accuracy", "added_accuracy", "added_loss", "top1_agreement")
    if logarithmic:  # which nothing without an error can stand on
        series = {name: [p for p in points if p[1] > 0] for name, points in series.items()}
        series = {name: points for name, points in series.items() if points}
    if not series:
        print(f"no row has {figure}", file=sys.stderr)
        return 1

    points = [p for some in series.values() for p in some]
    x = Axis([p[0] for p in points], LEFT, WIDTH - RIGHT)
    y = Axis([v for p in points for v in ends(p, logarithmic)], HEIGHT - BOTTOM, TOP, logarithmic)
    names = sorted(series, key=lambda name: -series[name][-1][1])  # in the order of the points, so that each is near its own
    styles = {name: (COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)]) for i, name in enumerate(names)}
    title = ("Facts asked again" if is_retrieval else "Next token's prediction") + f"; {settings}"
    body = [text(LEFT, 28, title, size=15)]
    body += draw_axes(x, y, "tokens of the text" if is_retrieval else "bits per folded value", WORDS.get(figure, figure))
    if not is_retrieval and logarithmic:
        body.append(polyline([(x.place(p[0]), y.place(p[1])) for p in unbeaten(points)], 'stroke="#999" stroke-dasharray="4 3"'))
    for name in names:
        colour, dash = styles[name]
        if is_retrieval:
            places = [(x.place(p[0]), y.place(p[1])) for p in sorted(series[name])]
            body.append(polyline(places, f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'))
        for point in series[name]:
            body += draw_point(x, y, point, colour)
    body += draw_legend(names, styles)
    with open(arguments.out, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
                   f'height="{HEIGHT}" font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n')
        file.write("\n".join(body) + "\n</svg>\n")
    print(arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
