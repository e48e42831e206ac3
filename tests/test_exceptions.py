"""Errors keep their built-in parents and survive pickling, as errors from worker processes must."""

from __future__ import annotations

import pickle

import pytest

from dpsvm_fast import exceptions
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError


@pytest.mark.parametrize(
    ("name", "parent"),
    [
        ("BudgetExceededError", RuntimeError),
        ("CertificationError", RuntimeError),
        ("ClusterError", RuntimeError),
        ("InconsistentSumError", RuntimeError),
        ("InvalidParameterError", ValueError),
        ("InvalidTypeError", TypeError),
        ("LedgerError", RuntimeError),
        ("ModelFormatError", ValueError),
        ("NotPrivateWarning", UserWarning),
        ("PartitionError", RuntimeError),
        ("PartyRefusedError", ValueError),
        ("PrivacyLeakWarning", UserWarning),
        ("SchemaError", InvalidParameterError),
        ("SecureSumAborted", RuntimeError),
        ("TableError", ValueError),
        ("WeakPrivacyWarning", UserWarning),
    ],
)
def test_parents_and_pickling(name: str, parent: type[Exception]) -> None:
    kind = getattr(exceptions, name)
    assert issubclass(kind, parent)
    made = {"PartitionError": (3, "gone"), "SecureSumAborted": ("collect", 2)}
    error = kind(*made.get(name, ("C: some text",)))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert name in made or str(error) == "C: some text"


def test_every_error_is_listed_here() -> None:
    parents = test_parents_and_pickling.pytestmark[0].args[1]  # type: ignore[attr-defined]
    public = {
        name
        for name, one in vars(exceptions).items()
        if isinstance(one, type) and not name.startswith("_")
    }
    assert {name for name, _ in parents} == public


def test_a_parameter_error_says_name_value_and_range() -> None:
    error = InvalidParameterError.of("C", got=-1.0, accepted="a finite number > 0")
    assert str(error) == "C: got -1.0, expected a finite number > 0"
    assert error.parameter == "C"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert InvalidTypeError("bounds: got a str, expected numbers").parameter == "bounds"
    # As scikit-learn asks for.
    assert InvalidParameterError("X has 2 features, but one is expected").parameter == "X"
