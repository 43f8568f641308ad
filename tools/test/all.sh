#!/usr/bin/env bash
# Every test that needs no GPU, with a heading and a time each. Called by `make test` after the set-up.
# shellcheck disable=SC2016 # the words of bash -c are expanded by that bash
set -euo pipefail
cd "$(dirname "$0")/../.."

steps=()
step() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  "$@"
  echo "== $name: $((SECONDS - start)) s"
  steps+=("$(printf '%6d s  %s' $((SECONDS - start)) "$name")")
}

race_packages="./internal/lockorder ./weights/hub ./runtime/batch ./runtime/registry ./runtime/server ./runtime/model ./runtime/task ./runtime/tokenizer ./runtime/engine"

step "Kernel tools" python3 -B -m unittest discover -s tools/kernels
step "Mutation check, its own tests" python3 -B -m unittest discover -s tools/mutate
# All targets, though minutes: what spills on one card need not spill on another, and no emulator sees it. A second run
# compiles what has changed. Always 13.0, whose tables are checked in; the older toolkit is for make kernels-matrix.
step "CUDA kernels for every target" tools/kernels/check.sh check "${TOOLKIT:-13.0}"
rm -f build/launches
step "C: kernels, programs, ABI" bash -c 'cmake --build build -j "$(nproc)" >/dev/null && SIE_SIMT_LAUNCHES=$PWD/build/launches ctest --test-dir build -j "$(nproc)" --output-on-failure'
step "How the tests launch each kernel" python3 -B tools/kernels/launches.py check build/launches
step "Mutants: proofs, and a sample" bash -c 'python3 -B tools/mutate/mutate.py check && python3 -B tools/mutate/mutate.py sample --seconds 240 --jobs "$(nproc)"'
step "C under AddressSanitizer and UBSan" bash -c 'cmake --preset asan >/dev/null && cmake --build build-asan -j "$(nproc)" >/dev/null && ctest --test-dir build-asan -j "$(nproc)" --output-on-failure'
step "Go" env SIE_REQUIRE_MINILM=1 SIE_REQUIRE_BROWSER=1 SIE_REQUIRE_BUCKETS=1 go test -tags native ./...
# shellcheck disable=SC2086
step "Go under the race detector" env SIE_REQUIRE_MINILM=1 go test -tags 'native lockcheck' -race -short $race_packages
step "Fuzz targets, briefly" env FUZZTIME=3s tools/test/fuzz.sh
step "The GPU path, emulated" env SIE_REQUIRE_MINILM=1 tools/test/emulated.sh
step "The build with CUDA inside" tools/setup/build-cuda.sh 13.0
step "The same without a driver" tools/test/no-driver.sh
step "GPU check, rehearsed" tools/gpu/rehearse.sh
step "Images" tools/docker/check.sh --need Dockerfile.cuda
step "Images, broken on purpose" python3 -B -m unittest discover -s tools/docker
step "Many models, briefly" python3 -B bench/models.py --models 30 --room 5 --requests 300
step "Clients" build/venv-clients/bin/python -m pytest -q tools/test/clients
echo "== the ten slowest steps"
printf '%s\n' "${steps[@]}" | sort -rn | sed 10q
echo "== all tests passed in $SECONDS s; no GPU was used"
