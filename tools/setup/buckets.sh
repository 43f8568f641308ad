#!/usr/bin/env bash
# Builds the storage servers that the tests of the model cache talk to into build/bin: versitygw, a
# real S3 server over a directory, and fake-gcs-server, which imitates Google Cloud Storage (there
# is no real one to run). A second run does nothing. Fetches from the Go proxy only.
set -euo pipefail
cd "$(dirname "$0")/../.."
versitygw=v1.8.0
fakegcs=v1.56.1
stamp=build/bin/.buckets-$versitygw-$fakegcs
[ -e "$stamp" ] && exit 0

echo "sie: versitygw $versitygw and fake-gcs-server $fakegcs, for the tests of the model cache (about 2 minutes)"
mkdir -p build/bin
GOBIN=$PWD/build/bin go install "github.com/versity/versitygw/cmd/versitygw@$versitygw"
GOBIN=$PWD/build/bin go install "github.com/fsouza/fake-gcs-server@$fakegcs"
touch "$stamp"
