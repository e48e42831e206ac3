"""Specification of a federated training, agreed on before any party reads data.

"auto" values are replaced by numbers, by public rules, when a specification is created, so that
parties compare numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache, partial
from typing import Annotated, Any, ClassVar

from dpsvm_fast import validation as check
from dpsvm_fast.accounting import composed_delta, gaussian_sigma
from dpsvm_fast.certificates import PrivacyEvent
from dpsvm_fast.certificates.record import exactly, read_json
from dpsvm_fast.certificates.words import UNITS, WEIGHTED
from dpsvm_fast.estimators import parameters as param
from dpsvm_fast.estimators.inputs import public_classes
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated import plans
from dpsvm_fast.federated.plans import LocalTraining, ObjectiveTraining, RoundPlan
from dpsvm_fast.federated.secsum import FixedPointCodec, PartyCounts
from dpsvm_fast.losses import SMOOTH_LOSSES, Loss
from dpsvm_fast.mechanisms.moments import NoisyComponents
from dpsvm_fast.mechanisms.noise import share_of, within_budget
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.mechanisms.output import INTERCEPT, PROJECTIONS
from dpsvm_fast.mechanisms.plan import filled
from dpsvm_fast.rounding import add_up, div_down, div_up, mul_up, round_up, sqrt_up

PROTOCOL = "secagg-mask/v1"

LONGEST_STUDY = 200
# Tables of features wider than this would not fit into what parties send.
MAX_FEATURES = 2**26
# More records of one party find no room among 30 bits.
MAX_RECORDS = 2**28

# Standard deviation of the noise in one class score of a row of the largest norm, against a margin
# of 1, that the regularisation is chosen for. On USPS and MNIST (unit rows of pixels, and 64 public
# components), 50 records a party, 10 to 1,000 parties and epsilon from 0.1 to 8 the best lies
# between 0.06 and 0.35, for the softmax as for the hinge, and 0.1 is within 0.03 of it in accuracy.
SCORE_NOISE = 0.12
# Less regularisation, relative to the gradient of the loss, gained nothing there without noise.
MIN = 5e-4
# For whole parties the noise follows the radius alone. Models of 50 records do best with little
# regularisation, cut to about half of their usual norm; the constants are of 100 and 1,000 parties
# and epsilon from 0.5 to 8, where anything from a third to three times of them does nearly as well.
USER_REGULARIZATION, USER_RADIUS = 0.01, 0.12
# Loss, smoothing and margin of the two named trainings.
NAMED = {"svm_sgd": ("huber", 0.5, 1.0), "softmax_slp_sgd": ("softmax_margin", 1.0, 0.0)}


def _gaussian_delta(name: str, value: object) -> float:
    """Accept a delta above 0, because sums of noise give no pure guarantee."""
    delta = check.check_delta(name, value)
    if delta == 0.0:
        raise InvalidParameterError.of(name, got=value, accepted="a number in (0, 1)")
    return delta


def _study(name: str, value: object) -> str:
    """Accept a short text."""
    text = check.check_type(name, value, str, "a string")
    if len(text) > LONGEST_STUDY:
        raise InvalidParameterError(
            f"{name}: expected a string of at most {LONGEST_STUDY} characters"
        )
    return text


def _labels(name: str, value: object) -> tuple[Any, ...]:
    """Accept a public label set."""
    return tuple(public_classes(name, value).tolist())


count = param.integer(1, MAX_RECORDS)
Count = Annotated[int, count]
# The constructor resolves "auto"; None is for objectives of the parties' own.
AutoOrPositive = Annotated[Any, param.or_word(None, param.auto_or(check.check_positive))]


@dataclass(frozen=True, kw_only=True)
class FederatedSpec(PartyCounts):
    """Specification of a federated training. Use ``dp_helmet`` or ``fed_dpdr``.

    Parameters
    ----------
    n_users : int in 1..2**18
        Number U of parties.
    honest_fraction : float in (0, 1], default=0.5
        Share t: at least ceil(t U) parties neither reveal nor use their own noise.
    max_dropout : float in [0, 1), default=0.0
        Share rho: at most floor(rho U) parties drop out before the sum.
    min_survivors : int or None, default=None
        Smallest number of parties in a released sum; None for U - floor(rho U), the largest
        accepted.
    n_features : int
    classes : sequence of labels
        The public label set.
    epsilon : float in (0, 1e4]
    delta : float in (0, 1)
        Delta of all releases together, for the relation ``replace_one`` of the unit.
    max_records, min_records : int
        Limits of a party's number of rows, or of persons; a party outside them is refused. The
        maximum bounds the contribution of a party, the minimum the sensitivity with equal weights.
    expected_records : int or None, default=None
        Number assumed by ``regularization="auto"``; None for the geometric mean of the limits.
    study : str, default=""
        Public name of the study; different names give different specifications.
    protocol : str
        Version of encoding and sum protocol.
    data_norm : float, default=1.0
        Public bound on the L2 norm of each row; longer rows are scaled down to it, silently.
    intercept_scaling : "auto" or float >= 0, default="auto"
        Constant feature for the intercept, 0 for none; "auto" is ``0.2 * data_norm``.
    loss, smoothing, margin : default="auto"
        As in :class:`dpsvm_fast.OutputPerturbationSVC`; "auto" is ``softmax_margin``.
    regularization : "auto" or float > 0, default="auto"
        Regularisation lambda for the mean of losses. Noise is proportional to its inverse (except
        with ``unit="party"``). "auto" follows from public facts.
    radius : "auto" or float > 0, default="auto"
        Radius of the ball (or one ball per class) onto which models are projected. With "auto" the
        ball contains the minimiser for any data; with ``unit="party"``, where noise is proportional
        to the radius, it is 0.12 times that.
    projection : {"joint", "per_class"}, default="joint"
    weighting : {"auto", "records", "users"}, default="auto"
        Whether parties are weighted by their records or equally; "auto" is "records" unless
        ``unit="party"``.
    unit : {"row", "person", "party"}, default="row"
        Unit of privacy: one row, all rows of one person at one party, or all rows of one party. For
        persons the parties pass ``groups``, and ``min_records`` and ``max_records`` count persons,
        each with any number of rows.
    tol : float in [1e-4, 1], default=1e-3
        Tolerance: distance to the minimiser relative to the sensitivity to one record.
    local : str
        Training of each party, see the subclasses.

    Raises
    ------
    TypeError, InvalidParameterError
        A parameter is outside its range, or no guarantee can be given. No data are read.

    Notes
    -----
    Guarantees: none by itself; :attr:`rounds` lists what parties must do for the guarantee of the
    statement. Proof: docs/proofs/federated.md.

    Examples
    --------
    >>> from dpsvm_fast.federated import FederatedSpec
    >>> spec = FederatedSpec.dp_helmet(
    ...     n_users=20, n_features=8, classes=[0, 1], epsilon=1.0, delta=1e-6, max_records=50
    ... )
    >>> spec.honest_survivors, spec.threshold
    (10, 11)
    """

    algorithm: ClassVar[str]

    n_features: Annotated[int, param.integer(1, MAX_FEATURES)]
    classes: Annotated[Any, _labels]
    epsilon: param.Epsilon
    delta: Annotated[float, _gaussian_delta]
    max_records: Count
    min_records: Count = 1
    expected_records: Annotated[int | None, param.or_word(None, count)] = None
    study: Annotated[str, _study] = ""
    protocol: Annotated[str, param.one_of(PROTOCOL)] = PROTOCOL
    data_norm: param.Positive = 1.0
    intercept_scaling: Annotated[Any, param.auto_or(check.check_non_negative)] = "auto"
    loss: Annotated[str, param.auto_or(param.one_of("crammer_singer", *SMOOTH_LOSSES))] = "auto"
    smoothing: Annotated[Any, param.auto_or(check.check_positive)] = "auto"
    margin: Annotated[Any, param.auto_or(check.check_non_negative)] = "auto"
    regularization: AutoOrPositive = "auto"
    radius: AutoOrPositive = "auto"
    projection: Annotated[str, param.one_of(*PROJECTIONS)] = "joint"
    weighting: Annotated[str, param.auto_or(param.one_of("records", "users"))] = "auto"
    unit: Annotated[str, param.one_of(*UNITS)] = "row"
    tol: param.DistanceTol = 1e-3
    local: str

    # Training of a party by itself, with its own noise, for the kinds that have it.
    components: ClassVar[NoisyComponents | None] = None
    objective: ClassVar[ObjectiveTraining | None] = None

    @classmethod
    def dp_helmet(cls, **settings: Any) -> HelmetSpec:
        """Return a specification of DP-Helmet: each party fits a model, and one sum averages them.

        Parameters
        ----------
        **settings
            Parameters of :class:`HelmetSpec`.
        """
        return HelmetSpec(**settings)

    @classmethod
    def fed_dpdr(cls, **settings: Any) -> DpdrSpec:
        """Return a specification of FedDPDR: principal components first, then models on them.

        Parameters
        ----------
        **settings
            Parameters of :class:`DpdrSpec`.
        """
        return DpdrSpec(**settings)

    def __post_init__(self) -> None:
        """Check all fields, replace "auto" by numbers, and find the noise and its grid."""
        super().__post_init__()
        settled = vars(self)
        for name, test in param.tests_of(type(self)).items():
            settled[name] = test(name, settled[name])
        settled["min_survivors"] = self.survivors_needed
        check.warn_of_weak_numbers(self.epsilon, self.delta, stacklevel=6)
        if self.min_records > self.max_records:
            raise InvalidParameterError.of(
                "min_records", got=self.min_records, accepted="at most max_records"
            )
        try:
            self._settle()
            # Planned now: a specification for which no noise suffices is refused first.
            _ = self.rounds
        except ArithmeticError:
            raise InvalidParameterError(
                "specification: its numbers are too large or too small to compute with"
            ) from None

    def _settle(self) -> None:
        """Replace "auto" by numbers, by public rules."""
        settled = vars(self)
        if self.intercept_scaling == "auto":
            settled["intercept_scaling"] = INTERCEPT * self.data_norm
        if self.weighting == "auto":
            settled["weighting"] = "users" if self.unit == "party" else "records"
        if self.local in NAMED:
            for name, own in zip(("loss", "smoothing", "margin"), NAMED[self.local], strict=True):
                if settled[name] not in ("auto", own):
                    accepted = f"'auto' or {own!r} with local={self.local!r}"
                    raise InvalidParameterError.of(name, got=settled[name], accepted=accepted)
                settled[name] = own
        elif self.loss == "auto":
            settled["loss"] = "softmax_margin"
        if self.loss not in ("crammer_singer", "logistic"):
            settled |= {name: getattr(self.trained_loss, name) for name in ("smoothing", "margin")}
        if self.local == "objective":
            # For None the mechanism has a rule, and the radius follows from it.
            settled |= {"radius": None, "regularization": param.number_or_none(self.regularization)}
            return
        for name in ("regularization", "radius"):
            if settled[name] is None:
                raise InvalidParameterError.of(name, got=None, accepted="'auto' or a number")
        self._settle_sizes()

    def _settle_sizes(self) -> None:
        r"""Replace ``regularization="auto"`` and ``radius="auto"`` by numbers, with public rules.

        .. math:: \Lambda = \frac{2 L m \kappa_t^2}{c\, n U} \sqrt{U / h}

        so that the noise in a class score has standard deviation c = 0.12, with m the noise
        multiplier and n the expected number of records of a party (by default between the two
        limits). The root accounts for the noise of honest parties that are not relied on.

        .. math:: R = \min(L \kappa_t / \Lambda, \sqrt{2 \phi(0) / \Lambda})

        bounds every minimiser; for whole parties it is multiplied by 0.12.
        """
        settled, loss, users = vars(self), self.trained_loss, self.unit == "party"
        typical = math.sqrt(self.min_records * self.max_records)
        records = self.expected_records or max(1, round(typical))
        row_norm = (self.data_norm**2 + self.intercept_scaling**2) ** 0.5
        if self.regularization == "auto" and users:
            settled["regularization"] = USER_REGULARIZATION * row_norm * row_norm
        elif self.regularization == "auto":
            multiplier = gaussian_sigma(self.epsilon, self.delta)
            extra = math.sqrt(self.n_users / self.honest_survivors)
            moved = 2.0 * loss.lipschitz * multiplier * extra
            moved /= records * self.n_users
            least = MIN * loss.lipschitz
            settled["regularization"] = max(moved / SCORE_NOISE, least) * row_norm * row_norm
        if self.radius == "auto":
            by_gradient = loss.lipschitz * row_norm / self.regularization
            by_value = math.sqrt(2.0 * loss.at_zero / self.regularization)
            settled["radius"] = min(by_gradient, by_value) * (USER_RADIUS if users else 1.0 + 1e-12)

    @cached_property
    def trained_loss(self) -> Loss:
        """Loss of a party's training."""
        return param.chosen_loss(self.loss, len(self.classes), self.smoothing, self.margin)

    @property
    def n_trained(self) -> int:
        """Number of features that models are trained on."""
        return self.n_features

    def weight(self, n_records: int) -> int:
        """Return the factor of a party's model in its contribution."""
        return n_records if self.weighting == "records" else 1

    @property
    def max_weight(self) -> int:
        """Largest factor of any party."""
        return self.weight(self.max_records)

    @cached_property
    def training(self) -> LocalTraining | None:
        """Training with one common noise; None if each party adds its own."""
        return None if self.local == "objective" else LocalTraining(self)

    @cached_property
    def rounds(self) -> tuple[RoundPlan, ...]:
        """Rounds in order."""
        raise NotImplementedError

    def round(self, name: str) -> RoundPlan:
        """Return the round of this name.

        Raises
        ------
        InvalidParameterError
            There is no such round.
        """
        names = tuple(part.name for part in self.rounds)
        return self.rounds[names.index(check.check_option("round_name", name, names))]

    def events(self, trust: str = "secure_sum") -> tuple[PrivacyEvent, ...]:
        """Return the privacy events of the whole training."""
        return tuple(event for part in self.rounds for event in part.events(trust))

    def public_seed(self, round_name: str) -> int:
        """Return the public seed of row orders, the same for all parties."""
        text = f"{self.digest()}:{round_name}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"algorithm": self.algorithm} | record | {"classes": list(self.classes)}

    def to_json(self, indent: int | None = None) -> str:
        """Return canonical JSON text, which preserves floats exactly."""
        return json.dumps(self.to_dict(), indent=indent, sort_keys=True, allow_nan=False)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> FederatedSpec:
        """Read what :meth:`to_dict` returned.

        Raises
        ------
        TypeError, InvalidParameterError
            A field is missing, unknown or outside its range.
        """
        found: Mapping[str, Any] = check.check_type("specification", record, Mapping, "a mapping")
        known = {kind.algorithm: kind for kind in (HelmetSpec, DpdrSpec)}
        kind = known[check.check_option("algorithm", found.get("algorithm"), tuple(known))]
        names = {"algorithm", *(field.name for field in fields(kind))}
        values = exactly("specification", found, names)
        del values["algorithm"]
        return kind(**values)

    @classmethod
    def from_json(cls, text: str) -> FederatedSpec:
        """Read what :meth:`to_json` returned; errors as in :meth:`from_dict`."""
        return cls.from_dict(read_json(text))

    def digest(self) -> str:
        """Return the SHA-256 of the canonical JSON text, which parties compare first."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class HelmetSpec(FederatedSpec):
    """Specification of DP-Helmet: each party fits a model, and one sum averages them.

    Parameters
    ----------
    n_users, honest_fraction, max_dropout, min_survivors, n_features, classes, epsilon, delta, \
max_records, min_records, expected_records, study, protocol, data_norm, intercept_scaling, loss, \
smoothing, margin, regularization, radius, projection, weighting, unit, tol
        As in :class:`FederatedSpec`.
    local : {"svm_sgd", "softmax_slp_sgd", "exact"}, default="svm_sgd"
        Training of each party: projected SGD on one-vs-rest Huber hinges, projected SGD on
        cross-entropy, or a certified minimiser of any loss. Only "exact" uses ``loss``,
        ``smoothing`` and ``margin``. For persons, SGD uses the first 1024 rows of each, and batches
        consist of persons.
    n_epochs, batch_size : int
        Parameters of SGD; 20 and 1 by default.

    References
    ----------
    "Distributed DP-Helmet: differentially private non-interactive convex blind averaging";
    Wu, Li, Kumar, Chaudhuri, Jha and Naughton, SIGMOD 2017 (sensitivity of projected SGD).
    """

    algorithm = "dp_helmet"

    local: Annotated[str, param.one_of(*NAMED, "exact")] = "svm_sgd"
    n_epochs: Annotated[int, param.integer(1, 2**20)] = 20
    batch_size: Count = 1

    @cached_property
    def rounds(self) -> tuple[RoundPlan, ...]:
        """Return the only round: the sum of models."""
        left = plans.delta_left(self.epsilon, self.delta, 1)
        return (plans.averaged_models(self, plans.multiplier_of(self.epsilon, left)),)


def _own_epsilon(name: str, value: object) -> float:
    """Accept an epsilon under the given name."""
    return check.check_epsilon(name, value)


OBJECTIVE_TOL = 1e-5
# Released numbers that are only hidden among others are rounded to this share of their bound.
PLAIN_STEPS = 2**28
# Rounding of an entry of a person's matrix, where entries are at most 1.
PERSON_ROUNDING = 2.0**-40 + 2.0**-53
# A vector of more numbers than this is surely a mistake.
MAX_NUMBERS = 2**26


@dataclass(frozen=True, kw_only=True)
class DpdrSpec(FederatedSpec):
    """Specification of FedDPDR-DPML: principal components first, then weighted models on them.

    Round 1 sums the parties' Gram matrices ``X_i^T X_i`` with noise (``aggregation="gram"``), or
    components that parties compute from their own noisy matrices. Round 2 averages models of rows
    projected onto the components. The rounds compose: squares of Gaussian parameters add up, and
    objective perturbation gets the rest by the accountant.

    Parameters
    ----------
    n_users, honest_fraction, max_dropout, min_survivors, n_features, classes, epsilon, delta, \
max_records, min_records, expected_records, study, protocol, data_norm, intercept_scaling, loss, \
smoothing, margin, regularization, radius, projection, weighting, unit, tol
        As in :class:`FederatedSpec`.
    local : {"objective", "output"}, default="objective"
        "objective": every party perturbs its own objective, with its own guarantee. The radius
        follows a public rule, ``regularization="auto"`` is that of
        :class:`dpsvm_fast.ObjectivePerturbationSVC`, and the unit is a row or a person. "output":
        models are averaged with one common noise, as in :class:`HelmetSpec` with ``local="exact"``.
    n_components : int
        Number k of components, from 1 to n_features.
    aggregation : {"gram", "projectors", "eigenvectors"}, default="gram"
        "gram": round 1 sums Gram matrices with one common noise. Otherwise every party takes the
        components of its own noisy matrix, and round 1 averages their projectors or the components
        ("eigenvectors", as in the paper). Each component is signed so that its entries have a
        positive sum; averages may still cancel if that sum is near 0 or eigenvalues are close.
    first_share : float in (0, 1), default=0.4
        Share of round 1 in the squared Gaussian parameter of the budget.
    objective_epsilon : float or None, default=None
        Epsilon of a party's objective perturbation; None for the rest of the budget.

    Notes
    -----
    ``data_norm`` bounds rows before and after the projection.

    References
    ----------
    Wang, Zhang, Liang, Wang and Liu, "Differentially private support vector machines with
    knowledge aggregation", CMC 2024.
    """

    algorithm = "fed_dpdr"

    n_components: Annotated[int, partial(check.check_integer, low=1)]
    aggregation: Annotated[str, param.one_of("gram", "projectors", "eigenvectors")] = "gram"
    first_share: Annotated[
        float, partial(check.check_real, low=0.0, high=1.0, open_low=True, open_high=True)
    ] = 0.4
    local: Annotated[str, param.one_of("objective", "output")] = "objective"
    objective_epsilon: Annotated[float | None, param.or_word(None, _own_epsilon)] = None

    def _settle(self) -> None:
        """Refuse settings without proof or budget; find the rest for objective perturbation."""
        if self.n_components > self.n_features:
            raise InvalidParameterError.of(
                "n_components", got=self.n_components, accepted="at most the number of features"
            )
        if self.unit == "party" and (self.local == "objective" or self.aggregation != "gram"):
            raise InvalidParameterError.of(
                "unit",
                got=self.unit,
                accepted=(
                    "'row' or 'person' where each party adds its own noise; local='output' with "
                    "aggregation='gram' protects whole parties"
                ),
            )
        if self._first_size > MAX_NUMBERS:
            accepted = "fewer, as products of pairs are summed"
            raise InvalidParameterError.of("n_features", got=self.n_features, accepted=accepted)
        super()._settle()
        if self.local == "objective" and self.objective_epsilon is None:
            # The largest that keeps both rounds in the budget is searched for once: readers of the
            # specification only check it. Each step takes a while; a small share is enough.
            how: Any = {"least": 1e-3, "unused": 0.1}
            found = within_budget(self, self.first.events(), self.objective_with, **how)
            vars(self)["objective_epsilon"] = float(found.epsilon)

    @property
    def n_trained(self) -> int:
        """Number of features that models are trained on."""
        return self.n_components

    @property
    def _first_size(self) -> int:
        """Number of values in a vector of round 1."""
        d = self.n_features
        return self.n_components * d if self.aggregation == "eigenvectors" else d * (d + 1) // 2

    @cached_property
    def delta_of_noise(self) -> float:
        """Delta left by the distances of the noisy sums."""
        sums = (self.aggregation == "gram") + (self.training is not None)
        return plans.delta_left(self.epsilon, self.delta, sums) if sums else self.delta

    def mu_of(self, share: float) -> float:
        """Return the Gaussian parameter of a share of the budget."""
        whole = div_down(1.0, plans.multiplier_of(self.epsilon, self.delta_of_noise))
        return share_of(whole, share)

    @cached_property
    def rounds(self) -> tuple[RoundPlan, ...]:
        """Return both rounds: components, then models."""
        training = self.objective
        if training is None:
            multiplier = div_up(1.0, self.mu_of(1.0 - self.first_share))
            return (self.first, plans.averaged_models(self, multiplier))
        times = WEIGHTED if self.weighting == "records" else ""
        second = RoundPlan(
            name="model",
            what=f"the weights of the noisy models of the parties{times}",
            size=training.mechanism.n_weights,
            codec=FixedPointCodec(step=round_up(training.bound / PLAIN_STEPS)),
            local_events=training.mechanism.events,
        )
        return (self.first, second)

    @cached_property
    def components(self) -> NoisyComponents | None:  # type: ignore[override]
        """Plan of a single party's noisy matrix, if any."""
        if self.aggregation == "gram":
            return None
        return NoisyComponents(
            n_features=self.n_features,
            adjacency=plans.ADJACENCY,
            noise_grid="exact",
            mu=self.mu_of(self.first_share),
            n_components=self.n_components,
        )

    @cached_property
    def first(self) -> RoundPlan:
        """Round 1: the noisy sum of Gram matrices, or of the parties' own noisy components."""
        if self.components is not None:
            times = WEIGHTED if self.max_weight > 1 else ""
            return RoundPlan(
                name="components",
                what=f"the noisy {self.aggregation} of the parties{times}",
                size=self._first_size,
                codec=FixedPointCodec(step=round_up(1.001 * self.max_weight / PLAIN_STEPS)),
                local_events=(self.components.sum.event,),
            )
        clip_norm = mul_up(self.data_norm, self.data_norm)
        moved = mul_up(sqrt_up(2.0), float(self.max_records if self.unit == "party" else 1))
        if self.unit == "person":
            # Matrices of persons are rounded: docs/proofs/persons.md, "Second moments".
            moved = add_up(moved, mul_up(2.0 * self.n_features, PERSON_ROUNDING))
        noise = plans.plan_noise(
            size=self._first_size,
            distance=mul_up(moved, clip_norm),
            bound=mul_up(self.max_records * (1.0 + 2.0**-20), clip_norm),
            counts=self,
            multiplier=div_up(1.0, self.mu_of(self.first_share)),
        )
        return plans.noisy_sum("gram", noise, self.weighting, clip_norm)

    @cached_property
    def objective(self) -> ObjectiveTraining | None:  # type: ignore[override]
        """Objective perturbation of each party with ``local="objective"``; else None."""
        if self.objective_epsilon is None or self.local != "objective":
            return None
        mechanism = self.objective_with(self.objective_epsilon)
        # Certain: both rounds are within the budget.
        if not _delta_of((*self.first.events(), *mechanism.events), self.epsilon) <= self.delta:
            raise InvalidParameterError(
                "objective_epsilon: the two rounds together exceed epsilon and delta"
            )
        return ObjectiveTraining(mechanism, self)

    def objective_with(self, own: float) -> ObjectivePerturbation:
        """Return the objective perturbation with a given epsilon."""
        C = None
        if self.regularization is not None:
            C = div_down(1.0, mul_up(self.regularization, float(self.min_records)))
        return filled(
            ObjectivePerturbation,
            self,
            epsilon=own,
            delta=self.delta_of_noise,
            adjacency=plans.ADJACENCY,
            noise="gaussian",
            noise_grid="exact",
            loss=self.trained_loss,
            n_features=self.n_components,
            C=C,
            extra_regularization=None,
            tol=OBJECTIVE_TOL,
        )


# Many classes take a good part of a second.
_delta_of = lru_cache(maxsize=64)(composed_delta)
