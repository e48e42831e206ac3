"""Formulas as MathML: browsers set them without a script, and nothing is fetched from elsewhere.

Docstrings have ``:math:`` and ``.. math::``, pages have blocks fenced as ``math``, which hosts of
repositories set as well. The converter knows less than LaTeX: what it leaves out is added here.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOGGER = logging.getLogger(__name__)
# Commands that the converter does not know, by those that it does.
ALIASES = {
    r"\arg": r"\operatorname{arg}\,",
    r"\begin{aligned}": r"\begin{align*}",
    r"\end{aligned}": r"\end{align*}",
    ":=": "\u2254",
    "=:": "\u2255",
}
# Elements that need this many children; the converter makes shorter ones of unfinished formulas.
CHILDREN = {"mfrac": 2, "msub": 2, "msup": 2, "msubsup": 3, "mover": 2, "munder": 2, "mroot": 2}
TAG = re.compile(r"\s*\\tag\{([^{}]*)\}")
MATHML = "http://www.w3.org/1998/Math/MathML"
# What the converter takes for letters.
OPERATORS = {"~": "\u223c", "\u29f5": "\u2216"} | {sign: sign for sign in ";:\u2254\u2255\u2ab0"}
FUNCTIONS = {"log", "ln", "exp", "cos", "sin", "tan", "cosh", "sinh", "tanh", "det", "Pr"}
# Operators with their ranges below them, where a formula has lines of its own.
LIMITS = {"max", "min", "sup", "inf", "lim", "\u2211", "\u220f"}
SCRIPTS = {"msub", "msup", "msubsup", "munder", "mover", "munderover"}
OPENING, CLOSING = set("([{\u27e8\u230a\u2308"), set(")]}\u27e9\u230b\u2309")
# Brackets that LaTeX does not stretch, and signs that it sets without space.
TIGHT = {"|", "\u2016", "/", "."} | OPENING | CLOSING
# A plus or minus after one of these is that of a number.
BEFORE_SIGNS = OPENING | set(",;:/=<>\u2264\u2265\u2254\u2208")
PRIMES = {"\u2032", "\u2033", "\u2034"}
THIN = "0.167em"
ElementTree.register_namespace("", MATHML)


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
        name = _name(element)
        if len(element) < CHILDREN.get(name, 0):
            raise ValueError(f"unfinished {name}")
        if element.text == "&" or "linebreak" in element.attrib:
            raise ValueError("cells or lines outside an environment")
    _tidy(tree)
    return ElementTree.tostring(tree, encoding="unicode")


def _name(element: ElementTree.Element) -> str:
    """The name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _tidy(tree: ElementTree.Element) -> None:
    """Make operators of what the converter takes for letters, with LaTeX's spaces and limits."""
    for element in list(tree.iter()):
        _tidy_primes(element)
    for parent in tree.iter():
        # What scripts belong to is seen to together with them.
        first = 1 if _name(parent) in SCRIPTS else 0
        for place, element in enumerate(parent[first:], first):
            base = element
            while _name(base) in SCRIPTS:
                base = base[0]
            _tidy_operator(base, parent[first:place], parent[place + 1 :])
            if base.text in LIMITS and _name(element) in {"msub", "msubsup"}:
                below = "munder" if _name(element) == "msub" else "munderover"
                element.tag = f"{{{MATHML}}}{below}"


def _tidy_primes(element: ElementTree.Element) -> None:
    """Put a prime beside its letter: as a superscript it is too small to be seen."""
    if _name(element) not in {"msup", "msubsup"}:
        return
    above = element[-1]
    prime = above[0] if len(above) else above
    if prime.text not in PRIMES:
        return
    base, marked = element[0], ElementTree.Element(f"{{{MATHML}}}mrow")
    prime.tag = f"{{{MATHML}}}mo"
    prime.attrib |= {"form": "postfix", "lspace": "0", "rspace": "0"}
    if len(above):
        above.remove(prime)
    else:
        element.remove(above)
        element.tag = f"{{{MATHML}}}{'mrow' if _name(element) == 'msup' else 'msub'}"
    marked.extend([base, prime])
    element[0] = marked


def _tidy_operator(
    element: ElementTree.Element,
    before: list[ElementTree.Element],
    after: list[ElementTree.Element],
) -> None:
    """The same for one letter or operator between what comes before and after it."""
    text = element.text or ""
    if _name(element) not in {"mi", "mo"}:
        return
    if text in OPERATORS and _name(element) == "mi":
        element.tag, element.text = f"{{{MATHML}}}mo", OPERATORS[text]
    elif text in FUNCTIONS or (text in LIMITS and text.isalpha()):
        bracket = after and next(after[0].iter(f"{{{MATHML}}}mo"), after[0]).text in {"(", "["}
        element.tag = f"{{{MATHML}}}mo"
        element.attrib |= {"lspace": THIN, "rspace": "0" if bracket else THIN}
        if text in LIMITS:
            element.set("movablelimits", "true")
    elif text in TIGHT and "fence" not in element.attrib:
        element.tag = f"{{{MATHML}}}mo"
        element.attrib |= {"stretchy": "false", "lspace": "0", "rspace": "0"}
    elif text == "\u221e":
        element.tag = f"{{{MATHML}}}mi"
    elif text in {"+", "\u2212"}:
        left = [one for one in before if _name(one) != "mspace"]
        if not left or left[-1].text in BEFORE_SIGNS:
            element.set("form", "prefix")


def numbered(latex: str) -> tuple[str, str]:
    """A formula without its number, and its number."""
    tags = TAG.findall(latex)
    return TAG.sub("", latex), " ".join(f"({tag})" for tag in tags)


def _set(writer: HTML5Translator, node: nodes.Element, latex: str, display: str) -> str:
    """MathML of a node; a warning and the source where there is none."""
    try:
        return mathml(latex, display)
    except ValueError as problem:
        LOGGER.warning("formula %r: %s", latex, problem, location=node)
        return f"<code>{writer.encode(latex)}</code>"


def visit_inline(writer: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line of text."""
    writer.body.append(_set(writer, node, node.astext(), "inline"))
    raise nodes.SkipNode


def visit_block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """A formula on lines of its own."""
    latex, number = numbered(node.astext())
    end = f'<span class="number">{number}</span>' if number else ""
    made = _set(writer, node, latex, "block")
    writer.body.append(f'<div class="formula">{made}{end}</div>\n')
    raise nodes.SkipNode


class OutOfTheSearch(SphinxTransform):
    """Keeps LaTeX out of the words that the search knows."""

    default_priority = 800

    def apply(self, **_: object) -> None:
        """Mark the formulas of this page."""
        for kind in (nodes.math, nodes.math_block):
            for formula in self.document.findall(kind):
                formula["classes"].append("no-search")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_transform(OutOfTheSearch)
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
