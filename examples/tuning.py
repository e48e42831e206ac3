"""A search over parameters under a budget: it pays for what it looks at.

    python examples/tuning.py

Handwritten digits, 64 pixels of 0 to 16: the bounds, the ten classes and the grid are public. Every
record is in one part of the data: a candidate's own, or the one to choose by. So the search costs
the most expensive part and not the sum. Most of the budget is kept to train the winner on all
records.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from dpsvm_fast import PrivacyLedger, PrivateLinearSVC, verify
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.model_selection import PrivateGridSearch

EPSILON, DELTA = 4.0, 1e-6


def main() -> None:
    """Search, and compare with the defaults at the same total budget."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=0)

    ledger = PrivacyLedger(EPSILON, DELTA)
    svc = PrivateLinearSVC(bounds=(0, 16), classes=range(10))
    grid = [{"mechanism": ["output"]}, {"mechanism": ["gradient"], "margin": ["auto", 1.0]}]
    search = PrivateGridSearch(svc, grid, EPSILON, DELTA, ledger=ledger).fit(X, y)
    print(search.privacy_)
    print()
    print(f"chosen: {search.best_params_}")
    print(f"epsilon of the whole: {composed_epsilon(search.privacy_.events, DELTA):.3f}")
    # A plain grid search would have to pay for every fit, and for choosing by exact scores.
    print(f"accuracy after the search: {search.score(X_test, y_test):.3f}")
    print(f"certificate holds: {verify(search.privacy_.to_json()).ok}")

    # For comparison only, which these public data allow: on private rows it would be paid for too.
    default = PrivateLinearSVC(EPSILON, DELTA, bounds=(0, 16), classes=range(10)).fit(X, y)
    print(f"accuracy of the defaults: {default.score(X_test, y_test):.3f}")
    exact = LinearSVC(random_state=0).fit(X / 16, y)
    print(f"accuracy, not private: {exact.score(X_test / 16, y_test):.3f}")
    print(f"accuracy, always the largest class: {np.bincount(y_test).max() / len(y_test):.3f}")


if __name__ == "__main__":
    main()
