"""Parameters of every size and kind: fits end with finite numbers, or are refused unspent."""

from __future__ import annotations

import secrets

import pytest

from dpsvm_fast.exceptions import InvalidParameterError
from oracles.odd_fits import faults
from oracles.odd_inputs import X, Y
from oracles.subjects import made, spent

N_FITS, N_BY_NIGHT = 60, 20_000


def test_odd_parameters_are_taken_or_refused() -> None:
    assert faults(N_FITS, 1) == []


@pytest.mark.nightly
def test_many_odd_parameters_are_taken_or_refused() -> None:
    entropy = secrets.randbits(64)
    assert faults(N_BY_NIGHT, entropy) == [], f"entropy {entropy}"


@pytest.mark.parametrize("rate", [5e-324, 1e-301, 2e-90, 1e-13])
def test_rates_without_use_are_refused_before_anything_is_spent(rate: float) -> None:
    estimator = made("gradient sgd", sampling_rate=rate)
    with pytest.raises(InvalidParameterError) as caught:
        estimator.fit(X, Y)
    assert str(caught.value).startswith("sampling_rate: ")
    assert spent(estimator) == 0
