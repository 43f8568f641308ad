#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (default 30s) each.
set -euo pipefail
cd "$(dirname "$0")/../.."
time=${FUZZTIME:-30s}
found=0
while IFS=: read -r file target; do
  found=$((found + 1))
  dir=./$(dirname "$file")
  printf '   %-40s' "$target"
  go test -tags native -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" | grep -E 'execs|FAIL|ok' | tail -1
done < <(git ls-files '*_test.go' | xargs grep -ho --with-filename '^func Fuzz[A-Za-z0-9_]*' | sed 's/func //')
[ "$found" -ge 4 ] || { echo "only $found fuzz targets were found" >&2; exit 1; }
echo "   $found targets"
