"""Support vector machine trained by output perturbation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from dpsvm_fast.certificates.words import ROWS_OF_PERSON
from dpsvm_fast.estimators import parameters as param
from dpsvm_fast.estimators.base import Probabilities
from dpsvm_fast.estimators.fit import OneRelease
from dpsvm_fast.estimators.parameters import integer, one_of, refuse_unused
from dpsvm_fast.mechanisms.output import AVERAGES, PROJECTIONS, OutputPerturbation, ProjectedSGD
from dpsvm_fast.mechanisms.plan import Facts

# Parameters of one solver alone, with their defaults: any other value with the other solver would
# be ignored silently.
PSGD_ONLY = {
    "n_epochs": 10,
    "batch_size": 50,
    "radius": "auto",
    "projection": "joint",
    "average": "last",
}

EXACT_ONLY = {"tol": 1e-3, "max_iter": None}


@dataclass(eq=False, repr=False)
class OutputPerturbationSVC(Probabilities, OneRelease):
    r"""Multi-class linear SVM with noise added to the trained weights.

    All classes are trained and released jointly, with one access to the data:

    .. math::
        W^* = \arg\min_W \tfrac12 \|W\|_F^2 + C \sum_i \phi_{y_i}(W \tilde x_i)

    where :math:`\tilde x_i = (x_i \min(1, \kappa / \|x_i\|), s)` is row i clipped to the norm
    ``data_norm`` and extended by the constant feature ``intercept_scaling``. The released weights
    are a certified approximation of :math:`W^*`, or an iterate of projected SGD towards it, plus
    noise.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy parameter, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter, 0 < delta < 1. With ``noise="gamma"`` the guarantee has delta = 0,
        whatever is given here.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets differ by one row added or removed (the number of rows stays
        private), or by one row replaced (twice the noise; the number of rows is public).
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
        "exact" releases on a power-of-two grid with exactly sampled Gaussian noise, so that the
        guarantee covers the program's arithmetic. "float" draws ordinary floating-point noise.
    random_state : int or None, default=None
        None draws noise from the operating system. A seed makes the fit reproducible but not
        private: a ``NotPrivateWarning`` is issued, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget ledger, checked before data are read and charged before the solver starts.
    n_threads : int or None, default=None
        Number of threads; None for all cores of this process. Never changes the result.
    verbose : {0, 1}, default=0
        1 prints the plan. Progress is not shown, because it depends on the data.
    loss : str, default="crammer_singer"
        Loss phi of the scores; :class:`dpsvm_fast.losses.Loss` has the formulas. ``crammer_singer``
        is the multi-class hinge; the others are smooth. Gradients of ``margin_distance`` all have
        the same norm where the margin is violated, so it needs less noise: it is better than the
        others for three or more classes.
    noise : {"gaussian", "gamma"}, default="gaussian"
        "gaussian": independent Gaussian noise, for (epsilon, delta). "gamma": noise b of density
        proportional to ``exp(-beta ||b||)``, for delta = 0; much more noise for many weights.
    data_norm : float, default=1.0
        Public bound on the L2 norm of each row; longer rows are scaled down to it, silently.
    fit_intercept : bool, default=True
        Whether to add a constant feature, whose weight is regularised and noisy like the others.
    intercept_scaling : "auto" or float > 0, default="auto"
        Value of the constant feature for the intercept; "auto" is ``0.2 * data_norm``.
    C : "auto" or float > 0, default="auto"
        Factor of the sum of the losses, as in scikit-learn. Noise grows with it. "auto" follows
        from public facts, see Notes.
    smoothing : "auto" or float > 0, default="auto"
        Width over which the hinge is smoothed; "auto" is 0.4 for ``softmax_margin`` and
        ``softplus``, 0.5 for the others. Not for ``crammer_singer`` and ``logistic``.
    margin : "auto" or float >= 0, default="auto"
        Margin of the loss; "auto" is ``2.5 * smoothing`` for ``softmax_margin`` and ``softplus``, 1
        for the others. Not for ``crammer_singer`` and ``logistic``; must be 1 for ``huber``.
    solver : {"exact", "psgd"}, default="exact"
        "exact" certifies a distance to the minimiser. "psgd" is projected stochastic gradient
        descent with a proved sensitivity: fixed work, but a less accurate model. It needs a smooth
        loss and ``adjacency="replace_one"``, because its steps depend on the number of rows. It
        uses the first 1024 rows of each person.
    n_epochs : int >= 1, default=10
        Passes of "psgd" over the rows, each in a new order independent of the rows.
    batch_size : int >= 1, default=50
        Rows per update of "psgd"; a larger number than n_samples means all rows.
    radius : "auto" or float > 0, default="auto"
        Radius of the ball onto which "psgd" projects every iterate. With "auto" the ball contains
        the minimiser for any data: ``min(L kt n C, sqrt(2 n C phi(0)))``.
    projection : {"joint", "per_class"}, default="joint"
        With "psgd": one ball for all weights, or one ball per score.
    average : {"last", "uniform", "weighted"}, default="last"
        Result of "psgd": the last iterate, or the mean of all iterates with equal weights or
        weights proportional to the update number. The means need more noise.
    tol : float in [1e-4, 1], default=1e-3
        Tolerance: the "exact" solver stops at a certified distance to the minimiser of ``tol``
        times the sensitivity. The noise also covers twice that distance.
    max_iter : int or None, default=None
        Largest number of passes over the data (Newton steps for smooth losses) of the "exact"
        solver. None runs until certified, as the guarantee requires.
    low_memory : bool, default=False
        Whether the solver reads X again in every pass instead of keeping a compact copy.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Noisy weights. For two classes the row is the difference of their weights, or the weights of
        the single score.
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
    data. Non-finite values are refused and long rows are clipped, so no value in X or y can void
    the guarantee. Not covered: running time; the event that ``CertificationError`` is raised, with
    ``max_iter`` or where double precision cannot certify a smooth loss (a tiny ``smoothing`` with a
    huge C); with ``noise="gamma"`` or ``noise_grid="float"``, floating-point effects. An error
    reveals that the data are invalid but never quotes them.

    ``C="auto"`` is ``0.2 / (f L m kt**2)`` with ``kt**2 = data_norm**2 + intercept_scaling**2``, L
    the largest norm of the loss's gradient in the scores (``sqrt(2)`` for ``crammer_singer`` and
    ``softmax_margin``, 1 for one score, ``sqrt(K)`` for one-vs-rest sums over K classes,
    ``sqrt(K (K - 1))`` for ``m3`` and ``huber_ww``, 1 for ``margin_distance``), f = 1
    (``add_remove``) or 2 (``replace_one``) and m the root mean square of the noise in a weight at
    sensitivity 1. The noise in a class score then has a standard deviation of at most 0.2, compared
    with a margin of 1. The constant 0.2 was chosen on digits, USPS and ISOLET (``crammer_singer``,
    rows of norm 1, epsilon 0.5 to 8). Similar constants do about as well; other data or losses may
    prefer another C. For ``margin_distance`` the constant is ``min(0.12, 1/K)``, chosen on eight
    data sets of 4 to 26 classes, epsilon 1 to 8.

    C-ordered float64 or float32 arrays and canonical CSR matrices are used without a copy; other
    orders, dtypes and sparse formats are converted once.

    References
    ----------
    .. [1] Crammer and Singer, "On the algorithmic implementation of multiclass kernel-based
       vector machines", JMLR 2 (2001).
    .. [2] Park, Choi and Lee, "Multi-class support vector machine with differential privacy",
       NeurIPS 2025, section 4 (weight perturbation).
    .. [3] Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018.
    .. [4] Wu, Li, Kumar, Chaudhuri, Jha and Naughton, "Bolt-on differential privacy for scalable
       stochastic gradient descent-based analytics", SIGMOD 2017 (``solver="psgd"``).

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

    _: KW_ONLY
    loss: param.WeightLoss = "crammer_singer"
    noise: param.Noise = "gaussian"
    data_norm: param.Positive = 1.0
    fit_intercept: param.Flag = True
    intercept_scaling: param.AutoPositive = "auto"
    C: param.AutoPositive = "auto"
    smoothing: param.Smoothing = "auto"
    margin: param.Margin = "auto"
    solver: Annotated[str, one_of("exact", "psgd")] = "exact"
    n_epochs: Annotated[int, integer(1, 2**36)] = 10
    batch_size: Annotated[int, integer(1, 2**36)] = 50
    radius: param.AutoPositive = "auto"
    projection: Annotated[str, one_of(*PROJECTIONS)] = "joint"
    average: Annotated[str, one_of(*AVERAGES)] = "last"
    tol: param.DistanceTol = 1e-3
    max_iter: param.MaxIter = None
    low_memory: param.Flag = False

    def _training(self, facts: Facts) -> OutputPerturbation:
        """Return the plan of the training for rows with these public facts."""
        unused = EXACT_ONLY if self.solver == "psgd" else PSGD_ONLY
        refuse_unused(self, unused, f"with solver={self.solver!r}, which does not use it")
        sgd = None
        if self.solver == "psgd":
            most_rows = ROWS_OF_PERSON if facts.unit == "person" else 1
            # For one row if their number is not known yet.
            n_samples = facts.n_samples or 1
            sgd = self._planned(ProjectedSGD, facts, n_samples=n_samples, most_rows=most_rows)
        return self._planned(
            OutputPerturbation,
            facts,
            loss=self._loss_of(facts.n_classes),
            intercept_scaling=self._intercept(),
            sgd=sgd,
        )
