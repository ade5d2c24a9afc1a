#!/usr/bin/env python3
"""The tables of bench/README.md from the JSON of kvaxis_bench: medians over the repetitions of each row.

    kvaxis_bench --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true \\
                 --benchmark_out=results.json --benchmark_out_format=json
    bench/tables.py results.json
"""
import json
import re
import statistics
import sys

INT4 = "k:int4-channel64-pre,v:int4-token64"
DEFAULT = "k:int4-channel64-auto,v:int4-token64"
POLICIES = [INT4, DEFAULT, "k:int8-channel64-pre,v:int8-token64", "k:e4m3-channel64-pre,v:e4m3-token64", "k:f16,v:f16"]
ISAS = ("avx512_amx", "avx512_fp16", "avx512_vnni", "avx512", "avx2_vnni", "avx2", "neon_dot", "neon", "scalar")
NAIVE = ["O2", "O3-native", "O2-nibbles", "O3-native-nibbles", "O2-read-back", "O3-native-read-back"]
NAME = re.compile(r"(\w+)/([\w-]+)/(.+)/heads:(\d+)/dim:(\d+)/ctx:(\d+)")


class Results:
    def __init__(self, path):
        with open(path) as file:
            data = json.load(file)
        self.context = data["context"]
        runs = {}
        for row in data["benchmarks"]:
            if row.get("run_type") == "iteration" and not row.get("error_occurred"):
                runs.setdefault(row["name"].split("/repeats")[0], []).append(row)
        self.rows = {NAME.match(name).groups(): repeats for name, repeats in runs.items() if NAME.match(name)}

    def get(self, counter, kind, isa, policy=INT4, heads=1, ctx=4096, dim=128):
        """The median of a counter, or None where the row was not measured."""
        repeats = self.rows.get((kind, isa, policy, str(heads), str(dim), str(ctx)))
        if not repeats or counter not in repeats[0]:
            return None
        return statistics.median(row[counter] for row in repeats)

    def has(self, kind, isa):
        return any(key[:2] == (kind, isa) for key in self.rows)


def number(x, digits=1):
    return "-" if x is None else f"{x:.{digits}f}"


def ratio(a, b):
    return "-" if a is None or b is None else f"{a / b:.1f}x"


def table(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def against_naive(r, kind, naive_kind):
    flags = [f for f in NAIVE if r.has(naive_kind, f)]
    for isa in ("avx512", "avx2", "neon"):
        if not r.has(kind, isa):
            continue
        rows = []
        for heads in (1, 4, 8):
            fused = r.get("ns_per_key", kind, isa, heads=heads)
            naive = [r.get("ns_per_key", naive_kind, f, heads=heads) for f in flags]
            rows.append([str(heads), number(fused)] + [f"{number(n)} ({ratio(n, fused)})" for n in naive])
        table(["query heads", f"fused, {isa}"] + [f"naive {f}" for f in flags], rows)


def attend(r, ctx):
    """A row for each policy, arithmetic and instruction set; the figures of 1, 4 and 8 query heads side by side."""
    rows = []
    for policy in POLICIES:
        for kind, arithmetic in (("attend", "automatic"), ("attend_f32", "f32")):
            for isa in ISAS:
                def get(counter, digits):
                    found = [r.get(counter, kind, isa, policy, heads, ctx) for heads in (1, 4, 8)]
                    return " / ".join(number(x, digits) for x in found)
                if all(r.get("ns_per_key", kind, isa, policy, heads, ctx) is None for heads in (1, 4, 8)):
                    continue
                rows.append([policy, arithmetic, isa, get("ns_per_key", 1), get("read_ratio", 2), get("error", 6)])
    table(["policy", "arithmetic", "isa", "ns at 1 / 4 / 8 query heads", "times the read limit", "error"], rows)


def shared(r):
    """Attention whose heads share what is stored, or store something smaller; all query heads of a kv head together."""
    rows = []
    for layer, dim, groups in (("MLA latent", 576, (16, 128)), ("MLA decompressed", 192, (1,)), ("MQA", 128, (32,))):
        policies = {key[2]: None for key in r.rows if key[3] in map(str, groups) and key[4] == str(dim)}
        for policy in policies:
            for isa in ISAS:
                found = [r.get("ns_per_key", "attend", isa, policy, heads, 4096, dim) for heads in groups]
                if None in found:
                    continue
                each = [number(x / heads) for x, heads in zip(found, groups)]
                rows.append([layer, " / ".join(map(str, groups)), policy, isa,
                             " / ".join(number(x, 0) for x in found), " / ".join(each)])
    table(["layer", "query heads per kv head", "policy", "isa", "ns per token and kv head", "per query head"], rows)


def read_limits(r):
    widths = {"scalar": 8, "neon": 16, "avx2": 32, "avx512": 64}
    isas = [isa for isa in widths if r.has("read_limit", isa)]
    rows = []
    for policy in POLICIES:
        rows.append([policy] + [number(r.get("ns_per_key", "read_limit", isa, policy, 1, 65536)) for isa in isas])
    table(["policy"] + [f"{widths[isa]}-byte loads" for isa in isas], rows)


def writing(r):
    rows = [[policy, isa] + [number(r.get("ns_per_key", kind, isa, policy), 0) for kind in ("append", "fold")]
            for policy in POLICIES for isa in ISAS if r.has("append", isa)]
    table(["policy", "isa", "append, one by one", "fold"], rows)


def requirements(r):
    for isa in ("avx2", "avx512"):
        fused, naive = r.get("ns_per_key", "scores", isa), r.get("ns_per_key", "naive", "O2")
        if fused and naive:
            print(f"* {isa}, int4 keys, 1 query head: {naive / fused:.1f} times as fast as the naive path at -O2 (goal: 10)")
        else:
            print(f"* {isa}, int4 keys, 1 query head: unmeasured")
    best = "avx512_fp16" if r.has("attend", "avx512_fp16") else "avx512_vnni"
    for isa, goals in ((best, (1.15, 1.25, 1.4)), ("avx2", (1.5, 2.2, 3.5))):
        for heads, goal in zip((1, 4, 8), goals):
            times = r.get("read_ratio", "attend", isa, DEFAULT, heads, 65536)
            measured = "unmeasured" if times is None else f"{times:.2f} times the read limit (goal: at most {goal})"
            print(f"* {isa}, {DEFAULT}, attend at {heads} query heads from memory: {measured}")
    print()


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    r = Results(sys.argv[1])
    c = r.context
    print(f"{c.get('cpu', 'unknown CPU')}; ran: {c.get('instruction sets', '?').strip()}; "
          f"unmeasured: {c.get('unmeasured (the CPU lacks them)', '?').strip()}\n")
    requirements(r)
    print("### Keys: dequantize, rotate, dot (ns per key, 4096 tokens)\n")
    against_naive(r, "scores", "naive")
    print("### Values: dequantize, multiply, add (ns per value, 4096 tokens)\n")
    against_naive(r, "values", "naive_values")
    print("### Attention from memory (ns per token and kv head, 65536 tokens)\n")
    attend(r, 65536)
    print("### Attention from the caches (4096 tokens)\n")
    attend(r, 4096)
    print("### Shared and compressed heads (4096 tokens)\n")
    shared(r)
    print("### Read limit from memory (ns per token and kv head, 65536 tokens)\n")
    read_limits(r)
    print("### Writing (ns per token and kv head, 4096 tokens)\n")
    writing(r)
    return 0


if __name__ == "__main__":
    sys.exit(main())
