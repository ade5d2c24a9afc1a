#!/usr/bin/env bash
# Downloads llama.cpp, once, and prints the path of its sources: out of the Python source package llama-cpp-python (MIT), 77 MB,
# which holds it at a fixed commit. The package is only unpacked, never installed. KVAXIS_PEERS_DIR says where to keep it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../.ci/download.sh"

name=llama_cpp_python-0.3.36
sum=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
directory=${KVAXIS_PEERS_DIR:-$HOME/.cache/kvaxis}
sources=$directory/$name
llama=$name/vendor/llama.cpp

if [[ ! -d $directory/$llama/src ]]; then # an older version of this file kept ggml alone
  work_in "$directory"
  download "llama-cpp-python==${name##*-}" --no-binary llama-cpp-python
  require_sum "$work/$name.tar.gz" "$sum"
  tar --extract --gzip --file "$work/$name.tar.gz" --directory "$work" \
    "$llama"/{CMakeLists.txt,LICENSE,cmake,ggml,include,src,vendor}
  rm -rf "$sources"
  mv "$work/$name" "$sources" # only a checked and complete folder ever has this name
fi
echo "$directory/$llama"
