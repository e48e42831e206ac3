"""``dpsvm-fast verify``: recompute a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpsvm_fast.cli._documents import opened_model, plain_model, read_document
from dpsvm_fast.cli._errors import DOES_NOT_HOLD, DONE, FAILED
from dpsvm_fast.cli._screen import Screen, example, pass_screen
from dpsvm_fast.cli._types import FILE

if TYPE_CHECKING:
    from dpsvm_fast.accounting import Verification

__all__ = ["command"]

UNDECIDED_ADVICE = (
    "Nothing wrong was found in it. Verify the certificate of each release by itself, where it is\n"
    "about several: their epsilons added up, and their deltas, are a promise about all of them."
)


@click.command(
    "verify",
    epilog=example("dpsvm-fast verify certificate.json", "dpsvm-fast verify model.json --json"),
)
@click.argument("file", type=FILE, metavar="CERTIFICATE|MODEL")
@click.option("--model", type=FILE, help="Saved model that the certificate has to be about.")
@click.option("--key", type=FILE, help="File with the key that it was signed with.")
@pass_screen
def command(screen: Screen, file: Path, *, model: Path | None, key: Path | None) -> int:
    """Recompute the epsilon and delta of a certificate, or of a saved model's.

    Exit code 0 says that every number follows from the others, 1 that one does not, 2 that it
    cannot be told. A certificate is checked without the model and without the data; with --model
    also whether it is about that model.
    """
    from dpsvm_fast.accounting import verify

    document = read_document(file, key)
    about = file if document.is_model and model is None else model
    if model is not None:
        opened_model(model, None, quiet=document.whole is not None)
    result = verify(
        document.text,
        model=None if about is None else plain_model(about),
        key=document.key,
    )
    record = document.record
    screen.result(
        {
            "file": str(file),
            "sha256": document.sha256,
            "signature": document.signature,
            "holds": result.ok,
            "undecided": result.undecided,
            "problems": list(result.problems),
            "model": None if about is None else str(about),
            "matches": list(result.matches),
            "stated_not_checked": list(result.stated),
            "recomputed": {"epsilon": result.epsilon, "delta": result.delta},
            "promised": _promise(record) if result.ok else None,
        }
    )
    screen.say(str(result), style=_style(result))
    if result.undecided:
        screen.say(UNDECIDED_ADVICE)
        return FAILED
    if not result.ok:
        screen.say(_advice(record, unread=result.epsilon is None))
        return DOES_NOT_HOLD
    screen.say(
        f"It promises epsilon = {record['epsilon']:g}, delta = {record['delta']:g} "
        f"({record['adjacency']}) for {_subject(record)}."
    )
    return DONE


def _style(result: Verification) -> str:
    """Colour of a verdict, whose words say the same."""
    if result.undecided:
        return "bold yellow"
    return "bold green" if result.ok else "bold red"


def _promise(record: dict[str, Any]) -> dict[str, Any]:
    """What a certificate that holds promises."""
    promised = {name: record[name] for name in ("epsilon", "delta", "adjacency")}
    return promised | {"for": _subject(record)}


def _advice(record: Any, *, unread: bool) -> str:
    """What to do about a certificate that does not hold."""
    name = record.get("format") if isinstance(record, dict) else None
    if not (isinstance(name, str) and name.startswith("dpsvm_fast.")):
        return (
            "This is no certificate of dpsvm_fast: expected what model.privacy_.to_json() returns."
        )
    if unread:
        return (
            "It could not be read. Ask whoever made the model for the certificate as it was\n"
            "written, or install the release of dpsvm_fast that wrote it, and verify again."
        )
    return (
        "Do not rely on it. Ask whoever made the model for the certificate as it was written;\n"
        "a release that is not private says so in not_private_reasons."
    )


def _subject(record: dict[str, Any]) -> str:
    """What a certificate is about."""
    if "steps" in record:
        return f"a pipeline of {len(record['steps'])} steps"
    if "candidates" in record:
        return f"a search over {len(record['candidates'])} candidates"
    if "rounds" in record:
        return f"{record['algorithm']} across {record['n_users']} parties"
    return f"{record['mechanism']} with loss {record['loss']}"
