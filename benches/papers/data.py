"""The papers' data sets with the bounds that are known without looking at a single row.

Bounds come from what the features are (pixels, shares, ages, published code books), never from the
file: a bound taken from private rows would void the guarantee.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

Array = NDArray[np.float64]

# Silhouettes of vehicles: what such shape measures can be, rounded generously.
VEHICLE_LOW = (50, 20, 20, 50, 30, 0, 80, 20, 10, 100, 100, 150, 80, 50, 0, 0, 150, 150)
VEHICLE_HIGH = (
    150,
    80,
    150,
    400,
    200,
    100,
    300,
    80,
    40,
    250,
    400,
    1200,
    300,
    200,
    50,
    60,
    250,
    250,
)
# Ranges of Adult's numeric columns by name; every other column is 0 or 1.
ADULT_RANGES = {
    "age": (0.0, 100.0),
    "fnlwgt": (0.0, 1_500_000.0),
    "education-num": (1.0, 16.0),
    "capital-gain": (0.0, 99_999.0),
    "capital-loss": (0.0, 5_000.0),
    "hours-per-week": (0.0, 99.0),
}
# Sets of scikit-learn: lengths of flowers, what wine can hold, measures of cells (means, errors,
# largest values), grey values.
WINE_LOW = (11, 0.5, 1, 10, 70, 0.5, 0, 0, 0, 1, 0.4, 1, 250)
WINE_HIGH = (15, 6, 3.5, 30, 170, 4, 5.5, 0.8, 4, 13, 1.8, 4.5, 1700)
CELLS_HIGH = (
    *(30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1),
    *(3, 5, 25, 550, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03),
    *(40, 50, 260, 4500, 0.25, 1.1, 1.3, 0.3, 0.7, 0.22),
)
PUBLIC_SETS: dict[str, tuple[Any, Any, Any]] = {
    "iris": (datasets.load_iris, (4, 2, 1, 0), (8, 4.5, 7, 2.5)),
    "wine": (datasets.load_wine, WINE_LOW, WINE_HIGH),
    "breast cancer": (datasets.load_breast_cancer, 0, CELLS_HIGH),
    "digits": (datasets.load_digits, 0, 16),
}
# Amounts of money, which a logarithm spreads.
ADULT_AMOUNTS = ("capital-gain", "capital-loss")


@dataclass(frozen=True)
class DataSet:
    """Raw rows with public bounds.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,), codes 0 .. n_classes - 1
    n_classes : int
    low, high : ndarray of shape (n_features,)
        Public bounds.
    is_train : ndarray of bool, shape (n_samples,), or None
        The official split.
    """

    X: Array
    y: NDArray[np.int64]
    n_classes: int
    low: Array
    high: Array
    is_train: NDArray[np.bool_] | None = None


def load(name: str, *, logarithms: bool = False) -> DataSet | None:
    """The data set, or None with a line that says what is missing.

    Parameters
    ----------
    name : str
        Of the file, without its ending.
    logarithms : bool, default=False
        Whether Adult's amounts of money pass through the public map log(1 + x).
    """
    if name in PUBLIC_SETS:
        return _public_set(name)
    folder = os.environ.get("DPSVM_DATA")
    path = Path(folder or ".") / f"{name}.npz"
    if folder is None or not path.is_file():
        print(f"SKIPPED {name}: no {name}.npz (X, y); set DPSVM_DATA to the folder with it")
        return None
    with np.load(path, allow_pickle=False) as stored:
        X = stored["X"].astype(np.float64)
        y = stored["y"].astype(np.int64)
        is_train = stored.get("is_train")
        names = stored.get("feature_names", np.array([]))
        low, high = bounds(name, X.shape[1], [str(column) for column in names])
        if {"low", "high"} <= set(stored.files):
            # Whoever supplies such a file vouches that they are public.
            low, high = stored["low"].astype(np.float64), stored["high"].astype(np.float64)
    if logarithms:
        amounts = [i for i, column in enumerate(names) if str(column) in ADULT_AMOUNTS]
        X[:, amounts] = np.log1p(np.clip(X[:, amounts], 0.0, high[amounts]))
        high[amounts] = np.log1p(high[amounts])
    return DataSet(X, y, int(y.max()) + 1, low, high, is_train)


def _public_set(name: str) -> DataSet:
    """A set of scikit-learn."""
    function, low, high = PUBLIC_SETS[name]
    X, y = function(return_X_y=True)
    sides = (np.array(np.broadcast_to(np.float64(side), X.shape[1])) for side in (low, high))
    return DataSet(X.astype(np.float64), y.astype(np.int64), int(y.max()) + 1, *sides)


def bounds(name: str, n_features: int, columns: list[str]) -> tuple[Array, Array]:
    """Public lower and upper bounds of the features."""
    low, high = np.zeros(n_features), np.ones(n_features)
    if name in ("isolet", "hhar"):
        low[:] = -1.0
    elif name == "mnist":
        high[:] = 255.0
    elif name == "dermatology":
        # Attributes are graded 0 to 3; the last one is the age.
        high[:] = 3.0
        high[-1] = 100.0
    elif name == "vehicle":
        low[:], high[:] = VEHICLE_LOW, VEHICLE_HIGH
    elif name == "wisdm":
        # 30 shares, then three axes each of: mean, time between peaks, two deviations; resultant.
        low[30:33], high[30:33] = -20.0, 20.0
        high[33:36], high[36:42], high[42] = 5000.0, 20.0, 30.0
    elif name == "adult":
        for column, (least, most) in ADULT_RANGES.items():
            low[columns.index(column)], high[columns.index(column)] = least, most
    return low, high
