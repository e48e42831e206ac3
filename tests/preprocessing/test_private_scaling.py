"""PrivateStandardScaler and PublicScaler: what they release, spend, refuse and transform."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse, stats

import dpsvm_fast as dp
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError
from dpsvm_fast.persist import load_model, save_model

ALPHA = 1e-6
RNG = np.random.default_rng(0)
D = 6
X: NDArray[np.float64] = RNG.normal(size=(5000, D)) * np.geomspace(0.2, 2.0, D) + np.arange(D) / 2
LOW, HIGH = np.full(D, -4.0), np.linspace(4.0, 9.0, D)
BOUNDS = (LOW, HIGH)
RELATIONS = ("add_remove", "replace_one")


def scaler(*budget: float, **options: Any) -> dp.PrivateStandardScaler:
    return dp.PrivateStandardScaler(*budget, **{"bounds": BOUNDS} | options)


@pytest.mark.parametrize("field", ["shape", "relation_factor", "name"])
def test_a_certificate_is_about_its_number_of_features(field: str) -> None:
    """The bound of one record follows from the shape, and an exchange moves by more than one."""
    record = scaler(adjacency="replace_one").fit(X).privacy_.to_dict()
    part = record["parts"][0]
    part[field] = {"shape": [14], "relation_factor": 1.5, "name": "means"}[field]
    part["n_numbers"] = math.prod(part["shape"])
    assert not dp.verify(record)


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_without_noise_to_speak_of_it_standardises(adjacency: str) -> None:
    fitted = scaler(1e4, 0.1, adjacency=adjacency).fit(X)
    rows = np.clip(X, LOW, HIGH)
    assert np.allclose(fitted.mean_, rows.mean(axis=0), atol=1e-3)
    assert np.allclose(fitted.scale_, rows.std(axis=0), rtol=1e-2)
    assert np.allclose(fitted.var_, fitted.scale_**2)
    assert fitted.n_samples_seen_ == pytest.approx(5000.0, abs=0.1)
    out = fitted.transform(X)
    assert np.allclose(out, (rows - fitted.mean_) / fitted.scale_)
    assert np.allclose(fitted.inverse_transform(out), rows)


def test_means_alone() -> None:
    fitted = scaler(1e4, 0.1, with_std=False).fit(X)
    assert fitted.scale_ is None
    assert fitted.var_ is None
    rows = np.clip(X, LOW, HIGH)
    assert np.allclose(fitted.transform(X), rows - fitted.mean_)
    assert np.allclose(fitted.inverse_transform(fitted.transform(X)), rows)
    assert (np.linalg.norm(fitted.transform(X), axis=1) <= fitted.data_norm_).all()
    # All of the budget is the means'.
    both = scaler(1e4, 0.1).fit(X).privacy_.parts[0].sigma
    assert fitted.privacy_.parts[0].sigma < both


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_a_public_number_bounds_every_row(adjacency: str) -> None:
    fitted = scaler(0.5, adjacency=adjacency).fit(X)
    corner = np.where(HIGH - fitted.mean_ > fitted.mean_ - LOW, HIGH, LOW)
    rows = np.vstack([X * 100.0, corner, LOW, HIGH])
    lengths = np.linalg.norm(fitted.transform(rows), axis=1)
    assert (lengths <= fitted.data_norm_).all()
    assert lengths.max() >= fitted.data_norm_ * (1.0 - 1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_the_noise_in_means_and_variances_has_the_stated_law(adjacency: str) -> None:
    """Without the post-processing, squares over sigma^2 are chi-square; over less they are not."""
    n, d, z = 400, 3000, 0.5
    rows = np.full((n, d), z)
    rows[::2] *= -1.0
    fitted = dp.PrivateStandardScaler(200.0, 1e-5, bounds=(-1, 1), adjacency=adjacency).fit(rows)
    sigma, count = fitted.privacy_.parts[0].sigma, fitted.n_samples_seen_
    kept = (1.0 / 3.0) / (1.0 / 3.0 + (sigma / count) ** 2)
    assert np.abs(fitted.mean_).max() < 0.9
    of_means = fitted.mean_ * count / kept
    squares = fitted.var_ + fitted.mean_**2
    assert fitted.var_.min() > 0.1
    # The sum of 11/8 (z^2 - 49/64) is that of n records, told as one of the noisy count.
    of_squares = (squares - 49.0 / 64.0) * count * 11.0 / 8.0 - n * (
        z**2 - 49.0 / 64.0
    ) * 11.0 / 8.0
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], df=d)
    for noise in (of_means, of_squares):
        assert low <= float(((noise / sigma) ** 2).sum()) <= high
        assert not low <= float(((noise / (0.85 * sigma)) ** 2).sum()) <= high


def test_noise_never_blows_a_column_up() -> None:
    """A constant column, one dominated by noise, and one record: scales stay public or larger."""
    constant = np.column_stack([np.full(5000, 1.0), X[:, 5]])
    fitted = dp.PrivateStandardScaler(1.0, bounds=(-9, 9)).fit(constant)
    told = 8.0 / 11.0 * fitted.privacy_.parts[0].sigma / fitted.n_samples_seen_
    assert (fitted.scale_[0] / 9.0) ** 2 >= 2.0 * told
    assert np.abs(fitted.transform(constant)[:, 0]).max() < 0.5
    alone = dp.PrivateStandardScaler(0.1, bounds=(-9, 9)).fit(constant[:1])
    assert np.allclose(alone.scale_, 9.0 / math.sqrt(3.0))
    tight = dp.PrivateStandardScaler(1e4, 0.1, bounds=(0, 1)).fit(np.zeros((100000, 1)))
    assert tight.scale_[0] >= 0.5 * 2.0**-10


def test_bounds_are_asked_for() -> None:
    for kind in (dp.PublicScaler, dp.PrivateStandardScaler):
        with pytest.raises(TypeError, match="bounds"):
            kind()


def test_a_public_scaler_maps_bounds_to_units() -> None:
    public = dp.PublicScaler(BOUNDS).fit(X)
    out = public.transform(X)
    assert np.allclose(out, np.clip((X - LOW) / (HIGH - LOW), 0.0, 1.0))
    assert np.allclose(public.inverse_transform(out), np.clip(X, LOW, HIGH))
    around = dp.PublicScaler((-2.0, 2.0)).fit(X)
    assert np.allclose(around.transform(X), np.clip(X / 2.0, -1.0, 1.0))
    assert np.allclose(around.inverse_transform(around.transform(X)), np.clip(X, -2.0, 2.0))
    # It learns nothing: any rows fit it alike, or none.
    assert np.array_equal(dp.PublicScaler(BOUNDS).fit(X[:1]).transform(X), out)
    assert np.array_equal(dp.PublicScaler(BOUNDS).transform(X), out)


def test_sparse_rows_stay_sparse_where_zeros_stay_zeros() -> None:
    given = sparse.csr_matrix(np.where(X > 0.5, X, 0.0))
    for bounds in ((0.0, 3.0), (-3.0, 3.0)):
        public = dp.PublicScaler(bounds).fit(given)
        out = public.transform(given)
        assert sparse.issparse(out)
        assert np.allclose(out.toarray(), public.transform(given.toarray()))
        back = public.inverse_transform(out)
        assert sparse.issparse(back)
        assert np.allclose(back.toarray(), np.clip(given.toarray(), *bounds))
    with pytest.raises(InvalidParameterError, match="sparse"):
        dp.PublicScaler((1.0, 3.0)).fit(given)
    fitted = dp.PublicScaler((1.0, 3.0)).fit(X)
    for method in (fitted.transform, fitted.inverse_transform):
        with pytest.raises(InvalidParameterError, match="sparse"):
            method(given)


# ------------------------------------------------------------------------- releases of every period

WEEKS = ("W1", "W2", "W3", "W4")
PERIODS = np.repeat(np.arange(len(WEEKS)), 1250)


def rows_until(week: int) -> tuple[Any, Any]:
    return X[week >= PERIODS], PERIODS[week >= PERIODS]


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_a_scaler_of_every_week_costs_one_budget(adjacency: str, noise_grid: str) -> None:
    ledger = dp.PrivacyLedger(2.0, 1e-5, adjacency, periods=WEEKS)
    running = scaler(2.0, 1e-5, adjacency=adjacency, noise_grid=noise_grid)
    for week in range(len(WEEKS)):
        running.set_params(ledger=ledger.for_periods(*WEEKS[: week + 1]))
        running.fit_periods(*rows_until(week), n_periods=4 if week == 0 else None)
        assert dp.verify(running.privacy_), str(dp.verify(running.privacy_))
        # It may continue in another process.
        running = pickle.loads(pickle.dumps(running))
    assert (running.privacy_.epsilon, running.privacy_.delta) == (2.0, 1e-5)
    totals = [ledger.for_periods(week).total()[0] for week in WEEKS]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] == pytest.approx(2.0, rel=1e-6)
    assert running.n_samples_seen_ == pytest.approx(len(X), rel=0.05)
    np.testing.assert_allclose(running.mean_, X.clip(LOW, HIGH).mean(axis=0), atol=0.25)
    np.testing.assert_allclose(running.scale_, X.clip(LOW, HIGH).std(axis=0), atol=0.3)
    (part,) = running.privacy_.parts
    assert part.factor == (1.0, 0.5, 0.375, 0.3125)
    for forged in ([1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.375, 0.3125], [1.0, 0.5, 0.375]):
        record = running.privacy_.to_dict()
        record["parts"][0]["factor"] = forged
        assert not dp.verify(record)


def test_a_copy_that_goes_on_is_charged_again() -> None:
    ledger = dp.PrivacyLedger(2.0, 1e-5, periods=WEEKS[:2])
    first = scaler(2.0, 1e-5, ledger=ledger.for_periods("W1"))
    first.fit_periods(*rows_until(0), n_periods=2)
    twin = pickle.loads(pickle.dumps(first))
    for one in (first, twin):
        one.set_params(ledger=ledger.for_periods("W1", "W2"))
    first.fit_periods(*rows_until(1))
    seen = len(vars(twin)["_running"].releases)
    with pytest.raises(BudgetExceededError):
        twin.fit_periods(*rows_until(1))
    assert len(vars(twin)["_running"].releases) == seen == 1


def test_one_period_is_a_fit() -> None:
    once = scaler(2.0, 1e-5).fit_periods(*rows_until(0), n_periods=1)
    assert once.privacy_.events == scaler(2.0, 1e-5).fit(X).privacy_.events


@pytest.mark.parametrize(("max_weight", "count"), [(0.5, 2500.0), (2.0, 1250.0)])
def test_rows_of_periods_count_as_shares_of_the_largest_weight(
    max_weight: float, count: float
) -> None:
    running = scaler(200.0, 1e-2, max_weight=max_weight)
    for week in range(2):
        running.fit_periods(*rows_until(week), n_periods=2 if week == 0 else None)
    assert running.n_samples_seen_ == pytest.approx(count, rel=0.02)
    rows = rows_until(1)[0].clip(LOW, HIGH)
    np.testing.assert_allclose(running.mean_, rows.mean(axis=0), atol=0.05)


def test_running_sums_refuse_what_they_cannot_count(tmp_path: Path) -> None:
    now, weeks = rows_until(0)
    ledger = dp.PrivacyLedger(9.0, 1e-5, periods=WEEKS)
    fresh = scaler(2.0, 1e-5, ledger=ledger)
    for options, parameter in (({}, "ledger"), ({"delta": 0.0}, "delta")):
        with pytest.raises(InvalidParameterError) as caught:
            fresh.set_params(**options).fit_periods(now, weeks, n_periods=4)
        assert caught.value.parameter == parameter
        fresh.set_params(ledger=ledger.for_periods("W1"))
    fresh.set_params(delta=1e-5)
    for wrong in (weeks + 1, weeks - 1):
        with pytest.raises(InvalidParameterError, match="periods"):
            fresh.fit_periods(now, wrong, n_periods=4)
    with pytest.raises(ValueError, match="periods"):
        fresh.fit_periods(now, weeks[1:], n_periods=4)
    with pytest.raises(TypeError, match="periods"):
        fresh.fit_periods(now, weeks / 2.0, n_periods=4)
    for number in (None, 0, 1001):
        with pytest.raises((InvalidParameterError, TypeError), match="n_periods"):
            fresh.fit_periods(now, weeks, n_periods=number)
    assert ledger.history == ()
    fresh.fit_periods(now, weeks, n_periods=2).set_params(ledger=None)
    with pytest.raises(InvalidParameterError, match="n_periods"):
        fresh.fit_periods(*rows_until(1), n_periods=3)
    with pytest.raises(InvalidParameterError, match="epsilon"):
        fresh.set_params(epsilon=1.0).fit_periods(*rows_until(1))
    fresh.set_params(epsilon=2.0).fit_periods(*rows_until(1))
    with pytest.raises(InvalidParameterError, match="n_periods"):
        fresh.fit_periods(*rows_until(2))
    save_model(fresh, tmp_path / "scaler.json")
    for other in (load_model(tmp_path / "scaler.json"), fresh.fit(X)):
        with pytest.raises(InvalidParameterError, match="n_periods"):
            other.fit_periods(now, weeks, n_periods=2)
