"""Bad and odd inputs of PrivateLinearSVC alone: budgets of its recipes, threads, error texts.

What it shares with all others: `test_bad_inputs`, `test_bad_parameters`, `test_input_forms`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dpsvm_fast import PrivacyLedger, PrivateLinearSVC
from dpsvm_fast.exceptions import BudgetExceededError
from oracles.odd_inputs import X, Y, duplicated_entries
from oracles.odd_parameters import Unread

seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


def model(**settings: Any) -> Any:
    """An estimator for three classes with a budget that nothing exhausts."""
    ledger = PrivacyLedger(epsilon=1e4, delta=0.5, strict=False)
    return PrivateLinearSVC(**({"classes": range(3), "n_threads": 1, "ledger": ledger} | settings))


@pytest.mark.parametrize("mechanism", ["gradient", "output"])
def test_a_budget_smaller_than_the_cost_is_refused_before_data_are_read(mechanism: str) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with pytest.raises(BudgetExceededError):
        model(epsilon=2.0, ledger=ledger, mechanism=mechanism).fit(Unread(), Unread())
    assert ledger.history == ()


@pytest.mark.parametrize("epsilon", [1e-320, 1e-12, 1e-6])
@pytest.mark.parametrize("settings", [{}, {"mechanism": "output"}, {"delta": 0.0}])
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


@seeded
def test_sparse_duplicates_are_summed_before_they_are_mapped() -> None:
    rows = duplicated_entries()
    dense, summed = (
        model(random_state=1, bounds=(0, 8)).fit(form, Y) for form in (rows.toarray(), rows)
    )
    scale = np.abs(dense.coef_).max()
    np.testing.assert_allclose(summed.coef_, dense.coef_, atol=1e-3 * scale)
    np.testing.assert_array_equal(rows.data, 3.0)


@seeded
@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_matrix])
@pytest.mark.parametrize("whiten", [False, True])
def test_threads_do_not_change_the_model(form: Any, whiten: bool) -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 2000)
    rows = rng.normal(size=(2000, 60)) + 3.0 * np.eye(3, 60)[labels]
    rows[rng.random(rows.shape) < 0.7] = 0.0
    one, two, four = (
        model(random_state=1, whiten=whiten, n_threads=n).fit(form(rows), labels).coef_
        for n in (1, 2, 4)
    )
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, four)


def test_errors_quote_no_data() -> None:
    rows = X.copy()
    rows[3, 1] = 0.123454321012345
    bad = rows.copy()
    bad[4, 2] = np.nan
    for form, labels, settings in (
        (bad, Y, {}),
        (rows, np.where(Y == 0, 987_654_321, Y), {}),
        (rows, Y[:-1], {}),
        (rows, np.full(12, "s3cr3t"), {"classes": ["a", "b"]}),
        (rows, Y, {"bounds": ([0.0] * 2, [1.0] * 2)}),
        (sparse.csr_matrix(rows), Y, {"bounds": (-1.0, 3.0)}),
    ):
        with pytest.raises(ValueError) as caught:
            model(**settings).fit(form, labels)
        assert caught.value.__cause__ is None
        for secret in ("0.1234", "987654321", "s3cr3t"):
            assert secret not in str(caught.value)
