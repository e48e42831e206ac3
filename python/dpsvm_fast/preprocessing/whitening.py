"""Whitening by a noisy matrix of second moments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast import _validation as check
from dpsvm_fast.accounting import PrivacyLedger
from dpsvm_fast.estimators._training_data import checked_rows
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms._noisy_sum import gaussian_parameter
from dpsvm_fast.mechanisms._row_maps import row_blocks
from dpsvm_fast.mechanisms.whitening import NoisyMoments
from dpsvm_fast.preprocessing._base import PrivateTransformer, clipped_rows

__all__ = ["PrivateWhitener"]


class PrivateWhitener(ClassNamePrefixFeaturesOutMixin, PrivateTransformer):
    r"""Whitening by a noisy matrix of second moments.

    With A the sum of :math:`u u^\top` over the rows, divided by and clipped to norm ``data_norm``,
    plus symmetric Gaussian noise, negative eigenvalues set to 0, rows become M u with

    .. math:: M \propto (A + r I)^{-1/2}, \qquad r = 0.35\, \sigma \sqrt{2 d}

    scaled to spectral norm 1, so that rows stay within ``data_norm``. It helps where the noise, of
    spectral norm about :math:`\sigma \sqrt{2 d}`, is small beside the number of rows. Rows should
    be centred before.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 < delta < 1.
    data_norm : float, default=1.0
        Public bound of the rows' L2 norm; longer rows are scaled down to it, silently, in ``fit``
        and in ``transform``.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets: one row more or fewer, or one row exchanged for another.
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
    whitening_ : ndarray of shape (n_features, n_features)
        M, symmetric and positive definite.
    data_norm_ : float
        The bound of the fit.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
    privacy_ : PrivacyStatement

    Notes
    -----
    Guarantees: ``whitening_`` is (epsilon, delta)-differentially private for the relation
    ``adjacency``, provided that ``data_norm``, the feature names and every other parameter were
    chosen without looking at the data. Proof: docs/proofs/auto_pipeline.md, sections "Exact sums"
    and "Whitening". Not covered: running time; floating-point effects with ``noise_grid="float"``.

    Sparse rows become dense. The matrix takes O(n d^2) work and d^2 memory.

    References
    ----------
    Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss", STOC 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsvm_fast import PrivateWhitener
    >>> X, _ = load_digits(return_X_y=True)
    >>> PrivateWhitener(8.0, data_norm=60.0).fit_transform(X).shape
    (1797, 64)
    """

    _mechanism_name = "private_whitener"

    whitening_: NDArray[np.float64]

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        data_norm: float = 1.0,
        adjacency: str = "add_remove",
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        n_threads: int | None = None,
        noise_grid: str = "exact",
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.adjacency = adjacency
        self.random_state = random_state
        self.ledger = ledger
        self.n_threads = n_threads
        self.noise_grid = noise_grid

    def _learned(self, n_features: int) -> int:
        """A matrix."""
        return n_features**2

    def _mechanism(self, settings: SimpleNamespace, n_features: int) -> NoisyMoments:
        """The whole budget for the second moments."""
        if settings.delta == 0.0:
            raise InvalidParameterError.of("delta", got=0.0, accepted="a number in (0, 1)")
        return NoisyMoments(
            n_features=n_features,
            adjacency=settings.adjacency,
            noise_grid=settings.noise_grid,
            mu=gaussian_parameter(settings.epsilon, settings.delta),
        )

    def _facts(
        self, mechanism: NoisyMoments, records: _core.Records, X: Any, how: SimpleNamespace
    ) -> dict[str, Any]:
        """The whitening matrix."""
        moments = records.gram(how.n_threads)
        return {"whitening_": mechanism.release(moments, how.source, how.n_threads)}

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Rows, clipped to the bound of the fit, times the whitening matrix.

        Every row is a function of itself and of fitted attributes alone, to the last bit.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = checked_rows(self, X)
        n_threads = check.check_n_threads(self.n_threads)
        whitened = np.empty(X.shape)
        for block in row_blocks(X):
            rows = clipped_rows(X[block], self.data_norm_)
            rows = rows.toarray() if sparse.issparse(rows) else rows
            # Not a matrix product: how that rounds one row may depend on how many others there are.
            whitened[block] = _core.row_products(
                np.ascontiguousarray(rows), self.whitening_, n_threads
            )
        return whitened

    @property
    def _n_features_out(self) -> int:
        """Number of columns, for their names."""
        return int(self.n_features_in_)
