"""The compiled solver of smooth problems against its slow twin, and its certificate re-evaluated.

Rows are numbers in single precision inside the norm bound: neither clipping nor the storage of the
compiled solver changes them, so that both solvers see the same problem to the last bit.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from twins import smooth_erm as twin

Array = NDArray[np.float64]

# Distance to the twin's minimiser, relative to 1 + its norm.
AGREEMENT = 1e-8
KERNELS = {
    "softmax_margin": ("softmax_margin", 0.25, 1.0),
    "sharp softmax_margin": ("softmax_margin", 0.01, 1.0),
    "cross-entropy": ("softmax_margin", 1.0, 0.0),
    "softplus": ("softplus", 0.125, 1.0),
    "sharp softplus": ("softplus", 0.01, 1.0),
    "logistic": ("softplus", 1.0, 0.0),
    "huber": ("huber", 0.5, 1.0),
    "sharp huber": ("huber", 0.01, 1.0),
    "m3": ("m3", 0.1, 1.0),
    "huber_ww": ("huber_ww", 0.5, 1.0),
    "margin_distance": ("margin_distance", 0.5, 1.0),
    "sharp margin_distance": ("margin_distance", 0.01, 1.0),
}
JOINT = ("softmax_margin", "m3", "huber_ww", "margin_distance")
DISTANCES = ["margin_distance", "sharp margin_distance"]
SMOOTH = ["softmax_margin", "logistic", "huber", "m3", "huber_ww", "margin_distance"]


@dataclasses.dataclass(frozen=True)
class Case:
    X: Array
    y: NDArray[np.int64]
    kernel: tuple[str, float, float]
    n_scores: int
    regularization: float
    linear: Array | None = None
    intercept_scaling: float = 0.25
    data_norm: float = 1.0

    @property
    def rows(self) -> Array:
        """As the solvers see them."""
        if self.intercept_scaling == 0.0:
            return self.X
        return np.hstack([self.X, np.full((len(self.X), 1), self.intercept_scaling)])

    @property
    def problem(self) -> twin.Problem:
        return twin.Problem(
            self.rows, self.y, self.n_scores, self.kernel, self.regularization, self.linear
        )


def case(
    kernel: str, n_classes: int, *, seed: int = 0, n: int = 60, d: int = 6, **changes: Any
) -> Case:
    """Overlapping classes of about equal size, with a random linear term."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % n_classes).astype(np.int64)
    X = rng.normal(size=(n, d)) + 2.0 * rng.normal(size=(n_classes, d))[y]
    X[rng.random(X.shape) < 0.3] = 0.0
    X *= 0.99 / np.linalg.norm(X, axis=1).max()
    name = KERNELS[kernel][0]
    n_scores = 1 if n_classes == 2 and name not in JOINT else n_classes
    s = changes.get("intercept_scaling", 0.25)
    linear = rng.normal(size=(n_scores, d + (s > 0)))
    made = Case(single(X), y, KERNELS[kernel], n_scores, 0.5, linear)
    return dataclasses.replace(made, **changes)


def single(X: Array) -> Array:
    return X.astype(np.float32).astype(np.float64)


def separable(case: Case) -> Case:
    """One class, one direction: with little regularisation the weights run far out."""
    X = 0.9 * np.eye(case.X.shape[1])[case.y % case.X.shape[1]]
    return dataclasses.replace(case, X=single(X))


def unbalanced(case: Case) -> Case:
    """All records but the first few are of class 0."""
    return dataclasses.replace(case, y=np.where(np.arange(case.y.size) < 3, case.y, 0))


def repeated(case: Case) -> Case:
    """Each record three times, and as many rows of zeros."""
    X = np.vstack([case.X, case.X, case.X, 0.0 * case.X])
    return dataclasses.replace(case, X=X, y=np.tile(case.y, 4))


def tolerance(case: Case, minimum: Array) -> float:
    """Norm of the gradient that puts the weights within half of what is asked for.

    Or, if that is larger, what double precision can certify: scores are off by about u d ||W||, so
    each record's gradient by beta times as much, and the certificate assumes the worst signs.
    """
    name, smoothing, _ = case.kernel
    pairs = 0.5 * case.n_scores
    largest = {"softplus": 0.25, "m3": pairs, "huber_ww": pairs, "margin_distance": 1.0}
    beta = largest.get(name, 0.5) / smoothing
    size = 1.0 + float(np.linalg.norm(minimum))
    if name == "margin_distance":
        # Its projection rounds as often again.
        beta *= 2.0
    floor = 2.0**-48 * case.y.size * case.rows.shape[1] * (1.0 + beta * size)
    return max(0.5 * AGREEMENT * case.regularization * size, floor)


def compiled(case: Case, gradient_tol: float, **changes: Any) -> tuple[Array, dict[str, object]]:
    name, smoothing, margin = case.kernel
    options: dict[str, Any] = {
        "loss": name,
        "n_scores": case.n_scores,
        "smoothing": smoothing,
        "margin": margin,
        "regularization": case.regularization,
        "linear": case.linear,
        "data_norm": case.data_norm,
        "intercept_scaling": case.intercept_scaling,
        "gradient_tol": gradient_tol,
        "max_iter": None,
        "shuffle_seed": 3,
        "n_threads": 1,
        "low_memory": False,
    }
    X = changes.pop("X", case.X)
    options |= changes
    if sparse.issparse(X):
        arrays = (X.data, X.indices, X.indptr, X.shape[1])
        weights, info = _core.solve_smooth(arrays, case.y, **options)
    else:
        weights, info = _core.solve_smooth(X, case.y, **options)
    assert weights is not None, "not certified"
    return weights, info


def extended_norm(case: Case, weights: Array) -> float:
    """Norm of the gradient, evaluated with 11 bits more than the solver has."""
    gradient = case.problem.gradient(weights.astype(np.longdouble))
    return float(np.sqrt((gradient**2).sum()))


def agrees(case: Case, **changes: Any) -> None:
    """Weights within the tolerance of the twin, and a certificate that is true."""
    minimum, radius = twin.minimise(case.problem, tol=1e-11)
    tol = tolerance(case, minimum)
    weights, _ = compiled(case, tol, **changes)
    assert extended_norm(case, weights) <= tol
    # Strong convexity. Where rounding is not in the way this is the agreement asked for.
    distance = float(np.linalg.norm(weights - minimum))
    assert distance <= tol / case.regularization + radius


@pytest.mark.sampled
@pytest.mark.proof("objective_perturbation", "Composition, and the solver's certificate")
@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_agree_with_the_twin(kernel: str, n_classes: int) -> None:
    agrees(case(kernel, n_classes))


# The twin takes the cube of the number of weights.
@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kernel", "n_classes"),
    [
        ("softmax_margin", 100),
        ("m3", 40),
        ("huber_ww", 40),
        ("margin_distance", 40),
        ("logistic", 40),
        *(pytest.param(kernel, 100, marks=pytest.mark.nightly) for kernel in SMOOTH[1:]),
    ],
)
def test_many_classes_agree_with_the_twin(kernel: str, n_classes: int) -> None:
    agrees(case(kernel, n_classes, n=n_classes + 20, d=3))


@pytest.mark.sampled
@pytest.mark.parametrize("regularization", [1e-4, 1e-2, 1e2, 1e6])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_regularisation_agrees_with_the_twin(kernel: str, regularization: float) -> None:
    agrees(case(kernel, 3, regularization=regularization, linear=None))


@pytest.mark.sampled
@pytest.mark.parametrize("regularization", [1e-4, 1.0])
@pytest.mark.parametrize("change", [separable, unbalanced, repeated])
@pytest.mark.parametrize(
    "kernel",
    ["cross-entropy", "sharp softmax_margin", "sharp huber", "m3", "huber_ww", *DISTANCES],
)
def test_hard_data_agree_with_the_twin(kernel: str, change: Any, regularization: float) -> None:
    agrees(change(case(kernel, 3, n=40, regularization=regularization, linear=None)))


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("kernel", SMOOTH)
def test_more_features_than_rows_agree_with_the_twin(kernel: str, n_classes: int) -> None:
    agrees(case(kernel, n_classes, n=8, d=30, regularization=0.01))


@pytest.mark.parametrize("size", [1e-6, 1e3, 1e6])
def test_every_size_of_the_linear_term_agrees_with_the_twin(size: float) -> None:
    base = case("softmax_margin", 3)
    assert base.linear is not None
    agrees(dataclasses.replace(base, linear=size * base.linear))


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_record_or_two_agree_with_the_twin(kernel: str, n: int) -> None:
    base = case(kernel, 2, intercept_scaling=0.0)
    base = dataclasses.replace(base, X=base.X[:n], y=base.y[:n])
    agrees(dataclasses.replace(base, regularization=1e-2))


@pytest.mark.sampled
@pytest.mark.parametrize("n_classes", [2, 3, 9])
@pytest.mark.parametrize("kernel", SMOOTH)
def test_sparse_rows_agree_with_the_twin(kernel: str, n_classes: int) -> None:
    base = case(kernel, n_classes)
    agrees(base, X=sparse.csr_matrix(base.X))
    agrees(base, X=sparse.csr_matrix(base.X), low_memory=True)
    agrees(base, low_memory=True)


@pytest.mark.proof("objective_perturbation", "Composition, and the solver's certificate")
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_loose_certificate_is_true(kernel: str) -> None:
    """The gradient in extended precision is never above what was asked for, nor above the bound."""
    for seed in range(3):
        for tol in (1e-1, 1e-4, 1e-7):
            this = case(kernel, 4, seed=seed, regularization=0.02)
            weights, info = compiled(this, tol)
            norm = extended_norm(this, weights)
            assert norm <= tol
            bound = info["gradient_norm"]
            assert isinstance(bound, float)
            assert norm <= bound <= tol


@pytest.mark.sampled
@pytest.mark.proof("objective_perturbation", "Composition, and the solver's certificate")
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 10), marks=pytest.mark.nightly)])
@pytest.mark.parametrize("regularization", [1e-2, 1e-4])
@pytest.mark.parametrize(
    "kernel", ["sharp softmax_margin", "sharp huber", "sharp softplus", DISTANCES[1]]
)
def test_the_search_never_gives_up(kernel: str, regularization: float, seeds: range) -> None:
    """Nearly linear pieces beside sharp bends: hard to search along, easy to certify."""
    for n_classes in (2, 3, 10):
        for seed in seeds:
            this = case(kernel, n_classes, seed=seed, n=200, d=8, linear=None)
            this = dataclasses.replace(this, regularization=regularization)
            weights, _ = compiled(this, 1e-3)
            assert extended_norm(this, weights) <= 1e-3


@pytest.mark.proof("objective_perturbation", "Composition, and the solver's certificate")
def test_the_checks_reject_another_problem() -> None:
    """Negative control: a millionth more regularisation, or another linear term, is seen."""
    base = case("softmax_margin", 3)
    minimum, _ = twin.minimise(base.problem)
    tol = tolerance(base, minimum)
    assert base.linear is not None
    for other in (
        dataclasses.replace(base, regularization=0.5 * (1.0 + 1e-6)),
        dataclasses.replace(base, linear=base.linear * (1.0 + 1e-6)),
    ):
        weights, _ = compiled(other, tol)
        assert extended_norm(base, weights) > tol
        assert np.linalg.norm(weights - minimum) > AGREEMENT * (1.0 + np.linalg.norm(minimum))


@pytest.mark.sampled
@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("kernel", ["softmax_margin", "huber", "m3", "huber_ww", "margin_distance"])
def test_threads_do_not_change_a_bit(kernel: str, n_classes: int) -> None:
    this = case(kernel, n_classes, n=3000, d=20)
    for X in (this.X, sparse.csr_matrix(this.X)):
        one, _ = compiled(this, 1e-5, X=X, n_threads=1)
        for n_threads in (2, 3, 8):
            other, _ = compiled(this, 1e-5, X=X, n_threads=n_threads)
            np.testing.assert_array_equal(one, other)


@pytest.mark.proof("objective_perturbation", "Composition, and the solver's certificate")
def test_steps_that_run_out_release_nothing() -> None:
    this = case("sharp huber", 3, regularization=1e-4)
    name, smoothing, margin = this.kernel
    weights, info = _core.solve_smooth(
        this.X,
        this.y,
        loss=name,
        n_scores=3,
        smoothing=smoothing,
        margin=margin,
        regularization=1e-4,
        linear=None,
        data_norm=1.0,
        intercept_scaling=0.25,
        gradient_tol=1e-9,
        max_iter=1,
        shuffle_seed=0,
        n_threads=1,
        low_memory=False,
    )
    assert weights is None
    assert isinstance(info, dict)


# The twin itself, against first principles.


def test_the_twins_losses_have_their_written_values() -> None:
    scores, y = np.array([[0.3, -1.2, 0.7]]), np.array([1])
    t = np.array([-1.0, 1.0, -1.0])
    gaps = 1.0 - scores[0, 1] + scores[0, [0, 2]]
    expected = {
        ("softmax_margin", 0.25, 1.0): 0.25
        * math.log(math.exp(gaps[0] / 0.25) + math.exp(gaps[1] / 0.25) + 1.0),
        ("softplus", 0.5, 1.0): (0.5 * np.log1p(np.exp((1.0 - t * scores[0]) / 0.5))).sum(),
        # 1 - 1.2 < -h twice over: linear; the others lie above and below too.
        ("huber", 0.5, 1.0): (1.0 + 0.3) + (1.0 + 1.2) + (1.0 + 0.7),
        ("huber", 2.0, 1.0): ((1.3 + 2.0) ** 2 + (1.7 + 2.0) ** 2) / 8.0 + 2.2,
        ("m3", 0.1, 1.0): ((gaps + np.hypot(gaps, 0.1)) / 2.0).sum(),
        # Both rivals are ahead by more than h; then both within the parabola.
        ("huber_ww", 0.5, 1.0): gaps.sum(),
        ("huber_ww", 4.0, 1.0): ((gaps + 4.0) ** 2).sum() / 16.0,
        # The nearest kept margin: own score up by u, both rivals down to it less the margin.
        ("margin_distance", 0.5, 1.0): np.hypot(
            gaps.sum() / 3, np.linalg.norm(gaps - gaps.sum() / 3)
        )
        - 0.25,
    }
    for kernel, value in expected.items():
        assert twin.score_loss(scores, y, kernel)[0] == pytest.approx(float(value), rel=1e-14)
    one = twin.score_loss(np.array([[0.4], [0.4]]), np.array([1, 0]), ("softplus", 1.0, 0.0))
    np.testing.assert_allclose(one, np.log1p(np.exp([-0.4, 0.4])), rtol=1e-14)
