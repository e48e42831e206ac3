"""How much noise parties draw: enough, hardly more, and with the law that is stated."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from dpsvm_fast.accounting import gaussian_delta, gaussian_sigma
from dpsvm_fast.accounting.composition import distance_delta
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated import FederatedSpec
from dpsvm_fast.federated.classifier import statement_of
from dpsvm_fast.federated.plans import LocalTraining, SumNoise, plan_noise
from dpsvm_fast.federated.secsum import PartyCounts
from dpsvm_fast.verification import verify
from oracles.parties import helmet, reduction


def noise_of(spec: FederatedSpec, name: str = "model") -> SumNoise:
    found = spec.round(name).noise
    assert found is not None
    return found


def is_promised(spec: FederatedSpec) -> bool:
    """Whether verify, which recomputes everything else by itself, agrees."""
    return bool(verify(statement_of(spec, "secure_sum", "operating_system")))


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 8.0, 30.0])
@pytest.mark.parametrize("n_users", [1, 4, 1000])
def test_noise_is_enough_and_hardly_more(epsilon: float, n_users: int) -> None:
    spec = helmet(epsilon=epsilon, n_users=n_users, n_features=300)
    noise = noise_of(spec)
    square = Fraction(noise.step) ** 2 * (noise.honest_survivors * noise.sigma_steps**2 - 9)
    assert Fraction(noise.sigma) ** 2 <= square
    assert Fraction(noise.sigma) ** 2 >= square * (1 - Fraction(1, 2**50))
    root = Fraction(math.sqrt(noise.size))
    assert Fraction(noise.total) >= Fraction(noise.distance) + Fraction(noise.step) * root
    distance = noise.discreteness + noise.overflow + 2.0**-80
    spent = gaussian_delta(epsilon, noise.sigma, noise.total)
    assert spent + distance_delta(Fraction(distance), epsilon) <= spec.delta
    wanted = gaussian_sigma(epsilon, spec.delta) * noise.distance
    assert noise.sigma <= wanted * (1.0 + 1e-2 if epsilon < 0.05 else 1.0 + 1e-3)


def test_noise_of_one_party_is_the_share_of_the_honest_ones() -> None:
    # 8 of 10 are left, of whom 5 may collude: three noises, each with a third of the variance.
    spec = helmet(n_users=10, honest_fraction=0.5, max_dropout=0.2, regularization=1.0)
    noise = noise_of(spec)
    each = noise.step * noise.sigma_steps
    assert each * math.sqrt(3) == pytest.approx(gaussian_sigma(1.0, 1e-6) * noise.total, rel=1e-6)


@pytest.mark.parametrize("algorithm", ["helmet", "gram"])
def test_those_who_may_vanish_or_collude_cost_noise(algorithm: str) -> None:
    def each(**settings: Any) -> float:
        build = helmet if algorithm == "helmet" else reduction
        others = {} if algorithm == "helmet" else {"local": "output"}
        spec = build(n_users=100, regularization=1.0, **others, **settings)
        noise = spec.rounds[0].noise
        return noise.step * noise.sigma_steps

    trusted = each(honest_fraction=1.0)
    half = each(honest_fraction=0.5)
    lossy = each(honest_fraction=0.5, max_dropout=0.3)
    assert half == pytest.approx(trusted * math.sqrt(2), rel=1e-4)
    assert lossy == pytest.approx(trusted * math.sqrt(5), rel=1e-4)


SETTINGS: dict[str, Any] = {"n_users": 10, "max_dropout": 0.2, "regularization": 1.0}


def _ignore_dropouts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartyCounts, "honest_survivors", property(lambda c: c.n_users - c.colluders))


def _trust_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartyCounts, "honest_survivors", property(lambda c: c.survivors_needed))


def _smaller_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SumNoise, "sigma", property(lambda n: n.step * n.sigma_steps * math.sqrt(6.0)))


def _no_rounding(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SumNoise, "rounding", property(lambda n: 1e-300))


def _half_the_sensitivity(patch: pytest.MonkeyPatch) -> None:
    whole = vars(LocalTraining)["distance"].func
    patch.setattr(LocalTraining, "distance", property(lambda t: 0.5 * whole(t)))


def _weights_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        LocalTraining, "C", property(lambda t: 1.0 / t.spec.regularization / t.spec.max_records)
    )


def _no_solver_radius(patch: pytest.MonkeyPatch) -> None:
    whole = vars(LocalTraining)["by_record"].func
    patch.setattr(LocalTraining, "distance", property(whole))


def _no_overflow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SumNoise, "overflow", property(lambda n: 0.0))


def _one_step_of_range(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SumNoise, "bound_steps", property(lambda n: 1))


@pytest.mark.parametrize(
    "mutant",
    [
        _ignore_dropouts,
        _trust_all,
        _smaller_noise,
        _no_rounding,
        _half_the_sensitivity,
        _weights_forgotten,
        _no_solver_radius,
        _no_overflow,
        _one_step_of_range,
    ],
)
def test_wrong_plans_are_not_verified(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_promised(helmet(**SETTINGS))
    mutant(monkeypatch)
    assert not is_promised(helmet(**SETTINGS))


def test_parties_are_not_verified_as_records(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_promised(helmet(**SETTINGS, unit="person"))
    user: dict[str, Any] = {"unit": "party"}
    assert is_promised(helmet(**SETTINGS, **user))
    whole = vars(LocalTraining)["by_record"].func
    monkeypatch.setattr(LocalTraining, "distance", property(lambda t: 1.01 * whole(t)))
    assert not is_promised(helmet(**SETTINGS, unit="person"))
    assert not is_promised(helmet(**SETTINGS, radius=100.0, **user))


def test_noise_that_finds_no_room_is_refused() -> None:
    counts = PartyCounts(n_users=2, honest_fraction=1.0)
    facts: dict[str, Any] = {"size": 4, "distance": 1.0, "counts": counts}
    assert plan_noise(**facts, bound=1.0, multiplier=4.0).sigma_steps == 2**24
    coarse = plan_noise(**facts, bound=1e7, multiplier=4.0)
    assert coarse.sigma_steps < 2**24
    assert coarse.fits
    with pytest.raises(InvalidParameterError) as caught:
        plan_noise(**facts, bound=1e12, multiplier=4.0)
    assert caught.value.parameter == "radius"
