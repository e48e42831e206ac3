"""The whitening that follows from a noisy matrix of second moments.

Proved in docs/proofs/auto_pipeline.md, section "Whitening".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.mechanisms._noisy_moments import SecondMoments
from dpsvm_fast.mechanisms._noisy_sum import share_of

__all__ = ["RIDGE", "NoisyMoments", "releases_of", "whitening_shares"]

# Shares of the squared Gaussian parameter: of the last whitening, and of those before it where
# features are few and classes fewer still. Each makes small directions large beside the noise of
# the next. With many features it would enlarge those that tell nothing about classes, too; with
# many classes the large ones tell most.
LAST_SHARE, EARLIER_SHARES = 0.10, (0.05, 0.05)
MOST_FEW_FEATURES, FEATURES_A_CLASS = 20, 2

# Whitening needs this many rows a squared dimension, and noise at most this share of the rows.
ROWS_A_SQUARE, LARGEST_NOISE = 0.5, 0.15
# The ridge below the noisy eigenvalues, in units of the norm of the noise. From a quarter to a half
# most data sets do alike; small ones do better with less.
RIDGE = 0.35


def whitening_shares(n_features: int, n_classes: int) -> tuple[float, ...]:
    """Shares of the squared Gaussian parameter, one a whitening; public facts decide."""
    few = FEATURES_A_CLASS * n_classes < n_features <= MOST_FEW_FEATURES
    return (*(EARLIER_SHARES if few else ()), LAST_SHARE)


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
        self, moments: NDArray[np.float64], source: _core.NoiseSource, n_threads: int
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
        values, vectors = _core.symmetric_eigen(noisy, self.n_features)
        roots = np.sqrt(np.maximum(values, 0.0) + self.ridge)
        scaled = np.ascontiguousarray(vectors.T * (roots.min() / roots))
        # Not by BLAS, whose sums depend on its threads.
        whitening = _core.row_products(scaled, vectors, n_threads)
        return np.asarray(0.5 * (whitening + whitening.T))


def releases_of(
    shares: tuple[float, ...], mu: float, n_features: int, adjacency: str, noise_grid: str
) -> tuple[NoisyMoments, ...]:
    """One release for each share of the squared Gaussian parameter ``mu`` of a whole budget."""
    return tuple(
        NoisyMoments(
            n_features=n_features,
            adjacency=adjacency,
            noise_grid=noise_grid,
            mu=share_of(mu, share),
        )
        for share in shares
    )
