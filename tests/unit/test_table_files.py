"""Files of every format: what is read, what is refused, and in which words."""

from __future__ import annotations

import builtins
import gzip
import os
import pickle
import stat
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.io import SchemaError, TableError, TableSchema, open_table

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

RECORD: dict[str, Any] = {
    "target": "y",
    "classes": ["no", "yes"],
    "columns": {"age": {"bounds": [0, 100]}, "work": {"categories": ["p", "q"]}},
}
TEXT = "y,age,work\nno,1.5,p\nyes,2,q\n"
ROWS = [[1.5, 1.0, 0.0], [2.0, 0.0, 1.0]]
WIDE = {"classes": [0, 1], "all_other_columns": {"bounds": [0, 1]}}


def schema(**changes: Any) -> TableSchema:
    return TableSchema.from_dict({**RECORD, **changes}, origin="s.toml")


def columns(**changes: Any) -> TableSchema:
    return schema(columns={**RECORD["columns"], **changes})


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes | str, str], Path]:
    def written(content: bytes | str, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return written


def error_of(path: Path, of: TableSchema | None = None, **options: Any) -> str:
    """The sentence with which a file is refused."""
    with pytest.raises((TableError, SchemaError)) as caught:
        open_table(path, schema() if of is None else of, **options).read()
    assert "s3cr3t" not in repr(caught.value.__context__)
    return str(caught.value)


def test_rows_labels_and_facts(write: Any) -> None:
    table = open_table(write(TEXT), schema())
    X, y = table.read()
    assert X.tolist() == ROWS
    assert y.tolist() == ["no", "yes"]
    assert (table.n_features, table.n_rows, table.sparse, table.labelled) == (3, None, False, True)
    assert table.format == "csv"
    assert table.n_bytes_total == len(TEXT)
    assert repr(table) == "Table(t.csv: dense rows of 3 features)"


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + TEXT,
        TEXT.replace("\n", "\r\n"),
        TEXT.rstrip("\n"),
        " work , y,age\np,no, 1.5\n q, yes ,2.0\n",
        '"work","y","age"\n"p","no","1.5"\n"q","yes","2"\n',
        "\n\ny,age,work\n\nno,1.5,p\n\nyes,2e0,q\n\n",
    ],
    ids=[
        "mark",
        "carriage return",
        "no last line end",
        "order and blanks",
        "quotes",
        "blank lines",
    ],
)
def test_one_table_written_in_many_ways(write: Any, text: str) -> None:
    X, y = open_table(write(text), schema()).read()
    assert X.tolist() == ROWS
    assert y.tolist() == ["no", "yes"]


def test_suffixes_and_formats(write: Any) -> None:
    tabs = TEXT.replace(",", "\t")
    for content, name, format in (
        (tabs, "t.tsv", None),
        (gzip.compress(TEXT.encode()), "T.CSV.GZ", None),
        (gzip.compress(tabs.encode()[:20]) + gzip.compress(tabs.encode()[20:]), "t.tsv.gz", None),
        (TEXT, "t.data", "csv"),
    ):
        assert open_table(write(content, name), schema(), format=format).read()[0].tolist() == ROWS
    for name in ("t.xlsx", "t.parquet.gz", "t"):
        with pytest.raises(InvalidParameterError, match=rf"^path: got '{name}', expected a name"):
            open_table(write(TEXT, name), schema())
    with pytest.raises(InvalidParameterError, match=r"^format: got 'excel', expected one of 'csv'"):
        open_table(write(TEXT), schema(), format="excel")
    with pytest.raises(FileNotFoundError):
        open_table("no such file.csv", schema())
    with pytest.raises(TypeError, match=r"^schema: got dict, expected a TableSchema$"):
        open_table(write(TEXT), RECORD)  # type: ignore[arg-type]


def test_labels_are_not_needed_to_predict(write: Any) -> None:
    unlabelled = "work,age\np,1.5\nq,2\n"
    bare = schema(target=None, classes=None)
    for text, of in ((TEXT, schema()), (unlabelled, schema()), (unlabelled, bare)):
        X, y = open_table(write(text), of, labelled=False).read()
        assert X.tolist() == ROWS
        assert y is None


def test_labels_that_are_numbers(write: Any) -> None:
    text = "y,age,work\n+1,1.5,p\n -1.0,2,q\n"
    X, y = open_table(write(text), schema(classes=[-1, 1])).read()
    assert X.tolist() == ROWS
    assert y.tolist() == [1, -1]
    assert y.dtype == np.int64


def test_numbers_of_single_precision(write: Any) -> None:
    cells = [
        "1e-50",
        "16777217",
        "123456789012345678901234567890",
        "-0.0",
        "3.4028235e38",
        "5e-324",
    ]
    text = "y,age\n" + "".join(f"no,{cell}\n" for cell in cells)
    X, _ = open_table(write(text), schema(columns={"age": {"bounds": [0, 1]}})).read()
    np.testing.assert_array_equal(X[:, 0], np.array(cells, dtype=np.float64).astype(np.float32))


def test_missing_cells_take_public_values(write: Any) -> None:
    of = columns(
        age={"bounds": [0, 100], "missing": 35},
        work={"categories": ["p", "NA", 3], "missing": "none", "unknown": "none"},
        smoker={"boolean": True, "missing": True},
    )
    text = "y,age,work,smoker\nno,,,False\nno,nan,NA,\nno,null,3.0,1\nno, NA ,x,true\n"
    X, _ = open_table(write(text), of).read()
    assert X.tolist() == [[35, 0, 0, 0, 0], [35, 0, 1, 0, 1], [35, 0, 0, 1, 1], [35, 0, 0, 0, 1]]


def test_other_marks(write: Any) -> None:
    csv = {"delimiter": ";", "decimal": ",", "encoding": "latin-1", "missing_values": ["?"]}
    of = schema(csv=csv, classes=["Jürg", "Zoë"])
    text = "work;age;y\np;1,5;Jürg\nq;2;Zoë\n"
    X, y = open_table(write(text.encode("latin-1")), of).read()
    assert X.tolist() == ROWS
    assert y.tolist() == ["Jürg", "Zoë"]
    assert "row 1, column 'age': not a number" in error_of(write(text.replace("1,5", "1.5")), of)
    assert "row 2, column 'age': a missing value" in error_of(write(text.replace("2;", "?;")), of)
    assert "the header is not utf-8" in error_of(write(text.encode("utf-16")))


def test_files_without_header(write: Any) -> None:
    named = schema(csv={"header": ["y", "age", "work"]})
    assert open_table(write("no,1.5,p\nyes,2,q\n"), named).read()[0].tolist() == ROWS
    X, _ = open_table(write("1.5,p\n2,q\n"), named, labelled=False).read()
    assert X.tolist() == ROWS
    assert "row 1 has 4 cells, expected 3, as csv.header in s.toml says" in error_of(
        write("no,1,p,4\n"), named
    )
    last = TableSchema.from_dict({**WIDE, "target": -1, "csv": {"header": False}})
    table = open_table(write("0.25,0.5,1\n0.5,1,0\n"), last)
    assert table.read()[0].tolist() == [[0.25, 0.5], [0.5, 1.0]]
    assert table.read()[1].tolist() == [1, 0]
    assert table.schema.feature_names == ("x0", "x1")
    for text in ("0.25,0.5\n", "0.25,0.5,1\n"):
        X, _ = open_table(write(text), table.schema, labelled=False).read()
        assert X.tolist() == [[0.25, 0.5]]
    ordered = schema(csv={"header": False}, target=0)
    for text in ("no,1.5,p\nyes,2,q\n", "1.5,p\n2,q\n"):
        assert open_table(write(text), ordered, labelled=False).read()[0].tolist() == ROWS
    assert "expected its place, 0 to 2" in error_of(
        write("1,2,3\n"), TableSchema.from_dict({**WIDE, "csv": {"header": False}, "target": 5})
    )


def test_the_target_by_its_place(write: Any) -> None:
    table = open_table(write(TEXT), schema(target=0))
    assert table.read()[1].tolist() == ["no", "yes"]
    assert table.schema.target == "y"


def test_a_blank_line_in_one_column_is_a_row(write: Any) -> None:
    path = write("age\n1\n\n3\n")
    of = TableSchema.from_dict({"columns": {"age": {"bounds": [0, 9], "missing": 5}}})
    assert open_table(path, of, labelled=False).read()[0].tolist() == [[1], [5], [3]]


def test_a_label_is_no_feature(write: Any) -> None:
    path = write(TEXT)
    expected = "s.toml: columns.age: it is the target and cannot be a feature: remove it"
    assert error_of(path, replace(schema(), target="age")) == expected
    assert error_of(path, schema(target=1)) == expected


def test_a_pass_that_is_broken_off_can_be_repeated(write: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("dpsvm_fast.io._csv.BLOCK", 64)
    table = open_table(write("y,age,work\n" + "no,1,p\n" * 500), schema())
    for X, _ in table.batches():
        assert len(X) < 100
        break
    assert len(table.read()[0]) == 500


# What is wrong with a CSV file, and how the sentence goes on after its name.
WRONG: dict[str, tuple[bytes | str, str]] = {
    "empty": ("", "the file is empty"),
    "blank": ("\n\n", "the file is empty"),
    "wrong target": (
        "income,age,work\nno,1,p\n",
        "target: it has no column 'y'; it has columns 'income', 'age', 'work'",
    ),
    "a column less": ("y,work\nno,p\n", "column 'age' is missing, which s.toml asks for; the file"),
    "names twice": ("y,age,work,age\n", "got columns named 'age' twice, expected different names"),
    "a cell less": (
        "y,age,work\nno,1,p\nno,s3cr3t\n",
        "row 2 has 2 cells, expected 3; the file may be cut off, or a cell that contains the",
    ),
    "a cell more": ("y,age,work\nno,1,p,s3cr3t\n", "row 1 has 4 cells, expected 3; the file may"),
    "no number": (
        "y,age,work\nno,1,p\nno,s3cr3t,p\n",
        "row 2, column 'age': not a number; one is written like 1234.5, without marks between",
    ),
    "thousands": ('y,age,work\nno,"1,000",p\n', "row 1, column 'age': not a number; one is"),
    "decimal comma": ('y,age,work\nno,"1,5",p\n', "row 1, column 'age': not a number; one is"),
    "date": ("y,age,work\nno,2026-01-02,p\n", "row 1, column 'age': not a number; one is"),
    "truth": ("y,age,work\nno,true,p\n", "row 1, column 'age': not a number; one is"),
    "underscore": ("y,age,work\nno,1_0,p\n", "row 1, column 'age': not a number; one is"),
    "infinite": ("y,age,work\nno,-inf,p\n", "row 1, column 'age': not a finite number of single"),
    "too large": ("y,age,work\nno,1e39,p\n", "row 1, column 'age': not a finite number of single"),
    "missing": (
        "y,age,work\nno,1,p\nno,,p\n",
        "row 2, column 'age': a missing value; remove the row, or write a public value that takes "
        "its place, for example missing = 0, in the schema",
    ),
    "not a number": ("y,age,work\nno,NaN,p\n", "row 1, column 'age': a missing value; remove"),
    "missing category": (
        "y,age,work\nno,1,\n",
        "row 1, column 'work': a missing value; remove the row, or write a public value that "
        'takes its place, for example missing = "none", in the schema',
    ),
    "category": (
        "y,age,work\nno,1,p\nno,2,s3cr3t\n",
        "row 2, column 'work': a value that is not one of the declared categories; add it to "
        'categories if it is public, or write unknown = "none" in the schema',
    ),
    "label": (
        "y,age,work\nno,1,p\ns3cr3t,2,p\n",
        "row 2, column 'y': a label that is not one of the declared classes; correct the file, or "
        "classes in the schema",
    ),
    "no label": ("y,age,work\n,2,p\n", "row 1, column 'y': no label; correct the file, or"),
    "encoding": (
        b"y,age,work\nno,1,p\nno,1,s3cr3t\xff\n",
        "row 2, column 'work': not text in utf-8; write the encoding, for example encoding = "
        '"latin-1", in the [csv] table of the schema',
    ),
    "encoding of a number": (b"y,age,work\nno,\xff1,p\n", "row 1, column 'age': not text in utf-8"),
    "row that is no text": (b"y,age,work\nno,1,p\nno,\xc1\n", "row 2 has 2 cells, expected 3; the"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_text(write: Any, name: str) -> None:
    content, text = WRONG[name]
    assert error_of(write(content)).startswith(f"t.csv: {text}")


def test_a_quote_that_is_never_closed_does_not_swallow_rows(write: Any) -> None:
    of = columns(note={"ignore": True})
    text = 'y,age,work,note\nno,1,p,"\nno,1,p,x\nno,1,p,x\n'
    assert "the file ends within a quoted cell" in error_of(write(text), of)
    # A quote inside a cell is a character, and two of them are none.
    for cell in ('5" pipe', '"a ""b"" c"', '"two\nlines"', '"a\r\n""'):
        text = f"y,age,work,note\nno,1.5,p,{cell}\nyes,2,q,x\n"
        if cell != '"a\r\n""':
            assert open_table(write(text), of).read()[0].tolist() == ROWS
        else:
            error_of(write(text), of)


def test_undescribed_columns(write: Any) -> None:
    path = write("y,age,work,id,zip code\nno,1.5,p,s3cr3t,3\nyes,2,q,s3cr3t,4\n")
    assert error_of(path) == (
        "t.csv: s.toml says nothing of columns 'id', 'zip code': add these lines with public "
        'bounds (or categories = [...], or ignore = true), or write extra_columns = "ignore":\n'
        '[columns]\n  id = { bounds = [LOW, HIGH] }\n  "zip code" = { bounds = [LOW, HIGH] }'
    )
    assert open_table(path, schema(extra_columns="ignore")).read()[0].tolist() == ROWS
    ignored = columns(id={"ignore": True}, **{"zip code": {"ignore": True}})
    table = open_table(path, ignored)
    assert table.read()[0].tolist() == ROWS
    # Columns that are ignored need not be there.
    assert open_table(write(TEXT), table.schema).read()[0].tolist() == ROWS


def test_a_file_is_wider_than_a_model(write: Any) -> None:
    fitted = TableSchema.from_dict(
        open_table(write(TEXT), schema()).schema.to_dict(), origin="the model"
    )
    assert error_of(write("age,work,zip\n1,p,2\n"), fitted, labelled=False) == (
        "t.csv: column 'zip' is none of those that the model was trained with: remove it from the "
        'file, or give a schema with extra_columns = "ignore"'
    )


def test_a_schema_for_training_needs_target_and_classes(write: Any) -> None:
    path = write(TEXT)
    assert error_of(path, schema(target=None)) == (
        "s.toml: target: missing; write the name of the column of labels, for example "
        "target = \"label\"; t.csv has columns 'y', 'age', 'work'"
    )
    assert error_of(path, schema(classes=None)) == (
        "s.toml: classes: missing; write the public labels, for example "
        'classes = ["no", "yes"] or classes = [0, 1]'
    )


def test_only_a_header(write: Any) -> None:
    for text in ("y,age,work\n", "y,age,work", "\ny,age,work\r\n\r\n"):
        table = open_table(write(text), schema())
        X, y = table.read()
        assert X.shape == (0, 3)
        assert y.shape == (0,)
        with pytest.raises(TableError, match=r"^t\.csv: the table has no rows$"):
            table.to_partitions(Path(table.path).parent / "parts")


def test_blocks_of_any_size(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks shorter than a row, with line ends in quotes: rows come once each and in order."""
    rng = np.random.default_rng(0)
    ages = rng.integers(0, 100, 500)
    notes = ['"' + "long\n" * rng.integers(0, 60) + '"' for _ in ages]
    text = "".join(f"no,{age},p,{note}\n" for age, note in zip(ages, notes, strict=True))
    path = write("y,age,work,note\n" + text)
    of = columns(note={"ignore": True})
    monkeypatch.setattr("dpsvm_fast.io._decode.TILE_BYTES", 1)
    for block in (64, 500, 10**6):
        monkeypatch.setattr("dpsvm_fast.io._csv.BLOCK", block)
        monkeypatch.setattr("dpsvm_fast.io._csv.BYTES_PER_CELL", 1)
        assert open_table(path, of).read()[0][:, 0].tolist() == ages.tolist()
    path.write_text(path.read_text().replace("no,", "s3cr3t,").replace("s3cr3t,", "no,", 321))
    monkeypatch.setattr("dpsvm_fast.io._csv.BLOCK", 64)
    assert "row 322, column 'y'" in error_of(path, of)


@pytest.mark.parametrize("cut", [2, 30, 200, -4, -20])
def test_compressed_text_that_is_cut(write: Any, cut: int) -> None:
    rng = np.random.default_rng(0)
    text = "y,age,work\n" + "".join(f"no,{age},p\n" for age in rng.random(5000))
    content = gzip.compress(text.encode())
    assert "cut off" in error_of(write(content[:cut], "t.csv.gz"))
    assert "cut off" in error_of(write(content[:200] + b"x" + content[201:], "t.csv.gz"))


def test_npz(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((300, 7)), rng.integers(0, 2, 300)
    of = TableSchema.from_dict(WIDE)
    for name, rows in (("c", X), ("f", np.asfortranarray(X)), ("half", X.astype(np.float16))):
        for save in (np.savez, np.savez_compressed):
            save(tmp_path / f"{name}.npz", X=rows, y=y)
            table = open_table(tmp_path / f"{name}.npz", of)
            np.testing.assert_array_equal(table.read()[0], rows.astype(np.float32))
            assert table.read()[1].tolist() == y.tolist()
            assert (table.n_rows, table.n_features) == (300, 7)
    assert table.schema.to_dict()["n_features"] == 7
    np.savez(tmp_path / "text.npz", X=X, y=np.array(["a", "b"])[y])
    text = TableSchema.from_dict({**WIDE, "classes": ["a", "b"]})
    assert open_table(tmp_path / "text.npz", text).read()[1][:3].tolist() == [
        "ab"[label] for label in y[:3]
    ]
    coded = {"columns": {"k": {"categories": [0, 1]}, "v": {"bounds": [0, 1], "missing": 0.5}}}
    pairs = np.array([[0.0, np.nan], [1.0, 0.25]])
    np.savez(tmp_path / "coded.npz", X=pairs)
    found, _ = open_table(
        tmp_path / "coded.npz", TableSchema.from_dict(coded), labelled=False
    ).read()
    assert found.tolist() == [[1, 0, 0.5], [0, 1, 0.25]]


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"X": np.zeros((2, 3))}, "it has no array 'y'; it has 'X'"),
        ({"data": np.zeros(2)}, "it has no array 'X'; it has 'data'"),
        ({"X": np.zeros(3), "y": [0]}, "X: got 1 dimensions of type float64, expected numbers in"),
        ({"X": np.zeros((2, 3)), "y": [0, 1, 0]}, "y: expected one label for each row of X"),
        ({"X": np.array([["s3cr3t"]]), "y": [0]}, "X: got 2 dimensions of type <U6, expected numb"),
        ({"X": np.array([[object()]]), "y": [0]}, "not an .npz file, or cut off or damaged"),
        ({"X": [[np.nan]], "y": [0]}, "row 1, column 'x0': a missing value"),
        ({"X": [[0.0], [1e300]], "y": [0, 1]}, "row 2, column 'x0': not a finite number of sing"),
        ({"X": [[0.0], [1.0]], "y": [0, 7]}, "row 2, column 'label': a label that is not one of"),
    ],
)
def test_wrong_npz(tmp_path: Path, arrays: dict[str, Any], text: str) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, **arrays)
    assert error_of(path, TableSchema.from_dict(WIDE)).startswith(f"t.npz: {text}")
    declared = TableSchema.from_dict({**WIDE, "n_features": 2})
    np.savez(path, X=np.zeros((2, 3)), y=[0, 1])
    assert error_of(path, declared) == (
        "t.npz: got 3 columns of features, expected 2, as the schema says"
    )


def typed_table() -> Any:
    """A column of each type that has numbers or text."""
    import decimal

    text = pa.array(["p", "q", "p"])
    return pa.table(
        {
            "a.b": pa.array([1.5, 2.5, 3.5]),
            "small": pa.array([1, 2, 3], pa.int8()),
            "large": pa.array([2**63, 0, 1], pa.uint64()),
            "half": pa.array(np.array([0.5, 1, 2], dtype=np.float16)),
            "money": pa.array([decimal.Decimal("1.25")] * 3),
            "empty": pa.nulls(3),
            "truth": pa.array([True, False, None]),
            "text": text,
            "coded": text.dictionary_encode(),
            "long": text.cast(pa.large_string()),
            "code": pa.array([0, 1, 0]),
            "y": pa.array([True, False, True]),
            "nested": pa.array([{"a": 1}] * 3),
        }
    )


TYPED: dict[str, Any] = {
    "target": "y",
    "classes": [0, 1],
    "columns": {
        "a.b": {"bounds": [0, 1]},
        "small": {"bounds": [0, 1]},
        "large": {"bounds": [0, 1]},
        "half": {"bounds": [0, 1]},
        "money": {"bounds": [0, 1]},
        "empty": {"bounds": [0, 1], "missing": 0.5},
        "truth": {"boolean": True, "missing": False},
        "text": {"categories": ["p", "q"]},
        "coded": {"categories": ["q", "p"]},
        "long": {"categories": ["p", "q"]},
        "code": {"categories": [0, 1]},
        "nested": {"ignore": True},
    },
}


def write_as(table: Any, path: Path) -> Path:
    """Parquet or an Arrow file, as the suffix says."""
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    return path


columnar = pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])


@columnar
def test_types_of_columns(tmp_path: Path, name: str) -> None:
    path = write_as(typed_table(), tmp_path / name)
    X, y = open_table(path, TableSchema.from_dict(TYPED)).read()
    assert X[0].tolist() == [1.5, 1, 2.0**63, 0.5, 1.25, 0.5, 1, 1, 0, 0, 1, 1, 0, 1, 0]
    assert X[2].tolist() == [3.5, 3, 1, 2, 1.25, 0.5, 0, 1, 0, 0, 1, 1, 0, 1, 0]
    assert y.tolist() == [1, 0, 1]
    words = TableSchema.from_dict({**TYPED, "classes": ["false", "true"]})
    assert open_table(path, words).read()[1].tolist() == ["true", "false", "true"]


@columnar
def test_types_that_are_refused(tmp_path: Path, name: str) -> None:
    import datetime

    day = pa.array([datetime.date(2026, 1, 2)])
    for values, column in ((["s3cr3t"], {"bounds": [0, 1]}), (day, {"categories": ["a"]})):
        table = pa.table({"c": values, "y": [0]})
        of = TableSchema.from_dict({"target": "y", "classes": [0, 1], "columns": {"c": column}})
        text = error_of(write_as(table, tmp_path / name), of)
        assert text.startswith(f"{name}: column 'c' has type ")
    twice = pa.Table.from_arrays([day, day, day], names=["y", "a", "a"])
    assert "got columns named 'a' twice" in error_of(write_as(twice, tmp_path / name))


@columnar
def test_wrong_cells_of_typed_columns(tmp_path: Path, name: str) -> None:
    def refused(**columns: Any) -> str:
        table = pa.table({"y": ["no", "yes"], "age": [1.0, 2.0], "work": ["p", "q"]} | columns)
        return error_of(write_as(table, tmp_path / name))

    assert "row 2, column 'age': a missing value" in refused(age=[1.0, None])
    assert "row 1, column 'age': a missing value" in refused(age=[float("nan"), 1.0])
    assert "row 2, column 'age': not a finite number" in refused(age=[1.0, 1e200])
    assert "row 2, column 'work': a value that is not one" in refused(work=["p", "s3cr3t"])
    assert "row 1, column 'work': a missing value" in refused(work=[None, "p"])
    assert "row 2, column 'y': a label that is not one" in refused(y=["no", "s3cr3t"])
    assert "row 1, column 'y': no label" in refused(y=[None, "no"])
    text = refused(extra=[1, 2])
    assert "s.toml says nothing of column 'extra'" in text


@columnar
def test_typed_files_that_are_damaged(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    words = np.array(["p", "q"])[rng.integers(0, 2, 3000)]
    table = pa.table({"y": np.repeat("no", 3000), "age": rng.random(3000), "work": words})
    path = write_as(table, tmp_path / name)
    content = path.read_bytes()
    for cut in (1, 4, len(content) // 3, len(content) // 2, -9, -1):
        path.write_bytes(content[:cut])
        assert error_of(path) == f"{name}: the file is damaged or cut off; copy it again"
    path.write_bytes(b"FEA1" + content)
    assert "damaged" in error_of(path) or "version 1 of Feather" in error_of(path)


def test_a_damaged_arrow_file_is_not_followed(tmp_path: Path) -> None:
    """Offsets of text that point outside of the file."""
    table = pa.table({"y": ["no"], "age": [1.0], "work": ["p" * 291]})
    path = write_as(table, tmp_path / "t.arrow")
    content = path.read_bytes()
    offsets = np.array([0, 291], dtype="<i4").tobytes()
    # The last one: the length of the text stands among the facts before it, too.
    place = content.rindex(offsets)
    changed = np.array([0, 2**30], dtype="<i4").tobytes()
    path.write_bytes(content[:place] + changed + content[place + 8 :])
    assert "damaged" in error_of(path)


@columnar
def test_names_that_are_no_text(tmp_path: Path, name: str) -> None:
    path = write_as(pa.table({"y": ["no"], "age": [1.0], "w\u00f6rk": ["p"]}), tmp_path / name)
    path.write_bytes(path.read_bytes().replace("w\u00f6rk".encode(), b"w\xff\xffrk"))
    assert error_of(path) == f"{name}: the file is damaged or cut off; copy it again"


@pytest.mark.parametrize(
    "header", ["{'descr': (", "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2)}", "\xff"]
)
def test_an_array_without_a_header(tmp_path: Path, header: str) -> None:
    content = header.ljust(117) + "\n"
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        start = b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little")
        archive.writestr("X.npy", start + content.encode("latin-1"))
    text = error_of(tmp_path / "t.npz", TableSchema.from_dict(WIDE), labelled=False)
    assert text == "t.npz: not an .npz file, or cut off or damaged; copy it again"


def test_positions_are_kept_for_names_that_say_them(write: Any) -> None:
    of = TableSchema.from_dict({**WIDE, "n_features": 3, "columns": {"x1": {"bounds": [5, 6]}}})
    table = open_table(write("x2,x1,x0\n0.25,0.5,1\n"), of, labelled=False)
    assert table.read()[0].tolist() == [[1.0, 0.5, 0.25]]
    assert table.schema.bounds[0].tolist() == [0.0, 5.0, 0.0]
    of = TableSchema.from_dict({**WIDE, "n_features": 2})
    assert "got 3 features, expected 2" in error_of(write("a,b,c\n1,2,3\n"), of, labelled=False)


def test_sparse_text(write: Any) -> None:
    of = TableSchema.from_dict({**WIDE, "classes": ["a", "b"], "n_features": 4})
    X, y = open_table(write("a 2:5 1:.5\n\nb # note\n", "t.txt"), of).read()
    assert isinstance(X, sparse.csr_matrix)
    assert X.toarray().tolist() == [[0.5, 5, 0, 0], [0, 0, 0, 0]]
    assert y.tolist() == ["a", "b"]
    bare = open_table(write("1:2\n7 3:1\n", "t.svm"), of, labelled=False).read()
    assert bare[0].toarray().tolist() == [[2, 0, 0, 0], [0, 0, 1, 0]]
    zero = TableSchema.from_dict(
        {**WIDE, "classes": ["a", "b"], "n_features": 4, "zero_based": True}
    )
    packed = write(gzip.compress(b"a 0:1 3:2\n"), "t.svm.gz")
    assert open_table(packed, zero).read()[0].toarray().tolist() == [[1, 0, 0, 2]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a 5:1", "row 1: an index beyond the 4 features that the schema declares"),
        ("a 1:1\na 0:1", "row 2: index 0; if indices start at 0, write zero_based = true in the"),
        ("a 1:2 1:3", "row 1: an index comes twice"),
        ("1:2", "row 1: no label; each row starts with one"),
        ("a 1:s3cr3t", "row 1: expected index:value with a number for each entry"),
        ("a 1:nan", "row 1: expected index:value with a number for each entry"),
        ("a 1.0:3", "row 1: expected index:value with a number for each entry"),
        ("a 1e0:3", "row 1: expected index:value with a number for each entry"),
        ("a 1:0x10", "row 1: expected index:value with a number for each entry"),
        ("a 1:1_0", "row 1: expected index:value with a number for each entry"),
        ("a 1:-inf", "row 1: expected index:value with a number for each entry"),
        ("a 1: :2", "row 1: expected index:value with a number for each entry"),
        ("a qid:3 1:2", "row 1: expected index:value with a number for each entry"),
        ("a 1:1e39", "row 1: a value is not a finite number of single precision"),
        ("a 1:1\n\ns3cr3t 1:1", "row 2, column 'label': a label that is not one of the declared"),
        ("a\x00 1:1", "row 1, column 'label': a label that is not one of the declared"),
        ("a 1:1\x002:1", "row 1: expected index:value with a number for each entry"),
        ("a 99999999999999999999:1", "row 1: an index beyond the 4 features that the schema"),
    ],
)
def test_wrong_sparse_text(write: Any, text: str, reason: str) -> None:
    of = TableSchema.from_dict({**WIDE, "classes": ["a", "b"], "n_features": 4})
    assert error_of(write(text, "t.svm"), of).startswith(f"t.svm: {reason}")


def test_sparse_text_needs_a_width(write: Any) -> None:
    path = write("1 1:1\n", "t.svm")
    assert "n_features: missing" in error_of(path, TableSchema.from_dict(WIDE))
    assert "got 'work' without bounds" in error_of(path, schema())


def test_sparse_blocks(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = sparse.random(400, 30, density=0.2, format="csr", random_state=rng, dtype=np.float32)
    lines = [
        f"{i % 2} "
        + " ".join(f"{j + 1}:{v!r}" for j, v in zip(r.indices, r.data.tolist(), strict=True))
        for i, r in enumerate(X)
    ]
    path = write("\n".join(lines), "t.svm")
    for block in (10, 1000, 2**22):
        monkeypatch.setattr("dpsvm_fast.io._libsvm.BLOCK", block)
        table = open_table(path, TableSchema.from_dict({**WIDE, "n_features": 30}))
        found, y = table.read()
        assert abs(found - X).max() == 0
        assert y.tolist() == [0, 1] * 200


def test_partitions(write: Any, tmp_path: Path) -> None:
    rows = "".join(f"{'no' if i % 2 else 'yes'},{i},p\n" for i in range(25))
    table = open_table(write("y,age,work\n" + rows), schema())
    X, y = table.read()
    seen: list[int] = []
    partitions = table.to_partitions(tmp_path / "parts", seen.append, rows_per_partition=10)
    assert (len(partitions), partitions.n_rows, partitions.n_features) == (3, 25, 3)
    assert seen[-1] == table.n_bytes_total
    loaded = [loader() for loader in pickle.loads(pickle.dumps(partitions.loaders))]
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in loaded]), X)
    assert np.concatenate([labels for _, labels in loaded]).tolist() == y.tolist()
    stored = np.load(tmp_path / "parts" / "X.npy", mmap_mode="r")
    assert isinstance(stored, np.memmap)
    assert stored.dtype == np.float32
    np.testing.assert_array_equal(stored, X)
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "parts").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "parts" / "y.npy").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        table.to_partitions(tmp_path / "parts")
    np.testing.assert_array_equal(np.load(tmp_path / "parts" / "X.npy"), X)


def test_sparse_partitions(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsvm_fast.io._libsvm.BLOCK", 5)
    of = TableSchema.from_dict({**WIDE, "n_features": 4})
    table = open_table(write("1 1:2\n0\n1 4:3 2:1\n", "t.svm"), of)
    partitions = table.to_partitions(tmp_path / "parts", rows_per_partition=2)
    assert partitions.sparse
    assert partitions.n_rows == 3
    loaded = [loader() for loader in pickle.loads(pickle.dumps(partitions.loaders))]
    assert sparse.vstack([rows for rows, _ in loaded]).toarray().tolist() == [
        [2, 0, 0, 0],
        [0, 0, 0, 0],
        [0, 1, 0, 3],
    ]
    assert np.concatenate([labels for _, labels in loaded]).tolist() == [1, 0, 1]
    empty = open_table(write("1\n0\n", "t.svm"), of).to_partitions(tmp_path / "empty")
    assert empty.loaders[0]()[0].shape == (2, 4)


def test_a_failure_leaves_no_data_behind(write: Any, tmp_path: Path) -> None:
    table = open_table(write("y,age,work\nno,1,p\nno,s3cr3t,p\n"), schema())
    with pytest.raises(TableError):
        table.to_partitions(tmp_path / "parts")
    assert list((tmp_path / "parts").iterdir()) == []


def test_without_pyarrow(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refusing(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **options)

    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(ImportError, match=r'needs pyarrow.*pip install "dpsvm-fast\[arrow\]"$'):
        open_table(write(TEXT), schema())
    of = TableSchema.from_dict({**WIDE, "n_features": 2})
    assert open_table(write("1 1:1\n", "t.svm"), of).read()[0].shape == (1, 2)
    np.savez(write("", "t.npz"), X=np.zeros((2, 2)), y=[0, 1])
    assert open_table(write("1 1:1\n", "t.svm").with_name("t.npz"), of).read()[0].shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("t.csv", ["age = { bounds = [] }", '"zip code" = { bounds = [] }']),
        (
            "t.parquet",
            ["age = { bounds = [] }", "work = { categories = [] }", "day = { ignore = true }"],
        ),
        ("t.arrow", ["smoker = { boolean = true }"]),
        ("t.npz", ["n_features = 5", "[all_other_columns]", "bounds = []"]),
    ],
)
def test_a_template_is_written_from_the_header_only(
    tmp_path: Path, name: str, lines: list[str]
) -> None:
    path = tmp_path / name
    if name == "t.csv":
        path.write_text("y,age,zip code\nno,s3cr3t,s3cr3t\n")
    elif name == "t.npz":
        np.savez(path, X=np.zeros((3, 5)), y=[0, 1, 0])
    else:
        table = {"y": ["s3cr3t"], "age": [1], "work": ["s3cr3t"], "smoker": [True]}
        write_as(pa.table({**table, "day": pa.array([0], pa.date32())}), path)
    text = TableSchema.template(path, target=None if name == "t.npz" else "y")
    assert set(lines) <= set(text.splitlines())
    assert "s3cr3t" not in text
    if sys.version_info >= (3, 11):
        (tmp_path / "s.toml").write_text(text)
        with pytest.raises(SchemaError, match=r"^s\.toml: "):
            TableSchema.load(tmp_path / "s.toml")
    if name != "t.npz":
        with pytest.raises(TableError, match=r"target: it has no column 'z'; it has columns 'y', "):
            TableSchema.template(path, target="z")
