"""Long names of tests and files in tables may break after a slash, a point or a colon."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

LONG = 30


class LineBreaks(SphinxTransform):
    """Says where code in a cell of a table may go on in a new line."""

    default_priority = 900

    def apply(self, **_: object) -> None:
        """Put breaks into the long literals of all cells."""
        for cell in self.document.findall(nodes.entry):
            for literal in list(cell.findall(nodes.literal)):
                if len(literal.astext()) > LONG:
                    _put_breaks(literal)


def _put_breaks(literal: nodes.literal) -> None:
    """Cut the text of a literal where it may break."""
    parts = re.split(r"(?<=[/.:])(?=[^/.:])", literal.astext())
    literal.clear()
    for part in parts:
        for word in re.split("(?<=_)", part) if len(part) > LONG else [part]:
            literal += nodes.Text(word)
            literal += nodes.raw("", "<wbr>", format="html")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_transform(LineBreaks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
