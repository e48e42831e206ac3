#!/usr/bin/env bash
# Makes .venv with what builds the package. Usage: bootstrap.sh [python]
set -euo pipefail
cd "$(dirname "$0")/.."
# Says at once that Rust is missing.
. tools/find_cargo.sh

# Prints one word: why this interpreter cannot be used, or "ok".
verdict() {
    "$1" - 2>/dev/null <<'PY' || echo "missing"
import sys
if sys.version_info < (3, 10):
    print("old")
else:
    try:
        import ensurepip, venv
        print("ok")
    except ImportError:
        print("venv")
PY
}

candidates="${1:-python3 python3.14 python3.13 python3.12 python3.11 python3.10 python}"
python="" without_venv="" too_old=""
for candidate in $candidates; do
    case "$(verdict "$candidate")" in
        ok) python="$candidate" && break ;;
        venv) without_venv="${without_venv:-$candidate}" ;;
        old) too_old="${too_old:-$candidate}" ;;
    esac
done

if [ -z "$python" ]; then
    if [ -n "$without_venv" ]; then
        echo "dpsvm_fast: $without_venv has no venv module; install it (on Debian and Ubuntu: apt install python3-venv) and run the same command again." >&2
    elif [ -n "$too_old" ]; then
        echo "dpsvm_fast: Python 3.10 or newer is needed and $too_old is $("$too_old" -c 'import sys; print("%d.%d" % sys.version_info[:2])'); install one, or name it with PYTHON=/path/to/python3." >&2
    else
        echo "dpsvm_fast: no Python was found (looked for: $candidates); install Python 3.10 or newer, or name one with PYTHON=/path/to/python3." >&2
    fi
    exit 1
fi

export PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# An environment that works is kept, unless the caller named an interpreter of another version.
version='import sys; print(sys.version_info[:2])'
if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c '' 2>/dev/null ||
    { [ -n "${1:-}" ] && [ "$("$python" -c "$version")" != "$(.venv/bin/python -c "$version")" ]; }; then
    "$python" -m venv --clear --upgrade-deps .venv
fi
.venv/bin/python -m pip install "pip>=25.1" "maturin>=1.10,<2"
touch .venv/made
