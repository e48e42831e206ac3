#!/usr/bin/env bash
# Whether what the package is made of is known to be harmful, and stated: published faults and
# licences of all crates (cargo-deny, deny.toml), the notices in the wheel, published faults of all
# Python packages that it is installed with here. BIN names the folder of that Python (.venv/bin).
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/find_cargo.sh
bin="${BIN:-.venv/bin}"
cargo deny --version >/dev/null 2>&1 || {
    echo "dpsvm_fast: cargo-deny was not found; install it with 'cargo install --locked cargo-deny'." >&2
    exit 1
}
cargo deny --locked check
"$bin/python" tools/notices.py --check
# Strict: a package that cannot be looked up is a failure, and not "no known faults".
installed="$(mktemp)"
trap 'rm -f "$installed"' EXIT
"$bin/python" -m pip list --local --exclude dpsvm-fast --format=freeze >"$installed"
"$bin/python" -m pip_audit --strict --no-deps --disable-pip --requirement "$installed"
