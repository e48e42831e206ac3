"""``dpsvm-fast verify``: recompute a certificate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dpsvm_fast.accounting import verify
from dpsvm_fast.cli._errors import DOES_NOT_HOLD, DONE, CommandError
from dpsvm_fast.cli._screen import Screen, example, pass_screen
from dpsvm_fast.cli._types import FILE

__all__ = ["command"]


@click.command("verify", epilog=example("dpsvm-fast verify certificate.json"))
@click.argument("certificate", type=FILE)
@pass_screen
def command(screen: Screen, certificate: Path) -> int:
    """Recompute the epsilon and delta of a certificate, without the model.

    CERTIFICATE is the JSON text of model.privacy_.to_json().
    """
    try:
        text = certificate.read_text(encoding="utf-8")
        record = json.loads(text)
    except OSError as error:
        raise CommandError(f"{certificate} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{certificate} cannot be read: {_not_json(error)}") from error
    result = verify(text)
    screen.say(str(result))
    screen.result({"holds": result.ok})
    if not result.ok:
        screen.say(_advice(record, unread=result.epsilon is None))
        return DOES_NOT_HOLD
    screen.say(
        f"It promises epsilon = {record['epsilon']:g}, delta = {record['delta']:g} "
        f"({record['adjacency']}) for {_subject(record)}.\n"
        "What no recomputation can tell: that the model was made this way, and that what the\n"
        "certificate assumes public was public."
    )
    return DONE


def _not_json(error: Exception) -> str:
    """Why a file is no JSON text, and what to do."""
    ended = isinstance(error, json.JSONDecodeError) and error.pos >= len(error.doc.rstrip())
    if ended and error.doc.strip():  # type: ignore[attr-defined]
        return "its JSON text ends too early; copy or download the whole file again"
    return "it is not JSON text; expected a file with what model.privacy_.to_json() returns"


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
