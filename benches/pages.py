"""Which table stands on which page of the documentation, and how it gets there.

A table whose summary is not stored has no place on its page either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from benches import (
    audit_page,
    crammer_singer_grid,
    one_run_audits,
    performance_tables,
    readme_accuracy,
    readme_tables,
    report,
    tables,
    weeks,
)
from benches.readme_tables import Summaries
from benches.tables import Row


class Table(NamedTuple):
    """A table: what makes it, the summary it needs, others that it shows where they are stored."""

    make: Callable[[Summaries], str]
    needed: str
    others: tuple[str, ...] = ()


# By page, from the root of the repository, and by marker.
PAGES: Mapping[str, Mapping[str, Table]] = {
    "README.md": {"accuracy-table": Table(readme_accuracy.accuracy, "papers_auto")},
    "docs/accuracy.md": {
        "standing-table": Table(readme_accuracy.standing, "papers_auto"),
        "measures-table": Table(readme_accuracy.measures, "papers_auto"),
        "digits-table": Table(readme_accuracy.digits, "papers_auto"),
        "budgets-table": Table(readme_tables.linear_budgets, "papers_budgets"),
    },
    "docs/kernels.md": {
        "kernel-budgets-table": Table(readme_tables.kernel_budgets, "papers_budgets"),
        "kernel-table": Table(readme_tables.kernel, "papers_kernel", ("papers_kernel_timing",)),
        "balls-table": Table(readme_tables.balls, "papers_scm_figure1"),
        "ellipsoid-table": Table(readme_tables.ellipsoids, "papers_lmgc"),
    },
    "docs/pipelines.md": {
        "reduction-table": Table(
            readme_tables.reduction, "papers_feddpdr_figure3", ("papers_feddpdr_table3",)
        ),
        "maps-table": Table(readme_tables.maps, "papers_maps", ("papers_kernel_timing",)),
    },
    "docs/performance.md": {
        "crammer-singer-grid": Table(crammer_singer_grid.page, crammer_singer_grid.NAME),
        "transformer-table": Table(readme_tables.transformers, "transformers"),
        "noise-table": Table(performance_tables.noise, "noise"),
        "accounting-table": Table(performance_tables.accounting, "accounting"),
        "memory-table": Table(performance_tables.memory, "memory"),
        "secure-sum-table": Table(performance_tables.secure_sum, "secure_sum"),
        "larger-table": Table(performance_tables.larger, "larger_than_memory"),
        "crossing-table": Table(performance_tables.crossing, "crossing"),
        "roofline-table": Table(performance_tables.roofline, "roofline"),
    },
    "docs/command_line.md": {
        "command-line-table": Table(performance_tables.command_line, "command_line"),
        "command-line-stages": Table(performance_tables.stages, "command_line_stages"),
    },
    "docs/tuning.md": {"tuning-table": Table(readme_tables.tuning, "papers_tuning")},
    "docs/federated.md": {
        "averaging-table": Table(
            readme_tables.averaged, "papers_helmet_figure3", ("papers_helmet_table2",)
        ),
        "uneven-table": Table(readme_tables.uneven, "papers_feddpdr_figure5"),
    },
    "docs/several_rows.md": {
        "persons-table": Table(readme_tables.persons, "persons"),
        "class-weights-table": Table(readme_tables.class_weights, "class_weights"),
        "rare-classes-table": Table(readme_tables.rare_classes, "rare_classes"),
    },
    "docs/auditing.md": {
        "one-run-table": Table(one_run_audits.page, one_run_audits.NAME),
        "audit-table": Table(audit_page.audits, "audit"),
    },
    weeks.PAGE: {"weeks-table": Table(weeks.page, weeks.NAME)},
}
# The page of the tables of ``report``.
SPEED = "docs/performance.md"


def contents(page: str, folder: Path) -> dict[str, str]:
    """By marker the tables of a page whose summaries are stored in ``folder``."""
    return {
        name: placed(page, table.make({one: _stored(folder, one) for one in _names(table)}))
        for name, table in PAGES[page].items()
        if _path(folder, table.needed).is_file()
    }


def placed(page: str, content: str) -> str:
    """The text with its links, which are from the root of the repository, from a page."""
    up = "../" * page.count("/")
    return content.replace("](benches/", f"]({up}benches/")


def _names(table: Table) -> tuple[str, ...]:
    """All summaries of a table."""
    return (table.needed, *table.others)


def _path(folder: Path, name: str) -> Path:
    """Where a summary is stored."""
    return folder / f"{name}.csv"


def _stored(folder: Path, name: str) -> list[Row]:
    """Rows of a summary; none where it is not stored."""
    path = _path(folder, name)
    return tables.read(path)[0] if path.is_file() else []


def markers(name: str) -> tuple[str, str]:
    """What a table stands between."""
    return f"<!-- {name} -->", f"<!-- /{name} -->"


MACHINE = markers("machine-table")


def fill(page: str, folder: Path, root: Path) -> None:
    """Replace every table of a page whose summary is stored, or what keeps its place until then."""
    for name, content in contents(page, folder).items():
        text = (root / page).read_text(encoding="utf-8")
        placed_text = text.replace(f"<!-- unmeasured {name} -->", "\n".join(markers(name)))
        (root / page).write_text(placed_text, encoding="utf-8")
        report.update(root / page, content, markers(name))


def fill_speed(folder: Path, root: Path) -> None:
    """Replace the tables of solvers and private steps."""

    def rows(name: str) -> list[Row]:
        return tables.read(_path(folder, name))[0]

    fill_one(root, report.markdown(rows("solver")), (report.OPENING, report.CLOSING))
    objective = report.objective_markdown(rows("objective"), rows("objective_fit"))
    fill_one(root, objective, report.OBJECTIVE)
    descent = report.descent_markdown(rows("descent"), rows("descent_memory"), rows("linear_fit"))
    fill_one(root, descent, report.DESCENT)
    measured = {name: _path(folder, name) for name in performance_tables.COMMANDS}
    heads = {name: tables.read(path)[1] for name, path in measured.items() if path.is_file()}
    fill_one(root, performance_tables.machine(heads), MACHINE)


def fill_one(root: Path, content: str, between: tuple[str, str]) -> None:
    """Replace one table of the page about speed."""
    report.update(root / SPEED, placed(SPEED, content), between)
