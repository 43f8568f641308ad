#!/usr/bin/env bash
# Builds the CUDA kernels and proves what needs no GPU: each compiles for each target it is for,
# none breaks a rule or a promise, the tables in kernels/budgets hold, and the library links. Where
# nothing has changed since the last check that passed, it says so and stops. Usage: check.sh
# check|update [TOOLKIT [TARGETS]] update writes the tables of the toolkit's release anew (all
# targets; those of hot kernels also for a part). See build.sh for the others.
set -euo pipefail
cd "$(dirname "$0")/../.."
command=$1
build=$(tools/kernels/build.sh "${2:-}" "${3:-}")
passed=$build/check-passed
read_by_it=("$build/cuda-objects" "$build/libsie_cuda.a" kernels/budgets
  kernels/tests/cuda/link_test.cc tools/kernels)
if [ "$command" = check ] && [ -e "$passed" ] &&
  [ -z "$(find "${read_by_it[@]}" -newer "$passed" -print -quit)" ]; then
  echo "unchanged since it passed: $(cat "$passed")"
  exit
fi
rm -f "$passed"
begun=$(mktemp "$build/check-XXXXXX")
trap 'rm -f "$begun" "$begun.said"' EXIT
echo "reading the machine code of $(grep -c "^source " "$build/cuda-objects/build.txt") sources"
python3 -B tools/kernels/budgets.py "$command" "$build" | tee "$begun.said"
tools/kernels/link.sh "$build"
tail -1 "$begun.said" >"$passed"
touch -r "$begun" "$passed"
