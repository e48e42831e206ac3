#!/usr/bin/env bash
# Tests of the Rust core. Nextest is used where it is installed; it does not run doc examples.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/find_cargo.sh
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --locked --package dpsvm-core --no-tests=pass
    cargo test --locked --package dpsvm-core --doc
else
    cargo test --locked --package dpsvm-core
fi
