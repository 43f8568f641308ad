#!/usr/bin/env bash
# Builds the four programs of an earlier commit, without the C library: the null device needs none.
# Prints their directory, build/skew/COMMIT. A second run does nothing. Usage: skew.sh COMMIT
set -euo pipefail
cd "$(dirname "$0")/../.."
commit=$(git rev-parse --short=12 --verify "$1^{commit}")
out=$PWD/build/skew/$commit
if [ ! -e "$out/.done" ]; then
  echo "sie: the programs of $(git log -1 --format='%h %s' "$commit")" >&2
  tree=$(mktemp -d)
  trap 'git worktree remove --force "$tree" >/dev/null' EXIT
  git worktree add --quiet --detach "$tree" "$commit"
  mkdir -p "$out"
  (cd "$tree" && CGO_ENABLED=0 go build -tags disable_grpc_modules,netgo,osusergo -trimpath -o "$out/" \
    ./cmd/sie-server ./cmd/sie-gateway ./cmd/sie-sidecar ./cmd/sie-config) >&2
  touch "$out/.done"
fi
echo "$out"
