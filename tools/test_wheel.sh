#!/usr/bin/env bash
# Installs a wheel into an empty environment and tests it there: beside no source tree, and with no
# Rust on the path. Usage: test_wheel.sh [WHEEL], by default the one in dist/. PYTHON names the
# interpreter, EXTRAS what is installed beside the package (test), PIP_ARGS more for pip.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then
    set -- dist/*.whl
fi
if [ $# -ne 1 ] || [ ! -f "$1" ]; then
    echo "dpsvm_fast: expected one wheel, got: $*; build it with 'make wheel', or name one." >&2
    exit 1
fi
wheel="$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"

# From every layer something: the compiled module on one and on several threads, noise, accounts,
# each mechanism, files that are read at run time. Two minutes at most.
tests="
    test_core_accounting test_events test_gaussian test_gradient_estimator test_imports_are_lean
    test_input_forms test_ledger_files test_noise test_objective_estimator test_output_estimator
    test_parties_core test_federated_simulate test_partitions
"

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/tests/unit"
cp -R tests/conftest.py tests/oracles tests/data "$folder/tests"
for name in $tests; do
    cp "tests/unit/$name.py" "$folder/tests/unit"
done
cp pyproject.toml "$folder" # for its settings of pytest

"${PYTHON:-python3}" -m venv "$folder/env"
bin="$folder/env/bin"
[ -d "$bin" ] || bin="$folder/env/Scripts"

# A path without the folders that hold Rust.
path="$bin"
IFS=:
for entry in $PATH; do
    [ -e "$entry/cargo" ] || [ -e "$entry/rustc" ] || [ -e "$entry/cargo.exe" ] || path="$path:$entry"
done
unset IFS
PATH="$path"
export PATH
unset PYTHONPATH

cd "$folder"
# shellcheck disable=SC2086 # several arguments
python -m pip install --quiet --disable-pip-version-check "$wheel[${EXTRAS:-test}]" ${PIP_ARGS:-}
python -W error - <<'PY'
import shutil, sys, sysconfig
from pathlib import Path

import dpsvm_fast
from dpsvm_fast._core import build_info

home = Path(sysconfig.get_path("platlib")).resolve()
assert Path(dpsvm_fast.__file__).resolve().is_relative_to(home), dpsvm_fast.__file__
assert shutil.which("cargo") is None, shutil.which("cargo")
assert build_info()["profile"] == "release", build_info()
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    import numpy, scipy, sklearn
    from dpsvm_fast import PrivateLinearSVC

    # A module that is not prepared for it switches the interpreter lock on when imported.
    assert not sys._is_gil_enabled()
print(f"{dpsvm_fast.__version__} on Python {sys.version.split()[0]}")
PY
python -m pytest -q
