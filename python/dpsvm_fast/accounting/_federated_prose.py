"""A federated statement as text for people, wrapped for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsvm_fast.accounting._prose import CHECK, WIDTH, bullets, odds, paragraphs

if TYPE_CHECKING:
    from dpsvm_fast.accounting._federated_parts import SecureRound
    from dpsvm_fast.accounting.federated_statement import FederatedStatement

__all__ = ["federated_prose"]

NAMES = {"dp_helmet": "DP-Helmet, blind averaging", "fed_dpdr": "FedDPDR-DPML"}


def federated_prose(statement: FederatedStatement) -> str:
    """Return the statement for people, wrapped for a terminal."""
    head = "PRIVATE" if statement.private else "NOT PRIVATE"
    lines = [f"Privacy of training across parties: {head}", "=" * WIDTH]
    lines += paragraphs(_promise(statement))
    for title, items in (
        ("Why it is not private", statement.not_private_reasons),
        ("Who is trusted with what", _trust(statement)),
        ("How it follows", _derivation(statement)),
        ("Assumed public", statement.assumed_public),
        ("Not covered", statement.caveats),
    ):
        if items:
            lines += ["", title, *bullets(items)]
    lines += ["", *paragraphs(f"Proof: {statement.theorem}"), CHECK]
    return "\n".join([*lines, f"dpsvm_fast {statement.library_version}"])


def _promise(statement: FederatedStatement) -> str:
    """Return the guarantee in a few sentences."""
    what = {
        "record": "one row of one party's data, exchanged for another",
        "group": (
            f"{statement.group_size} rows, exchanged for others, whichever parties they belong to"
        ),
        "user": "all rows of one party, exchanged for as many others",
    }[statement.unit]
    bound = f"epsilon = {statement.epsilon:g}, delta = {statement.delta:g}"
    if not statement.private:
        return (
            "No privacy is promised for this training. The noise has the size that would give "
            f"{bound} for data sets that differ in {what}."
        )
    kind = "computationally differentially private"
    if statement.trust == "trusted_curator":
        kind = "differentially private"
    return (
        f"The model, and everything that was opened on the way to it, is {kind} with {bound} for "
        f"data sets that differ in {what}. {odds(statement.epsilon, statement.delta)} Anything "
        "computed from the model without the training data is as private."
    )


def _trust(statement: FederatedStatement) -> tuple[str, ...]:
    """Who may do what without harm, and what is left when that goes wrong."""
    bad = statement.min_survivors - statement.honest_survivors
    lines: tuple[str, ...] = (
        f"{_parties(statement.n_users)} take part. Up to {bad} of them may tell others all that "
        "they know, their own noise included",
    )
    if not statement.rounds:
        return (
            *lines,
            "every party adds by itself all the noise that the promise rests on: it holds whatever "
            "others do, and whoever sees what the party sent",
        )
    lost = statement.n_users - statement.min_survivors
    lines += (
        f"{f'up to {_parties(lost)}' if lost else 'nobody'} may drop out; with fewer than "
        f"{statement.min_survivors} left no sum is opened. The promise counts the noise of "
        f"{_parties(statement.honest_survivors)} alone, of honest ones that are in every opened "
        "sum whoever drops out",
    )
    if statement.trust == "secure_sum":
        lines += (
            "nobody sees what a single party sends: masks hide it, and it takes "
            f"{statement.threshold} parties to open the sum. The server is not trusted with data; "
            "it is trusted to follow the protocol",
        )
    else:
        lines += ("whoever adds up sees what every single party sends, and is trusted with it",)
    return (*lines, _without_sum(statement))


def _parties(n: int) -> str:
    """Return a number of parties in words."""
    return f"{n} {'party' if n == 1 else 'parties'}"


def _without_sum(statement: FederatedStatement) -> str:
    """What is left of the promise for somebody who sees single contributions."""
    if statement.local_epsilon is None:
        return (
            "if the sum fails to hide them, what single parties sent is hardly protected: by their "
            "own noise alone epsilon would be above 200"
        )
    return (
        "if the sum fails to hide them, each party is protected by its own noise alone: epsilon = "
        f"{statement.local_epsilon:.6g} at the same delta"
    )


def _derivation(statement: FederatedStatement) -> tuple[str, ...]:
    """From the settings to the noise, number by number."""
    lines: tuple[str, ...] = (f"{NAMES[statement.algorithm]}, loss {statement.loss}",)
    s = statement.sensitivity
    if s is not None:
        weight = "its number of rows" if statement.weighting == "records" else "one"
        lines += (
            f"every party's model counts with {weight}; rows clipped to norm {s.data_norm:g}; one "
            f"row moves it by at most 2 x {s.C:.6g} x {s.lipschitz:.6g} x {s.row_norm:.6g} = "
            f"{s.exact:.6g}; solver error 2 x {s.solver_radius:.6g}",
        )
    lines += tuple(line for part in statement.rounds for line in _of_round(part, statement))
    if statement.local_events:
        kinds = ", ".join(event.tag for event in statement.local_events)
        lines += (f"noise that every party adds for itself before anything is sent: {kinds}",)
    return lines


def _of_round(part: SecureRound, statement: FederatedStatement) -> tuple[str, ...]:
    """How the noise of one sum follows."""
    source = statement.random_source.replace("_", " ")
    assumed = (
        f", assumed advantage against the cryptography {part.computational:.3g}"
        if part.computational
        else ""
    )
    return (
        f"{part.what}, summed over parties ({part.size} numbers): neighbours differ by at most "
        f"{part.exact:.6g}, rounding to the grid of {part.grid:.6g} adds {part.rounding:.6g}; "
        f"total {part.total:.6g}",
        f"every party adds discrete Gaussian noise of {part.sigma_steps} steps from the {source}; "
        f"{part.honest_survivors} of these noises count, as Gaussian noise with sigma = "
        f"{part.sigma:.6g}",
        "what is added to delta, times 1 + e^epsilon: noise on a grid instead of real numbers "
        f"{part.discreteness:.3g}, numbers too large to be encoded {part.overflow:.3g}{assumed}",
    )
