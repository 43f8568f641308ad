#!/usr/bin/env bash
# The C library and its tests under AddressSanitizer and UndefinedBehaviorSanitizer, in build-asan.
# Usage: asan.sh [build [host [kernels|csrc]]|run [kernels|csrc]] Without an argument both, with every
# case of the long lists and the library in a Go program. `build host` and `run` are for make test:
# the emulated CUDA kernels are left out, which are half of the work, the conformance list is the
# plain build's, which is there by then, and of the long lists a part is run. `kernels` and `csrc` are
# halves of that: the kernels' tests, and all others.
set -euo pipefail
cd "$(dirname "$0")/../.."
half=${!#} kernels='^(kernels_[01]|vec)$'
if [ "${1:-build}" = build ]; then
  emulation=ON plain="" log=build-asan/build.log
  mkdir -p build-asan
  if [ "${2:-}" = host ]; then
    emulation=OFF
    if [ -e build/CMakeCache.txt ]; then
      plain=$PWD/build
      cmake --build build -j "$(nproc)" --target kernel_case_objects >"$log" 2>&1 || { cat "$log"; exit 1; }
    fi
  fi
  generator=()
  if ! [ -e build-asan/CMakeCache.txt ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
  cmake --preset asan -DSIE_EMULATION=$emulation -DSIE_PLAIN_BUILD="$plain" "${generator[@]}" >/dev/null
  targets=(all)
  if [ $# = 0 ]; then targets+=(bench_tests); fi
  case $half in
    kernels) targets=(kernel_tests vec_tests) ;;
    csrc) targets=(csrc_tests cuda_arch_test example_embed stubs_test) ;;
  esac
  cmake --build build-asan -j "$(nproc)" --target "${targets[@]}" >"$log" 2>&1 || { cat "$log"; exit 1; }
fi
if [ "${1:-run}" = run ]; then
  which=()
  # Each turn runs other cases than the one before it.
  export SIE_TEST_TURN=${SIE_TEST_TURN:-$(git rev-list --count HEAD 2>/dev/null || echo 1)}
  if [ $# = 0 ]; then
    which=(-C whole)
    export SIE_TEST_WHOLE=1
  fi
  case $half in
    kernels) which=(-R "$kernels") ;;
    csrc) which=(-E "$kernels") ;;
  esac
  ctest --test-dir build-asan -j "$(nproc)" --output-on-failure --no-tests=error "${which[@]}"
  if [ $# = 0 ]; then
    # The library as the server uses it: models of several architectures share a device, are loaded,
    # evicted and changed by adapters under load, and at the end nothing may be left.
    changed=$(mktemp -d)
    trap 'rm -rf "$changed"' EXIT
    sed 's#/build/libsie.a#/build-asan/libsie.a -fsanitize=address,undefined#' \
      runtime/engine/libsie_gen.go >"$changed/libsie_gen.go"
    printf '{"Replace": {"%s": "%s"}}' "$PWD/runtime/engine/libsie_gen.go" "$changed/libsie_gen.go" \
      >"$changed/overlay.json"
    UBSAN_OPTIONS=halt_on_error=1 go test -asan -tags native,disable_grpc_modules,netgo,osusergo \
      -overlay "$changed/overlay.json" ./runtime/model -count 3 -run '^(TestChaos|TestArchitecturesShareAServer)$'
  fi
fi
