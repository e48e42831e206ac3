"""Privacy events: frozen records of all that accounting needs to know about one release."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

from dpsvm_fast.certificates import record as field
from dpsvm_fast.certificates.record import Record
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError
from dpsvm_fast.rounding import div_up
from dpsvm_fast.validation import check_integer, check_real

# Every event has its relation, its form in files, and its accounting.
#
# An event never changes its meaning. A new mechanism with another privacy loss gets a new class
# with a new tag; a reader that does not know a tag refuses it.

NOISY = field.Unit("that of the noisy quantity")


class PrivacyEvent(Record):
    """Base of all events: a neighbouring relation and a JSON form.

    Attributes
    ----------
    adjacency : {"add_remove", "replace_one"}
        The relation for which the other fields hold. Nothing converts between relations.

    Examples
    --------
    >>> from dpsvm_fast.certificates import GaussianEvent, PrivacyEvent
    >>> event = GaussianEvent(sigma=4.0, sensitivity=1.0, adjacency="add_remove")
    >>> PrivacyEvent.from_dict(event.to_dict()) == event
    True
    """

    tag_field: ClassVar[str] = "type"

    adjacency: field.Adjacency

    def __new__(cls, *_: object, **__: object) -> PrivacyEvent:
        """Refuse the bare base class, which promises nothing."""
        if cls is PrivacyEvent:
            raise InvalidTypeError("PrivacyEvent: expected one of its kinds, such as GaussianEvent")
        return super().__new__(cls)

    def charge(self, account: Any) -> Any:
        """Add this event to an account; the accountant and ``verify`` have different ones.

        An account has a method ``add_<tag>`` for each law that it knows. An event whose loss is
        dominated by such laws charges those events instead.

        Returns
        -------
        object
            What the method returns; nothing of accounts that add up.
        """
        add = getattr(account, f"add_{self.tag}", None)
        if add is None:
            raise InvalidTypeError(f"event: got {type(self).__name__}, which has no accounting")
        return add(self)

    # Name of the number that describes the event and adds up: squared for "mu".
    price: ClassVar[str] = ""

    @property
    def mu(self) -> float | None:
        """Parameter of a Gaussian mechanism; None for any other event."""
        return None

    @property
    def prices(self) -> frozenset[str]:
        """Names of the prices of which its guarantee is made; an empty one without a formula."""
        return frozenset({self.price})

    @property
    def for_rows(self) -> bool:
        """Whether its law is that of one row, and no person's."""
        return False

    @property
    def inside(self) -> tuple[tuple[PrivacyEvent, ...], ...]:
        """Lists of events that this one is about; none for an event that stands for itself."""
        return ()

    @property
    def met(self) -> tuple[tuple[PrivacyEvent, ...], ...]:
        """Lists of events of which a record meets one, known beforehand; itself if not parallel."""
        return ((self,),)

    @property
    def has_distance(self) -> bool:
        """Whether this event is a distance or contains one."""
        return any(event.has_distance for branch in self.inside for event in branch)


# Largest number of steps of one release; it stays exact as a float.
MAX_STEPS = 10**9

# Privacy laws of objective perturbation, each with its least number of scores.
OBJECTIVE_LAWS = {"softmax": 2, "logistic": 1, "huber": 1, "weston_watkins": 2}
# Largest number of scores of the compiled laws.
MAX_SCORES = 100_000


@dataclass(frozen=True)
class GaussianEvent(PrivacyEvent):
    """A release that is as private as the Gaussian mechanism.

    Parameters
    ----------
    sigma : float > 0
        Standard deviation of each component of the noise.
    sensitivity : float > 0
        Largest L2 distance between the noiseless values of neighbouring data sets.
    adjacency : {"add_remove", "replace_one"}

    Examples
    --------
    >>> from dpsvm_fast.certificates import GaussianEvent
    >>> GaussianEvent(sigma=4.0, sensitivity=1.0, adjacency="add_remove").mu
    0.25
    """

    tag: ClassVar[str] = "gaussian"
    price: ClassVar[str] = "mu"

    sigma: Annotated[field.Positive, NOISY]
    sensitivity: Annotated[field.Positive, NOISY]
    adjacency: field.Adjacency

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that noise and sensitivity have a finite ratio."""
        accepted = "expected a number with finite sensitivity / sigma"
        yield not 0.0 < self.mu < float("inf"), f"sigma: got {self.sigma!r}, {accepted}"

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
    price: ClassVar[str] = "epsilon"

    epsilon: field.Epsilon
    adjacency: field.Adjacency


@dataclass(frozen=True)
class ApproximateEvent(PrivacyEvent):
    """A release known only to be (epsilon, delta)-differentially private.

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

    epsilon: field.Epsilon
    delta: field.OpenProbability
    adjacency: field.Adjacency


@dataclass(frozen=True)
class SubsampledGaussianEvent(PrivacyEvent):
    r"""Steps of the Gaussian mechanism, each on a Poisson sample of the records.

    Each step takes every record with the same probability, independently of everything else, sums
    the contributions of the sample, and adds Gaussian noise to the sum, even if the sample is
    empty. Steps may depend on the results of earlier ones.

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
    >>> from dpsvm_fast.certificates import SubsampledGaussianEvent
    >>> SubsampledGaussianEvent(1.1, 0.01, 1000, "add_remove").to_dict()["type"]
    'subsampled_gaussian'
    """

    tag: ClassVar[str] = "subsampled_gaussian"

    noise_multiplier: field.Positive
    sampling_rate: Annotated[field.Share, field.PROBABILITY]
    n_steps: Annotated[int, field.Range(1, MAX_STEPS), field.COUNT]
    adjacency: field.Adjacency

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that noise is large enough to compute with."""
        noise, accepted = self.noise_multiplier, "expected a number with a finite inverse"
        yield math.isinf(div_up(2.0, noise)), f"noise_multiplier: got {noise!r}, {accepted}"


@dataclass(frozen=True)
class ZCDPEvent(PrivacyEvent):
    r"""A release that is rho-zero-concentrated differentially private.

    Its Renyi divergences of every order alpha > 1 between neighbours are at most alpha rho. A
    Gaussian mechanism has :math:`\rho = \mu^2 / 2`, and more is known about it: it should be a
    ``GaussianEvent``.

    Parameters
    ----------
    rho : float > 0
        Bound of the Renyi divergence of order alpha, over alpha.
    adjacency : {"add_remove", "replace_one"}

    References
    ----------
    Bun and Steinke, TCC 2016, Definition 1.1.
    """

    tag: ClassVar[str] = "zcdp"

    rho: Annotated[field.Positive, field.Unit("privacy loss")]
    adjacency: field.Adjacency


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
    n_scores : int from 1 to 100,000
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

    law: Annotated[str, field.Options(*OBJECTIVE_LAWS)]
    n_scores: Annotated[int, field.Range(1, MAX_SCORES), field.COUNT]
    sigma: field.Positive
    kappa: field.Positive | None
    jacobian: Annotated[field.NonNegative, field.PRIVACY_LOSS] | None
    adjacency: field.Adjacency

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check that there are enough scores for the law, and one of two numbers."""
        check_integer("n_scores", self.n_scores, OBJECTIVE_LAWS[self.law], MAX_SCORES)
        both = (self.kappa is None) == (self.jacobian is None)
        yield both, "kappa: expected exactly one of kappa and jacobian"

    @property
    def for_rows(self) -> bool:
        """Whether no constant pays for the curvature of a person's rows."""
        return self.jacobian is None


@dataclass(frozen=True)
class DistanceEvent(PrivacyEvent):
    r"""Distance between a release and the mechanism that the other events describe.

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
    >>> from dpsvm_fast.accounting import composed_delta
    >>> from dpsvm_fast.certificates import DistanceEvent, PureEvent
    >>> events = [PureEvent(1.0, "replace_one"), DistanceEvent(1e-9, "replace_one")]
    >>> round(composed_delta(events, 1.0) * 1e9, 6)
    3.718282
    """

    tag: ClassVar[str] = "distance"

    distance: field.OpenProbability
    adjacency: field.Adjacency

    @property
    def has_distance(self) -> bool:
        """Always true."""
        return True


# Events about other events: a known pair, one of several branches, the best of several runs.
#
# Their guarantees, from those of the events inside, are proved in docs/proofs/private_selection.md.


# Laws of the number of runs, each with the number that its mean must exceed.
STOPPING_LAWS = {"geometric": 1.0, "logarithmic": 1.0, "poisson": 0.0}
# Larger means ask for more runs than anyone makes.
MAX_MEAN = 1e9

# Events that contain others.
NESTED = ("parallel", "alternatives", "random_stopping")

Events = tuple[PrivacyEvent, ...]
Branch = Annotated[tuple[Annotated[PrivacyEvent, field.Excluding(NESTED)], ...], field.Range(1)]


@dataclass(frozen=True)
class ParallelEvent(PrivacyEvent):
    r"""Several mechanisms on disjoint records: each record meets exactly one.

    Parameters
    ----------
    branches : tuple of tuple of PrivacyEvent
        What one mechanism charges to the records that meet it, for each mechanism; equal branches
        are kept once. Neither parallel nor random-stopping events are among them.
    adjacency : {"add_remove", "replace_one"}
        Also that of every event inside.

    Notes
    -----
    Guarantees: :math:`\delta(\epsilon)` is the largest of the branches', provided the branch of a
    record is chosen by public randomness that does not look at any record: independently for each
    record under ``add_remove``, from position and number of records under ``replace_one``.

    Examples
    --------
    >>> from dpsvm_fast.accounting import composed_epsilon
    >>> from dpsvm_fast.certificates import ParallelEvent, PureEvent
    >>> small, large = PureEvent(0.5, "add_remove"), PureEvent(2.0, "add_remove")
    >>> composed_epsilon([ParallelEvent(((small, small), (large,)), "add_remove")], 0.0)
    2.0
    """

    tag: ClassVar[str] = "parallel"

    branches: Annotated[tuple[Branch, ...], field.Range(1)]
    adjacency: field.Adjacency

    def __post_init__(self) -> None:
        """Refuse events of another relation; keep equal branches once."""
        super().__post_init__()
        for branch in self.branches:
            check_relation("branches", branch, self.adjacency)
        object.__setattr__(self, "branches", tuple(dict.fromkeys(self.branches)))

    @property
    def inside(self) -> tuple[Events, ...]:
        """The branches."""
        return self.branches

    @property
    def met(self) -> tuple[Events, ...]:
        """The branches."""
        return self.branches


@dataclass(frozen=True)
class AlternativesEvent(ParallelEvent):
    r"""One of several mechanisms on all records, chosen by earlier releases.

    Parameters
    ----------
    branches : tuple of tuple of PrivacyEvent
        What each of the mechanisms charges; equal ones are kept once. Neither parallel,
        alternative nor random-stopping events are among them.
    adjacency : {"add_remove", "replace_one"}
        Also that of every event inside.

    Notes
    -----
    Guarantees: the mechanism that is run is dominated by one law whose :math:`\delta(\epsilon)` is
    the largest of the branches' at every epsilon, whatever the choice; docs/proofs/
    private_selection.md, section "Refit". The largest over branches of what each composes to with
    other events would not be enough: the choice may depend on how those turned out.

    Examples
    --------
    >>> from dpsvm_fast.accounting import composed_epsilon
    >>> from dpsvm_fast.certificates import AlternativesEvent, PureEvent
    >>> small, large = PureEvent(0.5, "add_remove"), PureEvent(2.0, "add_remove")
    >>> composed_epsilon([AlternativesEvent(((small,), (large,)), "add_remove")], 0.0)
    2.0
    """

    tag: ClassVar[str] = "alternatives"

    @property
    def met(self) -> tuple[Events, ...]:
        """The event itself: which branch it is depends on releases."""
        return ((self,),)

    @property
    def prices(self) -> frozenset[str]:
        """Those of all branches."""
        return frozenset(inner.price for branch in self.branches for inner in branch)


@dataclass(frozen=True)
class RandomStoppingEvent(PrivacyEvent):
    r"""The best of a random number of runs of one mechanism; the number stays secret.

    Parameters
    ----------
    base : tuple of PrivacyEvent
        What one run charges, its noisy score included. A run that draws its candidate charges a
        ``ParallelEvent`` of the candidates. Neither alternatives nor random-stopping events, nor
        distances: the best of many runs may be farther from its law than one run.
    stopping : {"geometric", "logarithmic", "poisson"}
        Law of the number K of runs, drawn beforehand and independently of everything. Geometric:
        :math:`P(K = k) = \gamma (1 - \gamma)^{k - 1}`; logarithmic: :math:`P(K = k) =
        (1 - \gamma)^k / (k \log(1/\gamma))`, both from 1 on; Poisson: from 0 on, where nothing but
        a public default is released at 0.
    mean : float
        Mean of K: above 1, for Poisson above 0; at most 1e9.
    adjacency : {"add_remove", "replace_one"}
        Also that of every event inside.

    Notes
    -----
    Guarantees: those of docs/proofs/private_selection.md, provided that K has exactly the law with
    the parameter ``gamma`` below (``mean`` itself for Poisson) and that runs are alike and
    independent.

    References
    ----------
    Liu and Talwar, STOC 2019; Papernot and Steinke, ICLR 2022.

    Examples
    --------
    >>> from dpsvm_fast.accounting import composed_epsilon
    >>> from dpsvm_fast.certificates import GaussianEvent, RandomStoppingEvent
    >>> run = GaussianEvent(sigma=7.0, sensitivity=1.0, adjacency="add_remove")
    >>> best = RandomStoppingEvent((run,), "geometric", 10.0, "add_remove")
    >>> composed_epsilon([best], 1e-5) < 2.5 * composed_epsilon([run], 1e-5)
    True
    """

    tag: ClassVar[str] = "random_stopping"

    base: Annotated[
        tuple[Annotated[PrivacyEvent, field.Excluding(NESTED[1:])], ...], field.Range(1)
    ]
    stopping: Annotated[str, field.Options(*STOPPING_LAWS)]
    mean: Annotated[float, field.Range(0.0, MAX_MEAN, open_low=True), field.COUNT]
    adjacency: field.Adjacency

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Check the relation of the events, that none is a distance, and the mean of the law."""
        check_relation("base", self.base, self.adjacency)
        yield (
            any(event.has_distance for event in self.base),
            "base: got a DistanceEvent, expected events that describe one run exactly; spend the "
            "distance of the whole search separately",
        )
        least = STOPPING_LAWS[self.stopping]
        check_real("mean", self.mean, low=least, high=MAX_MEAN, open_low=True)
        unlike = self.stopping != "poisson" and not 0.0 < self.gamma < 1.0
        yield unlike, f"mean: got {self.mean!r}, expected a mean further from 1"

    @property
    def inside(self) -> tuple[Events, ...]:
        """The events of one run."""
        return (self.base,)

    @cached_property
    def gamma(self) -> float:
        """Parameter of a geometric or logarithmic law: the one to sample, and accounted for."""
        return _gamma(self.stopping, self.mean)


def check_relation(name: str, events: Events, adjacency: str) -> None:
    """Refuse events of another neighbouring relation."""
    if any(event.adjacency != adjacency for event in events):
        raise InvalidParameterError(f"{name}: expected events of one neighbouring relation")


def _gamma(stopping: str, mean: float) -> float:
    """Return the parameter of the law with that mean, to nearest; NaN for Poisson."""
    if stopping == "geometric":
        return 1.0 / mean
    if stopping == "poisson":
        return math.nan
    low, high = 1e-16, 1.0
    # The mean falls from 3e14 to 1; halving in logarithms, to the last bits.
    for _ in range(200):
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        # The mean of the law with this parameter.
        if (1.0 - middle) / middle / -math.log(middle) > mean:
            low = middle
        else:
            high = middle
    return low
