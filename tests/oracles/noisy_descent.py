"""Private descent by the compiled module, or by any pair of classes with its interface."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.losses import Loss
from twins import noisy_descent as twin

Array = NDArray[Any]


class Kind(NamedTuple):
    """The two classes of an implementation."""

    records: Any
    descent: Any


TWIN = Kind(twin.Records, twin.Descent)
COMPILED = Kind(_core.Records, _core.Descent)


def distance_bound(clip: float, n_weights: int, grid: float | None) -> float:
    """How far one record added or removed can move the sum."""
    return _core.clipped_sum_distance(clip, n_weights, grid)


# Gradients of one score that stay at -t, of norm 1, wherever W is.
STEEP: dict[str, Any] = {"loss": "huber", "n_scores": 1, "smoothing": 0.5, "margin": 1e6}


def settings(**changes: Any) -> dict[str, Any]:
    """Arguments of a descent; by default one noiseless step gives W = -(sum of the gradients)."""
    plain: dict[str, Any] = STEEP | {
        "n_features": 1,
        "intercept": 0.0,
        "row_scale": 1.0,
        "clip": 1.0,
        "sigma": 0.0,
        "grid": None,
        "sampling_rate": 1.0,
        "divisor": 1.0,
        "regularization": 0.0,
        "optimizer": "gd",
        "learning_rate": 1.0,
        "schedule": "constant",
        "horizon": 100,
        "momentum": 0.0,
        "nesterov": False,
        "beta1": 0.9,
        "beta2": 0.999,
        "stabilizer": 1e-8,
        "noise_correction": False,
        "average_from": None,
        "radius": None,
        "precision": "f32",
    }
    unknown = set(changes) - set(plain) - {"state", "generator"}
    assert not unknown, unknown
    return plain | changes


def kernel(
    loss: str, n_classes: int, smoothing: float = 0.5, margin: float = 1.0
) -> dict[str, Any]:
    """Settings that describe a loss of the public table."""
    return Loss(name=loss, n_classes=n_classes, smoothing=smoothing, margin=margin).compiled


def records_of(
    X: Any, y: Any, n_classes: int = 2, *, kind: Kind = COMPILED, n_threads: int = 1, **changes: Any
) -> Any:
    """Mapped rows; by default rows of norm up to 1 are taken as they are."""
    options: dict[str, Any] = {
        "n_classes": n_classes,
        "scale": None,
        "low": -np.inf,
        "floor": None,
        "high": np.inf,
        "constant": 0.0,
        "data_norm": 1.0,
        "unit": False,
        "n_threads": n_threads,
    } | changes
    labels = np.asarray(y, dtype=np.int64)
    if sparse.issparse(X):
        rows = (X.data, X.indices, X.indptr, X.shape[1])
        return kind.records(rows, labels, **({"offset": None} | options))
    X = np.asarray(X)
    X = np.ascontiguousarray(X, dtype=X.dtype if X.dtype == np.float32 else np.float64)
    return kind.records(X, labels, **({"offset": None} | options))


def run(
    records: Any,
    n_steps: int = 1,
    *,
    kind: Kind = COMPILED,
    seed: int = 0,
    source: Any = None,
    n_threads: int = 1,
    **changes: Any,
) -> Any:
    """A descent after ``n_steps`` steps on the records."""
    descent = kind.descent(**settings(n_features=records.n_features, **changes))
    source = _core.NoiseSource(seed) if source is None else source
    descent.run(records, source, n_steps, n_threads)
    return descent


def clipped_sum(records: Any, *, kind: Kind = COMPILED, **changes: Any) -> Array:
    """Sum of the clipped gradients at W = 0, or at the weights of ``state``."""
    start = settings(n_features=records.n_features, **changes)
    descent = kind.descent(**start)
    before = descent.weights()
    descent.run(records, _core.NoiseSource(0), 1, 1)
    return np.asarray(before - descent.weights())


def zero_rows(n_samples: int, n_features: int, kind: Kind = COMPILED, n_classes: int = 2) -> Any:
    """Records whose gradients are zero without an intercept."""
    rows = np.zeros((n_samples, n_features))
    return records_of(rows, np.zeros(n_samples), n_classes, kind=kind)


def noises(
    seed: int, n_steps: int, shape: tuple[int, int], sigma: float, grid: float | None
) -> Array:
    """Noise of every step, as descent on zero rows releases it: (n_steps, *shape).

    In multiples of the grid where there is one.
    """
    rows = zero_rows(3, shape[1], n_classes=max(2, shape[0]))
    # Two classes have one score, except where a loss compares them in pairs.
    loss = kernel("m3" if shape[0] == 2 else "huber", max(2, shape[0]))
    options = loss | {"sigma": sigma, "grid": grid}
    sums = [np.zeros(shape)]
    for t in range(1, n_steps + 1):
        sums.append(-run(rows, t, seed=seed, **options).weights())
    drawn = np.diff(sums, axis=0)
    return np.asarray(drawn if grid is None else np.rint(drawn / grid).astype(np.int64))


class Replay:
    """A source that hands out recorded noise, a step at a time."""

    def __init__(self, recorded: Array, sigma: float) -> None:
        self.left = list(recorded)
        self.sigma = sigma

    def gaussian_on_grid(self, size: int, sigma: float, grid: float, n_threads: int) -> Array:
        assert np.issubdtype(self.left[0].dtype, np.integer)
        return self._next(size, sigma)

    def gaussian(self, size: int, sigma: float, n_threads: int) -> Array:
        assert np.issubdtype(self.left[0].dtype, np.floating)
        return self._next(size, sigma)

    def _next(self, size: int, sigma: float) -> Array:
        drawn = self.left.pop(0).ravel()
        assert drawn.size == size
        assert sigma == self.sigma
        return np.asarray(drawn)
