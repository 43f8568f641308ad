#!/usr/bin/env bash
# Formats and static checks of everything git knows, by the programs of build/venv-lint. Usage:
# lint.sh [formats]; `formats` is for make test: the Go linters are left out, which take minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PWD/build/venv-lint/bin:$PATH
bad=$(git ls-files -z '*.go' | xargs -0 gofmt -l)
[ -z "$bad" ] || { echo "gofmt (make format repairs it): $bad" >&2; exit 1; }
git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck
git ls-files -z '*.c' '*.cc' '*.h' '*.cu' '*.cuh' | xargs -0 clang-format --dry-run -Werror
if [ "${1:-}" != formats ]; then
  tags=native,disable_grpc_modules,netgo,osusergo
  go vet -tags "$tags" ./...
  go -C tools/kube vet ./...
  go tool staticcheck -tags "$tags" ./...
  # Built by the first run, which takes minutes, and kept in Go's cache; pinned here, because as a
  # tool of go.mod it would raise the versions that the product is built with.
  go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run
  go test -run Narrow ./internal/archtest
fi
echo "lint: clean"
