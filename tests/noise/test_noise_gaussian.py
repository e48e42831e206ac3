"""Laws of the fast Gaussian and of the symmetric Gaussian matrix.

ALPHA is the false-alarm probability of each test. Critical values:
Kolmogorov-Smirnov, by Dvoretzky, Kiefer, Wolfowitz and Massart: P(D > t) <= 2 exp(-2 n t^2);
a standard normal statistic exceeds Z = 4.89 in absolute value with probability 1e-6;
counts and chi-squares by their exact laws. Every test also runs on noise whose scale is 1 percent
off, and must reject it.
"""

import math

import numpy as np
import pytest
from scipy import special, stats

from dpsvm_fast import _core

pytestmark = pytest.mark.statistical

ALPHA = 1e-6
N = 4_000_000
Z = stats.norm.isf(ALPHA / 2)
KS = math.sqrt(math.log(2 / ALPHA) / (2 * N))
SIGMA = 2.5
OFF = 1.01


@pytest.fixture(scope="module")
def draws():
    """N standardised draws."""
    return _core.NoiseSource(101).gaussian(N, SIGMA, 2) / SIGMA


def ks_rejects(x):
    return stats.kstest(x, special.ndtr).statistic > KS


def mean_rejects(x):
    return abs(x.mean()) * math.sqrt(len(x)) > Z


def variance_rejects(x):
    """The sum of squares is chi-square with N degrees of freedom, normal to 1e-3 at this N."""
    return abs(np.mean(x**2) - 1) * math.sqrt(len(x) / 2) > Z


def bins_reject(x, n_bins=1000):
    counts = np.bincount((special.ndtr(x) * n_bins).astype(int), minlength=n_bins)
    expected = len(x) / n_bins
    return np.sum((counts - expected) ** 2 / expected) > stats.chi2.isf(ALPHA, n_bins - 1)


def tails_reject(x):
    """Counts beyond 3, 4 and 5 on each side, by the binomial law; Bonferroni over the six."""
    for level in (3, 4, 5):
        for count in (np.sum(x > level), np.sum(x < -level)):
            p = stats.binomtest(int(count), len(x), special.ndtr(-level)).pvalue
            if p < ALPHA / 6:
                return True
    return False


@pytest.mark.parametrize("rejects", [ks_rejects, variance_rejects, bins_reject, tails_reject])
def test_gaussian_has_its_law(draws, rejects):
    assert not rejects(draws)
    assert rejects(OFF * draws)


def test_gaussian_has_mean_zero(draws):
    assert not mean_rejects(draws)
    assert mean_rejects(draws + 0.005)


def correlation_rejects(x, y):
    """For independent standard normals, sum(x y) / sqrt(n) is standard normal to O(1 / n)."""
    return abs(np.dot(x, y)) / math.sqrt(len(x)) > Z


@pytest.mark.parametrize(
    "lag", [1, 2, 7, 4096, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(3, 21))]
)
def test_gaussian_draws_are_uncorrelated(draws, lag):
    x, y = draws[:-lag], draws[lag:]
    assert not correlation_rejects(x, y)
    assert not correlation_rejects((x**2 - 1) / math.sqrt(2), (y**2 - 1) / math.sqrt(2))
    # Negative control: a correlation of half a percent.
    assert correlation_rejects(x, y + 0.005 * x)


def test_gaussian_streams_are_uncorrelated():
    """Between the calls of one source, and between the sources of neighbouring seeds."""
    source = _core.NoiseSource(0)
    arrays = [source.gaussian(N // 4, 1.0, 1) for _ in range(3)]
    arrays.append(_core.NoiseSource(1).gaussian(N // 4, 1.0, 1))
    for i, x in enumerate(arrays):
        for y in arrays[:i]:
            assert not correlation_rejects(x, y)
            assert correlation_rejects(x, y + 0.02 * x)


@pytest.mark.fresh
def test_unseeded_gaussian_has_its_law():
    x = _core.NoiseSource().gaussian(N, SIGMA, 2) / SIGMA
    assert not ks_rejects(x)
    assert not variance_rejects(x)


def test_symmetric_gaussian_has_its_law():
    d = 2000
    noise = _core.NoiseSource(7).symmetric_gaussian(d, SIGMA, 2) / SIGMA
    assert np.array_equal(noise, noise.T)
    upper = noise[np.triu_indices(d, 1)] * math.sqrt(2)
    source = _core.NoiseSource(9)
    matrices = [source.symmetric_gaussian(40, SIGMA, 1) / SIGMA for _ in range(5000)]
    diagonal = np.concatenate([np.diagonal(matrix) for matrix in matrices])
    for x in (upper, diagonal):
        assert not mean_rejects(x)
        assert not variance_rejects(x)
        assert stats.kstest(x, special.ndtr).statistic < math.sqrt(
            math.log(2 / ALPHA) / (2 * len(x))
        )
    # Negative controls: 1 percent off the diagonal; the same variance everywhere.
    assert variance_rejects(OFF * upper)
    assert variance_rejects(math.sqrt(2) * upper)
    assert variance_rejects(diagonal / math.sqrt(2))


def test_symmetric_gaussian_entries_are_independent():
    """Rows come from different streams: neighbouring rows above the diagonal do not correlate."""
    d = 2000
    noise = _core.NoiseSource(8).symmetric_gaussian(d, math.sqrt(2), 2)
    upper = np.triu(noise, 2)
    x, y = upper[:-1, 2:].ravel(), upper[1:, 2:].ravel()
    both = (x != 0) & (y != 0)
    assert both.sum() > d * (d - 10) // 2
    assert not correlation_rejects(x[both], y[both])
    assert correlation_rejects(x[both], (y + 0.01 * x)[both])
