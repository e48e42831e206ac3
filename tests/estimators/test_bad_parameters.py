"""Bad parameters: refused by name before data are read, with nothing spent."""

from __future__ import annotations

import time
import types
from itertools import groupby
from typing import Any, get_type_hints

import numpy as np
import pytest

from dpsvm_fast import PrivacyLedger
from dpsvm_fast.estimators import parameters
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError, InvalidTypeError
from oracles.odd_inputs import X, Y, every_estimator, model
from oracles.odd_parameters import Unread, bad_parameters
from oracles.subjects import (
    PRIVATE,
    SUBJECTS,
    assert_refused,
    every_classifier,
    every_private,
    every_subject,
    known,
    made,
    released,
    spent,
)
from oracles.watching import fitted_names

# Promised: 0.1 s. Machines that run tests are busy, and Python may collect its garbage meanwhile,
# of thousands of tests: only a multiple of it is a failure.
SECONDS_TO_REFUSE = 3.0
GROUPS = {
    f"{subject}-{name}": list(group)
    for (subject, name), group in groupby(
        sorted(bad_parameters(), key=lambda bad: bad[:2]), lambda bad: bad[:2]
    )
}


@pytest.mark.sampled
@pytest.mark.parametrize(("subject", "group"), [(name.rsplit("-", 1)[0], name) for name in GROUPS])
def test_bad_parameters_are_refused_before_data_are_read(subject: str, group: str) -> None:
    for _, name, value in GROUPS[group]:
        fitting = made(subject, **{name: value})
        start = time.process_time()
        with pytest.raises((InvalidTypeError, InvalidParameterError)) as caught:
            fitting.fit(Unread(), Unread())
        assert time.process_time() - start < SECONDS_TO_REFUSE
        assert caught.value.parameter == name
        assert len(str(caught.value)) < 300
        assert spent(fitting) == 0
        assert fitted_names(fitting) == []


@every_private
def test_a_budget_smaller_than_the_cost_is_refused_before_data_are_read(subject: str) -> None:
    relation = made(subject).adjacency
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5, adjacency=relation)
    fitting = made(subject, epsilon=2.0, ledger=ledger)
    with pytest.raises(BudgetExceededError):
        fitting.fit(Unread(), Unread())
    assert ledger.history == ()


@every_private
def test_a_ledger_of_another_relation_is_refused(subject: str) -> None:
    other = {"add_remove": "replace_one", "replace_one": "add_remove"}[made(subject).adjacency]
    ledger = PrivacyLedger(epsilon=1e3, delta=0.5, adjacency=other)
    with pytest.raises(InvalidParameterError, match=r"^ledger: got 'a ledger for"):
        made(subject, ledger=ledger).fit(Unread(), Unread())
    assert ledger.history == ()


@every_estimator
@pytest.mark.parametrize("epsilon", [1e-12, 1e-6])
def test_tiny_budgets_let_noise_dominate(estimator: str, epsilon: float) -> None:
    """Noise in proportion, whatever else the settings ask for."""
    fitted = model(estimator, epsilon=epsilon, max_iter=20_000, tol=0.1, C=0.1).fit(X, Y)
    assert np.isfinite(fitted.coef_).all()
    # With noise in the objective it is beside 12 gradients of norm at most 2 that W is small.
    objective = fitted.privacy_.objective
    scale = 1.0 if objective is None else objective.regularization
    assert np.abs(fitted.coef_).max() * scale > 1e3


@pytest.mark.parametrize("subject", [*PRIVATE, "linear output", "kernel output", "output gamma"])
@pytest.mark.parametrize("epsilon", [1e-320, 1e-12, pytest.param(1e-6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("delta", [1e-6, 1e-290, 0.999])
# A delta of almost 1 is warned of.
@pytest.mark.sampled(times=2)
@pytest.mark.filterwarnings("ignore:delta=")
def test_tiny_budgets_are_refused_or_give_finite_noise(
    subject: str, epsilon: float, delta: float
) -> None:
    """Either an error that names a parameter, or a finite result with its enormous noise."""
    fitted = made(subject, epsilon=epsilon, delta=delta)
    try:
        fitted.fit(X, Y)
    except ValueError as error:
        assert str(error).startswith(("epsilon: ", "delta: ", "C: "))  # noqa: PT017
        assert spent(fitted) == 0
        assert fitted_names(fitted) == []
    else:
        assert all(np.isfinite(value).all() for value in released(fitted).values())


def test_a_batch_larger_than_the_rows_is_all_of_them() -> None:
    settings = {"random_state": 1, "n_epochs": 3}
    with pytest.warns(Warning, match="seed"):
        large, whole = (
            made("psgd", batch_size=size, **settings).fit(X, Y).coef_ for size in (1000, 12)
        )
    np.testing.assert_array_equal(large, whole)


@pytest.mark.parametrize("subject", ["gradient sgd", "gradient adam"])
def test_odd_batches_of_descent_give_a_noisy_model(subject: str) -> None:
    for changes in ({"sampling_rate": 1.0}, {"sampling_rate": 1e-3}, {"n_steps": 1}):
        fitted = made(subject, **changes).fit(X, Y)
        assert np.isfinite(fitted.coef_).all()
        assert np.abs(fitted.coef_).min() > 0.0


@pytest.mark.parametrize(
    ("subject", "name"), [("output", "n_epochs"), ("output", "batch_size"), ("psgd", "tol")]
)
def test_parameters_of_the_other_solver_are_refused(subject: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: got "):
        made(subject, **{name: 1}).fit(Unread(), Unread())


def test_more_components_than_features() -> None:
    for count in (4, 2**40):
        fitting = made("pca", n_components=count)
        assert_refused(lambda fitting=fitting: fitting.fit(X), fitting, "^n_components: got")


@every_classifier
def test_the_budget_is_that_of_all_classes(subject: str) -> None:
    """However many classes: what is spent is what was asked for, not a multiple of it."""
    for n_classes in (2, 6 if subject in ("ellipsoids", "objective") else 300):
        fitted = made(subject, classes=range(n_classes), epsilon=1.0).fit(X, Y % 2)
        assert fitted.ledger.total()[0] < 1.1 * fitted.ledger.epsilon
        composed = PrivacyLedger(1.0, fitted.delta, fitted.adjacency)
        composed.spend(fitted.privacy_.events)
        assert composed.total()[0] <= 1.0 + 1e-9


@every_subject
@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
def test_threads_do_not_change_what_is_released(subject: str) -> None:
    if not known(subject, {"n_threads": 1}):
        pytest.skip("has no threads")
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 2000)
    rows = rng.normal(size=(2000, 8 if subject == "ellipsoids" else 40))
    found = [
        released(made(subject, random_state=1, n_threads=n).fit(rows, labels)) for n in (1, 2, 5)
    ]
    for name, value in found[0].items():
        assert all(np.array_equal(value, other[name]) for other in found[1:])
    if SUBJECTS[subject].private:
        again = released(made(subject, random_state=2).fit(rows, labels))
        assert any((again[name] != value).any() for name, value in found[0].items())


def test_python_3_10_reads_the_types_of_the_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses annotations that are not types, and so the mark KW_ONLY; newer versions do not."""

    def strict(*args: Any, **options: Any) -> dict[str, Any]:
        hints = get_type_hints(*args, **options)
        for name, hint in hints.items():
            assert callable(hint) or isinstance(hint, types.UnionType), name
        return hints

    monkeypatch.setattr(parameters, "get_type_hints", strict)
    for kind in {subject.kind for subject in SUBJECTS.values()}:
        # Uncached: fits ask for the checks, saved models for the younger parameters.
        assert parameters._tests_of(kind)
        parameters.added(kind)
