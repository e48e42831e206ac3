"""LIBLINEAR's Crammer-Singer solver through scikit-learn.

Its primal problem is 1/2 sum_k ||w_k||^2 + C sum_i xi_i, where xi_i is the largest margin violation
of row i: the same objective as ours with the same C (scikit-learn does not divide C by the number
of samples here), so nothing is rescaled. Without an intercept the optima agree. ``tol`` bounds a
violation of the dual's optimality conditions: it is not a distance to the minimiser, and a user
cannot tell that distance. One thread always: LIBLINEAR has no other mode for this loss.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from benches.problem import Problem

# Never the reason to stop.
MAX_ITER = 100_000_000


def classifier(C: float, *, tol: float, seed: int = 0) -> LinearSVC:
    """scikit-learn's estimator for the same objective."""
    return LinearSVC(
        multi_class="crammer_singer",
        C=C,
        tol=tol,
        fit_intercept=False,
        max_iter=MAX_ITER,
        random_state=seed,
    )


def solve(problem: Problem, *, tol: float, seed: int) -> NDArray[np.float64]:
    """Weights of shape (n_classes, n_features)."""
    with warnings.catch_warnings():
        # Older scikit-learn warns for this loss whatever happened; the objectives are compared.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = classifier(problem.C, tol=tol, seed=seed).fit(problem.X, problem.y)
    weights = np.asarray(model.coef_, dtype=np.float64)
    if weights.shape[0] != problem.n_classes:
        raise ValueError("LIBLINEAR stores one row for two classes; use data with three or more")
    return weights
