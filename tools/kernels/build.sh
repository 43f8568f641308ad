#!/usr/bin/env bash
# Builds libsie_cuda.a, in build/cuda-RELEASE, or build/cuda-RELEASE-TARGETS for a part of the
# targets. Needs no GPU. Prints the build folder on standard output. Usage: build.sh [TOOLKIT
# [TARGETS]]
#   TOOLKIT   as tools/setup/cuda.sh takes it: 13.0, 12.4, or "" for the host's own
#   TARGETS   as "80 90a"; default every one the toolkit has
set -euo pipefail
cd "$(dirname "$0")/../.."
toolkit=${1:-}
targets=$(tr -s ' ,;' '\n' <<<"${2:-}" | sort -V | tr '\n' ' ' | xargs)
home=$(tools/setup/cuda.sh "$toolkit")
release=$("$home/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
folder=build/cuda-$release${targets:+-${targets// /-}}
mkdir -p "$folder"
started=$SECONDS
generator=()
if command -v ninja >/dev/null; then generator=(-G Ninja); fi
cmake -S . -B "$folder" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DSIE_TESTS=OFF \
  -DSIE_CGO=OFF -DSIE_CUDA=ON "-DSIE_CUDA_HOME=$home" "-DSIE_CUDA_TARGETS=${targets// /;}" \
    >"$folder/configure.log" 2>&1 ||
  { cat "$folder/configure.log" >&2; exit 1; }
cmake --build "$folder" -j "$(nproc)" --target sie_cuda >&2
sum=$(sed -n 's/^targets //p' "$folder/cuda-objects/build.txt")
echo "sie: $folder/libsie_cuda.a for $sum by CUDA $release after $((SECONDS - started)) s" >&2
echo "$folder"
