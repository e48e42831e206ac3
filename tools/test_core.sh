#!/usr/bin/env bash
# Tests of the Rust core with checks of overflow and debug assertions, in the release profile: the
# crates below it are those that the compiled module was built from, where a profile of the tests' own
# would compile every one once more. Naming both packages makes cargo choose the same features for
# them; without --tests it would build the examples as well.
# Nextest is used where it is installed; it does not run doc examples, and hears of options behind
# "run" alone.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/find_cargo.sh
choice=(--release --locked --package dpsvm-core --package dpsvm-py)
checked=()
for check in overflow-checks debug-assertions; do
    checked+=(--config "profile.release.package.dpsvm-core.$check=true")
done
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run "${checked[@]}" "${choice[@]}" --tests
else
    cargo test "${checked[@]}" "${choice[@]}" --tests
fi
cargo test "${choice[@]}" --doc
