#!/usr/bin/env bash
# Formats and static checks.
set -euo pipefail
cd "$(dirname "$0")/../.."
bad=$(gofmt -l $(git ls-files '*.go'))
[ -z "$bad" ] || { echo "gofmt: $bad" >&2; exit 1; }
go vet -tags native ./...
go tool staticcheck -tags native ./...
if command -v clang-format >/dev/null; then
  git ls-files '*.cc' '*.h' | xargs clang-format --dry-run -Werror
fi
bash -n $(git ls-files '*.sh') .ci/run
echo "lint: clean"
