"""The audit table as a command: ``python -m dpsvm_fast.audit``, ``dpsvm-fast audit``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from dpsvm_fast.audit._report import AuditReport
from dpsvm_fast.audit._table import audited, selected
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["add_arguments", "main", "run"]

HOLDS, REFUTED, FAILED = 0, 1, 2
HEADER = (
    f"{'mechanism':<30} {'relation':<12} {'claim':>7} {'certified':>9}  {'method':<15} "
    f"{'trials':>8} {'seconds':>7}"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="time for each audit (default 10)"
    )
    parser.add_argument("--trials", type=int, help="counted runs of each world, instead of time")
    parser.add_argument(
        "--epsilon", type=float, nargs="+", default=[1.0, 4.0], help="claims (default 1 4)"
    )
    parser.add_argument("--mechanism", help="only mechanisms whose name contains this")
    parser.add_argument("--threads", type=int, help="threads (default: all cores)")
    parser.add_argument("--json", action="store_true", help="print reports as a JSON array")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Audit every mechanism of the table.

    Returns
    -------
    int
        0; 1 when more than a claim was proved, which refutes it.

    Raises
    ------
    InvalidParameterError
        A value outside its range, or no mechanism of that name.
    """
    rows = selected(arguments.mechanism)
    if not rows:
        raise InvalidParameterError.of(
            "mechanism", got=arguments.mechanism, accepted="a part of a name in the table"
        )
    time = {"n_trials": arguments.trials} if arguments.trials else {"seconds": arguments.seconds}
    reports = audited(rows, tuple(arguments.epsilon), n_threads=arguments.threads, **time)
    found: list[tuple[str, AuditReport]] = []
    if not arguments.json:
        _say(HEADER)
    for name, report in reports:
        found.append((name, report))
        if not arguments.json:
            _say(_line(name, report))
    if arguments.json:
        records = [report.to_dict() | {"mechanism": name} for name, report in found]
        _say(json.dumps(records, indent=1))
    refuted = [name for name, report in found if report.exceeds_claim]
    if not arguments.json:
        _say(_verdict(refuted, found[0][1]))
    return REFUTED if refuted else HOLDS


def _say(text: str) -> None:
    """One line at once: an audit takes its time."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _line(name: str, report: AuditReport) -> str:
    """One row of the table."""
    mark = "  REFUTED" if report.exceeds_claim else ""
    return (
        f"{name:<30} {report.adjacency:<12} {report.epsilon:>7.3f} {report.certified:>9.3f}  "
        f"{report.method:<15} {report.n_trials:>8} {report.seconds:>7.1f}{mark}"
    )


def _verdict(refuted: list[str], report: AuditReport) -> str:
    """What the table shows and what it does not."""
    if refuted:
        return f"\nRefuted: {', '.join(dict.fromkeys(refuted))}."
    return (
        f"\nNo claim is refuted, each at confidence 1 - {1.0 - report.confidence:.2g} and delta "
        f"{report.delta:g} (0 for Gamma noise).\nA lower bound proves no privacy; the proofs do."
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command on its own; arguments as of the process when left out."""
    parser = argparse.ArgumentParser(
        prog="python -m dpsvm_fast.audit",
        description="Certified lower bounds of epsilon beside what every mechanism claims.",
    )
    add_arguments(parser)
    try:
        return run(parser.parse_args(argv))
    except InvalidParameterError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return FAILED
