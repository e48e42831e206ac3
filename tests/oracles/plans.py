"""Plans of fits and rows to run them on, without a fit."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.certificates import Occasion, PrivacyStatement
from dpsvm_fast.estimators.inputs import ArrayRows

Plan = TypeVar("Plan")
# What tests do not say of a plan; a mechanism takes of it what it knows.
PLAIN: dict[str, Any] = {
    "epsilon": 1.0, "delta": 1e-6, "adjacency": "add_remove", "noise_grid": "exact",
    "n_features": 3, "fit_intercept": True, "data_norm": 1.0, "intercept_scaling": 0.0,
    "trainer": "gradient", "n_classes": 2, "n_ellipsoids": 1, "trace_weight": 0.0,
    "smoothing": 0.5, "margin": 1.0, "C": None, "extra_regularization": None, "tol": 1e-5,
    "optimizer": "gd", "n_steps": None, "sampling_rate": None, "expected_batch_size": None,
    "max_grad_norm": None, "learning_rate": None, "schedule": "constant", "momentum": None,
    "nesterov": False, "betas": (0.9, 0.999), "stabilizer": None, "noise_correction": False,
    "average": None, "accountant": "auto", "n_records": None,
}  # fmt: skip


def plan_of(kind: type[Plan], **changes: Any) -> Plan:
    """A plan of a mechanism; its noise is Gaussian unless delta is 0."""
    names = {field.name for field in fields(kind) if field.init}  # type: ignore[arg-type]
    settings = PLAIN | changes
    settings.setdefault("noise", "gaussian" if settings["delta"] else "gamma")
    return kind(**{name: settings[name] for name in settings if name in names | changes.keys()})


class PlainRows(ArrayRows):
    """Rows and class indices that are taken as they are."""

    def __init__(
        self, X: Any, codes: NDArray[np.int64], n_classes: int = 2, n_threads: int = 1
    ) -> None:
        self.X, self.codes, self.classes = X, codes, np.arange(n_classes)
        self.n_threads, self.low_memory, self.verbose = n_threads, False, False
        self.on_step = None
        self._labelled, self._counted = True, False
        self.owners, self._class_weight, self._unit, self._weighted = None, None, "row", False
        self._factors, self._periods = None, None


def promised(plan: Any, **facts: Any) -> PrivacyStatement:
    """The statement of a plan about a fit with given classes, by an operating system's noise."""
    occasion = Occasion(parameter="data_norm", labels="given")
    found: PrivacyStatement = plan.statement(
        **{"library_version": "1", "occasion": occasion} | facts
    )
    return found


def planned(estimator: Any, X: Any, y: Any = None) -> tuple[Any, ArrayRows]:
    """What a fit of ``estimator`` to these data would run, and the rows for it."""
    checked = estimator.checked()
    labelled = hasattr(checked, "classes")
    classes = checked.classes if labelled else None
    rows = ArrayRows(checked, X, y, classes=classes, labelled=labelled)
    rows.read()
    return checked.plan(rows.facts), rows
