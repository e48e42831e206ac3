"""Private transformers: the noisy mean and the noisy whitening of `PrivateLinearSVC`, on their own.

Each spends a budget of its own in ``fit`` and works in a scikit-learn ``Pipeline``. What they
publish is noisy; everything that they compute from it is post-processing.
"""

from __future__ import annotations

from dpsvm_fast.preprocessing.centre import PrivateCenter
from dpsvm_fast.preprocessing.whitening import PrivateWhitener

__all__ = ["PrivateCenter", "PrivateWhitener"]
