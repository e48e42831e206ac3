#!/usr/bin/env bash
# Tests the wheel in dist/ with the oldest dependencies that pyproject.toml accepts. PYTHON names a
# Python 3.10 (python3.10). Arguments go to pytest, for example files instead of all tests.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "dpsvm_fast: $*" >&2
    exit 1
}

python="${PYTHON:-python3.10}"
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))' 2>/dev/null ||
    fail "this test needs Python 3.10, the oldest supported one; name it with PYTHON=/path/to/python3.10."
wheels=(dist/*.whl)
[ ${#wheels[@]} -eq 1 ] || fail "expected one wheel in dist, got ${wheels[*]}; make it anew with 'make wheel'."
[ -f "${wheels[0]}" ] || fail "there is no wheel in dist; build it with 'make wheel'."

env=target/oldest
# An environment that was left half-made is made again.
$env/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear $env
export PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1
$env/bin/python -m pip install -r tools/oldest.txt
$env/bin/python -m pip install --force-reinstall --no-deps "${wheels[0]}"
[ $# -gt 0 ] || set -- tests
$env/bin/python -m pytest --numprocesses=auto --maxprocesses=4 --dist=worksteal "$@"
