#!/usr/bin/env bash
# Prints what cgo needs in its environment for the build tag cuda, as `export` lines for eval.
# Usage: cgo-cuda.sh BUILD HOME
#   BUILD   the CMake build folder, whose driver/libcuda.a must be found before any other libcuda
#   HOME    a CUDA toolkit (tools/setup/cuda.sh), for the headers gorgonia.org/cu is compiled with
# Go's cache keeps packages by these values: two builds that alternate do not compile each other's
# anew.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(cd "$1" && pwd)
printf 'export CGO_ENABLED=1 CGO_CFLAGS=%q CGO_LDFLAGS=%q\n' "-O2 -g -I$PWD/csrc/cuda/compat -I$2/include" \
  "-O2 -g -L$build/driver"
