#!/usr/bin/env bash
# Builds the stable-ABI wheel into dist/; checks its contents, and that it uses nothing outside that
# ABI.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/find_cargo.sh
rm -rf dist
.venv/bin/maturin build --release --locked --out dist
.venv/bin/abi3audit --strict dist/*.whl
.venv/bin/python tools/check_wheel.py dist/*.whl
ls -l dist
