"""The symmetric noise of `PrivatePCA`: its law, found from what a fit publishes.

All components and all eigenvalues give the noisy matrix back. For m independent normal entries the
sum of squares over their variance is chi-square with m degrees of freedom; intervals have
probability 1 - ALPHA. With m = 19,600 entries above the diagonal an interval reaches 5 percent to
either side, with 800 on it 27 percent; a factor of 2 in a variance is far outside of both.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpsvm_fast import PrivatePCA
from dpsvm_fast.mechanisms import noise as noisy_moments
from dpsvm_fast.mechanisms.rows import PublicMap

pytestmark = [pytest.mark.statistical, pytest.mark.proof("private_pca")]

Array = NDArray[np.float64]
ALPHA = 1e-6
D, FITS = 50, 16
ROWS = np.random.default_rng(4).normal(size=(200, D)) / 8.0


def noise_of(adjacency: str, noise_grid: str) -> tuple[Array, Array]:
    """Entries of the noise over sigma, on and above the diagonal, of all fits."""
    public = PublicMap(unit=False, data_norm=1.0)
    exact = public.records(ROWS, np.zeros(len(ROWS), dtype=np.int64), 2, 1).gram(1)
    on, above = [], []
    for _ in range(FITS):
        fitted: Any = PrivatePCA(epsilon=2.0, adjacency=adjacency, noise_grid=noise_grid)
        fitted.fit(ROWS)
        V = fitted.components_
        noise = (V.T * fitted.eigenvalues_) @ V - exact
        noise /= fitted.privacy_.parts[0].sigma
        on.append(np.diagonal(noise))
        above.append(noise[np.triu_indices(D, 1)])
    return np.concatenate(on), np.concatenate(above)


def follows(values: Array, variance: float) -> bool:
    """Whether centred normal values have this variance, at level ALPHA."""
    low, high = stats.chi2.ppf([ALPHA / 2, 1.0 - ALPHA / 2], df=values.size)
    return bool(low <= float(values @ values) / variance <= high)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_the_diagonal_has_variance_sigma_squared_and_the_rest_half_of_it(
    adjacency: str, noise_grid: str
) -> None:
    on, above = noise_of(adjacency, noise_grid)
    assert follows(on, 1.0)
    assert follows(above, 0.5)
    for values, deviation in ((on, 1.0), (above, math.sqrt(0.5))):
        assert stats.kstest(values / deviation, "norm").pvalue > ALPHA
    # Negative controls: either variance in the other's place.
    assert not follows(on, 0.5)
    assert not follows(above, 1.0)


def test_noise_with_the_same_variance_everywhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control through the estimator."""
    monkeypatch.setattr(noisy_moments, "sqrt_down", lambda _: 1.0)
    on, above = noise_of("add_remove", "exact")
    assert follows(on, 1.0)
    assert not follows(above, 0.5)
    assert follows(above, 1.0)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_noise_is_that_of_the_budget(adjacency: str) -> None:
    """Sigma itself: the smallest for epsilon = 2 and the relation's sensitivity, by formula."""
    fitted: Any = PrivatePCA(epsilon=2.0, delta=1e-6, adjacency=adjacency).fit(ROWS)
    mu = (1.0 if adjacency == "add_remove" else math.sqrt(2.0)) / fitted.privacy_.parts[0].sigma
    delta = stats.norm.cdf(mu / 2 - 2.0 / mu) - math.exp(2.0) * stats.norm.cdf(-mu / 2 - 2.0 / mu)
    assert 0.999e-6 < delta <= 1e-6
