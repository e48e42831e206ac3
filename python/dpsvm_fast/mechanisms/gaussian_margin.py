r"""Large-margin Gaussian classifier: a noisy objective over positive semidefinite matrices.

Proved in docs/proofs/gaussian_margin.md. A row x clipped to norm :math:`\kappa` becomes
:math:`\hat x = (x / \kappa, s) / \sqrt{1 + s^2}`, of norm at most 1, and its coordinates :math:`u`
in an orthonormal basis of symmetric matrices, those of :math:`\hat x \hat x^T`, too. The score of
an ellipsoid, :math:`-\hat x^T \Phi_j \hat x = -\langle \Phi_j, u \rangle`, is linear in the matrix.
The objective is that of :class:`~dpsvm_fast.mechanisms.objective.ObjectivePerturbation` with rows u
and a public linear term, the weighted traces. Its noise is independent in the coordinates, hence
symmetric with half the variance off the diagonal. The constraint to positive semidefinite matrices
does not affect the proof.

With several ellipsoids per class, one centre per ellipsoid is released first, and a record is
assigned to the ellipsoid of its class with the nearest centre.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.certificates import PrivacyEvent, PrivacyStatement
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.moments import COUNT_SCALE, ROW_GRID
from dpsvm_fast.mechanisms.noise import (
    RELATION_FACTOR,
    NoisySum,
    SumRelease,
    check_delta_of_gaussian,
    check_range,
    composed_solver,
    gaussian_parameter,
    pure_rest,
    share_of,
)
from dpsvm_fast.mechanisms.objective import (
    ObjectivePerturbation,
    automatic_regularization,
    of_unit,
)
from dpsvm_fast.mechanisms.plan import COPIES, Plan, Rows, filled, refused_certificate
from dpsvm_fast.mechanisms.rows import PublicMap, row_blocks
from dpsvm_fast.rounding import sqrt_up
from dpsvm_fast.validation import refuse

# Noisy cluster centres of every class: which ellipsoid of its class a record belongs to.
#
# Proved in docs/proofs/gaussian_margin.md, section "Mixtures". A few steps of Lloyd's algorithm,
# each from one noisy sum over the records. With q a record's row of norm at most 1, rounded towards
# zero to multiples of 2**-20, a record adds (q, 1/2) to the cell of its nearest centre, and nothing
# to all other cells: of norm at most :math:`\sqrt{1 + 1/4}`, however many cells there are. The cell
# is a function of the record and of what was released before.
#
# In the first step every class is one cell. Its noisy mean is where the next cells meet, in
# directions from a public seed.


# Sums released: the classes' means, and two steps of Lloyd's algorithm.
STEPS = 3
# Rounding to nearest may have lengthened a row, by less than 2**-23 in single precision.
SHORTER = 1.0 - 2.0**-20
# A cell moves where it has this many deviations of the noise in its number, and its records.
MIN_COUNT = 3.0
# Distance of the first centres from the mean of their class.
SPREAD = 0.25

Array = NDArray[np.float64]

Labels = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class NoisyAnchors(SumRelease):
    """Release of one centre per ellipsoid, with the budget of one sum.

    Parameters
    ----------
    n_classes, n_ellipsoids, n_features : int
        ``n_ellipsoids`` is the number per class.

    Notes
    -----
    Guarantees: ``release`` is the composition of ``STEPS`` Gaussian mechanisms with parameter
    ``mu``, or of ``STEPS`` epsilon-private ones, for rows of norm at most 1.
    """

    n_classes: int
    n_ellipsoids: int
    n_features: int

    @cached_property
    def sum(self) -> NoisySum:
        """Noisy sum of one step."""
        return self.of_multiples(
            ROW_GRID,
            name="anchors",
            clip_norm=sqrt_up(1.0 + COUNT_SCALE**2),
            relation_factor=float(RELATION_FACTOR[self.adjacency]),
            shape=(self.n_classes * self.n_ellipsoids, self.n_features + 1),
        )

    @property
    def sums(self) -> tuple[NoisySum, ...]:
        """All sums, for statement and ledger."""
        return (self.sum,) * STEPS

    def release(
        self,
        rows: Array,
        codes: Labels,
        source: _core.NoiseSource,
        n_threads: int,
        weights: Array | None = None,
    ) -> Array:
        """Release centres of shape (n_classes * n_ellipsoids, n_features).

        Parameters
        ----------
        rows : ndarray of shape (n_samples, n_features)
            Rows of norm at most 1, up to rounding.
        codes : ndarray of shape (n_samples,)
            Classes.
        source : NoiseSource
        n_threads : int
            Does not change the result.
        weights : ndarray of shape (n_samples,) or None
            Factors of the rows, summing to at most 1 per person.
        """
        public = np.random.default_rng(source.public_seed())
        points = np.zeros((self.sum.shape[0], self.n_features))
        for step in range(STEPS):
            total = self._total(rows, codes, None if step == 0 else points, weights)
            noisy = self.sum.release(total.ravel(), source, n_threads).reshape(self.sum.shape)
            points = self._means(noisy, points)
            if step == 0:
                means = np.repeat(points[:: self.n_ellipsoids], self.n_ellipsoids, axis=0)
                points = means + SPREAD * np.tile(self._directions(public), (self.n_classes, 1))
        return points

    def _total(
        self, rows: Array, codes: Labels, points: Array | None, weights: Array | None = None
    ) -> Array:
        """Return exact sums over the cells, as integers in units of 2**-20."""
        total = np.zeros(self.sum.shape, dtype=np.int64)
        for block in row_blocks(rows):
            steps = _row_steps(rows[block])
            cells = codes[block] * self.n_ellipsoids
            if points is not None:
                cells = nearest_ellipsoids(rows[block], codes[block], points, self.n_ellipsoids)
            counted = np.full((len(cells), 1), round(COUNT_SCALE / ROW_GRID))
            added = np.hstack([steps, counted])
            if weights is not None:
                # Towards zero, so that a person's rows stay as short as a single row.
                added = np.trunc(added * weights[block, None]).astype(np.int64)
            np.add.at(total, cells, added)
        # Below 2**33 records no sum has more than 53 bits.
        return total.astype(np.float64) * ROW_GRID

    def _means(self, noisy: Array, points: Array) -> Array:
        """Return new centres for cells with enough records, else the old ones; post-processing."""
        half_counts = noisy[:, -1:]
        known = half_counts > MIN_COUNT * self.sum.deviation
        means = noisy[:, :-1] / np.where(known, half_counts / COUNT_SCALE, 1.0)
        lengths = np.linalg.norm(means, axis=1, keepdims=True)
        means = means / np.maximum(lengths, 1.0)
        return np.where(known & np.isfinite(means).all(axis=1, keepdims=True), means, points)

    def _directions(self, public: np.random.Generator) -> Array:
        """Return public unit vectors, one per ellipsoid, orthogonal if the dimension permits."""
        drawn = public.standard_normal((self.n_ellipsoids, self.n_features))
        if self.n_ellipsoids <= self.n_features:
            return np.linalg.qr(drawn.T)[0].T
        return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def nearest_ellipsoids(rows: Array, codes: Labels, points: Array, n_ellipsoids: int) -> Labels:
    """Return the ellipsoid of each record: the one of its class with the nearest centre.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
    codes : ndarray of shape (n_samples,)
    points : ndarray of shape (n_classes * n_ellipsoids, n_features)
    n_ellipsoids : int
    """
    own = points.reshape(-1, n_ellipsoids, points.shape[1])
    cells = np.empty(len(codes), dtype=np.int64)
    for block in row_blocks(rows, n_ellipsoids * rows.shape[1]):
        gaps = _row_steps(rows[block])[:, None, :] * ROW_GRID - own[codes[block]]
        # Every sum over the features in the same order, whatever other records there are.
        cells[block] = (gaps * gaps).sum(axis=2).argmin(axis=1)
    return codes * n_ellipsoids + cells


def _row_steps(rows: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return rows in units of 2**-20, rounded towards zero: the norm is at most 1 exactly."""
    scaled = rows.astype(np.float64) * (SHORTER / ROW_GRID)
    return np.asarray(np.trunc(scaled).astype(np.int64))


# The constant feature added to rows of norm at most 1.
CONSTANT = 0.5
# C="auto" with Gaussian noise: this share of the regularisation that a linear model gets. The
# coordinates of lifted rows vary less than rows do; two features do best with 0.4, thirty with all
# of it. Curvature of pairwise Huber losses costs more. No function of the number of features: the
# budget is asked for before that is known, and the law of the noise depends on it.
REGULARIZATION_SHARE = {"softmax_margin": 0.6, "huber_ww": 1.0}
# Share of the squared Gaussian parameter, or of epsilon, for the centres of several ellipsoids.
ANCHOR_SHARE = 0.15
# Steps of the noise's grid in the weight of the traces: with noise added they stay below 2**53.
MAX_STEPS = 2.0**52


def n_coordinates(n_features: int) -> int:
    """Return the number of coordinates of an ellipsoid's symmetric matrix."""
    return (n_features + 1) * (n_features + 2) // 2


@dataclass(frozen=True, kw_only=True)
class MatrixPerturbation(ObjectivePerturbation):
    """Objective perturbation with more rows of weights than scores in one record's loss.

    Parameters
    ----------
    n_matrices : int
        Number of rows of weights, of which ``loss.n_classes`` enter the loss of a record.
    """

    n_matrices: int

    @property
    def shape(self) -> tuple[int, int]:
        """Number of matrices, and number of coordinates of each."""
        return (self.n_matrices, self.n_features)


@dataclass(frozen=True, kw_only=True)
class GaussianMargin(Plan):
    """Plan of all releases of one fit.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
        Positive with Gaussian noise; ignored with Gamma noise, which is pure.
    adjacency : {"add_remove", "replace_one"}
    noise : {"gaussian", "gamma"}
    noise_grid : {"exact", "float"}
    loss : {"softmax_margin", "huber_ww"}
    smoothing, margin : float
        Parameters of the loss.
    n_classes, n_ellipsoids, n_features : int
        ``n_ellipsoids`` is the number per class.
    data_norm : float > 0
        Public bound on the norm of rows.
    trace_weight : float >= 0
        Factor of the traces in the objective.
    C : float > 0 or None
        ``lambda = 1 / C + extra``; None for the public rule.
    extra_regularization : float >= 0 or None
    tol : float in (0, 1]
    unit : {"row", "person"}
        What neighbouring data sets differ by.
    constrained : bool
        Whether to minimise over positive semidefinite matrices only.
    max_iter : int or None
        Largest number of solver steps; None runs until certified.

    Raises
    ------
    InvalidParameterError
        Settings for which no positive finite noise scale exists.

    Notes
    -----
    Guarantees: the anchors (with several ellipsoids per class) and the matrices returned by
    ``solver.release``, from a certified minimiser over all symmetric or all positive semidefinite
    matrices, are together (epsilon, delta)-differentially private.
    """

    epsilon: float
    delta: float
    adjacency: str
    noise: str
    noise_grid: str
    loss: str
    smoothing: float
    margin: float
    n_classes: int
    n_ellipsoids: int
    n_features: int
    data_norm: float
    trace_weight: float
    C: float | None
    extra_regularization: float | None
    tol: float
    unit: str = "row"
    constrained: bool = False
    max_iter: int | None = None

    def __post_init__(self) -> None:
        """Refuse settings whose noise scale would not be positive and finite."""
        if not self.pure:
            check_delta_of_gaussian(self.delta)
        # Ranges of the solver, checked before anything is spent.
        check_range("data_norm", self.data_norm, "the bound on the norm of rows", 1e-15, 1e15)
        if self.trace_weight:
            check_range("trace_weight", self.trace_weight, "the value given")
        # Building it refuses invalid settings.
        grid = self.with_budget(self.epsilon, self.delta).inside.grid
        check_range("C", self.regularization, "the total regularisation", 1e-30, 1e30)
        if grid is not None:
            accepted = f"at most {MAX_STEPS * grid:.3g} with noise on a grid this fine"
            refuse(self, ("trace_weight", self.trace_weight > MAX_STEPS * grid, accepted))

    @property
    def pure(self) -> bool:
        """Whether delta is 0."""
        return self.noise == "gamma"

    @property
    def n_matrices(self) -> int:
        """Number of ellipsoids of all classes."""
        return self.n_classes * self.n_ellipsoids

    @property
    def intercept_scaling(self) -> float:
        """Constant feature in units of the rows."""
        return CONSTANT * self.data_norm

    @property
    def score_loss(self) -> Loss:
        """Loss of a record as a function of its scores.

        The scores are those of its own ellipsoid and of all ellipsoids of other classes.
        """
        return Loss(
            name=self.loss,
            n_classes=self.n_matrices - self.n_ellipsoids + 1,
            smoothing=self.smoothing,
            margin=self.margin,
            per_class=True,
        )

    @cached_property
    def anchors(self) -> NoisyAnchors | None:
        """Plan of the noisy centres; None with one ellipsoid per class."""
        if self.n_ellipsoids == 1:
            return None
        share = ANCHOR_SHARE / STEPS
        return filled(
            NoisyAnchors,
            self,
            mu=None if self.pure else share_of(gaussian_parameter(self.epsilon, self.delta), share),
            epsilon=share * self.epsilon if self.pure else None,
        )

    @property
    def sums(self) -> tuple[NoisySum, ...]:
        """All noisy sums."""
        return () if self.anchors is None else self.anchors.sums

    @property
    def before(self) -> tuple[PrivacyEvent, ...]:
        """Events charged before the noise in the objective."""
        return tuple(part.event for part in self.sums)

    @cached_property
    def solver(self) -> MatrixPerturbation:
        """Noisy objective with the noise on its minimiser."""
        if self.anchors is None:
            return self.with_budget(self.epsilon, self.delta)
        if self.pure:
            return self.with_budget(pure_rest(self), 0.0)
        return composed_solver(self)  # type: ignore[no-any-return]

    def with_budget(self, own: float, delta: float) -> MatrixPerturbation:
        """Return the noisy objective with the given epsilon and delta."""
        settings: dict[str, Any] = {
            "epsilon": own,
            "delta": delta,
            "loss": self.score_loss,
            "n_features": n_coordinates(self.n_features),
            "data_norm": 1.0,
            "intercept_scaling": 0.0,
            "max_iter": None,
        }
        C = self.C
        if C is None and not self.pure:
            loss = of_unit(self.score_loss, self.unit)
            automatic = automatic_regularization(loss, own, delta, self.adjacency, 1.0)
            check_range("C", automatic, "the total regularisation")
            C = 1.0 / (REGULARIZATION_SHARE[self.loss] * automatic)
        return filled(MatrixPerturbation, self, C=C, **settings)

    @property
    def regularization(self) -> float:
        """Regularisation lambda of the objective, including the extra regularisation."""
        return self.solver.regularization

    @cached_property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Event that a ledger records."""
        return self.before + self.solver.events

    def n_numbers(self, n_rows: int) -> int:
        """Return the room for copies of all matrices, and for the score of each row and class."""
        learned = self.n_matrices * n_coordinates(self.n_features)
        return COPIES * learned + n_rows * self.n_classes

    def run(self, rows: Rows, source: _core.NoiseSource) -> Array:
        """Return noisy coordinates of the matrices, shape (n_matrices, n_coordinates)."""
        n_threads = rows.n_threads
        unit, target = unit_rows(rows.X, self.data_norm), rows.codes
        if self.anchors is not None:
            points = self.anchors.release(unit, target, source, n_threads, rows.loss_weights)
            target = nearest_ellipsoids(unit, target, points, self.n_ellipsoids)
        # Exact: a power of two.
        unit /= unit.dtype.type(CONSTANT)
        matrices, _ = _core.solve_gaussian_margin(
            unit,
            target,
            rows.loss_weights,
            linear=self.draw_linear(source, n_threads=n_threads),
            n_threads=n_threads,
            **self.problem,
        )
        if matrices is None:
            raise refused_certificate(limited=self.max_iter is not None)
        return self.solver.release(matrices, source, n_threads=n_threads)

    @property
    def problem(self) -> dict[str, Any]:
        """Return the problem for the compiled solver, without rows and linear term."""
        own = ("loss", "n_classes", "n_ellipsoids", "smoothing", "margin", "regularization")
        return {name: getattr(self, name) for name in (*own, "max_iter")} | {
            "data_norm": 1.0 / CONSTANT,
            "psd": self.constrained,
            "gradient_tol": self.solver.gradient_tol,
        }

    def summary(self) -> str:
        """Return a one-line summary of public facts."""
        summary = self.solver.summary()
        return f"{self.n_matrices} ellipsoids in {self.n_features} dimensions, {summary}"

    def statement(self, released: Any = None, **occasion: Any) -> PrivacyStatement:
        """Return the statement of all releases together.

        ``occasion`` holds the statement's fields about the fit, such as ``library_version``.
        """
        own = self.solver.statement(released, **occasion)
        return dataclasses.replace(
            own,
            mechanism="gaussian_margin",
            epsilon=self.epsilon,
            delta=0.0 if self.pure else self.delta,
            parts=tuple(part.part for part in self.sums),
        )

    def draw_linear(self, source: _core.NoiseSource, *, n_threads: int) -> NDArray[np.float64]:
        """Return the linear term, shape (n_matrices, n_coordinates): noise and traces.

        Private: anyone who knows it can remove the noise.

        Parameters
        ----------
        source : NoiseSource
        n_threads : int
            Does not change the result.
        """
        side = self.n_features + 1
        rows, columns = np.triu_indices(side)
        traced = (rows == columns) & (rows < self.n_features)
        noise = self.solver.draw_linear(source, n_threads=n_threads)
        grid, weight = self.solver.inside.grid, self.trace_weight
        if grid is not None:
            # To the noise's grid: then the sum is exact, and the noise is that of the proof.
            weight = round(weight / grid) * grid
        return np.asarray(noise + weight * traced)


def unit_rows(X: NDArray[Any], data_norm: float) -> NDArray[Any]:
    """Return rows of norm at most 1, in the precision of X; each depends on its input row alone."""
    rows: NDArray[Any] = np.empty(X.shape, dtype=X.dtype)
    public = PublicMap(unit=False, data_norm=data_norm)
    for block in row_blocks(X):
        rows[block] = public.apply(X[block])
    return rows
