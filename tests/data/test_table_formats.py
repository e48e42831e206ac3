"""Parquet, Arrow, npz and LIBSVM files, partitions and templates."""

from __future__ import annotations

import builtins
import gzip
import os
import pickle
import re
import stat
import sys
import traceback
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dpsvm_fast.data import TableSchema, open_table
from dpsvm_fast.data.readers import reading
from dpsvm_fast.exceptions import SchemaError, TableError
from oracles.table_files import TEXT, error_of, schema, stored, wide, written

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes | str, str], Path]:
    return partial(written, tmp_path)


def test_npz(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((300, 7)), rng.integers(0, 2, 300)
    of = wide()
    for name, rows in (("c", X), ("f", np.asfortranarray(X)), ("half", X.astype(np.float16))):
        for save in (np.savez, np.savez_compressed):
            save(tmp_path / f"{name}.npz", X=rows, y=y)
            table = open_table(tmp_path / f"{name}.npz", of)
            np.testing.assert_array_equal(table.read()[0], rows.astype(np.float32))
            assert table.read()[1].tolist() == y.tolist()
            assert (table.n_rows, table.n_features) == (300, 7)
    assert table.schema.to_dict()["n_features"] == 7
    np.savez(tmp_path / "text.npz", X=X, y=np.array(["a", "b"])[y])
    text = wide(classes=["a", "b"])
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
    ("arrays", "place"),
    [
        *(
            ({"X": np.zeros((2, 3))}, "no array"),
            ({"data": [0.0]}, "no array"),
        ),
        *(({"X": np.zeros(3), "y": [0]}, "X"), ({"X": np.zeros((2, 3)), "y": [0, 1, 0]}, "y")),
        *(({"X": [["s3cr3t"]], "y": [0]}, "X"), ({"X": [[object()]], "y": [0]}, "X")),
        ({"X": [[np.nan]], "y": [0]}, "row 1, column 'x0'"),
        ({"X": [[0.0], [1e300]], "y": [0, 1]}, "row 2, column 'x0'"),
        ({"X": [[0.0], [1.0]], "y": [0, 7]}, "row 2, column 'label'"),
    ],
)
def test_wrong_npz(tmp_path: Path, arrays: dict[str, Any], place: str) -> None:
    path = tmp_path / "t.npz"
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})
    assert error_of(path, wide()).startswith(f"t.npz: {place}")
    np.savez(path, X=np.zeros((2, 3)), y=[0, 1])
    assert "3" in error_of(path, wide(n_features=2))


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


columnar = pytest.mark.parametrize("name", ["t.parquet", "t.arrow"])


@columnar
def test_types_of_columns(tmp_path: Path, name: str) -> None:
    table = typed_table()
    if name == "t.parquet" and int(pa.__version__.partition(".")[0]) < 15:
        # Older versions write no halves to Parquet.
        table = table.set_column(3, "half", pa.array([0.5, 1, 2], pa.float32()))
    path = stored(table, tmp_path / name)
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
        text = error_of(stored(table, tmp_path / name), of)
        assert text.startswith(f"{name}: column 'c' has type ")
    twice = pa.Table.from_arrays([day, day, day], names=["y", "a", "a"])
    assert "duplicate column name 'a'" in error_of(stored(twice, tmp_path / name))


@columnar
def test_wrong_cells_of_typed_columns(tmp_path: Path, name: str) -> None:
    def refused(**columns: Any) -> str:
        table = pa.table({"y": ["no", "yes"], "age": [1.0, 2.0], "work": ["p", "q"]} | columns)
        return error_of(stored(table, tmp_path / name))

    assert "row 2, column 'age': a missing value" in refused(age=[1.0, None])
    assert "row 1, column 'age': a missing value" in refused(age=[float("nan"), 1.0])
    assert "row 2, column 'age': not a finite single-precision number" in refused(age=[1.0, 1e200])
    assert "row 2, column 'work': a value outside" in refused(work=["p", "s3cr3t"])
    assert "row 1, column 'work': a missing value" in refused(work=[None, "p"])
    assert "row 2, column 'y': a label that is not one" in refused(y=["no", "s3cr3t"])
    assert "row 1, column 'y': no label" in refused(y=[None, "no"])
    text = refused(extra=[1, 2])
    assert "s.toml does not declare column 'extra'" in text


@columnar
def test_typed_files_that_are_damaged(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    words = np.array(["p", "q"])[rng.integers(0, 2, 3000)]
    table = pa.table({"y": np.repeat("no", 3000), "age": rng.random(3000), "work": words})
    path = stored(table, tmp_path / name)
    content = path.read_bytes()
    for cut in (1, 4, len(content) // 3, len(content) // 2, -9, -1):
        path.write_bytes(content[:cut])
        assert error_of(path) == f"{name}: the file is damaged or cut off; copy it again"
    path.write_bytes(b"FEA1" + content)
    assert "damaged" in error_of(path) or "version 1 of Feather" in error_of(path)


def test_a_damaged_arrow_file_is_not_followed(tmp_path: Path) -> None:
    """Offsets of text that point outside of the file."""
    table = pa.table({"y": ["no"], "age": [1.0], "work": ["p" * 291]})
    path = stored(table, tmp_path / "t.arrow")
    content = path.read_bytes()
    offsets = np.array([0, 291], dtype="<i4").tobytes()
    # The last one: the length of the text stands among the facts before it, too.
    place = content.rindex(offsets)
    changed = np.array([0, 2**30], dtype="<i4").tobytes()
    path.write_bytes(content[:place] + changed + content[place + 8 :])
    assert "damaged" in error_of(path)


@columnar
def test_names_that_are_no_text(tmp_path: Path, name: str) -> None:
    path = stored(pa.table({"y": ["no"], "age": [1.0], "w\u00f6rk": ["p"]}), tmp_path / name)
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
    text = error_of(tmp_path / "t.npz", wide(), labelled=False)
    assert text == "t.npz: the file is damaged or cut off; copy it again"


def test_a_traceback_of_a_damaged_file_does_not_show_the_error_with_the_cell() -> None:
    with pytest.raises(TableError) as caught, reading("t.npz", ValueError):
        raise ValueError("s3cr3t")
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))


def test_sparse_text(write: Any) -> None:
    of = wide(classes=["a", "b"], n_features=4)
    X, y = open_table(write("a 2:5 1:.5\n\nb # note\n", "t.txt"), of).read()
    assert isinstance(X, sparse.csr_matrix)
    assert X.toarray().tolist() == [[0.5, 5, 0, 0], [0, 0, 0, 0]]
    assert y.tolist() == ["a", "b"]
    bare = open_table(write("1:2\n7 3:1\n", "t.svm"), of, labelled=False).read()
    assert bare[0].toarray().tolist() == [[2, 0, 0, 0], [0, 0, 1, 0]]
    zero = wide(classes=["a", "b"], n_features=4, zero_based=True)
    packed = write(gzip.compress(b"a 0:1 3:2\n"), "t.svm.gz")
    assert open_table(packed, zero).read()[0].toarray().tolist() == [[1, 0, 0, 2]]


@pytest.mark.parametrize(
    ("text", "row"),
    [
        *(("a 5:1", 1), ("a 1:1\na 0:1", 2), ("a 1:2 1:3", 1), ("1:2", 1), ("a 1:s3cr3t", 1)),
        *(("a 1:nan", 1), ("a 1.0:3", 1), ("a 1e0:3", 1), ("a 1:0x10", 1), ("a 1:1_0", 1)),
        *(("a 1:-inf", 1), ("a 1: :2", 1), ("a qid:3 1:2", 1), ("a 1:1e39", 1)),
        *(("a 1:1\n\ns3cr3t 1:1", 2), ("a\x00 1:1", 1), ("a 1:1\x002:1", 1)),
        ("a 99999999999999999999:1", 1),
    ],
)
def test_wrong_sparse_text(write: Any, text: str, row: int) -> None:
    of = wide(classes=["a", "b"], n_features=4)
    assert re.match(rf"t\.svm: row {row}\b", error_of(write(text, "t.svm"), of))


def test_sparse_text_needs_a_width(write: Any) -> None:
    path = write("1 1:1\n", "t.svm")
    assert "n_features: missing" in error_of(path, wide())
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
        monkeypatch.setattr("dpsvm_fast.data.readers.LIBSVM_BLOCK", block)
        table = open_table(path, wide(n_features=30))
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
    monkeypatch.setattr("dpsvm_fast.data.readers.LIBSVM_BLOCK", 5)
    of = wide(n_features=4)
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
    for name in ("t.parquet", "t.arrow"):
        with pytest.raises(ImportError, match="pyarrow"):
            open_table(write(TEXT, name), schema())
    assert open_table(write(TEXT), schema()).read()[0].shape == (2, 3)
    of = wide(n_features=2)
    assert open_table(write("1 1:1\n", "t.svm"), of).read()[0].shape == (1, 2)
    np.savez(write("", "t.npz"), X=np.zeros((2, 2)), y=[0, 1])
    assert open_table(write("1 1:1\n", "t.svm").with_name("t.npz"), of).read()[0].shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("t.csv", ["age = { bounds = [] }", '"zip code" = { bounds = [] }']),
        (
            "t.parquet",
            ["age = { bounds = [] }", "work = { categories = [] }", "day = { dates = [] }"],
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
        stored(pa.table({**table, "day": pa.array([0], pa.date32())}), path)
    text = TableSchema.template(path, target=None if name == "t.npz" else "y")
    assert set(lines) <= set(text.splitlines())
    assert "s3cr3t" not in text
    if sys.version_info >= (3, 11):
        (tmp_path / "s.toml").write_text(text)
        with pytest.raises(SchemaError, match=r"^s\.toml: "):
            TableSchema.load(tmp_path / "s.toml")
    if name != "t.npz":
        with pytest.raises(TableError, match="target: "):
            TableSchema.template(path, target="z")
