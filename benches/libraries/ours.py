"""This library. Its objective is the one of ``Problem``: nothing is rescaled.

``solve`` calls the compiled solver alone, for the comparison with other solvers. ``fit`` is what a
user calls: validation, solver, calibration and noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benches.logistic_problem import INTERCEPT, LogisticProblem
from benches.problem import Problem
from dpsvm_fast import ObjectivePerturbationSVC, OutputPerturbationSVC, _core


def _given(X: Any) -> Any:
    """Rows as the compiled module takes them."""
    return (X.data, X.indices, X.indptr, X.shape[1]) if sparse.issparse(X) else X


def solve(
    problem: Problem, *, relation: str, tol: float, seed: int, n_threads: int
) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Weights at a certified distance of at most tol * Delta(relation), and the solver's notes."""
    weights, notes = _core.solve_crammer_singer(
        _given(problem.X),
        problem.y,
        n_classes=problem.n_classes,
        C=problem.C,
        data_norm=1.0,
        intercept_scaling=0.0,
        radius=tol * problem.sensitivity(relation),
        max_iter=None,
        shuffle_seed=seed,
        n_threads=n_threads,
        low_memory=False,
    )
    if weights is None:
        raise RuntimeError("the solver gave up although max_iter is None")
    return weights, notes


def solve_smooth(
    problem: LogisticProblem, *, gradient_tol: float, seed: int, n_threads: int
) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Weights whose gradient's norm is certified to be at most ``gradient_tol``, and notes."""
    settings: dict[str, Any] = {
        "loss": "softplus" if problem.n_scores == 1 else "softmax_margin",
        "n_scores": problem.n_scores,
        "smoothing": 1.0,
        "margin": 0.0,
        "regularization": problem.regularization,
        "linear": None,
        "data_norm": 1.0,
        "intercept_scaling": INTERCEPT,
        "gradient_tol": gradient_tol,
        "max_iter": None,
        "shuffle_seed": seed,
        "n_threads": n_threads,
        "low_memory": False,
    }
    weights, notes = _core.solve_smooth(_given(problem.X), problem.y, **settings)
    if weights is None:
        raise RuntimeError("the solver gave up although max_iter is None")
    return weights, notes


def estimator(
    problem_C: float, n_classes: int, *, n_threads: int, **more: Any
) -> OutputPerturbationSVC:
    """Our estimator on the same problem; the budget does not change the work."""
    return OutputPerturbationSVC(
        epsilon=1.0,
        delta=1e-6,
        classes=range(n_classes),
        C=problem_C,
        fit_intercept=False,
        n_threads=n_threads,
        **more,
    )


def objective_estimator(
    problem_C: float, n_classes: int, *, n_threads: int, **more: Any
) -> ObjectivePerturbationSVC:
    """Our estimator with noise in the objective, at a budget that this C allows."""
    return ObjectivePerturbationSVC(
        epsilon=8.0,
        delta=1e-6,
        classes=range(n_classes),
        C=problem_C,
        n_threads=n_threads,
        **more,
    )


def fit(problem: Problem, *, n_threads: int) -> NDArray[np.float64]:
    """Noisy weights of the estimator with its defaults (add_remove, tol 1e-3)."""
    model = estimator(problem.C, problem.n_classes, n_threads=n_threads)
    return model.fit(problem.X, problem.y).coef_
