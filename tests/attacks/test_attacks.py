"""The attacker finds what is planted, and nothing else in a short search; its bounds are bounds."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from attacks import targets
from attacks.climb import Climb, moved, numbers_in
from dpsvm_fast.accounting import composed_delta
from dpsvm_fast.certificates import (
    AlternativesEvent,
    ApproximateEvent,
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PureEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from oracles.loss_grid import lower_delta
from oracles.sampled_law import step_delta, two_steps_delta

A, R = "add_remove", "replace_one"
BY_NAME = {target.name: target for target in targets.TARGETS}
# Without those of which one look takes long.
QUICK = (
    *("composed delta", "calibrated noise", "objective, exact pairs", "fits, exact densities"),
    *("verify, softmax", "verify, logistic", "verify, huber", "verify, Weston-Watkins"),
)


def searched(name: str, looks: int, seed: int = 0) -> Climb:
    climb = Climb(BY_NAME[name], np.random.default_rng(seed))
    for _ in range(looks):
        climb.step()
    return climb


@pytest.mark.parametrize("name", QUICK)
def test_a_short_search_finds_nothing(name: str) -> None:
    climb = searched(name, 12)
    assert not climb.found
    assert not climb.crashes
    assert climb.closest(1)[0][1].ratio > 0.1


@pytest.mark.nightly
@pytest.mark.parametrize("name", BY_NAME)
def test_a_search_finds_nothing(name: str) -> None:
    climb = Climb(BY_NAME[name], np.random.default_rng())
    climb.run(60.0)
    assert not climb.found, climb.found[0]
    assert not climb.crashes, climb.crashes[0]


class TestPlanted:
    """Negative controls: a fault of a few percent in every place that is attacked."""

    def test_composition(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(targets, "composed_delta", lambda *a: 0.9 * composed_delta(*a))
        assert searched("composed delta", 25).found
        assert searched("objective, exact pairs", 100).found

    def test_budgets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(targets, "totals_fit", lambda *_: True)
        assert searched("admitted by a ledger", 10).found

    def test_calibration(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = targets.gaussian_sigma
        monkeypatch.setattr(targets, "gaussian_sigma", lambda *a: 0.99 * right(*a))
        assert searched("calibrated noise", 25).found

    def test_verify(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(targets, "recomputed_events", lambda *_: (0.0, 1e-300, True))
        assert searched("verify, events", 10).found

    def test_laws_of_verify(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = targets.recomputed_objective
        monkeypatch.setattr(targets, "recomputed_objective", lambda *a, **k: 0.9 * right(*a, **k))
        assert searched("verify, logistic", 40, seed=2).found

    def test_sensitivity(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from dpsvm_fast.mechanisms import noise as weight_noise

        right = weight_noise.gaussian_sigma
        monkeypatch.setattr(weight_noise, "gaussian_sigma", lambda *a, **k: 0.7 * right(*a, **k))
        assert searched("fits, exact densities", 100).found

    def test_a_function_that_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: Any) -> float:
            raise KeyError("what")

        monkeypatch.setattr(targets, "composed_delta", broken)
        assert searched("composed delta", 10).crashes


class TestLowerBounds:
    @pytest.mark.sampled
    @pytest.mark.parametrize("relation", [A, R])
    @pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
    def test_steps_against_exact_integrals(self, relation: str, epsilon: float) -> None:
        for sigma, rate in ((1.0, 0.3), (2.0, 0.05)):
            exchanged = relation == R
            one = step_delta(epsilon, sigma, rate, 1.0, exchanged)
            two = two_steps_delta(epsilon, sigma, rate, 1.0, exchanged)
            for n, exact in ((1, one), (2, two)):
                found = lower_delta([SubsampledGaussianEvent(sigma, rate, n, relation)], epsilon)
                # The integral in the plane is right to three digits.
                assert 0.97 * exact - 1e-13 <= found <= exact * (1.0 + 2e-3) + 1e-13

    @pytest.mark.parametrize("epsilon", [1e-3, 0.5, 3.0, 12.0])
    def test_events_with_closed_forms_lose_nothing(self, epsilon: float) -> None:
        for events in (
            [GaussianEvent(1.0, 1.0, A)],
            [GaussianEvent(1.0, 1.0, A), PureEvent(0.5, A), PureEvent(0.1, A)],
            [ApproximateEvent(0.3, 1e-6, A), GaussianEvent(3.0, 1.0, A)],
        ):
            exact = composed_delta(events, epsilon)
            assert lower_delta(events, epsilon) == pytest.approx(exact, rel=1e-6, abs=0.0)

    def test_what_is_not_known_is_left_out(self) -> None:
        gaussian = GaussianEvent(1.0, 1.0, R)
        alone = lower_delta([gaussian], 1.0)
        branches = AlternativesEvent(((PureEvent(0.1, R),), (ZCDPEvent(0.5, R),)), R)
        assert lower_delta([gaussian, branches], 1.0) > alone
        objective = ObjectiveEvent("softmax", 3, 2.0, 50.0, None, R)
        events: list[PrivacyEvent] = [gaussian, objective]
        assert alone < lower_delta(events, 1.0) <= composed_delta(events, 1.0)


def test_points_are_json_and_move() -> None:
    rng = np.random.default_rng(3)
    for target in targets.TARGETS:
        point = target.fresh(rng)
        assert json.loads(json.dumps(point)) == point
        assert any(moved(point, rng) != point for _ in range(20))
        assert all(math.isfinite(inner[name]) for inner, name in numbers_in(point))
