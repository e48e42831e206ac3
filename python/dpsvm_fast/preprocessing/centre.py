"""Centring by a noisy mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast import _validation as check
from dpsvm_fast.accounting import PrivacyLedger
from dpsvm_fast.estimators._training_data import checked_rows
from dpsvm_fast.mechanisms._noisy_sum import gaussian_parameter
from dpsvm_fast.mechanisms.centre import NoisyMean
from dpsvm_fast.preprocessing._base import PrivateTransformer, clipped_rows

__all__ = ["PrivateCenter"]


class PrivateCenter(OneToOneFeatureMixin, PrivateTransformer):
    r"""Centring by a noisy mean.

    The sum of the rows, clipped to norm ``data_norm``, and their number are released together with
    noise; the mean is their quotient, shrunk towards zero by the share of noise in its length.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 <= delta < 1; 0 takes noise of density proportional to
        ``exp(-beta ||b||)``, which is pure.
    data_norm : float, default=1.0
        Public bound of the rows' L2 norm; longer rows are scaled down to it, silently, in ``fit``
        and in ``transform``.
    dense_output : bool, default=False
        Whether ``transform`` may make sparse rows dense; otherwise it refuses them.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets: one row more or fewer, or one row exchanged for another; then the
        number of rows is public.
    random_state : int or None, default=None
        None takes the operating system's entropy. A seed makes the fit reproducible and thereby
        not private: a ``NotPrivateWarning``, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget to be asked before data are read and charged before noise is drawn.
    n_threads : int or None, default=None
        Threads; None is all cores that this process may use. Never changes the result.
    noise_grid : {"exact", "float"}, default="exact"
        "exact" draws Gaussian noise exactly on a power-of-two grid.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Noisy mean of the clipped rows, of norm at most ``data_norm``.
    n_samples_ : float
        Noisy number of rows, at least 1; the public one with ``replace_one``.
    data_norm_ : float
        The bound of the fit.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
    privacy_ : PrivacyStatement

    Notes
    -----
    Guarantees: ``mean_`` and ``n_samples_`` together are (epsilon, delta)-differentially private
    for the relation ``adjacency``, provided that ``data_norm``, the feature names and every other
    parameter were chosen without looking at the data. Proof: docs/proofs/auto_pipeline.md,
    sections "Exact sums" and "Centre". Not covered: running time; floating-point effects with
    ``delta=0`` or ``noise_grid="float"``.

    Centred rows have norm up to ``2 data_norm``. scikit-learn's ``Normalizer`` afterwards brings
    them to norm 1 at no cost.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer
    >>> from dpsvm_fast import ObjectivePerturbationSVC, PrivateCenter
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(
    ...     Normalizer(),
    ...     PrivateCenter(0.5),
    ...     Normalizer(),
    ...     ObjectivePerturbationSVC(3.0, classes=range(10)),
    ... ).fit(X, y)
    >>> model[1].mean_.shape
    (64,)
    """

    _mechanism_name = "private_center"
    _parameters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **PrivateTransformer._parameters,
        "dense_output": partial(check.check_bool, "dense_output"),
    }

    mean_: NDArray[np.float64]
    n_samples_: float

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        data_norm: float = 1.0,
        dense_output: bool = False,
        adjacency: str = "add_remove",
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        n_threads: int | None = None,
        noise_grid: str = "exact",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.dense_output = dense_output
        self.adjacency = adjacency
        self.random_state = random_state
        self.ledger = ledger
        self.n_threads = n_threads
        self.noise_grid = noise_grid

    def _mechanism(self, settings: SimpleNamespace, n_features: int) -> NoisyMean:
        """The whole budget for the mean."""
        pure = settings.delta == 0.0
        return NoisyMean(
            n_features=n_features,
            adjacency=settings.adjacency,
            noise_grid=settings.noise_grid,
            mu=None if pure else gaussian_parameter(settings.epsilon, settings.delta),
            epsilon=settings.epsilon if pure else None,
        )

    def _facts(
        self, mechanism: NoisyMean, records: _core.Records, X: Any, how: SimpleNamespace
    ) -> dict[str, Any]:
        """Mean and number of rows."""
        total = records.sums(how.n_threads)
        released = mechanism.release(total, X.shape[0], how.source, how.n_threads)
        return {"mean_": how.data_norm * released.point, "n_samples_": released.count}

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Rows, clipped to the bound of the fit, minus the noisy mean.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)

        Raises
        ------
        TypeError
            Sparse rows without ``dense_output=True``.
        """
        check_is_fitted(self)
        X = checked_rows(self, X)
        if sparse.issparse(X) and not self.dense_output:
            raise TypeError(
                "X: centred sparse rows are dense; use dense_output=True, or PrivateLinearSVC, "
                "which centres sparse rows without making them dense"
            )
        rows = clipped_rows(X, self.data_norm_)
        return np.asarray((rows.toarray() if sparse.issparse(rows) else rows) - self.mean_)
