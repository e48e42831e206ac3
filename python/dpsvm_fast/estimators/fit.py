"""The order of a private fit, the same for every estimator.

Parameters are checked and the ledger is asked before data are looked at; the budget is spent before
anything is drawn or solved; the estimator is fitted as a whole at the very end or not at all.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import FrameType, SimpleNamespace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder
from sklearn.utils import get_tags

from dpsvm_fast import _core
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates import (
    FederatedStatement,
    GaussianEvent,
    ObjectiveEvent,
    PrivacyEvent,
    PrivacyStatement,
    SelectionStatement,
    SubsampledGaussianEvent,
)
from dpsvm_fast.certificates.words import (
    CLASSES_REASON,
    LEARNED_REASON,
    MAX_ITER_CAVEAT,
    SEED_REASON,
    fit_assumptions,
)
from dpsvm_fast.estimators.base import PrivateLinearClassifier
from dpsvm_fast.estimators.inputs import (
    check_room,
    checked_training_set,
    classes_from_labels,
    encoded_labels,
)
from dpsvm_fast.exceptions import CertificationError, NotPrivateWarning, PrivacyLeakWarning
from dpsvm_fast.ledger import check_ledger
from dpsvm_fast.losses import Loss
from dpsvm_fast.rounding import mul_down
from dpsvm_fast.validation import check_arithmetic

# The scikit-learn Pipelines that an estimator is being fitted in.
#
# An estimator is not told that it is a step of a Pipeline, and the rows that it gets say nothing
# about the steps before it. So the frames of the callers are looked at, here and nowhere else:
# those
# that run the fit of a Pipeline of which one of the objects below them is a step.


# Methods of a Pipeline in which its steps are fitted.
FITTING = frozenset({"fit", "_fit", "fit_transform", "fit_predict"})
# No fit lies deeper below the first Pipeline than this many calls.
DEEPEST = 500


def steps_learned_before() -> tuple[str, ...]:
    """Earlier steps, of all Pipelines around the caller, that learned without privacy.

    Returns
    -------
    tuple of str
        Name and class of each; empty outside a Pipeline, and where nothing can be found out, as in
        a worker process that was handed an estimator without its Pipeline. Never raises.
    """
    found: list[Step] = []
    with contextlib.suppress(Exception):
        _collect(sys._getframe(1), found)
    return tuple(dict.fromkeys(map(str, found)))


def _collect(frame: FrameType | None, found: list[Step]) -> None:
    """Adds the steps, those of the outermost Pipeline first."""
    below: set[int] = set()
    for _ in range(DEEPEST):
        if frame is None:
            return
        code = frame.f_code
        if code.co_argcount and code.co_varnames[0] == "self":
            owner = frame.f_locals.get("self")
            fitting = code.co_name in FITTING and id(owner) not in below
            # Of one Pipeline several methods are running; the innermost tells.
            if fitting and isinstance(owner, Pipeline):
                place = _place(owner, below, frame.f_locals)
                found[:0] = learned_steps(list(owner.steps[:place]))
            below.add(id(owner))
        frame = frame.f_back


def _place(pipeline: Pipeline, below: set[int], local: Any) -> int:
    """Number of the step that is being fitted; 0 where that cannot be told."""
    for number, (_, step) in enumerate(pipeline.steps):
        if id(step) in below:
            return number
    # A Pipeline that caches its steps fits copies of them.
    number = local.get("step_idx")
    return number if isinstance(number, int) else 0


# Whether a fit is one of many that a search makes, and has warned of, once for all of them.


# Of the thread that fits: filters of warnings are shared by all threads and cannot be changed here.
_told: ContextVar[bool] = ContextVar("_told", default=False)


def told_by_search() -> bool:
    """Whether whoever called has warned already of what this fit would warn of."""
    return _told.get()


@contextmanager
def within_search() -> Iterator[None]:
    """For fits of candidates: no warning of their own."""
    token = _told.set(True)
    try:
        yield
    finally:
        _told.reset(token)


# What the steps of a pipeline learn from its rows, and at what price.
#
# A step is *private* when its fit is one of this library's releases, *public* when it maps every
# row
# by itself and by public numbers or categories, and has *learned* otherwise: what was fitted on
# private rows by anything else may repeat them.


# How scikit-learn writes a step that does nothing.
NOTHING = (None, "passthrough", "drop")

OURS = "dpsvm_fast."
# Those that scikit-learn 1.6 has no tags for.
STATELESS = ("FeatureHasher", "HashingVectorizer")


@dataclass(frozen=True, eq=False)
class Step:
    """One estimator that is not made of others.

    Parameters
    ----------
    name : str
        Names of the steps down to it, joined by two underscores.
    estimator : object
    weighed : bool, default=False
        Whether what is made of it is sparse or dense as the share of its zeros in all rows says.
    """

    name: str
    estimator: Any
    weighed: bool = False

    @property
    def statement(self) -> PrivacyStatement | SelectionStatement | FederatedStatement | None:
        """What its fit promised."""
        found = getattr(self.estimator, "privacy_", None)
        kinds = (PrivacyStatement, SelectionStatement, FederatedStatement)
        return found if isinstance(found, kinds) else None

    @property
    def role(self) -> str:
        """One of "private", "public" and "learned"."""
        kind = type(self.estimator)
        if self.statement is not None:
            return "private"
        if getattr(kind, "_learns_from_rows", True) is False or not _requires_fit(self.estimator):
            return "public"
        by_share = self.weighed and getattr(self.estimator, "sparse_output", False)
        if _categories_declared(self.estimator) and not by_share:
            return "public"
        # One of ours that has not been fitted, or that is being fitted, has no statement yet.
        if kind.__module__.startswith(OURS) and hasattr(self.estimator, "epsilon"):
            return "private"
        return "learned"

    @property
    def maps_by_function(self) -> bool:
        """Whether what it does to a row is up to a function that nobody can look into."""
        step = self.estimator
        return isinstance(step, FunctionTransformer) and step.func is not None

    def __str__(self) -> str:
        return f"{self.name!r} ({type(self.estimator).__name__})"


def leaf_steps(estimator: Any, name: str) -> Iterator[Step]:
    """Every estimator inside, in the order in which the rows meet them.

    Parameters
    ----------
    estimator : object
        A Pipeline, FeatureUnion or ColumnTransformer with anything inside, or one estimator.
    name : str
        Of the whole; may be empty.
    """
    if isinstance(estimator, str) or estimator is None:
        if estimator not in NOTHING:
            yield Step(name, estimator)
        return
    inside = _inside(estimator)
    if inside is None:
        yield Step(name, estimator)
        return
    # Sparse and dense rows are trained on in different ways.
    weighed = isinstance(estimator, ColumnTransformer) and 0.0 < estimator.sparse_threshold < 1.0
    for part, step in inside:
        for leaf in leaf_steps(step, f"{name}__{part}" if name else str(part)):
            yield replace(leaf, weighed=True) if weighed else leaf


def _inside(estimator: Any) -> list[tuple[str, Any]] | None:
    """Names and estimators that one is made of, fitted ones where there are; None for a leaf."""
    if isinstance(estimator, Pipeline):
        return list(estimator.steps)
    if isinstance(estimator, FeatureUnion):
        return list(estimator.transformer_list)
    if isinstance(estimator, ColumnTransformer):
        parts = getattr(estimator, "transformers_", None)
        if parts is None:
            parts = [*estimator.transformers, ("remainder", estimator.remainder, None)]
        return [(name, step) for name, step, _ in parts]
    return None


def learned_steps(steps: list[tuple[str, Any]]) -> list[Step]:
    """Those among named steps, and inside them, that learn from rows without privacy."""
    leaves = (leaf for name, step in steps for leaf in leaf_steps(step, name))
    return [leaf for leaf in leaves if leaf.role == "learned"]


def _categories_declared(estimator: Any) -> bool:
    """Whether it is an encoder whose fit looks at the rows for nothing but unknown categories."""
    if type(estimator) not in (OneHotEncoder, OrdinalEncoder):
        return False
    frequent = estimator.min_frequency is None and estimator.max_categories is None
    return frequent and not isinstance(estimator.categories, str)


def _requires_fit(estimator: Any) -> bool:
    """What scikit-learn's tags say; an estimator without tags requires a fit."""
    kind = type(estimator)
    if kind.__module__.startswith("sklearn.feature_extraction.") and kind.__name__ in STATELESS:
        return False
    try:
        return bool(get_tags(estimator).requires_fit)
    except (AttributeError, TypeError, ValueError):
        return True


# What a fit will charge, known before it: of any estimator here, and of Pipelines of them.
#
# A mechanism is built without data, and its law does not depend on the number of columns: what a
# wider sum costs in rounding is paid by its noise. So a Pipeline can be planned as a whole, though
# only its fit knows how many columns each step hands on. The last bits of a noise scale may
# depend on
# that number; events planned here are larger by more than that.


# Relative; far above what rounding does to the parameter of a Gaussian mechanism, and far below
# what a ledger forgives.
MARGIN = 2.0**-42


@dataclass(frozen=True)
class Planned:
    """Public facts about the rows of a fit.

    Parameters
    ----------
    n_classes : int
        For estimators whose label set is not a parameter.
    n_samples : int or None
        Number of rows where it is public, with ``replace_one``; None where it is not.
    sparse : bool
    """

    n_classes: int = 2
    n_samples: int | None = None
    sparse: bool = False


def private_steps(estimator: Any) -> list[Step]:
    """The estimators inside that will spend budget, in the order of their fits."""
    return [leaf for leaf in leaf_steps(estimator, "") if _spends(leaf)]


def planned_events(estimator: Any, rows: Planned) -> tuple[PrivacyEvent, ...]:
    """Events of one fit of an estimator or of all steps of a Pipeline.

    Parameters
    ----------
    estimator : object
        With the parameters of the fit; reads no data and spends nothing.
    rows : Planned

    Returns
    -------
    tuple of PrivacyEvent
        In the order of the fits. Each is at least as large as the one that will be spent, by a
        relative 2**-42 at most.

    Raises
    ------
    InvalidParameterError, TypeError
        A parameter is outside its range.
    """
    return tuple(
        _widened(event)
        for leaf in private_steps(estimator)
        for event in _events_of(leaf.estimator, rows)
    )


def _spends(leaf: Step) -> bool:
    """Whether a fit of this step makes releases, also where the class is a user's own."""
    step = leaf.estimator
    return leaf.role == "private" or hasattr(type(step), "_planned_events") or _is_ours(step)


def _is_ours(step: Any) -> bool:
    """Whether a step is made like the estimators here."""
    return isinstance(step, PrivatelyTrained) or (
        hasattr(step, "_mechanism") and hasattr(step, "_checked_parameters")
    )


def _events_of(step: Any, rows: Planned) -> tuple[PrivacyEvent, ...]:
    """Events of a fit of one estimator."""
    if hasattr(type(step), "_planned_events"):
        declared: tuple[PrivacyEvent, ...] = step._planned_events(rows)
        return declared
    if not _is_ours(step):
        raise TypeError(
            f"estimator: got {type(step).__name__}, expected an estimator of this library that "
            "fits once, or a DeclaredTrainer"
        )
    settings = step._checked_parameters()
    if not isinstance(step, PrivatelyTrained):
        return (step._mechanism(settings, 1).event,)
    classes = getattr(settings, "classes", None)
    if settings.adjacency == "replace_one":
        settings.n_samples = rows.n_samples
    if hasattr(settings, "sparse"):
        settings.sparse = rows.sparse
    n_classes = rows.n_classes if classes is None else classes.size
    events: tuple[PrivacyEvent, ...] = step._mechanism(settings, n_classes, 1).events
    return events


def _widened(event: PrivacyEvent) -> PrivacyEvent:
    """The event with a little less noise, where rounding has a say in how much there is."""
    if isinstance(event, (GaussianEvent, ObjectiveEvent)):
        return replace(event, sigma=mul_down(event.sigma, 1.0 - MARGIN))
    if isinstance(event, SubsampledGaussianEvent):
        multiplier = mul_down(event.noise_multiplier, 1.0 - MARGIN)
        return replace(event, noise_multiplier=multiplier)
    return event


# Parameters that change nothing in what is promised, and the label set, which has its own line.
WITHOUT_WEIGHT = ("n_threads", "verbose", "low_memory", "random_state", "classes")
# A delta beyond this is no promise.
LARGEST_DELTA = 0.1

# Something leaves with less noise than was paid for: at least that much is gone from the budget.
CHARGED = "; the ledger is charged all the same, and lists the spend as NOT PRIVATE"

# What scikit-learn's validation learns about X, published with the rest.
FEATURE_FACTS = ("n_features_in_", "feature_names_in_")

Fitted = TypeVar("Fitted", bound="PrivatelyTrained")


class Mechanism(Protocol):
    """One release, known in full before any data are read."""

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What a ledger records."""

    @property
    def intercept_scaling(self) -> float:
        """Constant feature; 0 for none."""

    @property
    def score_loss(self) -> Loss:
        """The loss as a function of the scores."""

    def summary(self) -> str:
        """Public facts in one line."""

    def statement(
        self,
        *,
        library_version: str,
        random_source: str,
        assumed_public: tuple[str, ...],
        caveats: tuple[str, ...],
        not_private_reasons: tuple[str, ...],
    ) -> PrivacyStatement:
        """What is promised."""


class PrivatelyTrained(PrivateLinearClassifier):
    """Base of estimators that spend, train and release in one ``fit``.

    A subclass names its parameters in ``_parameters``, builds its mechanism in ``_mechanism`` and
    trains and adds noise in ``_released``.
    """

    _parameters: ClassVar[Mapping[str, Callable[[Any], Any]]]
    # Whether training keeps a number for each row and class, as minimisers do.
    _minimises: ClassVar[bool] = True

    @abstractmethod
    def _mechanism(self, settings: SimpleNamespace, n_classes: int, n_features: int) -> Any:
        """The release for weights of this shape; reads no data."""

    @abstractmethod
    def _released(
        self,
        X: Any,
        codes: NDArray[np.int64],
        mechanism: Any,
        settings: SimpleNamespace,
        source: _core.NoiseSource,
    ) -> NDArray[np.float64]:
        """Noisy weights, one row a score. All that was known before the noise is dropped."""

    def _prepare(self, X: Any, mechanism: Any, settings: SimpleNamespace) -> None:
        """Refuse what the mechanism promises nothing about, before anything is spent."""

    def _complete(self, settings: SimpleNamespace) -> None:
        """Replace words such as "auto" among the checked settings; reads no data."""

    @in_usual_arithmetic
    def fit(self: Fitted, X: Any, y: Any) -> Fitted:
        """Train on private rows, spend the budget and publish noisy weights.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers.
        y : array-like of shape (n_samples,)
            Labels, each one of ``classes``.

        Returns
        -------
        object
            This estimator.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range. Nothing was read or spent.
        BudgetExceededError
            The ledger refuses. Nothing was read or spent.
        ValueError
            X or y are invalid; the text does not quote them. Nothing was spent.
        CertificationError
            ``max_iter`` was not enough, or double precision was not with a tiny ``tol`` and
            extreme settings. The budget is spent and nothing is released; this event is not
            covered by the guarantee.
        KeyboardInterrupt
            The budget is spent and nothing is released.
        """
        self._forget()
        settings = self._checked_parameters()
        warn_not_private(settings)
        self._train(X, y, settings)
        return self

    def _train(self, X: Any, y: Any, settings: SimpleNamespace) -> None:
        """All of a fit from the look at the data to the publication."""
        # Validation writes what it learns about X onto the copy: this object stays as it is.
        probe = copy.copy(self)
        X, y = checked_training_set(probe, X, y, reset=settings.known_classes is None)
        classes = settings.classes if settings.known_classes is None else settings.known_classes
        if classes is None:
            classes = classes_from_labels(y)
        facts = {name: vars(probe)[name] for name in FEATURE_FACTS if name in vars(probe)}
        self._fit_on(X, encoded_labels(y, classes), classes, facts, settings)

    def _fit_on(
        self,
        X: Any,
        codes: Any,
        classes: NDArray[Any],
        facts: dict[str, Any],
        settings: SimpleNamespace,
    ) -> None:
        """Spend, train, add noise and publish.

        Parameters
        ----------
        X : ndarray, CSR matrix or PartitionedRows
            Validated rows, or rows that validate themselves once the budget is spent.
        codes : ndarray of shape (n_samples,) or None
            Class indices; None where X has its labels.
        classes : ndarray of shape (n_classes,)
        facts : dict
            What was learned about the features, to be published.
        settings : SimpleNamespace
            Checked parameters.
        """
        n_features = facts["n_features_in_"]
        if settings.adjacency == "replace_one":
            settings.n_samples = X.shape[0]
        # Rows elsewhere are not counted yet, and no minimiser is fitted on them.
        kept = codes.size * classes.size if self._minimises and codes is not None else 0
        check_room(classes.size * (n_features + 1), kept)
        mechanism = self._mechanism(settings, classes.size, n_features)
        self._prepare(X, mechanism, settings)
        statement = _statement(mechanism, settings)
        source = _core.NoiseSource(settings.random_state)
        if settings.verbose:
            sys.stdout.write(f"{type(self).__name__}: {mechanism.summary()}\n")
        if settings.ledger is not None:
            settings.ledger.spend(mechanism.events, spend_label(self, settings))
        released = self._released(X, codes, mechanism, settings, source)
        self._publish(
            released,
            mechanism.intercept_scaling,
            classes_=classes,
            privacy_=statement,
            _fitted_loss=mechanism.score_loss,
            **facts,
            **settings.kept,
        )

    def _checked_parameters(self) -> SimpleNamespace:
        """All parameters in their ranges and affordable; reads no data."""
        check_arithmetic()
        settings = SimpleNamespace(
            **{name: test(getattr(self, name)) for name, test in self._parameters.items()}
        )
        settings.parameter_names = tuple(self._parameters)
        settings.ledger = check_ledger(self.ledger, settings.adjacency)
        # Known once data are, and then only where it is public.
        settings.n_samples = None
        # Label set of the release that this one continues, and what this one keeps to be continued.
        settings.known_classes = None
        settings.kept = {}
        self._complete(settings)
        # The shape of the weights only scales the noise: settings that are refused are so now.
        n_classes = 2 if settings.classes is None else settings.classes.size
        mechanism = self._mechanism(settings, n_classes, 1)
        if settings.ledger is not None:
            settings.ledger.check(mechanism.events)
        return settings


def certified(
    solve_dense: Callable[..., Any],
    solve_csr: Callable[..., Any],
    X: Any,
    codes: NDArray[np.int64],
    options: Mapping[str, Any],
) -> NDArray[np.float64]:
    """Weights certified by a compiled solver. Private: never to be kept.

    Raises
    ------
    CertificationError
        ``max_iter`` ran out, or rounding kept the certificate above the tolerance.
    """
    if sparse.issparse(X):
        weights, _ = solve_csr(X.data, X.indices, X.indptr, X.shape[1], codes, **options)
    else:
        weights, _ = solve_dense(X, codes, **options)
    if weights is None:
        raise CertificationError(refused_certificate(limited=options["max_iter"] is not None))
    return np.asarray(weights)


def refused_certificate(*, limited: bool) -> str:
    """Says that nothing is released, and what would avoid it."""
    reason, remedy = (
        ("max_iter: the minimum was not certified in the steps allowed", "max_iter=None avoids it")
        if limited
        else (
            "tol: the minimum could not be certified in double precision",
            "a larger tol, a smaller C or a larger smoothing avoids it",
        )
    )
    return (
        f"{reason}; nothing is released and the budget is spent. That this happened depends on the "
        f"data and is not covered by the guarantee; {remedy}"
    )


def warn_not_private(settings: SimpleNamespace) -> None:
    """Warn the caller of ``fit``, two frames up, of what makes this release not private.

    Steps of a Pipeline around it that learned from the rows are noted in ``settings``.
    """
    settings.learned_before = steps_learned_before()
    if told_by_search():
        return
    charged = "" if settings.ledger is None else CHARGED
    if settings.learned_before:
        warnings.warn(
            "the rows come from steps of the Pipeline that learned from them without privacy: "
            f"{', '.join(settings.learned_before)}; what is released is not private. Scale by "
            "PublicScaler or PrivateStandardScaler, or take another private or stateless step"
            + charged,
            PrivacyLeakWarning,
            stacklevel=4,
        )
    if getattr(settings, "classes", ()) is None:
        warnings.warn(
            "classes=None reads the label set from y and releases it without noise; pass the "
            "public label set as classes=" + charged,
            PrivacyLeakWarning,
            stacklevel=4,
        )
    if getattr(settings, "delta", 0.0) > LARGEST_DELTA:
        warnings.warn(
            f"delta={settings.delta:g} promises next to nothing: with that probability anything at "
            "all may be told of a record. Take a delta below one over the number of records",
            NotPrivateWarning,
            stacklevel=4,
        )
    if settings.random_state is not None:
        warnings.warn(
            "random_state is a seed: whoever knows it can remove the noise; use None for "
            "a private release" + charged,
            NotPrivateWarning,
            stacklevel=4,
        )
    if _continued_reasons(settings) and not not_private_reasons(settings):
        warnings.warn(
            "the fit that this one continues is not private, so neither is this one; call fit for "
            "a private release" + charged,
            NotPrivateWarning,
            stacklevel=4,
        )


def _continued_reasons(settings: SimpleNamespace) -> tuple[str, ...]:
    """Why the release that this one continues is not private."""
    before = getattr(settings, "continues", None)
    return () if before is None else tuple(before.not_private_reasons)


def not_private_reasons(settings: SimpleNamespace) -> tuple[str, ...]:
    """Why a fit with these settings is not private; known before any data are read."""
    reasons = []
    if getattr(settings, "classes", ()) is None:
        reasons.append(CLASSES_REASON)
    if settings.random_state is not None:
        reasons.append(SEED_REASON)
    reasons += [f"{step} {LEARNED_REASON}" for step in getattr(settings, "learned_before", ())]
    return tuple(reasons)


def spend_label(estimator: Any, settings: SimpleNamespace) -> str:
    """What a ledger lists a fit as: its class, and whether no budget covers it."""
    reasons = not_private_reasons(settings) + _continued_reasons(settings)
    return f"{type(estimator).__name__}{', NOT PRIVATE' if reasons else ''}"


def _statement(mechanism: Mechanism, settings: SimpleNamespace) -> PrivacyStatement:
    """What this fit promises, and why it is not private if it is not."""
    return mechanism.statement(
        caveats=() if getattr(settings, "max_iter", None) is None else (MAX_ITER_CAVEAT,),
        **promise_facts(settings, "data_norm"),
    )


def promise_facts(settings: SimpleNamespace, parameter: str) -> dict[str, Any]:
    """What every statement says about one fit, by the statement's names.

    Parameters
    ----------
    settings : SimpleNamespace
        Checked parameters; without ``classes`` where no labels are read.
    parameter : str
        The public parameter on which the sensitivity rests.
    """
    named = getattr(settings, "parameter_names", ())
    others = (name for name in named if name not in (parameter, *WITHOUT_WEIGHT))
    labels = None
    if "classes" in vars(settings):
        labels = "given" if settings.classes is not None else "read"
    return {
        "library_version": _core.build_info()["version"],
        "random_source": "operating_system" if settings.random_state is None else "seed",
        "assumed_public": fit_assumptions(parameter, others, settings.adjacency, labels=labels),
        "not_private_reasons": not_private_reasons(settings),
    }
