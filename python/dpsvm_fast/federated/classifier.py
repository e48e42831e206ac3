"""The classifier that parties trained together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.accounting.federated_statement import FederatedStatement
from dpsvm_fast.estimators._base import PrivateLinearClassifier
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.spec import FederatedSpec

__all__ = ["FederatedLinearSVC"]


class FederatedLinearSVC(PrivateLinearClassifier):
    """Linear classifier out of sums over parties; made by ``finalize`` or ``simulate``.

    Parameters
    ----------
    spec : FederatedSpec or None
        What the parties agreed on.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Averaged noisy weights, of the features as they came: components are multiplied in.
    intercept_ : ndarray of shape (n_classes,), or (1,)
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    components_ : ndarray of shape (n_components, n_features)
        Released components, of ``fed_dpdr`` alone.
    n_survivors_ : int
        Parties in the sum of the models.
    n_records_ : int or None
        Their records; None where parties count alike.
    privacy_ : FederatedStatement
        What was promised, and every number needed to recompute it.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast.federated import FederatedLinearSVC, FederatedSpec
    >>> spec = FederatedSpec.dp_helmet(
    ...     n_users=20, n_features=2, classes=[0, 1], epsilon=1.0, delta=1e-6, max_records=50
    ... )
    >>> X = np.random.default_rng(0).uniform(-0.7, 0.7, size=(1000, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> parties = [(X[part], y[part]) for part in np.array_split(np.arange(1000), 20)]
    >>> FederatedLinearSVC(spec).fit(parties).coef_.shape
    (1, 2)
    """

    privacy_: FederatedStatement  # type: ignore[assignment]
    components_: NDArray[np.float64]
    n_survivors_: int
    n_records_: int | None

    def __init__(self, spec: FederatedSpec | None = None) -> None:
        self.spec = spec

    def fit(self, parties: Sequence[tuple[Any, Any]], y: None = None) -> FederatedLinearSVC:
        """Train on the records of all parties in this process, as :func:`simulate` does.

        Parameters
        ----------
        parties : sequence of (X, y)
            One of each party.
        y : ignored

        Returns
        -------
        FederatedLinearSVC
            This object.
        """
        from dpsvm_fast.federated.simulate import simulate

        if self.spec is None:
            raise InvalidParameterError("spec: expected what the parties agreed on")
        fitted = simulate(self.spec, parties)
        self._forget()
        self.__dict__.update(vars(fitted))
        return self

    def _released(
        self, weights: NDArray[np.float64], scaling: float, **facts: Any
    ) -> FederatedLinearSVC:
        """Return the object itself, fitted."""
        self._forget()
        self._publish(weights, scaling, **facts)
        return self
