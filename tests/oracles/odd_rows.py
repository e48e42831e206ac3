"""Bad and odd training sets by name, each with the numbers of the catalogue that it stands for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from oracles.odd_inputs import RNG, Raises, X, Y, csr, frame, read_only, with_index, with_value

LABELS = ["a", "", "\N{GREEK SMALL LETTER BETA}"]
SECRET = "s3cr3t"


@dataclass(frozen=True)
class Case:
    """A training set: rows, labels, and what an estimator is made with.

    With ``words`` it is refused, by an error in which they occur; without, it is accepted.
    """

    numbers: tuple[int, ...]
    rows: Any
    labels: Any = field(default_factory=lambda: Y)
    settings: dict[str, Any] = field(default_factory=dict)
    words: str = ""

    @property
    def about_labels(self) -> bool:
        """Whether it says nothing to those who take none."""
        return self.labels is not Y and len(np.shape(self.rows)) == 2 and len(self.rows) == len(X)


def refused(number: int, rows: Any, words: str, labels: Any = Y) -> Case:
    return Case((number,), rows, labels, {}, words)


def accepted(number: int, rows: Any, labels: Any = Y, **settings: Any) -> Case:
    return Case((number,), rows, labels, settings)


class Lying:
    """Has other numbers than its shape says."""

    shape = (12, 3)

    def __array__(self, *_: Any, **__: Any) -> Any:
        return X[:, 0]


class Impossible:
    """Describes its memory in a way that cannot be."""

    __array_interface__ = {"shape": (12, 3), "typestr": "<f8", "data": None, "strides": "x"}  # noqa: RUF012


def duplicates_overflow() -> sparse.csr_matrix:
    columns, ends = np.zeros(24, int), np.arange(0, 26, 2)
    return sparse.csr_matrix((np.full(24, 1e308), columns, ends), shape=(12, 3))


def decreasing() -> sparse.csr_matrix:
    return csr(indptr=csr().indptr[::-1].copy())


def beyond_the_buffers() -> sparse.csr_matrix:
    matrix = csr()
    matrix.indptr = matrix.indptr.copy()
    matrix.indptr[-1] += 5
    return matrix


def long_pointers() -> sparse.csr_matrix:
    matrix = csr()
    matrix.indptr = matrix.indptr.astype(np.int64)
    return matrix


REFUSED: dict[str, Case] = {
    "nan": refused(1, with_value(np.nan), "NaN"),
    "plus infinity": refused(2, with_value(np.inf), "infinity"),
    "minus infinity": refused(3, with_value(-np.inf), "infinity"),
    "single nan": refused(1, with_value(np.nan, np.float32), "NaN"),
    "nan label": refused(4, X, "y", np.where(Y == 0, np.nan, Y)),
    "infinite label": refused(4, X, "y", np.where(Y == 0, np.inf, Y)),
    "no rows": refused(13, X[:0], "0 sample|minimum of 1", Y[:0]),
    "no features": refused(16, X[:, :0], "0 feature"),
    "unknown label": refused(23, X, "^y: ", Y + 987_654_321),
    "fractional labels": refused(24, X, "^y: ", Y + 0.5),
    "string labels": refused(25, X, "^y: ", np.array([SECRET, "a", "b"])[Y]),
    "mixed labels": refused(26, X, "y", np.array([SECRET, 1, 2] * 4, dtype=object)),
    "none label": refused(27, X, "y", np.array([None, 1, 2] * 4, dtype=object)),
    "labels of shape (n, 2)": refused(31, X, "y", np.stack([Y, Y], axis=1)),
    "scalar label": refused(31, X, "y|shape|array", 1),
    "no labels": refused(32, X, "y", None),
    "lengths": refused(32, X, "inconsistent|numbers of samples", Y[:-1]),
    "half precision infinity": refused(34, with_value(np.inf, np.float16), "infinity"),
    "complex": refused(39, X + 0j, "Complex"),
    "text": refused(41, X.astype(str), "X"),
    "text objects": refused(41, np.full(X.shape, SECRET), "X"),
    "text among objects": refused(41, np.full(X.shape, SECRET, dtype=object), "X"),
    "dates": refused(42, np.full(X.shape, np.datetime64("2020-01-01")), "X"),
    "durations": refused(42, np.full(X.shape, np.timedelta64(1, "s")), "X"),
    "records": refused(42, np.zeros((12, 3), dtype=[("a", float)]), "X"),
    "scalar": refused(50, np.float64(1.0), "array"),
    "one dimension": refused(50, X[:, 0], "2D|Expected 2"),
    "three dimensions": refused(50, X[:, :, None], "dim"),
    "masked": refused(51, np.ma.masked_array(X), "^X: masked"),
    "np.matrix": refused(52, np.asmatrix(X), "matrix"),
    "ragged": refused(53, [[1.0, 2.0], [3.0]] * 6, "shape|sequence|inhomogeneous"),
    "none": refused(50, None, "X|array"),
    "frame with missing values": refused(54, frame(b=np.where(Y == 0, np.nan, 1.0)), "NaN"),
    "nullable with missing": refused(54, frame(b=pd.array([1, None] * 6, dtype="Int64")), "NaN"),
    "frame with text": refused(54, frame(b=[SECRET] * 12), "X|convert"),
    "frame with dates": refused(54, frame(b=pd.date_range("2020", periods=12)), "X"),
    "sparse nan": refused(61, csr(data=np.full(csr().nnz, np.nan)), "NaN"),
    "sparse column too large": refused(59, with_index(3), "ind"),
    "sparse column huge": refused(59, with_index(2**31 - 1), "ind"),
    "sparse column negative": refused(59, with_index(-1), "ind"),
    "sparse pointers decrease": refused(59, decreasing(), "ind"),
    "sparse pointers beyond the end": refused(59, beyond_the_buffers(), "ind"),
    "sparse overflow of duplicates": refused(58, duplicates_overflow(), "infinity"),
    "unreadable": refused(62, Raises(), "unreadable"),
    "another shape than it says": refused(62, Lying(), "2D|Expected 2"),
    "impossible memory": refused(62, Impossible(), "bytes-like|array|stride"),
}

ACCEPTED: dict[str, Case] = {
    "subnormal": accepted(5, np.full((12, 3), 5e-324)),
    "huge": accepted(6, np.full((12, 3), 1e308)),
    "square overflows": accepted(7, X * 1e200),
    "largest": accepted(6, np.full((12, 3), np.finfo(float).max)),
    "mixed magnitudes": accepted(8, np.where(X > 0.0, 1e300, 1e-300)),
    "negative zero": accepted(9, np.full((12, 3), -0.0)),
    "zero rows": accepted(10, np.where(np.arange(12)[:, None] < 6, 0.0, X)),
    "all zero": accepted(11, np.zeros((12, 3))),
    "all zero without intercept": accepted(11, np.zeros((12, 3)), fit_intercept=False),
    "constant feature": accepted(12, np.ones((12, 3))),
    "one row": accepted(14, X[:1], Y[:1]),
    "two rows": accepted(15, X[:2], Y[:2], classes=[0, 1]),
    "two rows of any class": accepted(15, X[:2], Y[:2]),
    "one feature": accepted(17, X[:, :1]),
    "more features than rows": accepted(18, RNG.normal(size=(12, 100_000))),
    "one class": accepted(19, X, np.zeros(12, int)),
    "a class with one row": accepted(20, X, np.where(np.arange(12) == 0, 2, Y % 2)),
    "an absent class": accepted(21, X, Y % 2),
    "labels -1 and 1": accepted(23, X, np.where(Y == 0, -1, 1), classes=[-1, 1]),
    "labels 0 and 1": accepted(23, X, Y % 2, classes=[0, 1]),
    "labels 1 and 2": accepted(23, X, 1 + Y % 2, classes=[1, 2]),
    "booleans": accepted(23, X, Y == 0, classes=[False, True]),
    "whole floats": accepted(24, X, Y + 1.0, classes=[1.0, 2.0, 3.0]),
    "strings": accepted(25, X, np.array(LABELS)[Y], classes=LABELS),
    "string objects": accepted(25, X, np.array(LABELS, dtype=object)[Y], classes=LABELS),
    "integers beyond 2**53": accepted(28, X, 2**53 + Y, classes=[2**53 + i for i in range(3)]),
    "largest unsigned": accepted(
        29,
        X,
        np.array([0, 2**64 - 1] * 6, dtype=np.uint64),
        classes=np.array([0, 2**64 - 1], dtype=np.uint64),
    ),
    "categorical": accepted(30, X, pd.Series(Y).astype("category")),
    "half precision": accepted(34, X.astype(np.float16)),
    "single precision": accepted(35, X.astype(np.float32)),
    "single precision at the bound": accepted(35, (X * 1e30).astype(np.float32)),
    "int8": accepted(36, np.full((12, 3), -128, dtype=np.int8)),
    "uint8": accepted(36, np.full((12, 3), 255, dtype=np.uint8)),
    "int64 beyond 2**53": accepted(37, np.full((12, 3), 2**60 + 1)),
    "bool": accepted(38, X > 0.0),
    "objects": accepted(40, X.astype(object)),
    "long double": accepted(43, X.astype(np.longdouble)),
    "read only": accepted(47, read_only()),
    "lists": accepted(53, X.tolist(), Y.tolist()),
    "frame": accepted(54, frame(), pd.Series(Y)),
    "nullable integers": accepted(54, frame(b=pd.array([1, 2] * 6, dtype="Int64"))),
    "mixed dtypes": accepted(54, frame(a=np.float32(1.0), b=Y.astype(np.int8), c=Y == 0)),
    "sparse with long pointers": accepted(59, long_pointers()),
    "empty sparse rows": accepted(60, sparse.csr_matrix((12, 3))),
    "label of shape (1,)": accepted(14, X[:1], [1]),
    "ten thousand classes": accepted(79, X, classes=range(10_000)),
    "norm far below the data": accepted(71, X * 1e6, data_norm=1e-6),
    "norm far above the data": accepted(71, X, data_norm=1e6),
    "large epsilon": accepted(64, X, epsilon=1e3),
    "numpy scalars": accepted(64, X, epsilon=np.float32(1.0)),
    "smallest delta": accepted(65, X, delta=1e-300),
    "delta above 1/n": accepted(65, X, delta=0.09),
    "most threads": accepted(73, X, n_threads=64),
}


def secrets(case: Case) -> set[str]:
    """What no text may hold: the first digits of every number in the rows, and odd labels."""
    found = {SECRET, "987654321", "987_654_321", "98765432"}
    rows = case.rows.data if sparse.issparse(case.rows) else case.rows
    if isinstance(rows, pd.DataFrame):
        rows = rows.to_numpy()
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "fO":
        for value in np.ma.getdata(rows).ravel().tolist():
            if isinstance(value, float) and np.isfinite(value) and value % 1.0:
                found.add(repr(abs(value))[:7])
    return found
