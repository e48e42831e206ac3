"""From what the user passed to what the solvers take, without a data value in any message.

Rows: C-ordered float64 or float32, or canonical CSR. No copy is made where the input already has
that form; Fortran order, other dtypes, strided views, swapped bytes and other sparse formats are
converted once (time and memory of one copy of X).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_array, validate_data

__all__ = [
    "check_room",
    "checked_numbers",
    "checked_outputs",
    "checked_rows",
    "checked_training_rows",
    "checked_training_set",
    "classes_from_labels",
    "encoded_labels",
    "public_classes",
]

DTYPES = [np.float64, np.float32]

# Columns are numbered by 32 bits in the core.
MOST_FEATURES = 2**32 - 2
# Copies of what a fit learns that its solver may need at a time.
COPIES = 8

# scikit-learn and numpy quote the offending data behind these words.
_QUOTES = re.compile(
    r"(?P<kept>Complex data not supported|could not convert string to float|array instead)"
    r".*?(?P<tail>Reshape your data.*)?$",
    re.DOTALL,
)
# The number of samples is private when a record may be added or removed.
_COUNTS = re.compile(r"(?<=numbers of samples): .*|(?<=\(shape=\()\d+(?=,)")


def checked_training_set(
    estimator: Any, X: Any, y: Any, *, reset: bool = True
) -> tuple[Any, NDArray[Any]]:
    """Validated ``(X, y)``; sets ``n_features_in_`` and ``feature_names_in_`` of ``estimator``.

    Without ``reset`` the features must be those that it has already.

    Raises
    ------
    ValueError, TypeError
        What scikit-learn raises, with every quotation of the data cut out.
    """
    _refuse_by_dtype(X)

    def validate() -> tuple[Any, Any]:
        checked: tuple[Any, Any] = validate_data(
            estimator, X, y, accept_sparse="csr", dtype=DTYPES, order="C", reset=reset
        )
        return checked

    X, y = _without_quotes(validate)
    return _few_enough(_canonical(X)), np.asarray(y)


def checked_training_rows(estimator: Any, X: Any) -> Any:
    """Validated ``X`` of a training set without labels; otherwise as ``checked_training_set``."""
    _refuse_by_dtype(X)
    X = _without_quotes(
        lambda: validate_data(estimator, X, accept_sparse="csr", dtype=DTYPES, order="C")
    )
    return _few_enough(_canonical(X))


def checked_rows(estimator: Any, X: Any) -> Any:
    """Validated ``X`` for a fitted ``estimator``, in the same form as a training set.

    Rows that are transformed may be trained on next: how they are rounded must not depend on the
    order in memory, which for a single row is another one.
    """
    _refuse_by_dtype(X)
    return _canonical(
        _without_quotes(
            lambda: validate_data(
                estimator, X, reset=False, accept_sparse="csr", dtype=DTYPES, order="C"
            )
        )
    )


def checked_outputs(estimator: Any, X: Any) -> Any:
    """Validated ``X`` with a column for each feature of a fitted ``estimator``, but no names.

    For what comes out of a transformer that changes entries one by one: an array, whatever the
    rows were that the names of the features came from.
    """
    _refuse_by_dtype(X)
    X = _without_quotes(
        lambda: check_array(X, accept_sparse="csr", dtype=DTYPES, order="C", input_name="X")
    )
    expected = getattr(estimator, "n_features_in_", X.shape[1])
    if X.shape[1] != expected:
        raise ValueError(f"X: got {X.shape[1]} features, expected {expected}")
    return _canonical(X)


def check_room(n_numbers: int) -> None:
    """Raise now, before anything is spent, what would be raised in the middle of a fit.

    Parameters
    ----------
    n_numbers : int
        How many a fit learns. Memory for a few copies of them is asked for and given back.

    Raises
    ------
    MemoryError
        There is not enough. Nothing was spent.
    """
    wanted = COPIES * 8 * n_numbers
    try:
        if wanted < 2**62:
            np.empty(wanted, dtype=np.uint8)
            return
    except MemoryError:
        pass
    raise MemoryError(
        f"X: {n_numbers} numbers to be learned, and copies of them, need {wanted} "
        "bytes; nothing was spent"
    )


def checked_numbers(X: Any) -> NDArray[np.float64]:
    """Validated dense rows that are not in the space of an estimator's features."""
    _refuse_by_dtype(X)
    return np.asarray(_without_quotes(lambda: check_array(X, dtype=np.float64, input_name="X")))


def public_classes(classes: Any) -> NDArray[Any]:
    """The public label set, sorted: an array of int, bool, str or whole float labels.

    Raises
    ------
    TypeError, ValueError
        Labels that are missing, repeated, of several kinds or fewer than two.
    """
    if isinstance(classes, str) or not hasattr(classes, "__iter__"):
        raise TypeError(
            f"classes: got {type(classes).__name__}, expected a list or array of labels, or None"
        )
    items = list(np.asarray(classes).ravel() if isinstance(classes, np.ndarray) else classes)
    kinds = {_kind(item) for item in items}
    if "other" in kinds or len(kinds) > 1:
        raise TypeError(
            "classes: expected labels of one kind: ints, strings, bools or whole floats"
        )
    if "float" in kinds and not all(float(item).is_integer() for item in items):
        raise ValueError("classes: float labels must be finite whole numbers")
    labels = _label_array(items)
    if len(np.unique(labels)) != len(items):
        raise ValueError("classes: a label is repeated")
    if len(items) < 2:
        raise ValueError(f"classes: got {len(items)} class, expected at least 2 classes")
    return np.sort(labels)


def classes_from_labels(y: NDArray[Any]) -> NDArray[Any]:
    """The labels that occur in ``y``: a release of data, to be marked as such by the caller."""
    if y.dtype.kind == "f" and not np.all(y == np.floor(y)):
        raise ValueError(
            "Unknown label type: continuous. Expected class labels: ints, strings, bools or "
            "whole floats"
        )
    if y.dtype.kind == "O" and len({_kind(item) for item in y}) == 1:
        y = _label_array(list(y))
    if y.dtype.kind not in "biufU":
        raise ValueError("Unknown label type: expected ints, strings, bools or whole floats")
    labels = np.asarray(np.unique(y))
    if labels.size < 2:
        raise ValueError("y: holds one class only; name the label set with classes=")
    return labels


def encoded_labels(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Index of every label of ``y`` in the sorted array ``classes``.

    Raises
    ------
    ValueError
        ``y`` holds a label outside ``classes``; the text does not say which or where.
    """
    pair = _comparable(y, classes)
    if pair is not None:
        labels, known = pair
        codes = np.minimum(np.searchsorted(known, labels), known.size - 1)
        if np.array_equal(known[codes], labels):
            return np.asarray(codes, dtype=np.int64)
    raise ValueError("y: holds a label that is not in `classes`")


def _refuse_by_dtype(X: Any) -> None:
    """Refuses, from metadata alone, what a conversion to float would silently misread."""
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError("X: masked arrays are not supported; fill the masked entries first")
    dtypes = [getattr(X, "dtype", None), *getattr(X, "dtypes", ())]
    kinds = {dtype.kind for dtype in dtypes if isinstance(dtype, np.dtype)}
    if "c" in kinds:
        raise ValueError("X: Complex data not supported")
    if kinds & set("mMSUV"):
        raise ValueError("X: expected numbers; dates, strings and records are not supported")


def _without_quotes(validate: Any) -> Any:
    """Result of ``validate()``; its errors are raised anew without the data they quote."""
    try:
        # The test for finite values sums X first, which may overflow to inf - inf.
        with np.errstate(over="ignore", invalid="ignore"):
            return validate()
    except (ValueError, TypeError) as error:
        kind, message = type(error), str(error)
    # Raised outside the handler: a chained exception would carry the quotation along.
    message = _QUOTES.sub(lambda m: f"{m['kept']}. {m['tail'] or ''}".strip(), message)
    if message.startswith("could not convert"):
        message = f"X: expected numbers; {message}"
    raise (kind if kind in (ValueError, TypeError) else ValueError)(_COUNTS.sub("", message))


def _few_enough(X: Any) -> Any:
    """``X`` if its columns can be numbered."""
    if X.shape[1] > MOST_FEATURES:
        raise ValueError(f"X: got {X.shape[1]} features, expected at most {MOST_FEATURES}")
    return X


def _canonical(X: Any) -> Any:
    """``X`` as the solvers take it: aligned C order, or CSR with sorted unique indices."""
    if not sparse.issparse(X):
        return np.require(X, requirements=["C_CONTIGUOUS", "ALIGNED"])
    # Indices out of range must be caught before anything walks along them.
    X.check_format(full_check=True)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
        if not np.isfinite(X.data).all():
            raise ValueError("Input X contains infinity once duplicate entries are summed")
    if X.indices.dtype != X.indptr.dtype or X.indices.dtype not in (np.int32, np.int64):
        X = sparse.csr_matrix(X)
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def _kind(item: Any) -> str:
    """Which family of labels ``item`` belongs to."""
    families = (
        ("bool", (bool, np.bool_)),
        ("int", (int, np.integer)),
        ("float", (float, np.floating)),
        ("str", (str,)),
    )
    return next((name for name, types in families if isinstance(item, types)), "other")


def _label_array(items: list[Any]) -> NDArray[Any]:
    """Array of labels of one kind; integers stay exact (int64, or uint64 where needed)."""
    labels = np.asarray(items)
    if labels.dtype.kind in "biufU":
        whole = labels.dtype.kind in "fO" and all(_kind(item) == "int" for item in items)
        if not whole:
            return labels
    raise ValueError("classes: integer labels must all fit in int64 or all in uint64")


def _comparable(y: NDArray[Any], classes: NDArray[Any]) -> tuple[Any, Any] | None:
    """``y`` and ``classes`` in one dtype in which equality is exact; None if none can be equal."""
    if y.dtype.kind == "O":
        kinds = {_kind(item) for item in y}
        if len(kinds) != 1 or "other" in kinds:
            return None
        y = np.asarray(list(y))
    if "U" in (y.dtype.kind, classes.dtype.kind):
        return (y, classes) if y.dtype.kind == classes.dtype.kind else None
    if not {y.dtype.kind, classes.dtype.kind} <= set("biuf"):
        return None
    if "f" in (y.dtype.kind, classes.dtype.kind):
        exact = bool(np.all(np.abs(classes.astype(np.float64)) <= 2.0**53))
        return (y.astype(np.float64), classes.astype(np.float64)) if exact else None
    if y.dtype == np.uint64 and int(y.max()) > np.iinfo(np.int64).max:
        fits = classes.dtype == np.uint64 or int(classes.min()) >= 0
        return (y, classes.astype(np.uint64)) if fits else None
    if classes.dtype == np.uint64 and int(classes.max()) > np.iinfo(np.int64).max:
        return (y.astype(np.uint64), classes) if int(y.min()) >= 0 else None
    return y.astype(np.int64), classes.astype(np.int64)
