"""Tables read as fast as can be against a reader that looks at one cell after another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsvm_fast.data import SchemaEncoder, TableSchema, open_table
from dpsvm_fast.exceptions import TableError
from oracles.slow_tables import Refused, csv_text, slow_rows, tables
from oracles.table_files import chain

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

Drawn = tuple[dict[str, Any], list[str], list[list[Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def read(path: Path, record: dict[str, Any]) -> tuple[Any, Any]:
    """Rows and labels, and the same from batches and from partitions."""
    table = open_table(path, TableSchema.from_dict(record))
    X, y = table.read()
    assert X.dtype == np.float32
    assert X.flags.c_contiguous
    seen: list[int] = []
    blocks = list(table.batches(seen.append))
    assert seen == sorted(set(seen))
    assert seen[-1] == table.n_bytes_total
    assert table.n_rows in (None, len(X))
    if blocks:
        np.testing.assert_array_equal(np.concatenate([block for block, _ in blocks]), X)
        np.testing.assert_array_equal(np.concatenate([labels for _, labels in blocks]), y)
    again = open_table(path, TableSchema.from_dict(json.loads(json.dumps(table.schema.to_dict()))))
    np.testing.assert_array_equal(again.read()[0], X)
    return X, y


@given(
    tables(),
    st.sampled_from([(",", "."), (";", ","), ("\t", ".")]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_csv_files(folder: Path, drawn: Drawn, marks: tuple[str, str], end: str, bom: bool) -> None:
    record, names, rows = drawn
    record = {**record, "csv": {"delimiter": marks[0], "decimal": marks[1], "quote": '"'}}
    text = csv_text(names, rows, delimiter=marks[0], decimal=marks[1], end=end)
    path = folder / "table.csv"
    path.write_bytes(b"\xef\xbb\xbf" * bom + text.encode())
    X, y = read(path, record)
    expected, labels = slow_rows(text, record)
    assert_rows(X, expected)
    assert y.tolist() == labels


def assert_rows(X: Any, expected: Any) -> None:
    """The same rows; hashed words are divided by their length in another precision."""
    np.testing.assert_allclose(X, expected, rtol=3e-7, atol=0.0)
    whole = expected == np.round(expected)
    np.testing.assert_array_equal(X[whole], expected[whole])


@given(tables())
def test_files_with_types(folder: Path, drawn: Drawn) -> None:
    record, names, rows = drawn
    # Empty columns have no type; text is text also where all of it is missing.
    kinds = {
        name: pa.float64() if "bounds" in column else pa.string()
        for name, column in record["columns"].items()
    }
    kinds[record["target"]] = pa.string() if "no" in record["classes"] else pa.int64()
    cells = list(zip(*rows, strict=True)) if rows else [[] for _ in names]
    arrow = pa.table(
        {
            name: pa.array(list(column), kinds[name])
            for name, column in zip(names, cells, strict=True)
        }
    )
    expected, labels = slow_rows(csv_text(names, rows), record)
    parquet.write_table(arrow, folder / "table.parquet", row_group_size=3)
    feather.write_feather(arrow, folder / "table.feather", chunksize=2)
    with pa.ipc.new_stream(folder / "table.arrow", arrow.schema) as stream:
        stream.write_table(arrow)
    for suffix in ("parquet", "feather", "arrow"):
        X, y = read(folder / f"table.{suffix}", record)
        assert_rows(X, expected)
        assert y.tolist() == labels
    # Tables in memory and files are encoded by the same hand.
    encoder = SchemaEncoder(record)
    frames = [arrow, arrow.to_pandas(), {name: list(arrow[name].to_pylist()) for name in names}]
    frames.append(pytest.importorskip("polars").from_arrow(arrow))
    for frame in frames:
        found = encoder.fit_transform(frame)
        assert found.tobytes() == X.tobytes()
        assert encoder.get_feature_names_out().shape == found.shape[1:]


@given(tables(), st.data())
def test_one_wrong_cell_is_named_and_not_quoted(folder: Path, drawn: Drawn, data: Any) -> None:
    record, names, rows = drawn
    strict = {
        name: {key: one for key, one in column.items() if key not in ("missing", "unknown")}
        for name, column in record["columns"].items()
    }
    record = {**record, "columns": strict}
    kept = []
    for row in rows:
        try:
            slow_rows(csv_text(names, [row]), record)
        except Refused:
            continue
        kept.append(row)
    checked = [name for name in names if not strict.get(name, {}).get("ignore")]
    if not kept:
        return
    place = data.draw(st.integers(0, len(kept) - 1), label="row")
    name = data.draw(st.sampled_from(checked), label="column")
    wrong = ["s3cr3t", "", "1e999", "1,234", "0x1p3", "1_0"]
    cell = "" if "text" in strict.get(name, {}) else data.draw(st.sampled_from(wrong))
    kept[place] = [
        cell if one == name else old for one, old in zip(names, kept[place], strict=True)
    ]
    text = csv_text(names, kept)
    path = folder / "wrong.csv"
    path.write_bytes(text.encode())
    table = open_table(path, TableSchema.from_dict(record))
    with pytest.raises(TableError) as caught:
        table.read()
    assert str(caught.value).startswith(f"wrong.csv: row {place + 1}, column {name!r}: ")
    assert all("s3cr3t" not in str(error) for error in chain(caught.value))


@st.composite
def sparse_texts(draw: st.DrawFn) -> tuple[str, list[list[float]], list[int]]:
    """A LIBSVM text of five features, its rows and its labels."""
    lines, rows, labels = [], [], []
    blank = st.sampled_from([" ", "  ", "\t", " \t "])
    value = st.floats(width=32, allow_nan=False, allow_infinity=False)
    for _ in range(draw(st.integers(0, 6))):
        entries = draw(st.dictionaries(st.integers(1, 5), value, max_size=5))
        label = draw(st.sampled_from([-1, 1]))
        words = [draw(st.sampled_from([f"{label}", f"{label:+d}", f"{label}.0"]))]
        words += [f"{index}:{number!r}" for index, number in entries.items()]
        comment = draw(st.sampled_from(["", " # 1:2 note", "\n", " "]))
        lines.append("".join(word + draw(blank) for word in words).rstrip() + comment)
        rows.append([entries.get(index, 0.0) for index in range(1, 6)])
        labels.append(label)
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return end.join(lines) + draw(st.sampled_from(["", end])), rows, labels


@given(sparse_texts())
def test_sparse_files(folder: Path, drawn: tuple[str, list[list[float]], list[int]]) -> None:
    text, rows, labels = drawn
    path = folder / "table.svm"
    path.write_bytes((text or "\n").encode())
    record = {"classes": [-1, 1], "n_features": 5, "all_other_columns": {"bounds": [0, 1]}}
    X, y = open_table(path, TableSchema.from_dict(record)).read()
    assert X.dtype == np.float32
    assert X.has_canonical_format
    np.testing.assert_array_equal(X.toarray(), np.array(rows, np.float32).reshape(-1, 5))
    assert y.tolist() == labels
