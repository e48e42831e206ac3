"""Tables of README and documentation from summaries: which figure goes where."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches import pages, persons, readme_tables, tables


def kernel_row(data: str, epsilon: str, kernel: str, accuracy: str, gain: str) -> tables.Row:
    named = ("data", "epsilon", "kernel", "accuracy", "gain")
    shown = dict(zip(named, (data, epsilon, kernel, accuracy, gain), strict=True))
    errors = dict.fromkeys(("standard_error", "gain_error", "log_loss_error"), "0.002")
    others = dict.fromkeys(("balanced_accuracy", "auroc", "log_loss"), "0.9")
    unknown = dict.fromkeys(("balanced_accuracy_error", "auroc_error"), "")
    model = "kernel" if epsilon else "linear, not private"
    return shown | errors | others | unknown | {"model": model, "splits": "2"}


KERNEL_ROWS = [
    kernel_row("usps", "", "", "0.9375", ""),
    kernel_row("usps", "1", "linear", "0.9214", "0.004"),
    kernel_row("usps", "8", "rbf", "0.9536", "0.0131"),
    kernel_row("mnist", "8", "linear, rbf", "0.9661", "-0.002"),
]


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
    line = "| usps | 0.921 ± 0.002 | **0.954** ± 0.002 (+0.013 ± 0.002) | | 0.938 ± 0.002 |"
    assert line in text
    assert "Splits, or fits on the official split: 2 (usps; mnist). Bold:" in text
    assert "| usps | 0.900 / 0.900 / 0.900 | " in text
    assert "Standard errors are at most 0.000 / 0.000 / 0.002." in text
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
