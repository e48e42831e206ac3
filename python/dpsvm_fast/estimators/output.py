"""Support vector machine trained exactly and released with noise on its weights."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.accounting import PrivacyLedger
from dpsvm_fast.estimators._parameters import OUTPUT_PERTURBATION
from dpsvm_fast.estimators._training import PrivatelyTrained, certified
from dpsvm_fast.mechanisms.output import (
    OutputPerturbation,
    automatic_C,
    automatic_intercept_scaling,
)

__all__ = ["OutputPerturbationSVC"]


class OutputPerturbationSVC(PrivatelyTrained):
    r"""Multi-class linear SVM made private by noise on its exactly minimised weights.

    All classes are trained and released together, in one access to the data:

    .. math::
        W^* = \arg\min_W \tfrac12 \|W\|_F^2 + C \sum_i \max_k
              \left( 1[k \ne y_i] + \langle w_k - w_{y_i}, \tilde x_i \rangle \right)

    where :math:`\tilde x_i = (x_i \min(1, \kappa / \|x_i\|), s)` is row i clipped to the norm
    ``data_norm`` with the constant feature ``intercept_scaling``. The released weights are a
    certified approximation of :math:`W^*` plus noise.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 < delta < 1; may be 0 with ``noise="gamma"``, which is pure: its
        statement says delta = 0 whatever is given here.
    loss : {"crammer_singer"}, default="crammer_singer"
        Multi-class hinge loss.
    noise : {"gaussian", "gamma"}, default="gaussian"
        Independent Gaussian noise, (epsilon, delta); or noise of density proportional to
        ``exp(-beta ||b||)``, epsilon with delta = 0, much larger for many weights.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets: one row more or fewer (the number of rows stays private), or one
        row exchanged for another (twice the noise; the number of rows is public).
    data_norm : float, default=1.0
        Public bound of the rows' L2 norm; longer rows are scaled down to it, silently.
    classes : array-like of shape (n_classes,) or None, default=None
        Public label set: ints, strings, bools or whole floats. It may hold classes that do not
        occur. None reads it from ``y``, which releases it without noise: a
        ``PrivacyLeakWarning``, and the statement is marked not private.
    fit_intercept : bool, default=True
        Whether to add a constant feature. Its weight is regularised and noisy like the others.
    intercept_scaling : "auto" or float > 0, default="auto"
        Value of the constant feature; "auto" is ``0.2 * data_norm``.
    C : "auto" or float > 0, default="auto"
        Multiplies the sum of the losses, as in scikit-learn. Noise grows with it. "auto" is a rule
        of public facts, see Notes.
    tol : float in [1e-4, 1], default=1e-3
        The solver stops at a certified distance of ``tol`` times the sensitivity to the exact
        minimiser; twice that distance is part of the sensitivity that the noise covers.
    max_iter : int or None, default=None
        Passes over the data at most. None runs until certified, as the guarantee needs.
    random_state : int or None, default=None
        None takes the operating system's entropy. A seed makes the fit reproducible and thereby
        not private: a ``NotPrivateWarning``, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget to be asked before data are read and charged before the solver starts.
    n_threads : int or None, default=None
        Threads; None is all cores that this process may use. Never changes the result.
    noise_grid : {"exact", "float"}, default="exact"
        "exact" releases on a power-of-two grid with exactly sampled Gaussian noise, so that the
        guarantee covers the program's own arithmetic. "float" is ordinary floating-point noise.
    low_memory : bool, default=False
        Whether the solver reads X again in every pass instead of keeping a compact copy.
    verbose : {0, 1}, default=0
        1 prints the noise scale before training. Progress is not shown: it depends on the data.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Noisy weights.
    intercept_ : ndarray of shape (n_classes,), or (1,)
        Noisy intercepts, 0 without ``fit_intercept``.
    classes_ : ndarray of shape (n_classes,)
        The sorted label set.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features where X has string names.
    privacy_ : PrivacyStatement
        What was promised, and every number needed to recompute it.

    Notes
    -----
    Guarantees: the fitted attributes are (epsilon, delta)-differentially private for the relation
    ``adjacency``, one record being one row with its label, provided that ``data_norm``,
    ``classes``, the feature names and every other parameter were chosen without looking at the
    data. Non-finite values are refused and long rows clipped, so no value in X or y can void it.
    Not covered: running time; with ``max_iter``, the event that ``CertificationError`` is
    raised; with ``noise="gamma"`` or ``noise_grid="float"``, floating-point effects. An
    error about invalid data tells that they are invalid, and never quotes them.

    ``C="auto"`` is ``0.2 / (f L m kt**2)`` with ``kt**2 = data_norm**2 + intercept_scaling**2``,
    ``L = sqrt(2)``, f = 1 (``add_remove``) or 2 (``replace_one``) and m the root mean square
    of the noise in a weight at sensitivity 1. Noise in a class score then has a standard deviation
    of at most 0.2, beside a margin of 1. The constant was chosen on digits, USPS and ISOLET
    (rows of norm 1, epsilon 0.5 to 8): neighbouring constants do about as well, and data unlike
    these may prefer another C.

    C-ordered float64 or float32 arrays and canonical CSR matrices are used without a copy; other
    orders, dtypes and sparse formats are converted once.

    References
    ----------
    .. [1] Crammer and Singer, "On the algorithmic implementation of multiclass kernel-based
       vector machines", JMLR 2 (2001).
    .. [2] Park, Choi and Lee, "Multi-class support vector machine with differential privacy",
       NeurIPS 2025, section 4 (weight perturbation).
    .. [3] Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from dpsvm_fast import OutputPerturbationSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = OutputPerturbationSVC(epsilon=8.0, classes=range(10)).fit(normalize(X), y)
    >>> model.coef_.shape
    (10, 64)
    >>> model.privacy_.private
    True
    """

    _parameters = OUTPUT_PERTURBATION

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        loss: str = "crammer_singer",
        noise: str = "gaussian",
        adjacency: str = "add_remove",
        data_norm: float = 1.0,
        classes: Any = None,
        fit_intercept: bool = True,
        intercept_scaling: float | str = "auto",
        C: float | str = "auto",
        tol: float = 1e-3,
        max_iter: int | None = None,
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        n_threads: int | None = None,
        noise_grid: str = "exact",
        low_memory: bool = False,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.loss = loss
        self.noise = noise
        self.adjacency = adjacency
        self.data_norm = data_norm
        self.classes = classes
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.C = C
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.ledger = ledger
        self.n_threads = n_threads
        self.noise_grid = noise_grid
        self.low_memory = low_memory
        self.verbose = verbose

    def _complete(self, settings: SimpleNamespace) -> None:
        """Without an intercept the constant feature is 0; "auto" depends on the norm alone."""
        if not settings.fit_intercept:
            settings.intercept_scaling = 0.0
        elif settings.intercept_scaling == "auto":
            settings.intercept_scaling = automatic_intercept_scaling(settings.data_norm)

    def _mechanism(
        self, settings: SimpleNamespace, n_classes: int, n_features: int
    ) -> OutputPerturbation:
        """The release for weights of this shape."""
        # What the solver and the mechanism read from the settings is all public.
        names = ("epsilon", "delta", "adjacency", "noise", "loss")
        shared = {name: getattr(settings, name) for name in names}
        C = settings.C
        if C == "auto":
            C = automatic_C(
                **shared,
                n_weights=n_classes * (n_features + (settings.intercept_scaling > 0.0)),
                row_norm=math.hypot(settings.data_norm, settings.intercept_scaling),
            )
        return OutputPerturbation(
            **shared,
            noise_grid=settings.noise_grid,
            n_classes=n_classes,
            n_features=n_features,
            data_norm=settings.data_norm,
            intercept_scaling=settings.intercept_scaling,
            C=C,
            tol=settings.tol,
        )

    def _released(
        self,
        X: Any,
        codes: NDArray[np.int64],
        mechanism: OutputPerturbation,
        settings: SimpleNamespace,
        source: _core.NoiseSource,
    ) -> NDArray[np.float64]:
        """Weights within ``mechanism.radius`` of the minimiser, with noise."""
        options = {
            "n_classes": mechanism.n_classes,
            "C": mechanism.C,
            "data_norm": mechanism.data_norm,
            "intercept_scaling": mechanism.intercept_scaling,
            "radius": mechanism.radius,
            "max_iter": settings.max_iter,
            "shuffle_seed": source.public_seed(),
            "n_threads": settings.n_threads,
            "low_memory": settings.low_memory,
        }
        solvers = (_core.solve_crammer_singer_dense, _core.solve_crammer_singer_csr)
        weights = certified(*solvers, X, codes, options)
        return mechanism.release(weights, source, n_threads=settings.n_threads)
