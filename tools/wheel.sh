#!/usr/bin/env bash
# Builds stable-ABI wheels into dist/ and checks their contents. One source and one version each of
# rustc, maturin and Zig give the same bytes in every folder: releases are built by this script.
# Usage: wheel.sh [PLATFORM...]; a platform is one of the names below or "all"; none named: this
# machine's, on Linux for glibc 2.17 and newer. BIN names the folder of the Python tools (.venv/bin, or
# else the path is searched), INTERPRETER a free-threaded Python, which the stable ABI does not serve.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/find_cargo.sh
bin="${BIN:-.venv/bin}"
# Zig's linker is a Python package: its program is found beside the tools.
[ ! -d "$bin" ] || PATH="$(cd "$bin" && pwd):$PATH"
# As the compiler writes a folder; on Windows this shell writes it in another way.
path_of() { cygpath --mixed "$1" 2>/dev/null || echo "$1"; }
RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$(path_of "$PWD")=. --remap-path-prefix=$(path_of "${CARGO_HOME:-$HOME/.cargo}")=cargo"
export PATH RUSTFLAGS

here="$(uname -s)-$(uname -m)"
[ $# -gt 0 ] || set -- "$here"
[ "$*" != all ] || set -- linux-x86_64 linux-aarch64 musl-x86_64 musl-aarch64
rm -rf dist
sources="$(tools/sources.sh)" || sources=unknown
for platform in "$@"; do
    case "$platform" in
        linux-* | Linux-*) zig=(--zig --target "${platform#*-}-unknown-linux-gnu" --compatibility manylinux_2_17) ;;
        musl-*) zig=(--zig --target "${platform#*-}-unknown-linux-musl" --compatibility musllinux_1_2) ;;
        "$here") zig=() ;;
        *) echo "dpsvm_fast: unknown platform $platform; use linux-x86_64, linux-aarch64, musl-x86_64, musl-aarch64 or all." >&2 && exit 1 ;;
    esac
    [ ${#zig[@]} -eq 0 ] || rustc --print target-libdir --target "${zig[2]}" | xargs test -d || rustup target add "${zig[2]}"
    maturin build --release --locked --out dist ${INTERPRETER:+--interpreter "$INTERPRETER"} ${zig[@]+"${zig[@]}"}
done
python tools/reproducible_wheel.py dist/*.whl
python tools/check_wheel.py dist/*.whl
# For tools/build_module.sh: what the wheels were made of, unless it changed meanwhile.
[ "$sources" != "$(tools/sources.sh | grep -v ' dist/')" ] || tools/sources.sh >dist/sources.txt
