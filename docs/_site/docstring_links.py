"""In docstrings, ``docs/proofs/accountant.md`` and the like become links to these pages."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

PAGE = re.compile(r"(?<![`\w/])docs/([\w/]+)\.md")


def link_pages(
    _app: Sphinx, _what: str, _name: str, _thing: object, _how: object, lines: list[str]
) -> None:
    """Replace paths of pages in the lines of one docstring."""
    lines[:] = [PAGE.sub(r":doc:`docs/\1.md </\1>`", line) for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the replacement."""
    # After numpydoc, which takes sections apart.
    app.connect("autodoc-process-docstring", link_pages, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
