"""Every item of the catalogue of inputs is asked of everyone it applies to."""

from __future__ import annotations

from typing import Any

import pytest

from estimators import test_bad_inputs, test_bad_parameters, test_input_forms
from estimators.test_bad_inputs import applies
from oracles.input_catalogue import ITEMS, subjects_of
from oracles.odd_parameters import bad_parameters
from oracles.odd_rows import ACCEPTED, REFUSED
from oracles.subjects import MAIN, SUBJECTS

MODULES = (test_bad_inputs, test_bad_parameters, test_input_forms)
# Tests that hold one of many cases at a time: whom they ask follows from the cases.
BY_CASE = {
    "test_refused_data_cost_nothing",
    "test_accepted_data_give_a_noisy_result",
    "test_bad_parameters_are_refused_before_data_are_read",
}
# Of one subject by its nature.
ALONE = {
    "test_a_batch_larger_than_the_rows_is_all_of_them": "psgd",
    "test_more_components_than_features": "pca",
}


def test_the_catalogue_has_all_numbers() -> None:
    assert sorted(ITEMS) == list(range(1, 86))
    assert all(
        item.what and item.result and set(item.subjects) <= set(MAIN) for item in ITEMS.values()
    )


def asked() -> dict[int, set[str]]:
    """Whom each item is asked of, read off the tests themselves."""
    found: dict[int, set[str]] = {number: set() for number in ITEMS}
    for case in (*REFUSED.values(), *ACCEPTED.values()):
        for number in case.numbers:
            found[number] |= {name for name in SUBJECTS if applies(name, case)}
    for subject, number, _, _ in bad_parameters():
        found[number].add(subject)
    for module in MODULES:
        for name, function in vars(module).items():
            for number in getattr(function, "catalogue_items", ()) if name not in BY_CASE else ():
                found[number] |= {ALONE[name]} if name in ALONE else subjects_of(function)
    # Every refusal checks its text.
    found[85] = set(MAIN)
    return found


ASKED = asked()


@pytest.mark.parametrize("number", ITEMS)
def test_every_item_is_asked_of_all_it_applies_to(number: int) -> None:
    assert set(ITEMS[number].subjects) - ASKED[number] == set()


def test_the_search_for_gaps_finds_one() -> None:
    """Negative control: without its tests an item has no subjects."""
    untested: Any = lambda subject: subject  # noqa: E731
    assert subjects_of(untested) == set()
    assert set(ITEMS[84].subjects) - subjects_of(untested) == set(MAIN)
