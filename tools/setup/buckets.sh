#!/usr/bin/env bash
# Builds the storage servers that the tests of the model cache talk to into build/bin: versitygw, a
# real S3 server over a directory, and fake-gcs-server, which imitates Google Cloud Storage (there
# is no real one to run). A second run does nothing. Fetches from the Go proxy only. The module
# tools/buckets has their releases, beside the product's releases of what they share with it; the
# tags are the product's, too. They are built from copies in build/buckets, in which the files of
# tools/buckets/without stand in for those that bring clients of Vault, LDAP, Kafka, RabbitMQ,
# DogStatsD and Pub/Sub.
set -euo pipefail
cd "$(dirname "$0")/../.."
mapfile -t inputs < <(find tools/buckets -type f | LC_ALL=C sort)
stamp=build/bin/.buckets-$(sha256sum "${inputs[@]}" "$0" | sha256sum | cut -c1-16)
[ -e "$stamp" ] && exit 0

echo "sie: versitygw and fake-gcs-server, for the tests of the model cache (about a minute)"
copies=$PWD/build/buckets
rm -rf "$copies"
mkdir -p build/bin "$copies"
cp tools/buckets/go.mod tools/buckets/go.sum "$copies"
for module in github.com/versity/versitygw github.com/fsouza/fake-gcs-server; do
  go -C tools/buckets mod download "$module"
  copy=$copies/${module##*/}
  cp -r --no-preserve=mode "$(go -C tools/buckets list -m -f '{{.Dir}}' "$module")" "$copy"
  go mod edit -replace "$module=$copy" "$copies/go.mod"
  without=tools/buckets/without/$module
  while read -r file; do
    [ -e "$copy/${file%.txt}" ] || { echo "sie: $module has no ${file%.txt}" >&2; exit 1; }
    cp "$without/$file" "$copy/${file%.txt}"
  done < <(cd "$without" && find . -type f)
done
go -C tools/buckets build -modfile "$copies/go.mod" -tags disable_grpc_modules,netgo,osusergo -trimpath \
  -ldflags=-s -o "$PWD/build/bin/" ./versitygw ./fake-gcs-server
touch "$stamp"
