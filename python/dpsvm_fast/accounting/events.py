"""Privacy events: frozen records of all that accounting needs to know about one release."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dpsvm_fast._rounding import div_up
from dpsvm_fast._validation import (
    check_epsilon,
    check_fraction,
    check_integer,
    check_non_negative,
    check_option,
    check_positive,
    check_real,
)
from dpsvm_fast.accounting._event_base import EVENT_KINDS, PrivacyEvent
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = [
    "EVENT_KINDS",
    "MAX_STEPS",
    "OBJECTIVE_LAWS",
    "ApproximateEvent",
    "DistanceEvent",
    "GaussianEvent",
    "ObjectiveEvent",
    "PrivacyEvent",
    "PureEvent",
    "SubsampledGaussianEvent",
    "ZCDPEvent",
]

# More steps of one release than anyone takes; their number stays exact as a float.
MAX_STEPS = 10**9

# Privacy laws of objective perturbation, each with the least number of scores it is about.
OBJECTIVE_LAWS = {"softmax": 2, "logistic": 1, "huber": 1, "weston_watkins": 2}


@dataclass(frozen=True)
class GaussianEvent(PrivacyEvent):
    """A release whose privacy is that of the Gaussian mechanism in real arithmetic.

    Parameters
    ----------
    sigma : float > 0
        Standard deviation of each component of the noise.
    sensitivity : float > 0
        L2 distance between what neighbouring data sets hand to the noise.
    adjacency : {"add_remove", "replace_one"}

    Examples
    --------
    >>> from dpsvm_fast.accounting import GaussianEvent
    >>> GaussianEvent(sigma=4.0, sensitivity=1.0, adjacency="add_remove").mu
    0.25
    """

    tag: ClassVar[str] = "gaussian"
    field_names: ClassVar[tuple[str, ...]] = ("sigma", "sensitivity", "adjacency")

    sigma: float
    sensitivity: float
    adjacency: str

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        object.__setattr__(self, "sigma", check_positive("sigma", self.sigma))
        object.__setattr__(self, "sensitivity", check_positive("sensitivity", self.sensitivity))
        if not 0.0 < self.mu < float("inf"):
            raise InvalidParameterError.of(
                "sigma", got=self.sigma, accepted="a finite ratio to the sensitivity"
            )

    @cached_property
    def mu(self) -> float:
        """Sensitivity over sigma, rounded up: the parameter of Gaussian differential privacy."""
        return div_up(self.sensitivity, self.sigma)


@dataclass(frozen=True)
class PureEvent(PrivacyEvent):
    """A release that is epsilon-differentially private with delta = 0.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    adjacency : {"add_remove", "replace_one"}
    """

    tag: ClassVar[str] = "pure"
    field_names: ClassVar[tuple[str, ...]] = ("epsilon", "adjacency")

    epsilon: float
    adjacency: str

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))


@dataclass(frozen=True)
class ApproximateEvent(PrivacyEvent):
    """A release of which nothing is known but that it is (epsilon, delta)-differentially private.

    What is known to be a Gaussian mechanism should be a ``GaussianEvent``, which composes better.

    Parameters
    ----------
    epsilon : float in (0, 1e4]
    delta : float in (0, 1)
    adjacency : {"add_remove", "replace_one"}

    References
    ----------
    Kairouz, Oh and Viswanath, ICML 2015, for the pair of laws that dominates every such release.
    """

    tag: ClassVar[str] = "approximate"
    field_names: ClassVar[tuple[str, ...]] = ("epsilon", "delta", "adjacency")

    epsilon: float
    delta: float
    adjacency: str

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        delta = check_real("delta", self.delta, low=0.0, high=1.0, open_low=True, open_high=True)
        object.__setattr__(self, "delta", delta)


@dataclass(frozen=True)
class SubsampledGaussianEvent(PrivacyEvent):
    r"""Steps of a Gaussian mechanism, each on a Poisson sample of the records.

    Each of the steps takes every record with the same probability, independently of all else, adds
    up what the records of the sample contribute, and adds Gaussian noise to the sum; also where the
    sample is empty. Steps may depend on the results of earlier ones.

    Parameters
    ----------
    noise_multiplier : float > 0
        Standard deviation of each component of the noise over the L2 bound of what ONE record
        contributes to a sum. That bound is the same for both relations: under ``replace_one`` a sum
        moves by up to twice as much, and the accountant knows.
    sampling_rate : float in (0, 1]
        Probability with which a record is in a step.
    n_steps : int in 1..10**9
    adjacency : {"add_remove", "replace_one"}

    Notes
    -----
    Guarantees: the dominating pair of a step is, with q the sampling rate and z the noise
    multiplier, :math:`(1-q) N(0, z^2) + q N(1, z^2)` against :math:`N(0, z^2)` and the reverse for
    ``add_remove``, and against :math:`(1-q) N(0, z^2) + q N(-1, z^2)` for ``replace_one``;
    docs/proofs/accountant.md, section "Dominating pairs". A sample of fixed size, or a shuffle cut
    into batches, is not a Poisson sample and is not described by this event.

    References
    ----------
    Zhu, Dong and Wang, AISTATS 2022; Lebeda, Regehr, Kamath and Steinke, arXiv 2405.20769.

    Examples
    --------
    >>> from dpsvm_fast.accounting import SubsampledGaussianEvent
    >>> SubsampledGaussianEvent(1.1, 0.01, 1000, "add_remove").to_dict()["type"]
    'subsampled_gaussian'
    """

    tag: ClassVar[str] = "subsampled_gaussian"
    field_names: ClassVar[tuple[str, ...]] = (
        "noise_multiplier",
        "sampling_rate",
        "n_steps",
        "adjacency",
    )

    noise_multiplier: float
    sampling_rate: float
    n_steps: int
    adjacency: str

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        multiplier = check_positive("noise_multiplier", self.noise_multiplier)
        object.__setattr__(self, "noise_multiplier", multiplier)
        if div_up(2.0, multiplier) == float("inf"):
            raise InvalidParameterError.of(
                "noise_multiplier", got=multiplier, accepted="a number with a finite inverse"
            )
        rate = check_fraction("sampling_rate", self.sampling_rate)
        object.__setattr__(self, "sampling_rate", rate)
        object.__setattr__(self, "n_steps", check_integer("n_steps", self.n_steps, 1, MAX_STEPS))


@dataclass(frozen=True)
class ZCDPEvent(PrivacyEvent):
    r"""A release that is rho-zero-concentrated differentially private.

    Its Renyi divergences of every order alpha > 1 between neighbours are at most alpha rho. A
    Gaussian mechanism has :math:`\rho = \mu^2 / 2`, and more is known about it: it should be a
    ``GaussianEvent``.

    Parameters
    ----------
    rho : float > 0
    adjacency : {"add_remove", "replace_one"}

    References
    ----------
    Bun and Steinke, TCC 2016, Definition 1.1.
    """

    tag: ClassVar[str] = "zcdp"
    field_names: ClassVar[tuple[str, ...]] = ("rho", "adjacency")

    rho: float
    adjacency: str

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        object.__setattr__(self, "rho", check_positive("rho", self.rho))


@dataclass(frozen=True)
class ObjectiveEvent(PrivacyEvent):
    r"""The exact minimiser of an objective with a Gaussian random linear term.

    The minimiser of :math:`\sum_i \phi_{y_i}(W \tilde x_i) + \tfrac{\lambda}{2} \|W\|_F^2 +
    \langle B, W \rangle` for B with independent Gaussian components, as in
    docs/proofs/objective_perturbation.md.

    Parameters
    ----------
    law : {"softmax", "logistic", "huber", "weston_watkins"}
        softmax: all scores in one softmax; logistic: a sum of one-score terms whose curvature is
        proportional to u (1 - u) where the gradient has size u; huber: such a sum with any
        bounded curvature; weston_watkins: a sum over the other classes.
    n_scores : int >= 1
        Number of scores; at least 2 for ``softmax`` and ``weston_watkins``.
    sigma : float > 0
        Standard deviation of each component of B, over the bound of the rows' norm.
    kappa : float > 0 or None
        Curvature ratio: squared bound of the rows' norm / (lambda * temperature of the loss).
    jacobian : float >= 0 or None
        A given bound of the log-determinant of one record's Hessian; exactly one of the two.
    adjacency : {"add_remove", "replace_one"}
    """

    tag: ClassVar[str] = "objective"
    field_names: ClassVar[tuple[str, ...]] = (
        "law",
        "n_scores",
        "sigma",
        "kappa",
        "jacobian",
        "adjacency",
    )

    law: str
    n_scores: int
    sigma: float
    kappa: float | None
    jacobian: float | None
    adjacency: str

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        check_option("law", self.law, tuple(OBJECTIVE_LAWS))
        n_scores = check_integer("n_scores", self.n_scores, OBJECTIVE_LAWS[self.law])
        object.__setattr__(self, "n_scores", n_scores)
        object.__setattr__(self, "sigma", check_positive("sigma", self.sigma))
        if (self.kappa is None) == (self.jacobian is None):
            raise InvalidParameterError("kappa: expected exactly one of kappa and jacobian")
        if self.kappa is not None:
            object.__setattr__(self, "kappa", check_positive("kappa", self.kappa))
        else:
            object.__setattr__(self, "jacobian", check_non_negative("jacobian", self.jacobian))


@dataclass(frozen=True)
class DistanceEvent(PrivacyEvent):
    r"""How far a release is from the law that the events spent together with it describe.

    On every data set the law of what is released is within ``distance`` of that law: in total
    variation, or for observers of bounded means, where a cryptographic assumption stands behind it.

    Parameters
    ----------
    distance : float in (0, 1)
        Noise that is only almost that of the proof, a range that is left with tiny probability, the
        advantage of an adversary against an encryption: their sum.
    adjacency : {"add_remove", "replace_one"}

    Notes
    -----
    Guarantees: with all other events together :math:`(\epsilon, \delta)` and the distances adding
    up to T, the releases are :math:`(\epsilon, \delta + (1 + e^\epsilon) T)`-differentially
    private; docs/proofs/accountant.md, section "Distances". To be spent in one call with the events
    that it is about. Not among the events of a ``RandomStoppingEvent``.

    Examples
    --------
    >>> from dpsvm_fast.accounting import DistanceEvent, PureEvent, composed_delta
    >>> events = [PureEvent(1.0, "replace_one"), DistanceEvent(1e-9, "replace_one")]
    >>> round(composed_delta(events, 1.0) * 1e9, 6)
    3.718282
    """

    tag: ClassVar[str] = "distance"
    field_names: ClassVar[tuple[str, ...]] = ("distance", "adjacency")

    distance: float
    adjacency: str

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        distance = self.distance
        distance = check_real(
            "distance", distance, low=0.0, high=1.0, open_low=True, open_high=True
        )
        object.__setattr__(self, "distance", distance)


# ``compound.py`` adds those that have events inside.
EVENT_KINDS.update(
    (kind.tag, kind)
    for kind in (
        GaussianEvent,
        SubsampledGaussianEvent,
        PureEvent,
        ApproximateEvent,
        ZCDPEvent,
        ObjectiveEvent,
        DistanceEvent,
    )
)
