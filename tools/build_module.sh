#!/usr/bin/env bash
# Builds the compiled module in place; cargo recompiles only what changed. In a new environment it
# also links the package and installs what the package and its demo need. There, a wheel in dist/ that
# tools/wheel.sh made of the very same sources gives the module instead.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/find_cargo.sh
export PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1
rest=(--extras "plot,cli")
[ ! .venv/module-built -nt .venv/made ] || rest=(--skip-install)
if [ ${#rest[@]} -gt 1 ] && [ -f dist/sources.txt ] && tools/sources.sh 2>/dev/null | cmp -s - dist/sources.txt &&
    .venv/bin/python -m pip install --no-deps --no-index --find-links dist dpsvm-fast; then
    .venv/bin/python -m pip install "dpsvm-fast[plot,cli]"
    site="$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
    mv "$site"/dpsvm_fast/_core.*so python/dpsvm_fast/
    # The package itself is linked, as maturin does.
    rm -r "$site/dpsvm_fast" && echo "$PWD/python" >"$site/dpsvm_fast.pth"
    touch .venv/module-built && exit
fi
if [ ${#rest[@]} -gt 1 ]; then
    # Cargo leaves a core idle at times: what the package needs is installed then.
    mapfile -t needed < <(.venv/bin/python - <<'PY'
from pip._vendor import tomli
with open("pyproject.toml", "rb") as file:
    project = tomli.load(file)["project"]
extras = project["optional-dependencies"]
print(*project["dependencies"], *extras["plot"], *extras["cli"], sep="\n")
PY
    )
    nice -n 19 .venv/bin/python -m pip install "${needed[@]}" &
    .venv/bin/maturin develop --quiet --release --locked --skip-install
    wait
fi
.venv/bin/maturin develop --quiet --release --locked "${rest[@]}"
touch .venv/module-built
