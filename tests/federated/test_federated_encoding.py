"""Numbers as integers: near, within the range, and summed without ambiguity."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated import FixedPointCodec, InconsistentSumError, PartyRefusedError
from dpsvm_fast.federated.secsum import LIMIT, MAX_PARTIES, MODULUS, centred

STEPS = st.floats(1e-12, 1e12)
UNITS = arrays(np.float64, st.integers(1, 30), elements=st.floats(-1.0, 1.0))


@given(STEPS, UNITS)
def test_encoded_numbers_are_the_nearest(step: float, units: np.ndarray) -> None:
    codec = FixedPointCodec(step=step)
    # Spread over the whole range.
    x = units * (step * (LIMIT - 1) * (1.0 - 1e-9))
    steps = codec.encode(x)
    assert steps.dtype == np.int64
    for number, found in zip(x, steps, strict=True):
        missed = abs(Fraction(float(number)) / Fraction(step) - int(found))
        assert missed <= Fraction(1, 2) + Fraction(1, 2**21)
    assert np.abs(codec.decode_sum(steps, 1) - x).max() <= step * (0.5 + 1e-6)


@given(st.floats(1e-6, 1e3), UNITS, st.data())
def test_encoding_moves_vectors_apart_by_no_more_than_is_said(
    step: float, units: np.ndarray, data: st.DataObject
) -> None:
    codec = FixedPointCodec(step=step)
    near = arrays(np.float64, units.size, elements=st.floats(-3.0, 3.0))
    x = units * step * 1e6
    other = x + step * data.draw(near)
    distance = float(np.linalg.norm(x - other)) * (1.0 + 1e-9)
    found = float(np.linalg.norm(codec.encode(x) - codec.encode(other))) * step
    assert found <= (distance + codec.rounding(x.size)) * (1.0 + 1e-12)


def test_the_bound_of_rounding_is_needed() -> None:
    codec = FixedPointCodec(step=1.0)
    x = np.full(100, 0.5 - 1e-9)
    found = np.linalg.norm(codec.encode(x) - codec.encode(x + 2e-9))
    assert found == 10.0
    assert found > 1e-6 + 0.99 * codec.rounding(100)


@given(st.lists(arrays(np.int64, 5, elements=st.integers(-(2**29) + 1, 2**29 - 1)), min_size=1))
def test_sums_modulo_the_modulus_are_exact(vectors: list[np.ndarray]) -> None:
    codec = FixedPointCodec(step=0.25)
    total = np.sum(vectors, axis=0)
    shifted = total + MODULUS * np.arange(-2, 3)
    assert (centred(shifted) == total).all()
    assert (codec.decode_sum(shifted, len(vectors)) == total * 0.25).all()


@pytest.mark.parametrize(
    "x",
    [
        np.array([1.0, np.nan]),
        np.array([np.inf]),
        np.array([-(2.0**29)]),
        np.array([[1.0]]),
        np.array([1]),
        np.array([1.0], dtype=np.float32),
        [1.0],
        np.array(31415.0),
        np.array([314159265358.9]),
    ],
)
def test_what_cannot_be_encoded_is_refused_without_quoting_it(x: object) -> None:
    with pytest.raises(PartyRefusedError) as caught:
        FixedPointCodec(step=1.0).encode(x)  # type: ignore[arg-type]
    assert "3141" not in str(caught.value)
    assert str(caught.value).startswith("contribution: expected")


def test_noise_is_held_within_the_range() -> None:
    codec = FixedPointCodec(step=1.0)
    noise = np.array([2**40, -(2**40), 5])
    assert codec.add_noise(np.array([1, 1, 1]), noise).tolist() == [2**29 - 1, 1 - 2**29, 6]


@pytest.mark.parametrize(
    "total", [np.array([2**30]), np.array([-(2**30)]), np.array([1.0]), np.zeros((2, 2), np.int64)]
)
def test_sums_of_nobody_are_refused(total: np.ndarray) -> None:
    with pytest.raises(InconsistentSumError):
        FixedPointCodec(step=1.0).decode_sum(total, 2)


@pytest.mark.parametrize("step", [0.0, -1.0, np.nan, np.inf])
def test_codecs_that_could_not_sum_are_refused(step: float) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        FixedPointCodec(step=step)
    assert caught.value.parameter == "step"


def test_more_numbers_than_can_be_summed_are_refused() -> None:
    # With so many, the largest sum is still below half of the modulus.
    assert MAX_PARTIES * (LIMIT - 1) < MODULUS // 2
    with pytest.raises(InvalidParameterError) as caught:
        FixedPointCodec(step=1.0).decode_sum(np.array([1]), MAX_PARTIES + 1)
    assert caught.value.parameter == "survivors"
