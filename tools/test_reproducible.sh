#!/usr/bin/env bash
# Builds wheels of the last commit twice, in two folders of different lengths, and compares the bytes.
# Usage: test_reproducible.sh [PLATFORM...], BIN and platforms as in wheel.sh; without a cache.
set -euo pipefail
cd "$(dirname "$0")/.."
BIN="$(cd "${BIN:-.venv/bin}" && pwd)"
export BIN
unset CARGO_TARGET_DIR
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
for name in a another/folder; do
    mkdir -p "$folder/$name"
    git archive HEAD | tar -x -C "$folder/$name"
    "$folder/$name/tools/wheel.sh" "$@"
done
rustc --version
cd "$folder"
sha256sum a/dist/*.whl another/folder/dist/*.whl
diff -r a/dist another/folder/dist
echo "both builds have the same bytes"
