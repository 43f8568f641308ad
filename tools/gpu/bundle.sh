#!/usr/bin/env bash
# Packs the programs that check.sh needs on a host that has a GPU and nothing of ours:
# build/gpu-bundle and build/gpu-bundle.tar.xz. Scripts, sources and golden data travel with the checkout.
# Usage: bundle.sh [TOOLKIT [TARGETS]]    as tools/kernels/build.sh takes them
# Programs are static but for libc and the driver. Four of them hold all kernels: packed with a window that
# spans them, these are there once. fits.py says whether that and the checkout fit; exit 1 where not, with
# the bundle made (SIE_GPU_ANY_SIZE=1: exit 0).
#
# bundle.sh --rehearse SERVER CONFORMANCE: the same folder as build/gpu-rehearsal for a host without
# a GPU, from emulated programs, without an archive and what only a card can run.
set -euo pipefail
cd "$(dirname "$0")/../.."
say() { echo "sie: $*" >&2; }

# fill BUNDLE SERVER TAGS: the server, the models' tests and the load generator, in a fresh folder.
# With CUDA's headers and libraries in cgo's environment (cgo-cuda.sh).
fill() {
  rm -rf "$1" "$1.tar.xz"
  mkdir -p "$1/bin"
  strip -o "$1/bin/sie-server" "$2"
  go test -c -trimpath -tags "$3" -ldflags '-s -w' -o "$1/bin/models.test" ./runtime/arch
  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$1/bin/sie-load" ./bench/load
}
commit() {
  echo "commit $(git rev-parse HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ', changed')"
}

if [ "${1:-}" = --rehearse ]; then
  bundle=build/gpu-rehearsal
  home=$(tools/setup/cuda.sh "${TOOLKIT:-13.0}")
  eval "$(tools/setup/cgo-cuda.sh build "$home")"
  fill "$bundle" "$2" native,cuda,emulated,disable_grpc_modules,netgo,osusergo
  cp "$3" "$bundle/bin/sie_conformance"
  { commit; echo "emulated, for a rehearsal"; } >"$bundle/bundle.txt"
  exit 0
fi
server=bin/cuda/sie-server
[ -x "$server" ] || { say "there is no $server: make build-cuda makes it"; exit 1; }
build=$(tools/kernels/build.sh "${1:-}" "${2:-}")
cmake --build "$build" -j "$(nproc)" --target gpu_programs >&2

bundle=build/gpu-bundle
home=$(sed -n 's/^home //p' "$build/cuda-objects/build.txt")
eval "$(tools/setup/cgo-cuda.sh "$build" "$home")"
fill "$bundle" "$server" native,cuda,disable_grpc_modules,netgo,osusergo
for program in sie_conformance sie_bench sie_record; do
  strip -o "$bundle/bin/$program" "$build/$program"
done
{
  commit
  sed -n '/^release\|^targets/p' "$build/cuda-objects/build.txt"
  echo "glibc $(ldd --version | head -1 | grep -o '[0-9.]*$') or newer"
} >"$bundle/bundle.txt"
tar -cf - -C build gpu-bundle | xz -T0 --lzma2=preset=6,dict=128MiB >"$bundle.tar.xz"
targets=$(sed -n 's/^targets //p' "$bundle/bundle.txt")
if python3 -B tools/gpu/fits.py "$bundle.tar.xz" "$targets" >&2; then
  say "$bundle.tar.xz: carry it with the checkout, at the same place, and run tools/gpu/check.sh there"
elif [ -z "${SIE_GPU_ANY_SIZE:-}" ]; then
  say "refused: $bundle.tar.xz is too large to carry (SIE_GPU_ANY_SIZE=1: whatever its size)"
  exit 1
fi
