#!/usr/bin/env bash
# Builds stable-ABI wheels into dist/; checks their contents, and that they use nothing outside that
# ABI. One source, compiler, maturin and Zig give the same bytes in every folder.
# Usage: wheel.sh [PLATFORM...]; a platform is one of the names below or "all"; none named: this
# machine's, on Linux for glibc 2.17 and newer. BIN names the folder of the Python tools (.venv/bin).
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/find_cargo.sh
bin="${BIN:-.venv/bin}"
# Zig's linker is a Python package: its program is found beside the tools.
PATH="$(cd "$bin" && pwd):$PATH"
RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
export PATH RUSTFLAGS

here="$(uname -s)-$(uname -m)"
[ $# -gt 0 ] || set -- "$here"
[ "$*" != all ] || set -- linux-x86_64 linux-aarch64 musl-x86_64 musl-aarch64
rm -rf dist
for platform in "$@"; do
    case "$platform" in
        linux-* | Linux-*) zig=(--zig --target "${platform#*-}-unknown-linux-gnu" --compatibility manylinux_2_17) ;;
        musl-*) zig=(--zig --target "${platform#*-}-unknown-linux-musl" --compatibility musllinux_1_2) ;;
        "$here") zig=() ;;
        *) echo "dpsvm_fast: unknown platform $platform; use linux-x86_64, linux-aarch64, musl-x86_64, musl-aarch64 or all." >&2 && exit 1 ;;
    esac
    [ ${#zig[@]} -eq 0 ] || rustc --print target-libdir --target "${zig[2]}" | xargs test -d || rustup target add "${zig[2]}"
    "$bin/maturin" build --release --locked --out dist ${zig[@]+"${zig[@]}"}
done
"$bin/python" tools/reproducible_wheel.py dist/*.whl
"$bin/abi3audit" --strict dist/*.whl
"$bin/python" tools/check_wheel.py dist/*.whl
ls -l dist
