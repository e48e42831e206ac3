"""Partitions: what each source hands over, what it keeps, and what is refused before a fit."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dpsvm_fast import PrivatePCA
from dpsvm_fast.data import Partitions
from dpsvm_fast.data.partitions import FileRows
from dpsvm_fast.exceptions import InvalidParameterError

Array = NDArray[np.float64]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(103, 4))
Y = RNG.integers(0, 3, 103)


def joined(partitions: Partitions, *, pickled: bool = False) -> tuple[Any, Any]:
    """All rows and labels, each loader called twice and from a pickle of it."""
    parts = []
    for loader in partitions.loaders:
        again = pickle.loads(pickle.dumps(loader)) if pickled else loader
        (first, labels), (second, _) = again(), loader()
        dense = [m.toarray() if sparse.issparse(m) else np.asarray(m) for m in (first, second)]
        assert np.array_equal(*dense, equal_nan=True)
        parts.append((dense[0], labels))
    rows = np.concatenate([part[0] for part in parts])
    return rows, None if parts[0][1] is None else np.concatenate([part[1] for part in parts])


def check(partitions: Partitions, rows: Any = X, labels: Any = Y) -> None:
    """Whether the partitions are these rows, here and in another process."""
    for pickled in (False, True):
        found, y = joined(partitions, pickled=pickled)
        assert np.array_equal(found, rows)
        assert (y is None) if labels is None else np.array_equal(y, labels)
    assert partitions.n_features == rows.shape[1]
    assert partitions.labelled is (labels is not None)


@pytest.mark.parametrize("step", [1, 10, 103, 1000])
def test_arrays_are_cut(step: int) -> None:
    parts = Partitions.from_arrays(X, Y, rows_per_partition=step)
    assert len(parts) == -(-103 // step)
    assert parts.n_rows == 103
    check(parts)
    check(Partitions.from_arrays(X, rows_per_partition=step), labels=None)


def test_only_the_rows_of_a_partition_are_pickled() -> None:
    wide = RNG.normal(size=(1000, 50))
    parts = Partitions.from_arrays(wide, np.zeros(1000), rows_per_partition=10)
    assert len(pickle.dumps(parts.loaders[3])) < 10 * 50 * 8 + 10 * 8 + 2000
    rows = sparse.random(1000, 50, density=0.5, format="csr", random_state=0)
    parts = Partitions.from_arrays(rows, rows_per_partition=10)
    assert len(pickle.dumps(parts.loaders[3])) < 10 * 25 * 12 * 2 + 3000


def test_sparse_rows_stay_sparse() -> None:
    rows = sparse.random(50, 6, density=0.3, format="coo", random_state=0)
    parts = Partitions.from_arrays(rows, np.arange(50), rows_per_partition=20)
    assert parts.sparse
    assert all(sparse.issparse(loader()[0]) for loader in parts.loaders)
    check(parts, rows.toarray(), np.arange(50))


def views(path: Path) -> dict[str, tuple[Any, Array]]:
    """Memory maps of the same numbers in several forms, and what they hold."""
    np.save(path / "rows.npy", X)
    with open(path / "raw.bin", "wb") as file:
        file.write(b"a header of odd size")
        file.write(X.astype(np.float32).tobytes())
    whole = np.load(path / "rows.npy", mmap_mode="r")
    raw = np.memmap(path / "raw.bin", np.float32, "r", 20, X.shape)
    np.save(path / "columns.npy", np.asfortranarray(X))
    columns = np.load(path / "columns.npy", mmap_mode="r")
    return {
        "whole": (whole, X),
        "view of a view": (whole[5:][3:90, 1:3], X[8:95, 1:3]),
        "every other row": (whole[1::2], X[1::2]),
        "header": (raw[7:], X.astype(np.float32)[7:].astype(np.float64)),
        "columns": (columns, X),
        "transposed": (np.load(path / "rows.npy", mmap_mode="r").T, X.T),
    }


@pytest.mark.parametrize(
    "form", ["whole", "view of a view", "every other row", "header", "columns", "transposed"]
)
def test_a_memory_map_is_kept_as_the_name_of_its_file(tmp_path: Path, form: str) -> None:
    mapped, rows = views(tmp_path)[form]
    labels = np.arange(rows.shape[0])
    parts = Partitions.from_arrays(mapped, labels, rows_per_partition=17)
    check(parts, rows, labels)
    loaders: list[Any] = list(parts.loaders)
    assert all(isinstance(loader.parts[0].rows, FileRows) for loader in loaders)
    # Whatever the size of the file.
    assert len(pickle.dumps(loaders[0].parts[0])) < 600


def test_a_map_backwards_is_an_array_like_any_other(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", X)
    backwards = np.load(tmp_path / "rows.npy", mmap_mode="r")[::-1]
    check(Partitions.from_arrays(backwards, Y), X[::-1], Y)


def parquet_files(path: Path, dtype: type = np.float64) -> list[Path]:
    """Two files with row groups of at most 20 rows."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = np.array(["no", "perhaps", "yes"])[Y]
    found = []
    for k, rows in enumerate((slice(0, 60), slice(60, 103))):
        columns = {f"x{j}": X[rows, j].astype(dtype) for j in range(4)}
        columns["answer"] = pa.array(names[rows]).dictionary_encode()
        found.append(path / f"part{k}.parquet")
        pq.write_table(pa.table(columns), found[-1], row_group_size=20)
    return found


@pytest.mark.parametrize("source", ["folder", "files", "pattern"])
def test_row_groups_are_partitions(tmp_path: Path, source: str) -> None:
    files = parquet_files(tmp_path)
    paths: dict[str, Any] = {
        "folder": tmp_path,
        "files": files,
        "pattern": str(tmp_path / "part*.parquet"),
    }
    parts = Partitions.from_parquet(paths[source], label="answer")
    assert len(parts) == 6
    assert parts.n_rows == 103
    assert parts.feature_names == ("x0", "x1", "x2", "x3")
    check(parts, X, np.array(["no", "perhaps", "yes"])[Y])
    check(Partitions.from_parquet(files, label=None, features=["x2", "x0"]), X[:, [2, 0]], None)


def test_tables_and_arrow_files(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({f"x{j}": X[:, j] for j in range(4)} | {"y": Y})
    parts = Partitions.from_arrow(table, label="y", rows_per_partition=25)
    assert (len(parts), parts.n_rows) == (5, 103)
    check(parts)
    assert len(pickle.dumps(parts.loaders[0])) < 25 * 5 * 8 + 3000
    path = tmp_path / "rows.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=30)
    parts = Partitions.from_arrow(path, label="y")
    assert (len(parts), parts.n_rows) == (4, None)
    check(parts)
    check(Partitions.from_arrow(table.to_batches()[0], label="y"))
    with pytest.raises(TypeError, match="write a stream"):
        Partitions.from_arrow(table.to_reader(), label="y")


def test_missing_numbers_come_as_nan(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": pa.array([1, None, 3]), "y": [0, 1, 0]})
    rows, _ = Partitions.from_arrow(table, label="y").loaders[0]()
    assert np.array_equal(rows, [[1.0], [np.nan], [3.0]], equal_nan=True)


def test_blocks_of_dask_arrays() -> None:
    da = pytest.importorskip("dask.array")
    blocks = da.from_array(X, chunks=(30, 3))
    check(Partitions.from_dask(blocks, da.from_array(Y, chunks=30)))
    parts = Partitions.from_dask(blocks)
    assert (len(parts), parts.n_rows, parts.sparse) == (4, 103, False)
    # Unknown sizes of blocks.
    some = blocks[blocks[:, 0] > 0]
    parts = Partitions.from_dask(some, da.from_array(Y, chunks=30)[blocks[:, 0] > 0])
    assert parts.n_rows is None
    check(parts, X[X[:, 0] > 0], Y[X[:, 0] > 0])
    compressed = blocks.rechunk((30, 4)).map_blocks(sparse.csr_matrix)
    parts = Partitions.from_dask(compressed, da.from_array(Y, chunks=30))
    assert parts.sparse
    check(parts)
    with pytest.raises(ValueError, match="as many blocks"):
        Partitions.from_dask(blocks, da.from_array(Y, chunks=20))
    with pytest.raises(TypeError, match="expected a Dask collection"):
        Partitions.from_dask(X)


def test_blocks_of_dask_frames() -> None:
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")).assign(y=Y), npartitions=3)
    parts = Partitions.from_dask(frame[list("abcd")], frame["y"], n_rows=103)
    assert (len(parts), parts.n_rows, parts.feature_names) == (3, 103, ("a", "b", "c", "d"))
    check(parts)


@pytest.mark.parametrize(
    "call",
    [
        *(lambda: Partitions.from_loaders([1], n_features=1), lambda: Partitions.from_arrays(X[0])),
        lambda: Partitions.from_loaders([], n_features=1),
        lambda: Partitions.from_loaders([list], n_features=0),
        lambda: Partitions.from_arrays(X, Y[:-1]),
        lambda: Partitions.from_arrays(X, rows_per_partition=0),
    ],
)
def test_what_is_no_partition_is_refused(call: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        call()


def test_nothing_shows_rows() -> None:
    secret = np.full((3, 2), 12345.0)
    parts = Partitions.from_arrays(secret, np.full(3, 12345))
    for shown in (repr(parts), repr(parts.loaders[0]), str(parts), str(parts.loaders)):
        assert "12345" not in shown


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_rows_under_a_transformer(form: Any) -> None:
    rows = form(X)
    pca = PrivatePCA(2, data_norm=2.0).fit(rows)
    empty = [lambda: (rows[:0], Y[:0])]
    cut = Partitions.from_arrays(rows, Y, rows_per_partition=20)
    parts = cut.transformed(pca)
    assert (parts.n_features, parts.sparse, parts.n_rows) == (2, False, 103)
    check(parts, pca.transform(rows), Y)
    unit = cut.transformed(Normalizer())
    assert unit.sparse is sparse.issparse(rows)
    none = Partitions.from_loaders(empty, n_features=4, sparse=unit.sparse).transformed(pca)
    assert none.loaders[0]()[0].shape == (0, 2)


def test_what_learned_without_privacy_transforms_nothing() -> None:
    cut = Partitions.from_arrays(X, Y)
    for transformer in (StandardScaler().fit(X), make_pipeline(StandardScaler()).fit(X), None):
        with pytest.raises(InvalidParameterError, match="learns nothing"):
            cut.transformed(transformer)
