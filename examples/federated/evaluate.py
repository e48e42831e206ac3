"""Use the model that the server wrote: its share of right answers where nobody trained.

Usage: python evaluate.py MODEL FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from hospitals import columns


def main(arguments: list[str]) -> None:
    """Print the share of right answers."""
    rows, labels = columns.read(Path(arguments[1]))
    with np.load(arguments[0]) as model:
        scores = rows @ model["coef"].T + model["intercept"]
        # One score for two classes: the sign decides.
        answers = model["classes"][(scores[:, 0] > 0).astype(int)]
    print(f"right about {np.mean(answers == labels):.3f} of {len(labels)} records")


if __name__ == "__main__":
    main(sys.argv[1:])
