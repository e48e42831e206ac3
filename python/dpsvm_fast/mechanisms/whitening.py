"""The whitening that follows from a noisy matrix of second moments.

Proved in docs/proofs/auto_pipeline.md, section "Whitening".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._core import NoiseSource, row_products, symmetric_eigen
from dpsvm_fast.mechanisms._noisy_moments import SecondMoments

__all__ = ["RIDGE", "NoisyMoments"]

# Whitening needs this many rows a squared dimension, and noise at most this share of the rows.
ROWS_A_SQUARE, LARGEST_NOISE = 0.5, 0.15
# The ridge below the noisy eigenvalues, in units of the norm of the noise. From a quarter to a half
# most data sets do alike; small ones do better with less.
RIDGE = 0.35


class NoisyMoments(SecondMoments):
    """Second moments of rows of norm at most 1, released for whitening.

    Notes
    -----
    Guarantees: ``release`` is a Gaussian mechanism with parameter ``mu`` for exact sums over rows
    of norm at most 1; everything else it does is post-processing.
    """

    part_name = "whitening"

    @property
    def ridge(self) -> float:
        """What is added to every eigenvalue: a part of the typical spectral norm of the noise."""
        return RIDGE * self.spectral_noise

    def worthwhile(self, count: float) -> bool:
        """Whether the noise would be small beside the moments of so many rows."""
        enough = count >= ROWS_A_SQUARE * self.n_features**2
        return enough and self.spectral_noise <= LARGEST_NOISE * count

    def release(
        self, moments: NDArray[np.float64], source: NoiseSource, n_threads: int
    ) -> NDArray[np.float64]:
        r"""Whitening matrix :math:`(A + r I)^{-1/2}`, scaled to spectral norm 1.

        Parameters
        ----------
        moments : ndarray of shape (n_features, n_features)
            Symmetric; entries that are not exact are rounded to nearest.
        source : NoiseSource
        n_threads : int
            Does not change the result.

        Returns
        -------
        ndarray of shape (n_features, n_features)
            Symmetric and positive definite.
        """
        noisy = self.noisy(moments, source, n_threads)
        values, vectors = symmetric_eigen(noisy, self.n_features)
        roots = np.sqrt(np.maximum(values, 0.0) + self.ridge)
        scaled = np.ascontiguousarray(vectors.T * (roots.min() / roots))
        # Not by BLAS, whose sums depend on its threads.
        whitening = row_products(scaled, vectors, n_threads)
        return np.asarray(0.5 * (whitening + whitening.T))
