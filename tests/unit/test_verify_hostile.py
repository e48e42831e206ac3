"""Certificates made to mislead ``verify``, or to keep it busy."""

from __future__ import annotations

import pytest

from dpsvm_fast.accounting import SubsampledGaussianEvent, composed_delta
from dpsvm_fast.accounting._tilted_check import Losses
from dpsvm_fast.accounting._tilted_check import composed_delta as recomputed_delta

# One record is in few samples, and its largest losses are far out: no tilt makes them likely
# without making likelier still what never occurs.
RARE = [
    (1.95, 1e-4, 10_000, 0.028),
    (1.95, 1e-4, 10_000, 0.035),
    (1.95, 1e-4, 10_000, 0.05),
    (1.0, 1e-5, 100_000, 0.01),
    (1.0, 1e-3, 1000, 2.0),
    (0.5, 1e-4, 100, 3.0),
]


@pytest.mark.parametrize(("noise", "rate", "n_steps", "epsilon"), RARE)
def test_rare_samples_are_not_passed_over(
    noise: float, rate: float, n_steps: int, epsilon: float
) -> None:
    """Tiny deltas were recomputed as 0, so that any claim about them seemed to hold."""
    event = SubsampledGaussianEvent(noise, rate, n_steps, "add_remove")
    promised = composed_delta([event], epsilon)
    found = recomputed_delta(epsilon, Losses(sampled=((noise, rate, n_steps),)))
    assert found == pytest.approx(promised, rel=1e-2)
    assert found <= promised * (1.0 + 3e-4)


def test_delta_falls_with_epsilon_where_samples_are_rare() -> None:
    losses = Losses(sampled=((1.95, 1e-4, 10_000),))
    deltas = [recomputed_delta(epsilon, losses) for epsilon in (0.03, 0.04, 0.06, 0.1, 0.2, 0.3)]
    assert all(delta > 0.0 for delta in deltas)
    assert deltas == sorted(deltas, reverse=True)
