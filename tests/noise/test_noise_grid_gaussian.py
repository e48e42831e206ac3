"""Law of the exact Gaussian on a grid.

ALPHA is the false-alarm probability of each test; counts are compared with the exact bin
probabilities (differences of the normal distribution function) by Pearson's chi-square, whose
classes hold at least 50 expected draws, and every test must reject noise whose scale is 1 percent
off (Kolmogorov and Smirnov's 2 percent; for sigma/grid = 0.1, where only 2e-7 of the mass is beyond
zero, 30 percent). A scale 1 percent off adds 2e-4 N = 300 to a statistic of 200 classes, where the
limit is 313 and the deviation then 40.
"""

import math

import numpy as np
import pytest
from scipy import special, stats

from dpsvm_fast import _core

pytestmark = [pytest.mark.statistical, pytest.mark.proof("grid_gaussian")]

ALPHA = 1e-6
N = 1_500_000
MIN_EXPECTED = 50
MAX_CLASSES = 200


def law(edges, ratio):
    """Probabilities of round(N(0, ratio^2)) between half-integers, without cancellation."""
    upper = np.where(edges > 0, special.ndtr(-edges / ratio), special.ndtr(edges / ratio))
    p = np.abs(np.diff(upper))
    crossing = (edges[:-1] < 0) & (edges[1:] > 0)
    p[crossing] = 1 - upper[:-1][crossing] - upper[1:][crossing]
    return p


def chi_square_rejects(multiples, ratio):
    """Pearson's test of `multiples` against the law for `ratio`."""
    n = len(multiples)
    reach = math.ceil(ratio * stats.norm.isf(MIN_EXPECTED / n))
    width = max(1, 2 * reach // MAX_CLASSES)
    inner = np.arange(-reach, reach + width, width) + 0.5
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    p = law(edges, ratio)
    counts = np.bincount(np.searchsorted(edges, multiples) - 1, minlength=len(p))
    # Classes of the tails with few expected draws are merged from both ends.
    low, high = 0, len(p)
    while p[: low + 1].sum() * n < MIN_EXPECTED:
        low += 1
    while p[high - 1 :].sum() * n < MIN_EXPECTED:
        high -= 1
    cuts = np.concatenate([[0], np.arange(low + 1, high)])
    expected = np.add.reduceat(p, cuts) * n
    statistic = np.sum((np.add.reduceat(counts, cuts) - expected) ** 2 / expected)
    return statistic > stats.chi2.isf(ALPHA, len(cuts) - 1)


@pytest.mark.parametrize("ratio", [0.3, 0.5, 1.0, 3.0, 3.7, 50.0, 1000.25])
def test_grid_gaussian_has_its_law(ratio):
    grid = 2.0**-10
    multiples = _core.NoiseSource(55).gaussian_on_grid(N, ratio * grid, grid, 2)
    assert multiples.dtype == np.int64
    assert not chi_square_rejects(multiples, ratio)
    assert chi_square_rejects(multiples, 1.01 * ratio)
    assert chi_square_rejects(multiples, ratio / 1.01)


def test_grid_gaussian_is_almost_always_zero_on_a_coarse_grid():
    """sigma/grid = 0.1: a draw differs from 0 with probability 2 Phi(-5)."""
    n = 5 * N
    multiples = _core.NoiseSource(56).gaussian_on_grid(n, 0.1, 1.0, 2)
    count = int(np.count_nonzero(multiples))
    assert np.abs(multiples).max() <= 1
    assert stats.binomtest(count, n, 2 * special.ndtr(-5.0)).pvalue > ALPHA
    assert stats.binomtest(count, n, 2 * special.ndtr(-5.0 / 1.3)).pvalue < ALPHA


@pytest.mark.parametrize("exponent", [20, 33, 46])
def test_grid_gaussian_on_a_fine_grid_is_normal(exponent):
    """Rounding to a grid of 2^-20 sigma moves no quantile by more than 1e-6: far below KS."""
    ratio = 2.0**exponent
    x = _core.NoiseSource(57).gaussian_on_grid(N, ratio, 1.0, 2) / ratio
    critical = math.sqrt(math.log(2 / ALPHA) / (2 * N)) + 1e-6
    assert stats.kstest(x, special.ndtr).statistic < critical
    assert stats.kstest(1.02 * x, special.ndtr).statistic > critical
    z = stats.norm.isf(ALPHA / 2)
    assert abs(np.mean(x**2) - 1) * math.sqrt(N / 2) < z
    assert abs(np.mean((1.01 * x) ** 2) - 1) * math.sqrt(N / 2) > z


def test_grid_gaussian_low_bits_are_uniform():
    """On a fine grid the last 10 bits of a multiple are uniform; dropping the last bit shows."""
    multiples = _core.NoiseSource(58).gaussian_on_grid(N, 2.0**40, 1.0, 2)

    def rejects(values):
        counts = np.bincount(values % 1024, minlength=1024)
        expected = len(values) / 1024
        return np.sum((counts - expected) ** 2 / expected) > stats.chi2.isf(ALPHA, 1023)

    assert not rejects(multiples)
    assert rejects(multiples & ~np.int64(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "every"), [(10_000_000, 20), pytest.param(40_000_000, 41, marks=pytest.mark.nightly)]
)
def test_grid_gaussian_shows_no_cells(n, every):
    """Halves of the cells of the sampler, sigma/32 wide, have their probabilities to 4 sigma."""
    ratio = 2.0**40
    sizes = np.abs(_core.NoiseSource(60).gaussian_on_grid(n, ratio, 1.0, 2)) / ratio
    edges = np.arange(0, 4.0625, 1 / 64)
    p = 2 * (special.ndtr(-edges[:-1]) - special.ndtr(-edges[1:]))

    def rejects(values):
        counts = np.histogram(values, edges)[0]
        p_all, counts = np.append(p, 1 - p.sum()), np.append(counts, len(values) - counts.sum())
        expected = len(values) * p_all
        return np.sum((counts - expected) ** 2 / expected) > stats.chi2.isf(ALPHA, len(p))

    assert not rejects(sizes)
    # Six pieces of 8192 counted in the next cell; by night three.
    moved = (sizes > 1) & (sizes < 33 / 32)
    moved &= np.arange(len(sizes)) % every == 0
    assert rejects(sizes + moved / 32)


def test_grid_gaussian_has_its_tails():
    """Counts beyond 3.5 to 5.5 sigma, across the end of the cells at 4.03125 sigma."""
    ratio = 2.0**30
    # 5600 beyond 3.5, of which a scale 1 percent off adds or takes 12 percent: 9 deviations.
    sizes = np.abs(_core.NoiseSource(61).gaussian_on_grid(12_000_000, ratio, 1.0, 2)) / ratio
    edges = [3.5, 4.0, 4.03125, 4.28125, 4.53125, 5.0, 5.5]

    def rejects(scale):
        p_values = [
            stats.binomtest(
                int(np.count_nonzero(scale * sizes > edge)), len(sizes), 2 * special.ndtr(-edge)
            ).pvalue
            for edge in edges
        ]
        return min(p_values) < ALPHA / len(edges)

    assert not rejects(1.0)
    assert rejects(1.01)
    assert rejects(1 / 1.01)


def test_grid_gaussian_signs_and_sizes_are_independent():
    multiples = _core.NoiseSource(59).gaussian_on_grid(N, 2.0**30, 1.0, 2) / 2.0**30
    sign, size = np.sign(multiples), np.abs(multiples)
    z = stats.norm.isf(ALPHA / 2)
    assert abs(sign.sum()) / math.sqrt(N) < z
    assert abs(np.corrcoef(sign, size)[0, 1]) * math.sqrt(N) < z
    for lag in (1, 2, 3, 4096):
        assert abs(np.dot(multiples[:-lag], multiples[lag:])) / math.sqrt(N - lag) < z
    assert abs(np.corrcoef(sign, size + 0.005 * sign)[0, 1]) * math.sqrt(N) > z
