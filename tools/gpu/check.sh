#!/usr/bin/env bash
# Checks and times the CUDA kernels, models and the server on the GPU of this host.
# Usage: check.sh [--kernels | --serving] [RESULTS=]FOLDER    (default: both halves by a sample; gpu-results)
#
# Runs from a checkout with the programs of a bundle (bundle.sh) in build/gpu-bundle or, packed, in
# build/gpu-bundle.tar.xz (SIE_GPU_BUNDLE: elsewhere), on a host that has a driver and nothing of ours: no
# network, no Go. Where the bundle's kernel programs do not start or have no code for the card,
# they are built with the host's nvcc. A half takes at most nine minutes (SIE_GPU_SECONDS, 500, and what
# is being ended), each part within its share of them. Parts run in the order of their worth, and one
# that fails or runs out of time does not stop the others.
#
# FOLDER is true at any second: what a part finds is there as it comes, and after each part
# summary.txt says how it went. Who stops this script, by whatever signal, loses what had not run.
# FOLDER.tar.gz is written at the end.
#
# --kernels:
#   record       what ldmatrix, mma, wgmma and TMA return, for testdata/hopper
#   conformance  every case of kernels/tests, on device memory: told of two multiprocessors
#   conformance_all    a sample of it, told of as many as the card has
#   bench        every operation at models' shapes, cuBLASLt and the prediction beside
#   torch        PyTorch at the same shapes, where it is
#   sweep        tile variants of the GEMM, and that all give the same bits
#   memcheck, racecheck, synccheck    a sample of the cases under compute-sanitizer, where there is one; what is
#                known of a tool is in sanitizer-expected.txt, anything else fails (triage.py)
# --serving:
#   models       every architecture, head and adapter of testdata/golden against the vectors of transformers, packed with
#                others and alone, as graphs and without; in two processes on the card at once
#   doctor, prepare, headline, latency, load, overload, memory, quality, compiled, results    models and server:
#                README.md, serving/run.py; they need Python with torch, transformers and sentence-transformers
#                (SIE_PYTHON, default python3)
#
# SIE_GPU_REHEARSE=1: models and server in toy sizes on a machine without a GPU, over the stand-in
# driver of the bundle that `bundle.sh --rehearse` makes; nothing is timed, and the results say so.
#
# Exit 0: every part passed, or its tool is not there (summary.txt says so); 1: one failed; 2: no
# GPU; 3: none failed, but one ran out of time.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bundle=${SIE_GPU_BUNDLE:-$root/build/gpu-bundle}
SIE_GPU_COMMAND="check.sh $*"
mode=all
case ${1:-} in
  --kernels | --serving) mode=${1#--} && shift ;;
  -*) echo "gpu-check: ${1}: use --kernels, --serving or neither, and a folder for the results" >&2 && exit 1 ;;
esac
results=${1:-gpu-results}
results=${results#RESULTS=}
rehearse=${SIE_GPU_REHEARSE:-}
python=${SIE_PYTHON:-python3}
began=$SECONDS
limit=${SIE_GPU_SECONDS:-500}
say() { echo "gpu-check: $*"; }

if [ -n "$rehearse" ]; then
  say "REHEARSAL: no GPU is used, the models are toys, nothing is measured"
elif ! ls /dev/nvidia[0-9]* >/dev/null 2>&1 && ! ls /dev/dxg >/dev/null 2>&1 &&
  ! timeout 20 nvidia-smi -L >/dev/null 2>&1; then
  say "no GPU on this host: nothing is checked. The kernels' tests without one are in make test."
  exit 2
fi
# An earlier run's folder is replaced, anything else is left alone.
if [ -e "$results/host.txt" ]; then
  rm -rf "$results"
elif [ -n "$(ls -A "$results" 2>/dev/null)" ]; then
  say "$results holds something else; name another folder"
  exit 1
fi
mkdir -p "$results" && results=$(cd "$results" && pwd) || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# ---- parts -----------------------------------------------------------------------------------------------------------

# note NAME STATE SECONDS [WHY]: a line of the summary, which is written anew, whole or not at all.
# Parts run at the same time: one file each.
note() {
  printf '%-15s %-8s %5s s  %s\n' "$1" "$2" "$3" "${4:-}" | tee "$scratch/note.$1"
  printf '{"part":"%s","state":"%s","seconds":%s}\n' "$1" "$2" "$3" >"$scratch/json.$1"
  (
    flock 9
    for kind in note:txt json:json; do
      sort "$scratch/${kind%:*}".* >"$results/summary.part" &&
        mv "$results/summary.part" "$results/summary.${kind#*:}"
    done
  ) 9>"$scratch/lock"
}

# part NAME SECONDS COMMAND…: runs it with its output in RESULTS/NAME.txt. Returns the command's
# status, 124 when its time was up; SIE_GPU_STEP_SECONDS tells the command how long it has. What
# only writes down the others' results may be late.
part() {
  local name=$1 seconds=$2 status begin=$SECONDS left=$((limit - (SECONDS - began)))
  case $name in report | results) left=$seconds ;; esac
  shift 2
  if [ "$left" -lt 5 ]; then
    note "$name" stopped 0 "no time left"
    return 124
  fi
  [ "$seconds" -lt "$left" ] || seconds=$left
  # Whoever finds this line knows what was running when the script was stopped.
  note "$name" begun 0
  SIE_GPU_STEP_SECONDS=$seconds timeout -k 5 "$seconds" "$@" >"$results/$name.txt" 2>&1
  status=$?
  case $status in
    0) note "$name" passed $((SECONDS - begin)) ;;
    124 | 137) note "$name" stopped $((SECONDS - begin)) "its $seconds s were up" ;;
    *)
      last=$(grep -vE '^[[:space:]]*$' "$results/$name.txt" | tail -1 | cut -c1-90)
      note "$name" failed $((SECONDS - begin)) "exit $status, $name.txt: $last"
      ;;
  esac
  return $status
}

absent() { note "$1" absent 0 "$2"; }

summarise() {
  tar -czf "$results.tar.gz" -C "$(dirname "$results")" "$(basename "$results")" ||
    say "no archive: $results.tar.gz"
  say "$results and $results.tar.gz after $((SECONDS - began)) s"
}

# Where there is no xz, Python has one.
if ! [ -d "$bundle" ] && [ -e "$bundle.tar.xz" ]; then
  tar -xJf "$bundle.tar.xz" -C "$scratch" 2>/dev/null ||
    "$python" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$bundle.tar.xz" "$scratch" ||
    say "$bundle.tar.xz cannot be unpacked"
  bundle=$scratch/$(basename "$bundle")
fi

# ---- the host, and programs that run on it -----------------------------------------------------------------------------

{
  date -u +%Y-%m-%dT%H:%M:%SZ
  uname -a
  timeout 20 nvidia-smi -q 2>&1 || echo "no nvidia-smi"
  nvcc --version 2>&1 || echo "no nvcc"
  cat "$bundle/bundle.txt" 2>/dev/null
} >"$results/host.txt"

# find_programs: sets bin to kernel programs that run here: the bundle's, else some built now.
find_programs() {
  local started nvcc
  bin=$bundle/bin
  # sie_conformance answers 2 where it finds no card that it has code for; 126, 127 and signals: it
  # does not start.
  SIE_TEST_SHARD=0/1000000 timeout 60 "$bin/sie_conformance" quantise >"$scratch/start.txt" 2>&1
  started=$?
  [ "$started" -gt 1 ] || return 0
  say "the programs in $bin do not run here: $(tail -1 "$scratch/start.txt")"
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
  if [ -z "$nvcc" ] || ! part build 240 "$here/build.sh" "$scratch/bin" "$nvcc"; then
    [ -n "$nvcc" ] || absent build "no nvcc on this host"
    say "and they cannot be built here"
    cp "$scratch/start.txt" "$results/start.txt"
    note start failed 0 "start.txt"
    return 1
  fi
  bin=$scratch/bin
}

# ---- kernels: right, then fast ---------------------------------------------------------------------------------------

record() {
  if [ ! -x "$bin/sie_record" ]; then
    absent record "not in this bundle"
    return
  fi
  mkdir -p "$results/recordings"
  part record 20 "$bin/sie_record" "$results/recordings"
}

# sanitized NAME SECONDS OPTIONS…: a tool over a sample of the cases. Its exit status says nothing, as
# it counts what is known: triage.py judges what it printed.
sanitized() {
  local name=$1 seconds=$2
  shift 2
  # shellcheck disable=SC2016 # the words are expanded by that bash
  part "$name" "$seconds" bash -c '
    name=$1 said=$2 here=$3 python=$4
    shift 4
    "$@" >"$said" 2>&1
    echo "exit status $?" >>"$said"
    exec "$python" -B "$here/triage.py" "$name" "$here/sanitizer-expected.txt" "$said"' \
    sanitized "$name" "$results/$name.said.txt" "$here" "$python" "$@"
}

sanitize() {
  local tool candidate sanitizer=
  for candidate in "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer; do
    if [ -x "$candidate" ] && timeout 10 "$candidate" --version >/dev/null 2>&1; then
      sanitizer=$candidate
      break
    fi
  done
  if [ -z "$sanitizer" ]; then
    for tool in memcheck racecheck synccheck; do absent "$tool" "no compute-sanitizer"; done
    return
  fi
  sanitized memcheck 60 env SIE_TEST_SHARD=0/23 "$sanitizer" --tool memcheck --padding 512 \
    "$bin/sie_conformance" --multiprocessors few
  sanitized synccheck 30 env SIE_TEST_SHARD=0/31 "$sanitizer" --tool synccheck \
    "$bin/sie_conformance" --multiprocessors few
  sanitized racecheck 50 env SIE_TEST_SHARD=0/31 "$sanitizer" --tool racecheck --racecheck-report all \
    "$bin/sie_conformance" --multiprocessors few
}

# What is right first, then what is fast; sanitizers, which are slow and noisy, last.
kernels_whole() {
  record
  part conformance 130 "$bin/sie_conformance" --multiprocessors few
  part conformance_all 40 env SIE_TEST_SHARD="${SIE_TEST_SHARD:-0/4}" \
    "$bin/sie_conformance" --multiprocessors all
  time_kernels 110
  if timeout 30 "$python" -c 'import torch' 2>/dev/null; then
    part torch 50 "$python" -B "$root/kernels/bench/torch_peer.py" "$results/bench.jsonl" \
      "$results/torch.jsonl" 40
  else
    absent torch "no PyTorch"
  fi
  report_kernels
  part sweep 70 "$bin/sie_bench" --seconds 60 --sweep "$results/gemm_tiles.txt"
  sanitize
}

kernels_sample() {
  record
  part conformance 60 env SIE_TEST_SHARD="${SIE_TEST_SHARD:-0/3}" "$bin/sie_conformance" --multiprocessors few
}

# time_kernels SECONDS: as many operations as fit.
time_kernels() {
  local cublaslt seconds=$(($1 - 20))
  # cuBLASLt outside the loader's folders: PyTorch brings its own.
  cublaslt=$(timeout 10 "$python" - 2>/dev/null <<'PYTHON'
import glob, sys
found = [f for p in sys.path if p for f in glob.glob(p + "/nvidia/*/lib/libcublasLt.so.1[23]")]
print(found[0] if found else "")
PYTHON
)
  part bench "$1" "$bin/sie_bench" --seconds "$seconds" --json "$results/bench.jsonl" \
    ${cublaslt:+--cublaslt "$cublaslt"}
}

report_kernels() {
  if command -v "$python" >/dev/null && [ -s "$results/bench.jsonl" ]; then
    part report 20 "$python" -B "$root/kernels/bench/report.py" "$results" "$results/bench.jsonl" \
      "$results/torch.jsonl"
  fi
}

# ---- models and server -----------------------------------------------------------------------------------------------

export SIE_GPU_BIN=$bundle/bin SIE_GPU_BUNDLE=$bundle SIE_GPU_COMMAND
export PYTHONPATH=$here/serving:$root/bench HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error

# serving_step NAME SECONDS
serving_step() {
  part "$1" "$2" "$python" -B "$here/serving/run.py" "$1" "$scratch/serving" "$results"
}

# Large golden files travel in archives, which Python unpacks. Twice at once: two processes share a card,
# and neither may see it. In a rehearsal one card of the three and one head.
models() {
  local some=TestGPU
  [ -z "$rehearse" ] || some='TestGPUHeads/sm_9.0/(classify|splade)'
  # shellcheck disable=SC2016 # the words are expanded by that bash
  part models 90 env SIE_REQUIRE_CARD=1 SIE_GOLDEN="$root/testdata/golden" bash -c '
    "$4" -B "$5" || exit
    "$1" -test.v -test.run "$2" >"$3/other.txt" 2>&1 &
    "$1" -test.v -test.run "$2"
    first=$?
    wait $! || { status=$?; echo "the other process at the same time:"; cat "$3/other.txt"; exit $status; }
    exit $first' models "$bundle/bin/models.test" "$some" "$scratch" \
    "$python" "$root/tools/golden/packed.py"
}

# What there is so far, joined: the steps' own files are in RESULTS/serving.
join_serving() {
  "$python" -B "$here/serving/run.py" report "$scratch/serving" "$results" >"$scratch/joined.txt" 2>&1 ||
    say "not joined: $(tail -1 "$scratch/joined.txt")"
}

# serving SECONDS: of them for the load, the step with most to measure.
serving() {
  if ! "$python" - 2>"$scratch/import.txt" <<'PYTHON'; then
import importlib.util, sys
needed = ("numpy", "torch", "transformers", "sentence_transformers")
missing = [m for m in needed if not importlib.util.find_spec(m)]
sys.exit("it has no " + " and no ".join(missing) if missing else 0)
PYTHON
    absent serving "$python: $(tail -1 "$scratch/import.txt" | cut -c1-90)"
    return
  fi
  serving_step doctor 20
  if serving_step prepare 90; then
    serving_step headline 70
    join_serving
    serving_step latency 75
    serving_step load "$1"
    join_serving
    serving_step overload 30
    serving_step memory 70
    serving_step quality 90
    serving_step compiled 60
  fi
  cp -r "$scratch/serving/logs" "$results/serving/" 2>/dev/null
  part results 20 "$python" -B "$here/serving/run.py" report "$scratch/serving" "$results"
}

case $mode in
  kernels) find_programs && kernels_whole ;;
  serving) models; serving 130 ;;
  all)
    # The server has its own program: it is checked even where the kernels' programs do not start.
    find_programs && kernels_sample
    models
    serving 100
    if [ -z "$rehearse" ] && [ -x "$bin/sie_bench" ]; then
      time_kernels 60
      report_kernels
    fi
    ;;
esac

summarise
grep -q ' failed ' "$results/summary.txt" && exit 1
grep -q ' stopped ' "$results/summary.txt" && exit 3
exit 0
