#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (default 30s) each; with SIE_TEST_TURN=N those of
# every sixth package, others in the next five turns. A package's test binary is built once for all
# its targets. The module's own packages count their coverage, which leads the engine; those that
# they use are the ones that all builds share.
set -euo pipefail
cd "$(dirname "$0")/../.."
time=${FUZZTIME:-30s}
tags=native,disable_grpc_modules,netgo,osusergo
kept=$(go env GOCACHE)/fuzz # where the go command, too, keeps inputs that found something
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log
found=0
while read -r folder targets; do
  go test -tags "$tags" -gcflags="$(go list -m)/...=-d=libfuzzer" -c -o "$work/tests" "./$folder"
  package=$(go list -tags "$tags" "./$folder")
  for target in $targets; do
    found=$((found + 1))
    printf '   %-34s' "$target"
    if (cd "$folder" && "$work/tests" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" \
      -test.fuzzcachedir "$kept/$package") >"$log" 2>&1; then
      if grep -q 'without coverage guidance' "$log"; then
        cat "$log"
        exit 1
      fi
      # The engine first runs what earlier runs found interesting; on a busy machine that alone may
      # take the whole time.
      grep -oE 'execs: [0-9]+' "$log" | tail -1 | grep . || grep -oE '[1-9][0-9]*/[0-9]+ completed' "$log" |
        tail -1 | sed 's/^/of earlier inputs, /' || {
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
  done
done < <(git ls-files '*_test.go' | xargs grep -ho --with-filename '^func Fuzz[A-Za-z0-9_]*' |
  awk -F: '{ folder = $1; sub("/[^/]*$", "", folder); sub("func ", "", $2); targets[folder] = targets[folder] " " $2 } END { for (f in targets) print f targets[f] }' | sort |
  awk -v turn="${SIE_TEST_TURN:-}" 'turn == "" || NR % 6 == turn % 6')
[ "$found" -ge 3 ] || { echo "only $found fuzz targets were found" >&2; exit 1; }
echo "   $found targets"
