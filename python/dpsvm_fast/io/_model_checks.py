"""Whether a certificate is about the model that it comes with, and whether it still holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.accounting import (
    FederatedStatement,
    PrivacyStatement,
    SelectionStatement,
    Verification,
    read_certificate,
    verify,
)
from dpsvm_fast.estimators._bounds import checked_bounds
from dpsvm_fast.estimators._training_data import public_classes
from dpsvm_fast.exceptions import ModelFormatError
from dpsvm_fast.io._model_text import shown

__all__ = [
    "Statement",
    "check_facts",
    "check_holds",
    "check_promise",
    "same_labels",
    "statement_from",
]

Statement = PrivacyStatement | SelectionStatement | FederatedStatement

# Where nothing is released before the weights, a pipeline has the certificate of its trainer.
PIPELINES = {"private_linear", "private_kernel"}
SINGLE_RELEASES = {"output_perturbation", "objective_perturbation"}

# Recomputations that are remembered: workers load the same model again and again.
REMEMBERED = 64


def statement_from(where: str, record: object) -> Any:
    """The statement of a certificate; of which kind it has to be depends on the model."""
    if not isinstance(record, Mapping):
        raise ModelFormatError(f"{where}: got {shown(record)}, expected a certificate")
    try:
        return read_certificate(record)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelFormatError(
            f"{where}: no certificate that this release reads: {error}"
        ) from None


def check_holds(where: str, statement: Statement) -> None:
    """Recompute what the certificate promises; of one that is not private, what its noise gives.

    Raises
    ------
    ModelFormatError
        It does not follow from its numbers.
    """
    found = _verified(statement.to_json(indent=None))
    if not found:
        verdict = "cannot be confirmed" if found.undecided else "does not hold"
        raise ModelFormatError(
            f"{where}: the certificate {verdict}: {found.problems[0]}; do not rely on this model's "
            "epsilon and delta"
        )


@lru_cache(maxsize=REMEMBERED)
def _verified(text: str) -> Verification:
    """What ``verify`` finds, apart from the reasons for which the statement is not private."""
    # Whether its numbers follow from each other does not depend on who knows the seed.
    statement: Any = read_certificate(text)
    plain = replace(statement, not_private_reasons=(), random_source="operating_system")
    return verify(plain)


def check_promise(where: str, mechanism: str, model: Any, statement: Statement) -> None:
    """Whether a certificate is about a release with the parameters of this model.

    Parameters
    ----------
    where : str
        For messages.
    mechanism : str
        That of the class; "search" and "federated" for the classes with other certificates.
    model : estimator
        With its parameters.
    statement : Statement
    """
    if mechanism == "federated":
        _check_federated(where, model.spec, statement)
        return
    _check_same(where, "adjacency", statement.adjacency, model.adjacency)
    if isinstance(statement, SelectionStatement):
        _check_search(where, mechanism, model, statement)
        return
    known = {mechanism} | (SINGLE_RELEASES if mechanism in PIPELINES else set())
    if not isinstance(statement, PrivacyStatement) or statement.mechanism not in known:
        raise ModelFormatError(
            f"{where}: the certificate is about another mechanism than {type(model).__name__} has"
        )
    more = mechanism == "gradient_perturbation" and statement.epsilon > model.epsilon
    if not more:
        # Calls of partial_fit spend more than the parameter says.
        _check_same(where, "epsilon", statement.epsilon, model.epsilon)
    pure = getattr(model, "noise", None) == "gamma"
    _check_same(where, "delta", statement.delta, 0.0 if pure else model.delta)


def _check_search(where: str, mechanism: str, model: Any, statement: SelectionStatement) -> None:
    """The search itself promises what it was given; a model out of it was given less."""
    names = ("epsilon", "delta")
    if mechanism == "search":
        for name in (*names, "strategy"):
            _check_same(where, name, getattr(statement, name), getattr(model, name))
        return
    for name in names:
        if getattr(model, name) > getattr(statement, name):
            raise ModelFormatError(
                f"{where}: the parameter {name} is larger than that of the search in its "
                "certificate"
            )


def _check_federated(where: str, spec: Any, statement: Statement) -> None:
    """What the parties agreed on is what is promised."""
    if not isinstance(statement, FederatedStatement) or spec is None:
        raise ModelFormatError(f"{where}: expected a specification and a federated certificate")
    names = ("algorithm", "epsilon", "delta", "n_users", "honest_fraction", "max_dropout")
    for name in (*names, "min_survivors"):
        _check_same(where, name, getattr(statement, name), getattr(spec, name))


def _check_same(where: str, name: str, promised: object, parameter: object) -> None:
    """Refuse a certificate whose number is not that of the model."""
    if promised != parameter:
        raise ModelFormatError(
            f"{where}: {name} is {shown(promised)} in the certificate of the fit and "
            f"{shown(parameter)} in the parameters, expected the same"
        )


def check_facts(where: str, model: Any, facts: Mapping[str, Any], statement: Any) -> None:
    """Whether fitted attributes, parameters and the certificate are about the same weights.

    Shapes of attributes among each other have been checked.
    """
    classes: Any = facts.get("classes_")
    given = getattr(model, "classes", None)
    if classes is not None and given is not None and not same_labels(given, classes):
        raise ModelFormatError(f"{where}: expected the same label set in classes and classes_")
    _check_widths(where, model, facts)
    _check_choices(where, facts)
    _check_trainer(where, facts, statement)
    loss = facts.get("_fitted_loss")
    if loss is None:
        return
    n_rivals = len(classes) if "coef_" in facts else _ellipsoids(facts) - _each(facts) + 1
    if loss.n_classes != n_rivals:
        raise ModelFormatError(f"{where}: the loss is for another number of classes")
    if not isinstance(statement, PrivacyStatement):
        return
    _check_same(where, "loss", statement.loss, loss.name)
    noise = statement.noise
    if noise is not None and noise.n_weights != _noisy_numbers(model, facts, loss.n_scores):
        raise ModelFormatError(
            f"{where}: the certificate is about {noise.n_weights} noisy numbers, expected as many "
            "as the model has"
        )


def _check_widths(where: str, model: Any, facts: Mapping[str, Any]) -> None:
    """Public parameters with a number for each feature are about as many as there are."""
    n_features = facts.get("n_features_in_")
    if n_features is None:
        return
    spec = getattr(model, "spec", None)
    if spec is not None and not (
        spec.n_features == n_features and same_labels(spec.classes, facts["classes_"])
    ):
        raise ModelFormatError(f"{where}: expected the features and classes of the specification")
    bounds, centre = getattr(model, "bounds", None), getattr(model, "centre", None)
    sides = [] if bounds is None else list(checked_bounds(bounds))
    sides += [] if centre is None else [np.asarray(centre)]
    if any(side.ndim == 1 and side.size != n_features for side in sides):
        raise ModelFormatError(f"{where}: expected bounds, or a centre, of {n_features} numbers")


def same_labels(given: Any, classes: NDArray[Any]) -> bool:
    """Whether a label set, as the user gives it, is that of a model."""
    known = public_classes(list(given))
    kinds = {labels.dtype.kind for labels in (known, classes)}
    same: bool = known.tolist() == classes.tolist()
    return same and (len(kinds) == 1 or kinds <= set("iu"))


def _each(facts: Mapping[str, Any]) -> int:
    """Ellipsoids of a class."""
    return int(facts["ellipsoids_"].shape[1])


def _ellipsoids(facts: Mapping[str, Any]) -> int:
    """Ellipsoids of all classes."""
    return int(facts["ellipsoids_"].shape[0]) * _each(facts)


def _noisy_numbers(model: Any, facts: Mapping[str, Any], n_scores: int) -> int:
    """Numbers that were released with noise on the weights."""
    if "ellipsoids_" in facts:
        return _ellipsoids(facts) * math.comb(facts["n_features_in_"] + 2, 2)
    return n_scores * (int(facts["coef_"].shape[1]) + int(model.fit_intercept))


def _check_trainer(where: str, facts: Mapping[str, Any], statement: Any) -> None:
    """The certificate of a trainer is about the one that the pipeline took."""
    chosen, stated = facts.get("mechanism_"), getattr(statement, "mechanism", None)
    if chosen is not None and stated in SINGLE_RELEASES - {f"{chosen}_perturbation"}:
        raise ModelFormatError(f"{where}: mechanism_ is not that of the certificate")


def _check_choices(where: str, facts: Mapping[str, Any]) -> None:
    """What was chosen in a fit goes with what was released by it."""
    if "whitening_" in facts and "whitened_" in facts:
        if facts["whitened_"] is not (facts["whitening_"] is not None):
            raise ModelFormatError(f"{where}: whitened_ does not go with whitening_")
        if facts["mechanism_"] == "gradient" and facts["n_steps_"] is None:
            raise ModelFormatError(f"{where}: mechanism_ does not go with n_steps_")
    if "kernel_" not in facts:
        return
    features = facts["features_"]
    chosen = (
        ("linear", None, None)
        if features is None
        else (features.kernel, features.gamma, features.n_components)
    )
    if chosen != tuple(facts[name] for name in ("kernel_", "gamma_", "n_components_")):
        raise ModelFormatError(
            f"{where}: kernel_, gamma_ or n_components_ is not that of features_"
        )
