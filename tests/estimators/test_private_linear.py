"""PrivateLinearSVC: order of the fit, what it publishes, what it refuses, what it learns."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse, special, stats
from sklearn.datasets import load_digits

from dpsvm_fast import (
    PrivateLinearSVC,
    _core,
    verify,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.pipeline import DescentRule
from dpsvm_fast.mechanisms.rows import PublicMap, ReleasedMap
from oracles.coupled import use_slow_core
from oracles.plans import PlainRows, planned

ALPHA = 1e-6
seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
TRAINERS = ("gradient", "objective", "output")
DIGITS, LABELS = load_digits(return_X_y=True)
Patch = pytest.MonkeyPatch


def model(**changes: Any) -> PrivateLinearSVC:
    settings: dict[str, Any] = {"classes": [0, 1, 2], "n_threads": 1, "bounds": (-1.5, 1.5)}
    return PrivateLinearSVC(**(settings | changes))


def clusters(n_rows: int = 300, n_features: int = 5, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_rows)
    return np.eye(3, n_features)[y] + 0.2 * rng.normal(size=(n_rows, n_features)), y


def two_classes(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 400).astype(np.int64)
    return np.eye(2, 4)[y] + 0.2 * rng.normal(size=(400, 4)), y


# Binary where the law of three classes takes long to compose.
KINDS: dict[str, dict[str, Any]] = {
    "gradient": {},
    "whitened": {"whiten": True},
    "two classes": {"classes": [0, 1]},
    "objective": {"mechanism": "objective", "classes": [0, 1]},
    "output": {"mechanism": "output"},
    "pure": {"delta": 0.0, "epsilon": 20.0, "classes": [0, 1]},
    "pure, three classes": {"delta": 0.0, "epsilon": 20.0},
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def data_for(kind: str) -> tuple[Any, Any]:
    return two_classes() if len(KINDS[kind].get("classes", "abc")) == 2 else clusters()


@each_kind
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_every_certificate_holds(kind: str, adjacency: str) -> None:
    for noise_grid in ("exact", "float"):
        settings = KINDS[kind] | {"adjacency": adjacency, "noise_grid": noise_grid}
        fitted = model(**settings).fit(*data_for(kind))
        statement = fitted.privacy_
        assert statement.private
        assert statement.mechanism == "private_linear"
        assert verify(statement), str(verify(statement))
        assert (statement.epsilon, statement.delta) == (fitted.epsilon, fitted.delta)
        parts = [part.name for part in statement.parts]
        assert parts[0] == "centre"
        assert ("whitening" in parts) == fitted.whitened_
        assert "bounds" in str(statement)
        # A smaller promise from the same noise is refused.
        record = statement.to_dict()
        record["epsilon"] *= 0.9
        assert not verify(record)


RELEASED = {
    "bounds_", "c_", "centre_", "classes_", "coef_", "intercept_", "lambda_", "learning_rate_",
    "lift_", "lift_coef_", "max_grad_norm_", "mechanism_", "mu_", "n_features_in_", "n_samples_",
    "n_steps_", "privacy_", "temperature_", "whitened_", "whitening_", "_fitted_loss",
}  # fmt: skip


@each_kind
def test_what_is_published(kind: str) -> None:
    X, y = data_for(kind)
    fitted = model(**KINDS[kind]).fit(X, y)
    assert set(vars(fitted)) - set(fitted.get_params()) == RELEASED
    n_scores = 1 if len(fitted.classes_) == 2 else 3
    assert fitted.coef_.shape == (n_scores, X.shape[1])
    assert fitted.intercept_.shape == (n_scores,)
    assert fitted.n_samples_ == pytest.approx(len(X), abs=300)
    assert fitted.n_samples_ != len(X)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.decision_function(X), fitted.decision_function(X))
    if fitted.mechanism_ == "gradient":
        run = fitted.privacy_.parts[-1]
        assert (run.n_steps, run.clip_norm) == (fitted.n_steps_, fitted.max_grad_norm_)
        assert fitted.learning_rate_ == pytest.approx(1.0 / (fitted.lambda_ * fitted.n_steps_))
        parts = fitted.privacy_.parts
        assert list(fitted.mu_) == list(dict.fromkeys(part.name for part in parts))
        events = list(zip(parts, fitted.privacy_.events, strict=True))
        for name, mu in fitted.mu_.items():
            squares = [event.mu**2 for part, event in events if part.name == name]
            assert mu**2 == pytest.approx(sum(squares), rel=1e-9)
    else:
        assert fitted.n_steps_ is None


@pytest.mark.proof("auto_pipeline", "Budget and paths")
def test_a_row_whitened_twice_is_the_row_under_the_product(monkeypatch: Patch) -> None:
    """What the training sees is what prediction computes from the product alone."""
    X, y = clusters(n_features=7)
    private = model(whiten=True, bounds=None)
    mechanism, rows = planned(private, X, y)
    assert [part.name for part in mechanism.training(300.0).sums].count("whitening") == 2
    source = _core.NoiseSource(3)
    use_slow_core(monkeypatch)
    ready = dataclasses.replace(mechanism, public=PublicMap()).prepared(rows, source)
    assert ready.centre is not None
    seen = ReleasedMap(ready.centre, ready.whitening).apply(PublicMap().apply(X))
    assert np.allclose(ready.records.rows, seen, atol=1e-4)  # type: ignore[union-attr]
    # Negative control: without the product of both it is another row.
    other = ReleasedMap(ready.centre, None).apply(PublicMap().apply(X))
    assert not np.allclose(ready.records.rows, other, atol=0.01)  # type: ignore[union-attr]


@each_kind
def test_the_scores_are_the_documented_formula(kind: str) -> None:
    X, y = data_for(kind)
    fitted = model(**KINDS[kind]).fit(X, y)
    rows = np.clip(X, -1.5, 1.5) / 1.5
    rows = np.column_stack([rows, np.full(len(rows), 0.25 * X.shape[1] ** 0.5)])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    moved = rows - fitted.centre_
    if fitted.whitened_:
        lengths = np.linalg.norm(moved @ fitted.whitening_.T, axis=1)
    else:
        lengths = np.maximum(np.linalg.norm(moved, axis=1), 1.0 / 16.0)
    weights = np.column_stack([fitted.coef_, fitted.lift_coef_])
    expected = moved @ weights.T / lengths[:, None] + fitted.intercept_
    scores = fitted.decision_function(X)
    assert np.allclose(scores, expected if expected.shape[1] > 1 else expected.ravel())
    best = expected.argmax(axis=1) if expected.shape[1] > 1 else (expected.ravel() > 0).astype(int)
    assert np.array_equal(fitted.predict(X), fitted.classes_[best])


@pytest.mark.parametrize("kind", ["objective", "output", "pure"])
def test_solvers_do_not_centre_sparse_rows(kind: str) -> None:
    X, y = data_for(kind)
    rows = sparse.csr_matrix(X)
    settings = KINDS[kind] | {"epsilon": 20.0, "bounds": None}
    fitted = model(**settings).fit(rows, y)
    assert fitted.centre_ is None
    assert fitted.n_samples_ is None
    # Nothing but the solver's release, with all of the budget.
    assert fitted.privacy_.parts == ()
    assert fitted.privacy_.mechanism.endswith("_perturbation")
    assert verify(fitted.privacy_), str(verify(fitted.privacy_))
    assert fitted.privacy_.epsilon == 20.0
    assert fitted.score(rows, y) > 0.8
    assert np.allclose(fitted.decision_function(rows), fitted.decision_function(X))
    if kind != "pure":
        with pytest.raises(InvalidParameterError, match="whiten"):
            model(**settings, whiten=True).fit(rows, y)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_it_learns(trainer: str) -> None:
    """Chance is 0.1; far outside the noise of one fit at this budget."""
    settings: dict[str, Any] = {"classes": range(10), "mechanism": trainer, "bounds": (0, 16)}
    if trainer == "objective":
        # Two of the ten: the law of ten classes takes seconds to compose.
        chosen = LABELS < 2
        settings["classes"] = range(2)
        fitted = PrivateLinearSVC(4.0, 1e-5, **settings).fit(DIGITS[chosen], LABELS[chosen])
        assert fitted.score(DIGITS[chosen], LABELS[chosen]) > 0.95
        return
    fitted = PrivateLinearSVC(8.0, 1e-5, **settings).fit(DIGITS[::2], LABELS[::2])
    assert fitted.score(DIGITS[1::2], LABELS[1::2]) > 0.8


def test_many_rows_are_whitened_and_few_are_not() -> None:
    X, y = clusters(2000)
    assert model(epsilon=4.0).fit(X, y).whitened_
    assert not model(epsilon=4.0, whiten=False).fit(X, y).whitened_
    few = model(epsilon=0.5, bounds=None).fit(X[:30], y[:30])
    assert not few.whitened_


@pytest.mark.proof("auto_pipeline", "Budget and paths")
@pytest.mark.statistical
def test_rows_of_zeros_release_the_noise_alone() -> None:
    """No gradient answers the noise of its steps: the weights have the planned deviation."""
    n_features = 6000
    X, y = np.zeros((5, n_features)), np.array([0, 1, 2, 0, 1])
    fitted = model(fit_intercept=False, adjacency="replace_one", whiten=False, bounds=None).fit(
        X, y
    )
    # The centre is noise, so all rows are one row: directions across it are free of gradients.
    row = fitted.centre_ / max(np.linalg.norm(fitted.centre_), 1e-300)
    across = fitted.coef_ - np.outer(fitted.coef_ @ row, row)
    T = fitted.n_steps_
    k = T - int(np.ceil(0.25 * 0.35 / fitted.c_ * T))
    steps = k + sum(((T - t) / (T - k)) ** 2 for t in range(k, T))
    sigma = fitted.learning_rate_ * fitted.privacy_.parts[-1].sigma * np.sqrt(steps)
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], df=3 * (n_features - 1))
    squares = float(((across / sigma) ** 2).sum())
    assert low <= squares <= high
    # Negative control: the last iterate would have more.
    last = fitted.learning_rate_ * fitted.privacy_.parts[-1].sigma * np.sqrt(T)
    assert not low <= float(((across / last) ** 2).sum()) <= high


def test_replaced_rows_are_counted_exactly() -> None:
    X, y = clusters(123)
    assert model(adjacency="replace_one").fit(X, y).n_samples_ == 123.0


def test_probabilities_come_with_a_likelihood() -> None:
    X, y = clusters()
    fitted = model(epsilon=8.0).fit(X, y)
    probabilities = fitted.predict_proba(X)
    assert np.allclose(probabilities.sum(axis=1), 1.0)
    assert np.array_equal(probabilities.argmax(axis=1), fitted.decision_function(X).argmax(axis=1))
    for other in ({"margin": 1.0}, {"mechanism": "output"}, {"delta": 0.0}):
        assert not hasattr(model(**other), "predict_proba")
    assert not hasattr(model(margin=1.0).fit(X, y), "predict_proba")


def test_bounds_are_those_of_the_fit() -> None:
    X, y = clusters()
    fitted = model(bounds=([-2] * 5, [3, 3, 3, 4, 4])).fit(X, y)
    scores = fitted.decision_function(X)
    low, high = fitted.bounds_
    assert np.array_equal(low, [-2.0] * 5)
    assert np.array_equal(high, [3.0, 3.0, 3.0, 4.0, 4.0])
    fitted.set_params(bounds=None)
    assert np.array_equal(fitted.decision_function(X), scores)


@pytest.mark.filterwarnings("ignore::dpsvm_fast.WeakPrivacyWarning")
@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_temperature_makes_the_weights_as_sure_as_they_are_right(
    n_classes: int, as_rows: Any
) -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(0, n_classes, 2000)
    X = as_rows(np.eye(3, 5)[y] + 0.6 * rng.normal(size=(2000, 5)))
    settings: dict[str, Any] = {"epsilon": 1e4, "classes": range(n_classes), "bounds": (-3.0, 3.0)}
    fitted = model(**settings).fit(X, y)
    scores = fitted.decision_function(X)
    both = np.column_stack([0.0 * scores, scores]) if n_classes == 2 else scores
    sure = special.softmax(both / 1.25, axis=1).max(axis=1).mean()
    right = fitted.score(X, y)
    ratio = special.logit([sure, right]) + np.log(n_classes - 1)
    expected = 1.25 * (ratio[0] / ratio[1]) ** 1.7
    assert fitted.temperature_ == pytest.approx(expected, rel=1e-2)
    chances = fitted.predict_proba(X)
    assert np.allclose(chances, special.softmax(both / fitted.temperature_, axis=1))
    before = abs(special.softmax(both, axis=1).max(axis=1).mean() - right)
    assert abs(chances.max(axis=1).mean() - right) < min(0.02, before)
    for without in ({"class_weight": {0: 0.5}}, {"fit_intercept": False}, {"margin": 1.0}):
        assert model(**settings, **without).fit(X, y).temperature_ == 1.0


@pytest.mark.proof("auto_pipeline", "Budget and paths")
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("kind", ["confidence", "correctness"])
def test_one_row_moves_a_calibrating_sum_by_the_clip_at_most(kind: str, n_classes: int) -> None:
    rng = np.random.default_rng(4)
    loss = Loss(name="softmax_margin", n_classes=n_classes, margin=0.0)
    rule = DescentRule(
        loss=loss, n_features=6, fit_intercept=True, adjacency="add_remove", noise_grid="float",
        mu=1e12, count=1.0, calibrated=True,
    )  # fmt: skip
    largest = 0.0
    for scale in (0.0, 1.0, 1e3, 1e30):
        row, label = rng.normal(size=(1, 6)), rng.integers(0, n_classes, 1)
        rows = PlainRows(row, label, n_classes)
        weights = scale * rng.normal(size=rule.shape)
        total = rule.check(kind, weights, rows.records(PublicMap()), rows, _core.NoiseSource(1))
        moved = float(np.linalg.norm(total)) / rule.n_checks
        assert moved <= rule.clip * (1.0 + 1e-6)
        largest = max(largest, moved / rule.clip)
    # Hardly anything of the clip is left over.
    assert largest > 0.99
