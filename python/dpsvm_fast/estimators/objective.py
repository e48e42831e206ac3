"""Support vector machine trained by objective perturbation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from dpsvm_fast.estimators import parameters as param
from dpsvm_fast.estimators.base import Probabilities
from dpsvm_fast.estimators.fit import OneRelease
from dpsvm_fast.mechanisms.objective import INTERCEPT, ObjectivePerturbation
from dpsvm_fast.mechanisms.plan import Facts


@dataclass(eq=False, repr=False)
class ObjectivePerturbationSVC(Probabilities, OneRelease):
    r"""Multi-class linear SVM with noise inside its objective.

    All classes are trained jointly, in one noisy convex problem with one access to the data:

    .. math::
        W^* = \arg\min_W \sum_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2} \|W\|_F^2
              + \langle B, W \rangle, \qquad \lambda = \tfrac{1}{C} + \text{extra}

    where :math:`\tilde x_i = (x_i \min(1, \kappa / \|x_i\|), s)` is row i clipped to the norm
    ``data_norm`` and extended by the constant feature ``intercept_scaling``, and B is one draw of
    noise. The released weights are a certified approximation of :math:`W^*` plus a little noise
    that covers the approximation error. There are no steps, batches or learning rates to choose.
    With K >= 3 classes W has K rows; with two classes it has one (except for ``m3`` and
    ``huber_ww``).

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 < delta < 1. With ``noise="gamma"`` the guarantee has delta = 0,
        whatever is given here.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets differ by one row added or removed (the number of rows stays
        private), or by one row replaced (about twice the noise; the number of rows is public).
    classes : array-like of shape (n_classes,) or None, default=None
        Public label set: ints, strings, bools or whole floats. Classes may be absent from the data.
        None reads it from ``y``, which releases it without noise: a ``PrivacyLeakWarning`` is
        issued, and the statement is marked not private.
    class_weight : dict, "balanced" or None, default=None
        Public weight of the loss for each label; 1 for labels not given. With ``C="auto"`` only
        their ratios matter; a number C multiplies the weighted losses. "balanced" releases noisy
        class counts, for 2 % of the squared Gaussian parameter, and weights each class by the
        inverse of its count, the rarest by 1; it needs Gaussian noise.
    max_weight : float > 0, default=1.0
        Public upper limit on ``sample_weight``; larger weights are clipped, and a row of this
        weight counts as one. The weights of one person sum to at most one: several rows count as
        their mean.
    noise_grid : {"exact", "float"}, default="exact"
        "exact" samples Gaussian noise exactly on power-of-two grids, so that the guarantee covers
        the program's arithmetic. "float" draws ordinary floating-point noise. Released weights are
        multiples of a power of two in both cases.
    random_state : int or None, default=None
        None draws noise from the operating system. A seed makes the fit reproducible but not
        private: a ``NotPrivateWarning`` is issued, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget ledger, checked before data are read and charged before noise is drawn.
    n_threads : int or None, default=None
        Number of threads; None for all cores of this process. Never changes the result.
    verbose : {0, 1}, default=0
        1 prints the plan. Progress is not shown, because it depends on the data.
    loss : str, default="softmax_margin"
        Loss phi of the scores: any smooth loss of :class:`dpsvm_fast.losses.Loss` except
        ``margin_distance``. ``softmax_margin`` is the smoothed Crammer-Singer hinge; with
        ``margin=0`` it is the cross-entropy.
    noise : {"gaussian", "gamma"}, default="gaussian"
        Distribution of B. "gaussian": independent Gaussians, for (epsilon, delta). "gamma": density
        proportional to ``exp(-beta ||B||)``, for delta = 0; much more noise for many weights.
    data_norm : float, default=1.0
        Public bound on the L2 norm of each row; longer rows are scaled down to it, silently.
    fit_intercept : bool, default=True
        Whether to add a constant feature, whose weight is regularised and noisy like the others.
    intercept_scaling : "auto" or float > 0, default="auto"
        Value of the constant feature for the intercept; "auto" is ``0.1 * data_norm``, or 0.2 with
        Gamma noise.
    C : "auto" or float > 0, default="auto"
        Factor of the sum of the losses, as in scikit-learn. "auto" follows from public facts, see
        Notes.
    extra_regularization : "auto" or float >= 0, default="auto"
        Regularisation added to ``1 / C``, because the curvature of one row relative to lambda costs
        privacy. "auto" adds the best amount, often none (see Notes). With a float, a C too large
        for the budget is refused; the error names the largest valid one.
    smoothing : "auto" or float > 0, default="auto"
        Width over which the hinge is smoothed; "auto" is 0.4 for ``softmax_margin`` and
        ``softplus``, 0.5 for the others. Must be "auto" for ``logistic``.
    margin : "auto" or float >= 0, default="auto"
        Margin of the loss; "auto" is ``2.5 * smoothing`` for ``softmax_margin`` and ``softplus``, 1
        for the others. Must be "auto" or 1 for ``huber``, "auto" for ``logistic``.
    tol : float in [1e-8, 1], default=1e-5
        Tolerance: the solver stops at a certified gradient norm of ``tol`` times the largest
        gradient norm of one row. Additional noise covers the remaining error of the weights.
    max_iter : int or None, default=None
        Largest number of Newton steps. None runs until certified, as the guarantee requires.
    low_memory : bool, default=False
        Whether the solver reads X again in every pass instead of keeping a compact copy.

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
    feature_names_in_ : ndarray of shape (n_features,)
        Feature names, if X has string column names.
    privacy_ : PrivacyStatement
        Privacy statement of the fit, with every number to recompute it.

    Notes
    -----
    Guarantees: the fitted attributes are (epsilon, delta)-differentially private for the relation
    ``adjacency``, where a record is one row with its label, provided that ``data_norm``,
    ``classes``, the feature names and every other parameter were chosen without looking at the
    data. One hundredth of epsilon and of delta covers the approximate minimum, the rest the noise
    in the objective; the statement has both. Non-finite values are refused and long rows are
    clipped, so no value in X or y can void the guarantee. Not covered: running time; the event that
    ``CertificationError`` is raised, with ``max_iter`` or where double precision cannot certify the
    minimum (a tiny ``smoothing`` with a huge C); with ``noise="gamma"`` or ``noise_grid="float"``,
    floating-point effects. An error reveals that the data are invalid but never quotes them.

    ``C="auto"`` and ``extra_regularization="auto"`` use public numbers only. With kt the norm of a
    row with its constant feature, tau the temperature of the loss (``smoothing``, half of it for
    ``huber``, 1 for ``logistic``):

    - Gaussian noise of standard deviation sigma: lambda solves ``lambda * tau = sigma * kt``, where
      sigma depends on lambda. Nothing is added to a given ``1 / C`` unless the curvature would more
      than double the noise.
    - Gamma noise of rate beta on p weights: lambda minimises
      ``(p + 1) kt**2 / (beta**2 lambda) + m**2 lambda`` above ``1 / C`` (or 0), where m is the
      margin, at least 2.5 tau, and beta depends on lambda. This is near
      ``lambda = sqrt(p) kt / (m beta)``; no threshold makes the noise explode.

    C-ordered float64 or float32 arrays and canonical CSR matrices are used without a copy; other
    orders, dtypes and sparse formats are converted once.

    References
    ----------
    .. [1] Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk minimization",
       JMLR 12 (2011), Algorithm 2.
    .. [2] Kifer, Smith and Thakurta, "Private convex empirical risk minimization and
       high-dimensional regression", COLT 2012.
    .. [3] Iyengar, Near, Song, Thakkar, Thakurta and Wang, "Towards practical differentially
       private convex optimization", IEEE S&P 2019.
    .. [4] Redberg, Koskela and Wang, "Improving the privacy and practicality of objective
       perturbation for differentially private linear learners", NeurIPS 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from dpsvm_fast import ObjectivePerturbationSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> model = ObjectivePerturbationSVC(epsilon=8.0, classes=range(10)).fit(normalize(X), y)
    >>> model.coef_.shape
    (10, 64)
    >>> model.privacy_.private
    True
    """

    _: KW_ONLY
    loss: param.SmoothLoss = "softmax_margin"
    noise: param.Noise = "gaussian"
    data_norm: param.Positive = 1.0
    fit_intercept: param.Flag = True
    intercept_scaling: param.AutoPositive = "auto"
    C: param.AutoPositive = "auto"
    extra_regularization: param.AutoNonNegative = "auto"
    smoothing: param.Smoothing = "auto"
    margin: param.Margin = "auto"
    tol: param.GradientTol = 1e-5
    max_iter: param.MaxIter = None
    low_memory: param.Flag = False

    def _training(self, facts: Facts) -> ObjectivePerturbation:
        """Return the plan of the training for rows with these public facts."""
        return self._planned(
            ObjectivePerturbation,
            facts,
            loss=self._loss_of(facts.n_classes),
            intercept_scaling=self._intercept(INTERCEPT[self.noise]),
        )
