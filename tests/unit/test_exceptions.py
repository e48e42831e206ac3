"""Errors keep their built-in parents and survive pickling, as errors from worker processes must."""

from __future__ import annotations

import pickle

import pytest

from dpsvm_fast import exceptions
from dpsvm_fast.exceptions import InvalidParameterError


@pytest.mark.parametrize(
    ("name", "parent"),
    [
        ("BudgetExceededError", RuntimeError),
        ("CertificationError", RuntimeError),
        ("InvalidParameterError", ValueError),
        ("LedgerError", RuntimeError),
        ("ModelFormatError", ValueError),
        ("NotPrivateWarning", UserWarning),
        ("PrivacyLeakWarning", UserWarning),
        ("SchemaError", InvalidParameterError),
        ("TableError", ValueError),
    ],
)
def test_parents_and_pickling(name: str, parent: type[Exception]) -> None:
    kind = getattr(exceptions, name)
    assert issubclass(kind, parent)
    copy = pickle.loads(pickle.dumps(kind("C: some text")))
    assert type(copy) is kind
    assert str(copy) == "C: some text"


def test_every_error_is_listed_here() -> None:
    parents = test_parents_and_pickling.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert sorted(name for name, _ in parents) == sorted(exceptions.__all__)


def test_a_parameter_error_says_name_value_and_range() -> None:
    error = InvalidParameterError.of("C", got=-1.0, accepted="a finite number > 0")
    assert str(error) == "C: got -1.0, expected a finite number > 0"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
