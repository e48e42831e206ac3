#!/usr/bin/env bash
# Builds the stable-ABI wheel into dist/; checks its contents, and that it uses nothing outside that
# ABI. One source and one compiler give the same bytes in every folder. BIN names the folder of the
# Python tools (.venv/bin).
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/find_cargo.sh
bin="${BIN:-.venv/bin}"
RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
export RUSTFLAGS
rm -rf dist
"$bin/maturin" build --release --locked --out dist
"$bin/python" tools/reproducible_wheel.py dist/*.whl
"$bin/abi3audit" --strict dist/*.whl
"$bin/python" tools/check_wheel.py dist/*.whl
ls -l dist
