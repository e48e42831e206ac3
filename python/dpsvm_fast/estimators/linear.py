"""The estimator to start with: a whole private pipeline, with nothing to tune."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast.accounting import PrivacyLedger
from dpsvm_fast.estimators._bounds import public_map
from dpsvm_fast.estimators._linear_fit import LinearFit, fitted_weights
from dpsvm_fast.estimators._parameters import PRIVATE_LINEAR
from dpsvm_fast.estimators._private_pipeline import PrivatePipeline
from dpsvm_fast.estimators._training_data import checked_rows
from dpsvm_fast.mechanisms._row_maps import PublicMap, ReleasedMap, mapped_scores
from dpsvm_fast.mechanisms.linear_pipeline import PrivateLinear

__all__ = ["PrivateLinearSVC"]


class PrivateLinearSVC(PrivatePipeline):
    r"""Private multi-class linear SVM with a private pipeline around it and nothing to tune.

    One fit does, in this order and within one budget:

    1. every row is mapped by public ``bounds``, [0, b] and [lo, hi] to [0, 1] and [-b, b] to
       [-1, 1], and scaled to norm 1: no budget;
    2. the mean of the rows and their number are released with noise (7 % of the squared Gaussian
       parameter); rows are centred and scaled to norm 1 again;
    3. if the noisy number of rows is large enough for their dimension, the matrix of their second
       moments is released with noise (10 %); rows are whitened and scaled to norm 1 again. With
       more than 2 K and at most 20 features, K the number of classes, that is done twice before
       (5 % each): what one whitening enlarges stands out of the noise of the next;
    4. weights of all classes are trained with what is left of the budget, by default by full-batch
       gradient descent on clipped gradients with noise in every step; the mean of the last iterates
       is released.

    Every number in it is a function of public facts and of what was released before.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter of everything together, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 <= delta < 1; far below one over the number of rows. 0 takes a recipe
        of pure epsilon: centring for a tenth of epsilon and objective perturbation with Gamma
        noise, without whitening. Its noise grows with the number of weights: expect little of it
        for many classes or features.
    bounds : tuple (low, high) or None, default=None
        Public bounds of the features, each a number or an array of shape (n_features,), with
        ``low < high``; entries outside are clipped, silently. They must not be taken from the data.
        None leaves features as they are: then only the directions of rows matter, and features of
        larger range dominate.
    mechanism : {"auto", "gradient", "objective", "output"}, default="auto"
        How the weights are trained. "auto" is "gradient", or "objective" with ``delta=0``.
        "objective" puts noise into the objective (smoothed Crammer-Singer loss, or the Huber hinge
        for two classes with ``delta=0``); "output" puts it on the trained weights (loss
        ``margin_distance``, see `OutputPerturbationSVC`); with a centre before it and
        ``delta > 0`` in four releases, each minimiser regularised towards the release before.
    classes : array-like of shape (n_classes,) or None, default=None
        Public label set: ints, strings, bools or whole floats. It may hold classes that do not
        occur. None reads it from ``y``, which releases it without noise: a
        ``PrivacyLeakWarning``, and the statement is marked not private.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets: one row more or fewer (the number of rows stays private), or one
        row exchanged for another (more noise; the number of rows is public).
    whiten : "auto" or bool, default="auto"
        Whether to whiten. "auto" decides by the noisy number of rows; what is not spent on it
        stays with the training, except with ``mechanism="objective"``, where it is lost: there say
        False if you know that the rows are fewer than half the squared number of features.
    margin : "auto" or float >= 0, default="auto"
        Margin of the loss. "auto" is 0 for "gradient", which makes the loss a likelihood
        with ``predict_proba``; 1 makes it the smoothed Crammer-Singer hinge, as accurate for many
        rows and up to 0.01 less for few. "auto" is 1 for "objective" and "output".
    fit_intercept : bool, default=True
        Whether to add a constant feature. Its weight is noisy like the others.
    random_state : int or None, default=None
        None takes the operating system's entropy. A seed makes the fit reproducible and thereby
        not private: a ``NotPrivateWarning``, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget to be asked before data are read and charged before anything is drawn.
    n_threads : int or None, default=None
        Threads; None is all cores that this process may use. Never changes the result.
    noise_grid : {"exact", "float"}, default="exact"
        "exact" draws Gaussian noise exactly on power-of-two grids, so that the guarantee covers
        the program's own arithmetic. "float" is ordinary floating-point noise.
    verbose : {0, 1}, default=0
        1 prints what was planned before training.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Noisy weights of the centred row, whitening included, see Notes.
    intercept_ : ndarray of shape (n_classes,), or (1,)
        Noisy intercepts, 0 without ``fit_intercept``.
    classes_ : ndarray of shape (n_classes,)
        The sorted label set.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features where X has string names.
    bounds_ : tuple of two ndarray of shape (n_features,), or None
        The public bounds.
    n_samples_ : float or None
        Noisy number of training rows, or the public one with ``replace_one``; None where neither
        was used.
    centre_ : ndarray of shape (n_features,) or None
        Noisy mean of the mapped rows, shrunk by the share of noise in its length.
    whitened_ : bool
    whitening_ : ndarray of shape (n_features, n_features) or None
        Noisy whitening matrix, of spectral norm at most 1; the product of all of them.
    mechanism_ : {"gradient", "objective", "output"}
    mu_ : dict of str to float
        Gaussian parameter of each kind of release ("centre", "whitening", "training"), of
        "gradient"; the sum of their squares is that of the whole budget. Empty otherwise.
    max_grad_norm_, n_steps_, learning_rate_, c_, lambda_ : float or int, or None
        Of "gradient": clip norm, number of steps, step on the sum of gradients, and the rule behind
        it, see Notes. With "objective", ``lambda_`` is that of the objective.
    privacy_ : PrivacyStatement
        What was promised, and every number needed to recompute it.

    Notes
    -----
    Guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the
    relation ``adjacency``, one record being one row with its label, provided that ``bounds``,
    ``classes``, the feature names and every other parameter were chosen without looking at the
    data. No value in X or y can void it: rows are mapped to norm 1 whatever they hold, and
    non-finite values are refused. Not covered: running time; floating-point effects with
    ``noise_grid="float"`` or ``delta=0``; with "objective" and "output", the event that double
    precision cannot certify the minimum (``CertificationError``). An error about invalid data
    tells that they are invalid, and never quotes them.

    With u the row mapped by ``bounds`` and scaled to norm 1, m = ``centre_`` and M =
    ``whitening_``, the scores are

    .. math:: \langle w_k, u - m \rangle / \nu(u) + b_k, \qquad
              \nu(u) = \max(\|u - m\|, 1/16) \text{ or } \|M (u - m)\|

    with w = ``coef_`` and b = ``intercept_``: one affine map of u up to a positive factor, which is
    recomputed for every row because it weighs the intercept.

    The descent has, with R = ``max_grad_norm_`` = 0.25 (0.25 / sqrt 2 for the one score of two
    classes), n = ``n_samples_`` and mu the parameter of the training (halved for ``replace_one``):
    T = n mu / 300 steps, between 100 and 500; c = sqrt(6 d / n), between 0.35 and 0.7; lambda = c R
    / mu; steps of 1 / (lambda T) on the sum of clipped gradients; no weight decay; the mean of the
    last 0.0875 T / c iterates. Whitened rows take c down to 0.25 and the last 0.15 T / c iterates.
    The constants of the recipe were chosen on six data sets (vehicle, dermatology, isolet, usps,
    cornell, wisdm; epsilon 1 to 8, delta 1e-5), those of whitening on small versions of them, too:
    expect a little less on others.

    Sparse rows stay sparse: centring is implicit, so ``bounds`` must have low = 0, or low = -high.
    Only whitening makes a dense copy (single precision), and it needs n >= d**2 / 2. "objective"
    and "output" do not centre sparse rows, whatever ``delta`` is: all budget goes to the training.

    References
    ----------
    .. [1] Dong, Roth and Su, "Gaussian differential privacy", JRSS B 84 (2022).
    .. [2] Smith and Thakurta, "Fully adaptive composition for Gaussian differential privacy", 2022.
    .. [3] Abadi et al., "Deep learning with differential privacy", CCS 2016 (clipped gradients).
    .. [4] Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss", STOC 2014 (second moments).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = PrivateLinearSVC(epsilon=4.0, classes=range(10), bounds=(0, 16)).fit(X, y)
    >>> model.coef_.shape
    (10, 64)
    >>> model.privacy_.private
    True
    """

    _parameters = PRIVATE_LINEAR

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        bounds: Any = None,
        mechanism: str = "auto",
        classes: Any = None,
        adjacency: str = "add_remove",
        whiten: bool | str = "auto",
        margin: float | str = "auto",
        fit_intercept: bool = True,
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        n_threads: int | None = None,
        noise_grid: str = "exact",
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.mechanism = mechanism
        self.classes = classes
        self.adjacency = adjacency
        self.whiten = whiten
        self.margin = margin
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.ledger = ledger
        self.n_threads = n_threads
        self.noise_grid = noise_grid
        self.verbose = verbose

    def _mechanism(
        self, settings: SimpleNamespace, n_classes: int, n_features: int
    ) -> PrivateLinear:
        """All releases for weights of this shape."""
        return PrivateLinear(**self._shared_settings(settings, n_classes, n_features))

    def _fit_released(
        self,
        mechanism: PrivateLinear,
        public: PublicMap,
        X: Any,
        codes: NDArray[np.int64],
        source: _core.NoiseSource,
        settings: SimpleNamespace,
    ) -> LinearFit:
        """Makes the releases of one fit."""
        return fitted_weights(mechanism, public, X, codes, source, settings.n_threads)

    def _scaled_scores(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Scores of mapped rows, which no row can bring out of the floats."""
        check_is_fitted(self)
        X = checked_rows(self, X)
        public = public_map(self.bounds_, sparse_rows=sparse.issparse(X))
        released = ReleasedMap(self.centre_, self.whitening_)
        scores = mapped_scores(public, released, X, self.coef_, self.intercept_)
        return scores, np.zeros(scores.shape[0], dtype=np.int64)
