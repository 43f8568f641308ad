#!/usr/bin/env bash
# Installs the Debian packages a target needs. Usage: deps.sh build|test|observe|arm64
# Does nothing when they are there; uses sudo when not root; says what it runs.
set -euo pipefail

case "${1:-build}" in
  build) want="g++ make cmake ninja-build git ca-certificates python3-venv" ;;
  test)  want="g++ make cmake ninja-build git ca-certificates python3-venv curl binutils mmdebstrap chromium" ;;
  observe) want="prometheus" ;;
  arm64) want="g++-aarch64-linux-gnu qemu-user" ;; # builds for arm64 on another machine, and runs them
  *) echo "usage: $0 build|test|observe|arm64" >&2; exit 2 ;;
esac

missing=""
if command -v dpkg-query >/dev/null; then
  for p in $want; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
  done
fi
# A tool that is there under another package (a toolchain of one's own) counts as installed.
have() { command -v "$1" >/dev/null 2>&1; }
still=""
for p in $missing; do
  case "$p" in
    g++) have g++ ;;
    make) have make ;;
    cmake) have cmake ;;
    ninja-build) have ninja ;;
    git) have git ;;
    curl) have curl ;;
    g++-aarch64-linux-gnu) have aarch64-linux-gnu-g++ ;;
    qemu-user) have qemu-aarch64 || have qemu-aarch64-static ;;
    binutils) have nm ;;
    mmdebstrap) have mmdebstrap ;;
    prometheus) have prometheus && have promtool ;;
    chromium) have chromium || have chromium-browser || have google-chrome ;;
    ca-certificates) [ -e /etc/ssl/certs/ca-certificates.crt ] ;;
    python3-venv) python3 -c 'import venv, ensurepip' 2>/dev/null ;;
    *) false ;;
  esac || still="$still $p"
done
missing="$still"

if [ -n "$missing" ]; then
  if ! command -v apt-get >/dev/null; then
    echo "sie: please install:$missing" >&2
    exit 1
  fi
  run=""
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "sie: please run as root: apt-get install$missing" >&2; exit 1; }
    run="sudo"
  fi
  echo "sie: installing Debian packages:$missing"
  $run apt-get update -qq
  # shellcheck disable=SC2086
  DEBIAN_FRONTEND=noninteractive $run apt-get install -y -qq --no-install-recommends $missing
fi

for tool in go cargo python3; do
  command -v "$tool" >/dev/null || {
    case "$tool" in
      go) fix="Go 1.26 or newer, see https://go.dev/doc/install (1.21 or newer fetches it by itself)" ;;
      cargo) fix="Rust 1.85 or newer, see https://rustup.rs" ;;
      python3) fix="Python 3.11 or newer" ;;
    esac
    echo "sie: $tool is not on the PATH; install $fix" >&2
    exit 1
  }
done
