"""Privacy bugs that were published about other libraries, each as a test, and the page about them.

docs/published_bugs.md lists them with the tests that would notice them here; those that are not
tested elsewhere are tested in this file.
"""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dpsvm_fast
from dpsvm_fast import (
    GradientPerturbationSVC,
    PrivateLinearSVC,
    PrivatePCA,
    PrivateStandardScaler,
    PrivateWhitener,
    PublicScaler,
    _core,
)
from dpsvm_fast.accounting import composed_delta, composed_epsilon
from dpsvm_fast.certificates import GaussianEvent, PrivacyEvent, PureEvent, SubsampledGaussianEvent
from dpsvm_fast.certificates.words import CAVEATS
from oracles.descent import output_plan

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "published_bugs.md"
# A line of a table: number, where it happened, why not here, tests.
ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
# Bugs of the page; one more is one more line.
N_BUGS = 38

Array = NDArray[np.float64]
seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


def rows_of_the_page() -> list[tuple[str, ...]]:
    return [match.groups() for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))]


def test_every_published_bug_has_a_test_or_a_reason() -> None:
    rows = rows_of_the_page()
    assert [int(row[0]) for row in rows] == list(range(1, N_BUGS + 1))
    for number, where, why, tests in rows:
        assert "https://" in where or "arXiv" in where, number
        assert len(why) > 20
        assert TEST.search(tests) or "cannot occur" in why, number


def test_the_tests_named_on_the_page_exist() -> None:
    named = [found for row in rows_of_the_page() for found in TEST.findall(row[3])]
    assert len(named) > N_BUGS
    for file, name in named:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", source, re.MULTILINE), f"{file}::{name}"
    # Nothing that looks like a test escapes the look-up.
    texts = "".join(row[3] for row in rows_of_the_page())
    assert texts.count("tests/") == len(named)


def small(n_samples: int, seed: int = 0) -> tuple[Array, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_samples, 3)), (np.arange(n_samples) % 2).astype(np.int64)


@seeded
@pytest.mark.parametrize("optimizer", ["gd", "sgd", "adam"])
def test_the_number_of_records_is_revealed_by_no_setting(optimizer: str) -> None:
    """Batch sizes, rates, steps and noise computed from the size of the data tell that size."""
    options: dict[str, Any] = {"classes": [0, 1], "random_state": 0, "optimizer": optimizer}
    model = GradientPerturbationSVC(epsilon=1.0, adjacency="add_remove", **options)
    told = [model.fit(*small(n)).privacy_.to_json() for n in (4, 5, 400)]
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("bounds", [(0.0, 100.0), (-100.0, 0.0), (5.0, 6.0)])
def test_no_bound_is_used_in_place_of_another(bounds: tuple[float, float]) -> None:
    """The lower bound taken twice made a width, and with it the noise, zero."""
    ends = np.array([[bounds[0]], [bounds[1]]])
    np.testing.assert_array_equal(PublicScaler(bounds).fit_transform(ends), [[0.0], [1.0]])
    per_feature = ([bounds[0], -1.0], [bounds[1], 1.0])
    mapped = PublicScaler(per_feature).fit_transform(np.column_stack([ends, ends]))
    np.testing.assert_array_equal(mapped[:, 0], [0.0, 1.0])
    scaler = PrivateStandardScaler(1.0, bounds=bounds).fit(np.repeat(ends, 3, axis=0))
    (part,) = scaler.privacy_.parts
    assert part.contribution >= 1.0
    assert part.sigma is not None
    assert part.sigma > 1.0


EVENTS: list[list[PrivacyEvent]] = [
    [GaussianEvent(sigma=s, sensitivity=1.0, adjacency="add_remove")]
    for s in (1e-3, 0.1, 1.0, 40.0, 1e6)
]
EVENTS += [
    [SubsampledGaussianEvent(z, q, n_steps, "add_remove")]
    for z in (0.3, 1.0, 50.0)
    for q in (1e-6, 0.01, 0.9)
    for n_steps in (1, 10_000)
]
EVENTS += [
    [*EVENTS[2], PureEvent(0.5, "add_remove"), *EVENTS[8]],
    [PureEvent(1e-9, "add_remove")] * 3,
]
DELTAS = (1e-100, 1e-30, 1e-10, 1e-5, 0.1, 0.9)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("i", range(len(EVENTS)))
def test_no_accountant_gives_up_or_goes_below_zero(i: int) -> None:
    """Negative epsilons, zeros that nothing pays for, and failures at small delta or large loss."""
    events, before = EVENTS[i], math.inf
    # Every other delta, and those between for the next one.
    for delta in DELTAS[i % 2 :: 2]:
        epsilon = composed_epsilon(events, delta)
        assert 0.0 <= epsilon < math.inf
        assert epsilon <= before
        before = epsilon
        # An epsilon of 0 is one that delta alone pays for.
        assert epsilon > 0.0 or composed_delta(events, 0.0) <= delta
        # Both are bounds from above, so the round trip may end a little beyond.
        assert composed_delta(events, epsilon) <= delta * 1.02 or delta < 1e-20


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("noise_grid", ["exact", "float"])
def test_negative_zeros_are_zeros(noise: str, noise_grid: str) -> None:
    """A sampler that took the logarithm of a signed zero gave NaN instead of noise."""
    mechanism = output_plan(noise=noise, noise_grid=noise_grid, n_classes=3, n_features=4, C=0.1)
    weights = np.zeros((3, 4))
    plus, minus = (
        mechanism.release(zeros, _core.NoiseSource(1), n_threads=1) for zeros in (weights, -weights)
    )
    assert np.signbit(-weights).all()
    np.testing.assert_array_equal(plus, minus)
    assert np.isfinite(plus).all()
    assert (plus != 0.0).all()


def test_no_draw_is_not_a_number() -> None:
    source = _core.NoiseSource(2)
    draws = [source.gaussian(1_000_000, 1.0, 1), source.gamma_ball(1_000_000, 1.0, 1)]
    draws += [source.gamma_ball(1, 1.0, 1) for _ in range(10_000)]
    assert all(np.isfinite(draw).all() for draw in draws)


ESTIMATORS = [
    found
    for name in dpsvm_fast.__all__
    if inspect.isclass(found := getattr(dpsvm_fast, name)) and hasattr(found, "get_params")
]


def test_there_are_estimators_to_look_at() -> None:
    assert {GradientPerturbationSVC, PrivatePCA, PrivateWhitener} <= set(ESTIMATORS)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_no_estimator_takes_a_sensitivity_or_a_noise_scale(kind: Any) -> None:
    """A free sensitivity beside a clip norm was set to 1e-4, and the noise with it."""
    names = set(inspect.signature(kind).parameters)
    assert not names & {"sensitivity", "sigma", "noise_multiplier", "noise_scale", "beta", "rho"}
    # Weights of rows are cut off at the public `max_weight`.
    fit = inspect.signature(kind.fit).parameters
    assert not set(fit) & {"bounds", "sensitivity"}
    assert "sample_weight" not in fit or "max_weight" in names


@seeded
@pytest.mark.parametrize(
    "model",
    [
        GradientPerturbationSVC(classes=[0, 1], random_state=0),
        PrivateLinearSVC(classes=[0, 1], random_state=0),
        PrivatePCA(n_components=1, random_state=0),
        PrivateWhitener(random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_time_is_said_not_to_be_covered(model: Any) -> None:
    """Samplers and solvers take a time that may depend on what they do."""
    assert CAVEATS["running_time"] in model.fit(*small(8)).privacy_.caveats
