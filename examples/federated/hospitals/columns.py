"""What the hospitals agreed on about a record: columns, their order, their public ranges.

The ranges come from what the instrument can plausibly report, written down before anybody looked at
data. A range taken from the data would itself say something about a patient, and nothing would
account for it. Values outside are moved to the end of the range.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LABEL = "diagnosis"
CLASSES = ("benign", "malignant")

# Cell nuclei in a digitised fine-needle aspirate: mean, standard error and worst of ten measures.
MEASURES: dict[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    "radius": ((5.0, 25.0), (0.0, 1.5), (5.0, 35.0)),
    "texture": ((10.0, 30.0), (0.0, 3.0), (10.0, 45.0)),
    "perimeter": ((40.0, 170.0), (0.0, 10.0), (50.0, 230.0)),
    "area": ((100.0, 1800.0), (0.0, 150.0), (100.0, 3000.0)),
    "smoothness": ((0.05, 0.15), (0.0, 0.02), (0.05, 0.2)),
    "compactness": ((0.0, 0.3), (0.0, 0.1), (0.0, 0.8)),
    "concavity": ((0.0, 0.4), (0.0, 0.15), (0.0, 1.0)),
    "concave points": ((0.0, 0.2), (0.0, 0.04), (0.0, 0.3)),
    "symmetry": ((0.1, 0.3), (0.0, 0.06), (0.1, 0.5)),
    "fractal dimension": ((0.05, 0.09), (0.0, 0.01), (0.05, 0.15)),
}
KINDS = ("mean", "error", "worst")
COLUMNS = tuple(
    f"{measure} error" if kind == "error" else f"{kind} {measure}"
    for kind in KINDS
    for measure in MEASURES
)
RANGES = tuple(ranges[KINDS.index(kind)] for kind in KINDS for ranges in MEASURES.values())


def scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of Euclidean norm around 1, by the public ranges alone.

    Parameters
    ----------
    values : array of shape (n_records, n_columns)
        In the columns' own units, finite.

    Returns
    -------
    array of shape (n_records, n_columns)
        Each range mapped to [-1, 1], values outside moved to its ends, all divided by half the
        square root of the number of columns. The specification's ``data_norm`` is 1: a row that is
        longer is shortened to 1 where it is used.
    """
    low, high = np.array(RANGES).T
    centred = (2.0 * values - (low + high)) / (high - low)
    return np.clip(centred, -1.0, 1.0) / (0.5 * np.sqrt(len(COLUMNS)))


def read(file: Path) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Scaled records and labels of one hospital's file.

    Parameters
    ----------
    file : Path
        Comma-separated; its first line names the label and the columns, in the agreed order.

    Raises
    ------
    ValueError
        Another header, a cell that is not a finite number, or an unknown label. The text names no
        value.
    """
    with file.open(newline="", encoding="utf-8") as stream:
        header, *lines = csv.reader(stream)
    if tuple(header) != (LABEL, *COLUMNS):
        raise ValueError("the header is not the one that was agreed on")
    if any(len(line) != len(header) for line in lines):
        raise ValueError("a line has another number of cells than the header")
    try:
        values = np.array([[float(cell) for cell in line[1:]] for line in lines], dtype=np.float64)
    except ValueError:
        raise ValueError("a cell is not a number") from None
    labels = np.array([line[0] for line in lines])
    if not np.isfinite(values).all() or not np.isin(labels, CLASSES).all():
        raise ValueError("a value is not finite, or a label is unknown")
    return scaled(values.reshape(len(lines), len(COLUMNS))), labels
