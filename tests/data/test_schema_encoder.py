"""Tables in memory are encoded by their schema: every library, every kind of column, no leaks."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import HashingVectorizer

import dpsvm_fast as dp
from dpsvm_fast import PrivatePipeline, total_privacy
from dpsvm_fast.data import SchemaEncoder, SchemaError, TableError, TableSchema
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.persist import load_model, save_model, to_onnx
from oracles.table_files import chain

RECORD: dict[str, Any] = {
    "target": "y",
    "classes": ["no", "yes"],
    "columns": {
        "age": {"bounds": [0, 100], "missing": 40},
        "work": {"categories": ["a", "b"], "unknown": "none", "missing": "none"},
        "school": {"categories": ["low", "mid", "high"], "ordered": True, "missing": "mid"},
        "smoker": {"boolean": True, "missing": False},
        "since": {"dates": ["2000-01-01", "2030-01-01"], "missing": "2010-01-01"},
        "note": {"text": 8, "ngrams": [1, 2], "missing": "none"},
        "plan": {"categories": [1, 2], "missing": 2},
        "id": {"ignore": True},
    },
}
ENCODER = SchemaEncoder(TableSchema.from_dict(RECORD))
DAY, OTHER = datetime.date(2000, 1, 11), datetime.date(2020, 6, 1)
CELLS: dict[str, list[Any]] = {
    "age": [31.0, None, 52.5],
    "work": ["a", None, "s3cr3t"],
    "school": ["high", None, "low"],
    "smoker": [True, None, False],
    "since": [DAY, None, OTHER],
    "note": ["Hello big World", None, "world"],
    "plan": [1, None, 2],
    "id": [17, 18, 19],
    "y": ["no", "yes", "no"],
}
# Without the eight features of the note.
EXPECTED = [
    [31.0, 1.0, 0.0, 2.0, 1.0, 10.0, 1.0, 0.0],
    [40.0, 0.0, 0.0, 1.0, 0.0, 3653.0, 0.0, 1.0],
    [52.5, 0.0, 0.0, 0.0, 0.0, 7457.0, 0.0, 1.0],
]
NAMES = [
    *("age", "work=a", "work=b", "school", "smoker", "since"),
    *(f"note[{place}]" for place in range(8)),
    *("plan=1", "plan=2"),
]


def frames() -> dict[str, Any]:
    """The same rows, as tables of every library and type."""
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    table, plain = pa.table(CELLS), pd.DataFrame(CELLS)
    coded = pa.table(
        {
            n: c.dictionary_encode() if n in ("work", "note") else c
            for n, c in zip(table.column_names, table.columns, strict=True)
        }
    )
    categories = dict.fromkeys(("work", "school", "note"), "category")
    stamps = pd.to_datetime(pd.Series(CELLS["since"]))
    return {
        "lists": CELLS,
        "arrays": {name: np.array(cells, dtype=object) for name, cells in CELLS.items()},
        "masked": CELLS | {"age": np.ma.masked_array([31.0, np.nan, 52.5], [False, True, False])},
        "pandas": plain,
        "pandas nullable": plain.convert_dtypes(),
        "pandas arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        "pandas categories": plain.astype(categories | {"age": "Float32"}).assign(since=stamps),
        "pandas zones": plain.assign(
            since=stamps.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
        ),
        "pandas sparse": plain.assign(age=pd.arrays.SparseArray([31.0, np.nan, 52.5])),
        "shuffled": plain[list(CELLS)[::-1]],
        "pyarrow": table,
        "pyarrow chunks": pa.concat_tables([table[:1], table[1:]]),
        "pyarrow dictionaries": coded,
        "pyarrow batch": pa.RecordBatch.from_pydict(CELLS),
        "pyarrow decimals": table.set_column(
            0, "age", pa.array([Decimal("31.0"), None, Decimal("52.5")])
        ),
        "polars": pl.DataFrame(CELLS),
        "polars categories": pl.DataFrame(CELLS).cast(
            {"work": pl.Categorical, "school": pl.Enum(["high", "low", "mid"]), "age": pl.Float32}
        ),
        "texts": CELLS | {"since": [str(DAY), "", f"{OTHER} 00:00:00"], "smoker": ["1", "", "0"]},
    }


@pytest.mark.parametrize("kind", sorted(frames()))
def test_every_library_and_type_gives_the_same_bits(kind: str) -> None:
    frame = frames()[kind]
    rows = clone(ENCODER).fit_transform(frame)
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    np.testing.assert_array_equal(np.delete(rows, range(6, 14), axis=1), EXPECTED)
    assert rows.tobytes() == ENCODER.transform(CELLS).tobytes()
    assert list(ENCODER.get_feature_names_out()) == NAMES
    empty = {n: cells[:0] for n, cells in frame.items()} if isinstance(frame, dict) else frame[:0]
    assert ENCODER.transform(empty).shape == (0, len(NAMES))


def test_words_are_hashed_as_scikit_learn_does_it() -> None:
    hashing = HashingVectorizer(n_features=8, ngram_range=(1, 2), dtype=np.float32)
    expected = hashing.transform(["Hello big World", "", "world"]).toarray()
    np.testing.assert_array_equal(ENCODER.transform(CELLS)[:, 6:14], expected)


@pytest.mark.proof("private_scaling", "Pipelines")
def test_a_row_is_encoded_by_itself() -> None:
    """Alone, among others, and in any order: the same bits, whatever types pandas takes for it."""
    whole = pd.DataFrame({name: cells * 2 for name, cells in CELLS.items()})
    rows = ENCODER.transform(whole)
    for place in range(6):
        assert ENCODER.transform(whole[place : place + 1]).tobytes() == rows[place].tobytes()
        alone = {name: [cells[place % 3]] for name, cells in CELLS.items()}
        assert ENCODER.transform(pd.DataFrame(alone)).tobytes() == rows[place].tobytes()
    order = [4, 0, 5, 2, 1, 3]
    assert ENCODER.transform(whole.iloc[order]).tobytes() == rows[order].tobytes()


def test_bounds_and_names_are_those_of_the_features() -> None:
    low, high = ENCODER.bounds
    rows = ENCODER.transform(CELLS)
    assert (low <= rows).all()
    assert (rows <= high).all()
    assert dict(zip(NAMES, zip(low, high, strict=True), strict=True))["since"] == (0.0, 10958.0)
    assert high[NAMES.index("school")] == 2.0
    assert low[NAMES.index("note[0]")] == -1.0


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        *(("age", [cell, 1.0, 2.0]) for cell in ("s3cr3t", "12", float("inf"), 10**400, [1])),
        ("age", ["31", "1", "2"]),
        ("plan", ["s3cr3t", 1, 2]),
        ("plan", [1.5, 1.0, 2.0]),
        ("school", ["s3cr3t", "low", "low"]),
        ("school", [["s3cr3t"], "low", "low"]),
        ("smoker", ["s3cr3t", True, False]),
        ("smoker", [2, 1, 0]),
        ("since", ["31.12.2020", DAY, DAY]),
        ("since", ["2021-02-29", DAY, DAY]),
        ("since", [7, 8, 9]),
        ("note", [1, 2, 3]),
    ],
    ids=str,
)
@pytest.mark.parametrize("library", ["lists", "pandas", "polars", "pyarrow"])
def test_a_wrong_cell_is_named_by_its_column_alone(
    column: str, cells: list[Any], library: str
) -> None:
    table: Any = CELLS | {column: cells}
    try:
        table = table if library == "lists" else pytest.importorskip(library)
        table = table.DataFrame(CELLS | {column: cells}) if hasattr(table, "DataFrame") else table
        table = table.table(CELLS | {column: cells}) if hasattr(table, "table") else table
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        pytest.skip("the library itself refuses such a column")
    with pytest.raises(TableError) as caught:
        ENCODER.transform(table)
    assert str(caught.value).startswith(f"X: column {column!r}: ")
    for error in chain(caught.value):
        assert "s3cr3t" not in str(error)
        assert "row" not in str(error).partition(";")[0]


def test_without_a_declared_value_a_missing_one_is_an_error() -> None:
    for name, column in RECORD["columns"].items():
        if name == "id":
            continue
        strict = {key: value for key, value in column.items() if key != "missing"}
        record = RECORD | {"columns": RECORD["columns"] | {name: strict}}
        with pytest.raises(TableError, match=f"^X: column '{name}': a missing value"):
            SchemaEncoder(record).transform(CELLS)


def test_columns_that_are_wrong() -> None:
    without = {name: cells for name, cells in CELLS.items() if name != "age"}
    with pytest.raises(TableError, match="'age'"):
        ENCODER.fit(without)
    with pytest.raises(SchemaError, match="'more'"):
        ENCODER.fit(CELLS | {"more": [1, 2, 3]})
    ENCODER.fit({name: cells for name, cells in CELLS.items() if name not in ("id", "y")})
    with pytest.raises(TableError, match="lengths"):
        ENCODER.transform(CELLS | {"age": [1.0]})
    twice = pd.DataFrame(CELLS)
    twice.columns = ["age", "age", *twice.columns[2:]]
    with pytest.raises(TableError, match="duplicate column name 'age'"):
        ENCODER.fit(twice)
    for other in (np.ones((3, 8)), [[1.0]], pd.DataFrame(np.ones((3, 8)))):
        with pytest.raises(TypeError, match=r"^X: "):
            ENCODER.fit(other)
    with pytest.raises(TypeError, match="collect"):
        ENCODER.fit(pytest.importorskip("polars").DataFrame(CELLS).lazy())


@pytest.mark.parametrize(
    ("column", "key"),
    [
        ({"dates": ["2020-01-01"]}, "dates"),
        ({"dates": ["2020-01-02", "2020-01-01"]}, "dates"),
        ({"dates": ["2020-01-01", "2021-02-29"]}, "dates"),
        ({"dates": ["2020-01-01", "2021-01-01"], "missing": "2022-01-01"}, "missing"),
        ({"text": 0}, "text"),
        ({"text": True, "ngrams": [1, 1]}, "text"),
        ({"text": 4, "ngrams": [2, 1]}, "ngrams"),
        ({"bounds": [0, 1], "ngrams": [1, 1]}, "ngrams"),
        ({"text": 4, "missing": 1}, "missing"),
        ({"categories": ["a"], "ordered": True}, "ordered"),
        ({"categories": ["a", "b"], "ordered": 1}, "ordered"),
        ({"categories": ["a", "b"], "ordered": True, "unknown": "none"}, "unknown"),
        ({"categories": ["a", "b"], "ordered": True, "missing": "none"}, "missing"),
        ({"boolean": True, "ordered": True}, "ordered"),
    ],
    ids=str,
)
def test_facts_that_do_not_go_together(column: dict[str, Any], key: str) -> None:
    with pytest.raises(SchemaError) as caught:
        TableSchema.from_dict({"columns": {"x": column}})
    assert caught.value.parameter == "schema"
    assert key in str(caught.value)


def test_a_schema_for_all_other_columns_is_named_by_fit() -> None:
    encoder = SchemaEncoder({"all_other_columns": {"bounds": [0, 1]}})
    table = {"b": [0.5], "a": [0.25]}
    for use in (encoder.get_feature_names_out, lambda: encoder.bounds):
        with pytest.raises(NotFittedError):
            use()
    assert encoder.fit_transform(table).tolist() == [[0.5, 0.25]]
    # In the order of the fit.
    assert encoder.transform({"a": [0.25], "b": [0.5]}).tolist() == [[0.5, 0.25]]
    assert encoder.feature_names_in_.tolist() == ["b", "a"]
    with pytest.raises(TableError, match="'b'"):
        encoder.transform({"a": [0.25]})


def test_a_schema_that_is_none() -> None:
    with pytest.raises(TypeError, match=r"^schema: "):
        SchemaEncoder("people.toml").fit(CELLS)
    with pytest.raises(SchemaError):
        SchemaEncoder({"columns": {"x": {"bound": [0, 1]}}}).fit(CELLS)


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_set_output(output: str) -> None:
    library = pytest.importorskip(output)
    table = pd.DataFrame(CELLS, index=[7, 5, 3])
    rows = clone(ENCODER).set_output(transform=output).fit_transform(table)
    assert isinstance(rows, library.DataFrame)
    assert list(rows.columns) == NAMES
    np.testing.assert_array_equal(np.asarray(rows), ENCODER.transform(table))
    if output == "pandas":
        assert list(rows.index) == [7, 5, 3]


def people(n: int = 400) -> pd.DataFrame:
    """A mixed table with gaps, whose label follows from two columns."""
    rng = np.random.default_rng(0)
    age = rng.uniform(0.0, 100.0, n)
    work = rng.choice(["a", "b", "c"], n)
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, age),
            "work": np.where(rng.random(n) < 0.1, None, work),
            "school": rng.choice(["low", "mid", "high", None], n),
            "smoker": rng.choice([True, False, None], n),
            "since": pd.Timestamp("2000-01-01") + pd.to_timedelta(rng.integers(0, 9000, n), "D"),
            "plan": rng.choice([1.0, 2.0, np.nan], n),
            "y": np.where((age > 50.0) | (work == "a"), "yes", "no"),
        }
    )


def model(**options: Any) -> PrivatePipeline:
    """A pipeline of a table without text."""
    columns = {name: one for name, one in RECORD["columns"].items() if name not in ("note", "id")}
    schema = TableSchema.from_dict(RECORD | {"columns": columns})
    encoder = SchemaEncoder(schema)
    svc = dp.PrivateLinearSVC(50.0, bounds=encoder.bounds, classes=schema.classes, **options)
    return PrivatePipeline([("columns", encoder), ("svc", svc)])


def test_a_mixed_table_with_gaps_to_a_saved_model(tmp_path: Path) -> None:
    table = people()
    ledger = dp.PrivacyLedger(50.0, 1e-6)
    fitted = model(ledger=ledger).fit(table, table["y"])
    assert fitted.privacy_.private
    assert total_privacy(fitted).epsilon <= fitted[-1].privacy_.epsilon
    assert fitted.score(table, table["y"]) > 0.8
    save_model(fitted, tmp_path / "model.json", schema=fitted[0].schema)
    again = load_model(tmp_path / "model.json")
    scores = fitted.decision_function(table)
    assert again.decision_function(table).tobytes() == scores.tobytes()
    assert again[0].schema_ == fitted[0].schema_
    assert list(again.feature_names_in_) == list(fitted.feature_names_in_)
    n_spends, ledger = len(ledger.history), dp.PrivacyLedger(50.0, 1e-6)
    assert n_spends
    # Wrong rows are refused before anything is spent.
    search = PrivateGridSearch(model(), {"svc__whiten": [True, False]}, 10.0, ledger=ledger)
    for one in (model(ledger=ledger), search):
        with pytest.raises(TableError, match="'age'"):
            one.fit(table.assign(age="s3cr3t"), table["y"])
    assert not ledger.history


def feeds(graph: Any, table: pd.DataFrame) -> dict[str, Any]:
    """One array for each input: text, or numbers with NaN for what is missing."""
    found = {}
    for one in graph.get_inputs():
        column = table[one.name]
        if one.name == "since":
            column = (column - pd.Timestamp("2000-01-01")) / pd.Timedelta(days=1)
        if "string" in one.type:
            found[one.name] = column.fillna("").to_numpy(dtype=object)[:, None]
        else:
            kind = np.float64 if "double" in one.type else np.float32
            found[one.name] = column.astype(float).to_numpy(dtype=kind)[:, None]
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_graphs_take_the_columns(dtype: str) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    table = people()
    fitted = model().fit(table, table["y"])
    proto = to_onnx(fitted, dtype=dtype)
    graph = runtime.InferenceSession(proto.SerializeToString())
    label, scores, *_ = graph.run(None, feeds(graph, table))
    expected = fitted.decision_function(table)
    close = 1e-12 if dtype == "float64" else 1e-3
    np.testing.assert_allclose(scores, expected, atol=close * np.abs(expected).max())
    clear = np.abs(expected) > 2.0 * close * np.abs(expected).max()
    np.testing.assert_array_equal(label[clear], fitted.predict(table)[clear])
    encoder = fitted[0]
    graph = runtime.InferenceSession(to_onnx(encoder, dtype=dtype).SerializeToString())
    rows = graph.run(None, feeds(graph, table))[0]
    np.testing.assert_array_equal(rows, encoder.transform(table))


# Templates: names and types, and values of public columns alone.


@pytest.mark.parametrize("kind", ["pandas", "pandas arrow", "polars", "pyarrow", "pandas zones"])
def test_a_template_has_no_private_values(kind: str) -> None:
    text = TableSchema.from_frame(frames()[kind], target="y", public=["work"])
    for secret in ("31", "52", '"high"', "2000-01-11", "Hello", "yes"):
        assert secret not in text
    assert 'work = { categories = ["a", "s3cr3t"] }' in text
    # Of pandas, truth values among missing ones are objects of any type.
    assert ("smoker = { boolean = true }" in text) == (kind not in ("pandas", "pandas zones"))
    assert "age = { bounds = [] }" in text
    assert 'target = "y"' in text


def test_integers_that_numpy_lacks_are_numbers() -> None:
    pl = pytest.importorskip("polars", minversion="1.18")
    schema = TableSchema.from_dict({"columns": {"n": {"bounds": [0, 9], "missing": 2}}})
    table = pl.DataFrame({"n": [7, None]}, schema={"n": pl.Int128})
    assert SchemaEncoder(schema).fit_transform(table).tolist() == [[7.0], [2.0]]


def test_a_category_type_keeps_its_categories_to_itself() -> None:
    pl = pytest.importorskip("polars")
    table = pl.DataFrame({"work": ["s3cr3t"]}, schema={"work": pl.Enum(["s3cr3t", "b"])})
    assert "s3cr3t" not in TableSchema.from_frame(table)
    assert "s3cr3t" not in TableSchema.from_frame(table.to_pandas())


def test_a_template_of_public_columns_is_a_schema(tmp_path: Path) -> None:
    table = people()
    names = list(table.columns)
    path = tmp_path / "people.toml"
    path.write_text(TableSchema.from_frame(table, target="y", public=names), encoding="utf-8")
    schema = TableSchema.load(path)
    assert schema.classes == ("no", "yes")
    by_name = {column.name: column for column in schema.columns}
    assert by_name["age"].bounds == (table["age"].min(), table["age"].max())
    assert by_name["work"].categories == ("a", "b", "c")
    path.write_text(TableSchema.from_frame(table, target="y"), encoding="utf-8")
    with pytest.raises(SchemaError, match="classes"):
        TableSchema.load(path)
    with pytest.raises(TableError, match="'nobody'"):
        TableSchema.from_frame(table, public=["nobody"])


class Unread:
    """A column of which nobody may look at a cell."""

    dtype = np.dtype(float)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a private cell was read")

    __iter__ = __getitem__ = __len__ = tolist = __array__


def test_private_cells_are_not_even_looked_at() -> None:
    table = {"age": Unread(), "work": ["b", "a"]}
    text = TableSchema.from_frame(table, public=["work"])
    assert 'work = { categories = ["a", "b"] }' in text
    assert "age = { bounds = [] }" in text
    with pytest.raises(AssertionError):
        TableSchema.from_frame(table, public=["age"])
