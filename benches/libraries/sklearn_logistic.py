r"""scikit-learn's LogisticRegression, by the best of three of its solvers.

Its objective is, up to a factor that it divides by, C sum_i loss_i + 1/2 ||W||^2 with the
multinomial loss for three or more classes and one score for two: ours with lambda = 1 / C, the
softmax with smoothing 1 and margin 0 (the softplus of smoothing 1 and margin 0 for two classes) and
no noise. The intercept is our constant feature, regularised like the rest, so it gets X with that
column and ``fit_intercept=False``. The column is added before the clock starts.

``tol`` bounds the largest entry of the gradient of the mean loss. A user who wants a norm of the
whole gradient has to try; here ``best`` tries for him, untimed: the loosest ``tol`` of a ladder
whose result has the norm, for every solver, and then the fastest.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeWarning
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from benches.logistic_problem import LogisticProblem

SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky")
# newton-cholesky factors a matrix of this side squared.
MOST_WEIGHTS_FOR_CHOLESKY = 3000
# The first rung, over what would do if one entry were the whole gradient; rungs down by this each.
FIRST_RUNG, STEP, RUNGS = 10.0, math.sqrt(10.0), 8
# Never the reason to stop.
MAX_ITER = 100_000


@dataclass(frozen=True)
class Setting:
    """A solver at the loosest tolerance that reaches the norm."""

    solver: str
    tol: float
    seconds: float


def classifier(regularization: float, setting: Setting) -> LogisticRegression:
    """scikit-learn's estimator for the same objective."""
    return LogisticRegression(
        C=1.0 / regularization,
        solver=setting.solver,
        tol=setting.tol,
        fit_intercept=False,
        max_iter=MAX_ITER,
    )


def solve(problem: LogisticProblem, X: Any, setting: Setting) -> NDArray[np.float64]:
    """Weights of shape (n_scores, n_features + 1); X has the constant column."""
    with warnings.catch_warnings():
        # Whatever a solver says about itself, its gradient is computed afterwards.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", OptimizeWarning)
        model = classifier(problem.regularization, setting).fit(X, problem.y)
    return np.asarray(model.coef_, dtype=np.float64)


def best(problem: LogisticProblem, X: Any, target: float) -> list[Setting]:
    """Settings that reach a gradient of norm ``target``, the fastest first."""
    found: list[Setting] = []
    for solver in SOLVERS:
        if solver == "newton-cholesky" and problem.n_weights > MOST_WEIGHTS_FOR_CHOLESKY:
            continue
        setting = _loosest(
            problem, X, target, solver, min((s.seconds for s in found), default=math.inf)
        )
        if setting is not None:
            found.append(setting)
    if not found:
        raise RuntimeError(f"scikit-learn: no solver reaches a gradient of norm {target}")
    return sorted(found, key=lambda setting: setting.seconds)


def _loosest(
    problem: LogisticProblem, X: Any, target: float, solver: str, fastest: float
) -> Setting | None:
    """The loosest rung that reaches the norm; gives up on a solver that is already twice slower."""
    for rung in range(RUNGS):
        tol = FIRST_RUNG * target / problem.y.size / STEP**rung
        begin = time.perf_counter()
        W = solve(problem, X, Setting(solver, tol, 0.0))
        seconds = time.perf_counter() - begin
        if np.linalg.norm(problem.gradient(W)) <= target:
            return Setting(solver, tol, seconds)
        if seconds > 2.0 * fastest:
            return None
    return None
