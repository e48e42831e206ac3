"""Whether the numbers in the statement of a search follow from each other."""

from __future__ import annotations

from dpsvm_fast.accounting.selection import CHOICES, SelectionStatement

__all__ = ["check_selection"]

# By how much more a choice costs where scores may move in opposite directions.
CHOICE_FACTOR = {"add_remove": 1, "replace_one": 2}


def check_selection(statement: SelectionStatement) -> list[str]:
    """Say what does not follow, beside the total.

    The events of the choice are made from its numbers, so only these can be wrong: what the fits
    cost is stated as events, each with its own numbers in it.
    """
    problems = [f"not private: {reason}" for reason in statement.not_private_reasons]
    if statement.random_source != "operating_system":
        problems.append("the noise does not come from the operating system's entropy")
    chosen = statement.selection
    factor = CHOICE_FACTOR[statement.adjacency] if chosen.mechanism in CHOICES else 1
    if chosen.relation_factor != factor:
        problems.append(
            f"relation_factor of the selection is not that of {statement.adjacency} with "
            f"{chosen.mechanism}"
        )
    return problems
