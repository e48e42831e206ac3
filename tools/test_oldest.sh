#!/usr/bin/env bash
# Tests the wheel in dist/ with the oldest dependencies that pyproject.toml accepts.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-python3.10}"
if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))' 2>/dev/null; then
    echo "dpsvm_fast: this test needs Python 3.10, the oldest supported one; name it with PYTHON=/path/to/python3.10." >&2
    exit 1
fi
env=target/oldest
[ -x $env/bin/python ] || "$python" -m venv $env
$env/bin/python -m pip install --quiet --disable-pip-version-check -r tools/oldest.txt
$env/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/*.whl
$env/bin/python -m pytest tests
