"""Tables of pandas, polars and pyarrow: taken by everyone, and refused with the column named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator

import dpsvm_fast as dp
from dpsvm_fast.estimators.inputs import checked_rows
from oracles.odd_inputs import X, Y
from oracles.subjects import (
    MAIN,
    assert_refused,
    known,
    made,
    released,
)
from oracles.tables import COLUMNS, NAMES, WORDS, every_library, table

seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
SECRET = "s3cr3t"
every_main = pytest.mark.parametrize("subject", MAIN)


# --- taken -----------------------------------------------------------------------------------


@pytest.mark.sampled
@seeded
@every_main
@every_library
def test_a_table_gives_the_model_of_its_numbers_and_keeps_their_names(
    subject: str, library: str
) -> None:
    settings = {"random_state": 1} if known(subject, {"random_state": 1}) else {}
    rows = table(library)
    fitted, plain = made(subject, **settings).fit(rows, Y), made(subject, **settings).fit(X, Y)
    assert list(fitted.feature_names_in_) == NAMES
    assert fitted.n_features_in_ == 3
    for name, value in released(plain).items():
        np.testing.assert_array_equal(released(fitted)[name], value, err_msg=name)
    said = "predict" if hasattr(plain, "predict") else "transform"
    np.testing.assert_array_equal(getattr(fitted, said)(rows), getattr(plain, said)(X))


@pytest.mark.sampled
@every_main
@every_library
def test_names_are_remembered_and_their_order_is_checked(subject: str, library: str) -> None:
    fitted = made(subject).fit(table(library), Y)
    said = getattr(fitted, "predict" if hasattr(fitted, "predict") else "transform")
    other = {("other" if name == "age" else name): COLUMNS[name] for name in NAMES}
    with pytest.raises(ValueError, match=r"unseen at fit time:\n- other\n"):
        said(table(library, other))
    with pytest.raises(ValueError, match="must be in the same order"):
        said(table(library, {name: COLUMNS[name] for name in NAMES[::-1]}))
    with pytest.raises(ValueError, match=r"now missing:\n- x 2\n"):
        said(table(library, {name: COLUMNS[name] for name in NAMES[:2]}))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        said(X)


def rows_of(dtype: str) -> Any:
    """A frame with one column of this type, and the numbers in it."""
    library, _, kind = dtype.partition(" ")
    if library == "pandas":
        # Older releases of pyarrow make half-precision numbers of nothing else.
        values = np.array([1, 0] * 6, dtype=np.float16 if "half" in kind else np.int64)
        return pd.DataFrame(COLUMNS | {"x 2": pd.array(values, dtype=kind)})
    package = pytest.importorskip(library)
    if library == "polars":
        types = {"Decimal": package.Decimal(20, 1)}
        if not hasattr(package, kind):
            pytest.skip("polars before 1.18 has no integers of 128 bits")
        made_of = package.Series([1, 0] * 6).cast(types.get(kind) or getattr(package, kind))
        return package.DataFrame(COLUMNS | {"x 2": made_of})
    if kind == "decimal128":
        column = package.array([1, 0] * 6).cast(package.decimal128(20, 1))
    else:
        column = package.array([1, 0] * 6).cast(getattr(package, kind)())
    return package.table(COLUMNS | {"x 2": column})


@pytest.mark.parametrize(
    "dtype",
    [
        *(f"pandas {kind}" for kind in ("Int64", "UInt8", "Float32", "Float64", "boolean", "bool")),
        *(f"pandas {kind}[pyarrow]" for kind in ("int16", "double", "float", "halffloat", "bool")),
        *(f"polars {kind}" for kind in ("Int8", "UInt64", "Float32", "Boolean", "Decimal")),
        "polars Int128",
        *(f"pyarrow {kind}" for kind in ("int32", "float32", "bool_", "decimal128")),
    ],
)
def test_types_of_numbers(dtype: str) -> None:
    """Also nullable ones in which nothing is missing: most libraries have no others."""
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    probe = BaseEstimator()
    rows = checked_rows(probe, rows_of(dtype), reset=True)
    assert rows.dtype == np.float64
    assert rows.flags.c_contiguous
    np.testing.assert_array_equal(rows, np.column_stack([X[:, :2], [1, 0] * 6]))


@every_library
def test_single_precision_stays_so(library: str) -> None:
    single = {name: column.astype(np.float32) for name, column in COLUMNS.items()}
    for extra in ({}, {"flag": Y == 0}):
        rows = checked_rows(BaseEstimator(), table(library, single | extra), reset=True)
        assert rows.dtype == np.float32
        np.testing.assert_array_equal(rows[:, :3], X.astype(np.float32))


@every_library
def test_a_table_is_copied_once(library: str) -> None:
    """No more than one array of the size of X beside it, at any moment, and it stays as it is."""
    import tracemalloc

    rng = np.random.default_rng(0)
    columns = {f"c{i}": rng.normal(size=20_000) for i in range(30)}
    before = np.column_stack(list(columns.values()))
    rows = table(library, columns)
    tracemalloc.start()
    try:
        taken, _ = checked_rows(BaseEstimator(), rows, np.zeros(20_000, dtype=int), reset=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * before.nbytes
    np.testing.assert_array_equal(taken, before)
    taken[:] = 0.0
    np.testing.assert_array_equal(checked_rows(BaseEstimator(), rows, reset=True), before)


def test_record_batches_and_chunks() -> None:
    arrow = pytest.importorskip("pyarrow")
    batch = arrow.RecordBatch.from_pydict({name: arrow.array(v) for name, v in COLUMNS.items()})
    probe = BaseEstimator()
    np.testing.assert_array_equal(checked_rows(probe, batch, reset=True), X)
    assert list(probe.feature_names_in_) == NAMES
    halves = arrow.concat_tables([table("pyarrow").slice(0, 5), table("pyarrow").slice(5)])
    np.testing.assert_array_equal(checked_rows(BaseEstimator(), halves, reset=True), X)


def test_sparse_columns_of_pandas() -> None:
    numbers = np.where(np.abs(X) < 0.8, 0.0, X)
    frame = pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(numbers), columns=NAMES)
    probe = BaseEstimator()
    rows = checked_rows(probe, frame, reset=True)
    assert sparse.issparse(rows)
    np.testing.assert_array_equal(rows.toarray(), numbers)
    assert list(probe.feature_names_in_) == NAMES
    with pytest.warns(UserWarning, match="sparse columns"):
        mixed = checked_rows(BaseEstimator(), frame.assign(dense=1.0), reset=True)
    np.testing.assert_array_equal(mixed[:, :3], numbers)
    filled = pd.DataFrame({"x": pd.arrays.SparseArray([1.0, np.nan] * 6, fill_value=np.nan)})
    with pytest.raises(ValueError, match=r"^X: sparse column 'x' has a fill value other than 0"):
        checked_rows(BaseEstimator(), filled, reset=True)


# --- refused ---------------------------------------------------------------------------------


def bad_columns(library: str) -> dict[str, tuple[Any, str]]:
    """Columns that are no numbers, and words of the refusal."""
    words = [SECRET, "b"] * 6
    if library == "pandas":
        return {
            "strings": (words, "has dtype (str|object)"),
            "numbers as strings": (["1.5"] * 12, "has dtype (str|object)"),
            "string": (pd.array(words, dtype="string"), "OneHotEncoder"),
            "objects": (pd.Series([1.5, 2] * 6, dtype=object), "dtype object.*convert"),
            "mixed": (pd.Series([1.5, SECRET] * 6, dtype=object), "dtype object"),
            "missing objects": (pd.Series([1.5, pd.NA] * 6, dtype=object), "dtype object"),
            "categories": (pd.Categorical(words), "dtype category.*OneHotEncoder"),
            "codes": (pd.Categorical([1, 2] * 6), "dtype category"),
            "dates": (pd.date_range("2020", periods=12), "datetime64.*to a number"),
            "dates in a zone": (pd.date_range("2020", periods=12, tz="UTC"), "UTC"),
            "durations": (pd.to_timedelta(range(12), unit="D"), "timedelta64.*to a number"),
            "periods": (pd.period_range("2020", periods=12, freq="D"), "period"),
            "intervals": (pd.interval_range(0, 12), "interval.*leave it out"),
        }
    package = pytest.importorskip(library)
    stamps = np.arange(12).astype("datetime64[ms]")
    if library == "polars":
        return {
            "strings": (words, "has dtype String.*OneHotEncoder"),
            "numbers as strings": (["1.5"] * 12, "has dtype String"),
            "categories": (package.Series(words, dtype=package.Categorical), "Categorical"),
            "enum": (package.Series(words, dtype=package.Enum([SECRET, "b"])), "dtype Enum,"),
            "dates": (stamps, "Datetime.*to a number"),
            "durations": (np.arange(12).astype("timedelta64[ms]"), "Duration"),
            "lists": ([[1.0, 2.0]] * 12, "List"),
            "nothing": ([None] * 12, "Null"),
        }
    return {
        "strings": (words, "has dtype string.*OneHotEncoder"),
        "numbers as strings": (["1.5"] * 12, "has dtype string"),
        "dictionary": (package.array(words).dictionary_encode(), "dictionary.*OneHotEncoder"),
        "dates": (package.array(stamps), "timestamp.*to a number"),
        "lists": ([[1.0, 2.0]] * 12, "list"),
    }


@pytest.mark.sampled
@every_main
@every_library
def test_everyone_refuses_before_a_ledger_is_charged(subject: str, library: str) -> None:
    fitting = made(subject)
    for column, words in (
        ([np.nan, *X[1:, 2]], "NaN"),
        ([np.inf, *X[1:, 2]], "infinity"),
        ([SECRET] * 12, "dtype"),
    ):
        rows = table(library, COLUMNS | {"x 2": column})
        error = assert_refused(
            lambda rows=rows: fitting.fit(rows, Y), fitting, rf"^X: column 'x 2' .*{words}"
        )
        assert SECRET not in str(error)
    fitted = made(subject).fit(table(library), Y)
    said = getattr(fitted, "predict" if hasattr(fitted, "predict") else "transform")
    with pytest.raises(ValueError, match=r"^X: column 'x 2' contains NaN"):
        said(table(library, COLUMNS | {"x 2": [np.nan, *X[1:, 2]]}))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_of_an_array_not_even_the_column_is_named(bad: float) -> None:
    """The text is a constant, whichever entry it is about."""
    said = set()
    for place in ((3, 1), (7, 2)):
        rows = X.copy()
        rows[place] = bad
        for form in (rows, rows.tolist(), sparse.csr_matrix(rows)):
            with pytest.raises(ValueError, match=r"^X: contains (NaN|infinity)") as caught:
                checked_rows(BaseEstimator(), form, reset=True)
            said.add(str(caught.value))
    assert len(said) == 1


@every_library
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_of_a_table_only_the_column_is_named(library: str, bad: float) -> None:
    """Neither which row it is nor how many, and nothing of another column."""
    said = set()
    for places in ([3], [7, 8], range(12)):
        column = X[:, 2].copy()
        column[list(places)] = bad
        with pytest.raises(ValueError, match=r"^X: column 'x 2' contains") as caught:
            checked_rows(BaseEstimator(), table(library, COLUMNS | {"x 2": column}), reset=True)
        said.add(str(caught.value))
    assert len(said) == 1


@seeded
@every_library
def test_partitions_of_tables(library: str) -> None:
    from dpsvm_fast.data import Partitions, fit

    words = table(library, {"y": WORDS[Y].tolist()})["y"]
    svc = dp.PrivateLinearSVC(50.0, classes=WORDS.tolist(), bounds=(-3, 3), random_state=1)
    partitions = Partitions.from_arrays(table(library), words, rows_per_partition=5)
    fitted = fit(svc, partitions)
    assert list(fitted.feature_names_in_) == NAMES
    np.testing.assert_array_equal(fitted.coef_, fit(svc, Partitions.from_arrays(X, words)).coef_)
    for column, words_of_error in bad_columns(library).values():
        with pytest.raises(ValueError, match=rf"^X: column 'x 2' .*{words_of_error}"):
            Partitions.from_arrays(table(library, COLUMNS | {"x 2": column}), Y)
