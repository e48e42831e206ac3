"""Which library a text comes from, by hashed words: sparse rows, no dictionary.

    python examples/text.py

The texts are paragraphs of the documentation of NumPy, SciPy and scikit-learn as they are installed
here; each is one protected record. A dictionary of the words that occur would be taken from the
texts, and a name in it would give its text away; hashing needs none. Whoever wrote several
paragraphs is protected less: then all paragraphs of one author belong into one row.
"""

from __future__ import annotations

import importlib
import inspect
import re

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from dpsvm_fast import PrivateLinearSVC

EPSILON, DELTA = 1.0, 1e-6
N_FEATURES, FEWEST_WORDS = 2**12, 12
MODULES = {
    "numpy": ("numpy", "numpy.linalg", "numpy.random", "numpy.ma", "numpy.fft"),
    "scipy": ("scipy.linalg", "scipy.optimize", "scipy.signal", "scipy.special", "scipy.stats"),
    "scikit-learn": (
        *("sklearn.cluster", "sklearn.ensemble", "sklearn.linear_model", "sklearn.metrics"),
        *("sklearn.model_selection", "sklearn.preprocessing", "sklearn.decomposition"),
    ),
}
NAMES = re.compile(r"\b(numpy|np|scipy|sp|scikit|sklearn|learn)\b", re.IGNORECASE)


def paragraphs(module: str) -> set[str]:
    """The longer paragraphs of a module's documentation, without the libraries' names."""
    found: set[str] = set()
    for name, thing in inspect.getmembers(importlib.import_module(module), callable):
        text = None if name.startswith("_") else inspect.getdoc(thing)
        found.update(NAMES.sub(" ", part) for part in (text or "").split("\n\n"))
    return {text for text in found if len(text.split()) >= FEWEST_WORDS}


def main() -> None:
    """Read, hash, fit, and score beside both ends of the scale."""
    texts: list[str] = []
    labels: list[str] = []
    for library, modules in MODULES.items():
        own = sorted(set().union(*map(paragraphs, modules)))
        texts += own
        labels += [library] * len(own)
    # Every row gets norm 1, by itself.
    X = HashingVectorizer(n_features=N_FEATURES).transform(texts)
    print(f"{X.shape[0]} paragraphs, {X.nnz / X.shape[0]:.0f} of {X.shape[1]} numbers each")
    X_train, X_test, y_train, y_test = train_test_split(X, np.array(labels), random_state=0)

    model = PrivateLinearSVC(EPSILON, DELTA, classes=list(MODULES)).fit(X_train, y_train)
    print(str(model.privacy_).split("\n\n")[0])
    exact = LinearSVC(random_state=0).fit(X_train, y_train)
    largest = max(np.mean(y_test == library) for library in MODULES)
    print(f"\naccuracy, private: {model.score(X_test, y_test):.3f}")
    print(f"accuracy, not private: {exact.score(X_test, y_test):.3f}")
    print(f"accuracy, always the largest class: {largest:.3f}")


if __name__ == "__main__":
    main()
