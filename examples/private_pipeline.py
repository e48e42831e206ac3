"""Scaling, reduction and an SVM behind one another, private as a whole, within one budget.

    python examples/private_pipeline.py

Handwritten digits, 64 pixels of 0 to 16: the bounds, the ten classes and the number of components
are public choices. Both private steps spend from one ledger, which composes what they spend: less
than the sum of their epsilons.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import LinearSVC

from dpsvm_fast import (
    ObjectivePerturbationSVC,
    PrivacyLedger,
    PrivatePCA,
    PublicScaler,
    total_privacy,
    verify,
)

EPSILON, DELTA = 2.0, 1e-5
# Chosen before any data are touched: the ledger refuses a fit for which nothing is left.
EPSILON_OF_PCA, EPSILON_OF_SVM, DELTA_OF_STEP = 1.2, 1.4, 5e-6


def main() -> None:
    """Fit, score, and state what was promised."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    ledger = PrivacyLedger(EPSILON, DELTA)
    model = make_pipeline(
        PublicScaler((0, 16)),  # from public bounds: free
        Normalizer(),  # each row by itself: free
        PrivatePCA(20, EPSILON_OF_PCA, DELTA_OF_STEP, whiten=True, ledger=ledger),
        Normalizer(),
        ObjectivePerturbationSVC(EPSILON_OF_SVM, DELTA_OF_STEP, classes=range(10), ledger=ledger),
    ).fit(X_train, y_train)
    whole = total_privacy(model, delta=DELTA)
    print(whole)
    print(f"\naccuracy on rows left out: {model.score(X_test, y_test):.3f}")
    exact = LinearSVC(random_state=0).fit(X_train / 16, y_train)
    print(f"accuracy, not private: {exact.score(X_test / 16, y_test):.3f}")
    print(f"accuracy, always the largest class: {np.bincount(y_test).max() / len(y_test):.3f}")
    print(f"epsilon of the whole: {whole.epsilon:.4f} at delta = {DELTA:g}")
    print(f"the ledger's budget: {EPSILON:g}, left at that delta: {ledger.remaining():.4f}")
    print(verify(whole.to_json()))


if __name__ == "__main__":
    main()
