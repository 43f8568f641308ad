#!/usr/bin/env bash
# Builds sie_conformance, sie_bench and sie_record for the card of this host with nvcc and g++
# alone: no cmake, no network. For a host where the bundle's own do not run. Usage: build.sh BIN
# [NVCC [TARGET]]
#   BIN      folder for the programs
#   TARGET   as 80, 86, 89, 90a, 100f; default: this host's card
# Sources: the checkout around this script.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
nvcc=${2:-nvcc}
target=${3:-}
if [ -z "$target" ]; then
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1)
  case $capability in
    9.*) target=90a ;;
    10.* | 12.*) target=${capability%.*}0f ;;
    *) target=${capability/./} ;;
  esac
fi
release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
cd "$root"

export NVCC=$nvcc OBJECTS=$objects TARGET=$target RELEASE=$release
# One object. Device code as cmake/cuda.cmake has it; contraction off in host code, too.
compile() {
  local object=$OBJECTS/${1//\//_}.o
  "$NVCC" -O3 -std=c++17 -gencode "arch=compute_$TARGET,code=sm_$TARGET" -DNDEBUG \
    -Xcompiler -fPIC,-fvisibility=hidden,-ffp-contract=off,-fno-exceptions,-fno-rtti \
    "-DSIE_CUDA_TARGETS=\"$TARGET\"" "-DSIE_CUDA_RELEASE=\"$RELEASE\"" -Icsrc/include -Ikernels -c "$1" \
      -o "$object"
}
export -f compile
sources=$(find kernels/cuda kernels/ref kernels/tests kernels/bench kernels/simt -maxdepth 1 \
  \( -name '*.cu' -o -name '*.cc' \) |
  grep -vE 'tests/(main|golden_[a-z_]*)\.cc|bench/(device_host|emulated_main|mirror_test)\.cc|simt/.*\.cc')
# shellcheck disable=SC2016
xargs -P "$(nproc)" -I{} bash -c 'compile "$1"' _ {} <<<"$sources"

link() { # link PROGRAM OWN…: with everything that is no program's own
  local program=$1 own=() common=() object
  shift
  for object in "$@"; do own+=("$objects/kernels_$object.o"); done
  for object in "$objects"/kernels_{cuda,ref,tests}_*.o \
    "$objects"/kernels_bench_{mirror,points,verify,no_cpu,device_cuda}.cc.o; do
    common+=("$object")
  done
  "$nvcc" -cudart static -Xcompiler -static-libgcc,-static-libstdc++ -o "$out/$program" "${own[@]}" \
    "${common[@]}" -ldl -lrt -lpthread
}
link sie_conformance bench_conformance.cc
link sie_bench bench_bench_main.cc bench_timing.cc bench_report.cc bench_sweep.cc bench_cublaslt.cc \
  bench_peak.cu
"$nvcc" -cudart static -Xcompiler -static-libgcc,-static-libstdc++ -o "$out/sie_record" \
  "$objects"/kernels_simt_*.o
echo "built for sm_$target by CUDA $release in $out"
