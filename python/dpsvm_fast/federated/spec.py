"""What all parties agree on before anybody reads data: one frozen, printable specification."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any

from dpsvm_fast import validation as check
from dpsvm_fast.certificates import PrivacyEvent
from dpsvm_fast.certificates.record import exactly, read_json
from dpsvm_fast.estimators.inputs import public_classes
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.parameters import (
    NAMED,
    TABLES,
    choose_sizes,
    choose_words,
    chosen,
    loss_of,
)
from dpsvm_fast.federated.plans import (
    DpdrPlan,
    LocalTraining,
    RoundPlan,
    averaged_models,
    delta_left,
    multiplier_of,
)
from dpsvm_fast.federated.secsum import PartyCounts

# How a specification is made of arguments, and what follows from its fields.


# Tables of features wider than this would not fit into what parties send.
MOST_FEATURES = 2**26
# Of every algorithm, beside its parameters.
COUNTS = ("n_users", "honest_fraction", "max_dropout", "min_survivors")

SHARED = (*COUNTS, "epsilon", "delta", "n_features", "classes", "study")


def declared(cls: type[FederatedSpec], algorithm: str, given: Mapping[str, Any]) -> FederatedSpec:
    """The specification with numbers for words.

    Parameters
    ----------
    cls : type
    algorithm : {"dp_helmet", "fed_dpdr"}
    given : mapping
        All names in the constructor of that name, before it did anything: its arguments.
    """
    shared = {name: given[name] for name in SHARED}
    counts = PartyCounts(**{name: shared[name] for name in COUNTS})
    labels = public_classes(shared["classes"])
    shared["classes"] = labels.tolist()
    epsilon, delta = check.check_epsilon(shared["epsilon"]), gaussian_delta(shared["delta"])
    n_features = check.check_integer("n_features", shared["n_features"], 1, MOST_FEATURES)
    # What is no argument is found below.
    values = chosen(algorithm, {name: given.get(name) for name in TABLES[algorithm]}, n_features)
    choose_words(values, labels.size)
    if values["local"] != "objective":
        choose_sizes(values, labels.size, epsilon, delta, counts, given["expected_records"])
        return cls(algorithm=algorithm, params=values, **shared)
    if values["regularization"] == "auto":
        values["regularization"] = None
    values["radius"] = None
    plan = cls(algorithm=algorithm, params=values, **shared).plan
    assert plan is not None
    # Searched for once: whoever reads the specification only checks it.
    values["objective_epsilon"] = plan.left_for_objective
    return cls(algorithm=algorithm, params=values, **shared)


def gaussian_delta(value: object) -> float:
    """Accept a delta above 0: sums of noise give no pure guarantee."""
    delta = check.check_delta(value)
    if delta == 0.0:
        raise InvalidParameterError.of("delta", got=value, accepted="a number in (0, 1)")
    return delta


PROTOCOL = "secagg-mask/v1"

LONGEST_STUDY = 200


@dataclass(frozen=True, kw_only=True)
class FederatedSpec:
    """A training across parties, in full. Use :meth:`dp_helmet` or :meth:`fed_dpdr`.

    Parameters
    ----------
    algorithm : {"dp_helmet", "fed_dpdr"}
    params : mapping
        Parameters of the algorithm, numbers for words.
    n_users : int in 1..2**18
        U: parties that take part.
    honest_fraction : float in (0, 1]
        t: at least ceil(t U) of them neither reveal nor use their own noise.
    max_dropout : float in [0, 1)
        rho: at most floor(rho U) vanish before the sum.
    min_survivors : int or None
        Parties without which nothing is released; None for U - floor(rho U), the most accepted.
    epsilon : float in (0, 1e4]
    delta : float in (0, 1)
        Of everything together, for relation ``replace_one`` of the unit.
    n_features : int
    classes : sequence of labels
        The public label set.
    study : str
        Public name: specifications that differ in it alone are different ones.
    protocol : str
        Version of the encoding and of the sum.

    Raises
    ------
    TypeError, InvalidParameterError
        A parameter outside its range, or settings for which no guarantee can be given. No data
        are read.

    Notes
    -----
    Guarantees: none by itself; :attr:`rounds` says what parties have to do for that of the
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

    algorithm: str
    params: Mapping[str, Any]
    n_users: int
    honest_fraction: float
    max_dropout: float = 0.0
    min_survivors: int | None = None
    epsilon: float
    delta: float
    n_features: int
    classes: tuple[Any, ...]
    study: str = ""
    protocol: str = PROTOCOL

    def __post_init__(self) -> None:
        """Check everything, and that noise and room for it can be found."""
        store = object.__setattr__
        store(self, "epsilon", check.check_epsilon(self.epsilon))
        store(self, "delta", gaussian_delta(self.delta))
        store(
            self, "n_features", check.check_integer("n_features", self.n_features, 1, MOST_FEATURES)
        )
        store(self, "classes", tuple(public_classes(list(self.classes)).tolist()))
        check.check_option("protocol", self.protocol, (PROTOCOL,))
        if not isinstance(self.study, str) or len(self.study) > LONGEST_STUDY:
            raise InvalidParameterError(
                f"study: expected a text of at most {LONGEST_STUDY} letters"
            )
        store(self, "min_survivors", self.counts.survivors_needed)
        # With the number just stored, like those of a specification that was read.
        vars(self).pop("counts")
        values = chosen(self.algorithm, self.params, self.n_features)
        store(self, "params", MappingProxyType(values))
        words = [name for name in ("regularization", "radius", "loss") if values[name] == "auto"]
        if words:
            raise InvalidParameterError(f"params: expected numbers, and names, for {words}")
        # Planned now: what has no noise is refused before anything else happens.
        _ = self.rounds

    @classmethod
    def dp_helmet(
        cls,
        *,
        n_users: int,
        n_features: int,
        classes: Any,
        epsilon: float,
        delta: float,
        max_records: int,
        min_records: int = 1,
        expected_records: int | None = None,
        honest_fraction: float = 0.5,
        max_dropout: float = 0.0,
        min_survivors: int | None = None,
        study: str = "",
        data_norm: float = 1.0,
        intercept_scaling: float | str = "auto",
        local: str = "svm_sgd",
        loss: str = "auto",
        smoothing: float | str = "auto",
        margin: float | str = "auto",
        regularization: float | str = "auto",
        radius: float | str = "auto",
        projection: str = "joint",
        weighting: str = "auto",
        unit: str = "row",
        group_size: int = 1,
        n_epochs: int = 20,
        batch_size: int = 1,
        tol: float = 1e-3,
    ) -> FederatedSpec:
        r"""Blind averaging: every party fits a model, one sum averages them.

        Parameters
        ----------
        n_users, n_features, classes, epsilon, delta
            As in the class.
        max_records, min_records : int
            Bounds of a party's number of records; a party outside them is refused. The first
            bounds what parties contribute, the second what a record moves with equal weights.
        expected_records : int or None
            What ``regularization="auto"`` reckons with; None for the geometric mean of the bounds.
        honest_fraction, max_dropout, min_survivors, study
            As in the class.
        data_norm : float
            Public bound of the rows' L2 norm; longer rows are scaled down to it, silently.
        intercept_scaling : "auto" or float >= 0
            Constant feature, 0 for none; "auto" is ``0.2 * data_norm``.
        local : {"svm_sgd", "softmax_slp_sgd", "exact"}
            Projected SGD on one-vs-rest Huber hinges, or on cross-entropy; or certified minimisers
            of any loss.
        loss, smoothing, margin
            Of ``"exact"``, as of :class:`dpsvm_fast.OutputPerturbationSVC`; "auto" is
            ``softmax_margin``.
        regularization : "auto" or float > 0
            Lambda of the mean of losses. Noise is proportional to its inverse (except with
            ``unit="party"``). "auto" is a rule of public facts.
        radius : "auto" or float > 0
            Models are projected onto a ball of this radius, or one for each class; "auto" holds
            the minimiser of any data, and is 0.12 of that with ``unit="party"``, where noise is
            proportional to it.
        projection : {"joint", "per_class"}
        weighting : {"auto", "records", "users"}
            Whether parties count by their records or alike; "auto" is the former unless
            ``unit="party"``.
        unit : {"row", "person", "party"}
            What is protected: one row, one person with at most ``group_size`` rows wherever they
            lie, or all rows of one party.
        group_size : int
        n_epochs, batch_size : int
            Of SGD.
        tol : float in [1e-4, 1]
            Distance to the minimiser relative to what one record moves.

        References
        ----------
        "Distributed DP-Helmet: differentially private non-interactive convex blind averaging";
        Wu, Li, Kumar, Chaudhuri, Jha and Naughton, SIGMOD 2017 (sensitivity of projected SGD).
        """
        return declared(cls, "dp_helmet", locals())

    @classmethod
    def fed_dpdr(
        cls,
        *,
        n_users: int,
        n_features: int,
        classes: Any,
        epsilon: float,
        delta: float,
        max_records: int,
        n_components: int,
        min_records: int = 1,
        expected_records: int | None = None,
        honest_fraction: float = 0.5,
        max_dropout: float = 0.0,
        min_survivors: int | None = None,
        study: str = "",
        data_norm: float = 1.0,
        intercept_scaling: float | str = "auto",
        aggregation: str = "gram",
        align: bool = True,
        first_share: float = 0.4,
        local: str = "objective",
        loss: str = "auto",
        smoothing: float | str = "auto",
        margin: float | str = "auto",
        regularization: float | str = "auto",
        radius: float | str = "auto",
        projection: str = "joint",
        weighting: str = "auto",
        unit: str = "row",
        group_size: int = 1,
        tol: float = 1e-3,
    ) -> FederatedSpec:
        r"""Principal components in a first round, weighted models in their space in a second.

        Parameters
        ----------
        n_users, n_features, classes, epsilon, delta
            As in the class.
        max_records
            As of :meth:`dp_helmet`.
        n_components : int
            k, 1 to n_features.
        min_records, expected_records
            As of :meth:`dp_helmet`.
        honest_fraction, max_dropout, min_survivors, study
            As in the class.
        data_norm : float
            Public bound of the rows' norm, before the projection and after.
        intercept_scaling : "auto" or float >= 0
        aggregation : {"gram", "projectors", "eigenvectors"}
            Round 1 sums matrices of products of features under noise, once for all parties; or
            every party takes the components of its own noisy matrix, and their projectors or the
            components themselves are averaged, as the paper does the latter.
        align : bool
            Of ``"eigenvectors"``: whether each is turned so that its entries add up to a positive
            number. Without, what is averaged may cancel; with it too where that sum is near 0, or
            where eigenvalues are near each other: the other aggregations know no signs.
        first_share : float in (0, 1)
            Share of round 1 in the budget: of the squared Gaussian parameter.
        local : {"objective", "output"}
            Every party perturbs its own objective, with a guarantee of its own; or models are
            averaged under one noise, as in :meth:`dp_helmet`.
        loss, smoothing, margin, regularization, radius
            As of :meth:`dp_helmet` with ``local="exact"``. With ``local="objective"`` the radius is
            a public rule, ``regularization="auto"`` that of
            :class:`dpsvm_fast.ObjectivePerturbationSVC`, and the unit one record.
        projection, weighting, unit, group_size, tol
            As of :meth:`dp_helmet` with ``local="exact"``.

        References
        ----------
        Wang, Zhang, Liang, Wang and Liu, "Differentially private support vector machines with
        knowledge aggregation", CMC 2024.
        """
        return declared(cls, "fed_dpdr", locals())

    @cached_property
    def counts(self) -> PartyCounts:
        """The parties, and what is assumed about them."""
        return PartyCounts(
            n_users=self.n_users,
            honest_fraction=self.honest_fraction,
            max_dropout=self.max_dropout,
            min_survivors=self.min_survivors,
        )

    @property
    def honest_survivors(self) -> int:
        """Honest parties in every sum that is released: h of the proof."""
        return self.counts.honest_survivors

    @property
    def survivors_needed(self) -> int:
        """Fewest parties with which a sum is released."""
        return self.counts.survivors_needed

    @property
    def threshold(self) -> int:
        """Shares that open a party's mask."""
        return self.counts.threshold

    @cached_property
    def training(self) -> LocalTraining | None:
        """Training under one common noise, or None if each party adds its own."""
        if self.params["local"] == "objective":
            return None
        names = {f.name for f in fields(LocalTraining)} & set(self.params)
        own: dict[str, Any] = {name: self.params[name] for name in names - {"loss"}}
        return LocalTraining(
            loss=loss_of(self.params, len(self.classes)),
            n_users=self.n_users,
            n_features=self.params.get("n_components", self.n_features),
            solver="psgd" if self.params["local"] in NAMED else "exact",
            **own,
        )

    @cached_property
    def plan(self) -> DpdrPlan | None:
        """The two rounds of ``fed_dpdr``."""
        return DpdrPlan(self) if self.algorithm == "fed_dpdr" else None

    @cached_property
    def rounds(self) -> tuple[RoundPlan, ...]:
        """Rounds in order: what parties send."""
        if self.plan is not None:
            return self.plan.rounds
        assert self.training is not None
        left = delta_left(self.epsilon, self.delta, 1)
        multiplier = multiplier_of(self.epsilon, left)
        return (averaged_models(self.training, self.counts, multiplier),)

    def round(self, name: str) -> RoundPlan:
        """The round of this name.

        Raises
        ------
        InvalidParameterError
            There is none.
        """
        names = tuple(part.name for part in self.rounds)
        return self.rounds[names.index(check.check_option("round_name", name, names))]

    def events(self, trust: str = "secure_sum") -> tuple[PrivacyEvent, ...]:
        """What the whole training charges to a ledger."""
        return tuple(event for part in self.rounds for event in part.events(trust))

    def public_seed(self, round_name: str) -> int:
        """Seed of orders of rows and the like: known to all, the same for all parties."""
        text = f"{self.digest()}:{round_name}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        record = {f.name: getattr(self, f.name) for f in fields(self)}
        return record | {"params": dict(self.params), "classes": list(self.classes)}

    def to_json(self, indent: int | None = None) -> str:
        """JSON text, always the same for the same specification; floats survive it exactly."""
        return json.dumps(self.to_dict(), indent=indent, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> FederatedSpec:
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        TypeError, InvalidParameterError
            Missing or unknown fields, or one outside its range.
        """
        names = {f.name for f in fields(cls)}
        return cls(**exactly("specification", read_json(text), names))

    def digest(self) -> str:
        """SHA-256 of the canonical JSON text, hexadecimal: parties compare it first."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[object, ...]:
        return (FederatedSpec.from_json, (self.to_json(),))
