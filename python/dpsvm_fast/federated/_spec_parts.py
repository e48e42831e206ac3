"""How a specification is made of arguments, and what follows from its fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpsvm_fast import _validation as check
from dpsvm_fast.estimators._training_data import public_classes
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated._counts import PartyCounts
from dpsvm_fast.federated._dpdr_plan import DpdrPlan
from dpsvm_fast.federated._helmet_plan import HelmetPlan
from dpsvm_fast.federated._parameters import TABLES, loss_of, resolved
from dpsvm_fast.federated.training import LocalTraining

if TYPE_CHECKING:
    from dpsvm_fast.federated.spec import FederatedSpec

__all__ = ["MOST_FEATURES", "declared", "gaussian_delta", "plan_of", "training_of"]

# Tables of features wider than this would not fit into what parties send.
MOST_FEATURES = 2**26
# Of every algorithm, beside its parameters.
COUNTS = ("n_users", "honest_fraction", "max_dropout", "min_survivors")
SHARED = (*COUNTS, "epsilon", "delta", "n_features", "classes", "study")


def declared(cls: type[FederatedSpec], algorithm: str, given: Mapping[str, Any]) -> FederatedSpec:
    """The specification with numbers for words.

    Parameters
    ----------
    cls : type
    algorithm : {"dp_helmet", "fed_dpdr"}
    given : mapping
        All names in the constructor of that name, before it did anything: its arguments.
    """
    shared = {name: given[name] for name in SHARED}
    # What is no argument is found below.
    params = {name: given.get(name) for name in TABLES[algorithm]}
    counts = PartyCounts(**{name: shared[name] for name in COUNTS})
    labels = public_classes(shared["classes"])
    values = resolved(
        algorithm,
        params | {"expected_records": given["expected_records"]},
        epsilon=check.check_epsilon(shared["epsilon"]),
        delta=gaussian_delta(shared["delta"]),
        counts=counts,
        n_features=check.check_integer("n_features", shared["n_features"], 1, MOST_FEATURES),
        n_classes=labels.size,
    )
    shared["classes"] = labels.tolist()
    spec = cls(algorithm=algorithm, params=values, **shared)
    if values["local"] != "objective":
        return spec
    # Searched for once: whoever reads the specification only checks it.
    assert isinstance(spec.plan, DpdrPlan)
    values["objective_epsilon"] = spec.plan.left_for_objective
    return cls(algorithm=algorithm, params=values, **shared)


def gaussian_delta(value: object) -> float:
    """Accept a delta above 0: sums of noise give no pure guarantee."""
    delta = check.check_delta(value)
    if delta == 0.0:
        raise InvalidParameterError.of("delta", got=value, accepted="a number in (0, 1)")
    return delta


def training_of(spec: FederatedSpec) -> LocalTraining | None:
    """What parties fit under one common noise; None where each has noise of its own."""
    p = spec.params
    if p["local"] == "objective":
        return None
    names = (
        "data_norm",
        "intercept_scaling",
        "regularization",
        "radius",
        "projection",
        "weighting",
        "unit",
        "group_size",
        "min_records",
        "max_records",
        "tol",
    )
    sgd = p["local"] in ("svm_sgd", "softmax_slp_sgd")
    own = {name: p[name] for name in ("n_epochs", "batch_size")} if sgd else {}
    return LocalTraining(
        loss=loss_of(p, len(spec.classes)),
        n_users=spec.n_users,
        n_features=p.get("n_components", spec.n_features),
        solver="psgd" if sgd else "exact",
        **{name: p[name] for name in names},
        **own,
    )


def plan_of(spec: FederatedSpec) -> HelmetPlan | DpdrPlan:
    """The rounds and their noise."""
    shared = {"epsilon": spec.epsilon, "delta": spec.delta, "counts": spec.counts}
    if spec.algorithm == "dp_helmet":
        assert spec.training is not None
        return HelmetPlan(**shared, training=spec.training)  # type: ignore[arg-type]
    names = ("n_components", "data_norm", "intercept_scaling", "aggregation", "first_share")
    more = ("regularization", "weighting", "unit", "group_size", "min_records", "max_records")
    own = ("objective_epsilon",)
    return DpdrPlan(
        **shared,  # type: ignore[arg-type]
        loss=loss_of(spec.params, len(spec.classes)),
        n_features=spec.n_features,
        training=spec.training,
        **{name: spec.params[name] for name in (*names, *more, *own)},
    )
