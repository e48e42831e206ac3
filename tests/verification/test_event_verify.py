"""Lists of events, recomputed without the accountant: promises hold, understated ones do not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.certificates import (
    AlternativesEvent,
    ApproximateEvent,
    GaussianEvent,
    ObjectiveEvent,
    ParallelEvent,
    PrivacyEvent,
    PureEvent,
    RandomStoppingEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.verification import compose as choice_check
from dpsvm_fast.verification.compose import recomputed_events
from dpsvm_fast.verification.losses import Curve

A = "add_remove"
DELTA = 1e-5


def gaussian(sigma: float) -> GaussianEvent:
    return GaussianEvent(sigma, 1.0, A)


def best(stopping: str, mean: float, *base: PrivacyEvent) -> RandomStoppingEvent:
    return RandomStoppingEvent(base, stopping, mean, A)


RHO = ZCDPEvent(0.02, A)
OBJECTIVE = ObjectiveEvent("logistic", 1, 8.0, 0.1, None, A)
MIXED = ((gaussian(4.0), PureEvent(0.1, A)), (PureEvent(1.0, A),))
PARTS = ParallelEvent((*MIXED, (RHO,)), A)
LISTS: dict[str, list[PrivacyEvent]] = {
    "gaussian": [gaussian(4.0)] * 3,
    "replace_one": [SubsampledGaussianEvent(8.0, 1.0, 2, "replace_one")],
    "pure and gaussian": [gaussian(4.0), PureEvent(0.2, A), PureEvent(0.2, A)],
    "approximate": [ApproximateEvent(0.5, 1e-6, A), gaussian(4.0)],
    "approximate alone": [ApproximateEvent(0.5, 1e-6, A)] * 3,
    "parallel": [PARTS],
    "parallel, three times": [PARTS] * 3,
    "zcdp and gaussian": [RHO, gaussian(6.0)],
    "zcdp and pure": [RHO, PureEvent(0.3, A)],
    "objective": [OBJECTIVE, PureEvent(0.1, A)],
    "objective and zcdp": [OBJECTIVE, RHO],
    "sampled": [SubsampledGaussianEvent(1.1, 0.01, 300, A), gaussian(5.0), PureEvent(0.1, A)],
    "geometric": [best("geometric", 10.0, gaussian(7.0))],
    "logarithmic": [best("logarithmic", 50.0, gaussian(7.0), PureEvent(0.1, A))],
    "poisson": [best("poisson", 10.0, gaussian(7.0))],
    "geometric zcdp": [best("geometric", 10.0, RHO)],
    "best of parallel": [best("geometric", 10.0, ParallelEvent(MIXED, A))],
    "best and gaussian": [best("geometric", 10.0, gaussian(7.0)), gaussian(3.0)],
    "best and objective": [best("geometric", 10.0, gaussian(7.0)), OBJECTIVE],
    "two bests": [best("geometric", 10.0, gaussian(7.0))] * 2,
    "best of leaks": [best("geometric", 10.0, ApproximateEvent(0.3, 1e-8, A))],
    "alternatives": [AlternativesEvent(MIXED, A)],
    "alternatives and gaussian": [AlternativesEvent(MIXED, A), gaussian(3.0)],
}

# Of kinds that are among others by day.
COVERED = {
    *("parallel, three times", "zcdp and gaussian", "objective and zcdp", "geometric zcdp"),
    *("best and objective", "two bests", "poisson", "alternatives and gaussian"),
}


@pytest.mark.proof("adaptive_composition", "The ledger and the accountant")
@pytest.mark.proof("accountant", "What verify computes")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in COVERED else ()) for name in LISTS],
)
def test_promises_are_confirmed_and_smaller_ones_refused(name: str) -> None:
    events = tuple(LISTS[name])
    promised = composed_epsilon(events, DELTA)
    epsilon, delta, holds = recomputed_events(events, promised, DELTA)
    assert holds
    assert delta <= DELTA * (1.0 + 1e-2)
    # Bounds are bounds: what is recomputed to nearest lies below, and not far.
    assert 0.93 * promised <= epsilon <= promised * (1.0 + 1e-3)
    assert not recomputed_events(events, 0.93 * promised, DELTA)[2]
    assert not recomputed_events(events, promised, 1e-3 * DELTA)[2]


@pytest.mark.parametrize(
    "events",
    [
        [PureEvent(0.3, A)] * 7,
        [ParallelEvent(((PureEvent(0.3, A),) * 2, (PureEvent(0.7, A),)), A)],
        [best("geometric", 10.0, PureEvent(0.5, A)), PureEvent(0.2, A)],
        [best("logarithmic", 10.0, PureEvent(0.5, A), PureEvent(0.1, A))],
        [best("poisson", 3.0, ParallelEvent(((PureEvent(0.5, A),), (PureEvent(0.6, A),)), A))],
        [AlternativesEvent(((PureEvent(0.3, A),) * 2, (PureEvent(0.5, A),)), A)],
    ],
    ids=str,
)
def test_pure_promises_are_exact(events: list[PrivacyEvent]) -> None:
    promised = composed_epsilon(events, 0.0)
    epsilon, delta, holds = recomputed_events(tuple(events), promised, 0.0)
    assert holds
    assert delta == 0.0
    assert epsilon == pytest.approx(promised, rel=1e-12)
    assert not recomputed_events(tuple(events), promised * (1.0 - 1e-9), 0.0)[2]


def test_an_impure_list_has_no_promise_with_delta_zero() -> None:
    for events in LISTS.values():
        epsilon, _, holds = recomputed_events(tuple(events), 100.0, 0.0)
        assert not holds
        assert epsilon == math.inf


def test_what_is_too_much_is_neither_confirmed_nor_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = (OBJECTIVE, RHO, best("geometric", 10.0, gaussian(7.0)))
    assert recomputed_events(curves, 50.0, DELTA)[2]
    monkeypatch.setattr(choice_check, "MOST_CURVES", 1)
    assert recomputed_events(curves, 50.0, DELTA) == (math.inf, 1.0, None)
    monkeypatch.undo()
    within = best("geometric", 10.0, PARTS)
    assert recomputed_events((within,), 50.0, DELTA)[2]
    monkeypatch.setattr(choice_check, "MOST_CHOICES", 3)
    assert recomputed_events((PARTS,), 50.0, DELTA)[2]
    assert recomputed_events((PARTS, PARTS), 50.0, DELTA)[2] is None
    monkeypatch.setattr(choice_check, "MOST_CHOICES", 1)
    assert recomputed_events((within,), 50.0, DELTA)[2] is None


def test_what_a_part_of_too_much_refutes_is_refuted() -> None:
    """Any two of three curves, or all that has no curve, may be more than is claimed."""
    curves = (OBJECTIVE, RHO, best("geometric", 10.0, gaussian(7.0)))
    two = composed_epsilon((OBJECTIVE, RHO), DELTA)
    assert recomputed_events(curves, 0.9 * two, DELTA)[2] is False
    large = (*curves, gaussian(0.5))
    assert (
        recomputed_events(large, 0.9 * composed_epsilon((gaussian(0.5),), DELTA), DELTA)[2] is False
    )
    # What has a curve is not pure.
    assert recomputed_events(curves, 50.0, 0.0)[2] is False


def test_a_curve_becomes_atoms_of_the_same_profile() -> None:
    from dpsvm_fast.verification.losses import gaussian_delta

    curve = Curve.of(lambda e: gaussian_delta(e, 0.5), fall=0.1)
    losses, masses, infinite = curve.atoms()
    assert masses.sum() + infinite == pytest.approx(1.0, abs=1e-3)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        found = float(masses @ np.maximum(-np.expm1(epsilon - losses), 0.0)) + infinite
        assert found == pytest.approx(gaussian_delta(epsilon, 0.5), rel=2e-3)
