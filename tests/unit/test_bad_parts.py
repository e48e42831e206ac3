"""Noisy sums and statements about them that cannot be: each is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from test_parts import full_batches, last_of_steps, made, made_part, made_statement, samples
from test_statement import statement as weights_statement

from dpsvm_fast.certificates import PrivacyStatement, ReleasePart
from dpsvm_fast.certificates.words import FLOATING_POINT_CAVEAT
from dpsvm_fast.exceptions import InvalidParameterError


def bad_part(**changes: Any) -> None:
    part = full_batches("add_remove").parts[0]
    ReleasePart(**vars(part) | changes)


@pytest.mark.parametrize(
    ("changes", "error", "word"),
    [
        ({"name": ""}, InvalidParameterError, "name"),
        ({"what": 3}, TypeError, "what"),
        ({"clip_norm": 0.0}, InvalidParameterError, "clip_norm"),
        ({"rounding": -1.0}, InvalidParameterError, "rounding"),
        ({"relation_factor": 3.0}, InvalidParameterError, "relation_factor"),
        ({"sigma": None}, InvalidParameterError, "sigma"),
        ({"beta": 1.0}, InvalidParameterError, "beta"),
        ({"grid": None}, InvalidParameterError, "grid"),
        ({"shape": (1, 2, 3)}, InvalidParameterError, "shape"),
        ({"shape": 3}, TypeError, "shape"),
        ({"n_steps": 0}, InvalidParameterError, "n_steps"),
        ({"sampling_rate": 0.0}, InvalidParameterError, "sampling_rate"),
        ({"last_iterate": 3}, TypeError, "last_iterate"),
        ({"last_iterate": last_of_steps(9), "sampling_rate": 0.5}, InvalidParameterError, "full"),
        (
            {"distribution": "gamma", "sampler": "floating_point", "sigma": None}
            | {"beta": 1.0, "epsilon": 1.0},
            InvalidParameterError,
            "one full sum",
        ),
    ],
    ids=str,
)
def test_bad_parts(changes: dict[str, Any], error: type[Exception], word: str) -> None:
    bad_part()
    with pytest.raises(error, match=word):
        bad_part(**changes)


def test_bad_statements_of_parts() -> None:
    document = made((samples, "add_remove")).to_dict()
    for changes in (
        {"parts": document["parts"][0]},
        {"parts": [document["parts"][0] | {"surplus": 1}]},
        {"parts": [document["parts"][0] | {"n_numbers": 20}]},
        {"noise": None},
        {"sensitivity": None},
    ):
        with pytest.raises((TypeError, InvalidParameterError)):
            PrivacyStatement.from_dict(document | changes)
    own = weights_statement()
    for changes in ({"noise": None}, {"sensitivity": None}, {"noise": None, "sensitivity": None}):
        with pytest.raises((TypeError, InvalidParameterError)):
            PrivacyStatement(**vars(own) | changes)


def test_floating_point_noise_in_a_part_must_bring_its_caveat() -> None:
    part = made_part("centre", "add_remove", lambda d: 30.0 * d, sampler="floating_point")
    with pytest.raises(InvalidParameterError, match="caveat"):
        made_statement("private_center", "add_remove", (part,))
    made_statement("private_center", "add_remove", (part,), caveats=(FLOATING_POINT_CAVEAT,))
