"""Bad and odd inputs of PrivateKernelSVC alone: budgets of its recipes, error texts.

What it shares with all others: `test_bad_inputs`, `test_bad_parameters`, `test_input_forms`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpsvm_fast import PrivacyLedger, PrivateKernelSVC
from dpsvm_fast.exceptions import BudgetExceededError
from oracles.odd_inputs import X, Y
from oracles.odd_parameters import Unread


def model(**settings: Any) -> Any:
    """A kernel for three classes with a budget that nothing exhausts."""
    shared: dict[str, Any] = {"classes": range(3), "n_threads": 1, "kernel": "rbf"}
    shared |= {"n_components": 20, "ledger": PrivacyLedger(epsilon=1e4, delta=0.5)}
    return PrivateKernelSVC(**(shared | settings))


@pytest.mark.parametrize("settings", [{}, {"mechanism": "output"}, {"delta": 0.0}])
def test_a_budget_smaller_than_the_cost_is_refused_before_data_are_read(
    settings: dict[str, Any],
) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with pytest.raises(BudgetExceededError):
        model(epsilon=2.0, ledger=ledger, **settings).fit(Unread(), Unread())
    assert ledger.history == ()


@pytest.mark.parametrize("epsilon", [1e-320, 1e-12, 1e-6])
@pytest.mark.parametrize(
    "settings", [{}, {"mechanism": "output"}, {"delta": 0.0}, {"normalize": False}]
)
def test_tiny_budgets_are_refused_or_drown_the_model(
    epsilon: float, settings: dict[str, Any]
) -> None:
    fitted = model(epsilon=epsilon, **settings)
    try:
        fitted.fit(X, Y)
    except ValueError as error:
        assert str(error).startswith("epsilon")  # noqa: PT017
        assert fitted.ledger.history == ()
    else:
        assert np.isfinite(fitted.coef_).all()
        assert np.isfinite(fitted.decision_function(X)).all()


def test_errors_quote_no_data() -> None:
    rows = X.copy()
    rows[3, 1] = 0.123454321012345
    bad = rows.copy()
    bad[4, 2] = np.nan
    for given, labels, settings in (
        (bad, Y, {}),
        (rows, np.where(Y == 0, 987_654_321, Y), {}),
        (rows, Y[:-1], {}),
        (rows, Y, {"bounds": ([0.0] * 2, [1.0] * 2)}),
    ):
        with pytest.raises(ValueError) as caught:
            model(**settings).fit(given, labels)
        assert caught.value.__cause__ is None
        for secret in ("0.1234", "987654321"):
            assert secret not in str(caught.value)
