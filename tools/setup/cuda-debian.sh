#!/usr/bin/env bash
# nvcc 12.4.131 from Debian 13's packages, unpacked into build/cuda/12.4 without root; prints its
# CUDA_HOME. Called by cuda.sh. For GPU hosts whose driver is older than 580 (12.4 needs 525), and
# for machines that reach a Debian mirror but no PyPI. 1.0 GB are downloaded, 230 MB stay. The
# mirror is the one this machine's apt already uses; apt works in a private state directory, and
# nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
say() { echo "sie: $*" >&2; }
fail() {
  say "$*"
  exit 1
}

# name version sha256
read -r -d '' pins <<'PINS' || true
nvidia-cuda-toolkit 12.4.131~12.4.1-2 cd5fe85aee38d108b315f408a688641478f2402622a10c677478eb7a6c4e5319
nvidia-cuda-dev 12.4.127~12.4.1-2 d846838f914a0176948d48a8bcade5d6dbcccb5c9374343f6475f5503f173ee0
libcu++-dev 2.3.2-2 30e911c1909265591b5ea793df0e49e56bed631238b68b3e75c97590c4985686
PINS

dir=$PWD/build/cuda/12.4
home=$dir/home
stamp=$dir/.complete-$(printf '%s\n' "$pins" | cat - "$0" | sha256sum | cut -c1-16)
if [ -e "$stamp" ]; then
  echo "$home"
  exit 0
fi

[ "$(uname -sm)" = "Linux x86_64" ] ||
  fail "the pinned Debian packages are for x86-64 Linux; set CUDA_HOME to a toolkit of this machine's"
for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null ||
    fail "$tool is missing: CUDA 12.4 is taken from Debian's packages; set CUDA_HOME to a toolkit of 12.4 or newer instead"
done
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || fail "$keyring is missing: apt-get install debian-archive-keyring, and run this again"
# The first archive that apt is configured with and that is Debian's own, not one of its security
# archives; whether or not its index has been read here.
# shellcheck disable=SC2016 # apt-get puts in the address
mirror=$(apt-get indextargets --no-release-info --format '$(REPO_URI)' |
  grep -E '^[a-z+]+:.*/debian/$' | sed -n 1p)
[ -n "$mirror" ] || fail "apt on this machine has no Debian archive (apt-get indextargets shows none): set CUDA_HOME to a toolkit of 12.4 or newer instead"

say "CUDA 12.4 from Debian's packages into build/cuda/12.4 (1.0 GB to download)"
started=$(date +%s)
mkdir -p "$dir"
tmp=$(mktemp -d "$dir/.fetch-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp"/{lists/partial,cache/archives/partial,deb,root}
echo "deb [signed-by=$keyring] $mirror trixie main non-free" >"$tmp/sources.list"
apt=(-o Dir::Etc::sourcelist="$tmp/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o Dir::State::lists="$tmp/lists"
  -o Dir::Cache="$tmp/cache" -o APT::Sandbox::User="$(id -un)" -o APT::Get::List-Cleanup=false)
apt-get "${apt[@]}" update -qq >&2 || fail "apt could not read the index of Debian trixie (messages above)"
specs=$(awk '{print $1 "=" $2}' <<<"$pins")
# shellcheck disable=SC2086
(cd "$tmp/deb" && apt-get "${apt[@]}" download -qq $specs >&2) ||
  fail "apt could not download the packages above"
while read -r name version sum; do
  file=("$tmp/deb/${name}_${version}"_*.deb)
  echo "$sum  ${file[0]}" | sha256sum --quiet -c - >&2 ||
    fail "$name $version is not the package this script was written for"
done <<<"$pins"

say "unpacking"
dpkg-deb --fsys-tarfile "$tmp"/deb/nvidia-cuda-dev_*.deb |
  tar -x -C "$tmp/root" --wildcards './usr/include/*' \
  './usr/lib/x86_64-linux-gnu/libcudart_static.a' './usr/lib/x86_64-linux-gnu/libcudadevrt.a'
for name in nvidia-cuda-toolkit libcu++-dev; do
  dpkg-deb -x "$tmp"/deb/${name}_*.deb "$tmp/root"
done

# Debian spreads the toolkit over /usr and points nvcc there by absolute names: make an ordinary
# CUDA_HOME of it.
usr=$tmp/root/usr
own=$usr/lib/nvidia-cuda-toolkit
new=$tmp/home
mkdir -p "$new"/{bin,nvvm/bin,nvvm/libdevice,lib64}
for tool in ptxas cudafe++ fatbinary nvlink cuobjdump nvdisasm bin2c cu++filt; do
  mv "$usr/bin/$tool" "$new/bin/"
done
mv "$own/bin/nvcc" "$own/bin/crt" "$new/bin/"
mv "$own/bin/cicc" "$new/nvvm/bin/"
mv "$own"/libdevice/* "$new/nvvm/libdevice/"
mv "$usr/include" "$new/include"
mv "$usr"/lib/x86_64-linux-gnu/*.a "$new/lib64/"
mv "$own/compute-sanitizer" "$new/compute-sanitizer"
cat >"$new/bin/nvcc.profile" <<'PROFILE'
TOP              = $(_HERE_)/..
CICC_PATH        = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH            += $(CICC_PATH):$(_HERE_):
INCLUDES        +=  "-I$(TOP)/include" $(_SPACE_)
LIBRARIES        =+ $(_SPACE_) "-L$(TOP)/lib64"
PROFILE
"$new/bin/nvcc" --version | grep -q 'release 12\.4' ||
  fail "the nvcc of the packages does not run on this machine: $new/bin/nvcc --version"
rm -rf "$home" "$dir"/.complete-*
mv "$new" "$home"
touch "$stamp"
say "CUDA 12.4 is ready after $(($(date +%s) - started)) s"
echo "$home"
