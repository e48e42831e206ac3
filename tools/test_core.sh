#!/usr/bin/env bash
# Tests of the Rust core, in the release profile: what the compiled module was built from is used
# again, where a profile of the tests' own would compile every crate once more. Naming both packages
# makes cargo choose the same features for the crates below them. The tests run with debug
# assertions in `cargo test --package dpsvm-core`.
# Nextest is used where it is installed; it does not run doc examples.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/find_cargo.sh
choice=(--release --locked --package dpsvm-core --package dpsvm-py)
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run "${choice[@]}" --no-tests=pass
    cargo test "${choice[@]}" --doc
else
    cargo test "${choice[@]}"
fi
