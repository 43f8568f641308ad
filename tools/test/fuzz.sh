#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (default 30s) each.
set -euo pipefail
cd "$(dirname "$0")/../.."
time=${FUZZTIME:-30s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
found=0
while IFS=: read -r file target; do
  found=$((found + 1))
  printf '   %-34s' "$target"
  if go test -tags native -run '^$' -fuzz "^$target\$" -fuzztime "$time" "./$(dirname "$file")" >"$log" 2>&1; then
    # The engine first runs what earlier runs found interesting; on a busy machine that alone may take the whole time.
    grep -oE 'execs: [0-9]+' "$log" | tail -1 | grep . || grep -oE '[1-9][0-9]*/[0-9]+ completed' "$log" | tail -1 | sed 's/^/of earlier inputs, /' || {
      cat "$log"
      echo "no input was run"
      exit 1
    }
  elif grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; then
    # The fuzzing engine's own complaint when its time ends within an execution; no input failed.
    echo "ended within an execution"
  else
    cat "$log"
    exit 1
  fi
done < <(git ls-files '*_test.go' | xargs grep -ho --with-filename '^func Fuzz[A-Za-z0-9_]*' | sed 's/func //')
[ "$found" -ge 4 ] || { echo "only $found fuzz targets were found" >&2; exit 1; }
echo "   $found targets"
