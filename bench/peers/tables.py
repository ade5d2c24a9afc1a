#!/usr/bin/env python3
"""Tables from the JSON of kvaxis_peers and kvaxis_peers_avx2: medians over the repetitions of each row.

    kvaxis_peers --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true --benchmark_min_time=0.05 \\
                 --benchmark_out=native.json --benchmark_out_format=json
    bench/peers/tables.py native.json [avx2.json]

A time is in ns per token and kv head; after it in brackets, how many times as long as ours that is.
"""
import os
import sys

sys.dont_write_bytecode = True  # no folder of it in the sources
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tables import DEFAULT, INT4, Results, number, ratio, table  # noqa: E402

INT8 = "k:int8-channel64-pre,v:int8-token64"
F16 = "k:f16,v:f16"
EQUAL = ["f16", "q8_0", "q4_0"]
UNEQUAL = ["q8_0,f16", "q4_0,f16"]
NAMES = {"ggml_flash": "flash", "ggml_mul_mat": "products", "ggml_flash_by_head": "flash, by head",
         "ggml_grouped": "products, by head"}
# What llama.cpp offers: without flash attention it refuses quantized values.
LLAMA = [("ggml_flash", t) for t in EQUAL] + [("ggml_mul_mat", t) for t in ["f16"] + UNEQUAL]
ALL = LLAMA + [("ggml_mul_mat", t) for t in ("q8_0", "q4_0")] + [("ggml_flash_by_head", t) for t in EQUAL] + \
    [("ggml_grouped", t) for t in EQUAL + UNEQUAL]


class Run:
    def __init__(self, path):
        self.results = Results(path)
        self.theirs = self.results.context["ggml"].split()[-1]
        self.ours = self.results.context["our instruction set"]

    def kvaxis(self, policy, heads, ctx):
        return self.results.get("ns_per_key", "attend", self.ours, policy, heads, ctx)

    def ggml(self, path, types, heads, ctx, counter="ns_per_key"):
        return self.results.get(counter, path, self.theirs, types, heads, ctx)

    def best(self, choices, heads, ctx):
        """(ns, words) of the fastest."""
        measured = [(self.ggml(path, types, heads, ctx), f"{NAMES[path]}, {types}") for path, types in choices]
        return min((m for m in measured if m[0] is not None), default=(None, ""))


def against(time, ours, words=""):
    return f"{number(time)} ({ratio(time, ours)})" + (f" {words}" if words else "")


def speed_ups(run, ctx):
    header = ["query heads", "kvaxis", "flash, f16", "flash, q8_0", "flash, q4_0", "best of llama.cpp's",
              "best of all"]
    for name, policy in (("int4", DEFAULT), ("int8", INT8), ("f16", F16)):
        rows = []
        for heads in (1, 4, 8):
            ours = run.kvaxis(policy, heads, ctx)
            cells = [against(run.ggml("ggml_flash", types, heads, ctx), ours) for types in EQUAL]
            cells += [against(time, ours, words) for time, words in (run.best(c, heads, ctx) for c in (LLAMA, ALL))]
            rows.append([str(heads), f"{number(ours)} ({name})"] + cells)
        table(header, rows)


def every_path(run, ctx):
    limits = {16: F16, 8.5: INT8, 4.5: INT4}
    rows = []
    for path, types in ALL:
        times = [run.ggml(path, types, heads, ctx) for heads in (1, 4, 8)]
        if times[0] is None:
            continue
        bits = run.ggml(path, types, 1, ctx, "bits_per_value")
        limit = run.results.get("ns_per_key", "read_limit", run.ours, limits.get(bits, ""), 1, ctx)
        offered = "yes" if (path, types) in LLAMA else "no"
        rows.append([NAMES[path], types, offered, number(bits, 2), *map(number, times), number(limit),
                     f"{run.ggml(path, types, 4, ctx, 'error'):.0e}", f"{run.ggml(path, types, 4, ctx, 'loss'):.1e}"])
    table(["path", "keys, values", "in llama.cpp", "bits", "1 query head", "4", "8", "read limit", "error", "loss"], rows)


def prefill(run):
    rows = []
    for heads in (1, 4, 8):
        int4, f16 = (run.results.get("ns_per_key", "prefill", run.ours, policy, heads) for policy in (DEFAULT, F16))
        if int4 is None:
            continue
        theirs = [run.ggml(path + "_prefill", "f16", heads, 4096)
                  for path in ("ggml_flash", "ggml_mul_mat", "ggml_flash_by_head")]
        rows.append([str(heads)] + [number(x and x / 512, 2) for x in [int4, f16] + theirs] +
                    [ratio(min(t for t in theirs if t), int4)])
    table(["query heads", "kvaxis, int4", "kvaxis, f16", "flash, f16", "products, f16", "flash, by head, f16",
           "the best of these over int4"], rows)


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 2
    for path in sys.argv[1:]:
        run = Run(path)
        c = run.results.context
        print(f"## {c.get('cpu', 'unknown CPU')}; kvaxis: {run.ours}; ggml {c['ggml']}\n")
        for title, ctx in (("from memory, 65536 tokens", 65536), ("from the caches, 4096 tokens", 4096)):
            print(f"### One query token, {title}\n")
            speed_ups(run, ctx)
            every_path(run, ctx)
        print("### 512 query tokens at the end of 4096 (ns per token, kv head and query token)\n")
        prefill(run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
