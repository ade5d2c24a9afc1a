#!/usr/bin/env python3
"""Searches the best split of a budget of bits between keys and values, and reports the front. Needs nothing but Python.

    examples/eval/search.py --eval build/release/examples/eval --budgets 3,3.5,4,4.5,5 [--out front.json] -- \\
        --text FILE --token-offset N --tokens N --window W --pins S

Every side is measured alone, the other one exact; the divergences of two sides are added, which is close as long as both
are small; and for each budget the best few sums are measured as they are. Sides may be given instead of the lists below.
"""
import argparse
import json
import subprocess
import sys

KEYS = ["int3-channel64-pre-lsq", "int3-channel64-auto-lsq", "int3-channel64-hot4x5-lsq", "int3-channel64-hot8x5-lsq",
        "int4-channel128-pre-lsq", "int4-channel64-auto-lsq", "int4-channel64-pre-lsq", "int4-channel64-hot4x6-lsq",
        "int4-channel64-hot8x6-lsq", "int4-channel64-hot12x6-lsq", "int4-channel64-hot4x8-lsq",
        "int5-channel128-pre-lsq", "int5-channel64-auto-lsq", "int5-channel64-pre-lsq", "int5-channel64-hot8x6-lsq",
        "int6-channel128-pre", "int6-channel64-pre"]
VALUES = ["int2-hadamard-token64-lsq", "int2-hadamard-token32-lsq", "int2-token32-lsq", "int3-hadamard-token64-lsq",
          "int3-token64-lsq", "int3-hadamard-token32-lsq", "int4-hadamard-token64-lsq", "int4-token64",
          "int5-hadamard-token64-lsq"]


def measure(program, arguments, policies):
    command = [program, *arguments, "--json"]
    for p in policies:
        command += ["--policy", p]
    rows = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["results"]
    return {r["policy"]: r for r in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eval", required=True, help="the program")
    parser.add_argument("--budgets", default="3,3.5,4,4.5,5", help="mean bits of keys and values")
    parser.add_argument("--keys", default=",".join(KEYS))
    parser.add_argument("--values", default=",".join(VALUES))
    parser.add_argument("--tried", type=int, default=2, help="pairs to measure for each budget")
    parser.add_argument("--out", help="a file for all results, as JSON")
    parser.add_argument("arguments", nargs="+", help="those of eval, behind --")
    given = parser.parse_args()

    keys = {f"k:{k},v:f32": k for k in given.keys.split(",")}
    values = {f"k:f32,v:{v}": v for v in given.values.split(",")}
    alone = measure(given.eval, given.arguments, [*keys, *values])
    bits = {name: 2 * row["bits_per_value"] - 32 for name, row in alone.items()}  # the f32 side has 32
    pairs = [((bits[k] + bits[v]) / 2, alone[k]["kl_mean"] + alone[v]["kl_mean"], f"k:{keys[k]},v:{values[v]}")
             for k in keys for v in values]
    chosen = []
    for budget in (float(b) for b in given.budgets.split(",")):
        within = sorted(p for p in pairs if p[0] <= budget + 0.02 and p[0] > budget - 0.6)
        chosen += [p[2] for p in sorted(within, key=lambda p: p[1])[:given.tried] if p[2] not in chosen]
    together = measure(given.eval, given.arguments, chosen)

    for title, rows in (("one side", alone), ("both sides", together)):
        print(f"\n{title:<62} {'bits':>6} {'KL':>10} {'+-':>9}")
        for name, row in sorted(rows.items(), key=lambda r: r[1]["bits_per_value"]):
            print(f"{name:<62} {bits.get(name, row['bits_per_value']):>6.3f} {row['kl_mean']:>10.5f} {row['kl_error']:>9.5f}")
    if given.out:
        with open(given.out, "w", encoding="utf-8") as file:
            json.dump({"alone": alone, "together": together}, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
