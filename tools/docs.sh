#!/usr/bin/env bash
# Builds the documentation site into target/docs/html; every warning is an error. Needs no network.
# Usage: docs.sh [options of sphinx-build, for example -E to read all pages again]
set -euo pipefail
cd "$(dirname "$0")/.."
# A list of all problems, not only the first; all pages, because each shows the contents of the site.
.venv/bin/python -m sphinx --builder html --jobs auto --quiet --nitpicky --fail-on-warning \
    --keep-going --write-all --doctree-dir target/docs/doctrees "$@" docs target/docs/html
# Whether the search finds the right pages first.
if command -v node >/dev/null; then
    node docs/_site/try_search.js target/docs/html
else
    echo "SKIPPED the search of the documentation: node is not installed"
fi
echo "documentation: target/docs/html/index.html"
