"""docs/results.md from the stored summaries: every figure on it is generated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from benches import report, tables
from benches.tables import Row

HEAD = """# Results

Tables and figures of the papers that this library builds on, compared with the printed
numbers; each section lists the differences from the paper's protocol. `python -m benches.papers
page` writes this page from [stored summaries](../benches/results), which have a standard error for
every mean ([how to run the scripts](../benches/README.md#accuracy-papers)).
"""
# What the list in docs/papers.md stands between.
MARKERS = ("<!-- tables-and-figures -->", "<!-- /tables-and-figures -->")
# The papers by the beginnings of their modules' names; what belongs to none comes last.
PAPERS = {
    "PMSVM (NeurIPS 2025)": ("pmsvm_",),
    "SCM (Sarwate, Chaudhuri and Monteleoni 2009)": ("scm_",),
    "FedDPDR (2024)": ("feddpdr_",),
    "DP-Helmet (2022)": ("helmet_",),
    "LMGC (Pathak and Raj 2010)": ("lmgc",),
    "Defaults elsewhere": ("",),
}
# Facts of the machine that are of use here, by what they are called.
FACTS = {
    "cpu": "processor",
    "cores": "cores",
    "system": "system",
    "python": "Python",
    "dpsvm_fast": "dpsvm_fast",
    "numpy": "NumPy",
    "scipy": "SciPy",
    "scikit-learn": "scikit-learn",
}


def paper_of(name: str) -> str:
    """The heading under which a module stands."""
    return next(paper for paper, starts in PAPERS.items() if name.startswith(starts))


def stored(
    folder: Path, modules: Mapping[str, Any]
) -> dict[str, tuple[list[Row], Mapping[str, str]]]:
    """Summaries and facts of the modules that have one."""
    paths = {name: folder / f"papers_{name}.csv" for name in modules}
    return {name: tables.read(path) for name, path in paths.items() if path.is_file()}


def contents(folder: Path, modules: Mapping[str, Any]) -> str:
    """The page for the summaries that are stored in a folder, in the order of the modules."""
    found = stored(folder, modules)
    parts = [HEAD, _machines([facts for _, facts in found.values()])]
    shown = {paper: [name for name in found if paper_of(name) == paper] for paper in PAPERS}
    for paper, names in shown.items():
        parts += [f"\n## {paper}\n"] if names else []
        for place, name in enumerate(names):
            before = [modules[other] for other in names[:place]]
            parts.append(_section(name, modules[name], found[name][0], before))
    return "".join(parts)


def _machines(heads: Sequence[Mapping[str, str]]) -> str:
    """What the summaries say about where they were measured: one line a fact."""
    lines = []
    for fact, label in FACTS.items():
        found = dict.fromkeys(head[fact] for head in heads if fact in head)
        lines += [f"- {label}: {', or '.join(found)}\n"] if found else []
    return "\nMeasured with:\n\n" + "".join(lines) if lines else ""


def anchor_of(title: str) -> str:
    """What a heading is called in an address."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def index(folder: Path, modules: Mapping[str, Any]) -> str:
    """Every measured table and figure with its script, for docs/papers.md."""
    places = list(PAPERS)
    names = sorted(stored(folder, modules), key=lambda name: places.index(paper_of(name)))
    lines = [
        f"| [{modules[name].TITLE}](results.md#{anchor_of(modules[name].TITLE)}) "
        f"| `benches/papers/{name}.py` |"
        for name in names
    ]
    return "\n".join(["| Measured again | Script |", "|---|---|", *lines])


def _shared_beginning(first: Sequence[str], second: Sequence[str]) -> int:
    """How many sentences two protocols have in common at their beginnings."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    )


def _protocol(module: Any, before: Sequence[Any]) -> str:
    """The points of a module; those with which an earlier one begins are named, not repeated."""
    own = module.PROTOCOL
    shared = [_shared_beginning(earlier.PROTOCOL, own) for earlier in before]
    known = max(shared, default=0)
    lines = [f"- {sentence}\n" for sentence in own[known if known > 2 else 0 :]]
    if known > 2:
        first = before[shared.index(known)]
        which = "All" if known == len(first.PROTOCOL) else f"The first {known}"
        lines.insert(0, f"- {which} points of [{first.TITLE}](#{anchor_of(first.TITLE)}).\n")
    return "".join(lines)


def _section(name: str, module: Any, table: Sequence[Row], before: Sequence[Any]) -> str:
    """One module's part, after those ``before`` it of the same paper."""
    protocol = _protocol(module, before)
    picture = f"images/papers_{name}.png"
    here = Path(__file__).resolve().parents[2] / "docs"
    drawn = f"\n![{module.TITLE}]({picture})\n" if (here / picture).is_file() else ""
    return (
        f"\n### {module.TITLE}\n\n{protocol}\n{module.page(table).strip()}\n{drawn}\n"
        f"`python -m benches.papers {name}`: "
        f"[every fit](../benches/results/papers_{name}_runs.csv), "
        f"[summary](../benches/results/papers_{name}.csv).\n"
    )


def write(path: Path, folder: Path, modules: Mapping[str, Any]) -> None:
    """Write the page, and the list in papers.md if that lies beside it."""
    path.write_text(contents(folder, modules), encoding="utf-8")
    papers = path.with_name("papers.md")
    if papers.is_file():
        report.update(papers, index(folder, modules), MARKERS)
