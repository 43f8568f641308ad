#!/usr/bin/env bash
# Every test that needs no GPU, with a heading, a time and the CPU's time each. Called by `make
# test`. Three rows of steps run at once, so that a step that waits, or that can use one core only,
# leaves none idle: the C side, whose words come as they are said, and the Go side and the programs
# as they are used, whose words come together when they have ended. They take about as long as each
# other.
# shellcheck disable=SC2016 # the words of bash -c are expanded by that bash
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
rows=() # the process of each row that runs beside this one, until its words have been said
finish() {
  local row
  for row in "${rows[@]}"; do
    kill -- "-$row" 2>/dev/null || true
    cat "$work/row.$row" 2>/dev/null || true
  done
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
  doing=$name
  "$@"
  doing=
  used
  line="$((SECONDS - start)) s, $((cpu - before)) s of CPU"
  echo "== $name: $line"
  [ -z "${told:-}" ] || echo "== beside this: $name: $line" >&3
  printf '%6d  %s: %s\n' $((SECONDS - start)) "$name" "$line" >>"$work/steps"
}

# ended: at the end of a row, says which step has failed, if one has.
ended() {
  local status=$?
  [ $status != 0 ] || return 0
  touch "$work/failed"
  [ -n "${doing:-}" ] || return 0
  echo "== $doing: failed with $status"
  [ -z "${told:-}" ] || echo "== beside this: $doing: failed with $status; its words come below" >&3
}

# begin_beside FUNCTION: its steps run beside what follows, until end_beside. Where one fails, no
# further step begins.
begin_beside() {
  set -m # a process group of its own, which finish ends whole
  (
    told=1
    exec 3>&1 >"$work/row.$BASHPID" 2>&1 </dev/null
    trap ended EXIT
    "$1"
  ) &
  set +m
  rows+=($!)
}

# end_beside: waits for every row, and says its words. It fails with the first that failed.
end_beside() {
  local row status=0
  while [ ${#rows[@]} -gt 0 ]; do
    row=${rows[0]}
    wait "$row" || status=$?
    rows=("${rows[@]:1}")
    cat "$work/row.$row"
    [ $status = 0 ] || return $status
  done
}

# until_done WHAT: waits until another row has touched it. Where a step has failed it never comes, and
# the next step does not begin.
until_done() {
  until [ -e "$work/$1" ] || [ -e "$work/failed" ]; do sleep 1; done
}

race_packages="./internal/httpd ./internal/lockorder ./weights/hub ./runtime/batch ./runtime/registry ./runtime/server \
  ./runtime/model ./runtime/service ./runtime/task ./runtime/tokenizer ./runtime/engine ./runtime/ipc \
  ./gateway/fleet ./gateway/queue ./sidecar/worker"

# The number of commits says what takes turns; a clone of depth 1 has turn 1. Four commits in a row
# see each of these, eight both halves of each, 96 every part of every list:
#   1 of 4   AddressSanitizer on the kernels' tests or on csrc's; clients of a cluster
#   2 of 4   the CUDA kernels for one of two cards and the build with them inside; clients of one
#            sie-server
#   3 of 4   a sample of mutants of the CPU's code, and all of the architectures'; the chart; formats
#            of C and of scripts; clients of a cluster
#   0 of 4   half of the packages under the race detector; a sample of mutants of the CUDA kernels;
#            clients of one sie-server
#   not 2    one of three cards that models are emulated on, each model in one of its classes, and
#            half of the models whose decisions it repeats; a sixth of the fuzz targets; the images,
#            broken on purpose
#   each     parts of the conformance list and of csrc's tests (cmake/tests.cmake), a third of
#            attention's own tests and of wgmma's products (cmake/simt.cmake), a tenth of MiniLM's
#            passages (a fifth for clients), long texts and cuts of a part of the tokenizers, two of
#            six forms of a flood (gateway/queue), half of the requests in which a cluster is compared
#            with one sie-server, half of Unicode's words, half of the seeds of pools, a third of
#            those of quotas
turn=${SIE_TEST_TURN:-$(git rev-list --count HEAD 2>/dev/null || echo 1)}
unset SIE_TEST_TURN # for the steps alone that are given it
# The turns of what the turns of CUDA leave out are counted without those, so that no part of a list
# is theirs alone.
turn_of_others=$((turn - (turn + 1) / 4))
case $((turn % 4)) in
  0) of=race target=sie-server ;;
  1) of=sanitizers target=cluster ;;
  2) of=cuda target=sie-server ;;
  *) of=mutants target=cluster ;;
esac

# later N NAME…: these steps are not of this turn, but of the next of which a quarter is N.
later() {
  local quarter=$1 next=$((turn + 1))
  shift
  while [ $((next % 4)) != "$quarter" ]; do next=$((next + 1)); done
  printf '== %s: with another commit (SIE_TEST_TURN=%d)\n' "$*" $next
}

# half PACKAGE…: every second one.
half() {
  local i
  for ((i = turn / 4 % 2; i < $#; i += 2)); do echo "${@:i+1:1}"; done
}

# Each kernel is compiled for one of two cards, 89 (mma.sync, e4m3) and 90a (wgmma). What 80 and 86
# are given differs from 89's in registers, not in instructions; those and Blackwell are compared by
# `make kernels-check`. Where they have been compiled here once, they are compared here, too. Always
# 13.0, whose tables are checked in.
toolkit=${TOOLKIT:-13.0}
case $((turn / 4 % 2)) in 0) targets=89 ;; 1) targets=90a ;; esac
[ ! -e "build/cuda-$toolkit/libsie_cuda.a" ] || targets=""

# The half of the C tests that runs under sanitizers.
case $((turn / 4 % 2)) in 0) sanitized=kernels ;; 1) sanitized=csrc ;; esac

cuda_inside() {
  step "CUDA kernels, compiled" tools/kernels/check.sh check "$toolkit" "$targets"
  step "The build with CUDA inside" tools/setup/build-cuda.sh "$toolkit" "$targets"
  step "The same without a driver" tools/test/no-driver.sh
  [ -z "$targets" ] || echo "== bin/cuda/sie-server is for the target $targets alone: make build-cuda makes it whole"
}

# sample SOURCES: of their mutants, as many as are judged in 45 s.
sample() {
  step "Mutants: a sample" python3 -B tools/mutate/mutate.py sample --sources "$1" --seconds 45 --longest 10 \
    --jobs "$(nproc)"
}

# The order within a row: first what others wait for and what one core does, last what fills two, so
# that no row ends alone on one.
c_side() {
  step "C: build" bash -c 'cmake --build build -j "$(nproc)" >build/c.log 2>&1 || { cat build/c.log; exit 1; }'
  touch "$work/c-is-built"
  if [ $of = cuda ]; then
    until_done set-up
    cuda_inside
    touch "$work/cuda-is-inside"
  else
    later 2 "CUDA kernels, compiled, and the build with CUDA inside"
  fi
  rm -f build/launches
  step "C: kernels, programs, ABI" env "SIE_TEST_TURN=$turn" bash -c 'SIE_SIMT_LAUNCHES=$PWD/build/launches ctest --test-dir build -j "$(($(nproc) + 1))" --output-on-failure'
  step "arm64, under qemu: vectors and products" tools/test/arm64.sh quick
  step "How the tests launch each kernel" python3 -B tools/kernels/launches.py part build/launches
  step "Mutants: proofs" python3 -B tools/mutate/mutate.py check
  case $of in
    mutants) sample host ;;
    race) sample cuda ;;
    *) later $(((turn + 2) % 4)) "Mutants: a sample" ;;
  esac
  if [ $of = sanitizers ]; then
    step "C under AddressSanitizer and UBSan: build" tools/test/asan.sh build host "$sanitized"
    step "C under AddressSanitizer and UBSan: $sanitized" env "SIE_TEST_TURN=$turn" \
      tools/test/asan.sh run "$sanitized"
  else
    later 1 "C under AddressSanitizer and UBSan"
  fi
}

go_side() {
  step "Kernel tools" python3 -B -m unittest discover -s tools/kernels
  step "The simulator of many cores" python3 -B -m unittest discover -s bench
  step "Mutation check, its own tests" python3 -B -m unittest discover -s tools/mutate
  step "Archives of golden files" python3 -B -m unittest discover -q -s tools/golden
  step "Repeated tests, their counts" python3 -B -m unittest discover -q -s tools/test
  if [ $of = mutants ]; then
    step "Formats of C and of scripts" bash -c 'tools/setup/venv.sh lint && tools/test/lint.sh formats'
  else
    later 3 "Formats of C and of scripts"
  fi
  step "Set-up" "${MAKE:-make}" --no-print-directory -j 3 --old-file=libsie build minilm buckets venv-clients
  touch "$work/set-up"
  step "GPU check, its own tests" build/venv-clients/bin/python -B -m unittest discover -q -s tools/gpu
  # shellcheck disable=SC2046
  step "Go" env "SIE_TEST_TURN=$turn" SIE_REQUIRE_MINILM=1 SIE_REQUIRE_BROWSER=1 SIE_REQUIRE_BUCKETS=1 SIE_REQUIRE_CLIENTS=1 \
    "SIE_TEST_PROGRAMS=$PWD/bin" go test -tags "native,$tags" -timeout 30m $(go_packages)
  if [ $of = race ]; then
    # shellcheck disable=SC2046,SC2086
    step "Go under the race detector" env SIE_REQUIRE_MINILM=1 go test \
      -tags "native,lockcheck,$tags" -race -short -timeout 30m $(half $race_packages)
  else
    later 0 "Go under the race detector"
  fi
}

# The chart; then the programs as they are used, by clients, under faults, and the fuzz targets, much
# of which waits; models on an emulated GPU; then what is in the programs, and their images. A turn
# that compiles for CUDA takes longest and leaves some of it out.
used_side() {
  local need=()
  if [ $of = mutants ]; then
    # Its other packages have no test that runs without an API server (make kube-check); make lint vets them.
    step "Chart, and what is beside it" go -C tools/kube test -count=1 -timeout 10m ./chart ./check ./natscheck
  else
    later 3 "Chart, and what is beside it; Mutants of the architectures"
  fi
  until_done set-up
  step "Clients" env "SIE_TARGETS=$target" "SIE_TEST_TURN=$turn" \
    build/venv-clients/bin/python -m pytest -q tools/test/clients
  step "Many models, briefly" python3 -B bench/models.py --models 30 --room 5 --requests 300
  step "Chaos, briefly" "${MAKE:-make}" --no-print-directory --old-file=libsie chaos-short
  if [ $of = cuda ]; then
    later 3 "Fuzz targets, briefly; The GPU path, emulated; Images, broken on purpose"
  else
    step "Fuzz targets, briefly" env FUZZTIME=2s "SIE_TEST_TURN=$turn_of_others" tools/test/fuzz.sh
  fi
  until_done c-is-built
  [ $of = cuda ] ||
    step "The GPU path, emulated" env SIE_REQUIRE_MINILM=1 "SIE_TEST_TURN=$turn_of_others" \
      tools/test/emulated.sh
  step "Models on emulated AMX" tools/test/amx.sh
  if [ $of = cuda ]; then
    until_done cuda-is-inside
    need=(--need Dockerfile.cuda)
  fi
  step "What is in the programs" "${MAKE:-make}" --no-print-directory sbom
  step "Images" tools/docker/check.sh "${need[@]}" --need Dockerfile.gateway --need Dockerfile.config \
    --need Dockerfile.sidecar
  [ $of = cuda ] || step "Images, broken on purpose" python3 -B -m unittest discover -s tools/docker
  if [ $of = mutants ]; then
    step "Mutants of the architectures" go run ./tools/mutate/golists
  fi
}

# Every Go package but the one whose tests run in "What is written".
go_packages() { go list -tags "native,$tags" ./... | grep -v /internal/archtest$; }

# What needs nothing built and fails most often.
written() {
  local bad
  bad=$(git ls-files -z '*.go' | xargs -0 gofmt -l)
  [ -z "$bad" ] || { echo "gofmt (make format repairs it): $bad"; return 1; }
  go test -tags "native,$tags" -timeout 30m ./internal/archtest
}

# One set of flags for every Go build here, so that each package is compiled once: as in the product
# (-trimpath, its tags), with what the tag cuda needs (the plain builds do not use it), and without
# debug information. make lint vets.
tags=disable_grpc_modules,netgo,osusergo
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-trimpath -ldflags=-w -vet=off -tags=$tags"
step "What is written" written
toolkit_home() { home=$(tools/setup/cuda.sh "$toolkit"); }
step "CUDA toolkit" toolkit_home
mkdir -p build/driver
export SIE_CGO_BUILD=build
eval "$(tools/setup/cgo-cuda.sh build "$home")"

step "C: the library" "${MAKE:-make}" --no-print-directory libsie
begin_beside go_side
begin_beside used_side
# In a shell of its own: in this one the Go side, once it has ended, would count as CPU time of a step.
(trap ended EXIT && c_side)
end_beside
echo "== the ten slowest steps"
sort -rn "$work/steps" | sed 10q | cut -c 9-
echo "== all tests passed in $SECONDS s; no GPU was used"
