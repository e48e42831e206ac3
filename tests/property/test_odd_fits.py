"""Parameters of every size and kind: fits end with finite numbers, or are refused unspent."""

from __future__ import annotations

import secrets

import pytest

from oracles.odd_fits import faults

N_FITS, N_BY_NIGHT = 60, 20_000


def test_odd_parameters_are_taken_or_refused() -> None:
    assert faults(N_FITS, 1) == []


@pytest.mark.nightly
def test_many_odd_parameters_are_taken_or_refused() -> None:
    entropy = secrets.randbits(64)
    assert faults(N_BY_NIGHT, entropy) == [], f"entropy {entropy}"
