#!/usr/bin/env bash
# Checks and times the CUDA kernels on the GPU of this host. Usage: check.sh [RESULTS]    (default: gpu-results)
#
# Runs from a bundle (tools/gpu/bundle.sh) on a host that has a driver and nothing else: no network, no Go, no compiler.
# Where the bundle's programs do not start or have no code for the card, they are built with the host's nvcc. Writes the
# folder RESULTS and RESULTS.tar.gz: summary.txt and summary.json, a log of each part, recordings, bench.jsonl,
# gemm_tiles.txt, kernels.md and kernels.svg. At most SIE_GPU_SECONDS (460), each part within its share of them; a part
# that fails or runs out of time does not stop the others.
#
#   record       what ldmatrix, mma, wgmma and TMA return, for testdata/hopper
#   conformance  every case of kernels/tests, on device memory
#   memcheck, racecheck, synccheck    a sample of them under compute-sanitizer, where there is one
#   bench        every operation at models' shapes, cuBLASLt beside
#   sweep        tile variants of the GEMM, and that all give the same bits
#   torch        PyTorch at the same shapes, where it is
#
# Exit 0: every part passed, or its tool is not there (summary.txt says so); 1: one failed; 2: no GPU; 3: none failed, but
# one ran out of time.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
results=${1:-gpu-results}
began=$SECONDS
limit=${SIE_GPU_SECONDS:-460}
say() { echo "gpu-check: $*"; }

if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1 && ! ls /dev/dxg >/dev/null 2>&1 && ! timeout 20 nvidia-smi -L >/dev/null 2>&1; then
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

# note NAME STATE SECONDS: a line of the summary. Parts run at the same time: one file each.
note() {
  printf '%-12s %-8s %5s s  %s\n' "$1" "$2" "$3" "${4:-}" | tee "$scratch/note.$1"
  printf '{"part":"%s","state":"%s","seconds":%s}\n' "$1" "$2" "$3" >"$scratch/json.$1"
}

# part NAME SECONDS COMMAND…: runs it with its output in RESULTS/NAME.txt. Returns the command's status, 124 when its time
# was up. What only writes down the others' results may be late.
part() {
  local name=$1 seconds=$2 status begin=$SECONDS left=$((limit - (SECONDS - began)))
  [ "$name" != report ] || left=$seconds
  shift 2
  if [ "$left" -lt 5 ]; then
    note "$name" stopped 0 "no time left"
    return 124
  fi
  [ "$seconds" -lt "$left" ] || seconds=$left
  timeout -k 5 "$seconds" "$@" >"$results/$name.txt" 2>&1
  status=$?
  case $status in
    0) note "$name" passed $((SECONDS - begin)) ;;
    124 | 137) note "$name" stopped $((SECONDS - begin)) "its $seconds s were up" ;;
    *) note "$name" failed $((SECONDS - begin)) "exit $status, $name.txt: $(grep -vE '^[[:space:]]*$' "$results/$name.txt" | tail -1 | cut -c1-90)" ;;
  esac
  return $status
}

absent() { note "$1" absent 0 "$2"; }

summarise() {
  cat "$scratch"/note.* | sort >"$results/summary.txt"
  cat "$scratch"/json.* | sort >"$results/summary.json"
  tar -czf "$results.tar.gz" -C "$(dirname "$results")" "$(basename "$results")" || say "no archive: $results.tar.gz"
  say "$results and $results.tar.gz after $((SECONDS - began)) s"
}

# ---- the host, and programs that run on it -----------------------------------------------------------------------------

{
  date -u +%Y-%m-%dT%H:%M:%SZ
  uname -a
  timeout 20 nvidia-smi -q 2>&1 || echo "no nvidia-smi"
  nvcc --version 2>&1 || echo "no nvcc"
  cat "$here/bundle.txt" 2>/dev/null
} >"$results/host.txt"

bin=$here/bin
# sie_conformance answers 2 where it finds no card that it has code for; 126, 127 and signals: it does not start.
SIE_TEST_SHARD=0/1000000 timeout 60 "$bin/sie_conformance" quantise >"$scratch/start.txt" 2>&1
started=$?
if [ "$started" -gt 1 ]; then
  say "the programs in $bin do not run here: $(tail -1 "$scratch/start.txt")"
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
  if [ -z "$nvcc" ] || ! part build 240 "$here/build.sh" "$scratch/bin" "$nvcc"; then
    [ -n "$nvcc" ] || absent build "no nvcc on this host"
    say "and they cannot be built here"
    cp "$scratch/start.txt" "$results/start.txt"
    note start failed 0 "start.txt"
    summarise
    exit 1
  fi
  bin=$scratch/bin
fi

# ---- right, then fast ----------------------------------------------------------------------------------------------------

mkdir -p "$results/recordings"
part record 20 "$bin/sie_record" "$results/recordings"

sanitizer=
for candidate in "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer "$here/sanitizer/compute-sanitizer"; do
  if [ -x "$candidate" ] && timeout 10 "$candidate" --version >/dev/null 2>&1; then
    sanitizer=$candidate
    break
  fi
done

# Half of a conformance run is the host's reference: the sanitizers run beside it. Nothing is timed meanwhile.
sanitize() {
  local tool
  if [ -z "$sanitizer" ]; then
    for tool in memcheck racecheck synccheck; do absent "$tool" "no compute-sanitizer"; done
    return
  fi
  part memcheck 60 env SIE_TEST_SHARD=0/23 "$sanitizer" --tool memcheck --padding 512 --error-exitcode 9 --print-limit 20 "$bin/sie_conformance"
  part racecheck 50 env SIE_TEST_SHARD=0/31 "$sanitizer" --tool racecheck --racecheck-report all --error-exitcode 9 --print-limit 20 "$bin/sie_conformance"
  part synccheck 30 env SIE_TEST_SHARD=0/31 "$sanitizer" --tool synccheck --error-exitcode 9 --print-limit 20 "$bin/sie_conformance"
}
sanitize &
part conformance 150 "$bin/sie_conformance"
wait

# cuBLASLt outside the loader's folders: PyTorch brings its own.
cublaslt=$(timeout 10 python3 - 2>/dev/null <<'PYTHON'
import glob, sys
found = [f for p in sys.path if p for f in glob.glob(p + "/nvidia/*/lib/libcublasLt.so.1[23]")]
print(found[0] if found else "")
PYTHON
)
part bench 150 "$bin/sie_bench" --seconds 130 --json "$results/bench.jsonl" ${cublaslt:+--cublaslt "$cublaslt"}
part sweep 80 "$bin/sie_bench" --seconds 65 --sweep "$results/gemm_tiles.txt"
if timeout 30 python3 -c 'import torch' 2>/dev/null; then
  part torch 60 python3 -B "$here/torch_peer.py" "$results/bench.jsonl" "$results/torch.jsonl" 45
else
  absent torch "no PyTorch"
fi
if command -v python3 >/dev/null && [ -s "$results/bench.jsonl" ]; then
  part report 20 python3 -B "$here/report.py" "$results" "$results/bench.jsonl" "$results/torch.jsonl"
fi

summarise
grep -q ' failed ' "$results/summary.txt" && exit 1
grep -q ' stopped ' "$results/summary.txt" && exit 3
exit 0
