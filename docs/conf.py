"""Settings of the documentation site; `make docs` builds it.

Nothing is fetched while it is built, nor by the pages that come out: formulas are MathML, and
files of the repository that a page links to lie beside the pages unless the repository is known.
"""

from __future__ import annotations

import sys
from pathlib import Path

import dpsvm_fast

sys.path.insert(0, str(Path(__file__).parent / "_site"))

project = "dpsvm_fast"
author = "The dpsvm_fast authors"
project_copyright = author
version = release = dpsvm_fast.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    # Those of docs/_site.
    "api_pages",
    "docstring_links",
    "formulas",
    "line_breaks",
    "proof_tests",
    "repository_files",
    "scripts",
]
exclude_patterns = ["_site"]
# Every name that a docstring links to has to be found; no exceptions are needed.
nitpicky = True
# Straight quotes and dashes stay: W' is a symbol, and --json an option.
smartquotes = False
# Blocks without a language are output of programs or pseudocode.
highlight_language = "text"
# A name in single back-ticks of a docstring is a link to the object of that name.
default_role = "py:obj"

# Blocks fenced as math are formulas in LaTeX, here and on the repository's host.
myst_fence_as_directive = {"math"}

# Sections have the anchors that they have on the repository's host.
myst_heading_anchors = 4

# The text of each parameter says its type; annotations beside it would say it again.
autodoc_typehints = "none"
# Methods and properties are listed by api_pages.
numpydoc_show_class_members = False
autosummary_generate = False

html_theme = "furo"
html_title = "dpsvm_fast"
html_static_path = ["_site/static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
# Guides come before proofs in the results of a search.
html_search_scorer = str(Path(__file__).parent / "_site" / "scorer.js")
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
