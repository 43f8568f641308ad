#!/usr/bin/env bash
# Whole models on the AMX kernels, whose tiles are emulated: for machines with AVX-512, VNNI and
# BF16, with AMX or without. Without arguments the states of every architecture, pruned and whole,
# and alone and in company. Usage: amx.sh [GO TEST ARGUMENTS] Needs `cmake --build build`.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! grep -qw avx512_bf16 /proc/cpuinfo; then
  echo "amx: nothing to run: this CPU lacks AVX-512 with BF16, which these kernels use beside the tiles"
  exit
fi
[ -e runtime/engine/libsie_amx_gen.go ] ||
  { echo "amx: runtime/engine/libsie_amx_gen.go is missing: make test-c writes it" >&2; exit 1; }
[ $# -gt 0 ] ||
  set -- -timeout 30m -run 'States/kind=cpu/isa=amx|Pruning/amx|QwenBatchInvariance/amx' ./runtime/arch
exec "${GO:-go}" test -tags native,emulated,disable_grpc_modules,netgo,osusergo "$@"
