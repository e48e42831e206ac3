"""Income above 50,000 dollars or not, from a census: one-hot columns, 30,000 rows.

    python examples/census.py [TABLE]

TABLE is the file adult.data of the UCI repository, or its one-hot columns as an .npz file; without
it, adult.npz is looked for in the folder that the variable DPSVM_DATA names. Bounds, categories and
classes are declared in census.toml beside this script: a person from a country that no row names
would otherwise add a column, and be seen by it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import LinearSVC

from dpsvm_fast import PrivacyLedger, PrivateLinearSVC
from dpsvm_fast.data import TableSchema, open_table

SCHEMA = TableSchema.load(Path(__file__).with_name("census.toml"))
EPSILON, DELTA = 1.0, 1e-6


def read(file: Path) -> tuple[Any, Any]:
    """Features in the order of the schema, and the schema's classes."""
    if file.suffix != ".npz":
        return open_table(file, SCHEMA, format="csv").read()
    with np.load(file) as table:
        if tuple(table["feature_names"]) != SCHEMA.feature_names:
            raise SystemExit(f"{file}: its columns are not those of census.toml")
        return table["X"], np.array(SCHEMA.classes)[table["y"]]


def main(arguments: Sequence[str] = ()) -> None:
    """Train with half of the budget, and show that the rest is still there."""
    folder = os.environ.get("DPSVM_DATA")
    if not arguments and folder is None:
        raise SystemExit("census.py: name a table, or set DPSVM_DATA to the folder of adult.npz")
    X, y = read(Path(arguments[0]) if arguments else Path(str(folder)) / "adult.npz")
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=1 / 3, random_state=0)

    # The whole that may ever be published about these rows, by any number of people.
    ledger = PrivacyLedger(2.0 * EPSILON, 2.0 * DELTA)
    model = PrivateLinearSVC(
        EPSILON, DELTA, bounds=SCHEMA.bounds, classes=SCHEMA.classes, ledger=ledger
    ).fit(X_train, y_train)
    print(str(model.privacy_).split("\n\n")[0])
    print(f"\nepsilon left in the ledger: {ledger.remaining():.3f}")

    exact = make_pipeline(MaxAbsScaler(), LinearSVC(random_state=0)).fit(X_train, y_train)
    largest = DummyClassifier().fit(X_train, y_train)
    print(f"accuracy, private: {model.score(X_test, y_test):.3f}")
    print(f"accuracy, not private: {exact.score(X_test, y_test):.3f}")
    print(f"accuracy, always the largest class: {largest.score(X_test, y_test):.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
