"""Pages of the API reference, written from the lists of public names.

What the package itself offers has a page a name; other modules have one page with all of theirs.

Also resolves names in docstrings: `PrivacyLedger` is a link wherever one documented object only is
called so.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.util.nodes import make_refnode

import dpsvm_fast

FOLDER = Path(__file__).resolve().parents[1] / "reference"
# Public modules in the order of the reference. What several of them offer is described in the
# first that does. Modules that are not listed here offer nothing of their own to users.
MODULES = (
    "dpsvm_fast",
    "dpsvm_fast.model_selection",
    "dpsvm_fast.metrics",
    "dpsvm_fast.data",
    "dpsvm_fast.persist",
    "dpsvm_fast.planning",
    "dpsvm_fast.plotting",
    "dpsvm_fast.accounting",
    "dpsvm_fast.certificates",
    "dpsvm_fast.ledger",
    "dpsvm_fast.verification",
    "dpsvm_fast.noise",
    "dpsvm_fast.audit",
    "dpsvm_fast.federated",
    "dpsvm_fast.federated.flower",
    "dpsvm_fast.losses",
)
KINDS = ("Modules", "Classes", "Functions", "Exceptions", "Warnings", "Data")


@dataclass(frozen=True)
class Entry:
    """A public object and the full name that it is described under."""

    name: str
    thing: object

    @property
    def module(self) -> str:
        """The module that it is described in."""
        return self.name.rpartition(".")[0]

    @property
    def short(self) -> str:
        """The name without the module."""
        return self.name.rpartition(".")[2]

    @property
    def kind(self) -> str:
        """What lists of a module are headed by."""
        if inspect.ismodule(self.thing):
            return "Modules"
        if not inspect.isclass(self.thing):
            return "Functions" if callable(self.thing) else "Data"
        if issubclass(self.thing, Warning):
            return "Warnings"
        return "Exceptions" if issubclass(self.thing, Exception) else "Classes"


def entries() -> list[list[Entry]]:
    """Public objects of each public module, in the order of ``MODULES``."""
    known: dict[int, str] = {}
    listed = []
    for module in map(importlib.import_module, MODULES):
        own = []
        for name in module.__all__:
            if name.startswith("__"):
                continue
            thing = getattr(module, name)
            full = f"{module.__name__}.{name}"
            if inspect.ismodule(thing):
                full = thing.__name__
            elif not isinstance(thing, str):
                full = known.setdefault(id(thing), full)
            own.append(Entry(full, thing))
        listed.append(own)
    return listed


def members(owner: type) -> Iterator[tuple[str, str]]:
    """Public methods and properties of ours: directive and name."""
    for name, member in sorted(vars_of(owner).items()):
        held = [getattr(member, where, None) for where in ("fget", "func", "__func__")]
        function = next((one for one in held if one is not None), member)
        module = str(getattr(function, "__module__", ""))
        if name.startswith("_") or not module.startswith(dpsvm_fast.__name__):
            continue
        if isinstance(member, (property, cached_property)):
            yield "autoproperty", name
        elif inspect.isroutine(function):
            yield "automethod", name


def vars_of(owner: type) -> dict[str, object]:
    """Members of a class and of those that it derives from, as they are stored."""
    found: dict[str, object] = {}
    for base in reversed(owner.__mro__):
        found.update(vars(base))
    return found


def first_line(thing: object) -> str:
    """The sentence that a docstring begins with."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def titled(title: str, line: str = "=") -> list[str]:
    """A heading."""
    return [title, line * len(title), ""]


def described(entry: Entry) -> list[str]:
    """Directives that describe one object, members included."""
    if not inspect.isclass(entry.thing):
        directive = "autofunction" if callable(entry.thing) else "autodata"
        return [f".. {directive}:: {entry.name}", ""]
    directive = "autoexception" if issubclass(entry.thing, BaseException) else "autoclass"
    lines = [f".. {directive}:: {entry.name}", ""]
    for heading, wanted in (("Methods", "automethod"), ("Properties", "autoproperty")):
        found = [name for directive, name in members(entry.thing) if directive == wanted]
        if found:
            lines += [f"   .. rubric:: {heading}", ""]
        for name in found:
            lines += [f"   .. {wanted}:: {entry.name}.{name}", ""]
    return lines


def object_page(entry: Entry) -> str:
    """The page of one object."""
    lines = [*titled(entry.short), f".. currentmodule:: {entry.module}", ""]
    return "\n".join([*lines, *described(entry)])


def contents(listed: list[Entry]) -> list[str]:
    """A table of objects with a sentence each, by kind."""
    lines = []
    for kind in KINDS:
        own = [entry for entry in listed if entry.kind == kind]
        if own:
            lines += [f".. rubric:: {kind}", "", ".. list-table::", "   :widths: 35 65", ""]
        for entry in own:
            role = "py:mod" if kind == "Modules" else "py:obj"
            lines += [f"   * - :{role}:`{entry.short} <{entry.name}>`"]
            lines += [f"     - {first_line(entry.thing)}", ""]
    return lines


def described_in(module: str, listed: list[Entry]) -> list[Entry]:
    """What the reference describes in a module, kind by kind."""
    own = [entry for entry in listed if entry.module == module and entry.kind in KINDS[1:]]
    return sorted(own, key=lambda entry: KINDS.index(entry.kind))


def module_page(module: ModuleType, listed: list[Entry]) -> str:
    """The page of a module: what it is for, and its objects."""
    name = module.__name__
    lines = [*titled(name), f".. py:module:: {name}", "", inspect.getdoc(module) or "", ""]
    lines += contents(listed)
    own = described_in(name, listed)
    if name == MODULES[0]:
        lines += [".. toctree::", "   :hidden:", ""]
        lines += [f"   {entry.name}" for entry in own]
    else:
        for entry in own:
            lines += [*titled(entry.short, "-"), *described(entry)]
    return "\n".join([*lines, ""])


def pages() -> dict[str, str]:
    """Every page of the reference by its file's name."""
    found = {}
    for module, listed in zip(MODULES, entries(), strict=True):
        # `dpsvm_fast.audit` is a module and has a function of the same name.
        found[f"module-{module}.rst"] = module_page(importlib.import_module(module), listed)
        if module == MODULES[0]:
            own = described_in(module, listed)
            found |= {f"{entry.name}.rst": object_page(entry) for entry in own}
    return found


def write_pages(app: Sphinx) -> None:
    """Write what has changed, and remove pages of objects that are gone."""
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for old in FOLDER.glob("*.rst"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        file = FOLDER / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Find the one documented object whose name ends like the link's."""
    if node.get("refdomain") != "py":
        return None
    target = str(node["reftarget"]).lstrip(".")
    objects = env.domains["py"].objects  # type: ignore[attr-defined]
    found = {
        (known.docname, known.node_id)
        for name, known in objects.items()
        if name.endswith(f".{target}")
    }
    if len(found) != 1:
        return None
    ((page, anchor),) = found
    return make_refnode(app.builder, node["refdoc"], page, anchor, content, target)


def signature(
    _app: Sphinx, what: str, _name: str, thing: object, _how: object, shown: str | None, _to: object
) -> tuple[str, None] | None:
    """The arguments of a class whose ``__new__`` takes whatever its kinds take."""
    if what != "class" or not inspect.isclass(thing) or not (shown or "").startswith("(*_"):
        return None
    _self, *given = inspect.signature(thing.__init__).parameters.values()
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in given]
    return str(inspect.Signature(bare)), None


class ApiLinks(SphinxTransform):
    """On Markdown pages `PrivateLinearSVC` and other names of classes lead to the reference."""

    default_priority = 700

    def apply(self, **_: object) -> None:
        """Wrap the names of this page, but those in titles and links."""
        if Path(self.env.doc2path(self.env.docname)).suffix != ".md":
            return
        # Bare words in small letters are often names of something else, too.
        listed = [entry for own in entries() for entry in own]
        known = {entry.short: entry.name for entry in listed if entry.short[0].isupper()}
        known |= {entry.name: entry.name for entry in listed}
        for literal in list(self.document.findall(nodes.literal)):
            name = known.get(literal.astext())
            if name is not None and not _within(literal):
                link = pending_xref(
                    "",
                    refdomain="py",
                    reftype="obj",
                    reftarget=name,
                    refdoc=self.env.docname,
                    refexplicit=True,
                )
                literal.replace_self(link)
                link += literal


def _within(node: nodes.Node) -> bool:
    """Whether a node is part of a title or of a link."""
    while node is not None:
        if isinstance(node, (nodes.title, nodes.reference, pending_xref)):
            return True
        node = node.parent
    return False


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the pages and the look-up."""
    app.connect("builder-inited", write_pages)
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-signature", signature)
    app.add_transform(ApiLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
