"""Parameters of the two algorithms: what they may be, and what "auto" stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dpsvm_fast import _validation as check
from dpsvm_fast.estimators._parameters import chosen_loss, or_word
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated._counts import PartyCounts
from dpsvm_fast.federated._defaults import (
    automatic_radius,
    automatic_regularization,
    typical_records,
)
from dpsvm_fast.losses import SMOOTH_LOSSES, Loss
from dpsvm_fast.mechanisms._automatic import automatic_intercept_scaling
from dpsvm_fast.mechanisms._projected_sgd import PROJECTIONS

__all__ = ["AGGREGATIONS", "ALGORITHMS", "LOCALS", "UNITS", "WEIGHTINGS", "chosen", "resolved"]

ALGORITHMS = ("dp_helmet", "fed_dpdr")
UNITS = ("record", "group", "user")
WEIGHTINGS = ("records", "users")
AGGREGATIONS = ("gram", "projectors", "eigenvectors")
LOCALS = {
    "dp_helmet": ("svm_sgd", "softmax_slp_sgd", "exact"),
    "fed_dpdr": ("objective", "output"),
}
# Of the two trainings that have a name of their own: loss, smoothing and margin.
NAMED = {"svm_sgd": ("huber", 0.5, 1.0), "softmax_slp_sgd": ("softmax_margin", 1.0, 0.0)}
# More records of one party find no room among 30 bits.
MOST_RECORDS = 2**28

Table = dict[str, Callable[[Any], Any]]


def _shared() -> Table:
    """Of both algorithms."""
    return {
        "data_norm": partial(check.check_positive, "data_norm"),
        "intercept_scaling": or_word(
            "auto", partial(check.check_non_negative, "intercept_scaling")
        ),
        "loss": or_word(
            "auto",
            partial(check.check_option, "loss", options=("crammer_singer", *SMOOTH_LOSSES)),
        ),
        "smoothing": or_word("auto", partial(check.check_positive, "smoothing")),
        "margin": or_word("auto", partial(check.check_non_negative, "margin")),
        "regularization": or_word("auto", partial(check.check_positive, "regularization")),
        "radius": or_word("auto", partial(check.check_positive, "radius")),
        "projection": partial(check.check_option, "projection", options=PROJECTIONS),
        "weighting": or_word("auto", partial(check.check_option, "weighting", options=WEIGHTINGS)),
        "unit": partial(check.check_option, "unit", options=UNITS),
        "group_size": partial(check.check_integer, "group_size", low=1, high=MOST_RECORDS),
        "min_records": partial(check.check_integer, "min_records", low=1, high=MOST_RECORDS),
        "max_records": partial(check.check_integer, "max_records", low=1, high=MOST_RECORDS),
        "tol": partial(check.check_real, "tol", low=1e-4, high=1.0),
    }


TABLES: dict[str, Table] = {
    "dp_helmet": _shared()
    | {
        "local": partial(check.check_option, "local", options=LOCALS["dp_helmet"]),
        "n_epochs": partial(check.check_integer, "n_epochs", low=1, high=2**20),
        "batch_size": partial(check.check_integer, "batch_size", low=1, high=MOST_RECORDS),
    },
    "fed_dpdr": _shared()
    | {
        "local": partial(check.check_option, "local", options=LOCALS["fed_dpdr"]),
        "n_components": partial(check.check_integer, "n_components", low=1),
        "aggregation": partial(check.check_option, "aggregation", options=AGGREGATIONS),
        "align": partial(check.check_bool, "align"),
        "objective_epsilon": or_word(None, partial(check.check_epsilon, name="objective_epsilon")),
        "first_share": partial(
            check.check_real,
            "first_share",
            low=0.0,
            high=1.0,
            open_low=True,
            open_high=True,
        ),
    },
}


def resolved(
    algorithm: str,
    params: Mapping[str, Any],
    *,
    epsilon: float,
    delta: float,
    counts: PartyCounts,
    n_features: int,
    n_classes: int,
) -> dict[str, Any]:
    """Parameters with numbers for words: what a specification keeps, so that no default moves it.

    ``expected_records`` only decides about ``regularization="auto"`` and is not kept.
    """
    given = dict(params)
    expected = given.pop("expected_records", None)
    values: dict[str, Any] = chosen(algorithm, given, n_features)
    if values["intercept_scaling"] == "auto":
        values["intercept_scaling"] = automatic_intercept_scaling(values["data_norm"])
    if values["weighting"] == "auto":
        values["weighting"] = "users" if values["unit"] == "user" else "records"
    _choose_loss(values, n_classes)
    if values["local"] == "objective":
        if values["regularization"] == "auto":
            values["regularization"] = None
        values["radius"] = None
        return values
    if expected is None:
        expected = typical_records(values["min_records"], values["max_records"])
    _choose_sizes(values, loss_of(values, n_classes), epsilon, delta, counts, expected)
    return values


def chosen(algorithm: str, params: Mapping[str, Any], n_features: int) -> dict[str, Any]:
    """Checked parameters; words stay words.

    Raises
    ------
    TypeError, InvalidParameterError
        A parameter that is missing, unknown, or outside its range.
    """
    table = TABLES[check.check_option("algorithm", algorithm, ALGORITHMS)]
    wrong = sorted(map(str, set(table) ^ set(params)))
    if wrong:
        raise InvalidParameterError(f"params: missing or unknown: {wrong}")
    free = params["local"] == "objective"
    values: dict[str, Any] = {
        # A rule of its own stands for None.
        name: None
        if free and name in ("regularization", "radius") and params[name] is None
        # Checked one by one, in a fixed order.
        else test(params[name])
        for name, test in table.items()
    }
    if values["min_records"] > values["max_records"]:
        raise InvalidParameterError.of(
            "min_records", got=values["min_records"], accepted="at most max_records"
        )
    if (values["unit"] == "group") != (values["group_size"] > 1):
        raise InvalidParameterError.of(
            "group_size", got=values["group_size"], accepted="2 or more with unit='group' alone"
        )
    if algorithm == "fed_dpdr" and values["n_components"] > n_features:
        raise InvalidParameterError.of(
            "n_components", got=values["n_components"], accepted="at most the number of features"
        )
    return values


def _choose_loss(values: dict[str, Any], n_classes: int) -> None:
    """Loss, smoothing and margin by name or by default."""
    named = NAMED.get(values["local"])
    if named is not None:
        for parameter, own in zip(("loss", "smoothing", "margin"), named, strict=True):
            if values[parameter] not in ("auto", own):
                raise InvalidParameterError.of(
                    parameter,
                    got=values[parameter],
                    accepted=f"'auto' or {own!r} with local={values['local']!r}",
                )
            values[parameter] = own
        return
    if values["loss"] == "auto":
        values["loss"] = "softmax_margin"
    loss = chosen_loss(values["loss"], n_classes, values["smoothing"], values["margin"])
    for parameter in ("smoothing", "margin"):
        if values[parameter] == "auto" and values["loss"] not in ("crammer_singer", "logistic"):
            values[parameter] = getattr(loss, parameter)


def loss_of(values: Mapping[str, Any], n_classes: int) -> Loss:
    """The loss of resolved parameters."""
    return chosen_loss(values["loss"], n_classes, values["smoothing"], values["margin"])


def _choose_sizes(
    values: dict[str, Any],
    loss: Loss,
    epsilon: float,
    delta: float,
    counts: PartyCounts,
    expected: object,
) -> None:
    """Regularisation and radius by the public rules."""
    scaling = values["intercept_scaling"]
    row_norm = (values["data_norm"] ** 2 + scaling**2) ** 0.5
    records = check.check_integer("expected_records", expected, 1, MOST_RECORDS)
    if values["regularization"] == "auto":
        values["regularization"] = automatic_regularization(
            loss,
            epsilon,
            delta,
            counts,
            row_norm=row_norm,
            records=records,
            unit=values["unit"],
            group_size=values["group_size"],
        )
    if values["radius"] == "auto":
        values["radius"] = automatic_radius(
            loss, values["regularization"], row_norm, values["unit"]
        )
