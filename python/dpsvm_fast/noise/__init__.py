"""Noise of the kinds that the mechanisms add, for use on its own.

Without a seed, every call takes a fresh key from the operating system's generator and expands it
with ChaCha20. A seed makes the noise reproducible, hence known to whoever knows the seed: use it
in tests only. Results do not depend on the number of threads.
"""

from __future__ import annotations

from dpsvm_fast.noise._discrete import discrete_gaussian, discrete_laplace
from dpsvm_fast.noise._real import gamma_ball, gaussian, gaussian_on_grid, symmetric_gaussian
from dpsvm_fast.noise._selection import exponential_mechanism, permute_and_flip

__all__ = [
    "discrete_gaussian",
    "discrete_laplace",
    "exponential_mechanism",
    "gamma_ball",
    "gaussian",
    "gaussian_on_grid",
    "permute_and_flip",
    "symmetric_gaussian",
]
