"""Tables of README and documentation from summaries: which figure goes where."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benches import audit_page, pages, readme_tables, tables  # noqa: E402


def lines(name: str, **found: list[tables.Row]) -> list[str]:
    """The table's lines for these summaries."""
    make, needed, others = next(own[name] for own in pages.PAGES.values() if name in own)
    return make({one: found.get(one, []) for one in (needed, *others)}).splitlines()


def kernel_row(data: str, epsilon: str, kernel: str, accuracy: str, gain: str) -> tables.Row:
    named = ("data", "epsilon", "kernel", "accuracy", "gain")
    shown = dict(zip(named, (data, epsilon, kernel, accuracy, gain), strict=True))
    return shown | {"not_private": "0.95"}


KERNEL_ROWS = [
    kernel_row("usps", "1", "linear", "0.9214", "0.004"),
    kernel_row("usps", "8", "rbf", "0.9536", "0.0131"),
    kernel_row("mnist", "8", "linear, rbf", "0.9661", "-0.002"),
]


def test_kernels_are_bold_and_gaps_stay_empty() -> None:
    shown = lines("kernel-table", papers_kernel=KERNEL_ROWS)
    assert shown[0] == "| | ε = 1 | ε = 8 | linear, not private |"
    assert shown[2] == "| usps | 0.921 | **0.954** (+0.013) | 0.950 |"
    assert shown[3] == "| mnist | | **0.966** (-0.002) | 0.950 |"
    assert "in 2 of 3 cells" in shown[-1]
    assert "from -0.002 to +0.013" in shown[-1]


def test_times_of_kernels_follow() -> None:
    timed = {
        "model": "kernel",
        "storage": "float64",
        "low_memory": "auto",
        "seconds": "41.26",
        "peak_beyond_x_mb": "431.7",
        "features_mb": "480",
        "accuracy": "0.9479",
    }
    linear = timed | {"model": "linear", "seconds": "2"}
    shown = lines("kernel-table", papers_kernel=KERNEL_ROWS, papers_kernel_timing=[timed, linear])
    assert shown[-3] == '| float64, `low_memory="auto"` | 41.3 s | 432 MB | 0.948 |'
    assert shown[-1] == "All features of all rows take 480 MB."


def reduced(data: str, method: str, epsilon: str, accuracy: str) -> tables.Row:
    named = ("data", "method", "epsilon", "accuracy")
    return dict(zip(named, (data, method, epsilon, accuracy), strict=True))


def test_reduction_shows_its_methods() -> None:
    table = []
    for data in readme_tables.REDUCTION_TASKS:
        table += [
            reduced(data, "Non-Priv", "", "0.9"),
            reduced(data, "DPDR-DPML", "0.1", "0.7"),
            reduced(data, "FedDPDR-DPML", "0.1", "0.8"),
            reduced(data, "PrivateLinearSVC", "0.1", "0.6"),
        ]
    timed = {"method": "DPDR-DPML", "slowest": "0.213", "paper_seconds": "111.7"}
    other = {"method": "DPML", "slowest": "9", "paper_seconds": "7873"}
    found = {"papers_feddpdr_figure3": table, "papers_feddpdr_table3": [timed, other]}
    shown = lines("reduction-table", **found)
    assert len(shown) == 2 + 8 + 2
    assert [line.rsplit("| ", 1)[1] for line in shown[2:6]] == ["|", "0.700 |", "|", "0.600 |"]
    assert "even or odd 0.900, ten digits 0.900" in shown[-1]
    assert "took 9.00 s; the paper's, with reduction, 112 s" in shown[-1]


def test_uneven_parties_show_what_was_measured() -> None:
    named = ("data", "sizes", "epsilon", "method", "accuracy")
    rows = [
        dict(zip(named, cell, strict=True))
        for cell in (
            (readme_tables.UNEVEN_TASK, "small", "0.1", "Non-Priv", "0.95"),
            (readme_tables.UNEVEN_TASK, "small", "1", "FedDPDR-DPML", "0.8"),
            (readme_tables.UNEVEN_TASK, "small", "1", "DPML, largest party", "0.7"),
            ("ten digits", "large", "1", "FedDPDR-DPML", "0.4"),
        )
    ]
    shown = lines("uneven-table", papers_feddpdr_figure5=rows)
    assert shown[0] == "| | small, ε = 0.1 | small, ε = 1 |"
    first = next(iter(readme_tables.UNEVEN.values()))
    assert shown[2:] == [f"| {first} | | 0.800 |", "| not private, all rows | 0.950 | |"]


def test_ellipsoids_are_bold_where_they_help() -> None:
    named = ("data", "epsilon", "helps", "ellipsoids", "linear", "not_private")
    rows = [
        dict(zip(named, cell, strict=True))
        | {"not_private_linear": "0.5", "ellipsoids_huber_ww": "0.8"}
        for cell in (
            ("same means", "1", "yes", "0.81", "0.34", "0.9"),
            ("same means", "2", "even", "0.85", "0.84", "0.9"),
            ("usps", "1", "no", "0.71", "0.92", "0.93"),
        )
    ]
    shown = lines("ellipsoid-table", papers_lmgc=rows)
    assert shown[2] == "| same means | **0.810** / 0.340 | 0.850 / 0.840 | 0.900 / 0.500 |"
    assert shown[3] == "| usps | 0.710 / 0.920 | | 0.930 / 0.500 |"
    assert "1 of 3 cells; in 1 they are worse" in shown[-1]
    assert "-0.050 to +0.090" in shown[-1]


def test_averages_come_from_two_summaries() -> None:
    named = ("data", "method", "setting", "users", "epsilon", "accuracy")
    curator = "PrivateLinearSVC, one curator"
    rows = [
        dict(zip(named, cell, strict=True))
        for cell in (
            ("mnist, 50 points a user", "SVM_SGD", "points", "10", "1", "0.2"),
            ("mnist, 50,000 points", curator, "spread", "1", "0.5885", "0.89"),
            ("cifar10_simclr, 50,000 points", "SVM_SGD", "spread", "10", "0.5885", "0.5"),
        )
    ]
    biased = {"data": "mnist", "method": "SVM_SGD", "multiplier": "1", "accuracy": "0.4"}
    other = biased | {"multiplier": "67", "accuracy": "0.8"}
    found = {"papers_helmet_figure3": rows, "papers_helmet_table2": [biased, other]}
    shown = lines("averaging-table", **found)
    assert len(shown) == 2 + 2
    assert shown[2] == '| `local="svm_sgd"`, as in the paper | 0.200 | | | | | | 0.400 |'
    assert shown[3].endswith("owner | | | | | | 0.890 | |")


def test_transformers_beside_scikit_learn() -> None:
    shape = {"task": "scales", "n_samples": "20000", "n_features": "784", "dtype": "float64"}
    rows = [
        shape | {"library": library, "n_threads": threads, "ms": ms, "faster": faster}
        for library, threads, ms, faster in (
            ("dpsvm_fast", "1", "12.34", "3.24"),
            ("dpsvm_fast", "2", "7", "5.71"),
            ("scikit-learn", "1", "40", "1"),
        )
    ]
    small = [row | {"n_features": "64"} for row in rows]
    features = [row | {"task": "features", "n_features": "1000"} for row in rows]
    shown = lines("transformer-table", transformers=rows + small + features)
    assert [line.split(" | ")[1].split(" x ")[1] for line in shown[2:]] == [
        "1000, float64",
        "64, float64",
        "784, float64",
    ]
    times = "**3.2\u00d7** (12.3 ms) | **5.7\u00d7** (7 ms) | 40 ms |"
    assert shown[-1].endswith(f"20,000 x 784, float64 | {times}")


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


def test_audits_have_their_own_page(tmp_path: Path) -> None:
    row = audit("PrivatePCA", audit_page.RIGHT, "1", "0.9", "gaussian")
    tables.write(tmp_path / "audit.csv", [row], {"cpu": "none"})
    assert pages.contents("README.md", tmp_path) == {}
    shown = pages.contents("docs/guarantees.md", tmp_path)["audit-table"]
    assert "| PrivatePCA | add_remove | 0.900 g | |" in shown


def test_nothing_is_shown_of_what_is_not_stored(tmp_path: Path) -> None:
    for name in pages.PAGES:
        assert pages.contents(name, tmp_path) == {}
    page = tmp_path / "README.md"
    page.write_text("text\n", encoding="utf-8")
    pages.fill("README.md", tmp_path, tmp_path)
    assert page.read_text(encoding="utf-8") == "text\n"


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


def test_links_start_from_the_page() -> None:
    text = "[how](benches/README.md)"
    assert pages.placed("README.md", text) == text
    assert pages.placed("docs/kernels.md", text) == "[how](../benches/README.md)"


def test_accuracies_are_bold_where_they_are_above_the_paper() -> None:
    common = {"data": "usps", "n_rows": "9298", "majority": "0.1675", "linear": "0.947"}
    rows = [
        common
        | {"epsilon": epsilon, "accuracy": accuracy, "standard_error": "0.002", "paper": "0.9"}
        for epsilon, accuracy in (("2", "0.95"), ("1", "0.8912"))
    ]
    shown = lines("accuracy-table", papers_auto=rows)
    assert shown[2] == "| usps, 9,298 rows | 0.168 | 0.891 / 0.900 | **0.950** / 0.900 | 0.947 |"
    assert "in 1 of 2 cells" in shown[-1]
    assert "at most 0.0020" in shown[-1]
