#!/usr/bin/env bash
# Formats and static checks of everything git knows. Called by `make lint`, which makes build/venv-lint.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PWD/build/venv-lint/bin:$PATH
bad=$(git ls-files -z '*.go' | xargs -0 gofmt -l)
[ -z "$bad" ] || { echo "gofmt (make format repairs it): $bad" >&2; exit 1; }
go vet -tags native ./...
go tool staticcheck -tags native ./...
git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck
git ls-files -z '*.c' '*.cc' '*.h' '*.cu' '*.cuh' | xargs -0 clang-format --dry-run -Werror
echo "lint: clean"
