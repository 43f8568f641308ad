#!/usr/bin/env bash
# Times every kernel on the GPU of this machine, beside cuBLASLt and PyTorch where they are; without
# a GPU, checks the
# same cases, tiny, under emulation. Usage: bench.sh [FILTER]    results in build/bench-kernels
set -euo pipefail
cd "$(dirname "$0")/../.."
filter=${1:-}
if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1 && ! nvidia-smi -L >/dev/null 2>&1; then
  echo "# no GPU on this machine: the emulated cases are checked, nothing is timed"
  cmake --build build -j "$(nproc)" --target kernel_bench_emulated >build/bench-kernels.log 2>&1 ||
    { cat build/bench-kernels.log; exit 1; }
  exec build/kernel_bench_emulated
fi
build=$(tools/kernels/build.sh)
cmake --build "$build" -j "$(nproc)" --target gpu_programs >&2
out=build/bench-kernels
mkdir -p "$out"
python=python3
! build/venv-bench/bin/python -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null ||
  python=build/venv-bench/bin/python
cublaslt=$("$python" -c 'import glob, sys
found = (f for p in sys.path if p for f in glob.glob(p + "/nvidia/*/lib/libcublasLt.so.1[23]"))
print(next(found, ""))' 2>/dev/null || true)
"$build/sie_bench" --json "$out/bench.jsonl" --filter "$filter" ${cublaslt:+--cublaslt "$cublaslt"}
"$python" -B kernels/bench/torch_peer.py "$out/bench.jsonl" "$out/torch.jsonl"
"$python" -B kernels/bench/report.py "$out" "$out/bench.jsonl" "$out/torch.jsonl"
