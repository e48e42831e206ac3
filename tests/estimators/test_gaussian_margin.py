"""PrivateGaussianMarginClassifier: order of the fit, what is released, decisions, bad inputs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import (
    BudgetExceededError,
    CertificationError,
    InvalidParameterError,
    PrivacyLedger,
    PrivateGaussianMarginClassifier,
    verify,
)
from oracles.watching import fitted_names

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]
seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")

ALPHA = 1e-6


def rings(n: int = 1500, seed: int = 0) -> Rows:
    """Three classes at three distances from the origin: no half-plane separates any of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    rows = rng.normal(size=(n, 2))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * (np.array([0.15, 0.5, 0.9])[y] + 0.05 * rng.uniform(-1, 1, n))[:, None], y


def model(**changes: Any) -> PrivateGaussianMarginClassifier:
    settings = {"epsilon": 20.0, "classes": [0, 1, 2], "n_threads": 1}
    return PrivateGaussianMarginClassifier(**(settings | changes))


def test_anchors_are_charged_with_the_rest() -> None:
    ledger = PrivacyLedger(epsilon=2.0, delta=0.0)
    estimator = model(ledger=ledger, epsilon=1.5, noise="gamma", n_ellipsoids=2, C=0.1)
    estimator.fit(*rings(100))
    assert len(ledger.history) == 5
    assert ledger.total()[0] == pytest.approx(1.5, rel=1e-12)
    with pytest.raises(BudgetExceededError):
        estimator.fit(*rings(100))
    # What the first fit released goes before anything else happens.
    assert not fitted_names(estimator)


@pytest.mark.sampled
@pytest.mark.parametrize("loss", ["softmax_margin", "huber_ww"])
@pytest.mark.parametrize("psd", ["constraint", "project"])
@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_quadratic_boundaries_are_learned_and_the_certificate_holds(
    loss: str, psd: str, noise: str
) -> None:
    X, y = rings()
    estimator = model(loss=loss, psd=psd, noise=noise, epsilon=100.0, C=10.0, tol=1e-4).fit(X, y)
    assert estimator.score(*rings(500, seed=1)) > 0.95
    assert estimator.privacy_.mechanism == "gaussian_margin"
    assert verify(estimator.privacy_)
    assert verify(estimator.privacy_.to_json())
    assert (estimator.privacy_.delta == 0.0) == (noise == "gamma")


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("psd", ["constraint", "project"])
def test_what_is_released_is_positive_semidefinite(adjacency: str, psd: str) -> None:
    X, y = rings(300)
    for epsilon in (0.1, 5.0):
        estimator = model(adjacency=adjacency, psd=psd, epsilon=epsilon).fit(X, y)
        matrices = estimator.ellipsoids_
        assert matrices.shape == (3, 1, 3, 3)
        assert (matrices == np.swapaxes(matrices, -1, -2)).all()
        assert np.linalg.eigvalsh(matrices).min() >= -1e-13 * np.abs(matrices).max()
        assert (estimator.offsets_ >= 0.0).all()
        assert (estimator.mahalanobis(X) >= 0.0).all()


def test_decisions_are_those_of_the_released_forms() -> None:
    X, y = rings(300)
    estimator = model().fit(X, y)
    lifted = np.column_stack([X, np.ones(len(X))])
    forms = np.einsum("na,cab,nb->nc", lifted, estimator.ellipsoids_[:, 0], lifted)
    assert np.allclose(estimator.decision_function(X), -forms, rtol=1e-9, atol=1e-9)
    assert (estimator.predict(X) == forms.argmin(axis=1)).all()
    gaps = X[:, None] - estimator.means_[:, 0]
    distances = np.einsum("nca,cab,ncb->nc", gaps, estimator.precisions_[:, 0], gaps)
    assert np.allclose(estimator.mahalanobis(X), distances, rtol=1e-7, atol=1e-7)
    assert np.allclose(distances + estimator.offsets_[:, 0], forms, rtol=1e-7, atol=1e-7)


def test_two_classes_have_one_column_of_scores() -> None:
    X, y = rings(400)
    estimator = model(classes=["in", "out"]).fit(X, np.where(y == 0, "in", "out"))
    scores = estimator.decision_function(X)
    assert scores.shape == (400,)
    assert estimator.mahalanobis(X).shape == (400, 2)
    assert (estimator.predict(X) == np.where(scores > 0.0, "out", "in")).all()


def test_long_rows_are_scaled_down_as_in_training() -> None:
    X, y = rings(300)
    estimator = model().fit(X, y)
    far = 1e300 * X[:20]
    near = X[:20] / np.linalg.norm(X[:20], axis=1, keepdims=True)
    assert np.allclose(estimator.decision_function(far), estimator.decision_function(near))


@seeded
def test_the_unit_of_the_rows_does_not_matter() -> None:
    X, y = rings(300)
    here = model(random_state=3).fit(X, y)
    there = model(random_state=3, data_norm=1024.0).fit(1024.0 * X, y)
    # A power of two: the same noise meets the same lifted rows.
    assert np.allclose(1024.0 * here.means_, there.means_, rtol=1e-6)
    assert np.allclose(here.decision_function(X), there.decision_function(1024.0 * X), rtol=1e-6)
    assert here.privacy_.to_json() == there.privacy_.to_json()


def stripes(n: int = 4000, seed: int = 0) -> Rows:
    """Two classes in turn along a line: three boundaries, where one form gives two."""
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 4, n)
    x = np.array([-0.75, -0.25, 0.25, 0.75])[which] + rng.uniform(-0.12, 0.12, n)
    return np.column_stack([x, rng.uniform(-0.2, 0.2, n)]), which % 2


def test_several_ellipsoids_do_what_one_cannot() -> None:
    X, y = stripes()
    shared = {"classes": [0, 1], "noise": "gamma", "epsilon": 100.0, "C": 10.0}
    one = model(**shared).fit(X, y)
    two = model(**shared, n_ellipsoids=2).fit(X, y)
    assert one.score(X, y) < 0.8
    assert two.score(X, y) > 0.95
    assert two.ellipsoids_.shape == (2, 2, 3, 3)
    assert [part.name for part in two.privacy_.parts] == ["anchors"] * 3
    assert two.privacy_.objective is not None
    # The own ellipsoid and the two of the other class.
    assert two.privacy_.objective.n_classes == 3
    assert verify(two.privacy_)


@pytest.mark.proof("gaussian_margin", "Constants, budgets, anchors, certificates of the code")
@seeded
@pytest.mark.statistical
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_entries_off_the_diagonal_have_the_noise_of_the_statement(adjacency: str) -> None:
    """Rows of zeros touch the last diagonal entry alone: all others are -B / lambda and noise.

    In coordinates B has deviation sigma; entries off the diagonal are coordinates over sqrt(2).
    """
    d = 45
    X, y = np.zeros((12, d)), np.arange(12) % 3
    estimator = model(epsilon=1.0, adjacency=adjacency, random_state=8).fit(X, y)
    inside, outside = estimator.privacy_.objective, estimator.privacy_.noise
    assert inside is not None
    assert outside is not None
    assert inside.sigma is not None
    assert outside.sigma is not None
    sigma = np.hypot(inside.sigma / inside.regularization, outside.sigma)
    # Coordinates in units of lifted rows (x, 1/2) / sqrt(5/4).
    upper = np.triu_indices(d, 1)
    entries = estimator.precisions_[:, 0][:, upper[0], upper[1]] * 1.25
    z = (entries * np.sqrt(2.0) / sigma).ravel()
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], df=z.size)
    assert low <= (z**2).sum() <= high
    for wrong in (np.sqrt(2.0), np.sqrt(0.5)):
        assert not low <= ((wrong * z) ** 2).sum() <= high
    # On the diagonal the shift is common: differences of two matrices are noise.
    diagonal = np.diagonal(estimator.precisions_[:, 0], axis1=1, axis2=2) * 1.25
    gaps = (diagonal[1] - diagonal[0]) / (np.sqrt(2.0) * sigma)
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], df=d)
    assert low <= (gaps**2).sum() <= high


def test_steps_that_run_out_release_nothing() -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-6, strict=False)
    estimator = model(ledger=ledger, max_iter=1, epsilon=0.9, C=10.0, tol=1e-8)
    with pytest.raises(CertificationError, match="not covered by the guarantee"):
        estimator.fit(*rings(200))
    assert not fitted_names(estimator)
    assert len(ledger.history) == 2


@pytest.mark.parametrize("loss", ["softmax_margin", "huber_ww"])
def test_a_price_of_margins_beyond_the_budget_is_refused_with_the_largest(loss: str) -> None:
    shared = {"noise": "gamma", "epsilon": 0.5, "loss": loss, "extra_regularization": 0.0}
    with pytest.raises(InvalidParameterError, match=r"^C: got 1000\.0") as caught:
        model(C=1000.0, **shared).fit(*rings(50))
    largest = re.search(r"expected at most ([0-9.e-]+)", str(caught.value))
    assert largest is not None
    assert model(C=float(largest[1]), **shared).fit(*rings(50)).lambda_ > 0.0
    # Left to the rule, what is missing is added.
    added = model(C=1000.0, **(shared | {"extra_regularization": "auto"})).fit(*rings(50))
    assert added.lambda_ > 1e-3
