"""Slips of the pen in Python: files under a wrong name, habits of other libraries."""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import VotingClassifier

from dpsvm_fast import InvalidParameterError, PrivacyLedger, PrivateLinearSVC
from dpsvm_fast.audit import audit
from dpsvm_fast.data import TableSchema, open_table
from dpsvm_fast.exceptions import TableError
from dpsvm_fast.persist import save_model
from dpsvm_fast.planning import plan_noise
from dpsvm_fast.plotting.displays import NoisePlanDisplay, PrivacyProfileDisplay

SCHEMA = TableSchema.from_dict(
    {"target": "y", "classes": ["a", "b"], "columns": {"x": {"bounds": [0, 1]}}}
)
TEXT = "x,y\n0.25,a\n0.5,b\n"
X, Y = np.array([[0.0, 1.0], [1.0, 0.0]] * 20), np.array(["a", "b"] * 20)


def svc(**settings: object) -> PrivateLinearSVC:
    return PrivateLinearSVC(**({"bounds": (0, 1), "classes": ["a", "b"]} | settings))


class TestFilesOfAnotherKind:
    @pytest.mark.parametrize(
        ("content", "hint"),
        [
            (gzip.compress(TEXT.encode(), mtime=0), "compressed: give it a name that ends in .gz"),
            (b"PK\x03\x04" + bytes(range(128, 200)), "spreadsheet or an archive: save it as CSV"),
            (b"PAR1" + bytes(range(128, 200)), "Parquet: give it a name that ends in .parquet"),
            (b"ARROW1" + bytes(range(128, 200)), "Arrow: give it a name that ends in .arrow"),
            (TEXT.encode("utf-16"), 'encoding = "utf-16"'),
            (TEXT.replace("x", "\xe9").encode("latin-1"), 'encoding = "latin-1"'),
        ],
        ids=["gzip", "zip", "parquet", "arrow", "utf-16", "latin-1"],
    )
    def test_are_told_by_their_beginning(self, tmp_path: Path, content: bytes, hint: str) -> None:
        pytest.importorskip("pyarrow")
        (tmp_path / "t.csv").write_bytes(content)
        with pytest.raises(TableError) as caught:
            open_table(tmp_path / "t.csv", SCHEMA)
        assert hint in str(caught.value)

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

    def test_arrays_of_objects_are_named(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "t.npz", X=X.astype(object), y=Y)
        with pytest.raises(TableError, match="X: got 2 dimensions of type object, expected num"):
            open_table(tmp_path / "t.npz", SCHEMA)


class TestHabits:
    def test_a_column_is_no_table(self) -> None:
        pandas = pytest.importorskip("pandas")
        with pytest.raises(ValueError, match="Pass a DataFrame"):
            svc().fit(pandas.Series(X[:, 0]), Y)

    def test_pairs_are_no_bounds(self) -> None:
        with pytest.raises(InvalidParameterError, match=r"\(lows, highs\), not a pair for each"):
            svc(bounds=[(0, 1), (0, 1)]).fit(X, Y)

    def test_codes_of_meta_estimators_are_explained(self) -> None:
        ledger = PrivacyLedger(4.0, 1e-5)
        with pytest.raises(ValueError, match=r"VotingClassifier.*give classes=range"):
            VotingClassifier([("one", svc(ledger=ledger))]).fit(X, Y)
        assert not ledger.history
        inside = svc(ledger=ledger, classes=range(2))
        assert set(VotingClassifier([("one", inside)]).fit(X, Y).predict(X)) <= {"a", "b"}

    def test_what_is_no_json_may_be_saved_otherwise(self, tmp_path: Path) -> None:
        model = CalibratedClassifierCV(svc(), cv=2).fit(X, Y)
        with pytest.raises(InvalidParameterError, match=r"saved as JSON; save it with joblib.dump"):
            save_model(model, tmp_path / "model.json")

    def test_an_audit_says_what_its_rows_look_like(self) -> None:
        wide = svc(bounds=([0, 0], [1, 1]))
        with pytest.raises(InvalidParameterError, match=r"\(low, high\) of numbers, or pair="):
            audit(wide, n_trials=100)

    def test_one_plan_may_be_drawn_without_brackets(self) -> None:
        pytest.importorskip("matplotlib").use("Agg")
        plan = plan_noise(svc(), 2, n_samples=1000)
        assert NoisePlanDisplay.from_plans(plan).plans == (plan,)

    def test_a_profile_is_that_of_a_statement(self) -> None:
        pytest.importorskip("matplotlib").use("Agg")
        with pytest.raises(TypeError, match=r"such as model.privacy_"):
            PrivacyProfileDisplay.from_statement(svc().fit(X, Y))  # type: ignore[arg-type]
