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

No library stops by the norm of the whole gradient. A user who wants one has to try; here
``loosest`` tries for him, untimed: the loosest ``tol`` of a ladder whose result has the norm. Each
solver has a process of its own (``Child``): what a library does to threads and to the mode of
floats on import stays there.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import OptimizeWarning
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from benches.logistic_problem import LogisticProblem
from benches.measuring import Child

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
class Answer:
    """One run: seconds, those of all processors, the norm of the gradient."""

    seconds: float
    cpu_seconds: float
    norm: float


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
    # What the rows become before the clock starts, once a data set.
    convert: Callable[[LogisticProblem, Any], Any] = lambda _, X: X

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
    # Its threads are not those that threadpoolctl knows.
    importlib.import_module("daal4py").daalinit(1)
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


def _signs(problem: LogisticProblem) -> Weights:
    return np.where(problem.y == 1, 1.0, -1.0)


def _liblinear_rows(problem: LogisticProblem, X: Any) -> Any:
    return importlib.import_module("liblinear.liblinearutil").problem(_signs(problem), X)


def _liblinear(problem: LogisticProblem, X: Any, tol: float) -> Any:
    tools = importlib.import_module("liblinear.liblinearutil")
    options = f"-s 0 -c {1.0 / problem.regularization!r} -e {tol!r} -m 1 -q"
    model = tools.train(X, tools.parameter(options))
    sign = 1.0 if model.get_labels()[0] == 1 else -1.0
    return sign * np.array(model.w[: problem.n_weights])


def _skglm(problem: LogisticProblem, X: Any, tol: float) -> Any:
    loss = importlib.import_module("skglm.datafits").Logistic()
    penalty = importlib.import_module("skglm.penalties").L2(problem.regularization / X.shape[0])
    solver = importlib.import_module("skglm.solvers").LBFGS(max_iter=MAX_ITER, tol=tol)
    return solver.solve(X, _signs(problem), loss, penalty)[0]


def _columns(_: LogisticProblem, X: Any) -> Any:
    return sparse.csc_matrix(X) if sparse.issparse(X) else X


def _cache_file(problem: LogisticProblem, X: Any) -> Any:
    """A folder with the rows as Vowpal Wabbit keeps them."""
    folder = tempfile.mkdtemp()
    text = os.path.join(folder, "rows.txt")
    with open(text, "w", encoding="ascii") as file:
        for row, label in zip(sparse.csr_matrix(X), problem.y, strict=True):
            entries = zip(row.indices, row.data, strict=True)
            words = (f"{place}:{value:.9g}" for place, value in entries)
            file.write(f"{1 if label == 1 else -1} | {' '.join(words)}\n")
    tool = importlib.import_module("vowpalwabbit").Workspace
    tool(f"-d {text} --cache_file {folder}/cache {WABBIT}").finish()
    return folder


def _vowpal_wabbit(problem: LogisticProblem, X: Any, tol: float) -> Any:
    importlib.import_module("vowpalwabbit").Workspace(
        f"--bfgs --loss_function logistic --l2 {problem.regularization!r} --termination {tol!r} "
        f"--passes {MAX_PASSES} --holdout_off --cache_file {X}/cache {WABBIT} "
        f"--predict_only_model --readable_model {X}/weights"
    ).finish()
    weights = np.zeros(problem.n_weights)
    with open(os.path.join(X, "weights"), encoding="ascii") as file:
        for line in itertools.dropwhile(lambda one: one.strip() != ":0", file):
            place, _, value = line.partition(":")
            if place:
                weights[int(place)] = float(value)
    return weights


def _has_two_classes(problem: LogisticProblem) -> bool:
    return problem.n_scores == 1


# By library and solver.
SOLVERS = {
    "scikit-learn, lbfgs": Solver(_sklearn("lbfgs")),
    "scikit-learn, newton-cg": Solver(_sklearn("newton-cg")),
    "scikit-learn, newton-cholesky": Solver(
        _sklearn("newton-cholesky"), lambda one: one.n_weights <= MAX_WEIGHTS_FOR_CHOLESKY
    ),
    "oneDAL, lbfgs": Solver(_onedal, lambda one: not sparse.issparse(one.X), "sklearnex"),
    "Snap ML, dual": Solver(_snap_ml, _has_two_classes, "snapml", loosest=1e-6),
    "liblinear-multicore, Newton": Solver(
        _liblinear, _has_two_classes, "liblinear", loosest=1e-3, convert=_liblinear_rows
    ),
    "skglm, lbfgs": Solver(_skglm, _has_two_classes, "skglm", compiles=True, convert=_columns),
    "Vowpal Wabbit, bfgs": Solver(
        _vowpal_wabbit, _has_two_classes, "vowpalwabbit", loosest=1e-3, convert=_cache_file
    ),
}


def timed(problem: LogisticProblem, solve: Callable[[], Any]) -> tuple[Answer, Weights]:
    """A run, and its weights of shape (n_scores, n_features + 1)."""
    begin, cpu_begin = time.perf_counter(), time.process_time()
    found = solve()
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    W = np.asarray(found, dtype=np.float64).reshape(problem.n_scores, -1)
    return Answer(seconds, cpu_seconds, float(np.linalg.norm(problem.gradient(W)))), W


def prepared(
    problem: LogisticProblem, name: str
) -> Callable[[float, float], tuple[Answer, Weights]]:
    """Runs of a solver, by lambda and tolerance, on one thread, on rows that it converts once."""
    solver = SOLVERS[name]
    X = solver.convert(problem, problem.with_constant())

    def run(regularization: float, tol: float) -> tuple[Answer, Weights]:
        own = replace(problem, regularization=regularization)
        with warnings.catch_warnings(), threadpool_limits(limits=1):
            # Whatever a solver says about itself, its gradient is computed afterwards.
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", OptimizeWarning)
            return timed(own, lambda: solver.solve(own, X, tol))

    if solver.compiles:
        run(problem.regularization, 1.0)
    return run


def _answers(problem: LogisticProblem, name: str, folder: str) -> Callable[..., Answer]:
    """The same in a process of its own, whose files are in a folder."""
    tempfile.tempdir = folder
    run = prepared(problem, name)
    return lambda *request: run(*request)[0]


@contextmanager
def children(problem: LogisticProblem, ready: float) -> Iterator[dict[str, Child]]:
    """Processes of the installed solvers for such a problem, with so many seconds to get ready."""
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for name, solver in SOLVERS.items():
            if solver.takes(problem) and importlib.util.find_spec(solver.module):
                found[name] = Child(ready, _answers, problem, name, folder)
        try:
            yield found
        finally:
            for child in found.values():
                child.end()


def loosest(
    ask: Callable[[float, float], Answer | None], first: float, target: float, limit: float
) -> tuple[float, Answer | None]:
    """The first rung whose run reaches the norm, else the last one that was tried, and its run.

    ``ask`` gets a tolerance and the seconds that are left of the limit of all runs together.
    """
    rung, end = 0, time.monotonic() + limit
    while True:
        tol = first / STEP**rung
        answer = ask(tol, max(0.0, end - time.monotonic()))
        if answer is None or answer.norm <= target or rung == RUNGS - 1:
            return tol, answer
        # The norm falls like the tolerance: rungs between that cannot do are left out.
        lacking = math.log(answer.norm / target, STEP) if math.isfinite(answer.norm) else 0.0
        rung = min(RUNGS - 1, rung + max(1, int(lacking)))
