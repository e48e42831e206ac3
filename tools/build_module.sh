#!/usr/bin/env bash
# Builds the compiled module in place; cargo recompiles only what changed. In a new environment it
# also links the package and installs what the package and its demo need.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/find_cargo.sh
export PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1
rest=(--extras "plot,cli")
[ ! .venv/module-built -nt .venv/made ] || rest=(--skip-install)
.venv/bin/maturin develop --quiet --release --locked "${rest[@]}"
touch .venv/module-built
