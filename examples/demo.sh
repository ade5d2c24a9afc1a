#!/usr/bin/env bash
# The main job, from nothing: a language model answers on a 4-bit KV cache and says what that saved and cost; then the same
# cache is measured on a text, next to the layout that fails. Installs what it needs; downloads the model once (98 MB).
#   examples/demo.sh ["PROMPT"]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

prompt=${1:-"Explain in three sentences why the sky is blue."}

.ci/install g++ cmake ninja-build libeigen3-dev
model=$(examples/fetch_model.sh)
echo "building the llm and eval examples ..."
.ci/quietly cmake --preset release -DKVAXIS_BUILD_TESTS=OFF -DKVAXIS_BUILD_BENCH=OFF
.ci/quietly cmake --build --preset release --target llm eval --parallel "$(nproc)"

printf '\n== generation on a 4-bit cache\n'
build/release/examples/llm --model "$model" --prompt "$prompt"

printf '\n== accuracy with every key in 4 bits, no exact window: one scale per channel, and one per token\n'
build/release/examples/eval --model "$model" --text tests/data/persuasion.txt --token-offset 2000 --tokens 512 \
  --window 0 --pins 0 --policy k:int4-channel64-pre,v:f32 --policy k:int4-token64-pre,v:f32
