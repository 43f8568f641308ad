#!/usr/bin/env bash
# The Go path to a GPU, on a machine without one: kernels emulated on the CPU, the driver a
# stand-in. Usage: emulated.sh [GO TEST ARGUMENTS]. Without arguments the tests in files that only
# these tags compile; the others of their packages are the same program on the CPU, which the plain
# build runs. With SIE_TEST_TURN=N models run on one of the three families of kernels, else on all.
# Needs a configured `build` folder, whose emulated library it builds where it is missing or old, and
# the headers of a CUDA toolkit, which tools/setup/cuda.sh finds or installs.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -e build/CMakeCache.txt ] || { echo "emulated: build is not configured: make test-c does it" >&2; exit 1; }
cmake --build build -j "$(nproc)" --target cgo_flags_emulated >build/emulated.log 2>&1 ||
  { cat build/emulated.log >&2; exit 1; }
home=$(tools/setup/cuda.sh "${TOOLKIT:-13.0}")
eval "$(tools/setup/cgo-cuda.sh build "$home")"
export SIE_LIBCUDA=$PWD/build/standin/libcuda.so.1
go=${GO:-go} tags=native,cuda,emulated,disable_grpc_modules,netgo,osusergo

# test_files TAGS: every test file of these tags, with its folder.
test_files() {
  "$go" list -tags "$1" -f '{{range .TestGoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... | sed /^$/d | sort
}

if [ $# -eq 0 ]; then
  mapfile -t files < <(comm -13 <(test_files native) <(test_files "$tags"))
  mapfile -t tests < <(cat "${files[@]}" | sed -nE 's/^func ((Test|Example)[A-Za-z0-9_]*)\(.*/\1/p')
  [ ${#tests[@]} -ge 10 ] || { echo "emulated: only ${#tests[@]} tests need these tags" >&2; exit 1; }
  echo "${#tests[@]} tests in ${#files[@]} files that only these tags compile"
  mapfile -t folders < <(dirname "${files[@]}" | sort -u)
  set -- -timeout 30m -run "^($(IFS='|' && echo "${tests[*]}"))\$" "${folders[@]}"
fi
exec "$go" test -tags "$tags" "$@"
