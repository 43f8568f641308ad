#!/usr/bin/env bash
# Builds the programs of the images from the last commit twice, in two folders, each with nothing built
# before, and compares programs, bills of material and licences byte for byte. What was built is left
# neither in bin nor in a cache. Usage: reproducible.sh [--native]
#   --native   sie-server, too: the C library, the crate and the Go program, without ccache, both times
#              at the same path, as in the image's build (/src); some 20 minutes of CPU
set -euo pipefail
cd "$(dirname "$0")/../.."
native=
case ${1:-} in
  "") ;;
  --native) native=1 ;;
  *) sed -n '2,6p' "$0" >&2; exit 2 ;;
esac
commit=$(git rev-parse --short=12 HEAD)
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

# build FOLDER TARGET RESULTS: the commit in FOLDER, `make TARGET sbom` there, what it made in RESULTS.
build() {
  local log=$work/log
  mkdir -p "$1" "$3"
  git archive "$commit" | tar -x -C "$1"
  echo "sie: make $2 of $commit in $1"
  env -u MAKEFLAGS -u MAKELEVEL GOCACHE="$work/go-cache" CCACHE_DISABLE=1 \
    make -s --no-print-directory -C "$1" "$2" sbom COMMIT="$commit" >"$log" 2>&1 ||
    { tail -40 "$log" >&2; exit 1; }
  mv "$1"/bin/* "$3"/
  chmod -R u+w "$work/go-cache"
  rm -rf "$1" "$work/go-cache"
}

# same A B FILE…: the files are in both folders, and equal.
same() {
  local a=$1 b=$2 bad=0
  shift 2
  for file in "$@"; do
    if cmp -- "$a/$file" "$b/$file"; then
      echo "$(sha256sum <"$a/$file" | cut -c1-16) $(stat -c %s "$a/$file") $file"
    else
      bad=1
    fi
  done
  return $bad
}

pure=(sie-gateway sie-sidecar sie-config)
bills=("${pure[@]/%/.cdx.json}" "${pure[@]/%/.licenses.txt}")
build "$work/here" pure "$work/a"
build "$work/and/at/a/longer/path" pure "$work/b"
same "$work/a" "$work/b" "${pure[@]}" "${bills[@]/#/sbom/}"
for program in "${pure[@]}"; do
  if grep -qF "$work" "$work/a/$program"; then
    echo "sie: $program names the folder that it was built in" >&2
    exit 1
  fi
done

if [ -n "$native" ]; then
  build "$work/src" build "$work/c"
  build "$work/src" build "$work/d"
  same "$work/c" "$work/d" sie-server "${pure[@]}" sbom/sie-server.cdx.json sbom/sie-server.licenses.txt
  same "$work/a" "$work/c" "${pure[@]}"
fi
echo "sie: two builds of $commit are equal byte for byte"
