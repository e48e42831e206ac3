"""Formulas as MathML: browsers set them without a script, and nothing is fetched from elsewhere."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOGGER = logging.getLogger(__name__)
# Commands that the converter does not know, by those that it does.
ALIASES = {r"\arg": r"\operatorname{arg}\,"}
# Elements that need this many children; the converter makes shorter ones of unfinished formulas.
CHILDREN = {"mfrac": 2, "msub": 2, "msup": 2, "msubsup": 3, "mover": 2, "munder": 2, "mroot": 2}


def mathml(latex: str, display: str) -> str:
    """The formula as MathML; ValueError for what cannot be converted.

    The converter passes commands that it does not know through as text, so its output is checked.
    """
    for command, known in ALIASES.items():
        latex = re.sub(re.escape(command) + r"(?![A-Za-z])", lambda _, known=known: known, latex)
    try:
        made = convert(latex, display=display)
        tree = ElementTree.fromstring(made)
    except Exception as problem:
        # The converter has no common base class of its exceptions.
        raise ValueError(f"{type(problem).__name__} {problem}") from problem
    for element in tree.iter():
        if "\\" in (element.text or ""):
            raise ValueError(f"unknown command {element.text}")
        name = element.tag.rpartition("}")[2]
        if len(element) < CHILDREN.get(name, 0):
            raise ValueError(f"unfinished {name}")
    return made


def _set(writer: HTML5Translator, node: nodes.math | nodes.math_block, display: str) -> str:
    """MathML of a node; a warning and the source where there is none."""
    try:
        return mathml(node.astext(), display)
    except ValueError as problem:
        LOGGER.warning("formula %r: %s", node.astext(), problem, location=node)
        return f"<code>{writer.encode(node.astext())}</code>"


def visit_inline(writer: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line of text."""
    writer.body.append(_set(writer, node, "inline"))
    raise nodes.SkipNode


def visit_block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """A formula on lines of its own."""
    writer.body.append(f'<div class="formula">{_set(writer, node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
