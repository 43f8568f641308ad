#!/usr/bin/env bash
# Runs pip, of one release for all that is installed here, in build/venv-fetch, which the first run
# makes. Usage: pip.sh ARGUMENT…; with --python DIR first it installs into another environment, which
# needs no pip of its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Python 3.11's own pip takes 37 s of CPU to read the index pages of the clients' packages, this one 14.
release=26.3
mkdir -p build
exec 9>build/venv-fetch.lock
flock 9
if [ ! -e build/venv-fetch/.pip-$release ]; then
  python3 -m venv --clear build/venv-fetch
  build/venv-fetch/bin/python -m pip --disable-pip-version-check install -q "pip==$release"
  touch build/venv-fetch/.pip-$release
fi
exec 9>&-
exec build/venv-fetch/bin/python -m pip --disable-pip-version-check "$@"
