r"""Principal components of a noisy matrix of second moments, and the projection onto them.

Proved in docs/proofs/private_pca.md. The components are those of the noisy matrix; nothing else
that depends on the rows is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.mechanisms._noisy_moments import SecondMoments
from dpsvm_fast.mechanisms._row_maps import PublicMap, row_blocks
from dpsvm_fast.mechanisms.whitening import RIDGE

__all__ = ["NoisyComponents", "Projection", "ReleasedComponents"]

Array = NDArray[np.float64]

# What the rounded norm of a projected row may be, so that the row's own is at most 1.
JUST_BELOW_ONE = 1.0 - 2.0**-40


@dataclass(frozen=True, eq=False)
class ReleasedComponents:
    """What follows from the noisy matrix A of the sum of outer products of rows of norm at most 1.

    Parameters
    ----------
    values : ndarray of shape (n_components,)
        Largest eigenvalues of A, descending; some may be negative.
    vectors : ndarray of shape (n_components, n_features)
        Their eigenvectors, of norm 1 and orthogonal up to rounding.
    trace : float
        Sum of all eigenvalues of A.
    """

    values: Array
    vectors: Array
    trace: float

    @property
    def shares(self) -> Array:
        """Each value's share of the trace, within [0, 1]; 0 where the trace is not positive."""
        if not self.trace > 0.0:
            return np.zeros_like(self.values)
        return np.clip(self.values / self.trace, 0.0, 1.0)


class NoisyComponents(SecondMoments):
    """Second moments of rows of norm at most 1, released for their principal components.

    Notes
    -----
    Guarantees: ``release`` is a Gaussian mechanism with parameter ``mu`` for exact sums over rows
    of norm at most 1; everything else it does is post-processing.
    """

    part_name = "components"

    def release(
        self, moments: Array, n_components: int, source: _core.NoiseSource, n_threads: int
    ) -> ReleasedComponents:
        """The first components of the noisy matrix.

        Parameters
        ----------
        moments : ndarray of shape (n_features, n_features)
            Symmetric; entries that are not exact are rounded to nearest.
        n_components : int
            1 to n_features.
        source : NoiseSource
        n_threads : int
            Does not change the result.
        """
        noisy = self.noisy(moments, source, n_threads)
        values, vectors = _core.symmetric_eigen(noisy, n_components)
        return ReleasedComponents(values, vectors, float(np.trace(noisy)))

    def scales(self, values: Array) -> Array:
        r"""What coordinates are multiplied by to be whitened: at most 1.

        .. math:: \sqrt{\frac{\min_l \max(\lambda_l, 0) + r}{\max(\lambda_j, 0) + r}}, \qquad
                  r = 0.35\, \sigma \sqrt{2 d}
        """
        roots = np.sqrt(np.maximum(values, 0.0) + RIDGE * self.spectral_noise)
        return np.asarray(roots.min() / roots)


@dataclass(frozen=True, eq=False)
class Projection:
    r"""Coordinates of rows along released components.

    .. math:: z = s \circ V \, \mathrm{clip}(x - c, \kappa)

    clipped to norm kappa once more, because rows of V are orthonormal only up to rounding.

    Parameters
    ----------
    vectors : ndarray of shape (n_components, n_features)
        V.
    scales : ndarray of shape (n_components,)
        s, in (0, 1].
    centre : ndarray of shape (n_features,)
        c, public.
    data_norm : float > 0
        Kappa.
    """

    vectors: Array
    scales: Array
    centre: Array
    data_norm: float

    def apply(self, X: Any, n_threads: int) -> Array:
        """Projected rows, each a function of itself alone, to the last bit.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (n_samples, n_features)
        n_threads : int
            Does not change the result.
        """
        moved = bool(self.centre.any())
        public = PublicMap(
            offset=self.centre if moved else None, unit=False, data_norm=self.data_norm
        )
        matrix = np.ascontiguousarray((self.vectors * self.scales[:, None]).T)
        projected = np.empty((X.shape[0], self.scales.size))
        for block in row_blocks(X):
            rows = X[block]
            if moved and sparse.issparse(rows):
                rows = rows.toarray()
            rows = public.apply(rows)
            rows = rows.toarray() if sparse.issparse(rows) else rows
            projected[block] = _core.row_products(np.ascontiguousarray(rows), matrix, n_threads)
        norms = np.linalg.norm(projected, axis=1)
        projected *= (self.data_norm / np.maximum(norms / JUST_BELOW_ONE, 1.0))[:, None]
        return projected

    def invert(self, projected: Array) -> Array:
        """Rows of the components' space, shape (n_samples, n_features), with these coordinates."""
        return np.asarray((projected / self.scales) @ self.vectors + self.centre)
