#!/usr/bin/env bash
# The Go path to a GPU, on a machine without one: kernels emulated on the CPU, the driver a stand-in. Usage: emulated.sh [GO TEST ARGUMENTS]
# Needs `cmake --build build`, and the headers of a CUDA toolkit, which tools/setup/cuda.sh finds or installs.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ -e build/standin/libcuda.so.1 ] || { echo "emulated: build/standin/libcuda.so.1 is missing: make test-c builds it" >&2; exit 1; }
home=$(tools/setup/cuda.sh "${TOOLKIT:-13.0}")
eval "$(tools/setup/cgo-cuda.sh build "$home")"
export SIE_LIBCUDA=$PWD/build/standin/libcuda.so.1
[ $# -gt 0 ] || set -- ./runtime/... ./cmd/...
exec "${GO:-go}" test -tags 'native cuda emulated' "$@"
