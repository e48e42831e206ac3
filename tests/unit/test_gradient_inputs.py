"""Bad and odd parameters and training sets of GradientPerturbationSVC.

A typed error that names the argument, or the documented result; never coefficients that are no
numbers, never a panic, never a model without noise, and no budget spent where no fit took place.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from dpsvm_fast import GradientPerturbationSVC, PrivacyLedger
from dpsvm_fast.exceptions import BudgetExceededError
from oracles.odd_inputs import RNG, X, Y, csr, duplicated_entries, fitted_names
from unit.test_bad_inputs import ACCEPTED, REFUSED
from unit.test_bad_parameters import BAD_PARAMETERS, Unread
from unit.test_input_forms import FORMS, SPARSE_FORMS

seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
OPTIMIZERS = ("gd", "sgd", "adam")
# Of other estimators.
FOREIGN = ("tol", "max_iter", "noise", "low_memory")


def model(**settings: Any) -> Any:
    """An estimator for three classes with a budget that nothing exhausts."""
    ledger = PrivacyLedger(epsilon=1e4, delta=0.5)
    common = {"classes": range(3), "n_threads": 1, "n_steps": 10, "ledger": ledger}
    return GradientPerturbationSVC(**(common | settings))


OWN: list[tuple[str, Any]] = [
    *(("smoothing", v) for v in (0.0, -1.0, np.inf, "wide", None, True)),
    *(("margin", v) for v in (-1.0, np.inf, np.nan, "wide", None, True)),
    *(("optimizer", v) for v in ("newton", None, 1)),
    *(("n_steps", v) for v in (0, -1, 2**31, 2**63, 1.0, "many", None, True)),
    *(("sampling_rate", v) for v in (0.0, -0.1, 1 + 2**-52, 2.0, np.nan, "all", None, True)),
    *(("expected_batch_size", v) for v in (0.0, -1.0, np.inf, 1e-300, 1e300, "all", None)),
    *(("max_grad_norm", v) for v in (0.0, -1.0, np.inf, np.nan, 1e-40, 1e40, "none", None)),
    *(("learning_rate", v) for v in (0.0, -1.0, np.inf, np.nan, 1e-300, 1e300, "fast", None)),
    *(("schedule", v) for v in ("cosine", None, 1)),
    *(("momentum", v) for v in (-0.1, 1.0, 1 - 2**-53, np.nan, "auto", None)),
    *(("nesterov", v) for v in (1, "yes", None)),
    *(("betas", v) for v in (0.9, (0.9,), (0.9, 1.0), (-0.1, 0.9), ("a", "b"), None, "ab")),
    *(("stabilizer", v) for v in (0.0, -1.0, np.inf, 1e-300, None)),
    *(("noise_correction", v) for v in (1, "yes", None)),
    *(("average", v) for v in (-0.1, 1.1, np.nan, "last", None, True)),
    *(("accountant", v) for v in ("rdp", None, 1)),
    *(("max_samples", v) for v in (0, -1, 1.5, 2**41, "auto", True)),
]
SHARED = [(name, value) for name, value in BAD_PARAMETERS if name not in FOREIGN]


@pytest.mark.parametrize(("name", "value"), [*SHARED, *OWN], ids=lambda v: str(v)[:30])
def test_bad_parameters_are_refused_before_data_are_read(name: str, value: Any) -> None:
    for optimizer in ("adam", "gd") if name != "optimizer" else ("gd",):
        if optimizer == "gd" and name == "sampling_rate":
            continue
        fitted = model(**({"optimizer": optimizer} | {name: value}))
        ledger = fitted.ledger
        for call in (fitted.fit, fitted.partial_fit):
            with pytest.raises((TypeError, ValueError), match=name) as caught:
                call(Unread(), Unread())
            assert len(str(caught.value)) < 500
        if isinstance(ledger, PrivacyLedger):
            assert ledger.history == ()


@pytest.mark.parametrize(
    ("name", "value", "settings"),
    [
        ("momentum", 0.9, {"optimizer": "adam"}),
        ("nesterov", True, {}),
        ("betas", (0.5, 0.5), {}),
        ("stabilizer", 1e-6, {"optimizer": "sgd"}),
        ("noise_correction", True, {}),
        ("sampling_rate", 0.5, {}),
        ("max_samples", 100, {"adjacency": "replace_one", "ledger": None}),
        ("smoothing", 1.0, {"loss": "logistic"}),
        ("margin", 0.0, {"loss": "logistic"}),
        ("margin", 0.5, {"loss": "huber"}),
        ("loss", "crammer_singer", {}),
    ],
)
def test_parameters_that_would_be_ignored_are_refused(
    name: str, value: Any, settings: dict[str, Any]
) -> None:
    fitted = model(**(settings | {name: value}))
    with pytest.raises(ValueError, match=f"^{name}: got .*expected"):
        fitted.fit(Unread(), Unread())


def test_a_budget_smaller_than_the_cost_is_refused_before_data_are_read() -> None:
    for optimizer in OPTIMIZERS:
        ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
        fitted = model(epsilon=2.0, ledger=ledger, optimizer=optimizer)
        with pytest.raises(BudgetExceededError):
            fitted.fit(Unread(), Unread())
        assert ledger.history == ()


@pytest.mark.parametrize("name", REFUSED)
def test_refused_data_cost_nothing(name: str) -> None:
    rows, labels, words = REFUSED[name]
    fitted = model()
    for call in (fitted.fit, fitted.partial_fit):
        with pytest.raises((ValueError, TypeError, RuntimeError), match=words):
            call(rows, labels)
    assert fitted.ledger.history == ()
    assert fitted_names(fitted) == []


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_data_give_a_noisy_model(name: str, optimizer: str) -> None:
    rows, labels, settings = ACCEPTED[name]
    fitted = model(optimizer=optimizer, **settings)
    first = fitted.fit(rows, labels).coef_.copy()
    second = fitted.fit(rows, labels).coef_
    assert np.isfinite(first).all()
    assert np.isfinite(second).all()
    assert np.isfinite(fitted.intercept_).all()
    assert (first != second).mean() > 0.9
    assert len(fitted.ledger.history) == 2
    assert set(fitted.predict(rows)) <= set(fitted.classes_)


@pytest.mark.parametrize("epsilon", [1e-320, 1e-12, 1e-6])
def test_tiny_budgets_are_refused_or_drown_the_model(epsilon: float) -> None:
    fitted = model(epsilon=epsilon, learning_rate=1.0)
    try:
        fitted.fit(X, Y)
    except ValueError as error:
        assert str(error).startswith("epsilon")  # noqa: PT017
        assert fitted.ledger.history == ()
    else:
        assert np.isfinite(fitted.coef_).all()
        # Ten steps along twelve gradients of norm at most 0.3 come to 40.
        assert np.abs(fitted.coef_).max() > 1e4


def test_parameters_round_trip_through_clone() -> None:
    fitted = model(betas=(0.8, 0.99), optimizer="adam", accountant="composition")
    twin = clone(fitted)
    assert twin.ledger is fitted.ledger
    assert twin.get_params() == fitted.get_params()


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
    if name == "stored zeros":
        # More entries may be kept in another layout, whose sums round otherwise.
        np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())
    else:
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(given.toarray(), before.toarray())


@seeded
def test_sparse_duplicates_are_clipped_after_they_are_summed() -> None:
    rows = duplicated_entries()
    dense, summed = (
        model(random_state=1, data_norm=4.0).fit(form, Y) for form in (rows.toarray(), rows)
    )
    scale = np.abs(dense.coef_).max()
    np.testing.assert_allclose(summed.coef_, dense.coef_, atol=1e-3 * scale)
    np.testing.assert_array_equal(rows.data, 3.0)


@seeded
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_matrix])
def test_threads_do_not_change_the_model(optimizer: str, form: Any) -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 3000)
    rows = rng.normal(size=(3000, 100)) + 3.0 * np.eye(3, 100)[labels]
    rows[rng.random(rows.shape) < 0.7] = 0.0
    one, two, four = (
        model(random_state=1, optimizer=optimizer, n_threads=n).fit(form(rows), labels).coef_
        for n in (1, 2, 4)
    )
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, four)
    other = model(random_state=2, optimizer=optimizer).fit(form(rows), labels).coef_
    assert (other != one).all()


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_rows_changed_by_another_thread_during_a_fit(kind: str) -> None:
    """Outside the guarantee, but never a crash: an error or a model of finite numbers."""
    rows, labels = RNG.normal(size=(4000, 80)), RNG.integers(0, 3, 4000)
    matrix = sparse.csr_matrix(rows) if kind == "csr" else rows
    target = matrix.data if kind == "csr" else rows.reshape(-1)
    stop = threading.Event()

    def spoil() -> None:
        while not stop.is_set():
            target[::7] = np.nan
            time.sleep(1e-4)
            target[::7] = 1e300
            time.sleep(1e-4)
            target[::7] = 1.0

    thread = threading.Thread(target=spoil)
    thread.start()
    try:
        for _ in range(5):
            fitted = model()
            try:
                fitted.fit(matrix, labels)
            except (ValueError, TypeError):
                continue
            assert np.isfinite(fitted.coef_).all()
    finally:
        stop.set()
        thread.join()


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
        (rows, Y, {"learning_rate": 1e90, "C": 1e-90}),
        (rows, Y, {"accountant": "last_iterate", "C": 1.0, "max_samples": 3}),
    ):
        with pytest.raises(ValueError) as caught:
            model(**settings).fit(form, labels)
        assert caught.value.__cause__ is None
        for secret in ("0.1234", "987654321", "s3cr3t"):
            assert secret not in str(caught.value)


def test_weights_are_no_argument() -> None:
    """Weights would change the sensitivity, and balancing would read the class counts."""
    fitted = model()
    for extra in ("sample_weight", "class_weight"):
        for call in (fitted.fit, fitted.partial_fit):
            with pytest.raises(TypeError, match=extra):
                call(X, Y, **{extra: np.ones(12)})
        with pytest.raises(ValueError, match=extra):
            fitted.set_params(**{extra: 1})
    assert fitted.ledger.history == ()
