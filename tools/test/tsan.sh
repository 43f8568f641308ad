#!/usr/bin/env bash
# The C side's threads under ThreadSanitizer, in build-tsan: csrc's tests, and the CPU kernels'
# list, of which the shares of an operation run at once. Assembly and masked stores are not watched.
# Usage: tsan.sh [build|run]
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${1:-build}" = build ]; then
  if ! [ -e build-tsan/CMakeCache.txt ]; then
    generator=()
    if command -v ninja >/dev/null; then generator=(-G Ninja); fi
    cmake --preset tsan "${generator[@]}" >/dev/null
  fi
  log=build-tsan/build.log
  cmake --build build-tsan -j "$(nproc)" --target csrc_tests kernel_tests >"$log" 2>&1 ||
    { cat "$log"; exit 1; }
fi
if [ "${1:-run}" = run ]; then
  # It needs its addresses free of what a kernel with much randomness puts there.
  still=()
  if setarch "$(uname -m)" -R true 2>/dev/null; then still=(setarch "$(uname -m)" -R); fi
  tests='^(csrc|kernels)_[01]$'
  found=$(ctest --test-dir build-tsan -N -R "$tests" | grep -c 'Test *#' || true)
  [ "$found" = 4 ] || { echo "tsan: $found tests are named $tests, not 4" >&2; exit 1; }
  "${still[@]}" ctest --test-dir build-tsan -j "$(nproc)" --output-on-failure -R "$tests"
fi
