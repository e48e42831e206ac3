"""docs/results.md from the stored summaries: every figure on it is generated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from benches import tables
from benches.tables import Row

HEAD = """# Results

Tables and figures of [the papers](papers.md) measured again, beside the printed numbers; most
curves have none. Unless a section says otherwise: random 80/20 splits with fresh noise in each,
means over splits with standard errors (±), δ = 1e-5, `add_remove`, public bounds, nothing tuned.
The [stored summaries](../benches/results) have a standard error for every mean; `python -m
benches.papers page` writes this page from them ([scripts](../benches/README.md#accuracy-papers)).
"""
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
    "cores": "cores:",
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
    """What the summaries say about where they were measured."""
    facts = []
    for fact, label in FACTS.items():
        found = dict.fromkeys(head[fact] for head in heads if fact in head)
        facts += [f"{label} {' or '.join(found)}"] if found else []
    return f"\nMeasured with {'; '.join(facts)}.\n" if facts else ""


def anchor_of(title: str) -> str:
    """What a heading is called in an address."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


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
        link = f"[{first.TITLE.partition(':')[0]}](#{anchor_of(first.TITLE)})"
        every = known == len(first.PROTOCOL)
        which = "The protocol of" if every else f"The first {known} items of"
        lines.insert(0, f"- {which} {link}.\n")
    return "".join(lines)


def _section(name: str, module: Any, table: Sequence[Row], before: Sequence[Any]) -> str:
    """One module's part, after those ``before`` it of the same paper."""
    protocol = _protocol(module, before)
    picture = f"images/papers_{name}.png"
    here = Path(__file__).resolve().parents[2] / "docs"
    short = module.TITLE.partition(":")[0]
    drawn = f"\n![{short}]({picture})\n" if (here / picture).is_file() else ""
    return (
        f"\n### {module.TITLE}\n\n{protocol}\n{module.page(table).strip()}\n{drawn}\n"
        f"`python -m benches.papers {name}`: "
        f"[every fit](../benches/results/papers_{name}_runs.csv), "
        f"[summary](../benches/results/papers_{name}.csv).\n"
    )


def write(path: Path, folder: Path, modules: Mapping[str, Any]) -> None:
    """Write the page."""
    path.write_text(contents(folder, modules), encoding="utf-8")
