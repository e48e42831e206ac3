# Sourced by the other scripts: puts cargo on the path, or says what is missing and stops.
# shellcheck shell=bash

# A shell opened before rustup ran does not have this folder on its path.
PATH="$PATH:$HOME/.cargo/bin"
export PATH

needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if ! command -v cargo >/dev/null 2>&1 || ! cargo --version >/dev/null 2>&1; then
    echo "dpsvm_fast: cargo was not found; install Rust $needed or newer from https://rustup.rs and run the same command again." >&2
    exit 1
fi
found=$(cargo --version | cut -d' ' -f2)
if [ "$(printf '%s\n%s\n' "$needed" "$found" | sort -t. -k1,1n -k2,2n | head -n 1)" != "$needed" ]; then
    echo "dpsvm_fast: Rust $needed or newer is needed and cargo is $found; run 'rustup update' and the same command again." >&2
    exit 1
fi

# One interpreter for every cargo call, so that PyO3 is not rebuilt when the path changes.
if [ -x .venv/bin/python ]; then
    PYO3_PYTHON="$PWD/.venv/bin/python"
    export PYO3_PYTHON
fi
