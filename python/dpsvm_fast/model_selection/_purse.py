"""The purse of one candidate: it pays for exactly the events that its search has paid for."""

from __future__ import annotations

from dpsvm_fast.accounting import (
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PrivacyLedger,
    PureEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.exceptions import BudgetExceededError

__all__ = ["CandidateLedger", "covers"]


class CandidateLedger(PrivacyLedger):
    """A ledger for one fit, whose events were charged elsewhere beforehand.

    Parameters
    ----------
    epsilon : float
    delta : float
    adjacency : {"add_remove", "replace_one"}
    planned : tuple of PrivacyEvent
        What may be spent, in this order, each event once. One that is not covered by the next of
        these is refused, before anything is drawn.
    """

    def __init__(
        self, epsilon: float, delta: float, adjacency: str, planned: tuple[PrivacyEvent, ...]
    ) -> None:
        super().__init__(epsilon, delta, adjacency)
        self._planned = planned
        self._paid = 0

    def spend(self, event: PrivacyEvent | tuple[PrivacyEvent, ...], label: str = "") -> None:
        """Record events that were planned; refuse all others."""
        events = event if isinstance(event, tuple) else (event,)
        with self._lock:
            plan = self._planned[self._paid :][: len(events)]
            if len(plan) < len(events) or not all(map(covers, plan, events)):
                raise BudgetExceededError(
                    "this fit asks for another release than the search has paid for, because an "
                    "estimator has other parameters than when the search was planned"
                )
            super().spend(events, label)
            self._paid += len(events)


def covers(larger: PrivacyEvent, smaller: PrivacyEvent) -> bool:
    """Whether one event is known to promise no more privacy than another of the same kind."""
    if type(larger) is not type(smaller) or larger.adjacency != smaller.adjacency:
        return False
    if larger == smaller:
        return True
    if isinstance(larger, GaussianEvent) and isinstance(smaller, GaussianEvent):
        return smaller.mu <= larger.mu
    if isinstance(larger, PureEvent) and isinstance(smaller, PureEvent):
        return smaller.epsilon <= larger.epsilon
    if isinstance(larger, ZCDPEvent) and isinstance(smaller, ZCDPEvent):
        return smaller.rho <= larger.rho
    if isinstance(larger, ApproximateEvent) and isinstance(smaller, ApproximateEvent):
        return smaller.epsilon <= larger.epsilon and smaller.delta <= larger.delta
    if isinstance(larger, DistanceEvent) and isinstance(smaller, DistanceEvent):
        return smaller.distance <= larger.distance
    if isinstance(larger, SubsampledGaussianEvent) and isinstance(smaller, SubsampledGaussianEvent):
        return (
            smaller.sampling_rate == larger.sampling_rate
            and smaller.n_steps <= larger.n_steps
            and smaller.noise_multiplier >= larger.noise_multiplier
        )
    if isinstance(larger, ObjectiveEvent) and isinstance(smaller, ObjectiveEvent):
        names = ("law", "n_scores", "kappa", "jacobian")
        alike = all(getattr(larger, name) == getattr(smaller, name) for name in names)
        return alike and smaller.sigma >= larger.sigma
    return False
