"""Tables of README and documentation from summaries: which figure goes where."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches import audit_page, pages, persons, readme_tables, tables


def kernel_row(data: str, epsilon: str, kernel: str, accuracy: str, gain: str) -> tables.Row:
    named = ("data", "epsilon", "kernel", "accuracy", "gain")
    shown = dict(zip(named, (data, epsilon, kernel, accuracy, gain), strict=True))
    return shown | {"not_private": "0.95"}


KERNEL_ROWS = [
    kernel_row("usps", "1", "linear", "0.9214", "0.004"),
    kernel_row("usps", "8", "rbf", "0.9536", "0.0131"),
    kernel_row("mnist", "8", "linear, rbf", "0.9661", "-0.002"),
]


def audit(mechanism: str, build: str, claim: str, certified: str, method: str) -> tables.Row:
    named = ("mechanism", "build", "claim", "certified", "method")
    shown = dict(zip(named, (mechanism, build, claim, certified, method), strict=True))
    refuted = str(float(certified) > float(claim))
    return shown | {
        "relation": "add_remove",
        "refuted": refuted,
        "expected": str(build != audit_page.RIGHT),
        "seconds": "41.4",
        "confidence": "0.999999",
    }


def test_audits_say_which_builds_are_refuted() -> None:
    right = audit_page.RIGHT
    weak = audit("objective", "noise / sqrt 2", "4", "2.5", "profile") | {"expected": "-"}
    rows = [
        audit("output", right, "1", "0.8421", "gaussian"),
        audit("output", right, "4", "3.8", "gaussian"),
        audit("output", "noise / sqrt 2", "4", "5.1", "gaussian"),
        audit("objective", right, "1.02", "0.7", "density"),
        weak,
    ]
    shown = audit_page.audits({"audit": rows}).splitlines()
    head = "| Mechanism | relation | ε = 1 | ε = 4 | noise / sqrt 2, 1 | noise / sqrt 2, 4 |"
    assert shown[0] == head
    assert shown[2] == "| output | add_remove | 0.842 g | 3.800 g | | **5.100** |"
    assert shown[3] == "| objective | add_remove | 0.700 of 1.020 d | | | (2.500) |"
    assert "Of 3 audits of the library as it is, 0 are above" in shown[-1]
    assert "of 1 of wrong builds, 1 are" in shown[-1]
    assert "At most 41 seconds each" in shown[-1]
    assert "at most 1e-06" in shown[-1]
    assert "canaries" not in shown[-1]


def test_a_stored_table_needs_its_place(tmp_path: Path) -> None:
    tables.write(tmp_path / "papers_kernel.csv", KERNEL_ROWS, {"cpu": "none"})
    page = tmp_path / "docs" / "kernels.md"
    page.parent.mkdir()
    page.write_text("text\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="kernel-table"):
        pages.fill("docs/kernels.md", tmp_path, tmp_path)
    opening, closing = pages.markers("kernel-table")
    page.write_text(f"before\n{opening}\nold\n{closing}\nafter\n", encoding="utf-8")
    pages.fill("docs/kernels.md", tmp_path, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "\nold\n" not in text
    assert "**0.954** (+0.013)" in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")


def test_a_lost_line_of_persons_is_reported() -> None:
    def fits(epsilon: str, **accuracies: float) -> list[dict[str, str]]:
        first = {"data": "usps", "kind": "5 rows", "persons": "9", "epsilon": epsilon}
        named = zip(persons.METHODS, accuracies.values(), strict=False)
        return [first | {"method": m, "accuracy": str(a)} for m, a in named]

    wins = fits("1", known=0.8, groups=0.7, one=0.75, rows=0.9)
    table = tables.as_rows(persons.analyse(wins + wins + fits("4", known=0.1)))
    assert persons.failures(table) == []
    shown = readme_tables.persons({"persons": table})
    assert "| usps | 5 rows | 9 | 0.800 ± 0.000 | 0.700 ± 0.000 |" in shown
    assert "0.100 at ε = 4" in shown
    lost = tables.as_rows(persons.analyse(fits("1", known=0.8, groups=0.7, one=0.8)))
    assert len(persons.failures(lost)) == 1
