#!/usr/bin/env bash
# Prints the digests of all that the compiled module is made of, and of the wheels in dist/.
set -euo pipefail
cd "$(dirname "$0")/.."
places=(rust Cargo.toml Cargo.lock pyproject.toml)
[ ! -d dist ] || places+=(dist)
find "${places[@]}" -type f ! -path dist/sources.txt -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
