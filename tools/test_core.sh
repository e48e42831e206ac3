#!/usr/bin/env bash
# Tests of the Rust core, in the release profile: what the compiled module was built from is used
# again, where a profile of the tests' own would compile every crate once more. Naming both packages
# makes cargo choose the same features for the crates below them; without --tests it would build
# the examples as well. `cargo test --package dpsvm-core` tests with debug assertions.
# Nextest is used where it is installed; it does not run doc examples.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/find_cargo.sh
choice=(--release --locked --package dpsvm-core --package dpsvm-py)
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run "${choice[@]}" --tests
else
    cargo test "${choice[@]}" --tests
fi
cargo test "${choice[@]}" --doc
