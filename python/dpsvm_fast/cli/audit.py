"""``dpsvm-fast audit``: certified lower bounds of epsilon beside what every mechanism claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from dpsvm_fast.cli.screen import (
    DOES_NOT_HOLD,
    DONE,
    Real,
    Reals,
    Screen,
    Whole,
    example,
    pass_screen,
)
from dpsvm_fast.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from dpsvm_fast.audit import AuditReport


COLUMNS = ("mechanism", "relation", "claim", "certified", "method", "trials", "seconds")

METHOD = COLUMNS.index("method")

LINE = "{:<30} {:<12} {:>7} {:>9}  {:<15} {:>8} {:>7}"

REFUTED = "REFUTED"

Found = tuple[str, "AuditReport"]


@click.command("audit", epilog=example("dpsvm-fast audit --mechanism output --seconds 2"))
@click.option(
    "--seconds", type=Real(0.0), default=10.0, show_default=True, help="Time for each audit."
)
@click.option("--trials", type=Whole(1), help="Counted runs of each world, instead of time.")
@click.option(
    "--epsilon",
    type=Reals(0.0),
    multiple=True,
    default=((1.0, 4.0),),
    show_default="1,4",
    help="Claims, with commas or repeated.",
)
@click.option("--mechanism", metavar="WORD", help="Only mechanisms whose name contains this.")
@click.option("--threads", type=Whole(1), help="Threads; all cores when left out.")
@pass_screen
def audit_command(
    screen: Screen,
    *,
    seconds: float,
    trials: int | None,
    epsilon: Sequence[Sequence[float]],
    mechanism: str | None,
    threads: int | None,
) -> int:
    """Try to refute what every mechanism claims.

    Runs the program on neighbouring data sets and certifies a lower bound of epsilon. A bound
    above the claim proves the program wrong: exit code 1.
    """
    from dpsvm_fast.audit.table import audited, selected

    rows = selected(mechanism)
    if not rows:
        raise InvalidParameterError.of(
            "mechanism", got=mechanism, accepted="a part of a name in the table"
        )
    epsilons = tuple(each for several in epsilon for each in several)
    time: dict[str, Any] = {"n_trials": trials} if trials else {"seconds": seconds}
    n_audits = sum(len(row.relations) for row in rows.values()) * len(epsilons)
    found = list(_shown(screen, audited(rows, epsilons, n_threads=threads, **time), n_audits))
    refuted = list(dict.fromkeys(name for name, report in found if report.exceeds_claim))
    records = [report.to_dict() | {"mechanism": name} for name, report in found]
    screen.result({"audits": records, "refuted": refuted})
    screen.say(_verdict(refuted, found[0][1]))
    return DOES_NOT_HOLD if refuted else DONE


def _shown(screen: Screen, reports: Iterable[Found], n_audits: int) -> Iterator[Found]:
    """Pass reports on: a line at once where lines are read, a table at the end on a terminal."""
    if not screen.terminal:
        screen.say(LINE.format(*COLUMNS))
    rows = []
    with screen.progress("auditing", n_audits) as bar:
        for number, (name, report) in enumerate(reports, start=1):
            row = [*_row(name, report), REFUTED if report.exceeds_claim else ""]
            rows.append(row)
            if not screen.terminal:
                screen.say(f"{LINE.format(*row[:-1])}  {row[-1]}".rstrip())
            bar.advance_to(number)
            yield name, report
    if screen.terminal:
        # Without the method, which no narrow terminal has room for.
        kept = [*COLUMNS[:METHOD], *COLUMNS[METHOD + 1 :], ""]
        shorter = [[*row[:METHOD], *row[METHOD + 1 :]] for row in rows]
        screen.table("What was certified", kept, shorter, left=2)


def _row(name: str, report: AuditReport) -> list[str]:
    """Cells of one audit."""
    return [
        name,
        report.adjacency,
        f"{report.epsilon:.3f}",
        f"{report.certified:.3f}",
        report.method,
        str(report.n_trials),
        f"{report.seconds:.1f}",
    ]


def _verdict(refuted: list[str], report: AuditReport) -> str:
    """What the table shows and what it does not."""
    if refuted:
        return f"\nRefuted: {', '.join(refuted)}."
    return (
        f"\nNo claim is refuted, each at confidence 1 - {1.0 - report.confidence:.2g} and delta "
        f"{report.delta:g} (0 for Gamma noise).\nA lower bound proves no privacy; the proofs do."
    )
