"""Classes that only their shape tells apart: private ellipsoids of two features, drawn.

    python examples/ellipsoids.py [FILE]

A disc, a ring around it, and points beyond, all with the same mean: no linear model can tell them
apart. The picture is drawn from the released matrices alone: shaded where each class is predicted,
with a line at one Mahalanobis distance from each class, before its offset. Needs matplotlib.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from dpsvm_fast import PrivateGaussianMarginClassifier, PrivateLinearSVC
from dpsvm_fast.plotting.displays import EllipsoidDisplay

NORM = 2.0
# Where one class ends and the next begins, across the longer axis and the shorter one.
INNER, OUTER, ASPECT = 0.9, 1.5, 0.6


def main(arguments: Sequence[str] = ()) -> None:
    """Fit both models and save the picture."""
    file = arguments[0] if arguments else "ellipsoids.png"
    rng = np.random.default_rng(0)
    X = rng.uniform(-NORM / 2**0.5, NORM / 2**0.5, size=(12_000, 2))
    y = np.digitize(np.hypot(X[:, 0], X[:, 1] / ASPECT), [INNER, OUTER])
    train, test = slice(10_000), slice(10_000, None)

    # The bound of the rows' norm is public, and so are the three classes.
    model = PrivateGaussianMarginClassifier(1.0, 1e-6, data_norm=NORM, classes=range(3))
    model.fit(X[train], y[train])
    linear = PrivateLinearSVC(1.0, 1e-6, classes=range(3)).fit(X[train], y[train])
    print(f"accuracy, ellipsoids: {model.score(X[test], y[test]):.3f}")
    print(f"accuracy, linear: {linear.score(X[test], y[test]):.3f}")

    EllipsoidDisplay.from_estimator(model).figure_.savefig(file, dpi=120)
    print(f"saved {file}")


if __name__ == "__main__":
    main(sys.argv[1:])
