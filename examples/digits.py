"""Handwritten digits: a linear model, a kernel, and what each confuses, at one epsilon.

    python examples/digits.py [FIGURE]

Pixels of 0 to 16 and ten digits are public facts. The kernel is approximated by random features,
drawn without the data: they cost no budget. Both models are of the same rows, so their epsilons
compose. The figure counts the kernel's answers on rows left
out; these data are public, or the counts would have to be private too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC, LinearSVC

from dpsvm_fast import PrivacyLedger, PrivateKernelSVC, PrivateLinearSVC

EPSILON, DELTA = 2.0, 1e-5


def main(arguments: Sequence[str] = ()) -> None:
    """Fit both, score them beside their twins without noise, and draw."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

    ledger = PrivacyLedger(2 * EPSILON, DELTA)
    public = {"bounds": (0, 16), "classes": range(10), "ledger": ledger}
    linear = PrivateLinearSVC(EPSILON, DELTA, **public)
    kernel = PrivateKernelSVC(EPSILON, DELTA, **public)
    for name, private, exact in (
        ("linear", linear, LinearSVC(random_state=0)),
        ("kernel", kernel, SVC()),
    ):
        private.fit(X_train, y_train)
        # The exact models see pixels of the same range and without bounds.
        exact.fit(X_train / 16, y_train)
        print(f"accuracy, {name}, private: {private.score(X_test, y_test):.3f}")
        print(f"accuracy, {name}, not private: {exact.score(X_test / 16, y_test):.3f}")
    print(f"accuracy, always the largest class: {np.bincount(y_test).max() / len(y_test):.3f}")
    print(str(kernel.privacy_).split("\n\n")[0])
    print(f"epsilon of both models together: {ledger.total()[0]:.3f} at delta = {DELTA:g}")

    if arguments:
        from sklearn.metrics import ConfusionMatrixDisplay

        display = ConfusionMatrixDisplay.from_estimator(
            kernel, X_test, y_test, cmap="Greys", colorbar=False
        )
        display.ax_.set_title(f"Private kernel machine, epsilon = {EPSILON:g}")
        display.figure_.savefig(arguments[0], dpi=120)
        print(f"saved {arguments[0]}")


if __name__ == "__main__":
    main(sys.argv[1:])
