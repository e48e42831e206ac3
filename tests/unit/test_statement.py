"""The statement: exact round trips, refusals, and a text that people can read."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from functools import lru_cache
from typing import Any

import pytest

from dpsvm_fast.accounting import gaussian_sigma, objective_sigma
from dpsvm_fast.certificates import (
    Noise,
    ObjectiveNoise,
    PrivacyStatement,
    Sensitivity,
)
from dpsvm_fast.certificates.words import (
    FLOATING_POINT_CAVEAT,
    MAX_ITER_CAVEAT,
    PRECISION_CAVEAT,
    RUNNING_TIME_CAVEAT,
    SEED_REASON,
    fit_assumptions,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss


def up(x: float) -> float:
    return math.nextafter(x, math.inf)


def sensitivity(adjacency: str, rounding: float) -> Sensitivity:
    factor = {"add_remove": 1, "replace_one": 2}[adjacency]
    lipschitz, row_norm = up(math.sqrt(2.0)), up(math.hypot(0.7, 0.3))
    exact = up(up(up(factor * 0.02 * lipschitz)) * row_norm)
    return Sensitivity(
        lipschitz=lipschitz,
        C=0.02,
        data_norm=0.7,
        intercept_scaling=0.3,
        row_norm=row_norm,
        relation_factor=factor,
        exact=exact,
        solver_radius=1e-3 * exact,
        rounding=rounding,
        total=up(up(exact + 2e-3 * exact) + rounding),
    )


def statement(
    distribution: str = "gaussian",
    sampler: str = "exact_grid",
    adjacency: str = "add_remove",
    **changes: Any,
) -> PrivacyStatement:
    """A statement as the library makes it, for three classes and four features."""
    epsilon, delta, grid = 0.8, 1e-6 if distribution == "gaussian" else 0.0, 2.0**-32
    exact = sampler == "exact_grid"
    bound = sensitivity(adjacency, up(grid * up(math.sqrt(15))) if exact else 0.0)
    if distribution == "gaussian":
        scales = {"sigma": gaussian_sigma(epsilon, delta, bound.total), "beta": None}
    else:
        beta = math.nextafter(epsilon / bound.total, 0.0)
        scales = {"sigma": None, "beta": beta, "epsilon": epsilon}
    values: dict[str, Any] = {
        "mechanism": "output_perturbation",
        "loss": "crammer_singer",
        "adjacency": adjacency,
        "sensitivity": bound,
        "noise": Noise(
            distribution=distribution,
            sampler=sampler,
            grid=grid if exact else None,
            shape=(3, 5),
            **scales,
        ),
        "epsilon": epsilon,
        "delta": delta,
        "assumed_public": fit_assumptions("data_norm", ("epsilon",), adjacency, labels="given"),
        "caveats": (RUNNING_TIME_CAVEAT, *(() if exact else (FLOATING_POINT_CAVEAT,))),
        "library_version": "0.1.0",
    }
    return PrivacyStatement(**values | changes)


KINDS = [
    (distribution, sampler, adjacency)
    for distribution, sampler in [
        ("gaussian", "exact_grid"),
        ("gaussian", "floating_point"),
        ("gamma", "floating_point"),
    ]
    for adjacency in ("add_remove", "replace_one")
]


# Loss, number of classes, law of the noise, relation.
OBJECTIVE_KINDS = [
    ("softmax_margin", 3, "gaussian", "add_remove"),
    ("softmax_margin", 3, "gaussian", "replace_one"),
    ("softmax_margin", 2, "gaussian", "add_remove"),
    ("logistic", 3, "gaussian", "add_remove"),
    ("huber", 4, "gaussian", "replace_one"),
    ("m3", 3, "gaussian", "add_remove"),
    ("huber_ww", 2, "gaussian", "replace_one"),
    ("huber_ww", 3, "gamma", "add_remove"),
    ("softplus", 2, "gamma", "replace_one"),
    ("softmax_margin", 4, "gamma", "add_remove"),
    ("huber", 3, "gamma", "add_remove"),
]


@lru_cache
def objective_statement(loss: str, n_classes: int, distribution: str, adjacency: str) -> Any:
    """A statement of objective perturbation as the library makes it, for four features."""
    gaussian = distribution == "gaussian"
    table = Loss(
        name=loss,
        n_classes=n_classes,
        smoothing=1.0 if loss == "logistic" else 0.4,
        margin=0.0 if loss == "logistic" else 1.0,
    )
    epsilon, delta = 2.0, 1e-6 if gaussian else 0.0
    share, inside = 0.02, (0.99 * 2.0, 0.99e-6 if gaussian else 0.0)
    factor = {"add_remove": 1, "replace_one": 2}[adjacency]
    row_norm, shape, grid = up(math.hypot(0.7, 0.3)), (table.n_scores, 5), 2.0**-40
    regularization = 16.0 * row_norm**2 / table.temperature
    kappa = table.curvature_ratio(row_norm, regularization)
    root, tol = math.sqrt(math.prod(shape)), 1e-4
    radius = up((tol + (0.5 * grid * root if gaussian else 0.0)) / regularization)
    rounding = up(grid * up(root)) if gaussian else 0.0
    total = up(2.0 * radius + rounding)
    if gaussian:
        multiplier = objective_sigma(
            *inside, loss=loss, n_classes=n_classes, kappa=kappa, adjacency=adjacency
        )
        outside = gaussian_sigma(share, delta - inside[1], total)
        scales = {"sigma": up(multiplier * row_norm), "beta": None, "jacobian": None}
        output = {"sigma": outside, "beta": None, "grid": grid}
    else:
        # kappa is small enough to cost nothing with the losses of logistic type.
        jacobian = table.jacobian(kappa) if loss in ("huber", "huber_ww") else 0.0
        beta = (inside[0] - jacobian) / (factor * table.lipschitz * row_norm) * (1 - 1e-14)
        scales = {"sigma": None, "beta": beta, "jacobian": jacobian}
        beta = share / total * (1 - 1e-15)
        output = {"sigma": None, "beta": beta, "grid": grid, "epsilon": share}
    sampler = "exact_grid" if gaussian else "floating_point"
    return PrivacyStatement(
        mechanism="objective_perturbation",
        loss=loss,
        adjacency=adjacency,
        sensitivity=Sensitivity(
            lipschitz=table.lipschitz,
            C=1.0 / regularization,
            data_norm=0.7,
            intercept_scaling=0.3,
            row_norm=row_norm,
            relation_factor=factor,
            exact=0.0,
            solver_radius=radius,
            rounding=rounding,
            total=total,
        ),
        noise=Noise(distribution=distribution, sampler=sampler, shape=shape, **output),
        objective=ObjectiveNoise(
            n_classes=n_classes,
            law=table.law,
            n_scores=table.n_scores,
            smoothing=table.smoothing,
            margin=table.margin,
            lipschitz=table.lipschitz,
            curvature=table.curvature,
            row_norm=row_norm,
            regularization=regularization,
            extra_regularization=0.25 * regularization,
            curvature_ratio=kappa,
            distribution=distribution,
            sampler=sampler,
            grid=grid if gaussian else None,
            shape=shape,
            gradient_tol=tol,
            epsilon=inside[0],
            delta=inside[1],
            **scales,
        ),
        epsilon=epsilon,
        delta=delta,
        assumed_public=fit_assumptions("data_norm", ("epsilon",), adjacency, labels="given"),
        caveats=(
            *(RUNNING_TIME_CAVEAT, PRECISION_CAVEAT),
            *(() if gaussian else (FLOATING_POINT_CAVEAT,)),
        ),
        library_version="0.1.0",
    )


def made_of(kind: tuple[Any, ...]) -> PrivacyStatement:
    """The statement of a kind of either list."""
    return statement(*kind) if len(kind) == 3 else objective_statement(*kind)


@pytest.mark.parametrize("kind", [*KINDS, *OBJECTIVE_KINDS], ids=str)
def test_json_keeps_every_bit(kind: tuple[Any, ...]) -> None:
    made = made_of(kind)
    text = made.to_json()
    assert PrivacyStatement.from_json(text) == made
    assert PrivacyStatement.from_json(text).to_json() == text
    assert "NaN" not in text
    assert "Infinity" not in text
    assert pickle.loads(pickle.dumps(made)) == made
    document = json.loads(text)
    assert document["format"] == "dpsvm_fast.certificate"
    assert document["version"] == 3
    assert document["private"] is True


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_text_fits_a_terminal_and_says_what_counts(kind: tuple[str, str, str]) -> None:
    made = statement(*kind)
    text = str(made)
    assert max(map(len, text.splitlines())) <= 88
    flat = " ".join(text.split())
    for part in (
        "epsilon = 0.8",
        "one row of the training data",
        "crammer_singer",
        "3 x 5 weights",
        "0.1.0",
    ):
        assert part in flat
    for part in (*made.assumed_public, *made.caveats, made.theorem):
        assert part in flat
    assert ("exchanged" in flat) == (kind[2] == "replace_one")
    assert "Why it is not private" not in flat


@pytest.mark.parametrize("kind", OBJECTIVE_KINDS, ids=str)
def test_the_text_explains_both_noises_and_how_they_share_the_budget(kind: tuple[Any, ...]) -> None:
    made = objective_statement(*kind)
    text = str(made)
    assert max(map(len, text.splitlines())) <= 88
    flat = " ".join(text.split())
    inside, outside = made.objective, made.noise
    scales = [getattr(n, "sigma" if kind[2] == "gaussian" else "beta") for n in (inside, outside)]
    for number in (*scales, inside.epsilon, inside.delta, inside.regularization, kind[0]):
        assert (number if isinstance(number, str) else f"{number:.6g}") in flat
    for part in (
        "inside the objective",
        "epsilon = 2,",
        "of it for privacy",
        "the rest of epsilon",
    ):
        assert part in flat
    assert f"{inside.shape[0]} x 5 linear coefficients" in flat
    assert ("(smoothing" in flat) == (kind[0] != "logistic")


def test_a_null_objective_is_not_read() -> None:
    document = statement().to_dict()
    assert "objective" not in document
    with pytest.raises((TypeError, InvalidParameterError)):
        PrivacyStatement.from_dict(document | {"objective": None})


def test_minimisers_coincide_only_with_noise_in_the_objective() -> None:
    made = statement()
    with pytest.raises(InvalidParameterError, match="exact"):
        dataclasses.replace(made, sensitivity=dataclasses.replace(made.sensitivity, exact=0.0))


@pytest.mark.parametrize(
    "changes",
    [
        {"n_classes": 1},
        {"smoothing": 0.0},
        {"jacobian": 0.1},
        {"beta": 1.0},
        {"delta": 0.0},
        {"sampler": "exact_grid", "grid": None},
        {"extra_regularization": 1e9},
        {"shape": (3,)},
        {"curvature": math.inf},
    ],
    ids=str,
)
def test_bad_noise_in_the_objective(changes: dict[str, Any]) -> None:
    made = objective_statement(*OBJECTIVE_KINDS[2])
    with pytest.raises((TypeError, InvalidParameterError)):
        dataclasses.replace(made.objective, **changes)


def test_a_seeded_release_says_that_it_is_not_private() -> None:
    with pytest.raises(InvalidParameterError, match="seeded"):
        statement(random_source="seed")
    made = statement(random_source="seed", not_private_reasons=(SEED_REASON,))
    assert not made.private
    flat = " ".join(str(made).split())
    assert "NOT PRIVATE" in flat
    assert "No privacy is promised" in flat
    assert SEED_REASON in flat
    assert "are differentially private" not in flat
    assert json.loads(made.to_json())["private"] is False


def test_floating_point_noise_must_bring_its_caveat() -> None:
    with pytest.raises(InvalidParameterError, match="caveat"):
        statement("gamma", "floating_point", caveats=(MAX_ITER_CAVEAT,))


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        statement().epsilon = 0.1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"epsilon": 0.0}, InvalidParameterError),
        ({"delta": 1.0}, InvalidParameterError),
        ({"epsilon": "1"}, TypeError),
        ({"adjacency": "both"}, InvalidParameterError),
        ({"random_source": "dice"}, InvalidParameterError),
        ({"caveats": "none"}, TypeError),
        ({"assumed_public": (1,)}, TypeError),
        ({"parts": ("part",)}, TypeError),
        ({"noise": {}}, TypeError),
    ],
    ids=str,
)
def test_bad_fields(changes: dict[str, Any], error: type[Exception]) -> None:
    made = statement()
    with pytest.raises(error):
        dataclasses.replace(made, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"distribution": "laplace"},
        {"sampler": "magic"},
        {"beta": 1.0},
        {"sigma": None},
        {"grid": None},
        {"distribution": "gamma"},
        {"shape": (3,)},
        {"shape": (3, 0)},
        {"shape": (3, 5.0)},
        {"sigma": math.inf},
    ],
    ids=str,
)
def test_bad_noise(changes: dict[str, Any]) -> None:
    with pytest.raises((TypeError, InvalidParameterError)):
        dataclasses.replace(statement().noise, **changes)


def test_unknown_versions_and_fields_are_refused() -> None:
    good = statement().to_dict()
    sensitivity_with_more = good["sensitivity"] | {"safety": 2.0}
    noise_without = {k: v for k, v in good["noise"].items() if k != "grid"}
    for bad in (
        good | {"version": 1},
        good | {"version": 2},
        good | {"version": 4},
        good | {"version": True},
        good | {"version": 3.0},
        good | {"format": "other"},
        good | {"surplus": 1},
        {k: v for k, v in good.items() if k != "unit"},
        good | {"sensitivity": sensitivity_with_more},
        good | {"noise": noise_without},
        good | {"private": False},
        good | {"private": 1},
        good | {"not_private_reasons": ["seed"]},
        good | {"events": {}},
    ):
        with pytest.raises((TypeError, InvalidParameterError)):
            PrivacyStatement.from_dict(bad)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    text = statement().to_json().replace('"epsilon": 0.8', f'"epsilon": {number}', 1)
    with pytest.raises(InvalidParameterError):
        PrivacyStatement.from_json(text)


def test_repeated_fields_and_broken_json_are_refused() -> None:
    text = statement().to_json()
    with pytest.raises(InvalidParameterError, match="repeats"):
        PrivacyStatement.from_json(text.replace('"delta"', '"epsilon": 9.0, "delta"', 1))
    for broken in ("", "{", text[:-5], "[]" * 2, "[" * 100_000):
        with pytest.raises(InvalidParameterError, match="certificate"):
            PrivacyStatement.from_json(broken)
