"""Bad and odd training sets by name, and what becomes of them."""

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

    rows: Any
    labels: Any = field(default_factory=lambda: Y)
    settings: dict[str, Any] = field(default_factory=dict)
    words: str = ""

    @property
    def about_labels(self) -> bool:
        """Whether it says nothing to those who take none."""
        return self.labels is not Y and len(np.shape(self.rows)) == 2 and len(self.rows) == len(X)


def refused(rows: Any, words: str, labels: Any = Y) -> Case:
    return Case(rows, labels, {}, words)


def accepted(rows: Any, labels: Any = Y, **settings: Any) -> Case:
    return Case(rows, labels, settings)


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
    "nan": refused(with_value(np.nan), "NaN"),
    "plus infinity": refused(with_value(np.inf), "infinity"),
    "minus infinity": refused(with_value(-np.inf), "infinity"),
    "single nan": refused(with_value(np.nan, np.float32), "NaN"),
    "nan label": refused(X, "y", np.where(Y == 0, np.nan, Y)),
    "infinite label": refused(X, "y", np.where(Y == 0, np.inf, Y)),
    "no rows": refused(X[:0], "0 sample|minimum of 1", Y[:0]),
    "no features": refused(X[:, :0], "0 feature"),
    "unknown label": refused(X, "^y: ", Y + 987_654_321),
    "fractional labels": refused(X, "^y: ", Y + 0.5),
    "string labels": refused(X, "^y: ", np.array([SECRET, "a", "b"])[Y]),
    "mixed labels": refused(X, "y", np.array([SECRET, 1, 2] * 4, dtype=object)),
    "none label": refused(X, "y", np.array([None, 1, 2] * 4, dtype=object)),
    "labels of shape (n, 2)": refused(X, "y", np.stack([Y, Y], axis=1)),
    "scalar label": refused(X, "y|shape|array", 1),
    "no labels": refused(X, "y", None),
    "lengths": refused(X, "inconsistent|numbers of samples", Y[:-1]),
    "half precision infinity": refused(with_value(np.inf, np.float16), "infinity"),
    "complex": refused(X + 0j, "Complex"),
    "text": refused(X.astype(str), "X"),
    "text objects": refused(np.full(X.shape, SECRET), "X"),
    "text among objects": refused(np.full(X.shape, SECRET, dtype=object), "X"),
    "dates": refused(np.full(X.shape, np.datetime64("2020-01-01")), "X"),
    "durations": refused(np.full(X.shape, np.timedelta64(1, "s")), "X"),
    "records": refused(np.zeros((12, 3), dtype=[("a", float)]), "X"),
    "scalar": refused(np.float64(1.0), "array"),
    "one dimension": refused(X[:, 0], "2D|Expected 2"),
    "three dimensions": refused(X[:, :, None], "dim"),
    "masked": refused(np.ma.masked_array(X), "^X: masked"),
    "np.matrix": refused(np.asmatrix(X), "matrix"),
    "ragged": refused([[1.0, 2.0], [3.0]] * 6, "shape|sequence|inhomogeneous"),
    "none": refused(None, "X|array"),
    "frame with missing values": refused(frame(b=np.where(Y == 0, np.nan, 1.0)), "NaN"),
    "nullable with missing": refused(frame(b=pd.array([1, None] * 6, dtype="Int64")), "NaN"),
    "frame with text": refused(frame(b=[SECRET] * 12), "X|convert"),
    "frame with dates": refused(frame(b=pd.date_range("2020", periods=12)), "X"),
    "sparse nan": refused(csr(data=np.full(csr().nnz, np.nan)), "NaN"),
    "sparse column too large": refused(with_index(3), "ind"),
    "sparse column huge": refused(with_index(2**31 - 1), "ind"),
    "sparse column negative": refused(with_index(-1), "ind"),
    "sparse pointers decrease": refused(decreasing(), "ind"),
    "sparse pointers beyond the end": refused(beyond_the_buffers(), "ind"),
    "sparse overflow of duplicates": refused(duplicates_overflow(), "infinity"),
    "unreadable": refused(Raises(), "unreadable"),
    "another shape than it says": refused(Lying(), "2D|Expected 2"),
    "impossible memory": refused(Impossible(), "bytes-like|array|stride"),
}

ACCEPTED: dict[str, Case] = {
    "subnormal": accepted(np.full((12, 3), 5e-324)),
    "huge": accepted(np.full((12, 3), 1e308)),
    "square overflows": accepted(X * 1e200),
    "largest": accepted(np.full((12, 3), np.finfo(float).max)),
    "mixed magnitudes": accepted(np.where(X > 0.0, 1e300, 1e-300)),
    "negative zero": accepted(np.full((12, 3), -0.0)),
    "zero rows": accepted(np.where(np.arange(12)[:, None] < 6, 0.0, X)),
    "all zero": accepted(np.zeros((12, 3))),
    "all zero without intercept": accepted(np.zeros((12, 3)), fit_intercept=False),
    "constant feature": accepted(np.ones((12, 3))),
    "one row": accepted(X[:1], Y[:1]),
    "two rows": accepted(X[:2], Y[:2], classes=[0, 1]),
    "two rows of any class": accepted(X[:2], Y[:2]),
    "one feature": accepted(X[:, :1]),
    "more features than rows": accepted(RNG.normal(size=(12, 100_000))),
    "one class": accepted(X, np.zeros(12, int)),
    "a class with one row": accepted(X, np.where(np.arange(12) == 0, 2, Y % 2)),
    "an absent class": accepted(X, Y % 2),
    "labels -1 and 1": accepted(X, np.where(Y == 0, -1, 1), classes=[-1, 1]),
    "labels 0 and 1": accepted(X, Y % 2, classes=[0, 1]),
    "labels 1 and 2": accepted(X, 1 + Y % 2, classes=[1, 2]),
    "booleans": accepted(X, Y == 0, classes=[False, True]),
    "whole floats": accepted(X, Y + 1.0, classes=[1.0, 2.0, 3.0]),
    "strings": accepted(X, np.array(LABELS)[Y], classes=LABELS),
    "string objects": accepted(X, np.array(LABELS, dtype=object)[Y], classes=LABELS),
    "integers beyond 2**53": accepted(X, 2**53 + Y, classes=[2**53 + i for i in range(3)]),
    "largest unsigned": accepted(
        X,
        np.array([0, 2**64 - 1] * 6, dtype=np.uint64),
        classes=np.array([0, 2**64 - 1], dtype=np.uint64),
    ),
    "categorical": accepted(X, pd.Series(Y).astype("category")),
    "half precision": accepted(X.astype(np.float16)),
    "single precision": accepted(X.astype(np.float32)),
    "single precision at the bound": accepted((X * 1e30).astype(np.float32)),
    "int8": accepted(np.full((12, 3), -128, dtype=np.int8)),
    "uint8": accepted(np.full((12, 3), 255, dtype=np.uint8)),
    "int64 beyond 2**53": accepted(np.full((12, 3), 2**60 + 1)),
    "bool": accepted(X > 0.0),
    "objects": accepted(X.astype(object)),
    "long double": accepted(X.astype(np.longdouble)),
    "read only": accepted(read_only()),
    "lists": accepted(X.tolist(), Y.tolist()),
    "frame": accepted(frame(), pd.Series(Y)),
    "nullable integers": accepted(frame(b=pd.array([1, 2] * 6, dtype="Int64"))),
    "mixed dtypes": accepted(frame(a=np.float32(1.0), b=Y.astype(np.int8), c=Y == 0)),
    "sparse with long pointers": accepted(long_pointers()),
    "empty sparse rows": accepted(sparse.csr_matrix((12, 3))),
    "label of shape (1,)": accepted(X[:1], [1]),
    "ten thousand classes": accepted(X, classes=range(10_000)),
    "norm far below the data": accepted(X * 1e6, data_norm=1e-6),
    "norm far above the data": accepted(X, data_norm=1e6),
    "large epsilon": accepted(X, epsilon=1e3),
    "numpy scalars": accepted(X, epsilon=np.float32(1.0)),
    "smallest delta": accepted(X, delta=1e-300),
    "delta above 1/n": accepted(X, delta=0.09),
    "most threads": accepted(X, n_threads=64),
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
