"""Numbers behind docs/proofs/federated.md: rounding, sensitivities, survivors, several sums.

What a bound forbids is searched for and what it allows is reached; each condition is dropped once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest

from oracles.federated_laws import Array, hockey_stick

pytestmark = pytest.mark.proof("federated", "What a unit moves, rounding, survivors, several sums")

# Rounding to the grid


def farthest(
    p: int, parties: int, budget: float, rng: np.random.Generator, restarts: int = 40
) -> float:
    """Climb over real vectors at most ``budget`` apart in sum; return the distance of their sums.

    Every party's vector is divided by the step already; a move of the group is spread over parties.
    """
    best = 0.0
    for _ in range(restarts):
        base = rng.integers(-3, 4, (parties, p)) + rng.choice([0.5 - 1e-9, 0.5, 0.1], (parties, p))
        move = rng.standard_normal((parties, p))
        if rng.random() < 0.5:
            move = np.abs(move)
        move *= budget / np.linalg.norm(move, axis=1).sum()
        moved = np.rint(base + move).sum(axis=0) - np.rint(base - 1e-9).sum(axis=0)
        best = max(best, float(np.linalg.norm(moved)))
    return best


@pytest.mark.parametrize(("p", "parties"), [(1, 1), (4, 1), (9, 1), (4, 3), (1, 5)])
def test_rounding_costs_the_root_of_p_for_each_party_touched(p: int, parties: int) -> None:
    rng = np.random.default_rng(p + 10 * parties)
    for budget in (1e-6, 0.5, 3.0):
        found = farthest(p, parties, budget, rng)
        assert found <= budget + parties * math.sqrt(p) * (1 + 2.0**-20) + 1e-6
    tiny = 1e-6
    reached = np.rint(np.full((parties, p), 0.5) + tiny) - np.rint(
        np.full((parties, p), 0.5) - tiny
    )
    assert np.linalg.norm(reached.sum(axis=0)) == parties * math.sqrt(p)


def test_half_of_the_root_is_not_enough() -> None:
    """Controls: one half step, no step, one party's step for a group in three."""
    p, tiny = 9, 1e-6
    step = np.rint(np.full(p, 0.5) + tiny) - np.rint(np.full(p, 0.5) - tiny)
    assert np.linalg.norm(step) > 0.5 * math.sqrt(p) + 2 * tiny * math.sqrt(p)
    assert np.linalg.norm(3 * step) > math.sqrt(p) + 6 * tiny * math.sqrt(p)


def test_arithmetic_before_the_rounding_is_within_its_allowance() -> None:
    """n (c f)/g with c = min(1, R/|f|) in doubles, against the same in rationals."""
    rng = np.random.default_rng(5)
    worst = 0.0
    for _ in range(300):
        f = rng.standard_normal(5) * 10.0 ** rng.uniform(-3, 3)
        radius = float(np.abs(f).max() * rng.uniform(0.1, 1))
        n = int(rng.integers(1, 10**6))
        norm = math.sqrt(math.fsum(f * f))
        step = n * radius / 2.0**29 * (1 + rng.random())
        computed = n * (radius / norm * f) / step
        exact_norm = Fraction(math.isqrt(int(sum(Fraction(x) ** 2 for x in f) * 4**90))) / 2**90
        exact = [n * Fraction(radius) / exact_norm * Fraction(x) / Fraction(step) for x in f]
        errors = [float(Fraction(c) - e) for c, e in zip(computed, exact, strict=True)]
        worst = max(worst, math.hypot(*errors))
    assert 2.0**-26 < worst <= 2.0**-21


# Sensitivity of weighted blind averaging


def minimiser(x: Array, y: Array, lam: float) -> Array:
    """Mean-form logistic regression, by Newton's method."""
    w = np.zeros(x.shape[1])
    for _ in range(40):
        u = 1 / (1 + np.exp(y * (x @ w)))
        gradient = lam * w - (y * u) @ x / len(y)
        hessian = lam * np.eye(w.size) + (x.T * (u * (1 - u))) @ x / len(y)
        w = w - np.linalg.solve(hessian, gradient)
    return np.asarray(w)


def projected(w: Array, radius: float) -> Array:
    norm = float(np.linalg.norm(w))
    return w if norm <= radius else w * (radius / norm)


def unit_rows(rng: np.random.Generator, n: int, d: int = 2) -> Array:
    x = rng.standard_normal((n, d))
    return np.asarray(x / np.maximum(1, np.linalg.norm(x, axis=1))[:, None])


def climb_one_record(n: int, lam: float, radius: float, seed: int) -> float:
    """Search for the exchange of one record that moves n times a party's model most."""
    rng = np.random.default_rng(seed)
    x, y = unit_rows(rng, n), rng.choice([-1.0, 1.0], n)
    other = -x[0].copy()
    best = 0.0
    for _ in range(60):
        trial, labels, new = x.copy(), y.copy(), other + 0.3 * rng.standard_normal(2)
        i = int(rng.integers(n))
        trial[i] += 0.5 * rng.standard_normal(2)
        trial /= np.maximum(1, np.linalg.norm(trial, axis=1))[:, None]
        new /= max(1, np.linalg.norm(new))
        if rng.random() < 0.3:
            labels[i] = -labels[i]
        neighbour = trial.copy()
        neighbour[0] = new
        a = projected(minimiser(trial, labels, lam), radius)
        b = projected(minimiser(neighbour, labels, lam), radius)
        moved = n * float(np.linalg.norm(a - b))
        if moved > best:
            best, x, y, other = moved, trial, labels, new
    return best


@pytest.mark.sampled
@pytest.mark.parametrize("n", [1, 3, 12])
@pytest.mark.parametrize("lam", [0.05, 2.0])
def test_one_record_moves_a_weighted_model_by_no_more_whatever_the_size(n: int, lam: float) -> None:
    for radius in (math.inf, 1.0 / lam, 0.2 / lam):
        found = climb_one_record(n, lam, radius, 7)
        assert found <= 2 / lam
        assert found <= 2 * n * radius


def test_the_bound_is_reached_at_every_size() -> None:
    """Huber's hinge is linear near 0: n f = (1/Lam) sum y x exactly, for parties of any size."""
    lam = 4.0
    for n in (1, 5, 400):
        x = np.tile([1.0, 0.0], (n, 1))
        neighbour = x.copy()
        neighbour[0] *= -1
        moved = n * np.abs((x.mean(axis=0) - neighbour.mean(axis=0)) / lam).max()
        assert moved == pytest.approx(2 / lam, rel=1e-12)


def test_without_weights_the_smallest_party_decides() -> None:
    """Control: a bound from the mean or largest size is exceeded by the smallest party."""
    lam, sizes = 4.0, (2, 50)
    moves = [2 / (n * lam) for n in sizes]
    assert max(moves) == 2 / (min(sizes) * lam)
    assert max(moves) > 2 / (np.mean(sizes) * lam)


def test_scaling_every_model_to_the_sphere_is_not_a_projection() -> None:
    """Control: R f/|f| (as printed in the paper) moves nearly 2R where f moves a little."""
    lam, radius = 1.0, 1.0
    x = np.array([[1.0, 0.0], [-1.0, 0.0], [0.01, 0.0]])
    y = np.ones(3)
    neighbour = x.copy()
    neighbour[2, 0] = -0.01
    a, b = minimiser(x, y, lam), minimiser(neighbour, y, lam)
    assert 3 * np.linalg.norm(projected(a, radius) - projected(b, radius)) < 2 / lam
    sphere = 3 * np.linalg.norm(radius * a / np.linalg.norm(a) - radius * b / np.linalg.norm(b))
    assert sphere > 2 / lam


def test_projections_on_balls_and_products_of_balls_do_not_expand() -> None:
    rng = np.random.default_rng(0)
    for _ in range(400):
        a, b = rng.standard_normal((2, 3, 4)) * 10 ** rng.uniform(-1, 1)
        joint = projected(a.ravel(), 1.0) - projected(b.ravel(), 1.0)
        classes = np.array(
            [projected(u, 1.0) - projected(v, 1.0) for u, v in zip(a, b, strict=True)]
        )
        assert max(np.linalg.norm(joint), np.linalg.norm(classes)) <= np.linalg.norm(a - b)


def test_a_whole_party_moves_the_sum_by_the_diameter() -> None:
    """2 R n is reached, and hiding only one record's move would not hide a party."""
    lam, radius, n = 0.01, 1.0, 50
    x = np.tile([1.0, 0.0], (n, 1))
    a, b = minimiser(x, np.ones(n), lam), minimiser(x, -np.ones(n), lam)
    moved = n * float(np.linalg.norm(projected(a, radius) - projected(b, radius)))
    assert moved == pytest.approx(2 * n * radius)
    assert moved > 2 * radius


def test_natural_radius() -> None:
    rng = np.random.default_rng(4)
    for lam in (0.01, 0.3, 5.0):
        bound = min(1 / lam, math.sqrt(2 * math.log(2) / lam))
        for n in (1, 4, 20):
            x = unit_rows(rng, n)
            w = minimiser(x, np.sign(x[:, 0]), lam)
            assert np.linalg.norm(w) <= bound
    heavy = minimiser(np.array([[1.0, 0.0]]), np.ones(1), 50.0)
    assert np.linalg.norm(heavy) > 0.45 * min(1 / 50.0, math.sqrt(2 * math.log(2) / 50.0))


# Honest survivors


def honest_survivors(users: int, honest: Fraction, needed: int) -> int:
    return needed - (users - math.ceil(honest * users))


@pytest.mark.parametrize("users", [2, 3, 5, 7])
def test_least_number_of_honest_noises_over_all_sets(users: int) -> None:
    everyone = range(users)
    for honest in (Fraction(1, 2), Fraction(2, 3), Fraction(4, 5), Fraction(1)):
        for dropped in range(users):
            needed = users - dropped
            colluders = users - math.ceil(honest * users)
            least = min(
                len(set(alive) - set(bad))
                for bad in itertools.combinations(everyone, colluders)
                for alive in itertools.combinations(everyone, needed)
            )
            assert least == max(0, honest_survivors(users, honest, needed))
            without_drop_outs = honest_survivors(users, honest, users)
            assert least < without_drop_outs or dropped == 0


def test_the_declared_fraction_is_a_decimal_number() -> None:
    """Control: the float nearest to 0.07 is above it, and the ceiling then counts one too many."""
    assert math.ceil(Fraction(str(0.07)) * 100) == 7
    assert math.ceil(Fraction(0.07) * 100) == 8


# What several opened sums tell


def told(views: Iterable[set[int]], victim: int, users: int) -> float:
    """Parameter mu of all the views together: unit move of the victim's vector, unit noise."""
    rows = np.array([[float(i in view) for i in range(users)] for view in views])
    column = rows[:, victim]
    return float(math.sqrt(max(0.0, column @ np.linalg.pinv(rows @ rows.T) @ column)))


def test_two_sums_of_the_same_noised_vectors_uncover_a_party() -> None:
    users, everyone = 6, set(range(6))
    once = told([everyone], 0, users)
    assert once == pytest.approx(1 / math.sqrt(6))
    assert told([everyone, everyone], 0, users) == pytest.approx(once)
    assert told([{0, 1, 2}, {3, 4, 5}], 0, users) == pytest.approx(1 / math.sqrt(3))
    assert told([everyone, everyone - {0}], 0, users) == pytest.approx(1.0)
    assert told([everyone, everyone - {5}], 5, users) == pytest.approx(1.0)
    assert told([everyone, everyone - {5}], 0, users) > once
    for size in range(1, 6):
        for dropped in itertools.combinations(range(1, users), size):
            assert told([everyone, everyone - set(dropped)], 0, users) > once


def test_fresh_noise_makes_two_releases_that_compose() -> None:
    """Both sums of six, with new noise: mu^2 adds; with the old noise a changed set costs more."""
    fresh = math.sqrt(1 / 6 + 1 / 5)
    users, everyone = 6, set(range(6))
    assert told([everyone, everyone - {5}], 5, users) > fresh
    assert fresh > told([everyone], 0, users)


def test_parts_of_a_graph_that_fell_apart_are_sums_of_their_own() -> None:
    """Control: h honest survivors in two components are not h noises."""
    assert told([{0, 1}, {2, 3, 4, 5}], 0, 6) > told([set(range(6))], 0, 6)


def test_shares_below_the_threshold_tell_nothing_and_the_threshold_tells_all() -> None:
    """All polynomials of degree 2 over a small field: pairs of shares fit every secret equally."""
    prime, points = 7, (1, 2, 3, 4)
    pairs: dict[tuple[int, int], list[int]] = {}
    triples: dict[tuple[int, int, int], set[int]] = {}
    for secret, b, c in itertools.product(range(prime), repeat=3):
        first, second, third, _ = ((secret + b * i + c * i * i) % prime for i in points)
        pairs.setdefault((first, second), []).append(secret)
        triples.setdefault((first, second, third), set()).add(secret)
    assert all(sorted(found) == list(range(prime)) for found in pairs.values())
    assert all(len(found) == 1 for found in triples.values())


# Second moments, and models of single parties


def symmetric_coordinates(a: Array) -> Array:
    i, j = np.triu_indices(len(a))
    return np.asarray(a[i, j] * np.where(i == j, 1, math.sqrt(2)))


def test_second_moments_of_a_record_and_of_a_party() -> None:
    rng = np.random.default_rng(8)
    worst = 0.0
    for _ in range(300):
        x, y = unit_rows(rng, 4, 3), unit_rows(rng, 4, 3)
        record = symmetric_coordinates(np.outer(x[0], x[0]) - np.outer(y[0], y[0]))
        party = symmetric_coordinates(x.T @ x - y.T @ y)
        exact = np.linalg.norm(x.T @ x - y.T @ y)
        assert np.linalg.norm(party) == pytest.approx(exact)
        assert np.linalg.norm(record) <= math.sqrt(2)
        assert exact <= 4 * math.sqrt(2)
        worst = max(worst, float(np.linalg.norm(record)))
    unit = np.eye(2)
    reached = symmetric_coordinates(np.outer(unit[0], unit[0]) - np.outer(unit[1], unit[1]))
    assert np.linalg.norm(reached) == pytest.approx(math.sqrt(2))
    assert worst > 1  # control: the sensitivity 1 of the paper is exceeded
    off = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert np.linalg.norm(off[np.triu_indices(2)]) < np.linalg.norm(off)  # without the root of 2


def test_models_of_disjoint_parties_cost_the_most_expensive_one() -> None:
    """Randomised answers of two parties: joint law under a change in one of them."""

    def answer(bit: int, epsilon: float) -> Array:
        keep = 1 / (1 + math.exp(-epsilon))
        return np.array([keep, 1 - keep] if bit == 0 else [1 - keep, keep])

    budgets = (0.4, 0.9)
    base = np.outer(answer(0, budgets[0]), answer(0, budgets[1])).ravel()
    for party in range(2):
        bits = [int(party == k) for k in range(2)]
        other = np.outer(answer(bits[0], budgets[0]), answer(bits[1], budgets[1])).ravel()
        assert hockey_stick(base, other, budgets[party]) < 1e-12
        assert hockey_stick(base, other, budgets[party] - 0.1) > 0.01
    moved = np.outer(answer(1, budgets[0]), answer(1, budgets[1])).ravel()
    assert hockey_stick(base, moved, max(budgets)) > 0.01  # control: one record, one party
