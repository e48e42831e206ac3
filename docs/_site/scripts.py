"""Subscripts and superscripts in the formulas of pages: ``e^{ε_j}`` is set as it is meant.

Pages write formulas as plain text, legible on every host: ``W_i``, ``2^p``, ``Σ_{i in D}``. What
stands below or above is one word, one sign, or whatever is between braces or brackets; what it
belongs to is one letter, the end of a bracket, or a name such as max. Code is left alone, and so
are formulas on lines of their own, which are LaTeX (`formulas.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

# Latin, with marks as well, and Greek.
LETTER = "A-Za-z\u00c0-\u00d6\u00d8-\u024f\u1e00-\u1eff\u0391-\u03c9"
MINUS = "\u2212"
# Combining marks and primes belong to the letter before them.
MARKS = "\u0300-\u036f'\u2032*°"
BASE = re.compile(
    rf"(?:(?<![{LETTER}])(?:[{LETTER}][{MARKS}²₀-₉]*|(?<!\d)\d+|max|min|sup|inf|log|lim)"
    rf"|[^\w\s{{(\[,;:.\-{MINUS}+=<>/])$"
)
# `n_samples` is the name of an argument: what stands below is short.
LONGEST = 5
WORD = re.compile(
    rf"[{MINUS}+±-]?(?:\d+|[{LETTER}][{LETTER}\d\u0300-\u036f]{{0,{LONGEST - 1}}})(?![{LETTER}\d_])"
)
SIGN = re.compile(rf"[∞+*⊥{MINUS}](?![{LETTER}\d])")
CLOSING = {"{": "}", "(": ")"}


class Piece(NamedTuple):
    """A part of a text: plain, or what stands below or above, which has parts itself."""

    place: str
    text: str


def pieces(text: str) -> Iterator[Piece]:
    """Cut a text at its scripts; `place` is "", "_" or "^"."""
    begin = at = 0
    after_script = False
    while (found := re.search("[_^]", text[at:])) is not None:
        mark = at + found.start()
        ends = _end_of_script(text, mark)
        attached = (after_script and mark == begin) or BASE.search(text[begin:mark])
        if ends is None or not attached:
            at = mark + 1
            continue
        if mark > begin:
            yield Piece("", text[begin:mark])
        inner = text[mark + 1 : ends]
        yield Piece(text[mark], inner[1:-1] if inner[0] in CLOSING else inner)
        begin = at = ends
        after_script = True
    if begin < len(text):
        yield Piece("", text[begin:])


def _end_of_script(text: str, mark: int) -> int | None:
    """Where the script that starts after ``mark`` ends; None where there is none."""
    opening = text[mark + 1 : mark + 2]
    if opening == "{" or (opening == "(" and text[mark] == "^"):
        return _end_of_group(text, mark + 1)
    for kind in (WORD, SIGN):
        if (found := kind.match(text, mark + 1)) is not None:
            return found.end()
    return None


def _end_of_group(text: str, start: int) -> int | None:
    """The place after the bracket that closes the one at ``start``."""
    opening, depth = text[start], 0
    for place in range(start, len(text)):
        depth += (text[place] == opening) - (text[place] == CLOSING[opening])
        if depth == 0:
            return place + 1
    return None


def typeset(text: str) -> list[nodes.Node]:
    """The text as nodes, scripts within scripts included."""
    made: list[nodes.Node] = []
    for place, part in pieces(text):
        if place == "":
            made.append(nodes.Text(part))
        else:
            kind = nodes.subscript if place == "_" else nodes.superscript
            made.append(kind("", "", *typeset(part)))
    return made


class Scripts(SphinxTransform):
    """Typesets what is plain text on Markdown pages."""

    default_priority = 800

    def apply(self, **_: object) -> None:
        """Replace the texts of this page."""
        if Path(self.env.doc2path(self.env.docname)).suffix != ".md":
            return
        for text in list(self.document.findall(nodes.Text)):
            if ("_" in text or "^" in text) and not _is_code(text):
                parts = typeset(str(text))
                if len(parts) > 1:
                    text.parent.replace(text, parts)


def _is_code(text: nodes.Text) -> bool:
    """Whether a text is code or LaTeX."""
    kept = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw)
    node = text.parent
    while node is not None:
        if isinstance(node, kept):
            return True
        node = node.parent
    return False


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_transform(Scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
