"""Slips of the pen in Python: files under a wrong name, habits of other libraries."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import VotingClassifier

from dpsvm_fast import PrivacyLedger, PrivateLinearSVC
from dpsvm_fast.data import TableSchema, open_table
from dpsvm_fast.exceptions import TableError

SCHEMA = TableSchema.from_dict(
    {"target": "y", "classes": ["a", "b"], "columns": {"x": {"bounds": [0, 1]}}}
)
TEXT = "x,y\n0.25,a\n0.5,b\n"
X, Y = np.array([[0.0, 1.0], [1.0, 0.0]] * 20), np.array(["a", "b"] * 20)


def svc(**settings: object) -> PrivateLinearSVC:
    return PrivateLinearSVC(**({"bounds": (0, 1), "classes": ["a", "b"]} | settings))


class TestFilesOfAnotherKind:
    def test_the_encoding_that_is_advised_reads_the_file(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow")
        (tmp_path / "t.csv").write_bytes(TEXT.encode("utf-16"))
        schema = TableSchema.from_dict(SCHEMA.to_dict() | {"csv": {"encoding": "utf-16"}})
        rows, labels = open_table(tmp_path / "t.csv", schema).read()
        assert rows.tolist() == [[0.25], [0.5]]
        assert labels.tolist() == ["a", "b"]

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
    def test_pipes_are_no_files(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "t.csv")
        assert stat.S_ISFIFO((tmp_path / "t.csv").stat().st_mode)
        with pytest.raises(TableError, match=r"is a pipe or a device, .* write it to a file first"):
            open_table(tmp_path / "t.csv", SCHEMA)


class TestHabits:
    def test_codes_of_meta_estimators_are_explained(self) -> None:
        ledger = PrivacyLedger(4.0, 1e-5)
        with pytest.raises(ValueError, match=r"VotingClassifier.*give classes=range"):
            VotingClassifier([("one", svc(ledger=ledger))]).fit(X, Y)
        assert not ledger.history
        inside = svc(ledger=ledger, classes=range(2))
        assert set(VotingClassifier([("one", inside)]).fit(X, Y).predict(X)) <= {"a", "b"}
