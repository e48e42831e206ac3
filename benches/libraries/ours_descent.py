"""This library's steps. Its problem is ``DescentProblem``: nothing is rescaled.

The compiled module is called as the estimators call it: rows once mapped to ``Records``, then many
steps a call, the state staying inside. Kinds: "exact" draws its noise exactly on a grid chosen as
for a release, "float" in floating point, both from the operating system's entropy; "plain" has no
noise and a clip norm that no gradient reaches. What the plain step still does is sum exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benches.descent_problem import DescentProblem
from dpsvm_fast import _core
from dpsvm_fast.mechanisms.gradient import sum_grid

KINDS = ("exact", "float", "plain")
# Rows have norm at most 1 and slopes of the softmax norm at most sqrt 2.
NEVER_CLIPS = 2.0


def records(X: Any, y: NDArray[np.int64], n_classes: int) -> Any:
    """Rows of norm at most 1 in the form that the solver reads, in the storage they have."""
    settings: dict[str, Any] = {
        "n_classes": n_classes,
        "scale": None,
        "low": -np.inf,
        "floor": None,
        "high": np.inf,
        "constant": 0.0,
        "data_norm": 1.0,
        "unit": False,
        "n_threads": 1,
    }
    if sparse.issparse(X):
        X = (X.data, X.indices, X.indptr, X.shape[1])
    return _core.Records(X, y, offset=None, **settings)


class Stepper:
    """Descends step by step."""

    def __init__(self, problem: DescentProblem, rows: Any, kind: str, n_threads: int) -> None:
        self.rows, self.n_threads, self.source = rows, n_threads, _core.NoiseSource()
        sigma = 0.0 if kind == "plain" else problem.sigma
        on_grid = kind == "exact" and sigma > 0.0
        n_scores, n_features = problem.shape
        grid = sum_grid(problem.clip, sigma, n_scores * n_features) if on_grid else None
        self.descent = _core.Descent(
            loss="softmax_margin",
            n_scores=n_scores,
            smoothing=1.0,
            margin=0.0,
            n_features=n_features,
            intercept=0.0,
            row_scale=1.0,
            clip=NEVER_CLIPS if kind == "plain" else problem.clip,
            sigma=sigma,
            grid=grid,
            sampling_rate=1.0 if problem.full else problem.batch / problem.n_samples,
            divisor=float(problem.batch),
            regularization=0.0,
            optimizer="gd",
            learning_rate=problem.learning_rate,
            schedule="constant",
            horizon=1,
            momentum=0.0,
            nesterov=False,
            beta1=0.9,
            beta2=0.999,
            stabilizer=1e-8,
            noise_correction=False,
            average_from=None,
            radius=None,
            precision="f32",
        )

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weights now."""
        return self.descent.weights()

    def advance(self, n_steps: int) -> None:
        """Take steps."""
        self.descent.run(self.rows, self.source, n_steps, self.n_threads)
