"""Links from pages to files of the repository, and the repository's own pages inside the site.

A link such as ``[losses.py](../python/dpsvm_fast/losses.py)`` works on the repository's host as it
is. In the site it leads to the page that shows the file, where there is one; to the file on the
host, where the host is known; and else to a copy of the file beside the pages.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
# Pages that lie elsewhere in the repository, and what they are called in the site.
PAGES = {
    "CHANGELOG.md": "repository/changelog",
    "CONTRIBUTING.md": "repository/contributing",
    "SECURITY.md": "repository/security",
    "benches/README.md": "repository/benchmarks",
    "examples/federated/README.md": "repository/hospitals",
}
# Files and folders that a page of the site stands for.
SHOWN = {
    "README.md": "index",
    "docs": "index",
    "docs/proofs": "proofs",
    **PAGES,
}
FILE = re.compile(r"(?:benches|docs|examples|python|rust|tests|tools)/[\w./-]+\.\w+")
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)([^)\s]*\))")


def host() -> str | None:
    """Where files of the repository can be seen, without a slash at the end."""
    # Set by the host's runners.
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and name:
        return f"{server}/{name}/blob/{os.environ.get('GITHUB_SHA', 'HEAD')}"
    return None


def moved(text: str, source: Path, page: Path) -> str:
    """The text of ``source`` with its relative links as ``page`` has to write them."""

    def link(found: re.Match[str]) -> str:
        target = (source.parent / found[2]).resolve()
        return f"{found[1]}{Path(os.path.relpath(target, page.parent)).as_posix()}{found[3]}"

    return LINK.sub(link, text)


def write_pages(app: Sphinx) -> None:
    """Copies of the repository's pages; one that has not changed is left alone."""
    for file, name in PAGES.items():
        page = DOCS / f"{name}.md"
        text = moved((ROOT / file).read_text(encoding="utf-8"), ROOT / file, page)
        if not page.is_file() or page.read_text(encoding="utf-8") != text:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, encoding="utf-8")


def _module_page(path: str) -> str:
    """The page of the reference for a module's file, if it has one."""
    name = path.removeprefix("python/").removesuffix(".py").removesuffix("/__init__")
    return f"reference/module-{name.replace('/', '.')}"


class RepositoryLinks(SphinxTransform):
    """Resolves links to files and folders outside ``docs``, and paths in back-ticks."""

    # Before the collectors that copy what is downloaded.
    default_priority = 5

    def apply(self, **_: object) -> None:
        """Replace every link of this page that leads out of ``docs``."""
        found = [
            node
            for kind in (download_reference, pending_xref)
            for node in self.document.findall(kind)
            if node.get("reftype") == "myst"
        ]
        for node in found:
            target, section = self._target(node)
            if target is not None and ROOT in target.parents:
                self._resolve(node, target.relative_to(ROOT).as_posix(), section)
        for literal in list(self.document.findall(nodes.literal)):
            self._link(literal)

    def _target(self, node: nodes.Element) -> tuple[Path | None, str]:
        """The file that a link names, if it names one, and the section in it."""
        name, _, section = str(node["reftarget"]).partition("#")
        if node.get("refdomain") == "doc" and name in self.env.found_docs:
            return None, ""
        if node.get("refdomain") == "doc":
            # A page, called by its path from ``docs`` without its suffix.
            return (DOCS / f"{name}.md").resolve(), node.get("reftargetid") or ""
        page = Path(self.env.doc2path(self.env.docname))
        return ((page.parent / name).resolve() if name else None), section

    def _link(self, literal: nodes.literal) -> None:
        """Make a link of a file's path in back-ticks, where it leads somewhere."""
        path = literal.astext().partition("::")[0]
        found = FILE.fullmatch(path) and (ROOT / path).is_file()
        if not found or isinstance(literal.parent, (nodes.title, nodes.reference, pending_xref)):
            return
        page = path.removeprefix("docs/").removesuffix(".md")
        link: nodes.Element | None = None
        if path.startswith("docs/") and page in self.env.found_docs:
            link = self._page_link(page, "")
        elif (base := host()) is not None:
            link = nodes.reference("", "", refuri=f"{base}/{path}")
        if link is not None:
            literal.replace_self(link)
            link += literal

    def _page_link(self, page: str, section: str) -> pending_xref:
        """A link to a page of the site."""
        return pending_xref(
            "",
            refdomain="doc",
            reftype="myst",
            reftarget=page,
            reftargetid=section or None,
            refexplicit=True,
            refdoc=self.env.docname,
        )

    def _resolve(self, node: nodes.Element, path: str, section: str) -> None:
        """Replace one link, unless it leads to a page of ``docs``."""
        if not (ROOT / path).exists():
            LOGGER.warning("no such file in the repository: %s", path, location=node)
        elif (module := _module_page(path)) in self.env.found_docs:
            self._to_page(node, module, section)
        elif path in SHOWN:
            page, _, beginning = SHOWN[path].partition("#")
            self._to_page(node, page, section or beginning)
        elif path.startswith("docs/") and path.endswith(".md"):
            return
        elif (base := host()) is not None:
            node.replace_self(nodes.reference("", "", *node.children, refuri=f"{base}/{path}"))
        elif (ROOT / path).is_dir():
            # A folder is not copied; what it is called remains.
            node.replace_self(nodes.inline("", "", *node.children))

    def _to_page(self, node: nodes.Element, page: str, section: str) -> None:
        """Replace a link by one to a page of the site."""
        link = self._page_link(page, section)
        link += node.children
        node.replace_self(link)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.connect("builder-inited", write_pages)
    app.add_transform(RepositoryLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
