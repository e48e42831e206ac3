"""Numbers on docs/proofs/gaussian_margin.md that the mechanism has to share."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import pytest

from dpsvm_fast import _core
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms.gaussian_margin import CONSTANT, GaussianMargin
from oracles.plans import plan_of

pytestmark = pytest.mark.proof("gaussian_margin")


def test_traces_round_nothing_away_from_the_noise() -> None:
    """The linear term stays on the noise's grid: subtracting the traces gives the noise itself."""
    margins = partial(plan_of, GaussianMargin, loss="softmax_margin", smoothing=0.4, tol=1e-8)
    plain, traced = (margins(trace_weight=weight) for weight in (0.0, 1 / 3))
    noise, term = (m.draw_linear(_core.NoiseSource(5), n_threads=1) for m in (plain, traced))
    grid = traced.solver.inside.grid
    assert grid is not None
    weight = round(1 / 3 / grid) * grid
    assert 0.0 < abs(weight - 1 / 3) <= 0.5 * grid
    moved = [0, 4, 7]
    exact = [[Fraction(float(x)) + Fraction(weight) for x in row[moved]] for row in noise]
    assert [[Fraction(float(x)) for x in row[moved]] for row in term] == exact
    # Without the grid the low bits would be lost, another distance than the one declared.
    plainly = [[Fraction(float(x) + 1 / 3) for x in row[moved]] for row in noise]
    wanted = [[Fraction(float(x)) + Fraction(1 / 3) for x in row[moved]] for row in noise]
    assert plainly != wanted
    with pytest.raises(InvalidParameterError, match="trace_weight"):
        margins(trace_weight=1e9)


@pytest.mark.parametrize(("K", "M"), [(2, 1), (3, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("loss", ["softmax_margin", "huber_ww"])
def test_the_code_has_the_constants_of_the_page(loss: str, K: int, M: int) -> None:
    assert CONSTANT == 0.5
    scores, smoothing, rho = (K - 1) * M + 1, 0.4, 1.3
    found = plan_of(
        GaussianMargin, delta=0.0, adjacency="replace_one", loss=loss, smoothing=smoothing,
        n_classes=K, n_ellipsoids=M, n_features=2, data_norm=7.0,
    )  # fmt: skip
    table = found.score_loss
    unit = rho / smoothing
    if loss == "softmax_margin":
        lipschitz, price = math.sqrt(2.0), (scores - 1) * math.log1p(unit / scores)
    else:
        lipschitz = math.sqrt(scores * (scores - 1))
        price = math.log1p(unit * scores / 2) + (scores - 2) * math.log1p(unit / 2)
    assert (table.n_scores, table.temperature) == (scores, smoothing)
    assert table.lipschitz == pytest.approx(lipschitz, rel=1e-12)
    assert table.jacobian(unit) == pytest.approx(price, rel=1e-12)
    assert found.solver.row_norm == 1.0
    assert found.solver.shape == (K * M, 6)
    if found.anchors is not None:
        assert found.anchors.sum.sensitivity == pytest.approx(2.0 * math.sqrt(1.25), rel=1e-12)
