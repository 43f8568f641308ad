#!/usr/bin/env bash
# Builds bin/cuda/sie-server: the server with the CUDA kernels, for machines with and without a GPU.
# Needs no GPU and no
# driver. Usage: build-cuda.sh [TOOLKIT [TARGETS]]    as tools/kernels/build.sh takes them
#   SIE_CGO_BUILD   the build folder of this tree for CPUs, whose objects and Go packages are then used again
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(tools/kernels/build.sh "${1:-}" "${2:-}")
archive=""
if [ -n "${SIE_CGO_BUILD:-}" ]; then
  cmake --build "$SIE_CGO_BUILD" -j "$(nproc)" --target sie_gpu >"$build/gpu.log" 2>&1 ||
    { cat "$build/gpu.log" >&2; exit 1; }
  archive=$PWD/$SIE_CGO_BUILD/libsie_gpu.a
fi
cmake "-DSIE_GPU_ARCHIVE=$archive" "$build" >"$build/configure.log" 2>&1 ||
  { cat "$build/configure.log" >&2; exit 1; }
cmake --build "$build" -j "$(nproc)" --target cgo_flags_cuda >"$build/gpu.log" 2>&1 ||
  { cat "$build/gpu.log" >&2; exit 1; }
home=$(sed -n 's/^home //p' "$build/cuda-objects/build.txt")
eval "$(tools/setup/cgo-cuda.sh "${SIE_CGO_BUILD:-$build}" "$home")"
mkdir -p bin/cuda
"${GO:-go}" build -tags native,cuda,disable_grpc_modules,netgo,osusergo -trimpath \
  -ldflags "-X github.com/sie-engine/sie/internal/build.Commit=${COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}" \
  -o bin/cuda/sie-server ./cmd/sie-server

# What any glibc has. A library of CUDA among its needs would keep it from starting on a machine
# without a GPU.
needed=$(readelf -d bin/cuda/sie-server | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for library in $needed; do
  case $library in
    libc.so.6 | libm.so.6 | libdl.so.2 | librt.so.1 | libpthread.so.0 | libresolv.so.2 | ld-linux-*) ;;
    *)
      echo "build-cuda: bin/cuda/sie-server needs $library; everything but libc is to be linked statically or opened by dlopen" >&2
      exit 1
      ;;
  esac
done
[ -n "$needed" ] || { echo "build-cuda: readelf shows no library for bin/cuda/sie-server" >&2; exit 1; }
glibc=$(readelf --version-info --wide bin/cuda/sie-server | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
echo "sie: bin/cuda/sie-server is ready, for $(sed -n 's/^targets //p' "$build/cuda-objects/build.txt"); it needs ${needed//$'\n'/ } and ${glibc/_/ } or newer"
