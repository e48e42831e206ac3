"""NoisePlanDisplay: the numbers of the plans, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpsvm_fast as dp
from dpsvm_fast.planning import plan_noise
from dpsvm_fast.plotting.displays import NoisePlanDisplay

pytestmark = pytest.mark.usefixtures("closed_figures")

EPSILONS = [1.0, 0.001, 0.1]


def plans(n_samples: int | None = 1347, kind: Any = dp.PrivateLinearSVC, **how: Any) -> Any:
    settings = {"delta": 1e-5, "classes": range(10)} | how
    return [plan_noise(kind(e, **settings), 64, n_samples=n_samples) for e in EPSILONS]


def test_lead_is_that_of_the_plans_in_order() -> None:
    given = plans()
    display = NoisePlanDisplay.from_plans(iter(given))
    ordered = [given[i] for i in (1, 2, 0)]
    for line, name in ((display.survives_, "lead"), (display.largest_, "largest_lead")):
        np.testing.assert_array_equal(line.get_xdata(), sorted(EPSILONS))
        expected = [getattr(plan.decision, name) for plan in ordered]
        np.testing.assert_array_equal(line.get_ydata(), expected)
        assert line.get_marker() in "os"
    assert display.largest_.get_linestyle() != display.survives_.get_linestyle()
    assert display.ax_.get_yscale() == display.ax_.get_xscale() == "log"
    assert "1e-05" in display.ax_.get_xlabel()
    assert display.ax_.get_title(loc="left").endswith("1,347 rows, 64 features, 10 classes")


@pytest.mark.parametrize(
    ("n_samples", "how", "releases"),
    [
        (1347, {}, ["centre and number of rows", "training"]),
        (20_000, {}, ["centre and number of rows", "whitening", "training"]),
        (1347, {"delta": 0.0}, ["centre and number of rows", "training"]),
        (1347, {"kind": dp.ObjectivePerturbationSVC}, ["training"]),
    ],
)
def test_shares_add_up_to_the_budget(
    n_samples: int, how: dict[str, Any], releases: list[str]
) -> None:
    display = NoisePlanDisplay.from_plans(plans(n_samples, **how), kind="budget")
    assert [bars.get_label() for bars in display.bars_] == releases
    heights = np.array([[bar.get_height() for bar in bars] for bars in display.bars_])
    np.testing.assert_allclose(heights.sum(axis=0), 100.0)
    assert (heights.max(axis=1) > 0.0).all()
    hatches = [bars.patches[0].get_hatch() for bars in display.bars_]
    assert len(set(hatches)) == len(hatches)
    first = display.plans[0].centre
    if first is not None and first.mu_share is not None:
        np.testing.assert_allclose(heights[0, 0], 100.0 * first.mu_share)
    unit = display.ax_.get_ylabel()
    assert ("mu" in unit) == (display.plans[0].mu is not None)
