#!/usr/bin/env bash
# Every test that needs no GPU, with a heading, a time and the CPU's time each. Called by `make
# test`. Two rows of steps run at once, so that a step that waits, or that can use one core only,
# leaves none idle: the C side, whose words come as they are said, and the Go side, whose words come
# together when it has ended.
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

# Seconds of CPU that the programs of this shell have used, to `cpu`. No subshell: its own programs
# would count alone.
used() {
  local words
  times >"$work/cpu.$BASHPID"
  mapfile -t words <"$work/cpu.$BASHPID"
  cpu=$(awk -F '[ms ]+' '{ printf "%d", 60 * ($1 + $3) + $2 + $4 }' <<<"${words[1]}")
}

# step NAME COMMAND…
step() {
  local name=$1 start=$SECONDS cpu before line
  shift
  [ ! -e "$work/failed" ] || { echo "== $name: not begun, because a step beside it has failed"; exit 1; }
  used
  before=$cpu
  echo "== $name"
  "$@"
  used
  line="$((SECONDS - start)) s, $((cpu - before)) s of CPU"
  echo "== $name: $line"
  [ -z "${told:-}" ] || echo "== beside this: $name: $line" >&3
  printf '%6d  %s: %s\n' $((SECONDS - start)) "$name" "$line" >>"$work/steps"
}

# begin_beside FUNCTION: its steps run beside what follows, until end_beside. Where one fails, no
# further step begins.
begin_beside() {
  set -m # a process group of its own, which finish ends whole
  (
    told=1
    trap '[ $? = 0 ] || touch "$work/failed"' EXIT
    "$1"
  ) 3>&1 >"$work/beside" 2>&1 </dev/null &
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

race_packages="./internal/httpd ./internal/lockorder ./weights/hub ./runtime/batch ./runtime/registry ./runtime/server \
  ./runtime/model ./runtime/service ./runtime/task ./runtime/tokenizer ./runtime/engine ./runtime/ipc \
  ./gateway/fleet ./gateway/queue ./sidecar/worker"

# The number of commits says what takes turns; a clone of depth 1 has turn 1. Twelve commits in a row
# see all of it, the next one this commit's other half:
#   odd   AddressSanitizer; a sample of mutants of the CPU's code, and all of the architectures'; the
#         chart; clients of one sie-server
#   even  the CUDA kernels for one of two cards and the build with them inside, and a sample of their
#         mutants; half of the packages under the race detector; clients of a cluster
#   each  parts of the conformance list and of csrc's tests (cmake/tests.cmake), one of three cards
#         that models are emulated on, a third of the fuzz targets, a fifth of MiniLM's passages in
#         fp32, the megabyte texts of a fourth of the tokenizers
turn=${SIE_TEST_TURN:-$(git rev-list --count HEAD 2>/dev/null || echo 1)}
unset SIE_TEST_TURN # for the steps alone that are given it
even=$((turn % 2 == 0))
case $even in
  0) mutants=host target=sie-server ;;
  1) mutants=cuda target=cluster ;;
esac

# later NAME…: these steps are not of this turn.
later() { printf '== %s: with the next commit (SIE_TEST_TURN=%d)\n' "$*" $((turn + 1)); }

# half PACKAGE…: those of this even turn.
half() {
  local i
  for ((i = turn / 2 % 2; i < $#; i += 2)); do echo "${@:i+1:1}"; done
}

# Each kernel is compiled for one of two cards, 89 (mma.sync, e4m3) and 90a (wgmma). What 80 and 86
# are given differs from 89's in registers, not in instructions; those and Blackwell are compared by
# `make kernels-check`. Where they have been compiled here once, they are compared here, too. Always
# 13.0, whose tables are checked in.
toolkit=${TOOLKIT:-13.0}
case $((turn / 2 % 2)) in 0) targets=89 ;; 1) targets=90a ;; esac
[ ! -e "build/cuda-$toolkit/libsie_cuda.a" ] || targets=""

cuda_inside() {
  step "CUDA kernels, compiled" tools/kernels/check.sh check "$toolkit" "$targets"
  step "The build with CUDA inside" tools/setup/build-cuda.sh "$toolkit" "$targets"
  step "The same without a driver" tools/test/no-driver.sh
  [ -z "$targets" ] || echo "== bin/cuda/sie-server is for the target $targets alone: make build-cuda makes it whole"
}

c_side() {
  step "C: build" bash -c 'cmake --build build -j "$(nproc)" >build/c.log 2>&1 || { cat build/c.log; exit 1; }'
  rm -f build/launches
  step "C: kernels, programs, ABI" env "SIE_TEST_TURN=$turn" bash -c 'SIE_SIMT_LAUNCHES=$PWD/build/launches ctest --test-dir build -j "$(nproc)" --output-on-failure'
  step "arm64, under qemu: vectors and products" tools/test/arm64.sh quick
  step "How the tests launch each kernel" python3 -B tools/kernels/launches.py part build/launches
  touch "$work/c-is-built"
  step "Mutants: proofs, and a sample" bash \
    -c 'python3 -B tools/mutate/mutate.py check && python3 -B tools/mutate/mutate.py sample --sources "$1" --seconds 45 --longest 10 --jobs "$(nproc)"' \
    mutants "$mutants"
  if [ $even = 1 ]; then
    later "C under AddressSanitizer and UBSan"
  else
    step "C under AddressSanitizer and UBSan: build" tools/test/asan.sh build host
    step "C under AddressSanitizer and UBSan" env "SIE_TEST_TURN=$turn" tools/test/asan.sh run
  fi
  until [ -e "$work/set-up" ] || [ -e "$work/failed" ]; do sleep 1; done
  local need=()
  if [ $even = 1 ]; then
    cuda_inside
    need=(--need Dockerfile.cuda)
  else
    later "CUDA kernels, compiled, and the build with CUDA inside"
  fi
  step "What is in the programs" "${MAKE:-make}" --no-print-directory sbom
  step "Images" tools/docker/check.sh "${need[@]}" --need Dockerfile.gateway --need Dockerfile.config \
    --need Dockerfile.sidecar
  step "Images, broken on purpose" python3 -B -m unittest discover -s tools/docker
}

go_side() {
  step "Kernel tools" python3 -B -m unittest discover -s tools/kernels
  step "The simulator of many cores" python3 -B -m unittest discover -s bench
  step "Mutation check, its own tests" python3 -B -m unittest discover -s tools/mutate
  step "Archives of golden files" python3 -B -m unittest discover -q -s tools/golden
  step "Set-up" "${MAKE:-make}" --no-print-directory -j 3 --old-file=libsie build minilm buckets venv-clients
  touch "$work/set-up"
  step "GPU check, its own tests" build/venv-clients/bin/python -B -m unittest discover -q -s tools/gpu
  step "Go" env "SIE_TEST_TURN=$turn" SIE_REQUIRE_MINILM=1 SIE_REQUIRE_BROWSER=1 SIE_REQUIRE_BUCKETS=1 SIE_REQUIRE_CLIENTS=1 \
    go test -tags native -timeout 30m ./...
  if [ $even = 1 ]; then
    later "Chart, and what is beside it; Mutants of the architectures"
  else
    # Its other packages have no test that runs without an API server (make kube-check); make lint vets them.
    step "Chart, and what is beside it" go -C tools/kube test -count=1 -timeout 10m ./chart ./check ./natscheck
    step "Mutants of the architectures" go run ./tools/mutate/golists
  fi
  step "Clients" env "SIE_TARGETS=$target" build/venv-clients/bin/python -m pytest -q tools/test/clients
  if [ $even = 1 ]; then
    # shellcheck disable=SC2046,SC2086
    step "Go under the race detector" env SIE_REQUIRE_MINILM=1 go test -tags 'native lockcheck' \
      -race -short -timeout 30m $(half $race_packages)
  else
    later "Go under the race detector"
  fi
  until [ -e "$work/c-is-built" ]; do sleep 1; done
  step "The GPU path, emulated" env SIE_REQUIRE_MINILM=1 "SIE_TEST_TURN=$turn" tools/test/emulated.sh
  step "Models on emulated AMX" tools/test/amx.sh
  step "Many models, briefly" python3 -B bench/models.py --models 30 --room 5 --requests 300
  step "Chaos, briefly" "${MAKE:-make}" --no-print-directory --old-file=libsie chaos-short
  step "Fuzz targets, briefly" env FUZZTIME=2s "SIE_TEST_TURN=$turn" tools/test/fuzz.sh
}

# What needs nothing built and fails most often. "Go" finds the tests' verdict again where no file has
# changed.
written() {
  local bad
  bad=$(git ls-files -z '*.go' | xargs -0 gofmt -l)
  [ -z "$bad" ] || { echo "gofmt (make format repairs it): $bad"; return 1; }
  go test -tags native -timeout 30m ./internal/archtest
}

# One set of flags for every Go build here, so that each package is compiled once: as in the product
# (-trimpath), with what the tag cuda needs (the plain builds do not use it), and without debug
# information. make lint vets.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-trimpath -ldflags=-w -vet=off"
step "What is written" written
toolkit_home() { home=$(tools/setup/cuda.sh "$toolkit"); }
step "CUDA toolkit" toolkit_home
mkdir -p build/driver
export SIE_CGO_BUILD=build
eval "$(tools/setup/cgo-cuda.sh build "$home")"

step "C: the library" "${MAKE:-make}" --no-print-directory libsie
begin_beside go_side
# In a shell of its own: in this one the Go side, once it has ended, would count as CPU time of a step.
(c_side)
end_beside
echo "== the ten slowest steps"
sort -rn "$work/steps" | sed 10q | cut -c 9-
echo "== all tests passed in $SECONDS s; no GPU was used"
