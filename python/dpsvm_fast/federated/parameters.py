"""Parameters of the two algorithms: what they may be, and what "auto" stands for.

Public defaults are functions of what all parties know, never of data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from dpsvm_fast import validation as check
from dpsvm_fast.accounting import gaussian_sigma
from dpsvm_fast.certificates.words import UNITS
from dpsvm_fast.estimators.parameters import (
    Test,
    auto_or,
    chosen_loss,
    integer,
    one_of,
    or_word,
    real,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.secsum import PartyCounts
from dpsvm_fast.losses import SMOOTH_LOSSES, Loss
from dpsvm_fast.mechanisms.output import PROJECTIONS, automatic_intercept_scaling, loss_at_zero

# Standard deviation of the noise in one class score of a row of the largest norm, beside a margin
# of 1, that the regularisation is chosen for. On USPS and MNIST (unit rows of pixels, and 64 public
# components), 50 records a party, 10 to 1,000 parties and epsilon from 0.1 to 8 the best lies
# between 0.06 and 0.35, for the softmax as for the hinge, and 0.1 is within 0.03 of it in accuracy.
SCORE_NOISE = 0.12
# Less regularisation, relative to the gradient of the loss, gained nothing there without noise.
LEAST = 5e-4
# For whole parties the noise follows the radius alone. Models of 50 records do best with little
# regularisation, cut to about half of their usual norm; the constants are of 100 and 1,000 parties
# and epsilon from 0.5 to 8, where anything from a third to three times of them does nearly as well.
USER_REGULARIZATION = 0.01

USER_RADIUS = 0.12

ALGORITHMS = ("dp_helmet", "fed_dpdr")


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

count = integer(1, MOST_RECORDS)

SHARED: dict[str, Test] = {
    "data_norm": check.check_positive,
    "intercept_scaling": auto_or(check.check_non_negative),
    "loss": auto_or(one_of("crammer_singer", *SMOOTH_LOSSES)),
    "smoothing": auto_or(check.check_positive),
    "margin": auto_or(check.check_non_negative),
    "regularization": auto_or(check.check_positive),
    "radius": auto_or(check.check_positive),
    "projection": one_of(*PROJECTIONS),
    "weighting": auto_or(one_of(*WEIGHTINGS)),
    "unit": one_of(*UNITS),
    "group_size": count,
    "min_records": count,
    "max_records": count,
    "tol": real(1e-4, 1.0),
}

TABLES: dict[str, dict[str, Test]] = {
    "dp_helmet": SHARED
    | {
        "local": one_of(*LOCALS["dp_helmet"]),
        "n_epochs": integer(1, 2**20),
        "batch_size": count,
    },
    "fed_dpdr": SHARED
    | {
        "local": one_of(*LOCALS["fed_dpdr"]),
        "n_components": partial(check.check_integer, low=1),
        "aggregation": one_of(*AGGREGATIONS),
        "align": check.check_bool,
        "objective_epsilon": or_word(None, lambda name, value: check.check_epsilon(value, name)),
        "first_share": partial(check.check_real, low=0.0, high=1.0, open_low=True, open_high=True),
    },
}


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
        else test(name, params[name])
        for name, test in table.items()
    }
    if values["min_records"] > values["max_records"]:
        raise InvalidParameterError.of(
            "min_records", got=values["min_records"], accepted="at most max_records"
        )
    if (values["unit"] == "person") != (values["group_size"] > 1):
        raise InvalidParameterError.of(
            "group_size", got=values["group_size"], accepted="2 or more with unit='person' alone"
        )
    if algorithm == "fed_dpdr" and values["n_components"] > n_features:
        raise InvalidParameterError.of(
            "n_components", got=values["n_components"], accepted="at most the number of features"
        )
    return values


def choose_words(values: dict[str, Any], n_classes: int) -> None:
    """Put values for "auto", where neither noise nor numbers of parties decide about them."""
    if values["intercept_scaling"] == "auto":
        values["intercept_scaling"] = automatic_intercept_scaling(values["data_norm"])
    if values["weighting"] == "auto":
        values["weighting"] = "users" if values["unit"] == "party" else "records"
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


def choose_sizes(
    values: dict[str, Any],
    n_classes: int,
    epsilon: float,
    delta: float,
    counts: PartyCounts,
    expected: int | None,
) -> None:
    r"""Put numbers for ``regularization="auto"`` and ``radius="auto"``, by public rules.

    .. math:: \Lambda = \frac{2 G L m \kappa_t^2}{c\, n U} \sqrt{U / h}

    so that the noise in a class score has standard deviation c = 0.12; m is the
    noise multiplier, n the number of records that a party is expected to have (between the two
    bounds, where nobody said how many). The root is what honest parties that are not counted on
    add.

    .. math:: R = \min(L \kappa_t / \Lambda, \sqrt{2 \phi(0) / \Lambda})

    holds every minimiser; for whole parties it is 0.12 of that.
    """
    loss, users = loss_of(values, n_classes), values["unit"] == "party"
    if expected is None:
        typical = math.sqrt(values["min_records"] * values["max_records"])
        expected = max(1, round(typical))
    records = check.check_integer("expected_records", expected, 1, MOST_RECORDS)
    row_norm = (values["data_norm"] ** 2 + values["intercept_scaling"] ** 2) ** 0.5
    if values["regularization"] == "auto" and users:
        values["regularization"] = USER_REGULARIZATION * row_norm * row_norm
    elif values["regularization"] == "auto":
        multiplier = gaussian_sigma(epsilon, delta)
        extra = math.sqrt(counts.n_users / counts.honest_survivors)
        moved = 2.0 * values["group_size"] * loss.lipschitz * multiplier * extra
        moved /= records * counts.n_users
        least = LEAST * loss.lipschitz
        values["regularization"] = max(moved / SCORE_NOISE, least) * row_norm * row_norm
    if values["radius"] == "auto":
        by_gradient = loss.lipschitz * row_norm / values["regularization"]
        by_value = math.sqrt(2.0 * loss_at_zero(loss) / values["regularization"])
        values["radius"] = min(by_gradient, by_value) * (USER_RADIUS if users else 1.0 + 1e-12)
