#!/usr/bin/env bash
# Every test that needs no GPU, with a heading, a time and the CPU's time each. Called by `make test`.
# shellcheck disable=SC2016 # the words of bash -c are expanded by that bash
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
beside=0
finish() {
  if [ "$beside" != 0 ]; then
    kill -- "-$beside" 2>/dev/null || true
    cat "$work/beside"
  fi
  rm -rf "$work"
}
trap finish EXIT

# Seconds of CPU that the programs of this shell have used, to `cpu`. No subshell: its own programs would count alone.
used() {
  local words
  times >"$work/cpu.$BASHPID"
  mapfile -t words <"$work/cpu.$BASHPID"
  cpu=$(awk -F '[ms ]+' '{ printf "%d", 60 * ($1 + $3) + $2 + $4 }' <<<"${words[1]}")
}

step() {
  local name=$1 start=$SECONDS cpu before line
  shift
  used
  before=$cpu
  echo "== $name"
  "$@"
  used
  line="$((SECONDS - start)) s, $((cpu - before)) s of CPU"
  echo "== $name: $line"
  printf '%6d  %s: %s\n' $((SECONDS - start)) "$name" "$line" >>"$work/steps"
}

# Steps that keep one core busy run beside others: a function that runs such steps; what it says comes when it has ended.
begin_beside() {
  echo "== beside what follows: $2"
  set -m # a process group of its own, which finish ends whole
  "$1" >"$work/beside" 2>&1 </dev/null &
  set +m
  beside=$!
}

end_beside() {
  local pid=$beside status=0
  wait "$pid" || status=$?
  beside=0
  cat "$work/beside"
  return $status
}

race_packages="./internal/httpd ./internal/lockorder ./weights/hub ./runtime/batch ./runtime/registry ./runtime/server ./runtime/model ./runtime/service ./runtime/task ./runtime/tokenizer ./runtime/engine"

with_servers() {
  step "The GPU path, emulated" env SIE_REQUIRE_MINILM=1 tools/test/emulated.sh
  step "Clients" build/venv-clients/bin/python -m pytest -q tools/test/clients
}

step "Set-up" "${MAKE:-make}" --no-print-directory -j 2 build minilm buckets venv-clients
step "Kernel tools" python3 -B -m unittest discover -s tools/kernels
step "Mutation check, its own tests" python3 -B -m unittest discover -s tools/mutate
# All targets, though minutes: what spills on one card need not spill on another, and no emulator sees it. A second run
# compiles what has changed. Always 13.0, whose tables are checked in; the older toolkit is for make kernels-matrix.
step "CUDA kernels for every target" tools/kernels/check.sh check "${TOOLKIT:-13.0}"
step "C: build" bash -c 'cmake --build build -j "$(nproc)" >build/c.log 2>&1 || { cat build/c.log; exit 1; }'
rm -f build/launches
step "C: kernels, programs, ABI" bash -c 'SIE_SIMT_LAUNCHES=$PWD/build/launches ctest --test-dir build -j "$(nproc)" --output-on-failure'
step "How the tests launch each kernel" python3 -B tools/kernels/launches.py check build/launches
step "Mutants: proofs, and a sample" bash -c 'python3 -B tools/mutate/mutate.py check && python3 -B tools/mutate/mutate.py sample --seconds 80 --longest 16 --jobs "$(nproc)"'
step "C under AddressSanitizer and UBSan: build" tools/test/asan.sh build
step "C under AddressSanitizer and UBSan" tools/test/asan.sh run
# Without debug information, which binaries that run once need for nothing; make lint vets.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-ldflags=-w -vet=off"
step "Go" env SIE_REQUIRE_MINILM=1 SIE_REQUIRE_BROWSER=1 SIE_REQUIRE_BUCKETS=1 go test -tags native -timeout 30m ./...
# shellcheck disable=SC2086
step "Go under the race detector" env SIE_REQUIRE_MINILM=1 go test -tags 'native lockcheck' -race -short -timeout 30m $race_packages
step "Fuzz targets, briefly" env FUZZTIME=3s tools/test/fuzz.sh
begin_beside with_servers "the GPU path, emulated, then the clients"
step "The build with CUDA inside" tools/setup/build-cuda.sh 13.0
step "The same without a driver" tools/test/no-driver.sh
step "GPU check, rehearsed" tools/gpu/rehearse.sh
step "Images" tools/docker/check.sh --need Dockerfile.cuda
step "Images, broken on purpose" python3 -B -m unittest discover -s tools/docker
step "Many models, briefly" python3 -B bench/models.py --models 30 --room 5 --requests 300
end_beside
echo "== the ten slowest steps"
sort -rn "$work/steps" | sed 10q | cut -c 9-
echo "== all tests passed in $SECONDS s; no GPU was used"
