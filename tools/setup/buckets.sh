#!/usr/bin/env bash
# Builds the storage servers that the tests of the model cache talk to into build/bin: versitygw, a
# real S3 server over a directory, and fake-gcs-server, which imitates Google Cloud Storage (there
# is no real one to run). A second run does nothing. Fetches from the Go proxy only. The module
# tools/buckets has their releases, beside the product's releases of what they share with it; so has
# the tag, without which Google's client brings gRPC.
set -euo pipefail
cd "$(dirname "$0")/../.."
stamp=build/bin/.buckets-$(cat tools/buckets/go.mod "$0" | sha256sum | cut -c1-16)
[ -e "$stamp" ] && exit 0

echo "sie: versitygw and fake-gcs-server, for the tests of the model cache (about a minute)"
mkdir -p build/bin
go -C tools/buckets build -tags disable_grpc_modules,netgo,osusergo -trimpath -ldflags=-s -o "$PWD/build/bin/" \
  github.com/versity/versitygw/cmd/versitygw github.com/fsouza/fake-gcs-server
touch "$stamp"
