"""Numbers behind docs/proofs/private_scaling.md, each from first principles."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from dpsvm_fast import PrivateLinearSVC, PrivateStandardScaler, total_privacy
from dpsvm_fast.mechanisms import moments as scaling
from dpsvm_fast.mechanisms.moments import NoisyColumnMoments
from dpsvm_fast.verification import verify

B, T = Fraction(11, 8), Fraction(49, 64)
ETA = Fraction(1, 2**20)


def squared(z: Fraction, *, up: bool = True) -> Fraction:
    """z^2 rounded to a multiple of 2^-20."""
    units = z * z / ETA
    return (math.ceil(units) if up else math.floor(units)) * ETA


def length(z: Fraction, q: Fraction, offset: Fraction = T) -> Fraction:
    """Squared length of one feature's pair."""
    return z * z + (B * (q - offset)) ** 2


def points() -> list[Fraction]:
    """Multiples of 2^-20 in [-1, 1]: evenly spread, and beside 0, ends and turning points."""
    rng = np.random.default_rng(2)
    whole = [round(float(x) * 2**20) for x in np.linspace(-1.0, 1.0, 41)]
    near = [c + k for c in (0, 2**20, -(2**20), 2**19, 800_000) for k in range(-3, 4)]
    drawn = [int(x) for x in rng.integers(-(2**20), 2**20, 60)]
    return [k * ETA for k in {*whole, *near, *drawn} if abs(k) <= 2**20]


@pytest.mark.proof("private_scaling")
def test_no_record_is_longer_than_the_bound() -> None:
    lengths = [length(z, squared(z)) for z in points()]
    assert max(lengths) == (B * T) ** 2 == Fraction(539, 512) ** 2
    # Both ends are nearly as long: neither mean nor square could have more for nothing.
    assert length(Fraction(1), squared(Fraction(1))) > Fraction(99, 100) * (B * T) ** 2
    # Without the offset the bound would be 1 + b^2.
    assert length(Fraction(1), Fraction(1), Fraction(0)) == 1 + B**2


@pytest.mark.proof("private_scaling")
def test_no_exchange_moves_further_than_the_bound() -> None:
    zs = points()
    largest = max(
        (z - other) ** 2 + B**2 * (squared(z) - squared(other)) ** 2 for z in zs for other in zs
    )
    assert largest == 4
    found = [
        (z - other) ** 2 + B**2 * (squared(z) - squared(other)) ** 2
        for z in zs
        for other in zs
        if abs(z - other) < 2
    ]
    assert max(found) < 4


@pytest.mark.proof("private_scaling")
def test_rounding_squares_down_would_be_wrong() -> None:
    """With b = 1/2 of the pair (z, 1 - q) the bound 1 is met exactly, and only upwards."""

    def pair(z: Fraction, *, up: bool) -> Fraction:
        return z * z + (1 - squared(z, up=up)) ** 2

    zs = points()
    assert max(pair(z, up=True) for z in zs) == 1
    assert max(pair(z, up=False) for z in zs) > 1


@pytest.mark.proof("private_scaling")
@pytest.mark.parametrize("share", [0.5, 1.0, 1.5, 2.0])
def test_larger_weights_of_the_square_cost_more(share: float) -> None:
    """The largest squared distance of (z, b z^2) is 4 up to b^2 = 2.77, and more beyond."""
    threshold = 4.0 / (8.0 * (3.0 - math.sqrt(5.0)) * (math.sqrt(5.0) - 2.0))
    assert threshold == pytest.approx(2.7725, abs=1e-4)
    square = share * threshold
    x = np.linspace(0.0, 2.0, 400_001)
    largest = float((x**2 + square * (x * (2.0 - x)) ** 2).max())
    if share <= 1.0:
        assert largest == pytest.approx(4.0)
    else:
        at = 0.5 * (3.0 - math.sqrt(1.0 - 2.0 / square))
        assert largest == pytest.approx(at**3 / (2.0 * (at - 1.0)))
        assert largest > 4.1


@pytest.mark.proof("private_scaling")
def test_a_scaler_fitted_on_records_tells_one_of_them() -> None:
    rows = np.array([[0.0], [1.0], [2.0]])
    first = StandardScaler().fit(rows).transform([[1.0]])
    second = StandardScaler().fit(np.vstack([rows, [[1e6]]])).transform([[1.0]])
    # The scaled copy of another record moves by any amount, whatever is trained on it.
    assert first[0, 0] == 0.0
    assert second[0, 0] < -0.5


def fitted_pipeline(whiten: bool | str) -> PrivateLinearSVC:
    """Noise in an objective behind a centre; too few rows to whiten unless that is demanded."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 30)), rng.integers(0, 2, 150)
    model = PrivateLinearSVC(1.0, 1e-6, classes=[0, 1], mechanism="objective", whiten=whiten)
    return model.fit(X, y)


@pytest.mark.proof("private_scaling")
def test_a_path_that_was_not_taken_is_paid_for() -> None:
    """Whether to whiten follows from a released number: the total is that of the dearest path."""
    skipped, whitened, never = (fitted_pipeline(whiten) for whiten in ("auto", True, False))
    assert not skipped.whitened_
    assert whitened.whitened_
    totals = [total_privacy(model, delta=1e-6).epsilon for model in (skipped, whitened, never)]
    assert totals[0] == pytest.approx(totals[1], rel=1e-9)
    assert 0.99 < totals[0] <= 1.0
    for model in (skipped, whitened, never):
        assert verify(model.privacy_)
        assert verify(total_privacy(model))
    # A certificate is about all of its events: a cheaper one behind them is another claim.
    record = skipped.privacy_.to_dict()
    record["events"][-1]["sigma"] *= 0.5
    assert not verify(record)


@pytest.mark.proof("private_scaling")
@pytest.mark.parametrize("with_std", [True, False])
@pytest.mark.parametrize("d", [1, 2, 30, 1000])
def test_the_code_has_the_constants_of_the_page(d: int, with_std: bool) -> None:
    assert (scaling.SQUARE_WEIGHT, scaling.SQUARE_OFFSET, scaling.PAIR_NORM) == (B, T, B * T)
    square = float(B * T) ** 2 if with_std else 1.0
    for adjacency in ("add_remove", "replace_one"):
        found = NoisyColumnMoments(
            n_features=d, adjacency=adjacency, noise_grid="exact", with_std=with_std, mu=0.5
        )
        weight = float(found.count_weight)
        assert d**0.25 - 2.0**-10 < weight <= d**0.25
        exact = math.sqrt(d * square + weight**2) if found.counts else 2.0 * math.sqrt(d)
        assert exact * (1.0 - 1e-15) <= found.sum.sensitivity <= exact * (1.0 + 1e-12)


# ---------------------------------------------------------------------------------- running sums

N_PERIODS, D = 7, 3


def released(rows: list[tuple[int, np.ndarray]], until: int, adjacency: str) -> np.ndarray:
    """All releases of running sums, shape (until, numbers), with the noise of one seed."""
    model = PrivateStandardScaler(
        1.0, 1e-6, bounds=(-1.0, 1.0), adjacency=adjacency, random_state=5
    )
    for week in range(until):
        so_far = [(period, row) for period, row in rows if period <= week]
        model.fit_periods(
            np.array([row for _, row in so_far]),
            np.array([period for period, _ in so_far]),
            n_periods=N_PERIODS,
        )
    return np.asarray(vars(model)["_running"].releases)


@pytest.mark.proof("private_scaling", "Running sums")
@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("week", [0, 2, N_PERIODS - 1])
def test_a_row_moves_all_releases_by_no_more_than_its_column(adjacency: str, week: int) -> None:
    """With one seed the noise cancels: what is left are the means of two Gaussian laws."""
    rng = np.random.default_rng(3)
    others = [(period, rng.uniform(-1, 1, D)) for period in range(N_PERIODS) for _ in range(3)]
    factor = scaling.square_root_factor(N_PERIODS)
    total = NoisyColumnMoments(
        n_features=D, adjacency=adjacency, noise_grid="exact", mu=1.0, factor=factor
    ).sum
    worst = np.zeros(D) if adjacency == "add_remove" else np.ones(D)
    reached = 0.0
    for row in (worst, rng.uniform(-1, 1, D)):
        there = [*others, (week, row)]
        absent = others if adjacency == "add_remove" else [*others, (week, -row)]
        moved = released(there, N_PERIODS, adjacency) - released(absent, N_PERIODS, adjacency)
        squares = [sum(Fraction(float(x)) ** 2 for x in release) for release in moved]
        assert not any(squares[:week])
        whole = Fraction(total.sensitivity) ** 2
        assert sum(squares, Fraction(0)) <= whole
        reached = max(reached, float(sum(squares, Fraction(0)) / whole))
        # Each release by itself, as the ledger is charged for it.
        bound = Fraction(total.relation_factor) * Fraction(total.contribution)
        for age, square in enumerate(squares[week:]):
            assert square <= (Fraction(factor[age]) * bound) ** 2 * (1 + Fraction(1, 2**50))
    if week == 0:
        # The bound is met by the oldest row, and one release alone would be too little.
        assert reached > 1.0 - 1e-9
        column = sum(Fraction(c) ** 2 for c in factor)
        assert column > Fraction(5, 3)


@pytest.mark.proof("private_scaling", "Running sums")
def test_all_running_sums_together_cost_the_budget() -> None:
    factor = scaling.square_root_factor(52)
    total = NoisyColumnMoments(
        n_features=D, adjacency="add_remove", noise_grid="exact", mu=0.3, factor=factor
    )
    square = sum(
        (Fraction(c) * Fraction(total.sum.contribution) / Fraction(total.sum.scale)) ** 2
        for c in factor
    )
    assert 0.999 * 0.3**2 < square <= Fraction(0.3) ** 2


@pytest.mark.proof("private_scaling", "Running sums")
def test_weights_add_releases_up_to_all_periods() -> None:
    factor = scaling.square_root_factor(52)
    for n in (1, 2, 13, 52):
        weights = scaling.sums_from(factor, n)
        # The weight of every period in the sum of weighted sums.
        whole = [sum(weights[t] * factor[t - i] for t in range(i, n)) for i in range(n)]
        np.testing.assert_allclose(whole, 1.0, rtol=1e-12)
    column = math.sqrt(sum(c * c for c in factor))
    correlated = column * float(np.linalg.norm(scaling.sums_from(factor, 52)))
    # Beside one fit of all rows 1, with independent noise a period the root of 52.
    assert 2.2 < correlated < 2.4 < math.sqrt(52)


@pytest.mark.proof("private_scaling", "Running sums")
def test_noise_is_drawn_anew_for_every_release() -> None:
    n_columns = 400
    model = PrivateStandardScaler(1.0, 1e-6, bounds=(-1.0, 1.0), adjacency="replace_one")
    zeros = np.zeros((2, n_columns))
    for _ in range(3):
        model.fit_periods(zeros, np.zeros(2, dtype=int), n_periods=3)
    (part,) = model.privacy_.parts
    releases = vars(model)["_running"].releases[:, :n_columns] / part.sigma
    # Of 400 normal numbers, each off by six deviations with probability 2e-9.
    assert np.all(np.abs((releases**2).mean(axis=1) - 1.0) < 6.0 * math.sqrt(2.0 / n_columns))
    products = np.array([(releases[i] * releases[j]).mean() for i, j in ((0, 1), (0, 2), (1, 2))])
    assert np.all(np.abs(products) < 6.0 / math.sqrt(n_columns))
