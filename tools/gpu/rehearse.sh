#!/usr/bin/env bash
# `make gpu-check REHEARSE=1`: check.sh on a machine without a GPU, with the emulated server over
# the stand-in driver, toy models and PyTorch on the CPU; then what a rehearsal's results must be.
# Nothing is measured.
# Usage: rehearse.sh [RESULTS]    (default: build/gpu-rehearsal-results)
#   SIE_REHEARSE_SERVER       another server, as bin/sie-server with SIE_GPU_DEVICE=cpu SIE_GPU_PRECISIONS=fp32, to work
#                             on the check itself
#   SIE_PYTHON                a Python with torch, transformers and sentence-transformers
set -euo pipefail
cd "$(dirname "$0")/../.."
results=${1:-build/gpu-rehearsal-results}
started=$SECONDS

# The reference of the golden data is the reference here; who has the benchmark's peers has it, too.
python=${SIE_PYTHON:-build/venv-bench/bin/python}
if ! [ -x "$python" ]; then
  tools/setup/venv.sh golden
  python=build/venv-golden/bin/python
fi
"$python" -B -m unittest discover -q -s tools/gpu

cmake --build build -j "$(nproc)" --target cgo_flags_emulated kernel_conformance_emulated \
  >build/rehearse.log 2>&1 || { cat build/rehearse.log; exit 1; }
server=${SIE_REHEARSE_SERVER:-}
if [ -z "$server" ]; then
  server=build/emulated/sie-server
  home=$(tools/setup/cuda.sh "${TOOLKIT:-13.0}")
  (
    eval "$(tools/setup/cgo-cuda.sh build "$home")"
    "${GO:-go}" build -tags native,cuda,emulated,disable_grpc_modules,netgo,osusergo -trimpath \
      -o "$server" ./cmd/sie-server
  )
  export SIE_LIBCUDA=$PWD/build/standin/libcuda.so.1
fi
tools/gpu/bundle.sh --rehearse "$server" build/kernel_conformance_emulated
SIE_GPU_REHEARSE=1 SIE_PYTHON=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") \
  SIE_TEST_SHARD=${SIE_TEST_SHARD:-0/200} \
  SIE_GPU_BUNDLE=$PWD/build/gpu-rehearsal tools/gpu/check.sh "$results"
"$python" -B tools/gpu/serving/rehearsed.py "$results"
echo "sie: rehearsed gpu-check in $((SECONDS - started)) s; nothing was measured"
