"""Projected SGD by the compiled module and by its slow twin, as one mechanism describes it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.output import OutputPerturbation, ProjectedSGD
from oracles.plans import plan_of
from twins.projected_sgd import Descent
from twins.smooth_erm import score_gradient

Array = NDArray[Any]


def output_plan(
    *, loss: str = "crammer_singer", n_classes: int = 2, **settings: Any
) -> OutputPerturbation:
    """A plan whose loss is given by its name, number of classes and what is said of it besides."""
    about = {name: settings.pop(name) for name in ("smoothing", "margin") if name in settings}
    table = Loss(name=loss, n_classes=n_classes, **about)
    return plan_of(OutputPerturbation, loss=table, **{"tol": 1e-3} | settings)


def mechanism(
    n_samples: int,
    *,
    n_epochs: int = 2,
    batch_size: int = 1,
    radius: float | None = None,
    projection: str = "joint",
    average: str = "last",
    **changes: Any,
) -> OutputPerturbation:
    """A release of projected SGD on ``n_samples`` rows of three features."""
    huber = {"loss": "huber", "smoothing": 0.5, "C": 0.1, "adjacency": "replace_one"}
    run = ProjectedSGD(
        n_samples=n_samples,
        n_epochs=n_epochs,
        batch_size=batch_size,
        radius=radius,
        projection=projection,
        average=average,
    )
    return output_plan(**huber | changes, sgd=run)


def orders(plan: OutputPerturbation, seed: int) -> NDArray[np.uint32]:
    """Rows in the order of every pass, a line a pass."""
    assert plan.sgd is not None
    n, k = plan.sgd.n_samples, plan.sgd.n_epochs
    return _core.projected_sgd_orders(n, k, seed).reshape(k, n)


def compiled(plan: OutputPerturbation, X: Any, y: Array, seed: int, **changes: Any) -> Array:
    """Weights of the compiled run."""
    sgd, loss = plan.sgd, plan.loss
    assert sgd is not None
    kernel, smoothing, margin = loss.kernel
    options: dict[str, Any] = {
        "loss": kernel,
        "n_scores": loss.n_scores,
        "smoothing": smoothing,
        "margin": margin,
        "n_epochs": sgd.n_epochs,
        "batch_size": sgd.batch,
        "regularization": sgd.regularization(plan.C),
        "radius": sgd.ball_radius(loss, plan.C, plan.row_norm),
        "projection": sgd.projection,
        "average": sgd.average,
        "data_norm": plan.data_norm,
        "intercept_scaling": plan.intercept_scaling,
        "permutation_seed": seed,
        "low_memory": False,
        "most_rows": 1,
    } | changes
    if sparse.issparse(X):
        arrays = (X.data, X.indices, X.indptr, X.shape[1])
        return _core.projected_sgd(arrays, y, **options)[0]
    return _core.projected_sgd(X, y, **options)[0]


def twin(
    plan: OutputPerturbation, X: Array, y: Array, seed: int, *, own_size: bool = False
) -> Array:
    """Weights of the twin in extended precision; X as it is, so neither too long nor rounded."""
    sgd, loss = plan.sgd, plan.loss
    assert sgd is not None
    run = Descent(
        gradient=lambda scores, labels: score_gradient(scores, labels, loss.kernel),
        n_scores=loss.n_scores,
        curvature=loss.curvature,
        row_norm=plan.row_norm,
        batch_size=sgd.batch,
        regularization=sgd.regularization(plan.C),
        radius=sgd.ball_radius(loss, plan.C, plan.row_norm),
        per_class=sgd.projection == "per_class",
        average=sgd.average,
        own_size=own_size,
    )
    rows = X.astype(np.longdouble)
    if plan.intercept_scaling:
        rows = np.hstack([rows, np.full((len(rows), 1), np.longdouble(plan.intercept_scaling))])
    return run.run(rows, y, orders(plan, seed))
