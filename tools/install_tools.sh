#!/usr/bin/env bash
# Adds to .venv what tests, checks, pages and benchmarks use.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1
.venv/bin/python -m pip install "dpsvm_fast[federated,distributed,onnx]" \
    --group test --group interop --group check --group docs --group bench
touch .venv/tools-installed
