"""The classes that can be saved, and of each the parameters and attributes that are.

A file names a class by a word of this table; nothing is ever imported because a file says so. What
is not listed here is not saved: no ledger, no seed of private noise, no number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from dpsvm_fast import _validation as check
from dpsvm_fast import preprocessing as ours
from dpsvm_fast.estimators import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateGaussianMarginClassifier,
    PrivateKernelSVC,
    PrivateLinearSVC,
)
from dpsvm_fast.estimators._bounds import checked_bounds
from dpsvm_fast.estimators._training_data import public_classes
from dpsvm_fast.federated.classifier import FederatedLinearSVC
from dpsvm_fast.io import _model_attributes as kinds
from dpsvm_fast.io._model_attributes import Attribute, Facts, numbers, real, whole, word
from dpsvm_fast.io._model_parameters import (
    SPECIFICATION,
    Parameter,
    hashing_parameters,
    parameters_of,
)
from dpsvm_fast.io._model_values import numbers_from, numbers_to, plain_from, plain_to
from dpsvm_fast.mechanisms.fourier import (
    KERNELS,
    LARGEST_GAMMA,
    MOST_COMPONENTS,
    SMALLEST_GAMMA,
)
from dpsvm_fast.mechanisms.linear_pipeline import TRAINERS
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.model_selection._default import ConstantClassifier
from dpsvm_fast.preprocessing.scaling import squares

__all__ = ["SavedClass", "saved_classes"]

MOST = 2**63 - 1

Attributes = dict[str, Attribute]


@dataclass(frozen=True)
class SavedClass:
    """What is saved of the objects of one class.

    Parameters
    ----------
    kind : type
    parameters : mapping of names to Parameter
    attributes : mapping of names to Attribute
        In the order in which they are read: later ones are checked against earlier ones.
    mechanism : str or None
        That of the certificate; None where a fit spends nothing.
    fits : bool
        Whether there is something to be fitted.
    derived : callable or None
        Attributes that follow from the others, not saved.
    """

    kind: type
    parameters: Mapping[str, Parameter]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    mechanism: str | None = None
    fits: bool = True
    derived: Callable[[Facts], dict[str, Any]] | None = None


def _anything(value: Any) -> Any:
    """What is checked where it is used."""
    return value


def _rows(facts: Facts) -> int:
    """Rows of the weights: two classes have one."""
    n_classes = len(facts["classes_"])
    return 1 if n_classes == 2 else n_classes


def _columns(facts: Facts) -> int:
    """Columns of the weights: features, or random features of them."""
    features = facts.get("features_")
    n_features: int = facts["n_features_in_"]
    return n_features if features is None else 2 * features.n_components


def _square(facts: Facts) -> tuple[int, int]:
    """Shape of a matrix of the features."""
    return (facts["n_features_in_"],) * 2


def _row(facts: Facts) -> tuple[int]:
    """Shape of one number for each feature."""
    return (facts["n_features_in_"],)


def _components(facts: Facts) -> tuple[int]:
    """Shape of one number for each component."""
    return (facts["n_components_"],)


FEATURES: Attributes = {
    "n_features_in_": kinds.N_FEATURES,
    "feature_names_in_": kinds.FEATURE_NAMES,
}
WEIGHTS: Attributes = {
    "coef_": numbers(lambda facts: (_rows(facts), _columns(facts))),
    "intercept_": numbers(lambda facts: (_rows(facts),)),
    "_fitted_loss": kinds.LOSS,
}
LINEAR: Attributes = FEATURES | {"classes_": kinds.LABELS} | WEIGHTS
MAPPED: Attributes = {
    "n_samples_": real(above=0.0, none=True),
    "centre_": numbers(_row, none=True),
    "whitened_": kinds.FLAG,
    "whitening_": numbers(_square, none=True),
    "mu_": kinds.PARAMETERS_OF_NOISE,
    "max_grad_norm_": real(above=0.0, none=True),
    "n_steps_": whole(1, MOST, none=True),
    "learning_rate_": real(above=0.0, none=True),
    "c_": real(above=0.0, none=True),
    "lambda_": real(low=0.0, none=True),
    "bounds_": kinds.BOUNDS,
    "mechanism_": word(*TRAINERS),
}
# What weights are of comes before them.
LIFTED: Attributes = {
    "kernel_": word(*KERNELS, "linear"),
    "gamma_": real(above=0.0, none=True),
    "n_components_": whole(1, MOST_COMPONENTS, none=True),
    "q_": real(none=True),
    "features_": kinds.FOURIER,
    "data_norm_": real(above=0.0, none=True),
}
ELLIPSOIDS: Attributes = {
    "ellipsoids_": numbers(
        lambda f: (len(f["classes_"]), None, f["n_features_in_"] + 1, f["n_features_in_"] + 1)
    ),
    "means_": numbers(lambda f: (*f["ellipsoids_"].shape[:2], f["n_features_in_"])),
    "offsets_": numbers(lambda f: f["ellipsoids_"].shape[:2]),
    "lambda_": real(above=0.0),
    "data_norm_": real(above=0.0),
    "_fitted_loss": kinds.LOSS,
}


def _of_ellipsoids(facts: Facts) -> dict[str, Any]:
    """The blocks that a fit cuts out."""
    blocks = facts["ellipsoids_"][..., :-1, :-1]
    return {"precisions_": np.ascontiguousarray(blocks)}


def _of_scales(facts: Facts) -> dict[str, Any]:
    """The squares that a fit publishes beside its scales."""
    scale = facts["scale_"]
    return {"var_": None if scale is None else squares(scale)}


def _of_features(facts: Facts) -> dict[str, Any]:
    """What random features say about themselves."""
    return {"seed_": facts["_features"].seed, "structure_": facts["_features"].structure}


def _classifiers() -> list[SavedClass]:
    """The estimators that are trained on rows with labels."""
    linear = (
        (OutputPerturbationSVC, "output_perturbation", LINEAR),
        (ObjectivePerturbationSVC, "objective_perturbation", LINEAR),
        (GradientPerturbationSVC, "gradient_perturbation", LINEAR),
        (PrivateLinearSVC, "private_linear", LINEAR | MAPPED),
        (
            PrivateKernelSVC,
            "private_kernel",
            FEATURES | {"classes_": kinds.LABELS} | LIFTED | WEIGHTS | MAPPED,
        ),
    )
    found = [
        SavedClass(kind, parameters_of(kind._parameters), attributes, mechanism)
        for kind, mechanism, attributes in linear
    ]
    margin = PrivateGaussianMarginClassifier
    attributes = FEATURES | {"classes_": kinds.LABELS} | ELLIPSOIDS
    found.append(
        SavedClass(
            margin,
            parameters_of(margin._parameters),
            attributes,
            "gaussian_margin",
            derived=_of_ellipsoids,
        )
    )
    federated = LINEAR | {
        "components_": Attribute(
            numbers_to,
            lambda where, record, f: numbers_from(where, record, (None, f["n_features_in_"])),
            optional=True,
        ),
        "n_survivors_": whole(1, MOST),
        "n_records_": whole(1, MOST, none=True),
    }
    spec = {"spec": SPECIFICATION}
    found.append(SavedClass(FederatedLinearSVC, spec, federated, "federated"))
    return found


def _private_transformers() -> list[SavedClass]:
    """Transformers with a certificate."""
    norm = {"data_norm_": real(above=0.0)}
    private: tuple[tuple[Any, Attributes], ...] = (
        (ours.PrivateCenter, {"mean_": numbers(_row), "n_samples_": real(above=0.0)} | norm),
        (ours.PrivateWhitener, {"whitening_": numbers(_square)} | norm),
        (
            ours.PrivatePCA,
            {
                "n_components_": whole(1, MOST),
                "components_": numbers(lambda f: (f["n_components_"], f["n_features_in_"])),
                "eigenvalues_": numbers(_components),
                "explained_variance_ratio_": numbers(_components),
                "scales_": numbers(_components, above=0.0),
                "centre_": numbers(_row),
            }
            | norm,
        ),
        (
            ours.PrivateStandardScaler,
            {
                "mean_": numbers(_row),
                "scale_": numbers(_row, above=0.0, none=True),
                "n_samples_seen_": real(above=0.0),
                "bounds_": replace(kinds.BOUNDS, none=False),
            }
            | norm,
        ),
    )
    derived = {ours.PrivateStandardScaler: _of_scales}
    return [
        SavedClass(
            kind,
            parameters_of(kind._parameters),
            FEATURES | attributes,
            kind._mechanism_name,
            derived=derived.get(kind),
        )
        for kind, attributes in private
    ]


def _public_transformers() -> list[SavedClass]:
    """Transformers that learn nothing."""
    drawn: dict[str, Callable[[Any], Any]] = {
        "n_components": partial(check.check_integer, "n_components", low=1, high=MOST_COMPONENTS),
        "gamma": partial(check.check_real, "gamma", low=SMALLEST_GAMMA, high=LARGEST_GAMMA),
        "kernel": partial(check.check_option, "kernel", options=KERNELS),
        "orthogonal": partial(check.check_bool, "orthogonal"),
    }
    # The frequencies are public, and so is their seed.
    seed = {"random_state": Parameter(check.check_random_state)}
    fourier = FEATURES | {"_features": replace(kinds.FOURIER, none=False)}
    normal: dict[str, Callable[[Any], Any]] = {
        "norm": partial(check.check_option, "norm", options=("l1", "l2", "max")),
        "copy": partial(check.check_bool, "copy"),
    }
    return [
        SavedClass(
            ours.RandomFourierFeatures, parameters_of(drawn) | seed, fourier, derived=_of_features
        ),
        SavedClass(
            ours.PublicScaler, parameters_of({"bounds": checked_bounds}), FEATURES, fits=False
        ),
        SavedClass(Normalizer, parameters_of(normal), FEATURES, fits=False),
        SavedClass(HashingVectorizer, hashing_parameters(), fits=False),
    ]


def _compositions() -> list[SavedClass]:
    """What is made of others; their estimators are saved apart from this table."""
    searched = (
        *("param_grid", "epsilon", "delta", "strategy", "selection", "scoring", "class_weight"),
        *("adjacency", "validation_fraction", "refit_fraction", "stopping", "mean_runs"),
        *("score_fraction", "verbose"),
    )
    own: dict[str, Callable[[Any], Any]] = {
        "epsilon": check.check_epsilon,
        "delta": check.check_delta,
        "adjacency": check.check_adjacency,
    }
    attributes = {
        **{name: _optional(attribute) for name, attribute in FEATURES.items()},
        "classes_": _optional(kinds.LABELS),
        "best_params_": Attribute(
            partial(plain_to, "best_params_"), lambda where, record, _: plain_from(where, record)
        ),
        "best_index_": whole(-1, MOST),
        "best_score_": real(optional=True),
    }
    return [
        SavedClass(
            PrivateGridSearch,
            parameters_of({name: own.get(name, _anything) for name in searched}),
            attributes,
            "search",
        ),
        SavedClass(Pipeline, {"verbose": Parameter(partial(check.check_bool, "verbose"))}),
        SavedClass(ConstantClassifier, parameters_of({"classes": public_classes}), fits=False),
    ]


def _optional(attribute: Attribute) -> Attribute:
    """The same, that may be missing."""
    return Attribute(attribute.write, attribute.read, optional=True, none=attribute.none)


@lru_cache(maxsize=1)
def saved_classes() -> dict[str, SavedClass]:
    """Every class that can be saved, by the word for it in a file."""
    every = [
        *(*_classifiers(), *_private_transformers()),
        *(*_public_transformers(), *_compositions()),
    ]
    return {saved.kind.__name__: saved for saved in every}
