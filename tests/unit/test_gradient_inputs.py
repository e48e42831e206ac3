"""Bad and odd inputs of GradientPerturbationSVC alone: continued fits, optimisers, error texts.

What it shares with all others: `test_bad_inputs`, `test_bad_parameters`, `test_input_forms`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from dpsvm_fast import GradientPerturbationSVC, PrivacyLedger
from oracles.odd_inputs import X, Y
from oracles.odd_parameters import Unread, bad_parameters
from oracles.odd_rows import REFUSED
from oracles.subjects import assert_refused, released, spent

seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
OPTIMIZERS = ("gd", "sgd", "adam")


def model(**settings: Any) -> Any:
    """An estimator for three classes with a budget that nothing exhausts."""
    ledger = PrivacyLedger(epsilon=1e4, delta=0.5, strict=False)
    common = {"classes": range(3), "n_threads": 1, "n_steps": 10, "ledger": ledger}
    return GradientPerturbationSVC(**(common | settings))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_continued_fits_refuse_the_same_parameters(optimizer: str) -> None:
    for subject, _, name, value in bad_parameters():
        # Full batches have no rate.
        unused = name == "sampling_rate" and optimizer == "gd"
        if subject != "gradient" or name == "optimizer" or unused:
            continue
        fitted = model(**({"optimizer": optimizer} | {name: value}))
        with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
            fitted.partial_fit(Unread(), Unread())
        assert spent(fitted) == 0


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_continued_fits_refuse_the_same_data(name: str) -> None:
    case, fitted = REFUSED[name], model()
    call = fitted.partial_fit
    assert_refused(lambda: call(case.rows, case.labels), fitted, case.words)
    first = released(fitted.partial_fit(X, Y))
    with pytest.raises((ValueError, TypeError, RuntimeError), match=case.words):
        call(case.rows, case.labels)
    # What was released before stays.
    assert spent(fitted) == 1
    assert all((value == first[key]).all() for key, value in released(fitted).items())


def test_tiny_budgets_drown_the_model() -> None:
    # Ten steps along twelve gradients of norm at most 0.3 come to 40.
    fitted = model(epsilon=1e-6, learning_rate=1.0).fit(X, Y)
    assert np.abs(fitted.coef_).max() > 1e4


def test_weights_of_classes_are_no_argument_of_continued_fits() -> None:
    fitted = model()
    with pytest.raises(TypeError, match="class_weight"):
        fitted.partial_fit(X, Y, class_weight={0: 1.0})
    assert spent(fitted) == 0


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


def test_parameters_round_trip_through_clone() -> None:
    fitted = model(betas=(0.8, 0.99), optimizer="adam", accountant="composition")
    twin = clone(fitted)
    assert twin.ledger is fitted.ledger
    assert twin.get_params() == fitted.get_params()


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
