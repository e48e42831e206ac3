#!/usr/bin/env bash
# Everything that can be judged without running the package's own tests. Runs all checks, then
# names the ones that failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. tools/find_cargo.sh

failed=""
step() {
    local name="$1"
    shift
    echo "== $name"
    "$@" || failed="$failed, $name"
}

bin=.venv/bin
step "rustfmt" cargo fmt --all --check
step "clippy" cargo clippy --locked --workspace --all-targets -- -D warnings
step "tests of the core see its public interface" cargo clippy --locked --package dpsvm-core --test public_interface -- -D warnings
step "ruff lint" $bin/ruff check
step "ruff format" $bin/ruff format --check
step "mypy" $bin/python -m mypy
step "stubtest" $bin/python -m mypy.stubtest dpsvm_fast._core \
    --mypy-config-file pyproject.toml --allowlist tests/architecture/stubtest_allow.txt
step "architecture" $bin/python -m pytest -q tests/architecture
if $bin/python -c "import flwr" 2>/dev/null; then
    step "documentation" tools/docs.sh
else
    echo "== documentation: skipped, describing dpsvm_fast.federated.flower takes flwr (Python 3.11)"
fi

if [ -n "$failed" ]; then
    echo "failed: ${failed#, }" >&2
    exit 1
fi
echo "all checks passed"
