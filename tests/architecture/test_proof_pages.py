"""Every mechanism has its proof page, and every name on a proof page exists.

A page lists under "Covers" dotted names of Python objects and of Rust functions, each with the
kind of its proof. Tests name the page that they test by a marker.
`python tests/architecture/test_proof_pages.py` writes the counts of the kinds into
docs/guarantees.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "docs" / "_site"), str(ROOT / "tests")]
from proof_tests import HEADING, MARK, RUST, marked_tests  # noqa: E402

from oracles.dotted_names import python_object_exists  # noqa: E402

PAGES = sorted((ROOT / "docs" / "proofs").glob("*.md"))
MECHANISMS = ROOT / "python" / "dpsvm_fast" / "mechanisms"
COVERS = "Covers"
TRIES = re.compile(r"^@tries\((\d+)\)\ndef (test_\w+)", re.M)
GUARANTEES = ROOT / "docs" / "guarantees.md"
MARKS = ("<!-- proof-table -->\n", "<!-- /proof-table -->")
KIND = re.compile(r"- `([^`]+)`.* — (?:(paper|tested)|(machine): `(\w+)`)$")


def kinds(page: str) -> dict[str, tuple[str, str]]:
    """Return for each covered name the kind of its proof, and the test that is one."""
    found = {}
    for line in page.split(f"## {COVERS}\n")[1].split("\n#")[0].splitlines():
        if line.startswith("- "):
            match = KIND.match(line)
            assert match, f"expected ' — paper', ' — tested' or ' — machine: `test`': {line}"
            found[match[1]] = (match[2] or match[3], match[4] or "")
    return found


def proof_table() -> str:
    """Return the table of docs/guarantees.md."""
    columns = ("machine", "paper", "tested")
    lines = ["| Page | by machine | on paper | tested |", "|---|---|---|---|"]
    everything: dict[str, str] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        own = {name: kind for name, (kind, _) in kinds(text).items()}
        everything |= own
        title = text.partition("\n")[0].lstrip("# ").partition(":")[0]
        counts = " | ".join(str(list(own.values()).count(kind)) for kind in columns)
        lines.append(f"| [{title}](proofs/{page.name}) | {counts} |")
    total = " | ".join(str(list(everything.values()).count(kind)) for kind in columns)
    return "\n".join([*lines, f"| different functions and classes | {total} |", ""])


def with_table(page: str) -> str:
    head, _, rest = page.partition(MARKS[0])
    return head + MARKS[0] + proof_table() + MARKS[1] + rest.partition(MARKS[1])[2]


def test_counts_of_proofs_are_those_of_the_pages() -> None:
    page = GUARANTEES.read_text(encoding="utf-8")
    assert page == with_table(page), "run python tests/architecture/test_proof_pages.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_machine_has_proved_names_a_listed_test(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    proofs = {test for kind, test in kinds(text).values() if kind == "machine"}
    marked = [test for part in marked_tests()[page.stem].values() for test in part]
    assert proofs <= {name.split("::")[-1] for name in marked}


def test_numbers_of_tries_are_those_of_the_tests() -> None:
    page = (ROOT / "docs" / "proofs" / "persons.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"\| `(test_\w+)` \| (\d+) random", page))
    files = [file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py")]
    done = {name: n for text in files for n, name in TRIES.findall(text)}
    assert said == done


def test_a_name_has_one_kind_on_all_pages() -> None:
    every = [kinds(page.read_text(encoding="utf-8")) for page in PAGES]
    for name in {name for page in every for name in page}:
        assert len({page[name] for page in every if name in page}) == 1, name


def listed(page: str, heading: str) -> list[str]:
    """Return the code-quoted first word of each bullet under every heading of that name."""
    names: list[str] = []
    inside = False
    for line in page.splitlines():
        if line.startswith("#"):
            inside = line.lstrip("#").strip() == heading
        elif inside and (found := re.match(r"\s*[-*] `([^`]+)`", line)):
            names.append(found.group(1))
    return names


def rust_item_exists(name: str) -> bool:
    """Look for the item ``dpsvm_core::a::b::item`` in ``a/b.rs``, ``a/b/mod.rs`` or below."""
    *modules, item = name.split("::")[1:]
    base = ROOT / "rust" / "core" / "src"
    pattern = re.compile(rf"\b(?:fn|struct|enum|trait|const)\s+{re.escape(item)}\b")
    while modules:
        path = base.joinpath(*modules)
        for file in (path.with_suffix(".rs"), path / "mod.rs"):
            if file.is_file() and pattern.search(file.read_text(encoding="utf-8")):
                return True
        # `Type::method`: the last part of the path is a type of the module before it.
        modules.pop()
    return False


def exists(name: str) -> bool:
    """Dispatch on how a covered name is written."""
    return rust_item_exists(name) if "::" in name else python_object_exists(name)


def test_there_are_pages() -> None:
    assert {page.name for page in PAGES} >= {"output_perturbation.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_covers_exists(page: Path) -> None:
    covered = listed(page.read_text(encoding="utf-8"), COVERS)
    assert covered, f"{page.name} has no list under '{COVERS}'"
    missing = [name for name in covered if not exists(name)]
    assert not missing, f"{page.name} names what does not exist: {missing}"


def test_markers_name_all_pages_and_no_others() -> None:
    assert set(marked_tests()) == {page.stem for page in PAGES}
    for page in PAGES:
        assert HEADING in page.read_text(encoding="utf-8")


def test_rust_tests_are_found() -> None:
    """Each mark of a Rust test belongs to a function that is a test."""
    marks = tests = 0
    for file in (ROOT / "rust").rglob("*.rs"):
        source = file.read_text(encoding="utf-8")
        marks += len(MARK.findall(source))
        for _, test in RUST.findall(source):
            before = source.partition(f"fn {test}")[0].rsplit("// Proof:", 1)[1]
            tests += "#[test]" in before
    found = [t for parts in marked_tests().values() for names in parts.values() for t in names]
    assert marks == sum(test.startswith("rust/") for test in found)
    assert tests >= len({test for test in found if test.startswith("rust/")})


def test_every_mechanism_has_a_page() -> None:
    covered = [name for page in PAGES for name in listed(page.read_text("utf-8"), COVERS)]
    modules = sorted(p.stem for p in MECHANISMS.glob("*.py") if not p.stem.startswith("_"))
    assert modules
    bare = [
        module
        for module in modules
        if not any(name.startswith(f"dpsvm_fast.mechanisms.{module}.") for name in covered)
    ]
    assert not bare, f"mechanisms without a proof page: {bare}"


def test_missing_names_are_caught() -> None:
    """Negative control: the look-ups do say no."""
    assert not exists("dpsvm_fast.mechanisms.output.NoSuchThing")
    assert not exists("dpsvm_fast.no_such_module.thing")
    assert not exists("dpsvm_core::solver::no_such_function")
    assert exists("dpsvm_core::runtime::threads::pool")
    assert listed("## Covers\n- `a.b`: text\n## Other\n- `c`\n", COVERS) == ["a.b"]


if __name__ == "__main__":
    GUARANTEES.write_text(with_table(GUARANTEES.read_text(encoding="utf-8")), encoding="utf-8")
