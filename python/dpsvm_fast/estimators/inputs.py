"""Validate user input and convert it for the solvers; no message contains a data value."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import config_context
from sklearn.utils.validation import check_array, check_X_y, validate_data

from dpsvm_fast import _core
from dpsvm_fast.estimators.frames import (
    column_names,
    feature_names,
    label_values,
    public_shape,
    refuse_columns,
    sparse_table,
    table_rows,
    tabular,
)
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError
from dpsvm_fast.mechanisms.moments import SQUARE_OFFSET
from dpsvm_fast.mechanisms.plan import Facts, OnStep, checked_on_step
from dpsvm_fast.mechanisms.rows import (
    MAX_KNOTS,
    FourierFeatures,
    PublicMap,
    SplineMap,
    compiled_rows,
    increasing,
    row_blocks,
)
from dpsvm_fast.validation import SEARCHING, check_integer

# Validate user input and convert it for the solvers; no message contains a data value.
#
# Rows: C-ordered float64 or float32, or canonical CSR. No copy is made where the input already has
# that form; Fortran order, other dtypes, strided views, swapped bytes, other sparse formats and
# tables of pandas, polars and pyarrow are converted once (time and memory of one copy of X).


DTYPES = [np.float64, np.float32]
# Format of the rows, as scikit-learn's validation accepts it.
FORM: dict[str, Any] = {"accept_sparse": "csr", "dtype": DTYPES, "order": "C"}

# Columns are numbered by 32 bits in the core.
MAX_FEATURES = 2**32 - 2

# scikit-learn and numpy quote the offending data behind these words.
_QUOTES = re.compile(
    r"(?P<kept>Complex data not supported|could not convert string to float|array instead)"
    r".*?(?P<tail>Reshape your data.*)?$",
    re.DOTALL,
)
_LABELS = re.compile(r"\by\b")
# The number of samples is private when a record may be added or removed.
_COUNTS = re.compile(r"(?<=numbers of samples): .*|((?<=shape[= ]\()|(?<=shape was \())\d+(?=,)")


def checked_rows(estimator: Any, X: Any, *labels: Any, reset: bool = False) -> Any:
    """Validate ``X`` for ``estimator`` and return it for the solvers, with its labels if given.

    Transformed rows may be used for training, so their rounding must not depend on the memory
    order, which may differ for a single row.

    Parameters
    ----------
    estimator : estimator
    X : array-like, sparse matrix or table
    *labels : array-like
        The labels of a training set, if it has any.
    reset : bool, default=False
        Whether to set the feature attributes of ``estimator``. Otherwise the features must be those
        that the estimator already has.

    Raises
    ------
    ValueError, TypeError
        Errors of scikit-learn, with all quoted data removed.
    """
    X = _refused_by_type(X)
    if any(isinstance(label, np.ma.MaskedArray) for label in labels):
        raise InvalidTypeError("y: masked arrays are not supported; drop the masked rows first")
    y = tuple(map(label_values, labels))

    def validate() -> Any:
        rows = table_rows(X)
        if rows is X:
            return validate_data(estimator, X, *y, reset=reset, **FORM)
        # The names, which the array no longer has.
        validate_data(estimator, X, *y, reset=reset, skip_check_array=True)
        if y:
            return check_X_y(rows, *y, estimator=estimator, **FORM)
        return check_array(rows, estimator=estimator, input_name="X", **FORM)

    found = _without_quotes(validate, X)
    return (_canonical(found[0]), np.asarray(found[1])) if y else _canonical(found)


def checked_outputs(estimator: Any, X: Any) -> Any:
    """Validate ``X`` with one column per feature of a fitted ``estimator``, but without names.

    For output of an elementwise transformer: an array, whatever type of rows had the feature names.
    """
    rows = checked_numbers(X, **FORM)
    expected = getattr(estimator, "n_features_in_", rows.shape[1])
    if rows.shape[1] != expected:
        raise InvalidParameterError(f"X: got {rows.shape[1]} features, expected {expected}")
    return _canonical(rows)


def check_room(n_numbers: int) -> None:
    """Raise ``MemoryError`` before anything is spent, rather than during the fit.

    Parameters
    ----------
    n_numbers : int
        Number of values that a fit needs room for. Their memory is allocated and freed.

    Raises
    ------
    MemoryError
        There is not enough memory. Nothing was spent.
    """
    try:
        if n_numbers < 2**59:
            np.empty(n_numbers)
            return
    except MemoryError:
        pass
    # The amount missing would reveal the number of rows, which may be private.
    raise MemoryError("X: a fit of this shape needs more memory than is free; nothing was spent")


def checked_numbers(X: Any, **form: Any) -> Any:
    """Validate rows that are not in an estimator's feature space; without a ``form`` doubles."""
    X = _refused_by_type(X)
    form = form or {"dtype": np.float64}
    return _without_quotes(lambda: check_array(table_rows(X), input_name="X", **form), X)


def public_classes(name: str, classes: Any) -> NDArray[Any]:
    """Return the sorted public label set: an array of int, bool, str or whole float labels.

    Raises
    ------
    TypeError, InvalidParameterError
        Labels are missing, repeated, of several kinds, or fewer than two.
    """
    if isinstance(classes, str) or not hasattr(classes, "__iter__"):
        raise InvalidTypeError.of(name, classes, "a list or array of labels")
    classes = label_values(classes)
    items = list(classes.ravel() if isinstance(classes, np.ndarray) else classes)
    kinds = set(map(_kind, items))
    if "other" in kinds or len(kinds) > 1:
        raise InvalidTypeError(
            f"{name}: expected labels of one kind: ints, strings, bools or whole floats"
        )
    if "float" in kinds and not all(float(item).is_integer() for item in items):
        raise InvalidParameterError(f"{name}: float labels must be finite whole numbers")
    if len(items) < 2:
        count = "1 class" if items else "no class"
        raise InvalidParameterError(f"{name}: got {count}, expected at least 2 classes")
    labels = _label_array(items)
    if len(np.unique(labels)) != len(items):
        raise InvalidParameterError(f"{name}: a label is repeated")
    return np.sort(labels)


def classes_from_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Return the labels in ``y``; the caller must mark this release of data."""
    if y.dtype.kind == "f" and not np.all(y == np.floor(y)):
        raise InvalidParameterError(
            "y: Unknown label type: continuous. Expected class labels: ints, strings, bools or "
            "whole floats"
        )
    if y.dtype.kind == "O" and len({_kind(item) for item in y}) == 1:
        y = _label_array(list(y))
    if y.dtype.kind not in "biufU":
        raise InvalidParameterError(
            "y: Unknown label type: expected ints, strings, bools or whole floats"
        )
    labels = np.asarray(np.unique(y))
    if labels.size < 2:
        raise InvalidParameterError("y: has one class only; pass the label set as classes=")
    return labels


def encoded_labels(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the index of every label of ``y`` in the sorted array ``classes``.

    Raises
    ------
    ValueError
        ``y`` has a label outside ``classes``; the message does not say which or where.
    """
    if (pair := _comparable(y, classes)) is not None:
        labels, known = pair
        codes = np.minimum(np.searchsorted(known, labels), known.size - 1)
        if np.array_equal(known[codes], labels):
            return np.asarray(codes, dtype=np.int64)
    if classes.dtype.kind == "U" and y.dtype.kind in "iu":
        raise InvalidParameterError(
            "y: has integers and `classes` strings; inside a VotingClassifier, StackingClassifier "
            "or BaggingClassifier, which pass codes, use classes=range(n_classes)"
        )
    raise InvalidParameterError(
        "y: has a label that is not in `classes`; add it there if it is public, or drop such rows"
    )


def _refused_by_type(X: Any) -> Any:
    """Return ``X`` unchanged; refuse types that a conversion would misread."""
    if isinstance(X, np.ma.MaskedArray):
        raise InvalidTypeError("X: masked arrays are not supported; fill the masked entries first")
    table = tabular(X)
    if table is not None:
        refuse_columns(table)
        X = table
    if sparse.issparse(X) and X.ndim == 2:
        X = compressed_rows(X)
    several = getattr(X, "dtypes", ())
    # A single column has one dtype, not several.
    dtypes = [getattr(X, "dtype", None), *(several if np.iterable(several) else ())]
    kinds = {dtype.kind for dtype in dtypes if isinstance(dtype, np.dtype)}
    if "c" in kinds:
        raise InvalidParameterError("X: Complex data not supported")
    if kinds & set("mMSUTV"):
        raise InvalidParameterError(
            "X: expected numbers; dates, strings and records are not supported"
        )
    return X


def _without_quotes(validate: Any, X: Any) -> Any:
    """Return ``validate()``; raise its errors again without the data they quote."""
    try:
        # The test for finite values sums X first, which may overflow to inf - inf. It is made
        # whatever the caller has set: what it refuses must not reach a release.
        with np.errstate(over="ignore", invalid="ignore"), config_context(assume_finite=False):
            return validate()
    except (ValueError, TypeError) as error:
        kind, message = type(error), str(error)
    # Raised outside the handler: a chained exception would carry the quotation along.
    message = _QUOTES.sub(lambda m: f"{m['kept']}. {m['tail'] or ''}".strip(), message)
    if message.startswith("could not convert"):
        message = f"X: expected numbers; {message}"
    elif message.startswith("Input y contains"):
        message = "y: a label is missing or infinite; drop rows without a label"
    elif message.startswith(("Input X contains", "Input contains")):
        message = _not_finite(X, missing="contains NaN" in message)
    if not message.startswith(("X: ", "y: ", "X has ")):
        both = message.startswith("Found input variables")
        name = "X and y" if both else "y" if _LABELS.search(message) else "X"
        message = f"{name}: {message.removeprefix('y ')}"
    refused = InvalidTypeError if issubclass(kind, TypeError) else InvalidParameterError
    raise refused(_COUNTS.sub("", message))


def _not_finite(X: Any, *, missing: bool) -> str:
    """Return the message about non-finite values and the remedy, without a value.

    For a table it names the first such column, which depends on the rows. For an array it is
    constant.
    """
    column, test = "", np.isnan if missing else np.isinf
    if tabular(X) is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            rows = check_array(table_rows(X), ensure_all_finite=False, **FORM)
        if sparse.issparse(rows):
            position = int(min(rows.indices[test(rows.data)], default=0))
        else:
            position = int(test(rows).any(axis=0).argmax())
        column = f"column {column_names(X)[position]!r} "
    if missing:
        return (
            f"X: {column}contains NaN or a missing value; fill it with a public value or drop such "
            "rows"
        )
    return (
        f"X: {column}contains infinity or a number too large for its type; clip it to public bounds"
    )


def _canonical(X: Any) -> Any:
    """Return ``X`` in solver form: aligned C order, or CSR with sorted unique indices.

    Raises
    ------
    ValueError
        ``X`` has too many columns to index.
    """
    if X.shape[1] > MAX_FEATURES:
        raise InvalidParameterError(
            f"X: got {X.shape[1]} features, expected at most {MAX_FEATURES}"
        )
    if not sparse.issparse(X):
        return np.require(X, requirements=["C_CONTIGUOUS", "ALIGNED"])
    # Indices out of range must be caught before anything walks along them.
    try:
        X.check_format(full_check=True)
    except ValueError as error:
        raise InvalidParameterError(f"X: {error}") from None
    if not X.has_canonical_format:
        X = _summed(X)
        if not np.isfinite(X.data).all():
            raise InvalidParameterError("X: contains infinity once duplicate entries are summed")
    if X.indices.dtype != X.indptr.dtype or X.indices.dtype not in (np.int32, np.int64):
        X = sparse.csr_matrix(X)
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def compressed_rows(X: Any) -> Any:
    """Return CSR with all entries of a sparse matrix, including duplicates.

    SciPy's conversion sums duplicates in an order that depends on other rows.
    """
    if X.format in ("csr", "csc"):
        return X.tocsr()
    entries = X.tocoo()
    order = np.argsort(entries.row, kind="stable")
    ends = np.cumsum(np.bincount(entries.row, minlength=X.shape[0]))
    parts = (entries.data[order], entries.col[order], np.append(0, ends))
    # SciPy before 1.11 has no class for arrays alone.
    kind = sparse.csr_matrix if isinstance(X, sparse.spmatrix) else sparse.csr_array
    return kind(parts, shape=X.shape)


def _summed(X: Any) -> Any:
    """Sum duplicate entries of a CSR matrix in an order that depends on them alone.

    SciPy sorts the columns of all rows if one is out of order, which may reorder duplicates.
    Sorting duplicates by value gives one order of summation, whatever other rows contain.
    """
    X = X.copy()
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    X.sort_indices()
    if ((np.diff(X.indices) == 0) & (np.diff(row) == 0)).any():
        X.data = X.data[np.lexsort((X.data, X.indices, row))]
    X.sum_duplicates()
    return X


def _kind(item: Any) -> str:
    """Return the kind of label ``item`` is."""
    # True is an int as well.
    if isinstance(item, (bool, np.bool_)):
        return "bool"
    if isinstance(item, (int, np.integer)):
        return "int"
    if isinstance(item, (float, np.floating)):
        return "float"
    return "str" if isinstance(item, str) else "other"


def _label_array(items: list[Any]) -> NDArray[Any]:
    """Return an array of labels of one kind; integers stay exact (int64, or uint64 if needed)."""
    labels = np.asarray(items)
    inexact = labels.dtype.kind == "f" and _kind(items[0]) == "int"
    if labels.dtype.kind not in "biufU" or inexact:
        raise InvalidParameterError(
            "classes: integer labels must all fit in int64 or all in uint64"
        )
    return labels


def _comparable(y: NDArray[Any], classes: NDArray[Any]) -> tuple[Any, Any] | None:
    """Return ``y`` and ``classes`` in a dtype with exact equality; None if none can be equal."""
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


NO_ROWS = np.empty(0, dtype=np.int64)


class Owners(NamedTuple):
    """Persons and weights of rows, without any id."""

    # Rows in use, those of persons of one row first; None for all in their order.
    order: NDArray[np.intp] | None
    # First row in this order of each person of several, and the number of rows; empty for none.
    persons: NDArray[np.int64]
    # In units of the largest; empty for 1 each.
    weights: NDArray[np.float64]
    # Number of persons, and of their weights, at most 1 per person.
    n_persons: int
    total: float
    # Persons in the order of their first rows as they came; empty for this order.
    places: NDArray[np.int64] = NO_ROWS

    def ordered(self, X: Any, codes: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
        """Return rows and classes in the order of persons."""
        order = self.order
        if order is None or (order.size == codes.size and bool((np.diff(order) > 0).all())):
            return X, codes
        return _canonical(X[order]), codes[order]

    def shares(self, n_rows: int) -> NDArray[np.float64]:
        """Return each row's share of its person; the shares of a person sum to at most 1."""
        persons, weights = self.persons, self.weights
        found = weights.copy() if weights.size else np.ones(n_rows)
        if persons.size:
            sizes = np.diff(persons)
            # A little more than the sum, so that no rounding lets a person have more than 1.
            sums = np.add.reduceat(found, persons[:-1]) * (1.0 + (sizes + 4) * 2.0**-52)
            found[persons[0] :] /= np.repeat(np.maximum(sums, 1.0), sizes)
        return found

    def averaged(self, n_rows: int, most_rows: int) -> Owners:
        """Return owners whose rows are weighted by their shares, rounded down to single precision.

        The first ``most_rows`` rows of each person take part; the others have weight 0.
        """
        first = self
        if self.persons.size:
            weights = self.weights.copy() if self.weights.size else np.ones(n_rows)
            starts = np.repeat(self.persons[:-1], np.diff(self.persons))
            late = np.arange(self.persons[0], n_rows) - starts >= most_rows
            weights[self.persons[0] :][late] = 0.0
            first = self._replace(weights=weights)
        found = first.shares(n_rows)
        single = found.astype(np.float32)
        np.nextafter(single, np.float32(0.0), out=single, where=single > found)
        return self._replace(persons=NO_ROWS, weights=single.astype(np.float64))

    def class_counts(self, codes: NDArray[np.int64], n_classes: int) -> NDArray[np.int64]:
        """Return class counts in units of ``COUNT_UNIT``; shares of persons are rounded down."""
        shares, starts = self.shares(codes.size), np.arange(codes.size)
        if self.persons.size:
            starts = np.append(starts[: self.persons[0]], self.persons[:-1])
        own = (np.add.reduceat(shares * (codes == k), starts) for k in range(n_classes))
        return np.array([np.floor(one / COUNT_UNIT).astype(np.int64).sum() for one in own])


# Smaller factors of losses count as 0: the solvers bound what underflows.
MIN_WEIGHT = 2.0**-60
# Persons count in a class by multiples of this.
COUNT_UNIT = 2.0**-20
# Weights of persons count in multiples of this, which half of is on the grid of sums of rows.
WEIGHT_GRID = 2.0**-19
# From this number of weighted rows on, the sums of one person may overflow 64-bit integers.
MAX_ROWS_PER_PERSON = 2**30


def owners(
    groups: Any,
    weights: Any,
    n_rows: int,
    max_weight: float,
    *,
    counted: bool = False,
    partial: bool = False,
) -> Owners:
    """Return the persons of rows, by their first rows, and weights divided by the largest.

    Rows of weight 0 are left out, unless persons are ``counted``: if their number is public,
    replacing a person by one of weight 0 must not change it. With ``partial`` the rows are a part
    of all rows, and all weights may be 0.

    Raises
    ------
    InvalidParameterError
        Ids or weights are invalid, or not one for each row; the message does not quote them.
    """
    kept = None
    share = np.full(0 if max_weight <= 1.0 else n_rows, 1.0 / max_weight)
    if weights is not None:
        share = checked_weights(weights, n_rows, partial=partial)
        kept = np.arange(n_rows) if counted else np.flatnonzero(share > 0.0)
    ids = None if groups is None else checked_groups(groups, n_rows)
    if ids is not None and kept is not None:
        if kept.size < n_rows:
            # The place of a person is that of its first row, whatever that one weighs.
            _, first, codes = np.unique(ids, return_index=True, return_inverse=True)
            kept = kept[np.argsort(first[codes[kept]], kind="stable")]
        ids = ids[kept]
    if kept is not None:
        share = np.minimum(share[kept], max_weight) / max_weight
    n = n_rows if kept is None else kept.size
    order, persons, sizes, places = None, NO_ROWS, np.ones(n, np.int64), NO_ROWS
    if ids is not None:
        order, persons, sizes, places = _sorted(ids)
    if share.size and int(sizes.max(initial=0)) >= MAX_ROWS_PER_PERSON:
        raise InvalidParameterError(
            f"groups: expected fewer than {MAX_ROWS_PER_PERSON} rows with weights of one person"
        )
    if order is not None and share.size:
        share = share[order]
    total = float(sizes.size)
    if share.size:
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        own = np.minimum(np.add.reduceat(share, starts), 1.0)
        total = float(np.sum(np.floor(own / WEIGHT_GRID)) * WEIGHT_GRID)
    if kept is not None and kept.size < n_rows:
        order = kept if order is None else kept[order]
    return Owners(order, persons, share, sizes.size, total, places)


def _sorted(
    ids: NDArray[Any],
) -> tuple[NDArray[np.intp] | None, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the row order, first rows of persons with several, sizes and places of persons."""
    _, first, codes, counts = np.unique(
        ids, return_index=True, return_inverse=True, return_counts=True
    )
    sizes = counts[codes]
    if counts.size == ids.size:
        return None, NO_ROWS, sizes, NO_ROWS
    singles, several = np.flatnonzero(sizes == 1), np.flatnonzero(sizes > 1)
    several = several[np.argsort(first[codes[several]], kind="stable")]
    order = np.concatenate([singles, several])
    # Start of each person, for one size per person.
    begins = np.flatnonzero(np.diff(codes[several], prepend=-1)) + singles.size
    persons = np.append(begins, ids.size).astype(np.int64)
    sizes = np.concatenate([sizes[singles], np.diff(persons)])
    firsts = order[np.append(np.arange(singles.size), begins)]
    return order, persons, sizes, np.argsort(firsts, kind="stable")


def checked_groups(groups: Any, n_rows: int) -> NDArray[Any]:
    """Validate the ids of persons, one for each row.

    Raises
    ------
    InvalidParameterError
        The number of ids is wrong, or ids are missing or not of one accepted kind.
    """
    try:
        ids = _ids(groups)
    except MemoryError:
        raise
    except Exception:
        # The error's message may quote an id.
        ids = None
    if ids is None:
        raise InvalidParameterError(
            "groups: expected one id for each row: ints, strings, bools or whole floats without "
            "lost digits, all of one kind and none of them missing"
        )
    if ids.size != n_rows:
        raise InvalidParameterError("groups: expected one id for each row")
    return ids


def _ids(groups: Any) -> NDArray[Any] | None:
    """Return an array of ids that are equal if and only if the given ones are; None if invalid.

    Equality of two ids never depends on a third: NumPy would convert a list of numbers to strings
    if it contains one string, and to inexact floats if it contains one float or has a large range.
    """
    if isinstance(groups, (str, bytes, np.ma.MaskedArray)):
        return None
    groups = label_values(groups)
    ids = np.asarray(groups, dtype=object if isinstance(groups, Sequence) else None)
    if ids.ndim != 1:
        return None
    if ids.dtype.kind == "O" and ids.size:
        items = ids.tolist()
        # One id of each type is enough to find the kinds.
        several = {type(item): item for item in items}.values()
        kinds = {"bytes" if isinstance(item, bytes) else _kind(item) for item in several}
        if len(kinds) > 1 or "other" in kinds:
            return None
        usual = np.asarray(items)
        # Integers of too large a range become floats, and texts lose zeros at their end.
        exact = usual.dtype.kind in "biuUS" and usual.tolist() == items
        ids = usual if exact or "float" in kinds else ids
    if ids.dtype.kind == "f":
        limit = 2.0 ** (np.finfo(ids.dtype).nmant + 1)
        return ids if bool(np.all((np.abs(ids) < limit) & (ids == np.floor(ids)))) else None
    return ids if ids.dtype.kind in "biuUSO" else None


def checked_weights(weights: Any, n_rows: int, *, partial: bool = False) -> NDArray[np.float64]:
    """Return the weights, one for each row; those of a ``partial`` set may all be zero.

    Raises
    ------
    InvalidParameterError
        The number of weights is wrong, a weight is negative or not finite, or all are zero.
    """
    try:
        found = np.asarray(weights)
        # NumPy would convert strings, dates and masked entries to numbers: they are no weights.
        if found.dtype.kind not in "biufO" or isinstance(weights, np.ma.MaskedArray):
            raise TypeError
        found = found.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.full(n_rows, np.nan)
    if found.shape != (n_rows,):
        raise InvalidParameterError("sample_weight: expected one number for each row")
    valid = np.isfinite(found).all() and (found >= 0.0).all()
    if not (valid and (partial or found.any())):
        raise InvalidParameterError(
            "sample_weight: expected finite non-negative numbers, not all zero"
        )
    return found


def class_factors(weights: dict[Any, float], classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return class weights divided by the largest; classes without a weight have weight 1.

    Raises
    ------
    InvalidParameterError
        A key is not in ``classes``.
    """
    factors = np.ones(classes.size)
    try:
        places = encoded_labels(np.asarray(list(weights)), classes)
    except ValueError:
        raise InvalidParameterError(
            "class_weight: expected a dict whose keys are labels of `classes`"
        ) from None
    factors[places] = list(weights.values())
    if not factors.any():
        raise InvalidParameterError("class_weight: expected at least one weight above 0")
    return np.asarray(factors / factors.max())


# Facts that scikit-learn's validation learns about X, published with the rest.
FEATURE_FACTS = ("n_features_in_", "feature_names_in_")


def feature_facts(probe: Any) -> dict[str, Any]:
    """Return the feature attributes that validation has set on a copy of an estimator."""
    return {name: vars(probe)[name] for name in FEATURE_FACTS if name in vars(probe)}


@dataclass(eq=False, repr=False)
class ArrayRows:
    """Training rows in this process: an array, matrix or table. Private, except ``facts``.

    Parameters
    ----------
    estimator : PrivateEstimator
        Estimator with checked parameters; an attribute ``n_features_in_`` fixes the number of
        features.
    X, y : object
        Arguments of ``fit``; only the shape is used before ``read``.
    classes : ndarray or None
        Label set; None reads it from the labels.
    labelled : bool, default=True
        Whether rows have labels; otherwise ``y`` is ignored and every row has class 0.
    groups, sample_weight : object, optional
        Arguments of ``fit``: persons and weights.
    periods : ndarray of int, optional
        The period of each row.
    on_step : callable, optional
        Argument of ``fit``: callback for steps.
    """

    estimator: Any
    X: Any
    y: Any = None
    _: KW_ONLY
    classes: Any = None
    labelled: bool = True
    groups: Any = None
    sample_weight: Any = None
    periods: Any = None
    on_step: Any = None

    # Known once the rows are read: the person and the weight of each row, the index of its class,
    # the factors of the losses of each class, and attributes to publish.
    owners: Owners | None = field(init=False, default=None)
    codes: Any = field(init=False, default=None)
    factors: NDArray[np.float64] | None = field(init=False, default=None)
    published: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Copy the estimator, onto which validation writes what it learns about X."""
        estimator = self.estimator = copy.copy(self.estimator)
        self.n_threads: int = estimator.n_threads
        self.low_memory = getattr(estimator, "low_memory", False)
        self.verbose = bool(getattr(estimator, "verbose", False))
        self.on_step = checked_on_step(self.on_step, verbose=self.verbose)
        self.names = feature_names(self.X)
        self.counted = estimator.adjacency == "replace_one"

    @property
    def facts(self) -> Facts:
        """Return the public facts; no values are read if classes are given and X has a shape."""
        shape = public_shape(self.X)
        owned = self.groups is not None or self.sample_weight is not None
        unknown = (self.labelled and self.classes is None) or (self.counted and owned)
        if shape is None or unknown:
            self.read()
            shape = self.X.shape
        n_samples = shape[0] if self.owners is None else self.owners.n_persons
        return Facts(
            n_features=shape[1],
            n_classes=self.classes.size if self.labelled else 2,
            n_samples=n_samples if self.counted else None,
            sparse=sparse_table(self.X),
            feature_names=self.names,
            unit="row" if self.groups is None else "person",
            weighted=self.sample_weight is not None,
        )

    def read(self) -> None:
        """Check all values once.

        Raises
        ------
        ValueError, TypeError
            Values are invalid; the message does not quote them.
        """
        if self.codes is not None:
            return
        probe, reset = self.estimator, not hasattr(self.estimator, "n_features_in_")
        max_weight = float(getattr(probe, "max_weight", 1.0))
        class_weight = getattr(probe, "class_weight", None)
        if self.labelled:
            self.X, y = checked_rows(probe, self.X, self.y, reset=reset)
            if self.classes is None:
                self.classes = classes_from_labels(y)
            self.codes = encoded_labels(y, self.classes)
        else:
            self.X = checked_rows(probe, self.X, reset=True)
            self.codes = np.zeros(self.X.shape[0], dtype=np.int64)
        if self.periods is not None and len(self.periods) != self.n_here:
            raise InvalidParameterError("periods: expected one for each row of X")
        if isinstance(class_weight, dict):
            self.factors = class_factors(class_weight, self.classes)
        owned = self.groups is not None or self.sample_weight is not None
        if owned or max_weight != 1.0 or class_weight is not None:
            own = (self.groups, self.sample_weight, self.n_here, max_weight)
            # The part of a candidate may weigh nothing: the search has looked at all weights.
            found = owners(*own, counted=self.counted, partial=SEARCHING.get())
            self.X, self.codes = found.ordered(self.X, self.codes)
            self.owners = found._replace(order=None)
        self.published = feature_facts(probe)
        if self.labelled:
            self.published["classes_"] = self.classes
        self.y = None

    @property
    def n_rows(self) -> float:
        """Number of rows, or of persons; if it is private, the sum of their weights."""
        if self.owners is None:
            return int(self.X.shape[0])
        return self.owners.n_persons if self.counted else self.owners.total

    def of_period(self, period: int) -> ArrayRows:
        """Return the rows of one period, once all are read."""
        part, own = copy.copy(self), self.periods == period
        part.X, part.codes = self.X[own], self.codes[own]
        if self.owners is not None:
            # Each row by itself; a weight of 1 in units of the largest, None if that is 1 at most.
            weights = self.owners.weights[own] if self.owners.weights.size else self.owners.weights
            part.owners = self.owners._replace(weights=weights, n_persons=int(own.sum()))
        return part

    @property
    def n_here(self) -> int:
        """Number of rows, all of which are in this process."""
        return int(self.X.shape[0])

    @property
    def loss_weights(self) -> NDArray[np.float64] | None:
        """Factors of the rows' losses, summing to at most 1 per person; None if all are 1."""
        if self.owners is None:
            return None
        found = self.owners.shares(self.n_here)
        if self.factors is not None:
            found *= self.factors[self.codes]
        found[found < MIN_WEIGHT] = 0.0
        return found if (found != 1.0).any() else None

    def class_counts(self) -> NDArray[np.float64]:
        """Return exact class counts; the shares of a person's rows sum to at most 1."""
        assert self.owners is not None
        counts = self.owners.class_counts(self.codes, self.classes.size)
        return np.asarray(counts * COUNT_UNIT)

    def balance(self, factors: NDArray[np.float64]) -> None:
        """Set class weights from released counts."""
        self.factors = factors

    @property
    def n_persons(self) -> int:
        """Number of persons, regardless of weight; without groups each row is a person."""
        return self.n_here if self.owners is None else self.owners.n_persons

    def records(self, public: PublicMap, *, averaged: int = 0) -> _core.Records:
        """Return the mapped rows, whose sums are exact."""
        n_classes, owners = self.classes.size if self.labelled else 2, self.owners
        if owners is not None and averaged:
            owners = owners.averaged(self.n_here, averaged)
        return public.records(self.X, self.codes, n_classes, self.n_threads, owners)

    def weigh(self, records: _core.Records) -> None:
        """Weight each row by its class."""
        if self.factors is not None:
            records.weigh(self.factors)

    def column_moments(
        self, public: PublicMap
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return exact sums of each mapped column, of its squares, and of the weights."""
        return column_moments(self.X, self.owners, public.offset, public.scale, self.n_threads)

    def lift(self, records: Any, features: FourierFeatures, *, stored: bool) -> None:
        """Replace the records by their random features."""
        records.lift(features.map(), stored, self.n_threads)

    def descend(
        self,
        records: Any,
        descent: _core.Descent,
        options: dict[str, Any],
        source: _core.NoiseSource,
        n_steps: int,
        on_step: OnStep | None = None,
    ) -> None:
        """Run descent steps on records."""
        descent.run(records, source, n_steps, self.n_threads, on_step)


# Averages over rows shrink by one part in this many, towards zero and their squares towards the
# offset: by as much as the rounding that follows could move them (docs/proofs/persons.md, "Moments
# of columns").
DRAWN = 2**18
# The moments of columns round weights to multiples of one over this.
WHOLE = 2**13


def column_moments(
    X: Any, owners: Owners | None, offset: Any, scale: Any, n_threads: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return exact sums over persons of each mapped column and of its squares.

    The third array has one number: the sum of the persons' weights, at most 1 each.
    """
    how: Any = {"offset": offset, "scale": scale, "n_threads": n_threads}
    n = X.shape[0]
    if owners is None or owners.persons.size == owners.weights.size == 0:
        return *_core.column_moments(compiled_rows(X), **how), np.array([float(n)])
    persons = owners.persons if owners.persons.size else np.array([n])
    whole, shares = 1, np.ones(n, dtype=np.int64)
    if owners.weights.size:
        whole, shares = WHOLE, np.rint(owners.weights * WHOLE).astype(np.int64)
    single = shares[: persons[0]] == whole
    alone: Any = slice(persons[0])
    several: Any = slice(persons[0], n)
    if not single.all():
        alone = np.flatnonzero(single)
        several = np.concatenate([np.flatnonzero(~single), np.arange(persons[0], n)])
    # Rows below full weight come first, each a separate person.
    n_less = persons[0] - np.count_nonzero(single)
    starts = np.concatenate([np.arange(n_less), persons - persons[0] + n_less])
    how_many = shares[several], starts, whole
    first, second, weight = _person_moments(X[several], *how_many, offset, scale)
    if single.any():
        sums = _core.column_moments(compiled_rows(_canonical(X[alone])), **how)
        first, second = first + sums[0], second + sums[1]
    return first, second, np.array([np.count_nonzero(single) + weight / whole])


def _person_moments(
    X: Any,
    shares: NDArray[np.int64],
    starts: NDArray[np.int64],
    whole: int,
    offset: Any,
    scale: Any,
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return sums of the persons' means of entries and squares, in units of 2**-20.

    The sum of their weights is returned too. Persons below the ``whole`` weight count by their own
    weight.
    """
    middle = int(SQUARE_OFFSET * 2**20)
    first, second = np.zeros((2, X.shape[1]), dtype=np.int64)
    begun = np.zeros((2, X.shape[1]), dtype=np.int64)
    weights = np.add.reduceat(shares, starts[:-1]) if shares.size else shares
    for block in row_blocks(X):
        rows = X[block]
        rows = rows.toarray() if sparse.issparse(rows) else rows
        with np.errstate(over="ignore"):
            entries = np.clip((rows.astype(np.float64) - offset) * scale, -1.0, 1.0)
        units = np.rint(entries * 2**20).astype(np.int64)
        # Ends of the persons who end here; of another the block has a part, which is carried on.
        done = slice(*np.searchsorted(starts, [block.start, block.stop], side="right"))
        ends = starts[done] - block.start
        begins = np.concatenate([[0], ends[ends < len(units)]])
        own = shares[block, np.newaxis]
        squares = own * -(-units * units // 2**20)
        total, square = (np.add.reduceat(each, begins, axis=0) for each in (own * units, squares))
        total[0], square[0] = total[0] + begun[0], square[0] + begun[1]
        begun = np.stack([total[-1], square[-1]]) if len(begins) > len(ends) else 0 * begun
        weight = weights[done.start - 1 : done.stop - 1, np.newaxis]
        parts = np.maximum(weight, whole)
        # Rounded towards zero.
        means = np.sign(total[: len(ends)]) * (np.abs(total[: len(ends)]) // parts)
        means_of_squares = -(-square[: len(ends)] // parts)
        drawn = middle + _drawn(means_of_squares - middle)
        first += np.where(weight < whole, means, _drawn(means)).sum(axis=0)
        second += np.where(weight < whole, means_of_squares, drawn).sum(axis=0)
    return first, second, int(np.minimum(weights, whole).sum())


def _drawn(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers reduced by one part in ``DRAWN``, rounded towards zero."""
    return np.asarray(np.sign(numbers) * (np.abs(numbers) * (DRAWN - 1) // DRAWN))


# For ``bounds``, of rows of which only the direction matters: like None, but stated explicitly.
UNIT_NORM = "unit_norm"

# Lower and upper bounds, as numbers or one for each feature.
Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]


class NamedBounds(tuple[NDArray[np.float64], NDArray[np.float64]]):
    """Bounds by column name, in the order given.

    Attributes
    ----------
    names : tuple of str
        Names of the columns.
    """

    names: tuple[str, ...] = ()

    def in_order(self, names: Any) -> Bounds:
        """Return the bounds of columns with these names.

        Raises
        ------
        InvalidParameterError
            Columns have no names, or different names.
        """
        if names is None:
            raise InvalidParameterError(
                "bounds: got bounds by name for rows without column names; expected (low, high) "
                "arrays, or a frame of pandas, polars or pyarrow"
            )
        places = {name: place for place, name in enumerate(self.names)}
        for missing, reason in (
            ([name for name in names if name not in places], "no bounds for"),
            ([name for name in self.names if name not in set(names)], "bounds for"),
        ):
            if missing:
                expected = "bounds for every column of X and no other"
                raise InvalidParameterError(
                    f"bounds: got {reason} column {str(missing[0])[:60]!r}, expected {expected}"
                )
        order = [places[name] for name in names]
        return self[0][order], self[1][order]


def checked_bounds(name: str, value: Any) -> Bounds:
    """Return bounds as two arrays of at most one dimension, with names if given by name."""
    if isinstance(value, NamedBounds):
        return value
    if isinstance(value, Mapping):
        pairs = list(value.values())
        if not value or not all(isinstance(column, str) for column in value):
            raise InvalidTypeError(f"{name}: got no names, expected {{column: (low, high), ...}}")
        for column, pair in value.items():
            if not isinstance(pair, (tuple, list)) or len(pair) != 2 or any(map(np.ndim, pair)):
                raise InvalidTypeError(
                    f"{name}: got {type(pair).__name__} for column {column[:60]!r}, expected a "
                    "pair (low, high) of numbers"
                )
        low, high = checked_bounds(name, tuple(zip(*pairs, strict=True)))
        named = NamedBounds((low, high))
        named.names = tuple(value)
        return named
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        length = f" of length {len(value)}" if isinstance(value, (tuple, list)) else ""
        raise InvalidTypeError(
            f"{name}: got {type(value).__name__}{length}, expected a tuple (low, high) of numbers "
            "or arrays"
        )
    try:
        low, high = (np.array(side, dtype=np.float64) for side in value)
    except (OverflowError, TypeError, ValueError):
        raise InvalidTypeError(
            f"{name}: expected a tuple (low, high) of numbers or arrays"
        ) from None
    if max(low.ndim, high.ndim) > 1 or (low.ndim == high.ndim and low.shape != high.shape):
        raise InvalidParameterError(
            f"{name}: got shapes {low.shape} and {high.shape}, expected numbers or one-dimensional "
            "arrays of one length"
        )
    with np.errstate(over="ignore"):
        width = high - low
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.isfinite(width).all()):
        raise InvalidParameterError(f"{name}: expected finite numbers with a finite difference")
    if not (width > np.finfo(np.float64).tiny).all():
        place = int(np.flatnonzero(~(np.atleast_1d(width) > np.finfo(np.float64).tiny))[0])
        ends = [float(np.broadcast_to(side, width.shape).flat[place]) for side in (low, high)]
        raise InvalidParameterError(
            f"{name}: got low = {ends[0]:g} and high = {ends[1]:g} for feature {place}, expected "
            "low < high for every feature; bounds are (lows, highs), not one pair per feature"
        )
    return low, high


def broadcast_bounds(
    bounds: Bounds | str | None, n_features: int | None, names: Any = None
) -> Bounds | None:
    """Return bounds as arrays of shape (n_features,), if that number is known."""
    if bounds is None or isinstance(bounds, str):
        return None
    if n_features is None:
        return bounds
    if isinstance(bounds, NamedBounds):
        bounds = bounds.in_order(names)
    for side in bounds:
        if side.ndim == 1 and side.size != n_features:
            raise InvalidParameterError(
                f"bounds: got {side.size}, expected one number, or one for each of the "
                f"{n_features} features"
            )
    low, high = (np.array(np.broadcast_to(side, (n_features,))) for side in bounds)
    return low, high


def public_map(
    bounds: Bounds | None,
    *,
    sparse_rows: bool,
    of_bounds: Callable[..., PublicMap] = PublicMap.from_bounds,
) -> PublicMap:
    """Return the map of raw rows to rows of norm 1; ``PublicMap.lifted`` appends a constant.

    Raises
    ------
    InvalidParameterError
        The bounds would make sparse rows dense.
    """
    if bounds is None:
        return PublicMap()
    public = of_bounds(*bounds)
    if sparse_rows and public.offset is not None:
        raise InvalidParameterError(
            "bounds: expected low = 0 or low = -high for sparse rows, so that zeros stay zero; "
            "pass such bounds or dense rows"
        )
    return public


def finite_numbers(name: str, value: object, accepted: str) -> NDArray[np.float64]:
    """Check a list or array of finite numbers in one dimension."""
    try:
        found = np.array(value, dtype=np.float64)
    except (OverflowError, TypeError, ValueError):
        raise InvalidTypeError.of(name, value, accepted) from None
    if found.ndim != 1 or not np.isfinite(found).all():
        raise InvalidParameterError(f"{name}: expected {accepted}")
    return found


# Knots of splines: a number of them, or their positions, for each column or for all.


def checked_knots(name: str, value: Any) -> Any:
    """Check knots: a number, or a number or increasing positions for each column."""
    if not isinstance(value, (list, tuple, np.ndarray)):
        return check_integer(name, value, 1, MAX_KNOTS)
    return [_knots_of_column(name, entry) for entry in value]


def _knots_of_column(name: str, entry: Any) -> Any:
    """Check the knots of one column: a number or increasing positions."""
    if not isinstance(entry, (list, tuple, np.ndarray)):
        return check_integer(name, entry, 1, MAX_KNOTS)
    accepted = f"2 to {MAX_KNOTS} finite increasing positions for a column"
    knots = finite_numbers(name, entry, accepted)
    if not 2 <= knots.size <= MAX_KNOTS or not increasing(knots):
        raise InvalidParameterError(f"{name}: expected {accepted}")
    return knots


def placed_splines(
    knots: Any, bounds: Bounds | None, n_features: int, log: Collection[int] = ()
) -> SplineMap:
    """Return the functions of columns with these knots.

    Parameters
    ----------
    knots : int or list
        As ``checked_knots`` returns them.
    bounds : tuple of ndarray of shape (n_features,), or None
        Ends of knots that are given by their number.
    n_features : int
    log : collection of int
        Columns whose knots are equidistant on a logarithmic scale.

    Raises
    ------
    InvalidParameterError
        Knots or bounds do not fit the number of features, or knots coincide.
    """
    knots = knots if isinstance(knots, list) else [knots] * n_features
    if len(knots) != n_features:
        raise InvalidParameterError(
            f"knots: got {len(knots)} entries, expected a number, or one for each of the "
            f"{n_features} features"
        )
    if bounds is None and not all(isinstance(entry, np.ndarray) for entry in knots):
        raise InvalidParameterError.of(
            "bounds", got=None, accepted="(low, high) where knots are given by their number"
        )
    placed = tuple(
        entry if isinstance(entry, np.ndarray) else _placed(bounds, column, entry, log)
        for column, entry in enumerate(knots)
    )
    linear = tuple(isinstance(entry, int) and entry == 1 for entry in knots)
    return SplineMap(tuple(tuple(own.tolist()) for own in placed), linear)


def _placed(bounds: Any, column: int, number: int, log: Collection[int]) -> NDArray[np.float64]:
    """Place the given number of knots, at least two, between the bounds of a column."""
    low, high = (side[column] for side in bounds)
    shares = np.linspace(0.0, 1.0, max(2, number))
    if column not in log:
        knots = low + (high - low) * shares
    elif low > 0.0:
        knots = np.exp(np.log(low) + (np.log(high) - np.log(low)) * shares)
    else:
        ends = np.sign([low, high]) * np.log1p(np.abs([low, high]))
        moved = ends[0] + (ends[1] - ends[0]) * shares
        knots = np.sign(moved) * np.expm1(np.abs(moved))
    knots[0], knots[-1] = low, high
    if not increasing(knots):
        raise InvalidParameterError(
            f"knots: got {number} for feature {column}, expected fewer, as they coincide within "
            "its bounds"
        )
    return np.asarray(knots)
