#!/usr/bin/env bash
# Checks every Dockerfile, or the FILEs named, without a container engine; check.py
# says how. Usage: check.sh [--patience SECONDS] [--need FILE] [--build NAME=VALUE,…] [FILE…]
#   --need Dockerfile.cuda    fail where bin/cuda/sie-server has not been built; without it only the text is checked then
#   --build TARGETS=80        run the build stage, too, over this machine's Go and Rust (stage.py), with these arguments
#                             or with "": minutes, and nothing of it stays
# As root, or as a user who may make user namespaces; what is mounted and started lives in
# namespaces of its own and ends with them. Needs the binary of make build, and for the base image,
# once, a Debian mirror.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
options=()
while [[ ${1:-} = --* ]]; do
  case $1 in
    --need | --patience) options+=("$1" "$2") ;;
    --build) IFS=, read -ra given <<<"$2" && options+=(--build "${given[@]}" --) ;;
    *) sed -n '3,8p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done
[ $# -gt 0 ] || set -- "$here"/../../Dockerfile "$here"/../../Dockerfile.{cuda,gateway,config,sidecar}

namespaces=(--mount --pid --fork --kill-child --mount-proc)
if [ "$(id -u)" != 0 ]; then
  # The image's files have several owners, so one number is not enough: the ranges of /etc/subuid
  # are used.
  namespaces+=(--user --map-root-user --map-auto)
fi
if ! why=$(unshare "${namespaces[@]}" true 2>&1); then
  echo "sie: images cannot be checked here: $why" >&2
  echo "sie: run this as root, or let $(id -un) make user namespaces: newuidmap (Debian's package uidmap), a line each in" \
    "/etc/subuid and /etc/subgid, and kernel.apparmor_restrict_unprivileged_userns=0 where the kernel has it" >&2
  exit 1
fi
status=0
for file in "$@"; do
  unshare "${namespaces[@]}" python3 -B "$here/check.py" "${options[@]}" "$file" || status=1
done
exit $status
