#!/usr/bin/env bash
# Tries a wheel in an empty environment, beside no source tree and with no Rust on the path: installs
# it as the tutorial says, types the tutorial, then runs tests.
# Usage: test_wheel.sh [WHEEL], by default the one in dist/. PYTHON names the interpreter (python3),
# PIP_ARGS more for pip.
set -euo pipefail
cd "$(dirname "$0")/.."
source="$PWD"

fail() {
    echo "dpsvm_fast: $*" >&2
    exit 1
}

if [ $# -eq 0 ]; then
    set -- dist/*.whl
fi
[ $# -eq 1 ] || fail "expected one wheel, got $*; name one."
[ -f "$1" ] || fail "there is no wheel $1; build it with 'make wheel', or name one."
wheel="$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"
python="${PYTHON:-python3}"
"$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
    fail "Python 3.10 or newer with its venv module is needed; name one with PYTHON=/path/to/python3."

# Tests from every layer: the compiled module on one and on several threads, noise, accounts,
# each mechanism, tables, saved models, the command line, files that are read at run time. Two
# minutes at most.
tests="
    test_cli_frame test_cli_verify test_core_accounting test_events test_gaussian
    test_linear_models test_imports_are_lean test_input_forms test_ledger_files test_noise
    test_parties_core test_federated_simulate
    test_partitions test_saved_models_golden test_table_files
"

folder="$(mktemp -d)"
doing="preparing the environment"
finish() {
    status=$?
    cd /
    rm -rf "$folder"
    [ $status -eq 0 ] || echo "dpsvm_fast: $(basename "$wheel") failed: $doing." >&2
}
trap finish EXIT

mkdir -p "$folder/tests" "$folder/docs" "$folder/tools" "$folder/rest"
for name in $tests; do
    found=$(find tests -name "$name.py")
    mkdir -p "$folder/$(dirname "$found")"
    cp "$found" "$folder/$found"
done
cp -R tests/conftest.py tests/oracles tests/stored tests/twins "$folder/tests"
cp docs/tutorial.md "$folder/docs"
cp tools/follow_tutorial.py "$folder/tools"
cp pyproject.toml "$folder" # for its settings of pytest

"$python" -m venv "$folder/env"
bin="$folder/env/bin"
[ -d "$bin" ] || bin="$folder/env/Scripts"

# A path without Rust: without the folders that hold it, and where a system's programs are in the
# same folder, with links to those.
path="$bin"
IFS=:
for entry in $PATH; do
    if [ -e "$entry/cargo" ] || [ -e "$entry/rustc" ] || [ -e "$entry/cargo.exe" ]; then
        [ -e "$entry/sh" ] || continue
        ln -sf "$entry"/* "$folder/rest"
        rm -f "$folder/rest/cargo" "$folder/rest/rustc" "$folder/rest/rustup"
        entry="$folder/rest"
    fi
    path="$path:$entry"
done
unset IFS
PATH="$path"
export PATH
unset PYTHONPATH

export PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1
doing="installing it with what the tutorial uses"
# shellcheck disable=SC2086 # several arguments
python -m pip install "${wheel}[cli,plot]" ${PIP_ARGS:-}

cd "$folder"
doing="importing it"
python -W error - <<'PY'
import shutil, sys, sysconfig
from pathlib import Path

import dpsvm_fast
from dpsvm_fast._core import build_info

home = Path(sysconfig.get_path("platlib")).resolve()
assert Path(dpsvm_fast.__file__).resolve().is_relative_to(home), dpsvm_fast.__file__
for program in ("cargo", "rustc"):
    assert shutil.which(program) is None, shutil.which(program)
assert build_info()["profile"] == "release", build_info()
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    import numpy, scipy, sklearn
    from dpsvm_fast import PrivateLinearSVC

    # A module that is not prepared for it switches the interpreter lock on when imported.
    assert not sys._is_gil_enabled()
print(f"{dpsvm_fast.__version__} on Python {sys.version.split()[0]}")
PY

doing="typing the tutorial"
python tools/follow_tutorial.py "$bin"

doing="installing it with what the tests use"
cd "$source"
python -m pip install "pip>=25.1"
# shellcheck disable=SC2086 # several arguments
python -m pip install "$wheel" --group test ${PIP_ARGS:-}

doing="its tests"
cd "$folder"
python -m pytest -q
