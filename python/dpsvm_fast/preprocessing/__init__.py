"""Private transformers: noisy means, whitening and scaling; and scaling by public bounds.

Each works in a scikit-learn ``Pipeline``; each private one spends a budget of its own in ``fit``.
What they publish is noisy; everything that they compute from it is post-processing.
"""

from __future__ import annotations

from dpsvm_fast.preprocessing.centre import PrivateCenter
from dpsvm_fast.preprocessing.scaling import PrivateStandardScaler, PublicScaler
from dpsvm_fast.preprocessing.whitening import PrivateWhitener

__all__ = ["PrivateCenter", "PrivateStandardScaler", "PrivateWhitener", "PublicScaler"]
