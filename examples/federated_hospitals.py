"""Hospitals that train together without showing each other their records, all in this process.

    python examples/federated_hospitals.py

Handwritten digits stand for the records, dealt out to 30 hospitals of 50 each. Half of the
hospitals may work against the others, three may vanish. Each fits a model and adds a little noise;
only the sum is used. How it is done on several machines is in examples/federated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from dpsvm_fast import PrivacyLedger, PrivateLinearSVC, verify
from dpsvm_fast.federated import FederatedSpec, SecureSumAborted, simulate

EPSILON, DELTA = 4.0, 1e-6
N_USERS, RECORDS = 30, 50
AGREED: dict[str, Any] = {
    "n_users": N_USERS,
    "n_features": 64,
    "classes": range(10),
    "epsilon": EPSILON,
    "delta": DELTA,
    "max_records": RECORDS,
    "min_records": RECORDS,
    "honest_fraction": 0.5,
    "max_dropout": 0.1,
    "local": "exact",
}


def dealt_out() -> tuple[list[Any], Any, Any]:
    """Rows and labels of every hospital, those of all in one place, and those of none."""
    X, y = load_digits(return_X_y=True)
    X = normalize(X)
    order = np.random.default_rng(0).permutation(len(X))
    dealt, rest = order[: N_USERS * RECORDS], order[N_USERS * RECORDS :]
    parties = [(X[part], y[part]) for part in np.split(dealt, N_USERS)]
    return parties, (X[dealt], y[dealt]), (X[rest], y[rest])


def main() -> None:
    """Deal out, agree, train; protect records, then whole hospitals; lose some, lose too many."""
    parties, everything, (X_test, y_test) = dealt_out()
    spec = FederatedSpec.dp_helmet(**AGREED)
    print(f"{spec.honest_survivors} honest hospitals are sure to be in the sum, each adds noise")
    plan = spec.round("model")
    print(f"of deviation {plan.codec.step * plan.sigma_steps:.3g} to its weights times {RECORDS}")

    ledger = PrivacyLedger(EPSILON, DELTA, "replace_one")
    model = simulate(spec, parties, ledger=ledger, dropouts=[4, 17])
    print(model.privacy_)
    print(f"\ncertificate holds: {verify(model.privacy_.to_json()).ok}")
    print(f"accuracy, one record protected: {model.score(X_test, y_test):.3f}")

    whole = simulate(FederatedSpec.dp_helmet(**AGREED, unit="party"), parties)
    print(f"accuracy, whole hospitals protected: {whole.score(X_test, y_test):.3f}")

    reduced = FederatedSpec.fed_dpdr(**(AGREED | {"local": "output"}), n_components=16)
    print(f"accuracy on 16 components: {simulate(reduced, parties).score(X_test, y_test):.3f}")

    alone = PrivateLinearSVC(EPSILON, DELTA, classes=range(10)).fit(*parties[0])
    print(f"accuracy, one hospital alone: {alone.score(X_test, y_test):.3f}")
    together = LinearSVC(random_state=0).fit(*everything)
    print(f"accuracy, all records in one place, not private: {together.score(X_test, y_test):.3f}")
    print(f"accuracy, always the largest class: {np.bincount(y_test).max() / len(y_test):.3f}")

    try:
        simulate(spec, parties, dropouts=range(4))
    except SecureSumAborted as error:
        print(f"nothing is released: {error}")


if __name__ == "__main__":
    main()
