"""scikit-learn's transformers: the same arithmetic without privacy.

RBFSampler has one cosine with a random phase a feature where ours has a cosine and a sine, so it
gets twice as many frequencies for as many columns. PCA decomposes the covariance, as ours does the
second moments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.decomposition import PCA
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import StandardScaler


def features(X: Any, n_components: int, gamma: float) -> Callable[[], object]:
    """Features of as many columns as ours with ``n_components`` pairs."""
    sampler = RBFSampler(gamma=gamma, n_components=2 * n_components, random_state=0).fit(X[:1])
    return lambda: sampler.transform(X)


def components(X: Any, n_components: int) -> Callable[[], object]:
    """Principal components."""
    return lambda: PCA(n_components, svd_solver="covariance_eigh").fit(X)


def scales(X: Any) -> Callable[[], object]:
    """Means and standard deviations."""
    return lambda: StandardScaler().fit(X)
