#!/usr/bin/env bash
# Finds or installs a CUDA toolkit and prints its CUDA_HOME on standard output. Usage: cuda.sh
# [VERSION]
#   none   the host's own where it is 12.4 or newer (CUDA_HOME, then /usr/local/cuda), else 13.0
#   13.0   nvcc 13.0.88 from PyPI wheels, pinned by hash, in build/cuda/13.0: 110 MB, 5 to 10 s, no root
#   12.4   nvcc 12.4.131 from Debian's packages, in build/cuda/12.4: for drivers older than 580 (cuda-debian.sh)
# A second run does nothing. With SIE_CUDA_ONLY_HOST set, nothing is downloaded where the host has
# none. Nothing here needs a GPU or its driver.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
say() { echo "sie: $*" >&2; }
fail() {
  say "$*"
  exit 1
}

# The release of a toolkit, as 13.0; nothing where nvcc does not run.
release() { "$1/bin/nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\),.*/\1/p'; }

at_least() { # at_least HAVE WANT
  [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -1)" = "$2" ]
}

# Prints the host's toolkit where it is one we can build with and read its code with; says why not.
host_toolkit() {
  local home version tool
  for home in "${CUDA_HOME:-}" "${SIE_LOCAL_CUDA:-/usr/local/cuda}"; do
    [ -n "$home" ] && [ -e "$home/bin/nvcc" ] || continue
    version=$(release "$home")
    if [ -z "$version" ]; then
      say "$home/bin/nvcc does not run; not used"
      continue
    fi
    if ! at_least "$version" 12.4; then
      say "the CUDA $version in $home is older than 12.4; not used"
      continue
    fi
    for tool in ptxas cuobjdump nvdisasm; do
      if [ ! -x "$home/bin/$tool" ]; then
        say "the CUDA $version in $home has no $tool; not used"
        continue 2
      fi
    done
    say "the host's CUDA $version in $home"
    echo "$home"
    return 0
  done
  return 1
}

want=${1:-}
if [ -z "$want" ]; then
  if host_toolkit; then exit 0; fi
  [ -z "${SIE_CUDA_ONLY_HOST:-}" ] || fail "no toolkit of the host's own, and SIE_CUDA_ONLY_HOST is set"
  want=13.0
fi
if [ "$want" = 12.4 ]; then
  exec tools/setup/cuda-debian.sh
fi
[ "$want" = 13.0 ] || fail "no toolkit '$want': 13.0, 12.4, or none for the host's own"

# One release of everything: nvvm decides the PTX version, which ptxas of another release may
# refuse. cuobjdump and nvdisasm have no 13.0 wheel; theirs read 13.0 code.
read -r -d '' pins <<'PINS' || true
nvidia-cuda-nvcc==13.0.88 --hash=sha256:56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03
nvidia-nvvm==13.0.88 --hash=sha256:c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0
nvidia-cuda-crt==13.0.88 --hash=sha256:2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-cuda-cccl==13.0.85 --hash=sha256:e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
nvidia-cuda-runtime==13.0.96 --hash=sha256:7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-cuobjdump==13.2.51 --hash=sha256:95c69d3ddf0c2c1f535ec44c3433a66aeee19f588d9d22f73356e20b25f12b50
nvidia-cuda-nvdisasm==13.2.51 --hash=sha256:5a7acf77c55d6d2911ed6155d4d5bc156ffadf9df7a68a89b0c1155f4b13688c
PINS

dir=$root/build/cuda/13.0
home=$dir/home
stamp=$dir/.complete-$(printf '%s\n' "$pins" | cat - "$0" | sha256sum | cut -c1-16)
if [ ! -e "$stamp" ]; then
  [ "$(uname -sm)" = "Linux x86_64" ] ||
    fail "the pinned CUDA wheels are for x86-64 Linux; set CUDA_HOME to a toolkit of this machine's"
  say "CUDA 13.0 from PyPI into build/cuda/13.0 (110 MB)"
  started=$(date +%s)
  mkdir -p "$dir"
  tmp=$(mktemp -d "$dir/.fetch-XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  printf '%s\n' "$pins" >"$tmp/requirements.txt"
  tools/setup/pip.sh install -q --no-cache-dir --no-deps --no-compile \
    --only-binary :all: --require-hashes --target "$tmp/site" -r "$tmp/requirements.txt" >&2 ||
    fail "the CUDA wheels could not be installed (messages above). Without PyPI, set CUDA_HOME to a toolkit of 12.4 or newer, or try TOOLKIT=12.4, which needs a Debian mirror"

  # The wheels lack what an ordinary CUDA_HOME has: lib64, names without a version, nv/ beside the
  # headers.
  new=$tmp/site/nvidia/cu13
  ln -sfn lib "$new/lib64"
  for library in "$new"/lib/lib*.so.*; do
    ln -sf "$(basename "$library")" "${library%%.so.*}.so"
  done
  [ -e "$new/include/nv" ] || ln -s cccl/nv "$new/include/nv"
  [ "$(release "$new")" = 13.0 ] ||
    fail "the nvcc of the wheels does not run on this machine: $new/bin/nvcc --version"
  rm -rf "$home" "$dir"/.complete-*
  mv "$new" "$home"
  touch "$stamp"
  say "CUDA 13.0 is ready after $(($(date +%s) - started)) s"
fi
echo "$home"
