"""What an import brings in: nothing optional, and no warning."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dpsvm_fast

OPTIONAL = (
    "click",
    "dask",
    "distributed",
    "flwr",
    "matplotlib",
    "mpmath",
    "onnx",
    "onnxruntime",
    "pandas",
    "polars",
    "pyarrow",
    "rich",
    "skops",
)
# scikit-learn imports pandas and rich where they are installed, and pandas imports pyarrow.
BLOCKED = """
import sys

class Blocked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in ("pandas", "rich"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked)
"""
EVERYTHING = "\n".join(
    [
        "from dpsvm_fast import *",
        *(f"import dpsvm_fast.{module}" for module in sorted(dpsvm_fast._MODULES)),
        "import numpy as np",
        "X = np.eye(8).repeat(8, axis=0)",
        "model = PrivateLinearSVC(bounds=(0, 1), classes=(0, 1)).fit(X, np.arange(64) % 2)",
        "model.predict(X), str(model.privacy_), model.privacy_.to_json()",
    ]
)


def imported(code: str) -> list[str]:
    """The optional packages that ``code`` brings in, warnings being errors."""
    report = f"print(*(name for name in {OPTIONAL} if name in sys.modules))"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{BLOCKED}{code}\n{report}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.split()


def test_nothing_optional_is_imported() -> None:
    # scikit-learn before 1.8 imports pyarrow itself.
    theirs = imported("import sklearn.pipeline, sklearn.svm, sklearn.utils.fixes")
    assert set(theirs) <= {"pyarrow"}
    assert imported(EVERYTHING) == theirs


def test_the_check_sees_what_is_imported() -> None:
    pytest.importorskip("mpmath")
    assert imported("import mpmath") == ["mpmath"]
