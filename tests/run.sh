#!/usr/bin/env bash
# All tests: installs what they need (Debian and its like), builds with plain -O2, and runs them once per instruction set
# that this CPU has.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

.ci/install g++ cmake ninja-build libeigen3-dev libgtest-dev libbenchmark-dev
echo "building in build/release (some minutes) ..."
.ci/quietly cmake --preset release
.ci/quietly cmake --build --preset release --parallel "$(nproc)"

read -ra isas <<<"$(build/release/tests/list_isas)"
echo "CPU: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1); instruction sets, one run each: ${isas[*]}"

# The best one first and with everything; tests that do not depend on the instruction set run only then.
failed=()
filter=()
for ((i = ${#isas[@]} - 1; i >= 0; --i)); do
  printf '\n== %s\n' "${isas[i]}"
  KVAXIS_ISA=${isas[i]} ctest --preset release --parallel "$(nproc)" "${filter[@]}" || failed+=("${isas[i]}")
  filter=(--label-exclude any_isa)
done
if [[ ${#failed[@]} -gt 0 ]]; then
  echo "tests failed on: ${failed[*]}" >&2
  exit 1
fi
