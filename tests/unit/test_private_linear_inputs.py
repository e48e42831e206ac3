"""Bad and odd parameters and training sets of PrivateLinearSVC and the private transformers.

A typed error that names the argument, or the documented result; never numbers that are not finite,
never a release without noise, and no budget spent where no fit took place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dpsvm_fast import PrivacyLedger, PrivateCenter, PrivateLinearSVC, PrivateWhitener
from dpsvm_fast.exceptions import BudgetExceededError
from oracles.odd_inputs import X, Y, csr, duplicated_entries, fitted_names
from unit.test_bad_inputs import ACCEPTED, REFUSED
from unit.test_bad_parameters import BAD_PARAMETERS, Unread
from unit.test_input_forms import FORMS, SPARSE_FORMS

seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


def model(**settings: Any) -> Any:
    """An estimator for three classes with a budget that nothing exhausts."""
    ledger = PrivacyLedger(epsilon=1e4, delta=0.5)
    return PrivateLinearSVC(**({"classes": range(3), "n_threads": 1, "ledger": ledger} | settings))


# delta = 0 is the pure recipe here.
SHARED = [
    (name, value)
    for name, value in BAD_PARAMETERS
    if name in PrivateLinearSVC().get_params() and (name, value) != ("delta", 0.0)
]
OWN: list[tuple[str, Any]] = [
    *(("bounds", v) for v in (1.0, "01", (0.0,), (1.0, 0.0), (0.0, np.nan), ("a", "b"), True)),
    *(("mechanism", v) for v in ("sgd", None, 1)),
    *(("whiten", v) for v in ("yes", 1, None)),
    *(("margin", v) for v in (-1.0, np.inf, np.nan, "wide", None, True)),
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


@pytest.mark.parametrize("kind", [PrivateCenter, PrivateWhitener])
def test_bad_parameters_of_transformers(kind: Any) -> None:
    for name, value in BAD_PARAMETERS:
        if name not in kind().get_params() or (name, value) == ("delta", 0.0):
            continue
        with pytest.raises((TypeError, ValueError), match=name):
            kind(**{name: value}).fit(Unread())


@pytest.mark.parametrize("mechanism", ["gradient", "output"])
def test_a_budget_smaller_than_the_cost_is_refused_before_data_are_read(mechanism: str) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with pytest.raises(BudgetExceededError):
        model(epsilon=2.0, ledger=ledger, mechanism=mechanism).fit(Unread(), Unread())
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
@pytest.mark.parametrize("whiten", ["auto", True])
def test_accepted_data_give_a_noisy_model(name: str, whiten: Any) -> None:
    rows, labels, settings = ACCEPTED[name]
    known = {key: value for key, value in settings.items() if key in model().get_params()}
    if getattr(rows, "shape", (0, 0))[1] > 1000:
        # The square of so many columns is more than this test should ask for.
        whiten = "auto"
    fitted = model(whiten=whiten, **known)
    first = fitted.fit(rows, labels).coef_.copy()
    second = fitted.fit(rows, labels).coef_
    assert np.isfinite(first).all()
    assert np.isfinite(fitted.intercept_).all()
    assert (first != second).mean() > 0.9
    assert len(fitted.ledger.history) == 6
    assert np.isfinite(fitted.decision_function(rows)).all()
    assert set(fitted.predict(rows)) <= set(fitted.classes_)


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
