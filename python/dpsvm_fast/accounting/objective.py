r"""Objective perturbation with Gaussian noise: noise scale and delta, each from the other.

The release is the exact minimiser of :math:`\sum_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2}
\|W\|_F^2 + \langle B, W \rangle`, rows of norm at most :math:`\kappa_t`, B with independent
Gaussian components of standard deviation sigma. Everything here is in the unit
:math:`\kappa_t = 1`: a sigma is a multiple of the bound of the rows' norm.

Thin shells around the compiled laws: they check the arguments and look up the law of the loss.
Proved in docs/proofs/objective_perturbation.md and docs/proofs/joint_bound.md.
"""

from __future__ import annotations

from dpsvm_fast import _core
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import SMOOTH_LOSSES, Loss
from dpsvm_fast.validation import (
    MAX_EPSILON,
    check_adjacency,
    check_epsilon,
    check_integer,
    check_non_negative,
    check_option,
    check_positive,
    check_real,
)


def objective_sigma(
    epsilon: float,
    delta: float,
    *,
    loss: str,
    n_classes: int = 2,
    kappa: float | None = None,
    jacobian: float | None = None,
    adjacency: str = "add_remove",
) -> float:
    r"""Smallest known noise of objective perturbation for an (epsilon, delta) guarantee.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in (0, 1)
    loss : {"softmax_margin", "huber", "logistic", "softplus", "m3", "huber_ww"}
        Two classes have one score, except with ``m3`` and ``huber_ww``.
    n_classes : int >= 2, default=2
    kappa : float > 0, optional
        Curvature ratio :math:`\kappa_t^2 / (\lambda \tau)` with tau the temperature of the loss:
        its smoothing, 1 for ``logistic``, half its smoothing for ``huber``.
    jacobian : float >= 0, optional
        A bound of :math:`\log \det (I + H / \lambda)` over the Hessians H of one record, in place
        of ``kappa``. Exactly one of the two must be given.
    adjacency : {"add_remove", "replace_one"}

    Returns
    -------
    float
        Standard deviation of each component of B, over the bound of the rows' norm.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument of another type, outside its range, or both or none of kappa and jacobian; a
        change of variables that alone costs more than epsilon, so that no noise is enough.

    Notes
    -----
    Guarantees: :func:`objective_delta` at the returned sigma is at most ``delta``; the search for
    the smallest such sigma ends on its safe side, so the noise is never too small. The guarantee is
    about the exact minimiser in real arithmetic; what an approximate one costs on top is in
    docs/proofs/objective_perturbation.md, section "Approximate minimum".

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate, JMLR 12 (2011), section 3.3; Kifer, Smith and Thakurta, COLT
    2012; Redberg, Koskela and Wang, NeurIPS 2023, for one score.

    Examples
    --------
    >>> from dpsvm_fast.accounting import objective_sigma
    >>> round(objective_sigma(1.0, 1e-5, loss="logistic", kappa=0.5), 3)
    3.731
    """
    law, n_scores = _law(loss, n_classes)
    epsilon = check_epsilon(epsilon)
    delta = check_real("delta", delta, low=0.0, high=1.0, open_low=True, open_high=True)
    kappa, jacobian = _price(kappa, jacobian)
    replace_one = check_adjacency(adjacency) == "replace_one"
    try:
        return _core.objective_sigma(
            law, n_scores, epsilon, delta, kappa, None, jacobian, replace_one
        )
    except ValueError as error:
        raise InvalidParameterError(str(error)) from None


def objective_delta(
    epsilon: float,
    sigma: float,
    *,
    loss: str,
    n_classes: int = 2,
    kappa: float | None = None,
    jacobian: float | None = None,
    adjacency: str = "add_remove",
) -> float:
    r"""Smallest known delta of objective perturbation at a given epsilon and noise.

    Parameters
    ----------
    epsilon : float in [0, 1e4]
    sigma : float > 0
        Standard deviation of each component of B, over the bound of the rows' norm.
    loss, n_classes, kappa, jacobian, adjacency
        As in :func:`objective_sigma`.

    Returns
    -------
    float in [0, 1]
        Rounded up.

    Raises
    ------
    TypeError, InvalidParameterError
        An argument of another type, outside its range, or both or none of kappa and jacobian.

    Notes
    -----
    Guarantees: an upper bound of the delta of both directions of every pair of neighbours. The
    privacy loss is at most U on every path, and

    .. math:: \delta(\epsilon) \le E (1 - e^{\epsilon - U})_+.

    With :math:`t = 1/\sigma`, independent standard normal z and :math:`c_0` the Jacobian,
    for ``add_remove``:

    - one score: :math:`U = c_0 + \max(0, t^2/2 + t z)`, the Gaussian mechanism at
      :math:`\epsilon - c_0`. For ``logistic``, ``softplus`` and ``softmax_margin`` curvature and
      gradient share one supremum, :math:`U = \sup_{0 \le u \le 1} [t u z + t^2 u^2/2 +
      \log(1 + \kappa u (1 - u))]`, and :math:`c_0` disappears when
      :math:`\kappa \le \epsilon + t^2/2`;
    - one-vs-rest: the sum of as many independent terms of that kind;
    - ``softmax_margin``, K > 2: the smaller of :math:`c_0 + \max(0, t^2 + t \max_{k \ne y}
      (z_k - z_y))` with :math:`c_0 = (K - 1) \log(1 + \kappa/K)`, and the joint bound of
      docs/proofs/joint_bound.md;
    - ``m3``, ``huber_ww``: :math:`c_0 + \sum_{k \ne y} \max(0, K t^2/2 + t (z_k - z_y))` with
      :math:`c_0 = \log(1 + K \kappa/2) + (K - 2) \log(1 + \kappa/2)`.

    ``replace_one`` is in docs/proofs/objective_perturbation.md, section "Replacement".

    References
    ----------
    As for :func:`objective_sigma`.

    Examples
    --------
    >>> from dpsvm_fast.accounting import gaussian_delta, objective_delta
    >>> delta = objective_delta(1.0, 4.0, loss="logistic", kappa=0.5)
    >>> abs(delta / gaussian_delta(1.0, 4.0) - 1.0) < 1e-9
    True
    """
    law, n_scores = _law(loss, n_classes)
    epsilon = check_real("epsilon", epsilon, low=0.0, high=MAX_EPSILON)
    sigma = check_positive("sigma", sigma)
    kappa, jacobian = _price(kappa, jacobian)
    replace_one = check_adjacency(adjacency) == "replace_one"
    try:
        bound = _core.objective_delta(law, n_scores, epsilon, sigma, kappa, jacobian, replace_one)
    except ValueError as error:
        raise InvalidParameterError(str(error)) from None
    return min(1.0, bound)


def _law(loss: object, n_classes: object) -> tuple[str, int]:
    """Name of the privacy law of a loss, and its number of scores."""
    name = check_option("loss", loss, SMOOTH_LOSSES)
    table = Loss(name=name, n_classes=check_integer("n_classes", n_classes, 2))
    return table.law, table.n_scores


def _price(kappa: object, jacobian: object) -> tuple[float | None, float | None]:
    """Curvature ratio or Jacobian, whichever is given."""
    if (kappa is None) == (jacobian is None):
        raise InvalidParameterError("kappa: expected exactly one of kappa and jacobian")
    if kappa is not None:
        return check_positive("kappa", kappa), None
    return None, check_non_negative("jacobian", jacobian)
