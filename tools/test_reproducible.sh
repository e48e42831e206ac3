#!/usr/bin/env bash
# Builds the wheel of the last commit twice, in two folders of different lengths, and compares the
# bytes. BIN as in wheel.sh; takes two release builds without a cache.
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
    "$folder/$name/tools/wheel.sh"
done
rustc --version
sha256sum "$folder"/a/dist/*.whl "$folder"/another/folder/dist/*.whl
cmp "$folder"/a/dist/*.whl "$folder"/another/folder/dist/*.whl
echo "both builds have the same bytes"
