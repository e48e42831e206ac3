r"""Slow numpy twin of the mapped rows and of private gradient descent.

One step, with r a record's row, a the gradient of its loss in the scores W r, and B the batch that
each record joins with the same probability:

.. math::
    g = \frac{1}{b}\Big(\sum_{i \in B} \min\Big(1, \frac{R}{\|a_i\| \|r_i\|}\Big) a_i r_i^\top
        + N(0, \sigma^2 I)\Big) + \lambda W

with a declared divisor b; W then follows gradient descent with momentum, or Adam, on g.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Descent", "Noise", "Records"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

# Entries of rows are multiples of this.
UNIT = 2.0**-20

# A row nearer than this to the centre is not stretched to norm 1.
CLOSEST = 1.0 / 16.0


class Noise(Protocol):
    """What draws the noise: the compiled source, or any object with these two methods."""

    def gaussian_on_grid(
        self, size: int, sigma: float, grid: float, n_threads: int
    ) -> NDArray[np.int64]:
        """Normal draws in whole multiples of ``grid``."""

    def gaussian(self, size: int, sigma: float, n_threads: int) -> Array:
        """Normal draws in floating point."""


class Records:
    """Rows ``clip((x - offset) * scale, low, high)`` and the constant, of norm at most 1.

    Every entry is a multiple of ``UNIT``, rounded towards zero.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features), or the parts of a CSR matrix
    y : ndarray of shape (n_samples,)
    n_classes : int
    offset, scale : ndarray of shape (n_features,) or None
        None is 0 and 1.
    low, high : float
        Infinite for no limit.
    floor : ndarray of shape (n_features,) or None
        In place of ``low``.
    constant : float >= 0
        0 for none.
    data_norm : float > 0
        Longer rows are scaled back to it, and all are divided by it; unused with ``unit``.
    unit : bool
        Every row is divided by its own norm instead; a row of zeros stays.
    n_threads : int
        Not used.
    """

    def __init__(
        self,
        X: Any,
        y: Labels,
        *,
        n_classes: int,
        offset: Array | None,
        scale: Array | None,
        low: float,
        floor: Array | None,
        high: float,
        constant: float,
        data_norm: float,
        unit: bool,
        n_threads: int,
    ) -> None:
        least = low if floor is None else floor
        if isinstance(X, tuple):
            if not (np.max(least) <= 0.0 <= high):
                raise ValueError("low, high: sparse rows need low <= 0 <= high")
            data, indices, indptr, n_features = X
            X = np.zeros((len(indptr) - 1, n_features))
            for i in range(len(X)):
                inside = slice(int(indptr[i]), int(indptr[i + 1]))
                np.add.at(X[i], indices[inside], data[inside])
        mapped = np.asarray(X, dtype=np.float64)
        with np.errstate(over="ignore"):
            mapped = mapped - (0.0 if offset is None else offset)
            mapped = mapped * (1.0 if scale is None else scale)
        largest = np.finfo(np.float64).max
        mapped = np.clip(np.clip(mapped, least, high), -largest, largest)
        if constant > 0.0:
            mapped = np.column_stack([mapped, np.full(len(mapped), constant)])
        if y.size and not 0 <= int(y.min()) <= int(y.max()) < n_classes:
            raise ValueError(f"y: class indices must lie in 0 .. {n_classes - 1}")
        self.rows = _rounded_towards_zero(_shortened(mapped, None if unit else data_norm))
        self.y = np.array(y, dtype=np.int64)
        self.weights = np.ones(y.size)

    def own(self, persons: Labels, weights: Array) -> None:
        """Take the weights of rows, each of a person of its own."""
        assert persons.size == 0
        self.weights = weights if weights.size else self.weights

    def weigh(self, factors: Array) -> None:
        """Multiply the weights of rows by those of their classes."""
        self.weights = self.weights * factors[self.y]

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.rows.shape[1])

    def sums(self, n_threads: int) -> Array:
        """Exact sum of the rows, shape (n_features,)."""
        units: Labels = np.rint(self.rows / UNIT).astype(np.int64)
        return np.asarray(units.sum(axis=0) * UNIT)

    def centre(self, point: Array, n_threads: int) -> None:
        """Replace each row x by ``(x - point) / max(norm of it, 1/16)``."""
        moved = self.rows - np.rint(np.asarray(point) / UNIT) * UNIT
        norms = np.linalg.norm(moved, axis=1, keepdims=True)
        self.rows = _rounded_towards_zero(moved / np.maximum(norms, CLOSEST))

    def gram(self, n_threads: int) -> Array:
        """Exact sum of u u^T over the rows, shape (n_features, n_features)."""
        units: Labels = np.rint(self.rows / UNIT).astype(np.int64)
        return np.asarray((units.T @ units) * UNIT**2)

    def transform(self, matrix: Array, n_threads: int) -> None:
        """Replace each row u by ``matrix @ u``, divided by its norm; zero stays."""
        mapped = self.rows @ np.asarray(matrix, dtype=np.float64).T
        self.rows = _rounded_towards_zero(_shortened(mapped, None))

    def lift(self, map: Any, stored: bool, n_threads: int) -> None:
        """Replace each row by its features under a drawn ``map``, of norm 1."""
        self.rows = _rounded_towards_zero(_shortened(map.transform(self.rows, 1), None))


class Descent:
    """Private gradient descent; its state stays between runs.

    Parameters
    ----------
    loss : {"softmax_margin", "softplus", "huber", "m3", "huber_ww", "confidence", "correctness"}
    n_scores : int
        Rows of W; 1 for two classes where the loss needs one score.
    smoothing, margin : float
        Of the loss.
    n_features : int
    intercept : float >= 0
        Value of the constant column; 0 for none.
    row_scale : float > 0
        Multiplies the whole row, constant column included.
    clip : float > 0
        R, bound of the norm of one record's contribution.
    sigma : float >= 0
        Standard deviation of the noise on the sum.
    grid : float or None
        The sum and its noise are multiples of it.
    sampling_rate : float in (0, 1]
    divisor : float > 0
    regularization : float >= 0
    optimizer : {"gd", "adam"}
    learning_rate : float > 0
    schedule : {"constant", "inverse", "linear"}
        The rate times 1, 1 / (t + 1) or 1 - t / horizon in step t = 0, 1, ...
    horizon : int
        For the linear schedule.
    momentum : float, nesterov : bool
        For ``gd``.
    beta1, beta2, stabilizer : float, noise_correction : bool
        For ``adam``. The correction subtracts the noise's variance from the second moment.
    average_from : int or None
        The result is the mean of the iterates after steps number ``average_from`` and later.
    radius : float or None
        Every iterate is projected on the ball of this radius.
    precision : {"f32", "f64"}, exact_sums : bool
        Not used: the twin is in double precision.
    state : dict or None
        What :meth:`state` returned.
    generator : Generator or None
        Draws the batches.
    """

    def __init__(
        self,
        *,
        loss: str,
        n_scores: int,
        smoothing: float,
        margin: float,
        n_features: int,
        intercept: float,
        row_scale: float,
        clip: float,
        sigma: float,
        grid: float | None,
        sampling_rate: float,
        divisor: float,
        regularization: float,
        optimizer: str,
        learning_rate: float,
        schedule: str,
        horizon: int,
        momentum: float,
        nesterov: bool,
        beta1: float,
        beta2: float,
        stabilizer: float,
        noise_correction: bool,
        average_from: int | None,
        radius: float | None,
        precision: str,
        exact_sums: bool = False,
        state: dict[str, Any] | None = None,
        generator: np.random.Generator | None = None,
    ) -> None:
        self.kernel = (loss, smoothing, margin)
        self.n_features, self.intercept, self.row_scale = n_features, intercept, row_scale
        self.clip, self.sigma, self.grid = clip, sigma, grid
        self.sampling_rate, self.divisor = sampling_rate, divisor
        self.regularization, self.optimizer = regularization, optimizer
        self.learning_rate, self.schedule, self.horizon = learning_rate, schedule, horizon
        self.momentum, self.nesterov = momentum, nesterov
        self.beta1, self.beta2, self.stabilizer = beta1, beta2, stabilizer
        self.noise_correction, self.average_from = noise_correction, average_from
        self.radius = radius
        # Of the batch.
        self.row_weights: Array | float = 1.0
        self.generator = np.random.default_rng() if generator is None else generator
        zeros = np.zeros((n_scores, n_features + (intercept > 0)))
        # One moment of gd (the velocity), two of adam.
        fresh = {"step": 0, "averaged": 0, "weights": zeros, "first": zeros, "second": zeros}
        fresh["total"] = zeros
        self._state: dict[str, Any] = fresh if state is None else dict(state)

    def run(
        self,
        records: Records,
        source: Noise,
        n_steps: int,
        n_threads: int,
        on_step: Callable[[int, int], object] | None = None,
    ) -> None:
        """Take ``n_steps`` steps, and tell of each."""
        constant = np.full((len(records.y), int(self.intercept > 0)), self.intercept)
        rows = self.row_scale * np.hstack([records.rows, constant])
        for step in range(n_steps):
            joins = self.batch(len(rows))
            self.row_weights = records.weights[joins]
            total = self.clipped_sum(rows[joins], records.y[joins])
            noisy = self._with_noise(total, source, n_threads)
            self._move(noisy / self.divisor + self.regularization * self._state["weights"])
            if on_step is not None:
                on_step(step + 1, n_steps)

    def batch(self, n_samples: int) -> NDArray[np.bool_]:
        """Who joins this step, shape (n_samples,): each record on its own."""
        if self.sampling_rate == 1.0:
            return np.ones(n_samples, dtype=bool)
        return np.asarray(self.generator.random(n_samples) < self.sampling_rate)

    def clipped_sum(self, rows: Array, y: Labels) -> Array:
        """Sum of the records' clipped gradients times weights, shape (n_scores, n_columns)."""
        a = _gradient(rows @ self._state["weights"].T, y, self.kernel)
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(rows, axis=1)
        limits = np.full_like(lengths, self.clip)
        factors = np.divide(limits, lengths, out=np.ones_like(lengths), where=lengths > limits)
        return np.asarray(((factors * self.row_weights)[:, None] * a).T @ rows)

    def weights(self) -> Array:
        """The last iterate or the mean, shape (n_scores, n_columns)."""
        if self._state["averaged"]:
            return np.asarray(self._state["total"] / self._state["averaged"])
        return np.array(self._state["weights"])

    def state(self) -> dict[str, Any]:
        """All that the next run needs."""
        return dict(self._state)

    def _with_noise(self, total: Array, source: Noise, n_threads: int) -> Array:
        if self.grid is not None:
            total = np.rint(total / self.grid) * self.grid
        if self.sigma == 0.0:
            return total
        if self.grid is None:
            return total + source.gaussian(total.size, self.sigma, n_threads).reshape(total.shape)
        drawn = source.gaussian_on_grid(total.size, self.sigma, self.grid, n_threads)
        return np.asarray(total + drawn.reshape(total.shape) * self.grid)

    def _rate(self, t: int) -> float:
        if self.schedule == "inverse":
            return self.learning_rate / (t + 1)
        if self.schedule == "linear":
            return self.learning_rate * max(0.0, 1.0 - t / self.horizon)
        return self.learning_rate

    def _move(self, g: Array) -> None:
        """One update of the state by the noisy gradient ``g``."""
        s = self._state
        t = s["step"]
        update = self._adam(g, t) if self.optimizer == "adam" else self._descent(g)
        moved = s["weights"] - self._rate(t) * update
        if self.radius is not None:
            moved = moved * min(1.0, self.radius / max(float(np.linalg.norm(moved)), 1e-300))
        s["weights"], s["step"] = moved, t + 1
        if self.average_from is not None and t >= self.average_from:
            s["total"], s["averaged"] = s["total"] + moved, s["averaged"] + 1

    def _descent(self, g: Array) -> Array:
        velocity = self.momentum * self._state["first"] + g
        self._state["first"] = velocity
        return np.asarray(g + self.momentum * velocity if self.nesterov else velocity)

    def _adam(self, g: Array, t: int) -> Array:
        s = self._state
        s["first"] = self.beta1 * s["first"] + (1.0 - self.beta1) * g
        s["second"] = self.beta2 * s["second"] + (1.0 - self.beta2) * g**2
        first = s["first"] / (1.0 - self.beta1 ** (t + 1))
        second = s["second"] / (1.0 - self.beta2 ** (t + 1))
        if self.noise_correction:
            signal = second - (self.sigma / self.divisor) ** 2
            return np.asarray(first / np.sqrt(np.maximum(signal, self.stabilizer**2)))
        return np.asarray(first / (np.sqrt(second) + self.stabilizer))


def _shortened(rows: Array, norm: float | None) -> Array:
    """Rows clipped to ``norm`` and divided by it; None: divided by their own norms."""
    # Scaling by the largest entry first keeps the squares of huge and tiny rows in range.
    largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    shape = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    length = np.linalg.norm(shape, axis=1, keepdims=True)
    direction = np.divide(shape, length, out=np.zeros_like(rows), where=length > 0)
    if norm is None:
        return np.asarray(direction)
    # A norm that overflows belongs to a row that is too long.
    with np.errstate(over="ignore"):
        return np.where(largest * length <= norm, rows / norm, direction)


def _rounded_towards_zero(rows: Array) -> Array:
    """Entries on the grid of ``UNIT``, no row longer than 1."""
    units: Labels = np.trunc(np.asarray(rows, dtype=np.float64) / UNIT).astype(np.int64)
    for row in units:
        # The division by the norm may have rounded up: exact integers decide.
        while int((row**2).sum()) > 2**40:
            entry = int(np.argmax(np.abs(row)))
            row[entry] -= int(math.copysign(1, row[entry]))
    return np.asarray(units * UNIT, dtype=np.float64)


def _gradient(scores: Array, y: Labels, kernel: tuple[str, float, float]) -> Array:
    """Gradient of each record's loss in its scores, the shape of ``scores``."""
    name, tau, m = kernel
    classes = np.arange(scores.shape[1])
    own = (y == 1)[:, None] if scores.shape[1] == 1 else classes == y[:, None]
    if name in ("softplus", "huber"):
        t = np.where(own, 1.0, -1.0)
        z = m - t * scores
        if name == "huber":
            return np.asarray(-t * np.clip((z + tau) / (2.0 * tau), 0.0, 1.0))
        # A logistic function without overflow.
        return np.asarray(-t * 0.5 * (1.0 + np.tanh(0.5 * z / tau)))
    if name in ("confidence", "correctness"):
        both = np.hstack([np.zeros_like(scores), scores]) if scores.shape[1] == 1 else scores
        shares = np.exp((both - both.max(axis=1, keepdims=True)) / tau)
        share = 1.0 / shares.sum(axis=1) if name == "confidence" else both.argmax(axis=1) == y
        found = np.zeros_like(scores)
        found[:, 0] = m * (share - 0.5)
        return found
    if name not in ("softmax_margin", "m3", "huber_ww"):
        raise ValueError(f"loss: got {name!r}")
    z = np.where(own, 0.0, m) + scores - np.where(own, scores, 0.0).sum(axis=1, keepdims=True)
    if name == "softmax_margin":
        e = np.exp((z - z.max(axis=1, keepdims=True)) / tau)
        slope = e / e.sum(axis=1, keepdims=True)
    elif name == "huber_ww":
        slope = np.clip((z + tau) / (2.0 * tau), 0.0, 1.0)
    else:
        slope = 0.5 * (1.0 + z / np.hypot(z, tau))
    slope = np.where(own, 0.0, slope)
    return np.where(own, -slope.sum(axis=1, keepdims=True), slope)
