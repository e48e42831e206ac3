"""What colluders can prove about one record from the sum, against what the statement promises.

Four parties, one colludes, one vanishes: two noises are left, one of them the victim's. The pair of
data sets nearly reaches the sensitivity. False-alarm rate ALPHA = 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsvm_fast.federated import FederatedSpec
from dpsvm_fast.federated.local import Records, checked_records, contributions
from dpsvm_fast.federated.simulate import party_sources
from oracles.audit import epsilon_of_separation, plausible_deviation, separation_bound

pytestmark = pytest.mark.statistical

N = 2000
EPSILON, DELTA = 4.0, 1e-5
SPEC = FederatedSpec.dp_helmet(
    n_users=4,
    n_features=1,
    classes=[0, 1],
    epsilon=EPSILON,
    delta=DELTA,
    max_records=2,
    honest_fraction=0.75,
    max_dropout=0.25,
    intercept_scaling=0.0,
    regularization=400.0,
    n_epochs=1,
)


def sums(flipped: float, honest: int) -> NDArray[np.float64]:
    """N sums over some honest parties: what is left when colluders take out what is theirs."""
    rows = np.array([[flipped], [1.0]])
    same = checked_records(np.ones((2, 1)), np.zeros(2, dtype=int), SPEC)
    records = Records.joined(
        [checked_records(rows, np.zeros(2, dtype=int), SPEC)] + [same] * (honest - 1)
    )
    found = []
    for _ in range(N):
        vectors = contributions(SPEC, "model", records, None, party_sources(honest, None), 1)
        found.append(sum(int(vector[0]) for vector in vectors))
    return np.array(found, dtype=np.float64)


def proved(honest: int) -> float:
    return epsilon_of_separation(separation_bound(sums(1.0, honest), sums(-1.0, honest)), DELTA)


@pytest.mark.proof("federated", "The library")
def test_colluders_prove_much_of_the_claim_and_never_more() -> None:
    noise = SPEC.rounds[0].noise
    assert noise is not None
    assert noise.honest_survivors == 2
    # 0.8 of it on average with so few sums; below a half with probability below 1e-6.
    assert 0.5 * EPSILON <= proved(2) <= EPSILON


@pytest.mark.proof("federated", "The library")
def test_with_one_noise_less_they_prove_more() -> None:
    """Control: what they would prove had the honest party that vanished been counted."""
    assert proved(1) > EPSILON


def test_the_sum_has_the_noise_of_two() -> None:
    noise = SPEC.rounds[0].noise
    assert noise is not None
    found = sums(1.0, 2) * noise.step
    assert plausible_deviation(found, noise.sigma)
    assert not plausible_deviation(found, 1.2 * noise.sigma)
