"""Plans of fits and rows to run them on, without a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.certificates import Occasion, PrivacyStatement
from dpsvm_fast.estimators.inputs import ArrayRows


class PlainRows(ArrayRows):
    """Rows and class indices that are taken as they are."""

    def __init__(
        self, X: Any, codes: NDArray[np.int64], n_classes: int = 2, n_threads: int = 1
    ) -> None:
        self.X, self.codes, self.classes = X, codes, np.arange(n_classes)
        self.n_threads, self.low_memory, self.verbose = n_threads, False, False
        self.on_step = None
        self._labelled, self._counted = True, False
        self._owners, self._class_weight, self._unit, self._weighted = None, None, "row", False
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
