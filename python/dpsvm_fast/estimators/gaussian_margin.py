"""Large-margin Gaussian classifier: classes as ellipsoids, trained on a noisy objective."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast.estimators import parameters as param
from dpsvm_fast.estimators.fit import OneRelease
from dpsvm_fast.estimators.inputs import checked_rows
from dpsvm_fast.estimators.parameters import integer, number_or_none, one_of
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError
from dpsvm_fast.mechanisms.gaussian_margin import CONSTANT, GaussianMargin, n_coordinates
from dpsvm_fast.mechanisms.plan import Facts
from dpsvm_fast.mechanisms.rows import PublicMap, row_blocks, row_scores

# Ellipsoids from released coordinates: arithmetic on released and public numbers only.


# Eigenvalues below this share of the largest count as zero where a matrix is inverted.
SINGULAR = 1e-10

Array = NDArray[np.float64]


def symmetric_matrices(coordinates: Array) -> Array:
    """Return matrices of shape (..., m, m) from coordinates of shape (..., m (m + 1) / 2).

    Coordinates are the upper triangle row by row, with off-diagonal entries times sqrt(2).
    """
    side = (math.isqrt(8 * coordinates.shape[-1] + 1) - 1) // 2
    rows, columns = np.triu_indices(side)
    entries = coordinates / np.where(rows == columns, 1.0, math.sqrt(2.0))
    matrices = np.empty((*coordinates.shape[:-1], side, side))
    matrices[..., rows, columns] = entries
    matrices[..., columns, rows] = entries
    return matrices


def released_ellipsoids(coordinates: Array, data_norm: float, *, psd: str) -> Array:
    """Return positive semidefinite matrices for (x, 1), one per row of noisy coordinates.

    Parameters
    ----------
    coordinates : ndarray of shape (n_matrices, n_coordinates)
        Coordinates of matrices of the lifted rows (x / data_norm, s) / sqrt(1 + s^2).
    data_norm : float > 0
    psd : {"constraint", "project"}
        "constraint": each matrix is projected to the nearest positive semidefinite one in the
        Frobenius norm, which is very close. "project": the same multiple of the identity is added
        to all, which leaves differences of scores unchanged.
    """
    matrices = symmetric_matrices(coordinates)
    if psd == "project":
        # Twice what they need, so that no ellipsoid is degenerate.
        least = float(np.linalg.eigvalsh(matrices).min())
        matrices = matrices + 2.0 * max(-least, 0.0) * np.eye(matrices.shape[-1])
    # After a shift this removes nothing, and rounding errors at most.
    matrices = _clipped(matrices)
    side = matrices.shape[-1]
    units = np.append(np.full(side - 1, 1.0 / data_norm), CONSTANT) / math.hypot(1.0, CONSTANT)
    return np.asarray(matrices * units[:, None] * units)


def _clipped(matrices: Array) -> Array:
    """Return the nearest positive semidefinite matrices, exactly symmetric."""
    values, vectors = np.linalg.eigh(matrices)
    nearest = (vectors * np.maximum(values, 0.0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.asarray(0.5 * (nearest + np.swapaxes(nearest, -1, -2)))


def centres_of(ellipsoids: Array) -> tuple[Array, Array]:
    """Return centres, shape (..., d), and minima, shape (...), of the quadratic forms.

    If the block of x is singular, the centre nearest to the origin is returned.
    """
    precisions, sides = ellipsoids[..., :-1, :-1], ellipsoids[..., :-1, -1]
    inverses = np.linalg.pinv(precisions, rcond=SINGULAR, hermitian=True)
    centres = -(inverses @ sides[..., None])[..., 0]
    least = ellipsoids[..., -1, -1] + (sides * centres).sum(axis=-1)
    return centres, np.maximum(least, 0.0)


def quadratic_forms(rows: Array, ellipsoids: Array) -> Array:
    """Return values (x, 1) Phi (x, 1), shape (n_samples, ...), at least 0.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, d)
    ellipsoids : ndarray of shape (..., d + 1, d + 1)
    """
    flat = ellipsoids.reshape(-1, *ellipsoids.shape[-2:])
    lifted = np.column_stack([rows, np.ones(len(rows))])
    values = np.empty((len(rows), len(flat)))
    for j, matrix in enumerate(flat):
        values[:, j] = (row_scores(lifted, matrix.T) * lifted).sum(axis=1)
    return np.maximum(values, 0.0).reshape(len(rows), *ellipsoids.shape[:-2])


# Scores, predictions and distances from released ellipsoids.


class EllipsoidClassifier(OneRelease):
    """Base of classifiers whose classes are ellipsoids; all methods are post-processing."""

    ellipsoids_: Array
    precisions_: Array
    means_: Array
    offsets_: Array
    lambda_: float
    data_norm_: float

    psd: str

    def _attributes(self, plan: GaussianMargin, released: Array) -> dict[str, Any]:
        """Return positive semidefinite matrices for (x, 1), in units of X, from noisy ones."""
        found = released_ellipsoids(released, plan.data_norm, psd=self.psd)
        ellipsoids = found.reshape(plan.n_classes, plan.n_ellipsoids, *found.shape[1:])
        centres, least = centres_of(ellipsoids)
        return {
            "ellipsoids_": ellipsoids,
            "precisions_": np.ascontiguousarray(ellipsoids[..., :-1, :-1]),
            "means_": centres,
            "offsets_": least,
            "lambda_": plan.regularization,
            "data_norm_": plan.data_norm,
            "_fitted_loss": plan.score_loss,
        }

    def decision_function(self, X: Any) -> Array:
        """Return the score of every class, or the difference of the scores of two classes.

        The score of a class is ``-(distance + offset)``, minus the smallest of its quadratic forms.
        Rows longer than ``data_norm_`` are first scaled down to it, as in training.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
        """
        scores = -self._forms(X)[0]
        return np.asarray(scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of the class with the smallest distance plus offset.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        forms, _ = self._forms(X)
        return np.asarray(self.classes_[forms.argmin(axis=1)])

    def mahalanobis(self, X: Any) -> Array:
        """Return squared Mahalanobis distances to the classes, without offsets.

        If a class has several ellipsoids, the distance is to the one with the smallest distance
        plus offset. Long rows are scaled down as in ``decision_function``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        forms, which = self._forms(X)
        offsets = np.take_along_axis(self.offsets_[None], which[..., None], axis=2)[..., 0]
        return np.maximum(forms - offsets, 0.0)

    def _forms(self, X: Any) -> tuple[Array, NDArray[np.int64]]:
        """Return the smallest form of each class, and the index of its ellipsoid."""
        check_is_fitted(self)
        X = checked_rows(self, X)
        if sparse.issparse(X):
            raise refused_sparse()
        n_classes, n_ellipsoids, side = self.ellipsoids_.shape[:3]
        forms = np.empty((X.shape[0], n_classes))
        which = np.zeros((X.shape[0], n_classes), dtype=np.int64)
        public = PublicMap(unit=False, data_norm=self.data_norm_)
        for block in row_blocks(X, side + n_classes * n_ellipsoids):
            rows = public.apply(X[block]) * self.data_norm_
            values = quadratic_forms(rows, self.ellipsoids_)
            which[block] = values.argmin(axis=2)
            forms[block] = values.min(axis=2)
        return forms, which

    def __sklearn_tags__(self) -> Any:
        """Declare that sparse rows are refused: the model uses all products of features."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags


def refused_sparse() -> InvalidTypeError:
    """Return the error for sparse rows: the model has a weight for every pair of features."""
    return InvalidTypeError(
        "X: got a sparse matrix, expected a dense array, as this model has a weight for every pair "
        "of features; reduce sparse rows to a few dense features first"
    )


MAX_ELLIPSOIDS = 1000
# Numbers in all matrices together that the solver takes.
MAX_ENTRIES = 1 << 24
# smoothing="auto", and margin="auto" in units of it. The scores of lifted rows differ less than
# those of a linear model: a smaller margin than there.
SMOOTHING = {"softmax_margin": 0.4, "huber_ww": 0.5}

LOSSES = tuple(SMOOTHING)

MARGIN_IN_SMOOTHINGS = {"softmax_margin": 1.5, "huber_ww": 2.0}


@dataclass(eq=False, repr=False)
class PrivateGaussianMarginClassifier(EllipsoidClassifier):
    r"""Large-margin Gaussian classifier with one or more ellipsoids per class.

    A row belongs to the class with the smallest squared Mahalanobis distance plus offset,

    .. math:: \hat y(x) = \arg\min_c \min_m \; (x, 1)^T \Phi_{cm} (x, 1)
              = \arg\min_c \min_m \; (x - \mu_{cm})^T \Psi_{cm} (x - \mu_{cm}) + \theta_{cm},

    so boundaries are quadratic. All matrices are trained together in one noisy convex problem. With
    :math:`\hat x = (x / \kappa, 1/2) / \sqrt{5/4}` and scores
    :math:`s_j = -\hat x^T \Phi_j \hat x`,

    .. math::
        \Phi^* = \arg\min_\Phi \sum_i \phi_{y_i}(s(\hat x_i)) + w \sum_j \mathrm{tr}\, \Psi_j
                 + \tfrac{\lambda}{2} \sum_j \|\Phi_j\|_F^2 + \sum_j \langle B_j, \Phi_j \rangle

    over symmetric or positive semidefinite matrices, with random symmetric B_j. As in a soft-margin
    SVM, the losses are the slack and C is the cost of a violated margin.

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
        Public label set: ints, strings, bools or whole floats. None reads it from ``y``, which
        releases it without noise: a ``PrivacyLeakWarning`` is issued, and the statement is marked
        not private.
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
        the program's arithmetic. "float" draws ordinary floating-point noise.
    random_state : int or None, default=None
        None draws noise from the operating system. A seed makes the fit reproducible but not
        private: a ``NotPrivateWarning`` is issued, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Budget ledger, checked before data are read and charged before noise is drawn.
    n_threads : int or None, default=None
        Number of threads; None for all cores of this process. Never changes the result.
    verbose : {0, 1}, default=0
        1 prints the plan. Progress is not shown, because it depends on the data.
    loss : {"softmax_margin", "huber_ww"}, default="softmax_margin"
        ``softmax_margin``: the smoothed Crammer-Singer hinge
        :math:`\tau \log(1 + \sum_k \exp((m + s_k - s_y) / \tau))`; ``huber_ww``: the sum of Huber
        hinges :math:`\sum_k H(m + s_k - s_y)` of Pathak and Raj, which needs more noise because its
        gradient grows with the number of classes. Both sum over the ellipsoids k of the other
        classes.
    noise : {"gaussian", "gamma"}, default="gaussian"
        Distribution of B. "gaussian": independent Gaussians with half the variance off the
        diagonal, for (epsilon, delta). "gamma": density proportional to ``exp(-beta ||B||)``, for
        delta = 0.
    psd : {"project", "constraint"}, default="project"
        How matrices become positive semidefinite. "constraint": minimise over positive semidefinite
        matrices, as in the papers. "project": minimise over all symmetric matrices, then add the
        same multiple of the identity to all, which changes no decision. Decisions depend only on
        differences of matrices, so the constraint excludes no boundary and acts as extra
        regularisation.
    n_ellipsoids : int in 1..1000, default=1
        Number of ellipsoids per class. With more than one, noisy centres are released first, by a
        few steps of Lloyd's algorithm within each class, for 15 % of the budget (of the squared
        Gaussian parameter with Gaussian noise). A row is then assigned to the ellipsoid of its
        class with the nearest centre.
    trace_weight : float >= 0, default=0.0
        Penalty w on large precisions, the regulariser of the papers. It does not affect decisions
        with ``psd="project"``.
    C : "auto" or float > 0, default="auto"
        Factor of the sum of the losses, as in scikit-learn: ``lambda = 1 / C + extra``. "auto"
        follows from public facts, see Notes.
    extra_regularization : "auto" or float >= 0, default="auto"
        Regularisation added to ``1 / C``, because the curvature of one row relative to lambda costs
        privacy. With a float, a C too large for the budget is refused; the error names the largest
        valid one.
    smoothing : "auto" or float > 0, default="auto"
        tau of ``softmax_margin`` ("auto" is 0.4), or the half width of H ("auto" is 0.5).
    margin : "auto" or float >= 0, default="auto"
        Margin m; "auto" is 1.5 times the smoothing for ``softmax_margin``, and twice for
        ``huber_ww``.
    data_norm : float, default=1.0
        Public bound kappa on the L2 norm of each row; longer rows are scaled down to it, silently,
        in ``fit`` and in predictions. Centre rows first at a public point near where the classes
        meet.
    tol : float in [1e-8, 1], default=1e-5
        Tolerance of the solver, relative to the largest gradient norm of one row. The solver stops
        at a certified distance to the minimiser, and additional noise covers the remaining error.
    max_iter : int or None, default=None
        Largest number of solver steps. None runs until certified, as the guarantee requires.

    Attributes
    ----------
    ellipsoids_ : ndarray of shape (n_classes, n_ellipsoids, n_features + 1, n_features + 1)
        Noisy positive semidefinite matrices Phi for rows (x, 1).
    precisions_ : ndarray of shape (n_classes, n_ellipsoids, n_features, n_features)
        Psi, the inverse covariances up to a common factor.
    means_ : ndarray of shape (n_classes, n_ellipsoids, n_features)
        Centres mu. If Psi is singular (an eigenvalue below 1e-10 of the largest), the ellipsoid is
        a cylinder or slab with many centres, and this is the one nearest to the origin.
    offsets_ : ndarray of shape (n_classes, n_ellipsoids)
        Offsets theta >= 0: the minimum of each quadratic form.
    classes_ : ndarray of shape (n_classes,)
        The sorted label set.
    lambda_ : float
        Regularisation lambda, a public number.
    data_norm_ : float
        Bound used in the fit.
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
    data. Proof: docs/proofs/gaussian_margin.md. Not covered: running time; the event that
    ``CertificationError`` is raised; with ``noise="gamma"`` or ``noise_grid="float"``,
    floating-point effects. An error reveals that the data are invalid but never quotes them.

    Each matrix has (d + 1)(d + 2)/2 numbers, all noisy: reduce many features first by a private
    projection. Time and memory grow with d squared; products of features are stored for one block
    of rows at a time.

    ``C="auto"`` uses public numbers only. With Gaussian noise of standard deviation sigma, lambda
    is 0.6 times (1 times for ``huber_ww``) the solution of ``lambda * smoothing = sigma``. Two
    features do better with a larger C, thirty with a smaller one. With Gamma noise lambda is that
    of ``ObjectivePerturbationSVC`` for the same number of weights. The factors, the margin, the
    constant feature 1/2, ``psd="project"`` (better than the constraint almost everywhere) and
    ``trace_weight=0`` were chosen by accuracy on synthetic sets (rings, Gaussian classes in six
    dimensions), vehicle, dermatology and USPS at epsilon 1 to 16: expect slightly lower accuracy on
    other data.

    References
    ----------
    .. [1] Sha and Saul, "Large margin Gaussian mixture modeling for phonetic classification and
       recognition", ICASSP 2006.
    .. [2] Pathak and Raj, "Large margin multiclass Gaussian classification with differential
       privacy", 2010.
    .. [3] Kifer, Smith and Thakurta, "Private convex empirical risk minimization and
       high-dimensional regression", COLT 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast import PrivateGaussianMarginClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1.0, 1.0, size=(4000, 2))
    >>> y = (np.linalg.norm(X, axis=1) > 0.75).astype(int)  # inside or outside of a circle
    >>> model = PrivateGaussianMarginClassifier(2.0, data_norm=1.5, classes=[0, 1]).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    >>> model.ellipsoids_.shape
    (2, 1, 3, 3)
    """

    _: KW_ONLY
    loss: Annotated[str, one_of(*LOSSES)] = "softmax_margin"
    noise: param.Noise = "gaussian"
    psd: Annotated[str, one_of("constraint", "project")] = "project"
    n_ellipsoids: Annotated[int, integer(1, MAX_ELLIPSOIDS)] = 1
    trace_weight: param.NonNegative = 0.0
    C: param.AutoPositive = "auto"
    extra_regularization: param.AutoNonNegative = "auto"
    smoothing: param.Smoothing = "auto"
    margin: param.Margin = "auto"
    data_norm: param.Positive = 1.0
    tol: param.GradientTol = 1e-5
    max_iter: param.MaxIter = None

    def _training(self, facts: Facts) -> GaussianMargin:
        """Return the plan of the training for rows with these public facts."""
        smoothing = number_or_none(self.smoothing) or SMOOTHING[self.loss]
        margin = number_or_none(self.margin)
        if margin is None:
            margin = MARGIN_IN_SMOOTHINGS[self.loss] * smoothing
        if facts.sparse:
            raise refused_sparse()
        n_matrices = facts.n_classes * self.n_ellipsoids
        entries = n_matrices * n_coordinates(facts.n_columns)
        if entries > MAX_ENTRIES:
            raise InvalidParameterError(
                f"X: got {facts.n_columns} features, whose {n_matrices} symmetric matrices have "
                f"{entries} numbers, expected at most {MAX_ENTRIES}; reduce the features first, by "
                "PrivatePCA"
            )
        return self._planned(
            GaussianMargin,
            facts,
            smoothing=smoothing,
            margin=margin,
            constrained=self.psd == "constraint",
        )
