"""Law of the noise with density proportional to exp(-beta ||b||).

The radius is Gamma(d, rate beta), the direction uniform on the sphere, the two independent. ALPHA
is the false-alarm probability of each named statistic; Kolmogorov-Smirnov as in
test_noise_gaussian.py; the mean of n radii is normal to O(1 / sqrt(n d)), checked at Z plus 10
percent; counts by their binomial law. Negative controls: a rate 1 percent off, and independent
Laplace coordinates, the classical mistake.
"""

import math

import numpy as np
import pytest
from scipy import special, stats

from dpsvm_fast import _core
from oracles.stored import stored

pytestmark = pytest.mark.statistical

ALPHA = 1e-6
Z = stats.norm.isf(ALPHA / 2)
BETA = 7.25
# Vectors of each dimension. A rate 1 percent off moves the mean of n of them by 0.01 sqrt(n d) of
# its deviations, which is 7 or more where the limit is 5.4.
N = {1: 500_000, 2: 300_000, 3: 200_000, 10: 100_000, 100: 50_000, 1000: 20_000, 10_000: 5000}
CHUNK = 1_000_000  # coordinates held at a time
QUANTILES = stored("gamma_radius_quantiles")["points"]


class Summary:
    """What the tests need of n vectors: radii, first coordinates and sum of the directions."""

    def __init__(self, vectors):
        self.radius = np.linalg.norm(vectors, axis=1)
        directions = vectors / self.radius[:, None]
        self.first = directions[:, 0].copy()
        self.total = directions.sum(axis=0)

    @classmethod
    def join(cls, parts):
        whole = cls.__new__(cls)
        whole.radius = np.concatenate([part.radius for part in parts])
        whole.first = np.concatenate([part.first for part in parts])
        whole.total = np.sum([part.total for part in parts], axis=0)
        return whole


def summarise(d):
    source = _core.NoiseSource(1000 + d)
    left, parts = N[d], []
    while left:
        n = min(left, max(1, CHUNK // d))
        vectors = np.concatenate([source.gamma_ball(d, BETA, 1) for _ in range(n)])
        parts.append(Summary(vectors.reshape(n, d)))
        left -= n
    return Summary.join(parts)


# By day a few dimensions, the smallest and a large one among them.
BY_DAY = (1, 2, 10, 1000)


@pytest.fixture(
    scope="module",
    params=[pytest.param(d, marks=() if d in BY_DAY else pytest.mark.nightly) for d in N],
    ids=lambda d: f"d={d}",
)
def sample(request):
    return request.param, summarise(request.param)


def ks_rejects(x, cdf):
    return stats.kstest(x, cdf).statistic > math.sqrt(math.log(2 / ALPHA) / (2 * len(x)))


def radius_rejects(radius, d):
    return ks_rejects(BETA * radius, lambda x: special.gammainc(d, x))


def mean_rejects(radius, d):
    return abs(np.mean(BETA * radius) / d - 1) * math.sqrt(len(radius) * d) > 1.1 * Z


def direction_rejects(first, d):
    """The square of one coordinate is Beta(1/2, (d - 1)/2); its sign is fair."""
    p = stats.binomtest(int(np.sum(first > 0)), len(first), 0.5).pvalue
    if d == 1:
        return p < ALPHA
    return p < ALPHA or ks_rejects(first**2, lambda x: special.betainc(0.5, (d - 1) / 2, x))


@pytest.mark.proof("output_perturbation", "Noise and grid")
def test_gamma_ball_radius_has_its_law(sample):
    d, noise = sample
    assert not radius_rejects(noise.radius, d)
    assert not mean_rejects(noise.radius, d)
    assert mean_rejects(1.01 * noise.radius, d)
    assert mean_rejects(noise.radius / 1.01, d)
    assert radius_rejects(1.03 * noise.radius, d)


def test_gamma_ball_direction_is_uniform(sample):
    d, noise = sample
    assert not direction_rejects(noise.first, d)
    # Negative controls: one hemisphere; for d > 1 a stretched coordinate. A stretch of 1 + h moves
    # the distribution function by up to 0.48 h, and the critical value is 2.7 / sqrt(n).
    assert direction_rejects(np.abs(noise.first), d)
    if d > 1:
        stretch = 1 + 8 / math.sqrt(len(noise.first))
        assert direction_rejects(np.clip(stretch * noise.first, -1, 1), d)


def test_gamma_ball_directions_cancel(sample):
    """||sum u||^2 d / n is chi-square with d degrees of freedom, to O(1 / n)."""
    d, noise = sample
    n = len(noise.radius)

    def rejects(total):
        statistic = total @ total * d / n
        return min(stats.chi2.sf(statistic, d), stats.chi2.cdf(statistic, d)) < ALPHA / 2

    assert not rejects(noise.total)
    drift = np.zeros(d)
    drift[0] = 20 * math.sqrt(n)
    assert rejects(noise.total + drift)


def test_gamma_ball_radius_and_direction_are_independent(sample):
    """Rank correlations of independent variables are normal with deviation 1 / sqrt(n - 1)."""
    d, noise = sample
    features = [noise.first, np.sign(noise.first)]
    if d > 1:
        features.append(np.abs(noise.first))
    for feature in features:
        r = stats.spearmanr(noise.radius, feature).statistic
        assert abs(r) * math.sqrt(len(noise.radius) - 1) < Z
    mixed = noise.radius * (1 + 0.2 * np.sign(noise.first))
    r = stats.spearmanr(mixed, noise.first).statistic
    assert abs(r) * math.sqrt(len(mixed) - 1) > Z


def test_gamma_ball_radius_meets_the_quantile_file(sample):
    """The count on each side of each tabulated quantile is binomial."""
    d, noise = sample
    points = [point for point in QUANTILES if point["d"] == d]
    if not points:
        pytest.skip("the file has no quantiles in this dimension")

    def rejects(radius):
        for point in points:
            quantile = next(float(s["quantile"]) for s in point["scaled"] if s["beta"] == str(BETA))
            beyond = radius <= quantile if point["tail"] == "lower" else radius > quantile
            test = stats.binomtest(int(beyond.sum()), len(radius), float(point["probability"]))
            if test.pvalue < ALPHA / len(points):
                return True
        return False

    assert not rejects(noise.radius)
    assert rejects(1.03 * noise.radius)


@pytest.mark.proof("output_perturbation", "Noise and grid")
@pytest.mark.parametrize("n", [10_000])
def test_laplace_coordinates_are_rejected(n):
    """Independent Laplace coordinates of the same rate are not the ball's noise for d = 2."""
    laplace = np.random.default_rng(5).laplace(scale=1 / BETA, size=(n, 2))
    wrong = Summary(laplace)
    assert radius_rejects(wrong.radius, 2)
    # Even with the right radius, the direction gives it away.
    assert direction_rejects(wrong.first, 2)
    source = _core.NoiseSource(6)
    right = Summary(np.stack([source.gamma_ball(2, BETA, 1) for _ in range(n)]))
    assert not radius_rejects(right.radius, 2)
    assert not direction_rejects(right.first, 2)


@pytest.mark.slow
def test_large_dimension():
    """One vector of 1e6 coordinates: its coordinates times beta / sqrt(d) are nearly normal."""
    d = 1_000_000
    noise = _core.NoiseSource(3).gamma_ball(d, BETA, 2)
    radius = np.linalg.norm(noise)
    p = special.gammainc(d, BETA * radius)
    assert ALPHA / 2 < p < 1 - ALPHA / 2
    # Dividing by the norm changes the law of a coordinate by O(1 / d).
    assert not ks_rejects(noise / radius * math.sqrt(d), special.ndtr)
    assert ks_rejects(1.02 * noise / radius * math.sqrt(d), special.ndtr)
