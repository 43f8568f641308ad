#!/usr/bin/env bash
# Builds for arm64 on another machine: the C library and the tokenizers into build/arm64, and the
# programs into bin/arm64. Usage: arm64.sh libsie|tokenizers|COMMIT
#   libsie       the C library alone
#   tokenizers   the tokenizers alone, which need Rust's standard library for arm64
#   COMMIT       all, and what the programs say they were built from
set -euo pipefail
cd "$(dirname "$0")/../.."
what=${1:?usage: arm64.sh libsie|tokenizers|COMMIT}
build=$PWD/build/arm64
target=aarch64-unknown-linux-gnu
fail() {
  echo "arm64: $*" >&2
  exit 1
}
# quiet FILE COMMAND…: the command's output goes to the file, and is shown where it fails.
quiet() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
}

libsie() {
  if [ ! -e "$build/CMakeCache.txt" ]; then
    echo "arm64: configuring the C library"
    local generator=()
    if command -v ninja >/dev/null; then generator=(-G Ninja); fi
    quiet "$build/configure.log" cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release \
      -DSIE_EMULATION=OFF --toolchain cmake/arm64.toolchain.cmake
  fi
  quiet "$build/libsie.log" cmake --build "$build" -j "$(nproc)" --target sie cgo_flags
}

# As tools/setup/tokenizers.sh does it for this machine; cargo knows what is up to date.
tokenizers() {
  cd runtime/tokenizer/rust
  command -v cargo >/dev/null || fail "cargo is missing: install Rust (https://rustup.rs)"
  if [ ! -d "$(rustc --print target-libdir --target $target)" ]; then
    local missing="Rust's standard library for $target is missing" add="rustup target add $target"
    command -v rustup >/dev/null || fail "$missing; with rustup (https://rustup.rs): $add"
    echo "arm64: adding Rust's standard library: $add"
    $add || fail "$missing, and rustup could not add it; its messages are above"
  fi
  echo "arm64: building the tokenizers with cargo: two to three minutes on two cores the first time"
  export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc AR_aarch64_unknown_linux_gnu=aarch64-linux-gnu-ar
  CARGO_TARGET_DIR=$build/tokenizers-target cargo build --quiet --release --locked --target $target ||
    fail "cargo failed; its messages are above"
  cd - >/dev/null
  cp "$build/tokenizers-target/$target/release/libsie_tokenizers.a" "$build/"
  cat >"$build/_overlay/libtok_gen.go" <<GO
//go:build native

package tokenizer

// #cgo LDFLAGS: \${SRCDIR}/../../build/arm64/libsie_tokenizers.a -ldl -lm -lpthread
import "C"

// libSum changes with the library, so that the go command does not reuse what it built before.
const libSum = "$(sha256sum <"$build/libsie_tokenizers.a" | cut -d' ' -f1)"
GO
}

case $(uname -m) in
  aarch64 | arm64) fail "this machine is an arm64: make build is for it" ;;
esac
tools/setup/deps.sh arm64
mkdir -p "$build/_overlay"  # Go does not look into folders of such names
case $what in
  libsie | tokenizers) $what; exit ;;
esac
libsie
tokenizers

# The two files from which cgo knows what to link lie over those of the native build.
cat >"$build/overlay.json" <<JSON
{"Replace": {
  "$PWD/runtime/engine/libsie_gen.go": "$build/_overlay/libsie_gen.go",
  "$PWD/runtime/tokenizer/libtok_gen.go": "$build/_overlay/libtok_gen.go"
}}
JSON
mkdir -p bin/arm64
ldflags="-X github.com/sie-engine/sie/internal/build.Commit=$what"
CGO_ENABLED=1 GOOS=linux GOARCH=arm64 CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ \
  ${GO:-go} build -tags native,disable_grpc_modules,netgo,osusergo -trimpath -overlay "$build/overlay.json" \
  -ldflags "$ldflags" -o bin/arm64/ ./cmd/sie-server
CGO_ENABLED=0 GOOS=linux GOARCH=arm64 \
  ${GO:-go} build -tags disable_grpc_modules,netgo,osusergo -trimpath -ldflags "$ldflags" -o bin/arm64/ \
  ./cmd/sie-gateway ./cmd/sie-sidecar ./cmd/sie-config
echo "arm64: the programs are in bin/arm64"
