#!/usr/bin/env bash
# Rebuilds the compiled module in place; cargo recompiles only what changed.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/find_cargo.sh
.venv/bin/maturin develop --quiet --release --locked --skip-install
touch .venv/module-built
