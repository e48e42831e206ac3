r"""Logistic regression of other libraries, each at the loosest tolerance that is good enough.

All minimise our objective with lambda = 1 / C: the multinomial loss for three or more classes, one
score for two, which is the softmax with smoothing 1 and margin 0 (softplus for two classes) without
noise. The intercept is our constant feature, regularised like the rest, so X gets that column
before the clock starts and no library fits an intercept.

- scikit-learn: ``LogisticRegression(C=1 / lambda)``; ``tol`` bounds the largest entry of the
  gradient of the mean loss.
- oneDAL (scikit-learn-intelex): the same class and solver "lbfgs", dense rows.
- Snap ML: ``LogisticRegression(regularizer=lambda)``, its dual solver; two classes.
- liblinear-multicore: solver 0 (trust-region Newton) with ``-c 1 / lambda``; two classes. Its
  Python interface converts rows slowly; that is not timed.
- skglm: ``Logistic()`` with ``L2(lambda / n)``, solver ``LBFGS``; two classes. Its loss is a mean,
  so lambda is divided by n. What it compiles at its first call is not timed.
- Vowpal Wabbit: ``--bfgs --loss_function logistic --l2 lambda``, rows from its own cache file; two
  classes. In single precision, it rarely gets to a millionth of the first gradient.

celer has no objective in common: its logistic regression has an L1 penalty only.

No library stops by the norm of the whole gradient. A user who wants one has to try; here ``best``
tries for him, untimed: the loosest ``tol`` of a ladder whose result has the norm, for every solver
that is installed, then the fastest.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import math
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import OptimizeWarning
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from benches.logistic_problem import LogisticProblem

Weights = NDArray[np.float64]

# newton-cholesky factors a matrix of this side squared.
MAX_WEIGHTS_FOR_CHOLESKY = 3000
# Rungs of a ladder of tolerances go down by this factor each.
STEP, RUNGS = math.sqrt(10.0), 8
# The first rung, over what would do if one entry were the whole gradient.
FIRST_RUNG = 10.0
# Never the reason to stop.
MAX_ITER = 100_000
# Of Vowpal Wabbit, where each pass reads the rows.
MAX_PASSES = 1_000
# No intercept, and a table of 2^22 weights: the cache is refused where they differ.
WABBIT = "--noconstant --quiet -b 22"


@dataclass(frozen=True)
class Setting:
    """A solver at the loosest tolerance that reaches the norm."""

    solver: str
    tol: float
    seconds: float


@dataclass(frozen=True)
class Solver:
    """How a solver is called, for what, and where its ladder of tolerances begins."""

    solve: Callable[[LogisticProblem, Any, float], Any]
    takes: Callable[[LogisticProblem], bool] = lambda _: True
    module: str = "sklearn"
    # The first rung itself, of tolerances that are relative.
    loosest: float | None = None
    # Whether the first call compiles.
    compiles: bool = False

    def first(self, problem: LogisticProblem, target: float) -> float:
        """The loosest tolerance to try."""
        return self.loosest or FIRST_RUNG * target / problem.y.size


def classifier(regularization: float, solver: str, tol: float, kind: Any = None) -> Any:
    """An estimator of scikit-learn, or of a library with its interface, for the same objective."""
    return (kind or LogisticRegression)(
        C=1.0 / regularization,
        solver=solver,
        tol=tol,
        fit_intercept=False,
        max_iter=MAX_ITER,
    )


def _sklearn(solver: str) -> Callable[[LogisticProblem, Any, float], Any]:
    return lambda problem, X, tol: (
        classifier(problem.regularization, solver, tol).fit(X, problem.y).coef_
    )


def _onedal(problem: LogisticProblem, X: Any, tol: float) -> Any:
    kind = importlib.import_module("sklearnex.linear_model").LogisticRegression
    return classifier(problem.regularization, "lbfgs", tol, kind).fit(X, problem.y).coef_


def _snap_ml(problem: LogisticProblem, X: Any, tol: float) -> Any:
    model = importlib.import_module("snapml").LogisticRegression(
        regularizer=problem.regularization,
        fit_intercept=False,
        tol=tol,
        dual=True,
        n_jobs=1,
        max_iter=MAX_ITER,
    )
    return model.fit(X, problem.y).coef_


# The solver, the rows that were converted for it last, and what they became: those of every further
# run of the same cell.
_converted: list[Any] = [None, None, None]


def _once(solver: str, X: Any, convert: Callable[[], Any]) -> Any:
    """What rows are converted to for a solver: not timed, as it is done before the last run."""
    if _converted[0] != solver or _converted[1] is not X:
        _converted[:] = solver, X, convert()
    return _converted[2]


def _liblinear(problem: LogisticProblem, X: Any, tol: float) -> Any:
    tools = importlib.import_module("liblinear.liblinearutil")
    rows = _once("liblinear", X, lambda: tools.problem(np.where(problem.y == 1, 1.0, -1.0), X))
    options = f"-s 0 -c {1.0 / problem.regularization!r} -e {tol!r} -m 1 -q"
    model = tools.train(rows, tools.parameter(options))
    sign = 1.0 if model.get_labels()[0] == 1 else -1.0
    return sign * np.array(model.w[: X.shape[1]])


def _skglm(problem: LogisticProblem, X: Any, tol: float) -> Any:
    loss = importlib.import_module("skglm.datafits").Logistic()
    penalty = importlib.import_module("skglm.penalties").L2(problem.regularization / X.shape[0])
    solver = importlib.import_module("skglm.solvers").LBFGS(max_iter=MAX_ITER, tol=tol)
    columns = _once("skglm", X, lambda: sparse.csc_matrix(X) if sparse.issparse(X) else X)
    return solver.solve(columns, np.where(problem.y == 1, 1.0, -1.0), loss, penalty)[0]


def _cache_file(problem: LogisticProblem, X: Any) -> Any:
    """A folder with the rows as Vowpal Wabbit keeps them."""
    folder = tempfile.TemporaryDirectory()
    text = os.path.join(folder.name, "rows.txt")
    with open(text, "w", encoding="ascii") as file:
        for row, label in zip(sparse.csr_matrix(X), problem.y, strict=True):
            entries = zip(row.indices, row.data, strict=True)
            words = (f"{place}:{value:.9g}" for place, value in entries)
            file.write(f"{1 if label == 1 else -1} | {' '.join(words)}\n")
    tool = importlib.import_module("vowpalwabbit").Workspace
    tool(f"-d {text} --cache_file {folder.name}/cache {WABBIT}").finish()
    return folder


def _vowpal_wabbit(problem: LogisticProblem, X: Any, tol: float) -> Any:
    folder = _once("Vowpal Wabbit", X, lambda: _cache_file(problem, X)).name
    importlib.import_module("vowpalwabbit").Workspace(
        f"--bfgs --loss_function logistic --l2 {problem.regularization!r} --termination {tol!r} "
        f"--passes {MAX_PASSES} --holdout_off --cache_file {folder}/cache {WABBIT} "
        f"--predict_only_model --readable_model {folder}/weights"
    ).finish()
    weights = np.zeros(X.shape[1])
    with open(os.path.join(folder, "weights"), encoding="ascii") as file:
        for line in itertools.dropwhile(lambda one: one.strip() != ":0", file):
            place, _, value = line.partition(":")
            if place:
                weights[int(place)] = float(value)
    return weights


def _has_two_classes(problem: LogisticProblem) -> bool:
    return problem.n_scores == 1


SOLVERS = {
    "lbfgs": Solver(_sklearn("lbfgs")),
    "newton-cg": Solver(_sklearn("newton-cg")),
    "newton-cholesky": Solver(
        _sklearn("newton-cholesky"), lambda one: one.n_weights <= MAX_WEIGHTS_FOR_CHOLESKY
    ),
    "oneDAL": Solver(_onedal, lambda one: not sparse.issparse(one.X), "sklearnex"),
    "Snap ML": Solver(_snap_ml, _has_two_classes, "snapml", loosest=1e-6),
    "liblinear-multicore": Solver(_liblinear, _has_two_classes, "liblinear", loosest=1e-3),
    "skglm": Solver(_skglm, _has_two_classes, "skglm", compiles=True),
    "Vowpal Wabbit": Solver(_vowpal_wabbit, _has_two_classes, "vowpalwabbit", loosest=1e-3),
}


def solve(problem: LogisticProblem, X: Any, setting: Setting) -> Weights:
    """Weights of shape (n_scores, n_features + 1); X has the constant column."""
    with warnings.catch_warnings():
        # Whatever a solver says about itself, its gradient is computed afterwards.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", OptimizeWarning)
        W = SOLVERS[setting.solver].solve(problem, X, setting.tol)
    return np.asarray(W, dtype=np.float64).reshape(problem.n_scores, -1)


def best(problem: LogisticProblem, X: Any, target: float) -> list[Setting]:
    """Settings that reach a gradient of norm ``target``, the fastest first."""
    found: list[Setting] = []
    for name, solver in SOLVERS.items():
        if solver.takes(problem) and importlib.util.find_spec(solver.module):
            fastest = min((setting.seconds for setting in found), default=math.inf)
            setting = _loosest(problem, X, target, name, fastest)
            found += [] if setting is None else [setting]
    if not found:
        raise RuntimeError(f"no solver reaches a gradient of norm {target}")
    return sorted(found, key=lambda setting: setting.seconds)


def _loosest(
    problem: LogisticProblem, X: Any, target: float, solver: str, fastest: float
) -> Setting | None:
    """The loosest rung that reaches the norm; gives up on a solver that is already twice slower."""
    first = SOLVERS[solver].first(problem, target)
    if SOLVERS[solver].compiles:
        solve(problem, X, Setting(solver, first, 0.0))
    for rung in range(RUNGS):
        tol = first / STEP**rung
        begin = time.perf_counter()
        W = solve(problem, X, Setting(solver, tol, 0.0))
        seconds = time.perf_counter() - begin
        if np.linalg.norm(problem.gradient(W)) <= target:
            return Setting(solver, tol, seconds)
        if seconds > 2.0 * fastest:
            return None
    return None
