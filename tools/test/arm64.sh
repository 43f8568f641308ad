#!/usr/bin/env bash
# The C side for arm64, under qemu-user: on a CPU with dot products (max) and on one without
# (cortex-a72), so that each table is chosen where it should be. Usage: arm64.sh quick|list
#   quick   vectors and products of the tables against their definitions (what make test runs)
#   list    and the conformance list, what the kernels are compiled to, csrc's tests and the example:
#           of the list every SHARDS-th case (60), from SIE_TEST_TURN on, for the emulation is slow;
#           SHARDS=1: all, in hours
# TESTS="linear lstm" for the cases of kernel_tests that these words name.
set -euo pipefail
cd "$(dirname "$0")/../.."
what=${1:-list}
case $what in quick | list) ;; *) echo "usage: $0 quick|list" >&2; exit 2 ;; esac

case $(uname -m) in
  aarch64 | arm64) echo "arm64: this machine is one, and make test-c runs these tests on it"; exit ;;
esac
tools/setup/deps.sh arm64
build=build/arm64
mkdir -p $build
[ -e $build/CMakeCache.txt ] ||
  cmake -S . -B $build "$(command -v ninja >/dev/null && echo -GNinja || echo '-GUnix Makefiles')" \
    -DCMAKE_BUILD_TYPE=Release -DSIE_EMULATION=OFF --toolchain cmake/arm64.toolchain.cmake \
    >$build/configure.log 2>&1 || { cat $build/configure.log >&2; exit 1; }
targets=(vec_tests)
[ "$what" = quick ] || targets+=(sie kernel_tests csrc_tests example_embed)
cmake --build $build -j "$(nproc)" --target "${targets[@]}" >$build/tests.log 2>&1 ||
  { cat $build/tests.log >&2; exit 1; }

qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static)
on() { # CPU PROGRAM ARGUMENTS…
  local cpu=$1
  shift
  echo "== $(basename "$1") on $cpu"
  QEMU_CPU=$cpu "$qemu" -L /usr/aarch64-linux-gnu "$@"
}
for cpu in max cortex-a72; do
  on $cpu $build/vec_tests
  [ "$what" = list ] || continue
  # shellcheck disable=SC2086 # TESTS is words
  SIE_TEST_SHARD=0/${SHARDS:-60} on $cpu $build/kernel_tests --host ${TESTS:-}
done
[ "$what" = list ] || exit 0
ctest --test-dir $build --output-on-failure -R '^(symbols|instructions)'
on max $build/example_embed
# A machine with dot products takes every path that the other has.
on max $build/csrc_tests
