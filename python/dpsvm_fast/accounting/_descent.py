r"""The part of a statement about projected SGD, and what its sensitivity must be.

With b rows in a batch, l updates a pass, k passes and :math:`\Lambda = 1/(nC)`, iterate m of two
neighbours differs by at most :math:`(2 L \kappa_t / (b \Lambda)) \lceil m/l \rceil / m`, and any
two points of the ball by its diameter (docs/proofs/projected_sgd.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma

from dpsvm_fast._validation import check_integer, check_option, check_positive
from dpsvm_fast.accounting._fields import store
from dpsvm_fast.accounting._parts import Sensitivity

__all__ = ["Descent", "descent_sensitivity"]


@dataclass(frozen=True, kw_only=True)
class Descent:
    """A run of projected SGD.

    Parameters
    ----------
    n_samples : int >= 1
        Number of rows, public.
    n_epochs : int >= 1
        Passes over the rows, each in an order that does not depend on them.
    batch_size : int >= 1
        Rows in a batch, at most ``n_samples``. A short batch is divided by this number too.
    radius : float > 0
        Of the ball or balls onto which every iterate is projected.
    projection : {"joint", "per_class"}
        One ball for all weights, or one for each score.
    average : {"last", "uniform", "weighted"}
        The last iterate, or the mean of all, with equal weights or proportional to their number.
    """

    n_samples: int
    n_epochs: int
    batch_size: int
    radius: float
    projection: str
    average: str

    def __post_init__(self) -> None:
        """Check every field by itself."""
        for name in ("n_samples", "n_epochs"):
            store(self, name, check_integer(name, getattr(self, name), 1))
        store(self, "batch_size", check_integer("batch_size", self.batch_size, 1, self.n_samples))
        store(self, "radius", check_positive("radius", self.radius))
        check_option("projection", self.projection, ("joint", "per_class"))
        check_option("average", self.average, ("last", "uniform", "weighted"))


def descent_sensitivity(s: Sensitivity, descent: Descent, n_scores: int) -> float:
    """Distance between the iterates of neighbours that follows from the other numbers."""
    n, b, k = descent.n_samples, descent.batch_size, descent.n_epochs
    length = math.ceil(n / b)
    visit = 2.0 * s.C * s.lipschitz * s.row_norm * n / b
    if descent.average == "weighted":
        moved = visit * (k + 1) / (k * length + 1)
    elif descent.average == "uniform":
        # In pass p the record was visited at most p times.
        p = np.arange(1.0, k + 1.0)
        share = digamma(p * length + 1.0) - digamma((p - 1.0) * length + 1.0)
        moved = visit / length * float(p @ share) / k
    else:
        moved = visit / length
    n_balls = 1 if descent.projection == "joint" else n_scores
    return min(moved, 2.0 * descent.radius * math.sqrt(n_balls))
