#!/usr/bin/env bash
# Packs what check.sh needs on a host that has a GPU and nothing of ours: build/gpu-bundle and
# build/gpu-bundle.tar.gz.
# Usage: bundle.sh [TOOLKIT [TARGETS]]    as tools/kernels/build.sh takes them
# Programs (static but for libc and the driver), compute-sanitizer from its wheel where it can be
# had, the sources that build.sh would need, and the scripts. At most 96 MiB; for one card less, as
# TARGETS 90a 59 MiB.
#
# bundle.sh --rehearse SERVER CONFORMANCE: the same folder as build/gpu-rehearsal for a host without
# a GPU, from emulated programs, without sources, archive and what only a card can run.
set -euo pipefail
cd "$(dirname "$0")/../.."
say() { echo "sie: $*" >&2; }

# fill BUNDLE SERVER TAGS: the scripts, the server, the models' tests and the load generator, in a
# fresh folder. With CUDA's headers and libraries in cgo's environment (cgo-cuda.sh).
fill() {
  rm -rf "$1" "$1.tar.gz"
  mkdir -p "$1/bin" "$1/bench" "$1/serving" "$1/golden"
  cp tools/gpu/check.sh tools/gpu/build.sh kernels/bench/torch_peer.py kernels/bench/report.py LICENSE \
    NOTICE "$1/"
  cp tools/gpu/serving/*.py "$1/serving/"
  cp bench/{limit,machine,measures,peer,racers,served}.py "$1/bench/"
  strip -o "$1/bin/sie-server" "$2"
  go test -c -trimpath -tags "$3" -ldflags '-s -w' -o "$1/bin/models.test" ./runtime/arch
  # What those tests read; the cases of tokenizers, of the worker and of the real model are for
  # others.
  find testdata/golden -mindepth 1 -maxdepth 1 -type d ! -name tokenizer ! -name 'minilm*' \
    ! -name 'pipeline-*' ! -name late ! -name m3-text \
    ! -name quantise -exec cp -r -t "$1/golden" {} +
  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$1/bin/sie-load" ./bench/load
}
commit() {
  echo "commit $(git rev-parse HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ', changed')"
}

if [ "${1:-}" = --rehearse ]; then
  bundle=build/gpu-rehearsal
  home=$(tools/setup/cuda.sh "${TOOLKIT:-13.0}")
  eval "$(tools/setup/cgo-cuda.sh build "$home")"
  fill "$bundle" "$2" 'native cuda emulated'
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
fill "$bundle" "$server" 'native cuda'
mkdir -p "$bundle/src/csrc"
for program in sie_conformance sie_bench sie_record; do
  strip -o "$bundle/bin/$program" "$build/$program"
done
cp -r kernels "$bundle/src/"
cp -r csrc/include "$bundle/src/csrc/"
find "$bundle/src" -name __pycache__ -prune -exec rm -rf {} +

# One release older than the newest: the tool of 13.0 knows every driver that runs code of 13.0.
if [ "$(uname -sm)" = "Linux x86_64" ]; then
  wheels=build/gpu-sanitizer
  pin='nvidia-cuda-sanitizer-api==13.0.85 --hash=sha256:b1efff95f63b6fe40dc83801d598550542364393957775912a1abf396904331c'
  stamp=$wheels/.complete-$(sha256sum <<<"$pin" | cut -c1-16)
  if [ ! -e "$stamp" ]; then
    rm -rf "$wheels" && mkdir -p "$wheels"
    [ -x build/venv-fetch/bin/python ] || python3 -m venv build/venv-fetch
    echo "$pin" >"$wheels/requirements.txt"
    if build/venv-fetch/bin/python -m pip --disable-pip-version-check install \
      -q --no-cache-dir --no-deps --no-compile \
      --only-binary :all: --require-hashes --target "$wheels/site" -r "$wheels/requirements.txt" >&2; then
      touch "$stamp"
    else
      say "compute-sanitizer cannot be fetched: the bundle goes without, and uses the host's"
    fi
  fi
  if [ -e "$stamp" ]; then
    mkdir -p "$bundle/sanitizer"
    cp "$wheels"/site/nvidia/cu13/bin/* "$bundle/sanitizer/"
    # It looks for these beside itself.
    for library in "$wheels"/site/nvidia/cu13/lib/*.so*; do
      [ -e "$bundle/sanitizer/$(basename "$library")" ] || cp "$library" "$bundle/sanitizer/"
    done
    chmod +x "$bundle/sanitizer/compute-sanitizer"
  fi
fi

{
  commit
  sed -n '/^release\|^targets/p' "$build/cuda-objects/build.txt"
  echo "glibc $(ldd --version | head -1 | grep -o '[0-9.]*$') or newer"
} >"$bundle/bundle.txt"
tar -czf "$bundle.tar.gz" -C build gpu-bundle
bytes=$(stat -c %s "$bundle.tar.gz")
[ "$bytes" -le $((96 << 20)) ] || { say "the bundle has $bytes bytes, more than 96 MiB"; exit 1; }
say "$bundle.tar.gz, $((bytes >> 10)) KiB: unpack it on a host with a GPU and run gpu-bundle/check.sh"
