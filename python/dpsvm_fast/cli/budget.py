"""``dpsvm-fast budget``: files with a privacy budget and its spends."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import click

from dpsvm_fast.certificates.words import UNITS
from dpsvm_fast.cli import screen as ui
from dpsvm_fast.cli.app import Group
from dpsvm_fast.exceptions import LedgerError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.validation import check_delta, check_epsilon


@click.group("budget", cls=Group)
def budget_command() -> None:
    """Create and inspect budget files.

    A budget belongs to a set of rows. Pass it with --budget to every fit, search and evaluation on
    these rows, also in parallel. A command that would exceed it is refused before it reads data
    (exit code 3).
    """


@budget_command.command(
    "create",
    epilog=ui.example(
        "dpsvm-fast budget create people.budget --epsilon 4 --delta 1e-5",
        "dpsvm-fast fit people.csv --budget people.budget --epsilon 1 ...",
    ),
)
@click.argument("file", type=ui.FILE)
@ui.option("--epsilon", ui.Real(0.0), "Total epsilon.", required=True, metavar="E")
@ui.delta_option(required=True)
@ui.adjacency_option(default="add_remove")
@ui.option("--unit", ui.OneOf(UNITS), "Unit of privacy.", default=UNITS[0])
@ui.option("--adaptive", "Allow later spends whose size depends on earlier results.", is_flag=True)
@ui.option(
    "--periods",
    "Periods such as weeks, comma-separated. Each row belongs to one, and each period has the "
    "whole budget.",
    metavar="NAMES",
)
@ui.option("--anchor", ui.FILE, "Second file that counts spends; see 'budget anchor'.")
@ui.pass_screen
def create(screen: ui.Screen, file: Path, **options: Any) -> None:
    """Create a budget FILE."""
    epsilon = check_epsilon("epsilon", options["epsilon"])
    delta = check_delta("delta", options["delta"])
    adjacency, adaptive = options["adjacency"], options["adaptive"]
    if file.suffix.lower() == ".json":
        raise ui.CommandError(
            f"{file}: a budget file is a database, not JSON; name it {file.stem}.budget and read "
            "it with dpsvm-fast budget show --json"
        )
    if os.path.lexists(file) and file.is_file() and file.stat().st_size == 0:
        raise ui.CommandError(f"{file}: is an empty file, not a budget; remove it first")
    if os.path.lexists(file):
        raise ui.CommandError(
            f"{file}: already exists and is never replaced; choose another name, or see dpsvm-fast "
            f"budget show {ui.typed(file)}"
        )
    if not file.absolute().parent.is_dir():
        raise ui.CommandError(f"{file.absolute().parent}: no such folder; create it first")
    if not os.access(file.absolute().parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
    ledger = PrivacyLedger(
        epsilon,
        delta,
        adjacency,
        unit=options["unit"],
        path=file,
        adaptive=adaptive,
        anchor=options["anchor"],
        periods=options["periods"].split(",") if options["periods"] else (),
    )
    screen.say(
        f"{file}: epsilon = {epsilon:g}, delta = {delta:g} ({adjacency}, unit {ledger.unit}); "
        "nothing is spent"
    )
    screen.result(_summary(file, ledger))


@budget_command.command(
    "anchor", epilog=ui.example("dpsvm-fast budget anchor people.budget /mnt/safe/people.anchor")
)
@click.argument("file", type=ui.FILE)
@click.argument("anchor", type=ui.FILE)
@ui.pass_screen
def anchor(screen: ui.Screen, file: Path, anchor: Path) -> None:
    """Also count the spends of a budget FILE in a second file, ANCHOR.

    From then on, older or duplicate copies of the budget are refused, on this and other machines.
    Keep the anchor where it is not restored together with the budget: on another disk, or under
    another owner. Nothing can be spent without it. Run the command again to move to another anchor.
    """
    ledger = opened_budget(file, to_spend=True)
    kept = {"periods": ledger.periods, **_declared(ledger)}
    ledger = PrivacyLedger(path=file, anchor=anchor, **kept)
    screen.say(f"{file}: spends are also counted in {ledger.anchor}; mark {ledger.mark()}")
    screen.result(_summary(file, ledger))


@budget_command.command("show")
@click.argument("file", type=ui.FILE)
@ui.option(
    "--since",
    "Fail if a spend before this mark is missing.",
    metavar="MARK",
)
@ui.pass_screen
def show(screen: ui.Screen, file: Path, since: str | None) -> None:
    """Show the spent and remaining budget of a budget FILE.

    The printed mark is the number of spends and a digest. Keep it elsewhere: --since MARK fails if
    the file is an older copy.
    """
    ledger = opened_budget(file, since=since)
    record = _summary(file, ledger)
    rule = ", adaptive" if ledger.adaptive else ""
    screen.say(f"{file} ({ledger.adjacency}, unit {ledger.unit}{rule})", style="bold")
    screen.table(
        ("", "epsilon", "delta"),
        (
            ("budget", f"{ledger.epsilon:g}", f"{ledger.delta:g}"),
            ("spent", f"{record['spent_epsilon']:.6g}", f"{ledger.delta:g}"),
            ("left", f"{record['remaining_epsilon']:.6g}", f"{ledger.delta:g}"),
        ),
    )
    if ledger.periods:
        screen.say("each row has one period; spent and left are for the period with the most spent")
        screen.say("Periods", style="bold")
        screen.table(
            ("period", "spent", "left"),
            [
                (one["period"], f"{one['spent_epsilon']:.6g}", f"{one['remaining_epsilon']:.6g}")
                for one in record["periods"]
            ],
        )
    if record["spends"]:
        screen.say("Spends", style="bold")
        screen.table(
            ("time (UTC)", "by", "what"),
            [_described(spend) for spend in ledger.history],
            left=3,
        )
    screen.say(f"mark {record['mark']}")
    if ledger.anchor is not None:
        screen.say(f"anchor {ledger.anchor}")
    screen.result(record)


def _described(spend: Any) -> tuple[str, str, str]:
    """Return the time, the label and the event of a spend."""
    time, rest = str(spend).split("  ", 1)
    return time, spend.label, rest.removesuffix(spend.label).strip()


def _declared(ledger: PrivacyLedger) -> dict[str, Any]:
    """Return what was declared when a budget was created."""
    names = ("epsilon", "delta", "adjacency", "unit", "adaptive")
    return {name: getattr(ledger, name) for name in names}


def _summary(file: Path, ledger: PrivacyLedger) -> dict[str, Any]:
    """Return the contents of a ledger for ``--json``."""
    return {
        "file": file,
        **_declared(ledger),
        "spent_epsilon": ledger.total()[0],
        "remaining_epsilon": ledger.remaining(),
        "periods": [
            {"period": name, "spent_epsilon": own.total()[0], "remaining_epsilon": own.remaining()}
            for name, own in ((name, ledger.for_periods(name)) for name in ledger.periods)
        ],
        "spends": [spend.to_dict() for spend in ledger.history],
        "mark": ledger.mark(),
        "anchor": ledger.anchor,
    }


def opened_budget(
    path: Path,
    kind: type[PrivacyLedger] = PrivacyLedger,
    *,
    to_spend: bool = False,
    since: str | None = None,
) -> PrivacyLedger:
    """Return the ledger of a budget file.

    Parameters
    ----------
    path : Path
    kind : type, default=PrivacyLedger
        Class of the ledger, PrivacyLedger or a subclass.
    to_spend : bool, default=False
        Whether the file will be written to.
    since : str or None
        Mark of earlier spends, which the ledger must contain.

    Raises
    ------
    CommandError
        There is no such budget, or no permission to use it.
    """
    if not os.path.lexists(path):
        raise ui.CommandError(
            f"{path}: no such file; create a budget with dpsvm-fast budget create {ui.typed(path)} "
            "--epsilon E --delta D"
        )
    if path.is_file() and not os.access(path, os.R_OK):
        raise ui.CommandError(
            f"{path}: no permission to read this budget; ask its owner for access"
        )
    # The database keeps a journal next to the file while it is changed.
    changed = (path, path.absolute().parent) if to_spend and path.is_file() else ()
    if not all(os.access(place, os.W_OK) for place in changed):
        raise ui.CommandError(
            f"{path}: no permission to write this budget or its folder, where every spend is "
            "recorded before training; ask its owner for access"
        )
    try:
        return kind.open(path, since=since)
    except LedgerError as error:
        raise ui.CommandError(
            f"{path}: is not a budget ({error}); expected a file made by dpsvm-fast budget create"
        ) from None
