"""Bad parameters: refused by name before data are read, with nothing spent."""

from __future__ import annotations

import decimal
import fractions
from typing import Any

import numpy as np
import pytest

from dpsvm_fast import PrivacyLedger
from dpsvm_fast.exceptions import BudgetExceededError
from oracles.odd_inputs import ESTIMATORS, X, Y, every_estimator, model


class Unread:
    """Data that must not be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"data were read: {name}")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("data were read")


BAD_PARAMETERS: list[tuple[str, Any]] = [
    *(("epsilon", v) for v in (0, 0.0, -1.0, np.nan, np.inf, True, "1", 1.1e4, 1e308, None, [1.0])),
    *(("epsilon", v) for v in (decimal.Decimal(1), fractions.Fraction(1), 1j, np.array([1.0]))),
    ("epsilon", np.longdouble(1)),
    *(("delta", v) for v in (0.0, 1.0, 1.5, -1e-9, np.nan, np.inf, "0", None, False)),
    *(("data_norm", v) for v in (0.0, -1.0, np.inf, np.nan, "1", None, True, 1e-300, 1e300)),
    *(("C", v) for v in (0.0, -1.0, np.inf, np.nan, "1", None, True, 1e-300, 1e300)),
    *(("tol", v) for v in (0.0, 1e-9, 1.1, -1.0, np.nan, "0.1", None)),
    *(("max_iter", v) for v in (0, -1, 1.0, 2**63, "1", True)),
    *(("intercept_scaling", v) for v in (0.0, -1.0, np.inf, "much", 1e-300)),
    *(("random_state", v) for v in (-1, 2**64, 1.5, "1", True)),
    ("random_state", np.random.RandomState(0)),
    ("random_state", np.random.default_rng(0)),
    *(("n_threads", v) for v in (0, -1, 10**6, 1.0, "all", True)),
    *(("loss", v) for v in ("hinge", None, 1, "")),
    *(("noise", v) for v in ("laplace", None, 1)),
    *(("adjacency", v) for v in ("add-remove", None, 1)),
    *(("noise_grid", v) for v in ("fine", None, 1)),
    *(("fit_intercept", v) for v in ("yes", 1, None)),
    *(("low_memory", v) for v in ("yes", 1, None)),
    *(("verbose", v) for v in (-1, 2, "1", None)),
    *(("ledger", v) for v in (1.0, "budget", object())),
    ("ledger", PrivacyLedger(epsilon=1.0, delta=1e-5, adjacency="replace_one")),
    *(("classes", v) for v in ([], [1], [1, 1], "ab", 3, [1, "a"], [1.5, 2.0], [None, 1])),
    ("classes", [np.nan, 1.0]),
    ("classes", [[1, 2], [3]]),
]


@every_estimator
@pytest.mark.parametrize(("name", "value"), BAD_PARAMETERS, ids=lambda v: str(v)[:30])
def test_bad_parameters_are_refused_before_data_are_read(
    estimator: str, name: str, value: Any
) -> None:
    fitted = model(estimator, **{name: value})
    ledger = fitted.ledger
    with pytest.raises((TypeError, ValueError), match=name) as caught:
        fitted.fit(Unread(), Unread())
    assert len(str(caught.value)) < 500
    if isinstance(ledger, PrivacyLedger):
        assert ledger.history == ()


@every_estimator
def test_a_budget_smaller_than_the_cost_is_refused_before_data_are_read(estimator: str) -> None:
    fitted = model(estimator, epsilon=2.0, ledger=PrivacyLedger(epsilon=1.0, delta=1e-5))
    with pytest.raises(BudgetExceededError):
        fitted.fit(Unread(), Unread())
    assert fitted.ledger.history == ()


OBJECTIVE_ONLY: list[tuple[str, Any]] = [
    *(("smoothing", v) for v in (0.0, -1.0, np.inf, "wide", None, True)),
    *(("margin", v) for v in (-1.0, np.inf, np.nan, "wide", None, True)),
    *(("extra_regularization", v) for v in (-1.0, np.inf, "none", None, True, 1e-300, 1e300)),
]


@pytest.mark.parametrize(("name", "value"), OBJECTIVE_ONLY, ids=lambda v: str(v)[:30])
def test_bad_parameters_of_the_objective(name: str, value: Any) -> None:
    fitted = model("objective", **{name: value})
    with pytest.raises((TypeError, ValueError), match=f"^{name}"):
        fitted.fit(Unread(), Unread())
    assert fitted.ledger.history == ()


@pytest.mark.parametrize(
    ("loss", "name", "value"),
    [
        ("logistic", "smoothing", 1.0),
        ("logistic", "margin", 0.0),
        ("huber", "margin", 0.5),
        ("crammer_singer", "loss", "crammer_singer"),
    ],
)
def test_losses_are_refused_what_they_have_not(loss: str, name: str, value: Any) -> None:
    fitted = model("objective", **({"loss": loss} | {name: value}))
    with pytest.raises(ValueError, match=f"^{name}: got {value!r}"):
        fitted.fit(Unread(), Unread())


@every_estimator
@pytest.mark.parametrize("epsilon", [1e-320, 1e-12, 1e-6])
def test_tiny_budgets_are_refused_or_drown_the_model(estimator: str, epsilon: float) -> None:
    """Either an error that names epsilon, or a finite model with its enormous noise."""
    fitted = model(estimator, epsilon=epsilon, max_iter=20_000, tol=0.1, C=0.1)
    try:
        fitted.fit(X, Y)
    except ValueError as error:
        assert str(error).startswith("epsilon")  # noqa: PT017
        assert fitted.ledger.history == ()
    else:
        assert np.isfinite(fitted.coef_).all()
        # With noise in the objective it is beside 12 gradients of norm at most 2 that W is small.
        objective = fitted.privacy_.objective
        scale = 1.0 if objective is None else objective.regularization
        assert np.abs(fitted.coef_).max() * scale > 1e3


@every_estimator
@pytest.mark.parametrize("extra", ["sample_weight", "class_weight"])
def test_weights_are_no_argument(estimator: str, extra: str) -> None:
    """Weights would change the sensitivity, and balancing would read the class counts."""
    fitted = model(estimator)
    with pytest.raises(TypeError, match=extra):
        fitted.fit(X, Y, **{extra: np.ones(12)})
    with pytest.raises(TypeError, match=extra):
        ESTIMATORS[estimator](**{extra: "balanced"})
    with pytest.raises(ValueError, match=extra):
        fitted.set_params(**{extra: 1})
    assert fitted.ledger.history == ()
