"""Releases of an audit are those of ``fit``: one of them, with a seed, to the last bit."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from sklearn.base import clone

import dpsvm_fast as dp
from dpsvm_fast.audit.pair_audit import TransformerWorld, prepared, released_vector, world_of
from dpsvm_fast.estimators.gaussian_margin import released_ellipsoids
from dpsvm_fast.mechanisms.moments import NoisyComponents, NoisyMoments
from dpsvm_fast.preprocessing import middle_and_half

pytestmark = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")

SEED = 11
two: dict[str, Any] = {"classes": [0, 1], "n_threads": 1}
three: dict[str, Any] = {"classes": [0, 1, 2], "n_threads": 1}
OUTPUT, OBJECTIVE = dp.OutputPerturbationSVC, dp.ObjectivePerturbationSVC
GRADIENT, ELLIPSOIDS = dp.GradientPerturbationSVC, dp.PrivateGaussianMarginClassifier
psgd: dict[str, Any] = {"loss": "huber", "solver": "psgd", "adjacency": "replace_one"}
last: dict[str, Any] = {
    "accountant": "last_iterate",
    "max_samples": 50,
    "max_grad_norm": 2.0,
    "C": 0.5,
}
TRAINED: dict[str, Any] = {
    "output": OUTPUT(1.0, **two),
    "output, three classes": OUTPUT(1.0, **three),
    "output, floats": OUTPUT(1.0, **two, noise_grid="float", fit_intercept=False),
    "output, gamma": OUTPUT(1.0, **three, noise="gamma"),
    "output, huber": OUTPUT(1.0, **two, loss="huber"),
    "output, softmax": OUTPUT(1.0, **three, loss="softmax_margin"),
    "output, m3": OUTPUT(1.0, **two, loss="m3"),
    "output, psgd": OUTPUT(1.0, **two, **psgd),
    "objective": OBJECTIVE(1.0, **three),
    "objective, huber": OBJECTIVE(1.0, **two, loss="huber", fit_intercept=False),
    "objective, gamma": OBJECTIVE(1.0, **three, noise="gamma"),
    "objective, replace_one": OBJECTIVE(1.0, **two, adjacency="replace_one"),
    "gd": GRADIENT(1.0, **two, n_steps=3, sampling_rate=1.0),
    "sgd": GRADIENT(1.0, **three, n_steps=3, optimizer="sgd", sampling_rate=0.5),
    "last iterate": GRADIENT(1.0, **two, n_steps=5, **last),
    "adam": GRADIENT(1.0, **two, n_steps=3, optimizer="adam", sampling_rate=0.5),
    "replaced": GRADIENT(1.0, **two, n_steps=3, adjacency="replace_one"),
    "linear": dp.PrivateLinearSVC(1.0, **two, bounds=(-1.0, 1.0)),
    "linear, whitened": dp.PrivateLinearSVC(1.0, **three, whiten=True),
    "linear, output": dp.PrivateLinearSVC(1.0, **two, mechanism="output"),
    "kernel": dp.PrivateKernelSVC(1.0, **two, n_components=8),
}


def data(n_classes: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(40, 3)), rng.integers(0, n_classes, 40)


@pytest.mark.parametrize("name", TRAINED)
def test_a_release_is_what_fit_publishes(name: str) -> None:
    estimator = TRAINED[name]
    X, y = data(len(estimator.classes))
    vector = world_of(estimator, X, y).draw(1, dp._core.NoiseSource(SEED))[0]
    fitted = clone(estimator).set_params(random_state=SEED).fit(X, y)
    assert np.array_equal(vector, released_vector(fitted))
    # Negative control: another seed is another release.
    assert not np.array_equal(vector, world_of(estimator, X, y).draw(1, dp._core.NoiseSource(1))[0])


@pytest.mark.parametrize("psd", ["project", "constraint"])
def test_ellipsoids_follow_from_the_release(psd: str) -> None:
    estimator = ELLIPSOIDS(1.0, **two, psd=psd)
    X, y = data(2)
    world: Any = world_of(estimator, X, y)
    noisy = world.plan.run(world.rows, dp._core.NoiseSource(SEED))
    # Many in one call are solved as one is.
    assert np.array_equal(world.draw(1, dp._core.NoiseSource(SEED))[0], noisy.ravel())
    fitted = clone(estimator).set_params(random_state=SEED).fit(X, y)
    found = released_ellipsoids(noisy, fitted.data_norm_, psd=psd)
    assert np.array_equal(found.reshape(fitted.ellipsoids_.shape), fitted.ellipsoids_)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_means_follow_from_noisy_sums(adjacency: str, delta: float) -> None:
    X, _ = data(2)
    for estimator in (
        dp.PrivateCenter(1.0, delta, adjacency=adjacency, n_threads=1),
        dp.PrivateStandardScaler(1.0, delta, bounds=(-3, 3), adjacency=adjacency, n_threads=1),
    ):
        world: Any = world_of(estimator, X, None)
        noisy = world.draw(1, dp._core.NoiseSource(SEED))[0]
        released = world.total.finished(noisy, len(X))
        fitted = clone(estimator).set_params(random_state=SEED).fit(X)
        if isinstance(estimator, dp.PrivateCenter):
            assert np.array_equal(fitted.mean_, released.mean)
            assert fitted.n_samples_ == released.count
            continue
        middle, half = middle_and_half(*fitted.bounds_)
        assert np.array_equal(fitted.mean_, np.clip(middle + half * released.mean, -3, 3))
        assert np.array_equal(fitted.scale_, half * np.sqrt(released.variance))
        assert fitted.n_samples_seen_ == released.count


@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_matrices_follow_from_noisy_sums(noise_grid: str) -> None:
    X, _ = data(2)
    for estimator in (
        dp.PrivateWhitener(1.0, noise_grid=noise_grid, n_threads=1),
        dp.PrivatePCA(None, 1.0, noise_grid=noise_grid, n_threads=1),
    ):
        world: Any = world_of(estimator, X, None)
        assert isinstance(world, TransformerWorld)
        moments = world.exact
        noisy = world.total.noisy(moments, dp._core.NoiseSource(SEED), 1)
        fitted = clone(estimator).set_params(random_state=SEED).fit(X)
        mechanism = Given(world.total, noisy)
        if isinstance(estimator, dp.PrivatePCA):
            released = NoisyComponents.release(cast(Any, mechanism), moments, cast(Any, None), 1)
            assert np.array_equal(released.vectors, fitted.components_)
        else:
            found = NoisyMoments.release(cast(Any, mechanism), moments, cast(Any, None), 1)
            assert np.array_equal(found, fitted.whitening_)


class Given:
    """A mechanism whose noisy matrix is given."""

    def __init__(self, mechanism: Any, noisy: Any) -> None:
        self._mechanism, self._noisy = mechanism, noisy

    def noisy(self, *_: Any) -> Any:
        return self._noisy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mechanism, name)


def test_the_triangle_of_a_matrix_has_one_law_of_noise() -> None:
    """Fixed seed; a deviation of a tenth would be 45 standard errors."""
    world = world_of(dp.PrivatePCA(None, 1.0, n_threads=1), np.zeros((3, 2)), None)
    drawn = world.draw(100_000, dp._core.NoiseSource(5))
    assert drawn.std(axis=0) == pytest.approx(np.full(3, drawn.std()), rel=0.02)
    assert abs(np.corrcoef(drawn.T) - np.eye(3)).max() < 0.02


def test_an_audited_estimator_keeps_its_ledger_and_seed() -> None:
    estimator = OUTPUT(1.0, **two, random_state=3)
    copy = prepared(estimator)
    assert copy.random_state is None
    assert copy.n_threads == 1
    assert estimator.random_state == 3


def test_the_solution_is_the_same_for_all_releases_of_one_draw() -> None:
    X, y = data(2)
    world = world_of(OUTPUT(1.0, **two, noise="gamma"), X, y)
    one, two_ = (world.draw(n, dp._core.NoiseSource(SEED)) for n in (1, 2))
    assert np.array_equal(one[0], two_[0])
    assert not np.array_equal(two_[0], two_[1])
