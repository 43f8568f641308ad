#!/usr/bin/env bash
# Builds the CUDA kernels and proves what needs no GPU: each compiles for each target, none breaks a rule or a promise,
# the tables in kernels/budgets hold, and the library links. Usage: check.sh check|update [TOOLKIT [TARGETS]]
# update writes the tables anew (all targets, with the toolkit they were made by). See build.sh for the others.
set -euo pipefail
cd "$(dirname "$0")/../.."
command=$1
build=$(tools/kernels/build.sh "${2:-}" "${3:-}")
python3 -B tools/kernels/budgets.py "$command" "$build"
tools/kernels/link.sh "$build"
