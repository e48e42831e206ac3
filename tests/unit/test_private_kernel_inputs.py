"""Bad and odd training sets and parameters of PrivateKernelSVC: as of PrivateLinearSVC."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpsvm_fast import PrivacyLedger, PrivateKernelSVC
from dpsvm_fast.exceptions import BudgetExceededError
from oracles.odd_inputs import X, Y, csr, fitted_names
from unit.test_bad_inputs import ACCEPTED, REFUSED
from unit.test_bad_parameters import BAD_PARAMETERS, Unread
from unit.test_input_forms import FORMS, SPARSE_FORMS

seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


def model(**settings: Any) -> Any:
    """A kernel for three classes with a budget that nothing exhausts."""
    shared: dict[str, Any] = {"classes": range(3), "n_threads": 1, "kernel": "rbf"}
    shared |= {"n_components": 20, "ledger": PrivacyLedger(epsilon=1e4, delta=0.5)}
    return PrivateKernelSVC(**(shared | settings))


# delta = 0 is the pure recipe here.
SHARED = [
    (name, value)
    for name, value in BAD_PARAMETERS
    if name in PrivateKernelSVC().get_params() and (name, value) != ("delta", 0.0)
]
OWN: list[tuple[str, Any]] = [
    *(("kernel", v) for v in ("poly", None, 1, "RBF")),
    *(("gamma", v) for v in (0.0, -1.0, np.inf, np.nan, 1e-40, 1e40, "scale", None, True)),
    *(("n_components", v) for v in (0, -1, 2.0, "all", None, 2**40)),
    *(("orthogonal", v) for v in (1, "auto", None)),
    *(("normalize", v) for v in (0, "l2", None)),
    *(("bounds", v) for v in (1.0, (0.0,), (1.0, 0.0), (0.0, np.nan), ("a", "b"), True)),
    *(("low_memory", v) for v in (1, "no", None)),
    *(("whiten", v) for v in ("yes", 1, None)),
]


@pytest.mark.parametrize(("name", "value"), [*SHARED, *OWN], ids=lambda v: str(v)[:30])
def test_bad_parameters_are_refused_before_data_are_read(name: str, value: Any) -> None:
    fitted = model(**{name: value})
    ledger = fitted.ledger
    with pytest.raises((TypeError, ValueError), match=name) as caught:
        fitted.fit(Unread(), Unread())
    assert len(str(caught.value)) < 500
    if isinstance(ledger, PrivacyLedger):
        assert ledger.history == ()


@pytest.mark.parametrize("settings", [{}, {"mechanism": "output"}, {"delta": 0.0}])
def test_a_budget_smaller_than_the_cost_is_refused_before_data_are_read(
    settings: dict[str, Any],
) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with pytest.raises(BudgetExceededError):
        model(epsilon=2.0, ledger=ledger, **settings).fit(Unread(), Unread())
    assert ledger.history == ()


@pytest.mark.parametrize("name", REFUSED)
def test_refused_data_cost_nothing(name: str) -> None:
    rows, labels, words = REFUSED[name]
    fitted = model()
    with pytest.raises((ValueError, TypeError, RuntimeError), match=words):
        fitted.fit(rows, labels)
    assert fitted.ledger.history == ()
    assert fitted_names(fitted) == []


@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.parametrize("normalize", [True, False])
def test_accepted_data_give_a_noisy_model(name: str, normalize: bool) -> None:
    rows, labels, settings = ACCEPTED[name]
    known = {key: value for key, value in settings.items() if key in model().get_params()}
    if normalize:
        known.pop("data_norm", None)
    fitted = model(normalize=normalize, **known)
    first = fitted.fit(rows, labels).coef_.copy()
    second = fitted.fit(rows, labels).coef_
    assert np.isfinite(first).all()
    assert np.isfinite(fitted.intercept_).all()
    assert (first != second).mean() > 0.9
    assert np.isfinite(fitted.decision_function(rows)).all()
    assert set(fitted.predict(rows)) <= set(fitted.classes_)


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


@seeded
@pytest.mark.parametrize("name", FORMS)
def test_the_form_of_the_rows_does_not_change_the_model(name: str, tmp_path: Any) -> None:
    expected = model(random_state=1).fit(X, Y).coef_
    found = model(random_state=1).fit(FORMS[name](tmp_path), Y).coef_
    np.testing.assert_array_equal(found, expected)


@seeded
@pytest.mark.parametrize("name", SPARSE_FORMS)
def test_the_sparse_form_does_not_change_the_model(name: str) -> None:
    given = csr()
    before = given.copy()
    expected = model(random_state=1).fit(given, Y).coef_
    found = model(random_state=1).fit(SPARSE_FORMS[name](given), Y).coef_
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())
    np.testing.assert_array_equal(given.toarray(), before.toarray())


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
