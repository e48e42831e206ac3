"""Estimators with linear scores: what they learn, state, and have in common with plain models."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from dpsvm_fast import (
    CertificationError,
    GradientPerturbationSVC,
    NotPrivateWarning,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivacyLeakWarning,
    PrivacyLedger,
    _core,
    verify,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import SMOOTH_LOSSES, Loss
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from oracles.odd_inputs import ESTIMATORS, every_estimator
from oracles.watching import fitted_names
from twins.smooth_erm import Problem

TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]
MODELS: dict[str, Any] = {
    "output": OutputPerturbationSVC,
    "objective": ObjectivePerturbationSVC,
    "gradient": GradientPerturbationSVC,
}


def shape_of_noise(model: Any) -> tuple[int, ...]:
    statement = model.privacy_
    shape: tuple[int, ...] = (statement.noise or statement.parts[0]).shape
    return shape


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("output", "crammer_singer"),
        *((k, loss) for k in list(MODELS)[1:] for loss in SMOOTH_LOSSES),
    ],
)
def test_two_classes_give_one_row(kind: str, loss: str, clusters: TrainingSet) -> None:
    X, y = clusters
    labels = np.array(["no", "yes"])[(y > 0).astype(int)]
    model = MODELS[kind](loss=loss, classes=["no", "yes"], epsilon=100.0).fit(X, labels)
    assert (model.coef_.shape, model.intercept_.shape) == ((1, 5), (1,))
    scores = model.decision_function(X)
    assert scores.shape == (90,)
    np.testing.assert_array_equal(model.predict(X) == "yes", scores > 0)
    assert model.score(X, labels) > 0.9
    # Losses over pairs of classes have a score for each of two.
    pairs = loss in ("m3", "huber_ww", "crammer_singer")
    assert shape_of_noise(model) == (2 if pairs else 1, 6)


RECIPES: list[tuple[str, dict[str, Any]]] = [
    *(("objective", {"noise": noise}) for noise in ("gaussian", "gamma")),
    *(("gradient", {"optimizer": optimizer}) for optimizer in ("gd", "sgd", "adam")),
]


@pytest.mark.sampled(times=2)
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
@pytest.mark.parametrize(("kind", "settings"), RECIPES)
@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_matrix])
def test_every_loss_learns_and_its_certificate_holds(
    loss: str, kind: str, settings: dict[str, Any], form: Any, clusters: TrainingSet
) -> None:
    X, y = clusters
    epsilon = {"objective": 100.0, "gradient": 30.0}[kind]
    model = MODELS[kind](epsilon, classes=range(3), loss=loss, **settings).fit(form(X), y)
    assert model.score(form(X), y) > 0.9
    assert (model.coef_.shape, model.intercept_.shape) == ((3, 5), (3,))
    statement = model.privacy_
    assert verify(statement).ok
    delta = 0.0 if settings.get("noise") == "gamma" else 1e-6
    assert (statement.epsilon, statement.delta, statement.loss) == (epsilon, delta, loss)
    assert sum(e.epsilon for e in statement.events if hasattr(e, "epsilon")) <= epsilon


PLAIN: list[tuple[str, dict[str, Any]]] = [
    ("objective", {"data_norm": 2.0, "extra_regularization": 0.0}),
    # C is scikit-learn's, also where rows are divided by another norm.
    ("gradient", {"data_norm": 2.0, "learning_rate": 0.05}),
    ("gradient", {"data_norm": 4.0, "learning_rate": 0.2, "momentum": 0.5}),
]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("kind", "settings"), PLAIN)
def test_with_a_huge_budget_it_is_logistic_regression(
    kind: str, settings: dict[str, Any], n_classes: int, clusters: TrainingSet
) -> None:
    X, y = clusters[0], np.minimum(clusters[1], n_classes - 1)
    plain = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=1000).fit(X, y)
    settings = settings | {"loss": "softmax_margin", "smoothing": 1.0, "margin": 0.0, "C": 0.5}
    if kind == "gradient":
        settings |= {"n_steps": 2000, "max_grad_norm": 1.5}
    model = MODELS[kind](1e4, classes=range(n_classes), fit_intercept=False, **settings).fit(X, y)
    allowed = 0.1 * np.abs(plain.coef_).max()
    if kind == "objective":
        noise = model.privacy_.objective.sigma / model.privacy_.objective.regularization
        # Negative control: the noise is small beside the weights.
        assert 6.0 * noise < 2.0 * allowed
        allowed = 6.0 * noise + 1e-4
    assert np.abs(model.coef_ - plain.coef_).max() <= allowed


@pytest.mark.parametrize("kind", MODELS)
def test_without_an_intercept(kind: str, clusters: TrainingSet) -> None:
    model = MODELS[kind](classes=range(3), fit_intercept=False).fit(*clusters)
    np.testing.assert_array_equal(model.intercept_, np.zeros(3))
    assert shape_of_noise(model) == (3, 5)


LEARNT: list[tuple[str, float, dict[str, Any], float]] = [
    ("objective", 8.0, {}, 0.88),
    ("objective", 1.0, {}, 0.70),
    ("objective", 8.0, {"loss": "huber"}, 0.80),
    ("objective", 8.0, {"adjacency": "replace_one"}, 0.82),
    ("gradient", 8.0, {}, 0.92),
    ("gradient", 8.0, {"optimizer": "adam", "noise_correction": True}, 0.90),
    ("gradient", 8.0, {"loss": "huber", "momentum": 0.9, "nesterov": True}, 0.90),
]
BY_NIGHT: list[tuple[str, float, dict[str, Any], float]] = [
    ("gradient", 1.0, {}, 0.83),
    ("gradient", 1.0, {"max_samples": 1400}, 0.83),
    ("gradient", 8.0, {"optimizer": "sgd"}, 0.91),
    ("gradient", 8.0, {"optimizer": "adam"}, 0.91),
    ("gradient", 8.0, {"loss": "m3"}, 0.92),
    ("gradient", 8.0, {"adjacency": "replace_one", "schedule": "linear"}, 0.90),
]


@pytest.mark.parametrize(
    ("kind", "epsilon", "settings", "least"),
    [*LEARNT, *(pytest.param(*one, marks=pytest.mark.slow) for one in BY_NIGHT)],
)
def test_digits(kind: str, epsilon: float, settings: dict[str, Any], least: float) -> None:
    """Test accuracy of one split, with room of several standard errors for the noise."""
    X, y = load_digits(return_X_y=True)
    X = normalize(X)
    train = np.arange(y.size) % 4 > 0
    model = MODELS[kind](epsilon, classes=range(10), **settings).fit(X[train], y[train])
    assert model.score(X[~train], y[~train]) > least


seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


def output(**changes: Any) -> OutputPerturbationSVC:
    return OutputPerturbationSVC(**({"classes": [0, 1, 2], "n_threads": 1} | changes))


def fitted_coef(X: Any, y: Any, **changes: Any) -> NDArray[np.float64]:
    coef: NDArray[np.float64] = output(random_state=1, **changes).fit(X, y).coef_
    return coef


@pytest.mark.proof("output_perturbation", "Sensitivity, declared radius, rounding")
@seeded
def test_extreme_rows_are_clipped(clusters: TrainingSet) -> None:
    X, y = clusters
    directions = np.sign(X[:, :1]) * np.eye(1, 5)
    expected = fitted_coef(directions, y)
    for size in (1e308, 1e200, 2.0):
        np.testing.assert_allclose(fitted_coef(directions * size, y), expected, atol=1e-3)
    assert np.isfinite(fitted_coef(X * 5e-324, y)).all()


def test_statement_and_warnings(clusters: TrainingSet) -> None:
    X, y = clusters
    private = output(max_iter=10**6, adjacency="replace_one").fit(X, y).privacy_
    assert private.private
    assert verify(private).ok
    assert private.adjacency == "replace_one"
    assert any("max_iter" in caveat for caveat in private.caveats)
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        leaked = output(classes=None).fit(X, y).privacy_
    assert not leaked.private
    with pytest.warns(NotPrivateWarning, match="random_state") as caught:
        known = output(random_state=0).fit(X, y).privacy_
    assert len(caught) == 1
    assert not known.private
    assert known.random_source == "seed"


@pytest.mark.fresh
@pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it")
def test_noise_is_fresh_at_every_fit(clusters: TrainingSet) -> None:
    estimator = output()
    first = estimator.fit(*clusters).coef_
    second = estimator.fit(*clusters).coef_
    third = clone(estimator).fit(*clusters).coef_
    copied = pickle.loads(pickle.dumps(estimator)).fit(*clusters).coef_
    values = np.concatenate([first, second, third, copied])
    assert len(np.unique(values)) == values.size


@seeded
def test_whole_numbers_in_few_columns_are_solved() -> None:
    # Four thousand duals between their bounds for ninety weights: single steps through them did
    # not end in minutes, whatever max_iter was.
    X, y = load_digits(return_X_y=True)
    fitted = output(classes=range(10), data_norm=80.0, max_iter=1000, random_state=0).fit(
        X[:, :8], y
    )
    assert np.isfinite(fitted.coef_).all()


def test_every_order_of_equal_rows_is_certified() -> None:
    # Where C is tiny, a rounding of a row's duals counts more than the gap that is wanted, if it
    # is laid on a class that is a whole margin behind: one order in twenty never ended.
    rows = np.random.default_rng(0).normal(size=(12, 3)) * 1e6
    X, y = np.tile(rows, (33, 1)), np.tile(np.arange(3), 132)
    settings: dict[str, Any] = {"n_classes": 3, "C": 1e-3, "radius": 1.4e-12, "max_iter": 400}
    scales: dict[str, Any] = {"data_norm": 1e-6, "intercept_scaling": 2e-7}
    for seed in range(150):
        weights, _ = _core.solve_crammer_singer(
            X, y, **settings, **scales, n_threads=1, shuffle_seed=seed, low_memory=False
        )
        assert weights is not None, seed


def test_a_delta_that_promises_nothing_is_warned_of_once_and_first() -> None:
    rows, labels = np.eye(4), np.array([0, 1, 0, 1])
    model = OutputPerturbationSVC(epsilon=1.0, delta=0.2, data_norm=1.0, classes=[0, 1])
    with pytest.warns(NotPrivateWarning) as caught:
        model.fit(rows, labels)
    assert len(caught) == 1
    # Negative control: any usual delta.
    model.set_params(delta=0.1).fit(rows, labels)


def objective(**changes: Any) -> ObjectivePerturbationSVC:
    return ObjectivePerturbationSVC(**({"classes": [0, 1, 2], "n_threads": 1} | changes))


@pytest.mark.proof("objective_perturbation", "The mechanism and its estimator")
@seeded
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_released_weights_are_stationary_but_for_the_noise_on_them(
    loss: str, n_classes: int, clusters: TrainingSet
) -> None:
    """B, drawn again from the seed, balances the gradient of the slow twin at the weights."""
    X, y = clusters
    y = np.minimum(y, n_classes - 1)
    settings = {"random_state": 3, "classes": range(n_classes), "data_norm": 0.8, "C": 0.2}
    seen: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        original = ObjectivePerturbation.release
        patch.setattr(
            ObjectivePerturbation,
            "release",
            lambda plan, weights, *a, **k: (
                seen.append((plan, weights)) or original(plan, weights, *a, **k)
            ),
        )
        objective(loss=loss, **settings).fit(X, y)
    plan, weights = seen[0]
    linear = plan.draw_linear(_core.NoiseSource(3), n_threads=1)
    clipped = X * np.minimum(1.0, 0.8 / np.linalg.norm(X, axis=1))[:, None]
    rows = np.hstack([clipped, np.full((90, 1), plan.intercept_scaling)])
    problem = Problem(
        rows, y, plan.loss.n_scores, plan.loss.kernel, plan.regularization, linear=linear
    )
    # The solver stores rows in single precision: their rounding is part of the public record model.
    allowed = plan.gradient_tol + 90.0 * plan.loss.lipschitz * 2e-7
    assert np.linalg.norm(problem.gradient(weights)) <= allowed
    # Negative controls: another B, and another lambda.
    for wrong in (
        Problem(rows, y, plan.loss.n_scores, plan.loss.kernel, plan.regularization),
        Problem(rows, y, plan.loss.n_scores, plan.loss.kernel, 1.01 * plan.regularization, linear),
    ):
        assert np.linalg.norm(wrong.gradient(weights)) > 10.0 * allowed


def test_probabilities_exist_only_for_likelihoods(clusters: TrainingSet) -> None:
    X, y = clusters
    for settings, available in (
        ({}, False),
        ({"loss": "huber"}, False),
        ({"loss": "m3", "margin": 0.0}, False),
        ({"loss": "softplus"}, False),
        ({"loss": "softplus", "margin": 0.0}, True),
        ({"margin": 0.0}, True),
        ({"loss": "logistic"}, True),
    ):
        assert hasattr(objective(**settings), "predict_proba") == available
        assert hasattr(objective(**settings).fit(X, y), "predict_proba") == available
    with pytest.raises(AttributeError) as caught:
        objective().predict_proba(X)
    assert "margin=0" in str(caught.value.__cause__ or caught.value)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "settings", [{"margin": 0.0}, {"loss": "logistic"}, {"loss": "softplus", "margin": 0.0}]
)
def test_probabilities(settings: dict[str, Any], n_classes: int, clusters: TrainingSet) -> None:
    X, y = clusters
    y = np.minimum(y, n_classes - 1)
    estimator = objective(epsilon=100.0, classes=range(n_classes), **settings).fit(X, y)
    found = estimator.predict_proba(X)
    assert found.shape == (90, n_classes)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(found.argmax(axis=1), estimator.predict(X))
    temperature = 1.0 if settings.get("loss") == "logistic" else 0.4
    odds = np.exp(estimator.decision_function(X) / temperature)
    if n_classes == 2:
        expected = odds / (1.0 + odds)
        np.testing.assert_allclose(found[:, 1], expected, rtol=1e-9)
    else:
        shares = odds if "loss" not in settings else odds / (1.0 + odds)
        expected = shares / shares.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    # Parameters changed after the fit are those of the next one.
    np.testing.assert_array_equal(estimator.set_params(loss="huber").predict_proba(X), found)
    for rows in (np.full((2, 5), 1e308), np.full((2, 5), -1e308)):
        np.testing.assert_allclose(estimator.predict_proba(rows).sum(axis=1), 1.0, rtol=1e-12)


def test_a_longer_constant_feature_is_part_of_the_row(clusters: TrainingSet) -> None:
    estimator = objective(intercept_scaling=2.0, epsilon=100.0).fit(*clusters)
    assert estimator.privacy_.objective.row_norm == pytest.approx(5.0**0.5, rel=1e-15)
    X, y = clusters
    assert estimator.score(X, y) > 0.9


def test_a_certificate_out_of_reach_is_an_error_that_says_so() -> None:
    """Weights so large that their rounding alone exceeds the tolerance."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2000, 20)), rng.integers(0, 3, 2000)
    estimator = objective(
        noise="gamma", epsilon=1e3, C=1e8, tol=1e-8, smoothing=1e-3, extra_regularization=0.0
    )
    with pytest.raises(CertificationError, match=r"^tol: .*double precision.*not covered"):
        estimator.fit(X, y)
    assert fitted_names(estimator) == []


Patch = pytest.MonkeyPatch
slow = pytest.mark.slow
LAST: dict[str, Any] = {
    "accountant": "last_iterate", "C": 0.1, "max_samples": 100, "n_steps": 200,
}  # fmt: skip


def gradient(**changes: Any) -> GradientPerturbationSVC:
    return GradientPerturbationSVC(**({"classes": [0, 1, 2], "n_threads": 1} | changes))


@seeded
@pytest.mark.parametrize("n_steps", ["auto", 100, 30])
@pytest.mark.parametrize("known", [True, False])
def test_more_budget_makes_weights_of_full_batches_no_worse(
    known: bool, n_steps: int | str
) -> None:
    """Rows of positive numbers: long steps swing along their mean, with probabilities of 0 and 1.

    Without the rule of their length and momentum log-loss at least doubles (8 seeds), and with
    automatic steps accuracy falls by 0.006 to 0.014; with it accuracy changes by -0.001 to +0.006.
    """
    rng = np.random.default_rng(0)
    y, centres = rng.integers(0, 4, 6000), rng.normal(size=(4, 10))
    X = normalize(0.5 + rng.uniform(0, 1, (6000, 10)) + 0.35 * centres[y] * np.linspace(0.2, 1, 10))
    found = []
    for epsilon in (8.0, 1000.0):
        model = gradient(
            epsilon=epsilon, classes=range(4), max_samples=3000 if known else None,
            n_steps=n_steps, random_state=0,
        ).fit(X[:3000], y[:3000])  # fmt: skip
        chosen = log_softmax(model.decision_function(X[3000:]), axis=1)
        found.append((model.score(X[3000:], y[3000:]), -chosen[np.arange(3000), y[3000:]].mean()))
    (accuracy, loss), (more, less) = found
    # With neither n nor enough steps, weights still swing a little.
    if known or n_steps != 30:
        assert more > accuracy - 0.002
        assert less < 1.6 * loss
    assert more > 0.675


@seeded
@pytest.mark.parametrize("csr", [False, True])
@pytest.mark.parametrize("data_norm", [0.8, 5.0])
def test_the_weights_are_those_of_the_twin_for_raw_rows(
    csr: bool, data_norm: float, clusters: TrainingSet, monkeypatch: Patch
) -> None:
    """Same steps without noise, by numpy on clipped raw rows, and scores of raw rows."""
    X, y = clusters
    seen: list[dict[str, Any]] = []
    descent = _core.Descent

    def quiet(**options: Any) -> Any:
        seen.append(options)
        return descent(**(options | {"sigma": 0.0}))

    monkeypatch.setattr(_core, "Descent", quiet)
    estimator = gradient(
        data_norm=data_norm, C=0.7, n_steps=30, intercept_scaling=0.5, random_state=1, momentum=0.5
    ).fit(sparse.csr_matrix(X) if csr else X, y)
    options = seen[-1]
    clipped = X * np.minimum(1.0, data_norm / np.linalg.norm(X, axis=1))[:, None]
    # In raw units: gradients and R times data_norm, steps over data_norm squared.
    rows = np.hstack([clipped, np.full((90, 1), 0.5)])
    W, velocity, kept = np.zeros((3, 6)), np.zeros((3, 6)), []
    for t in range(30):
        scores = rows @ W.T + (np.arange(3) != y[:, None])
        a = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True) - np.eye(3)[y]
        size = np.linalg.norm(a, axis=1) * np.linalg.norm(rows, axis=1)
        factor = np.minimum(1.0, options["clip"] * data_norm / size)
        # The gradient of the objective over C, whose penalty is |W|^2 / 2.
        g = (factor[:, None] * a).T @ rows + W / 0.7
        velocity = 0.5 * velocity + g
        W = W - options["learning_rate"] / data_norm**2 * velocity
        if t >= 22:
            kept.append(W)
    expected = np.mean(kept, axis=0)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(estimator.coef_, expected[:, :5], atol=1e-3 * scale)
    np.testing.assert_allclose(estimator.intercept_, 0.5 * expected[:, 5], atol=1e-3 * scale)
    assert scale > 0.01


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_the_last_iterate_is_near_the_minimum(adjacency: str, clusters: TrainingSet) -> None:
    X, y = clusters
    settings = LAST | {"adjacency": adjacency, "epsilon": 1e3, "margin": 0.0, "data_norm": 2.0}
    if adjacency == "replace_one":
        settings["max_samples"] = None
    estimator = gradient(**settings, fit_intercept=False).fit(X, y)
    plain = LogisticRegression(C=0.1, fit_intercept=False, tol=1e-10, max_iter=1000).fit(X, y)
    assert np.abs(estimator.coef_ - plain.coef_).max() < 0.1 * np.abs(plain.coef_).max()
    statement = estimator.privacy_
    assert statement.parts[0].last_iterate.max_records == (
        90 if adjacency == "replace_one" else 100
    )
    assert verify(statement).ok
    # Only the last iterate is kept.
    assert "_continuation" not in vars(estimator)
    assert not hasattr(estimator, "partial_fit")


def test_more_rows_than_the_last_iterate_may_have_cost_nothing(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    estimator = gradient(**(LAST | {"max_samples": 89}), ledger=ledger)
    with pytest.raises(InvalidParameterError, match=r"^max_samples: ") as caught:
        estimator.fit(*clusters)
    assert "90" not in str(caught.value)
    assert ledger.history == ()
    # Where it only sets the rules, the bound need not hold.
    gradient(max_samples=5).fit(*clusters)


def test_weights_that_leave_the_floats_are_not_released(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    estimator = gradient(ledger=ledger, learning_rate=1e90, C=1.0, n_steps=50)
    with pytest.raises(InvalidParameterError, match=r"^learning_rate: too large"):
        estimator.fit(*clusters)
    assert fitted_names(estimator) == []
    assert len(ledger.history) == 1


LIKELIHOOD: dict[str, Any] = {"loss": "softmax_margin", "smoothing": 0.5, "margin": 0.0}


def fitted(data: TrainingSet, estimator: str, n_classes: int = 3) -> Any:
    X, y = data[0], data[1] % n_classes
    return ESTIMATORS[estimator](epsilon=50.0, classes=range(n_classes), **LIKELIHOOD).fit(X, y)


@every_estimator
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "later", [{"smoothing": 5.0}, {"margin": 1.0}, {"loss": "huber", "margin": "auto"}]
)
def test_later_parameters_do_not_change_probabilities(
    estimator: str, n_classes: int, later: dict[str, Any], clusters: TrainingSet
) -> None:
    X = clusters[0]
    model = fitted(clusters, estimator, n_classes)
    before = model.predict_proba(X)
    model.set_params(**later)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), before)
    # What is not fitted goes by its parameters.
    assert hasattr(clone(model), "predict_proba") == ("smoothing" in later)


@every_estimator
def test_the_next_fit_counts_and_a_refused_one_forgets(
    estimator: str, clusters: TrainingSet
) -> None:
    X, y = clusters
    model = fitted(clusters, estimator)
    before = model.predict_proba(X)
    model.set_params(smoothing=5.0).fit(X, y)
    assert model._fitted_loss == Loss(name="softmax_margin", n_classes=3, smoothing=5.0, margin=0.0)
    # By the new smoothing, whatever the noise of the new fit.
    now = softmax(model.decision_function(X) / 5.0, axis=1)
    np.testing.assert_allclose(model.predict_proba(X), now, rtol=1e-12)
    assert (now != before).any()
    with pytest.raises(InvalidParameterError, match="margin"):
        model.set_params(loss="huber").fit(X, y)
    assert "_fitted_loss" not in vars(model)
    assert not hasattr(model, "predict_proba")
