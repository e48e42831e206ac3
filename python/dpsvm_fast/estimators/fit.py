"""The order of a private fit, the same for every estimator.

Parameters are checked and the ledger is asked before data are looked at; the budget is spent before
anything is drawn or solved; the estimator is fitted as a whole at the very end or not at all.
"""

from __future__ import annotations

import copy
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.certificates import PrivacyEvent, PrivacyStatement
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
from dpsvm_fast.validation import check_arithmetic

# Set while a search fits its candidates: it has warned once for all of them. One value a thread,
# since filters of warnings are shared by all threads.
_within_search: ContextVar[bool] = ContextVar("_within_search", default=False)


@contextmanager
def within_search() -> Iterator[None]:
    """Fits of candidates, which do not warn: their search has."""
    token = _within_search.set(True)
    try:
        yield
    finally:
        _within_search.reset(token)


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
    """Warn the caller of ``fit``, two frames up, of what makes this release not private."""
    if _within_search.get():
        return
    charged = "" if settings.ledger is None else CHARGED
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


def not_private_reasons(settings: SimpleNamespace) -> tuple[str, ...]:
    """Why a fit with these settings is not private; known before any data are read."""
    reasons = []
    if getattr(settings, "classes", ()) is None:
        reasons.append(CLASSES_REASON)
    if settings.random_state is not None:
        reasons.append(SEED_REASON)
    reasons += [f"{step} {LEARNED_REASON}" for step in getattr(settings, "learned", ())]
    return tuple(reasons)


def spend_label(estimator: Any, settings: SimpleNamespace) -> str:
    """What a ledger lists a fit as: its class, and whether no budget covers it."""
    return f"{type(estimator).__name__}{', NOT PRIVATE' if not_private_reasons(settings) else ''}"


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
