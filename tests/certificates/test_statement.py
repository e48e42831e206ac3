"""The statement: read as it was written, refused where it cannot be, and a text people can read."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from dpsvm_fast import NotPrivateWarning
from dpsvm_fast.certificates import read_certificate
from dpsvm_fast.certificates.words import SEED_REASON
from dpsvm_fast.exceptions import InvalidParameterError
from oracles.statements import ESTIMATORS, MAKERS, fitted, statement_of

every_kind = pytest.mark.parametrize("kind", MAKERS, ids=" ".join)


def made(kind: str) -> Any:
    return statement_of(kind, "add_remove")


# Records inside of statements, made when they are asked for.
RECORDS: dict[str, Callable[[], Any]] = {
    "statement": lambda: made("output"),
    "sampled": lambda: made("gradient sampled"),
    "noise": lambda: made("output").noise,
    "objective": lambda: made("objective two").objective,
    "part": lambda: made("gradient sampled").parts[0],
}


@every_kind
def test_json_keeps_every_bit(kind: tuple[str, str]) -> None:
    statement = statement_of(*kind)
    text = statement.to_json()
    again = read_certificate(text)
    assert again == statement == pickle.loads(pickle.dumps(statement))
    assert again.to_json() == text
    assert "NaN" not in text
    assert "Infinity" not in text
    assert json.loads(text)["private"] is True


@every_kind
def test_the_text_fits_a_terminal_and_says_what_counts(kind: tuple[str, str]) -> None:
    statement = statement_of(*kind)
    text = str(statement)
    assert max(map(len, text.splitlines())) <= 88
    flat = " ".join(text.split())
    said = [*getattr(statement, "assumed_public", ()), *getattr(statement, "caveats", ())]
    said += [part.what for part in getattr(statement, "parts", ())]
    if kind[0] in ESTIMATORS:
        said += [statement.theorem, statement.library_version]
    for sentence in (f"epsilon = {statement.epsilon:g}", *said):
        assert sentence in flat
    assert "NOT PRIVATE" not in flat


def test_a_seeded_release_says_that_it_is_not_private() -> None:
    assert not dataclasses.replace(made("output"), random_source="seed").private
    with pytest.warns(NotPrivateWarning):
        seeded = fitted("output", "add_remove", random_state=0).privacy_
    assert not seeded.private
    assert "NOT PRIVATE" in str(seeded)
    assert SEED_REASON in " ".join(str(seeded).split())
    assert json.loads(seeded.to_json())["private"] is False


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        made("output").epsilon = 0.1  # type: ignore[misc]


# What cannot be a record, and what the error names: a field, or the record whose fields disagree.
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("statement", {"epsilon": 0.0}, "epsilon"),
    ("statement", {"epsilon": "1"}, "epsilon"),
    ("statement", {"delta": 1.0}, "delta"),
    ("sampled", {"delta": 0.0}, "delta"),
    ("statement", {"adjacency": "both"}, "adjacency"),
    ("statement", {"random_source": "dice"}, "random_source"),
    ("statement", {"occasion": "none"}, "occasion"),
    ("statement", {"loss": "none"}, "labels"),
    ("statement", {"parts": ("part",)}, "parts"),
    ("statement", {"noise": {}}, "noise"),
    ("statement", {"noise": None}, "noise"),
    ("statement", {"sensitivity": None}, "noise"),
    ("noise", {"distribution": "laplace"}, "distribution"),
    ("noise", {"distribution": "gamma"}, "noise"),
    ("noise", {"sampler": "magic"}, "sampler"),
    ("noise", {"beta": 1.0}, "noise"),
    ("noise", {"sigma": None}, "noise"),
    ("noise", {"sigma": math.inf}, "sigma"),
    ("noise", {"grid": None}, "noise"),
    ("noise", {"shape": (3,)}, "shape"),
    ("noise", {"shape": (3, 0)}, "shape"),
    ("noise", {"shape": (3, 5.0)}, "shape"),
    ("objective", {"n_classes": 1}, "n_classes"),
    ("objective", {"smoothing": 0.0}, "smoothing"),
    ("objective", {"beta": 1.0}, "objective"),
    ("objective", {"delta": 0.0}, "delta"),
    ("objective", {"grid": None}, "objective"),
    ("objective", {"extra_regularization": 1e9}, "extra_regularization"),
    ("objective", {"shape": (3,)}, "shape"),
    ("objective", {"curvature": math.inf}, "curvature"),
    ("part", {"name": ""}, "name"),
    ("part", {"what": 3}, "what"),
    ("part", {"clip_norm": 0.0}, "clip_norm"),
    ("part", {"rounding": -1.0}, "rounding"),
    ("part", {"relation_factor": 3.0}, "relation_factor"),
    ("part", {"sigma": None}, "part 'training'"),
    ("part", {"beta": 1.0}, "part 'training'"),
    ("part", {"grid": None}, "part 'training'"),
    ("part", {"shape": (1, 2, 3)}, "shape"),
    ("part", {"n_steps": 0}, "n_steps"),
    ("part", {"sampling_rate": 0.0}, "sampling_rate"),
    ("part", {"last_iterate": 3}, "last_iterate"),
    (
        "part",
        {"distribution": "gamma", "sampler": "floating_point", "sigma": None, "grid": None}
        | {"beta": 1.0, "epsilon": 1.0},
        "n_steps",
    ),
]


@pytest.mark.parametrize(("record", "changes", "parameter"), BAD, ids=str)
def test_records_that_cannot_be_are_refused_by_name(
    record: str, changes: dict[str, Any], parameter: str
) -> None:
    with pytest.raises((TypeError, InvalidParameterError)) as caught:
        dataclasses.replace(RECORDS[record](), **changes)
    named = getattr(caught.value, "parameter", str(caught.value).partition(":")[0])
    assert named.rpartition(".")[2] == parameter, str(caught.value)


def test_fields_of_several_records_belong_together() -> None:
    """Minimisers coincide with noise in the objective alone, last iterates follow full sums."""
    exact = dataclasses.replace(made("output").sensitivity, exact=0.0)
    last = made("gradient last").parts[0].last_iterate
    for record, changes in (
        ("statement", {"sensitivity": exact}),
        ("part", {"last_iterate": last}),
    ):
        with pytest.raises(InvalidParameterError):
            dataclasses.replace(RECORDS[record](), **changes)
