#!/usr/bin/env bash
# The binary with CUDA inside, on a machine without a driver: it starts, encodes on the CPU, and
# says what is missing; and over a driver that is too old or has no card (the stand-in). Usage:
# no-driver.sh [BINARY] Needs make build-cuda, make minilm, and build/standin for the second half. A
# GPU of this machine is not used.
set -euo pipefail
cd "$(dirname "$0")/../.."
binary=${1:-bin/cuda/sie-server}
fail() {
  echo "no-driver: $*" >&2
  exit 1
}

# expect STATUS TEXT COMMAND…: it ends with the status and says the text.
expect() {
  local want=$1 text=$2 status=0 said
  shift 2
  said=$(timeout 60 "$@" 2>&1) || status=$?
  [ "$status" = "$want" ] || fail "$* ends with $status, not $want: $said"
  grep -qF -- "$text" <<<"$said" || fail "$* does not say '$text': $said"
}

export SIE_LIBCUDA=no-such-libcuda.so.1
expect 0 "no CUDA driver" "$binary" doctor
expect 0 "no-such-libcuda.so.1" "$binary" doctor
expect 1 "or use --device cpu" "$binary" serve --device cuda --port 0
for device in cpu auto; do
  expect 0 "[" "$binary" encode --device "$device" -m MiniLM=build/models/all-MiniLM-L6-v2 -M MiniLM \
    "one text"
done

export SIE_LIBCUDA=$PWD/build/standin/libcuda.so.1
[ -e "$SIE_LIBCUDA" ] || fail "build/standin/libcuda.so.1 is missing: make test-c builds it"
expect 0 "no GPU" env SIE_STANDIN="devices 0" "$binary" doctor
expect 0 "update the driver" env SIE_STANDIN="driver 11040" "$binary" doctor
expect 1 "cannot be used" env SIE_STANDIN="driver 11040" "$binary" serve --device cuda --port 0
expect 0 "compute capability 7.5" env SIE_STANDIN="capability 7.5" "$binary" doctor
expect 0 "999" env SIE_STANDIN="fail cuInit 1 999" "$binary" doctor
echo "no-driver: $binary starts without a driver, and refuses what it cannot use"
