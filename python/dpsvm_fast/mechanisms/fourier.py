r"""Public random Fourier features: what describes them, and where the map is drawn.

Rahimi and Recht (NIPS 2007): with frequencies :math:`w_j` drawn from the spectrum of a kernel,

.. math:: \phi(x) = D^{-1/2} (\cos\langle w_j, x\rangle, \sin\langle w_j, x\rangle)_{j \le D}

has norm 1 for every x, and inner products that estimate the kernel. The frequencies come from a
public seed and are independent of all data, so the map costs no privacy, and applied to private
rows it keeps their bound (docs/proofs/random_features.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from dpsvm_fast import _core

__all__ = [
    "KERNELS",
    "LARGEST_GAMMA",
    "MOST_COMPONENTS",
    "SMALLEST_GAMMA",
    "FourierFeatures",
    "structure_of",
]

KERNELS = ("rbf", "laplacian")
# Beyond these, frequencies times rows leave the floats, or the kernel is constant.
SMALLEST_GAMMA, LARGEST_GAMMA = 1e-30, 1e30
# More would fill the memory after the budget is spent.
MOST_COMPONENTS = 2**20
# With more features than this, products of sign matrices replace orthogonal Gaussian ones: they
# cost p log p operations a block of p frequencies instead of p d.
MOST_ROTATED = 64
# Maps that are kept ready; each holds its frequencies once or twice.
MAPS_KEPT = 4


def structure_of(kernel: str, n_features: int, *, orthogonal: bool) -> str:
    """How frequencies are drawn: "independent", "orthogonal" or "fast", by public facts."""
    if kernel != "rbf" or not orthogonal:
        return "independent"
    return "orthogonal" if n_features <= MOST_ROTATED else "fast"


@dataclass(frozen=True, kw_only=True)
class FourierFeatures:
    r"""Public description of a map of rows to random Fourier features.

    Parameters
    ----------
    n_features : int >= 1
        Columns of a row.
    n_components : int >= 1
        Number D of frequencies; features are twice as many.
    gamma : float > 0
        Of the kernel: ``exp(-gamma ||x - x'||^2)`` for "rbf", ``exp(-gamma ||x - x'||_1)`` for
        "laplacian".
    kernel : {"rbf", "laplacian"}
    structure : {"independent", "orthogonal", "fast"}
        How the frequencies depend on each other.
    centre : {"none", "sphere", "ball"}
        The public set of rows whose mean feature is subtracted, about, before features are scaled
        to norm 1 again.
    seed : int
        0 <= seed < 2**64. Public, and independent of the data.
    """

    n_features: int
    n_components: int
    gamma: float
    kernel: str
    structure: str
    centre: str
    seed: int

    def map(self) -> _core.FourierMap:
        """The compiled map; the same description always draws the same one."""
        return _drawn(self)


@lru_cache(maxsize=MAPS_KEPT)
def _drawn(features: FourierFeatures) -> _core.FourierMap:
    """Drawn once for many blocks of rows."""
    return _core.FourierMap(**vars(features))
