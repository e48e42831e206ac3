"""Sampled Gaussian sums against reference values, exact single steps, and other accountants."""

from __future__ import annotations

import importlib.util
import itertools
import math
from typing import Any

import pytest

from dpsvm_fast.accounting import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    subsampled_gaussian_delta,
    subsampled_gaussian_epsilon,
    subsampled_gaussian_noise_multiplier,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.verification.sampled import Losses, composed_delta
from oracles.composed_losses import composed_epsilon
from oracles.renyi import renyi_epsilon
from oracles.stored import stored

RELATIONS = ("add_remove", "replace_one")
# How far above the reference a tight accountant may be.
TIGHT = 1e-3


def points(name: str) -> list[dict[str, Any]]:
    """Points of one file of reference values."""
    found = stored(f"dpsgd_{name}")["points"]
    assert isinstance(found, list)
    return found


def point_id(point: dict[str, Any]) -> str:
    return "-".join(f"{point[k]}" for k in ("q", "sigma", "T", "delta", "epsilon") if k in point)


@pytest.mark.sampled
@pytest.mark.proof("accountant", "The accountant")
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("point", points("epsilon"), ids=point_id)
def test_epsilon_is_never_below_the_reference_and_hardly_above(
    point: dict[str, Any], adjacency: str
) -> None:
    reference, tolerance = point[f"epsilon_pld_{adjacency}"], point[f"tolerance_{adjacency}"]
    setting = float(point["sigma"]), float(point["q"]), int(point["T"])
    delta = float(point["delta"])
    got = subsampled_gaussian_epsilon(*setting, delta, adjacency)
    assert got >= reference - tolerance
    assert got <= reference * (1.0 + TIGHT) + tolerance


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("point", points("epsilon")[:4], ids=point_id)
def test_delta_and_less_noise(point: dict[str, Any], adjacency: str) -> None:
    reference, tolerance = point[f"epsilon_pld_{adjacency}"], point[f"tolerance_{adjacency}"]
    z, q, n_steps = float(point["sigma"]), float(point["q"]), int(point["T"])
    delta = float(point["delta"])
    # Both are upper bounds, each on a grid of its own.
    assert subsampled_gaussian_delta(z, q, n_steps, reference, adjacency) <= delta * 1.1
    # Negative control: one percent less noise is outside of what is allowed above.
    less = subsampled_gaussian_epsilon(0.99 * z, q, n_steps, delta, adjacency)
    assert less > reference * (1.0 + TIGHT) + tolerance


@pytest.mark.proof("accountant", "The accountant")
@pytest.mark.parametrize("point", points("epsilon"), ids=point_id)
def test_epsilon_is_below_the_one_by_renyi_divergences(point: dict[str, Any]) -> None:
    setting = float(point["sigma"]), float(point["q"]), int(point["T"]), float(point["delta"])
    got = subsampled_gaussian_epsilon(*setting)
    assert got <= point["epsilon_rdp_add_remove"]
    low, high = point.get("prv_bracket_add_remove", (0.0, math.inf))
    assert low <= got <= high * (1.0 + TIGHT)


@pytest.mark.proof("accountant", "The accountant")
@pytest.mark.parametrize("point", points("single_step"), ids=point_id)
def test_one_step_is_exact(point: dict[str, Any]) -> None:
    z, q = float(point["sigma"]), float(point["q"])
    ways = {"add_remove": ("remove", "add"), "replace_one": ("replace",)}
    for answer, asked, accountant, least in (
        ("delta_at", "epsilon", subsampled_gaussian_delta, 1e-299),
        ("epsilon_at", "delta", subsampled_gaussian_epsilon, 1e-12),
    ):
        for entry, adjacency in itertools.product(point[answer], RELATIONS):
            exact = max(float(entry[name]) for name in ways[adjacency])
            got = accountant(z, q, 1, float(entry[asked]), adjacency)
            assert exact * (1.0 - 1e-14) <= got <= exact * (1.0 + 1e-6) + least


@pytest.mark.sampled(times=2)
@pytest.mark.proof("accountant", "The accountant")
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("point", points("calibration"), ids=point_id)
def test_calibration(point: dict[str, Any], adjacency: str) -> None:
    setting = float(point["q"]), int(point["T"]), adjacency
    z = subsampled_gaussian_noise_multiplier(point["epsilon"], point["delta"], *setting)
    assert z == pytest.approx(point[f"pld_{adjacency}"], rel=5e-4)
    # The calibrated multiplier keeps its promise, by our own accountant and by an independent one.
    own = subsampled_gaussian_epsilon(z, *setting[:2], point["delta"], adjacency)
    assert own <= point["epsilon"] * (1.0 + 1e-12)
    replace_one = adjacency == "replace_one"
    losses = Losses(sampled=((z, *setting[:2]),), replace_one=replace_one)
    assert composed_delta(point["epsilon"], losses) <= point["delta"] * (1.0 + 1e-4)
    assert composed_delta(point["epsilon"], losses) >= point["delta"] * 0.95


@pytest.mark.sampled
@pytest.mark.proof("accountant", "The accountant")
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize(
    ("z", "q", "n_steps", "delta"),
    [
        *((1.0, 0.02, 100, 1e-5), (2.0, 0.3, 50, 1e-6), (0.8, 0.004, 100, 1e-8)),
        pytest.param(*(0.8, 0.004, 1000, 1e-8), marks=pytest.mark.slow),
        (5.0, 0.5, 10, 1e-3),
    ],
)
def test_the_order_of_accountants(
    z: float, q: float, n_steps: int, delta: float, adjacency: str
) -> None:
    """Renyi divergences say more than the exact composition, and that more than one step."""
    replace_one = adjacency == "replace_one"
    by_renyi = renyi_epsilon(z, q, n_steps, delta, replace_one=replace_one)
    got = subsampled_gaussian_epsilon(z, q, n_steps, delta, adjacency)
    exact = composed_epsilon(delta, Losses(sampled=((z, q, n_steps),), replace_one=replace_one))
    one = subsampled_gaussian_epsilon(z, q, 1, delta, adjacency)
    assert by_renyi >= got >= exact * (1.0 - 1e-5) >= one * (1.0 - 1e-6)
    assert got <= exact * (1.0 + TIGHT)
    # Negative control: the oracle is no trivial bound.
    assert by_renyi <= 2.5 * got + 0.2


@pytest.mark.proof("accountant", "The accountant")
@pytest.mark.parametrize(("z", "n_steps"), [(2.0, 1), (20.0, 100), (3.0, 7)])
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_full_batches_are_the_gaussian_mechanism(z: float, n_steps: int, adjacency: str) -> None:
    """Published accountants disagree here by a factor of 2 under ``replace_one``."""
    moved = math.sqrt(n_steps) * {"add_remove": 1.0, "replace_one": 2.0}[adjacency]
    got = subsampled_gaussian_epsilon(z, 1.0, n_steps, 1e-5, adjacency)
    assert got == pytest.approx(gaussian_epsilon(1e-5, z, moved), rel=1e-12)
    delta = subsampled_gaussian_delta(z, 1.0, n_steps, 1.0, adjacency)
    assert delta == pytest.approx(gaussian_delta(1.0, z, moved), rel=1e-9)
    needed = subsampled_gaussian_noise_multiplier(1.0, 1e-5, 1.0, n_steps, adjacency)
    assert needed == pytest.approx(gaussian_sigma(1.0, 1e-5, moved), rel=1e-12)
    # And sampling nearly everyone is nearly that.
    near = subsampled_gaussian_epsilon(z, 1.0 - 1e-9, n_steps, 1e-5, adjacency)
    assert near == pytest.approx(got, rel=TIGHT)


def test_the_two_values_of_a_published_inconsistency() -> None:
    """4.377 is right for a noise multiplier of 2 under ``replace_one``, 2.166 is not."""
    assert subsampled_gaussian_epsilon(2.0, 1.0, 1, 1e-5, "replace_one") == pytest.approx(
        4.377, abs=1e-3
    )


@pytest.mark.proof("accountant", "The accountant")
@pytest.mark.parametrize(
    ("z", "q", "n_steps", "delta", "adjacency"),
    [
        (1.0, 0.01, 1000, 1e-12, "replace_one"),
        (0.35, 0.3, 500, 1e-6, "add_remove"),
        (4.0, 1e-3, 10**5, 1e-9, "replace_one"),
        *(
            pytest.param(*setting, adjacency, marks=pytest.mark.nightly)
            for setting, relations in (
                ((1.0, 0.01, 1000, 1e-12), RELATIONS[:1]),
                ((30.0, 0.001, 1000, 1e-12), RELATIONS),
                ((0.35, 0.3, 50, 1e-6), RELATIONS[1:]),
                ((0.35, 0.3, 500, 1e-6), RELATIONS[1:]),
                ((4.0, 1e-3, 10**5, 1e-9), RELATIONS[:1]),
                ((60.0, 0.9, 10**4, 1e-8), RELATIONS),
            )
            for adjacency in relations
        ),
    ],
)
def test_extreme_settings_against_the_independent_check(
    z: float, q: float, n_steps: int, delta: float, adjacency: str
) -> None:
    """Epsilons from below 0.01 to above 1000, and deltas down to 1e-12."""
    losses = Losses(sampled=((z, q, n_steps),), replace_one=adjacency == "replace_one")
    exact = composed_epsilon(delta, losses)
    got = subsampled_gaussian_epsilon(z, q, n_steps, delta, adjacency)
    assert exact * (1.0 - 1e-5) <= got <= exact * (1.0 + TIGHT) + 1e-6


def test_bad_arguments() -> None:
    good: dict[str, Any] = {
        "noise_multiplier": 1.0,
        "sampling_rate": 0.1,
        "n_steps": 10,
        "adjacency": "add_remove",
    }
    for name, value, error in [
        ("noise_multiplier", 0.0, InvalidParameterError),
        ("noise_multiplier", math.inf, InvalidParameterError),
        ("sampling_rate", 0.0, InvalidParameterError),
        ("sampling_rate", 1.5, InvalidParameterError),
        ("n_steps", 0, InvalidParameterError),
        ("n_steps", 10**10, InvalidParameterError),
        ("n_steps", 1.0, TypeError),
        ("adjacency", "replace_special", InvalidParameterError),
        ("delta", 0.0, InvalidParameterError),
        ("delta", 1.0, InvalidParameterError),
    ]:
        with pytest.raises(error, match=name):
            subsampled_gaussian_epsilon(**good | {"delta": 1e-5} | {name: value})
        if name != "delta":
            with pytest.raises(error, match=name):
                subsampled_gaussian_delta(**good | {"epsilon": 1.0} | {name: value})
    with pytest.raises(InvalidParameterError, match="epsilon"):
        subsampled_gaussian_delta(**good, epsilon=-1.0)
    with pytest.raises(InvalidParameterError, match="epsilon"):
        subsampled_gaussian_noise_multiplier(0.0, 1e-5, 0.1, 10)
    with pytest.raises(InvalidParameterError, match="noise_multiplier"):
        subsampled_gaussian_epsilon(5e-324, 1.0, 10, 1e-5)


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_against_dp_accounting_where_it_is_installed(adjacency: str) -> None:
    """An optional oracle: it pins old versions of its dependencies."""
    if importlib.util.find_spec("dp_accounting") is None:
        pytest.skip("dp-accounting is not installed")
    pld = importlib.import_module("dp_accounting.pld.privacy_loss_distribution")
    relations = importlib.import_module("dp_accounting").NeighboringRelation
    relation = {"add_remove": relations.ADD_OR_REMOVE_ONE, "replace_one": relations.REPLACE_ONE}
    for z, q, n_steps, delta in [(1.0, 0.05, 100, 1e-5), (3.0, 0.2, 30, 1e-6)]:
        one = pld.from_gaussian_mechanism(
            z,
            value_discretization_interval=1e-4,
            sampling_prob=q,
            neighboring_relation=relation[adjacency],
        )
        theirs = one.self_compose(n_steps).get_epsilon_for_delta(delta)
        ours = subsampled_gaussian_epsilon(z, q, n_steps, delta, adjacency)
        assert ours == pytest.approx(theirs, rel=TIGHT)
