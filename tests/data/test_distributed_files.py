"""Fits over partitions some of which are kept, in memory or mapped in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from test_distributed_fit import DESCENT, KERNEL, LINEAR, SPARSE, X, Y

from dpsvm_fast.data import Partitions, executors, fit
from dpsvm_fast.exceptions import InvalidParameterError, PartitionError
from oracles.synchronous_cluster import Cluster

pytestmark = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


@pytest.mark.sampled
@pytest.mark.parametrize("kept", [1, 9, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 2))])
@pytest.mark.parametrize(
    "estimator", [LINEAR, KERNEL, DESCENT], ids=["linear", "kernel", "descent"]
)
def test_some_partitions_may_be_resident(estimator: Any, kept: int) -> None:
    parts = Partitions.from_arrays(X, Y, rows_per_partition=150)
    some, none = (clone(estimator).set_params(random_state=5) for _ in range(2))
    fit(some, parts, resident=kept)
    fit(none, parts)
    assert np.array_equal(some.coef_, none.coef_)
    assert not executors._KEPT


@pytest.mark.sampled
@pytest.mark.parametrize("kept", [0, 2])
@pytest.mark.parametrize("whiten", [True, False])
@pytest.mark.parametrize("estimator", [LINEAR, DESCENT], ids=["linear", "descent"])
def test_mapped_rows_in_a_folder_release_the_same(
    tmp_path: Path, estimator: Any, whiten: bool, kept: int
) -> None:
    parts = Partitions.from_arrays(X, Y, rows_per_partition=150)
    there, here = (clone(estimator).set_params(random_state=5) for _ in range(2))
    if estimator is LINEAR:
        there.set_params(whiten=whiten)
        here.set_params(whiten=whiten)
    fit(there, parts, scratch=tmp_path, resident=kept)
    fit(here, parts)
    assert np.abs(there.coef_ - here.coef_).max() <= 1e-5 * np.abs(here.coef_).max()
    n_files = -(-(len(parts) - kept) // executors.PARTITIONS_OF_FILE)
    assert len(list(tmp_path.iterdir())) == 2 * n_files
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
    written = np.concatenate([np.fromfile(one, np.float32) for one in tmp_path.glob("entries-*")])
    # The automatic estimators append the constant that keeps the length of rows.
    width = X.shape[1] + (estimator is LINEAR)
    assert written.size == len(X[150 * kept :]) * width
    assert np.linalg.norm(written.reshape(-1, width).astype(float), axis=1).max() <= 1.0
    assert not executors._KEPT


def test_batches_of_partitions_in_files_are_those_of_partitions(tmp_path: Path) -> None:
    parts = Partitions.from_arrays(X, Y, rows_per_partition=70)
    model = clone(DESCENT).set_params(random_state=5, sampling_rate=0.3, optimizer="sgd", n_steps=9)
    folders = [tmp_path / name for name in ("files", "memory")]
    for folder in folders:
        folder.mkdir()
    there = fit(clone(model), parts, scratch=folders[0])
    here = fit(clone(model), parts, scratch=folders[1], resident=True)
    assert np.array_equal(there.coef_, here.coef_)


@pytest.mark.parametrize("damage", ["longer", "finer", "nan", "class", "cut"])
def test_records_in_files_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    append = executors.RecordFile.append

    def damaged(self: executors.RecordFile, *given: Any) -> None:
        append(self, *given)
        path = self.classes if damage == "class" else self.entries
        values = np.fromfile(path, np.uint32 if damage == "class" else np.float32)
        if damage == "cut":
            values = values[:-1]
        else:
            values[-1] = {"longer": 1.5, "finer": 2.0**-21, "nan": np.nan, "class": 9}[damage]
        values.tofile(path)

    monkeypatch.setattr(executors.RecordFile, "append", damaged)
    model = clone(LINEAR)
    with pytest.raises(PartitionError, match=r"could not be summed: (ValueError|OSError)"):
        fit(model, Partitions.from_arrays(X, Y), scratch=tmp_path)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("estimator", [LINEAR, DESCENT], ids=["linear", "descent"])
def test_how_many_partitions_are_in_files_changes_no_bit(tmp_path: Path, estimator: Any) -> None:
    models = []
    for kept, size, threads in ((0, 150, 1), (2, 150, 3), (9, 150, 1), (1, 10_000, 2), (0, 70, 2)):
        folder = tmp_path / f"{kept}-{size}"
        folder.mkdir()
        parts = Partitions.from_arrays(X, Y, rows_per_partition=size)
        model = clone(estimator).set_params(random_state=5)
        models.append(fit(model, parts, scratch=folder, resident=kept, n_threads=threads))
    assert all(np.array_equal(model.coef_, models[0].coef_) for model in models)


def test_mapped_rows_are_not_written_where_they_are_no_use(tmp_path: Path) -> None:
    for estimator, rows, kept in ((LINEAR, X, 9), (LINEAR, SPARSE, 0), (KERNEL, X, 0)):
        parts = Partitions.from_arrays(rows, Y, rows_per_partition=150)
        fit(clone(estimator), parts, scratch=tmp_path, resident=kept)
        assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_used_ends_the_fit(tmp_path: Path) -> None:
    parts = Partitions.from_arrays(X, Y, rows_per_partition=150)
    with pytest.raises(InvalidParameterError, match="scratch"):
        fit(clone(LINEAR), parts, client=Cluster(), scratch=tmp_path)
    model = clone(LINEAR)
    with pytest.raises(PartitionError, match="partition 0: its records cannot be written"):
        fit(model, parts, scratch=tmp_path / "absent")
    assert not hasattr(model, "coef_")
    with pytest.raises(InvalidParameterError, match="resident"):
        fit(clone(LINEAR), parts, resident=-1)
