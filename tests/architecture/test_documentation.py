"""Every public name is in the reference with a whole docstring, and pages say what they mean.

The site itself is built by tools/docs.sh, with every warning an error: links between pages, names
in docstrings, formulas, pages that no list of contents leads to.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import dpsvm_fast

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Public by their names, and nothing of their own for users: what they hold is offered elsewhere, or
# is how the library works inside.
INTERNAL = {
    "dpsvm_fast.arithmetic": "how the library works inside",
    "dpsvm_fast.files": "how the library works inside",
    "dpsvm_fast.rounding": "how the library works inside",
    "dpsvm_fast.validation": "how the library works inside",
    "dpsvm_fast.estimators": "offered by dpsvm_fast",
    "dpsvm_fast.preprocessing": "offered by dpsvm_fast",
    "dpsvm_fast.exceptions": "offered by dpsvm_fast and the modules that raise them",
    "dpsvm_fast.pipelines": "offered by dpsvm_fast",
    "dpsvm_fast.cli": "a command, described in docs/command_line.md",
    "dpsvm_fast.mechanisms": "described by the proofs",
}
# What is asked of functions and classes: summary, all parameters in their order, sections that
# numpydoc knows in its order, what is returned, an example.
WHOLE = frozenset(
    {"GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08"}
    | {"SS01", "SS02", "SS03", "SS04", "SS06", "PR01", "PR02", "PR03", "PR05", "PR10"}
    | {"RT01", "RT04", "RT05", "YD01", "EX01"}
)
# One sentence is enough for a method of one argument.
SHORT = WHOLE - {"EX01", "PR01", "RT01"}
# What needs a server, shown in docs/federated.md; what `open_table` returns.
WITHOUT_EXAMPLE = ("dpsvm_fast.federated.flower.", "dpsvm_fast.data.Table")
# Classes that are only raised, and records, whose fields are their parameters, need no example.
RECORD = WHOLE - {"EX01"}


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """The extension that writes the reference."""
    pytest.importorskip("sphinx")
    # Importing what carries messages takes it.
    pytest.importorskip("flwr")
    return _extension("api_pages")


def _extension(name: str) -> ModuleType:
    """A module of docs/_site."""
    sys.path.insert(0, str(DOCS / "_site"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(DOCS / "_site"))


def asked_of(thing: object) -> frozenset[str]:
    """Which checks a public function or class has to pass."""
    made_elsewhere = getattr(thing, "_is_protocol", False) or inspect.isabstract(thing)
    if inspect.isclass(thing) and (
        issubclass(thing, BaseException) or dataclasses.is_dataclass(thing) or made_elsewhere
    ):
        return RECORD
    return WHOLE


def asked_of_method(owner: type, name: str) -> frozenset[str]:
    """Which checks a method or property has to pass."""
    member = inspect.getattr_static(owner, name)
    function = getattr(member, "__func__", member)
    if not inspect.isfunction(function):
        return SHORT
    return SHORT if len(inspect.signature(function).parameters) <= 2 else RECORD


def problems(site: ModuleType) -> Iterator[str]:
    """What is missing in the docstrings of public names."""
    validate = pytest.importorskip("numpydoc.validate").validate
    for entry in (one for own in site.entries() for one in own):
        if inspect.ismodule(entry.thing) or not callable(entry.thing):
            continue
        shown = RECORD if entry.name.startswith(WITHOUT_EXAMPLE) else WHOLE
        asked = {entry.name: asked_of(entry.thing) & shown}
        if inspect.isclass(entry.thing):
            for _, name in site.members(entry.thing):
                asked[f"{entry.name}.{name}"] = asked_of_method(entry.thing, name)
        for name, checks in asked.items():
            for code, text in validate(name)["errors"]:
                # *args of an abstract class are whatever its kinds take.
                if code in checks and "'*" not in text and not _fields(entry.thing, name, code):
                    yield f"{name}: {code} {text}"


def _fields(thing: object, name: str, code: str) -> bool:
    """Whether a record that is not made by users has its fields as attributes."""
    if code != "PR01" or not dataclasses.is_dataclass(thing) or not name.endswith(thing.__name__):
        return False
    section = pytest.importorskip("numpydoc.docscrape").NumpyDocString(inspect.getdoc(thing) or "")[
        "Attributes"
    ]
    listed = {word for attribute in section for word in attribute.name.split(", ")}
    return {field.name for field in dataclasses.fields(thing)} <= listed


def test_docstrings_are_whole(site: ModuleType) -> None:
    with warnings.catch_warnings():
        # Told as an error of its own, GL06.
        warnings.simplefilter("ignore", UserWarning)
        assert not (found := sorted(set(problems(site)))), "\n".join(found)


def test_every_public_module_is_described_or_internal(site: ModuleType) -> None:
    inside = pkgutil.iter_modules(dpsvm_fast.__path__, "dpsvm_fast.")
    public = {module.name for module in inside if "._" not in module.name}
    described = set(site.MODULES)
    assert public <= described | set(INTERNAL)
    assert not described & set(INTERNAL)
    assert set(INTERNAL) <= public
    listed = (DOCS / "api.md").read_text(encoding="utf-8")
    assert not [name for name in described if f"reference/module-{name}\n" not in listed]


def test_every_public_name_is_described_once(site: ModuleType) -> None:
    pages = "\n".join(site.pages().values())
    described = {entry.name: entry.thing for own in site.entries() for entry in own}
    for module in map(importlib.import_module, site.MODULES):
        for name in module.__all__:
            thing = getattr(module, name)
            if name.startswith("__") or inspect.ismodule(thing):
                continue
            # Constants may be equal and be different ones.
            own = f"{module.__name__}.{name}"
            names = [own] if own in described else [k for k, v in described.items() if v is thing]
            assert len(names) == 1, own
            assert pages.count(f":: {names[0]}\n") == 1, own


def test_a_poor_docstring_is_noticed(site: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: an undocumented parameter, and a result that is not described."""
    pytest.importorskip("numpydoc")

    def shorter(rows: int) -> int:
        """Return fewer rows."""
        return rows - 1

    monkeypatch.setattr(dpsvm_fast, "total_privacy", shorter)
    entry = site.Entry("dpsvm_fast.total_privacy", shorter)
    monkeypatch.setattr(site, "entries", lambda: [[entry]])
    found = {line.split()[1] for line in problems(site)}
    assert found == {"PR01", "RT01", "EX01"}


def test_formulas_that_cannot_be_set_are_refused() -> None:
    pytest.importorskip("sphinx")
    pytest.importorskip("latex2mathml")
    mathml = _extension("formulas").mathml
    assert "<mfrac>" in mathml(r"\frac{1}{\arg\min_x x^2}", "block")
    for wrong in (r"\nosuchcommand x", r"\frac{a}", "x^", r"\left( a", r"a & b", r"a \\ b"):
        with pytest.raises(ValueError, match=r"\w"):
            mathml(wrong, "inline")


def test_formulas_of_pages_are_set_and_numbered_once() -> None:
    """Those on lines of their own are LaTeX; what is indented would be shown as code."""
    pytest.importorskip("sphinx")
    pytest.importorskip("latex2mathml")
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    formulas = _extension("formulas")
    for page in [*DOCS.glob("*.md"), *(DOCS / "proofs").glob("*.md")]:
        numbers: list[str] = []
        for block in parser.parse(page.read_text(encoding="utf-8")):
            where = f"{page.name}, line {(block.map or [0])[0] + 1}"
            assert block.type != "code_block", where
            if block.type == "fence" and block.info == "math":
                latex, number = formulas.numbered(block.content)
                assert "<math" in formulas.mathml(latex, "block"), where
                numbers += [number] if number else []
        assert len(numbers) == len(set(numbers)), page.name
        assert all(re.fullmatch(r"\(\d\)", number) for number in numbers), page.name
