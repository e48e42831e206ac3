"""Private transformers: noisy means, components and scales; public scaling and features.

Each works in a scikit-learn ``Pipeline``; each private one spends a budget of its own in ``fit``.
What they publish is noisy; everything that they compute from it is post-processing.
"""

from __future__ import annotations

from dpsvm_fast.preprocessing.centre import PrivateCenter
from dpsvm_fast.preprocessing.fourier import RandomFourierFeatures
from dpsvm_fast.preprocessing.pca import PrivatePCA
from dpsvm_fast.preprocessing.scaling import PrivateStandardScaler, PublicScaler
from dpsvm_fast.preprocessing.whitening import PrivateWhitener

__all__ = [
    "PrivateCenter",
    "PrivatePCA",
    "PrivateStandardScaler",
    "PrivateWhitener",
    "PublicScaler",
    "RandomFourierFeatures",
]
