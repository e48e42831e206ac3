"""``dpsvm-fast statement`` and ``verify``: the guarantee of a model, and its check."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpsvm_fast.cli import screen as ui
from dpsvm_fast.cli.files import Document, opened_model, read_document, reserved
from dpsvm_fast.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from dpsvm_fast.verification import Policy


BOX = "[ ]"
# Fields of a statement in the JSON object.
SHOWN = ("private", "not_private_reasons", "epsilon", "delta", "adjacency", "unit")
# Fields of a certificate that holds, in the same object.
PROMISED = ("epsilon", "delta", "adjacency", "unit")
# Widths of blanks to fill in by hand.
NAME, DATE = 34, 14


@click.command(
    "statement",
    epilog=ui.example(
        "dpsvm-fast statement model.json",
        "dpsvm-fast statement model.json --certificate certificate.json",
    ),
)
@click.argument("file", type=ui.FILE, metavar="MODEL|CERTIFICATE")
@ui.option("--certificate", ui.FILE, "Certificate file to write; check it with 'verify'.")
@ui.option("--force", "Replace an existing file.", is_flag=True)
@ui.option("--key", ui.FILE, "File with the key that a model was signed with.")
@ui.model_memory_option
@ui.pass_screen
def statement_command(screen: ui.Screen, file: Path, **options: Any) -> None:
    """Show the guarantee of a saved model, and its assumptions.

    The numbers are recomputed first. The output ends with a list of checks for a person, and a line
    to sign.
    """
    from dpsvm_fast.persist import save_certificate

    certificate, key = options["certificate"], options["key"]
    max_memory = options["max_memory"]
    with reserved(certificate, force=options["force"], inputs=[file, key]) as drafts:
        document = read_document(file, key, max_memory)
        statement = _recomputed_statement(document)
        for draft in drafts:
            if document.is_model:
                # With the model's digest, signed with its key.
                save_certificate(file, draft.draft, key=key, max_memory=max_memory)
                draft.publish()
            else:
                draft.write(document.text.rstrip() + "\n")
    checks = _checks(statement)
    screen.result(
        {
            "file": file,
            "sha256": document.sha256,
            "signature": document.signature,
            **{name: getattr(statement, name) for name in SHOWN},
            "text": str(statement),
            "to_check": checks,
            "certificate": statement.to_dict(),
            "certificate_file": certificate,
        }
    )
    print_statement(screen, statement)
    _sign_off(screen, document, checks)
    if certificate is not None:
        screen.say(f"\nCertificate: {certificate} (dpsvm-fast verify checks it)")


def _recomputed_statement(document: Document) -> Any:
    """Return the statement after recomputing its numbers.

    Raises
    ------
    CommandError
        The numbers are inconsistent, or the file cannot be read.
    """
    from dpsvm_fast.certificates import read_certificate
    from dpsvm_fast.verification import verify

    result = verify(document.text, key=document.key)
    if result.undecided:
        raise ui.CommandError(
            f"{document.path}: this version cannot recompute the total; take the statement of each "
            "part"
        )
    if result.epsilon is None:
        raise ui.CommandError(
            f"{document.path}: is not a certificate or model that this version reads; dpsvm-fast "
            "verify says why"
        )
    statement = read_certificate(document.record)
    if statement.private and not result.ok:
        raise ui.CommandError(
            f"{document.path}: its numbers are inconsistent, so it guarantees nothing; dpsvm-fast "
            "verify says which",
            ui.DOES_NOT_HOLD,
        )
    return statement


def print_statement(screen: ui.Screen, statement: Any) -> None:
    """Print a statement with a coloured first line."""
    head, _, rest = str(statement).partition("\n")
    screen.say(head, style="bold green" if statement.private else "bold red")
    for number, block in enumerate(rest.split("\n\n")):
        title, _, items = block.partition("\n")
        if number:
            screen.say()
        if items.startswith("  - "):
            screen.say(title, style="bold")
            # A terminal breaks the lines of an item at its own width.
            screen.say(re.sub(r"\n {4}(?=\S)", " ", items) if screen.terminal else items)
        else:
            screen.say(block)


def _checks(statement: Any) -> list[str]:
    """Return the checks that no program can do."""
    if not statement.private:
        return []
    delta = (
        "delta is 0: the guarantee has no exception."
        if statement.delta == 0.0
        else f"delta is well below 1 / number of people: {statement.delta:g} suits far "
        f"fewer than {1.0 / statement.delta:,.0f} of them."
    )
    return [
        f"epsilon = {statement.epsilon:g} was agreed for these data.",
        delta,
        f"Each person's data lie within one protected unit: {statement.protected}.",
        "Everything assumed public was known, or chosen, without looking at the data.",
        'The items under "Not covered" are acceptable here.',
        "Other releases from the same data are counted: dpsvm-fast budget show FILE.",
        "Someone else has run dpsvm-fast verify on this file.",
    ]


def _sign_off(screen: ui.Screen, document: Document, checks: list[str]) -> None:
    """Print the checks for a person, and where to sign."""
    if not checks:
        screen.say("\nNothing to sign: this model is not private.", style="bold")
        return
    screen.say("\nTo be signed", style="bold")
    screen.say("The numbers are consistent: recomputed just now.")
    for check in checks:
        screen.say(f"  {BOX} {check}")
    kind = "model" if document.is_model else "certificate"
    screen.say(f"\n  Of the {kind} with SHA-256\n  {document.sha256}")
    screen.say(f"\n  Name {'_' * NAME}  Date {'_' * DATE}\n\n  Signature {'_' * (NAME + DATE + 2)}")


# ``dpsvm-fast verify``: recompute a certificate.


UNDECIDED_ADVICE = (
    "Nothing refutes it, but it is not confirmed: do not rely on it. If it covers several "
    "releases,\nverify the certificate of each: the sums of their epsilons and of their deltas are "
    "a guarantee\nfor all of them."
)


@click.command(
    "verify",
    epilog=ui.example(
        "dpsvm-fast verify certificate.json",
        "dpsvm-fast verify model.json --policy policy.toml --json",
    ),
)
@click.argument("file", type=ui.FILE, metavar="CERTIFICATE|MODEL")
@ui.option("--model", ui.FILE, "Saved model that the certificate must match.")
@ui.option("--key", ui.FILE, "File with the key that it was signed with.")
@ui.model_memory_option
@ui.option(
    "--policy",
    ui.FILE,
    "TOML or JSON with the largest epsilon and delta; optional: adjacency, unit, exact_noise, "
    "forbidden_caveats.",
)
@ui.pass_screen
def verify_command(screen: ui.Screen, file: Path, **options: Any) -> int:
    """Recompute the epsilon and delta of a certificate or a saved model.

    Needs neither data nor model; --model also checks that the certificate belongs to that model.
    Exit code 0: it holds; 1: a number is wrong; 2: it cannot be checked; 4: it holds, but the
    policy does not allow it.
    """
    from dpsvm_fast.certificates import read_certificate
    from dpsvm_fast.persist.values import document_of
    from dpsvm_fast.verification import verify

    model, key, max_memory = options["model"], options["key"], options["max_memory"]
    policy = options["policy"]
    rules = None if policy is None else _rules(policy)
    document = read_document(file, key, max_memory)
    about = file if document.is_model and model is None else model
    if model is not None:
        # Such a certificate has the digest of its model, and says who signed it.
        bound = document.signature is not None and not document.is_model
        opened_model(model, None, max_memory, quiet=bound)
    result = verify(
        document.text,
        model=None if about is None else document_of(about, max_memory),
        key=document.key,
        policy=rules,
    )
    record = document.record
    statement = read_certificate(record) if result.ok or result.forbidden else None
    screen.result(
        {
            "file": file,
            "sha256": document.sha256,
            "signature": document.signature,
            "holds": result.ok or bool(result.forbidden),
            "policy": policy,
            "forbidden": list(result.forbidden),
            "undecided": result.undecided,
            "problems": list(result.problems),
            "model": about,
            "matches": list(result.matches),
            "stated_not_checked": list(result.stated),
            "recomputed": {"epsilon": result.epsilon, "delta": result.delta},
            "promised": statement
            and {name: getattr(statement, name) for name in PROMISED} | {"for": _subject(record)},
        }
    )
    colour = "green" if result.ok else "red"
    screen.say(str(result), style=f"bold {'yellow' if result.undecided else colour}")
    if result.undecided:
        screen.say(UNDECIDED_ADVICE)
        return ui.FAILED
    if result.forbidden:
        return ui.FORBIDDEN
    if not result.ok:
        screen.say(_advice(record, unread=result.epsilon is None))
        return ui.DOES_NOT_HOLD
    assert statement is not None
    screen.say(
        f"Guarantee: epsilon = {statement.epsilon:g}, delta = {statement.delta:g} "
        f"({statement.adjacency}, for one {statement.unit}) for {_subject(record)}."
    )
    if policy is not None:
        screen.say(f"{policy} allows it.")
    return ui.DONE


def _rules(path: Path) -> Policy:
    """Read the policy in a file.

    Raises
    ------
    CommandError
        The file is not a policy; the message says what is wrong.
    """
    from dpsvm_fast.data.schema import read_record
    from dpsvm_fast.verification import Policy

    try:
        return Policy.read(read_record(path))
    except (TypeError, InvalidParameterError) as error:
        raise ui.CommandError(
            f"--policy: {path}: {error}".replace("schema file", "policy")
        ) from None


def _advice(record: Any, *, unread: bool) -> str:
    """Return advice about a certificate that does not hold."""
    name = record.get("format") if isinstance(record, dict) else None
    if not (isinstance(name, str) and name.startswith("dpsvm_fast.")):
        return "Not a certificate of dpsvm_fast: expected what model.privacy_.to_json() returns."
    if unread:
        return (
            "It could not be read. Ask the maker of the model for the original certificate, "
            "or\nverify with the version of dpsvm_fast that wrote it."
        )
    return (
        "Do not rely on it. Ask the maker of the model for the original certificate; a "
        "release\nthat is not private says so in not_private_reasons."
    )


def _subject(record: dict[str, Any]) -> str:
    """Describe the subject of a certificate."""
    if "steps" in record:
        return f"a pipeline of {len(record['steps'])} steps"
    if "candidates" in record:
        return f"a search over {len(record['candidates'])} candidates"
    if "rounds" in record:
        return f"{record['algorithm']} across {record['n_users']} parties"
    return f"{record['mechanism']} with loss {record['loss']}"
