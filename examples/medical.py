"""A diagnosis from measured cells: what may be published of a classifier, and what that costs.

    python examples/medical.py [FIGURE]

569 breast tumours, 30 measurements of each, malignant or benign. One patient more or less must not
show in what is published. Accuracy on rows left out is not protected: it may be printed, and drawn
against epsilon over many fits, because these data are public. Where the variable DPSVM_DATA names a
folder with dermatology.npz, six skin diseases follow.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import recall_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from dpsvm_fast import PrivateLinearSVC

EPSILON, DELTA = 1.0, 1e-5
# Public: round numbers above the ranges in the description that the data came with. Never the
# largest values of the table in hand; without a description, what the instrument can show.
MEAN = [30, 40, 200, 3000, 0.2, 0.4, 0.5, 0.3, 0.4, 0.1]
ERROR = [3, 5, 30, 600, 0.04, 0.2, 0.4, 0.06, 0.08, 0.03]
WORST = [40, 50, 300, 5000, 0.3, 2, 2, 0.3, 0.7, 0.3]


def compared(X: Any, y: Any, highest: Any, classes: Sequence[int]) -> tuple[Any, ...]:
    """Fit, print what was promised, and score beside both ends of the scale."""
    X_train, X_test, y_train, y_test = parts = train_test_split(
        X, y, test_size=0.3, random_state=0, stratify=y
    )
    bounds = (np.zeros(X.shape[1]), np.array(highest, dtype=float))
    model = PrivateLinearSVC(EPSILON, DELTA, bounds=bounds, classes=classes).fit(X_train, y_train)
    print(str(model.privacy_).split("\n\n")[0])
    exact = make_pipeline(StandardScaler(), LinearSVC(random_state=0)).fit(X_train, y_train)
    print(f"\naccuracy, private: {model.score(X_test, y_test):.3f}")
    print(f"accuracy, not private: {exact.score(X_test, y_test):.3f}")
    print(f"accuracy, always the largest class: {np.bincount(y_test).max() / len(y_test):.3f}")
    return model, exact, *parts


def main(arguments: Sequence[str] = ()) -> None:
    """Tumours with the figure, then skin diseases where the data are."""
    X, y = load_breast_cancer(return_X_y=True)
    model, exact, X_train, X_test, y_train, y_test = compared(X, y, MEAN + ERROR + WORST, (0, 1))
    for name, fitted in (("private", model), ("not private", exact)):
        found = recall_score(y_test, fitted.predict(X_test), pos_label=0)
        print(f"malignant ones found, {name}: {found:.3f}")
    if arguments:
        from dpsvm_fast.plotting.displays import PrivacyUtilityDisplay

        rows = {"X_test": X_test, "y_test": y_test, "epsilons": [0.25, 0.5, 1, 2, 4]}
        display = PrivacyUtilityDisplay.from_estimator(
            model, X_train, y_train, **rows, non_private=exact
        )
        display.figure_.savefig(arguments[0], dpi=120)
        print(f"saved {arguments[0]}")

    file = Path(os.environ.get("DPSVM_DATA", "")) / "dermatology.npz"
    if file.is_file():
        print("\nSix skin diseases")
        with np.load(file) as data:
            X, y = data["X"].astype(float), data["y"]
        # 33 findings are graded 0 to 3 by the protocol; the last column is the age.
        compared(X, y, [3] * 33 + [100], range(6))


if __name__ == "__main__":
    main(sys.argv[1:])
