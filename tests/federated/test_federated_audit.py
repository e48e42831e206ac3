"""What colluders can prove about one row or person from the sum, against what is promised.

Four parties, one colludes, one vanishes: two noises are left, one of them the victim's. The pair of
data sets nearly reaches the sensitivity. False-alarm rate ALPHA = 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast.federated.classifier import party_sources
from dpsvm_fast.federated.local import Records, checked_records, contributions
from oracles.audit import epsilon_of_separation, plausible_deviation, separation_bound
from oracles.parties import helmet

pytestmark = pytest.mark.statistical

N = 2000
EPSILON, DELTA = 4.0, 1e-5
# Rows of the person in question, and of everybody else; where rows are protected, all have one.
SEVERAL = {"row": 1, "person": 50}
SPECS = {
    unit: helmet(
        n_features=1,
        epsilon=EPSILON,
        delta=DELTA,
        max_records=2,
        honest_fraction=0.75,
        max_dropout=0.25,
        intercept_scaling=0.0,
        regularization=400.0,
        n_epochs=1,
        unit=unit,
    )
    for unit in SEVERAL
}
SPEC = SPECS["row"]


def party(unit: str, value: float) -> Records:
    """Two rows, or persons with as many equal rows each: of the value, and of 1."""
    m = SEVERAL[unit]
    rows, ids = np.repeat([[value], [1.0]], m, axis=0), np.repeat([0, 1], m)
    groups = ids if unit == "person" else None
    return checked_records(rows, np.zeros(2 * m, dtype=int), SPECS[unit], groups)


def sums(flipped: float, honest: int, unit: str = "row") -> NDArray[np.float64]:
    """N sums over some honest parties: what is left when colluders take out what is theirs."""
    records = [party(unit, flipped)] + [party(unit, 1.0)] * (honest - 1)
    found = []
    for _ in range(N):
        sources = party_sources(honest, None)
        vectors = contributions(SPECS[unit], "model", records, None, sources, 1)
        found.append(sum(int(vector[0]) for vector in vectors))
    return np.array(found, dtype=np.float64)


def proved(honest: int, unit: str = "row") -> float:
    pair = (sums(value, honest, unit) for value in (1.0, -1.0))
    return epsilon_of_separation(separation_bound(*pair), DELTA)


@pytest.mark.proof("federated", "The library")
@pytest.mark.parametrize("unit", SPECS)
def test_colluders_prove_much_of_the_claim_and_never_more(unit: str) -> None:
    noise = SPECS[unit].rounds[0].noise
    assert noise.honest_survivors == 2
    # 0.8 of it on average with so few sums; below a half with probability below 1e-6.
    assert 0.5 * EPSILON <= proved(2, unit) <= EPSILON


@pytest.mark.proof("federated", "The library")
def test_with_one_noise_less_they_prove_more() -> None:
    """Control: what they would prove had the honest party that vanished been counted."""
    assert proved(1) > EPSILON


def test_the_sum_has_the_noise_of_two() -> None:
    noise = SPEC.rounds[0].noise
    found = sums(1.0, 2) * noise.step
    assert plausible_deviation(found, noise.sigma)
    assert not plausible_deviation(found, 1.2 * noise.sigma)
