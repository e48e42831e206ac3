"""The accuracy benchmarks: what they promise about privacy holds, on tiny synthetic rows."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benches.papers import adult, budget, op, preprocessing, run  # noqa: E402
from benches.papers.data import bounds, load  # noqa: E402

from dpsvm_fast.accounting import GaussianEvent, PureEvent, composed_delta  # noqa: E402
from dpsvm_fast.losses import Loss  # noqa: E402


def rows_around(seed: int, n_rows: int, n_features: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = 0.5 + rng.normal(size=(n_rows, n_features)) * np.linspace(0.05, 0.5, n_features)
    return preprocessing.unit_rows(X)


def test_public_map_clips_and_scales() -> None:
    transform = preprocessing.public_map(np.array([0.0, 10.0]), np.array([4.0, 20.0]))
    assert np.allclose(transform(np.array([[2.0, 15.0], [-9.0, 90.0]])), [[0.5**0.5] * 2, [0, 1]])
    signed = preprocessing.public_map(np.array([-2.0, -2.0]), np.array([2.0, 2.0]))
    assert np.allclose(signed(np.array([[-2.0, 0.0]])), [[-1.0, 0.0]])


def test_bounds_of_the_named_columns() -> None:
    low, high = bounds("adult", 7, ["race=a", *adult_columns()])
    assert (low[0], high[0]) == (0.0, 1.0)
    assert high[list(adult_columns()).index("age") + 1] == 100.0
    assert bounds("wisdm", 43, [])[1][33] == 5000.0


def adult_columns() -> tuple[str, ...]:
    return ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")


@pytest.mark.parametrize("whitened", [False, True])
def test_preprocessing_records_what_it_spends(*, whitened: bool) -> None:
    n_rows = 4000
    X = rows_around(1, n_rows, 6)
    mu = budget.gaussian_parameter(1.0, 1e-5)
    prepared = preprocessing.gaussian(X, mu, whiten=whitened, seed=3)
    assert prepared.whitened == whitened
    share = preprocessing.CENTRE_SHARE + whitened * preprocessing.WHITEN_SHARE
    events = [event for event in prepared.events if isinstance(event, GaussianEvent)]
    assert len(events) == 1 + whitened
    assert math.fsum(event.mu**2 for event in events) == pytest.approx(share * mu**2)
    out = prepared.transform(X)
    assert np.allclose(np.linalg.norm(out, axis=1), 1.0)
    if whitened:
        # With this little noise the centre is near 0 and no direction dominates.
        assert np.linalg.norm(out.mean(axis=0)) < 0.2
        values = np.linalg.eigvalsh(out.T @ out / n_rows)
        before = np.linalg.eigvalsh(X.T @ X / n_rows)
        assert values[-1] / values[0] < 0.5 * before[-1] / before[0]


def test_one_row_moves_the_released_sums_by_at_most_the_sensitivity() -> None:
    X = rows_around(2, 50, 6)
    together = np.append(X[0], preprocessing.COUNT_SCALE)
    assert np.linalg.norm(together) == pytest.approx(preprocessing.COUNT_SENSITIVITY)
    assert np.linalg.norm(np.outer(X[0], X[0])) == pytest.approx(1.0)


def test_noise_is_drawn_as_the_events_say(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[float] = []
    gaussian, symmetric = preprocessing.noise.gaussian, preprocessing.noise.symmetric_gaussian

    def recorded(shape: int, sigma: float, seed: int | None) -> np.ndarray:
        drawn.append(sigma)
        return gaussian(shape, sigma, seed)

    def recorded_symmetric(side: int, sigma: float, seed: int | None) -> np.ndarray:
        drawn.append(sigma)
        return symmetric(side, sigma, seed)

    monkeypatch.setattr(preprocessing.noise, "gaussian", recorded)
    monkeypatch.setattr(preprocessing.noise, "symmetric_gaussian", recorded_symmetric)
    prepared = preprocessing.gaussian(rows_around(5, 30, 6), 0.3, whiten=True)
    sigmas = [event.sigma for event in prepared.events if isinstance(event, GaussianEvent)]
    assert drawn == sigmas
    pure = preprocessing.pure(np.eye(3), 0.4, 3.0)
    assert pure.events == (PureEvent(epsilon=0.1 * 0.4, adjacency="add_remove"),)


def test_whitening_needs_rows_and_budget() -> None:
    assert preprocessing.worth_whitening(1000, 20, 1.0)
    assert not preprocessing.worth_whitening(1000, 50, 1.0)
    assert not preprocessing.worth_whitening(1000, 20, 0.1)


def test_budget_left_is_exact_and_nearly_all_used() -> None:
    # One score: its law is a closed form, so that this is quick.
    loss = Loss(name="softmax_margin", n_classes=2, smoothing=0.4, margin=1.0)
    for whitened in (False, True):
        own = budget.left_for_model(2.0, 1e-5, loss, 6, 0.1, whitened=whitened)
        mu = budget.gaussian_parameter(2.0, 1e-5)
        prepared = [
            GaussianEvent(
                sigma=1.0 / (math.sqrt(share) * mu), sensitivity=1.0, adjacency="add_remove"
            )
            for share in ((0.07, 0.10) if whitened else (0.07,))
        ]
        spent = composed_delta([*prepared, *budget._events(own, 1e-5, loss, 6, 0.1)], 2.0)
        assert 0.99e-5 <= spent <= 1e-5 * (1.0 + 1e-9)
        # Negative control: one percent more epsilon for the model is too much.
        more = composed_delta([*prepared, *budget._events(1.01 * own, 1e-5, loss, 6, 0.1)], 2.0)
        assert more > 1e-5


def test_search_ends_on_the_safe_side() -> None:
    found = budget.largest_within(lambda x: 3.0 * math.log(x / 0.7), 0.1, 1.0)
    assert 0.69 < found <= 0.7
    assert budget.largest_within(lambda x: x - 2.0, 0.1, 1.0) == 1.0
    with pytest.raises(ValueError, match="pre-processing"):
        budget.largest_within(lambda x: x, 0.1, 1.0)


def test_missing_data_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("DPSVM_DATA", raising=False)
    assert load("usps") is None
    assert run.main(["op", "--data", "usps", "--out", str(tmp_path)]) == 0
    assert "SKIPPED usps" in capsys.readouterr().out


def test_pipelines_run_and_are_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    y = rng.integers(0, 4, 240)
    X = (np.eye(4, 18)[y] + 0.1 * rng.random((240, 18))) * 100.0 + 50.0
    np.savez(tmp_path / "vehicle.npz", X=X, y=y)
    monkeypatch.setenv("DPSVM_DATA", str(tmp_path))
    monkeypatch.setattr(op, "EPSILONS", (8.0,))
    monkeypatch.setitem(op.PROTOTYPE, "vehicle", (0.5,))
    monkeypatch.setitem(op.PAPER, "vehicle", (0.5,))
    assert run.main(["op", "--data", "vehicle", "--repeats", "2", "--out", str(tmp_path)]) == 0
    table = op.analyse(run.tables.read(tmp_path / "papers_op_runs.csv")[0])
    assert float(table[0]["delta"]) <= 1e-5
    assert float(table[0]["accuracy"]) > 0.5
    too_low = table[0] | {"difference": "-0.5", "delta": "2e-05"}
    assert len(op.failures([too_low])) == 2


def test_errors_above_the_paper_are_named() -> None:
    rows = [
        {"amounts": "linear", "epsilon": "0.1", "spent": "0.1", "error": error}
        for error in ("0.2", "0.22")
    ]
    table = adult.analyse(rows)
    assert float(table[0]["error"]) == pytest.approx(0.21)
    assert len(adult.failures(table)) == 1
    assert adult.failures([table[0] | {"error": "0.18"}]) == []
