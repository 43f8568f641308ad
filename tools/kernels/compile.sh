#!/usr/bin/env bash
# Runs nvcc and keeps what it prints, above all ptxas' report of each kernel's resources, in LOG;
# anything that is not such a report is shown. Usage: compile.sh LOG NVCC ARGUMENT...
set -uo pipefail
log=$1
shift
"$@" >"$log.tmp" 2>&1
status=$?
grep -vE '^ptxas info  |^    [0-9]+ bytes stack frame, ' "$log.tmp" >&2
if [ "$status" = 0 ]; then
  mv "$log.tmp" "$log"
else
  rm -f "$log.tmp" "$log"
fi
exit "$status"
