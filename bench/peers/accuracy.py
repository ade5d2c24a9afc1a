#!/usr/bin/env python3
"""Tables from the JSON of peer_accuracy, one for each file.

    peer_accuracy --model FILE --text FILE --token-offset N --tokens N --json > accuracy.json
    bench/peers/accuracy.py accuracy.json
"""
import json
import os
import sys

sys.dont_write_bytecode = True  # no folder of it in the sources
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tables import number, table  # noqa: E402


def with_error(mean, error, digits):
    return f"{number(mean, digits)} +- {number(error, digits)}"


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) > 1 else 2
    for path in sys.argv[1:]:
        with open(path) as file:
            data = json.load(file)
        print(f"{data['tokens']} tokens; perplexity with the f16 cache: {data['f16_perplexity']:.2f}\n")
        rows = [[f"`{r['type_k']}`" + (", no flash attention" if r["flash_attention"] == "no" else ""),
                 f"`{r['type_v']}`", r["rotated"], number(r["bits_per_value"]),
                 with_error(r["kl_mean"], r["kl_error"], 4),
                 with_error(100 * r["top1_agreement"], 100 * r["top1_error"], 1), number(r["perplexity"], 2),
                 with_error(r["added_loss"], r["added_loss_error"], 4)] for r in data["results"]]
        table(["keys", "values", "rotated", "bits", "KL divergence", "same top token, %", "perplexity", "added loss"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
