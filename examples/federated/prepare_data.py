"""Write the files of three pretended hospitals, and records that nobody trained on.

    python prepare_data.py FOLDER

The records are scikit-learn's copy of the Wisconsin breast cancer data, which comes with the
package: nothing is downloaded. The hospitals differ in size and in how many of their records are
malignant.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from hospitals import columns
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

SIZES = {"hospital_a": 200, "hospital_b": 150, "hospital_c": 100}
# Share of malignant records in each hospital's file; what is left is for judging.
MALIGNANT = {"hospital_a": 0.30, "hospital_b": 0.40, "hospital_c": 0.50}


def table() -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """All records, columns in the agreed order."""
    data = load_breast_cancer()
    order = [list(data.feature_names).index(name) for name in columns.COLUMNS]
    return data.data[:, order], np.where(data.target == 0, "malignant", "benign")


def shares(labels: NDArray[np.str_]) -> dict[str, NDArray[np.int64]]:
    """Which records go where: disjoint, and fixed."""
    shuffle = np.random.default_rng(0).permutation
    left = {name: list(shuffle(np.flatnonzero(labels == name))) for name in columns.CLASSES}
    taken: dict[str, NDArray[np.int64]] = {}
    for hospital, size in SIZES.items():
        malignant = round(size * MALIGNANT[hospital])
        rows = [left["malignant"].pop() for _ in range(malignant)]
        rows += [left["benign"].pop() for _ in range(size - malignant)]
        taken[hospital] = shuffle(np.array(rows, dtype=np.int64))
    taken["held_out"] = np.array(left["malignant"] + left["benign"], dtype=np.int64)
    return taken


def main(arguments: list[str]) -> None:
    """Write one file a hospital."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    values, labels = table()
    for name, rows in shares(labels).items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow([columns.LABEL, *columns.COLUMNS])
            writer.writerows([labels[row], *map(repr, values[row].tolist())] for row in rows)
        print(f"{name}.csv: {len(rows)} records")


if __name__ == "__main__":
    main(sys.argv[1:])
