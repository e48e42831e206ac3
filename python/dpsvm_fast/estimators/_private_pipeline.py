"""What the private pipelines have in common, the linear one and the one with a kernel."""

from __future__ import annotations

import copy
import sys
from abc import abstractmethod
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import _core
from dpsvm_fast import _validation as check
from dpsvm_fast._arithmetic import in_usual_arithmetic
from dpsvm_fast.accounting import PrivacyStatement
from dpsvm_fast.estimators._bounds import Bounds, broadcast_bounds, check_extent, public_map
from dpsvm_fast.estimators._linear_fit import LinearFit
from dpsvm_fast.estimators._parameters import chosen_loss
from dpsvm_fast.estimators._probabilities import Probabilities
from dpsvm_fast.estimators._training import (
    FEATURE_FACTS,
    PrivatelyTrained,
    promise_facts,
    spend_label,
    warn_not_private,
)
from dpsvm_fast.estimators._training_data import (
    check_room,
    checked_training_set,
    classes_from_labels,
    encoded_labels,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._noisy_sum import joined_parameter
from dpsvm_fast.mechanisms._row_maps import PublicMap
from dpsvm_fast.mechanisms._training_path import Training
from dpsvm_fast.mechanisms.linear_pipeline import TRAINERS

__all__ = ["PrivatePipeline"]

Fitted = TypeVar("Fitted", bound="PrivatePipeline")


class PrivatePipeline(Probabilities, PrivatelyTrained):
    """Base of classifiers that map rows by released numbers before they train on them."""

    # What a fit publishes.
    bounds_: Bounds | None
    centre_: NDArray[np.float64] | None
    whitening_: NDArray[np.float64] | None

    # What a subclass is made with.
    delta: float
    mechanism: str
    margin: float | str

    @abstractmethod
    def _fit_released(
        self,
        mechanism: Any,
        public: PublicMap,
        X: Any,
        codes: Any,
        source: _core.NoiseSource,
        settings: SimpleNamespace,
    ) -> LinearFit:
        """Makes the releases of one fit, whose events have been recorded."""

    @in_usual_arithmetic
    def fit(self: Fitted, X: Any, y: Any) -> Fitted:
        """Spend the budget on private rows and publish what came out.

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
            A parameter is outside its range. Nothing was spent.
        BudgetExceededError
            The ledger refuses. Nothing was spent.
        ValueError
            X or y are invalid; the text does not quote them. Nothing was spent.
        CertificationError
            With "objective" or "output", double precision could not certify the minimum. The budget
            is spent and nothing is released; this event is not covered by the guarantee.
        KeyboardInterrupt
            The budget is spent and nothing is released.
        """
        self._forget()
        settings = self._checked_parameters()
        warn_not_private(settings)
        # Validation writes what it learns about X onto the copy: this object stays unfitted.
        probe = copy.copy(self)
        X, y = checked_training_set(probe, X, y)
        classes = classes_from_labels(y) if settings.classes is None else settings.classes
        facts = {name: vars(probe)[name] for name in FEATURE_FACTS if name in vars(probe)}
        settings.sparse = sparse.issparse(X)
        self._fit_on(X, encoded_labels(y, classes), classes, facts, settings)
        return self

    def _fit_on(
        self,
        X: Any,
        codes: NDArray[np.int64] | None,
        classes: NDArray[Any],
        facts: dict[str, Any],
        settings: SimpleNamespace,
    ) -> None:
        """Spend, release and publish.

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
            Checked parameters, and whether rows are sparse.
        """
        n_features = facts["n_features_in_"]
        bounds = broadcast_bounds(settings.bounds, n_features)
        mechanism = self._mechanism(settings, classes.size, n_features)
        # Rows elsewhere are not counted yet, and no minimiser is fitted on them.
        n_rows = 0 if codes is None else codes.size
        self._check_room(mechanism, n_rows, classes.size, n_features)
        public = self._public_map(bounds, settings)
        events = mechanism.events
        source = _core.NoiseSource(settings.random_state)
        if settings.verbose:
            sys.stdout.write(f"{type(self).__name__}: {mechanism.summary()}\n")
        if settings.ledger is not None:
            settings.ledger.spend(events, spend_label(self, settings))
        fit = self._fit_released(mechanism, public, X, codes, source, settings)
        self._publish(
            fit.weights,
            fit.scaling,
            **self._released_facts(fit, mechanism),
            bounds_=bounds,
            classes_=classes,
            mechanism_=mechanism.trainer,
            privacy_=self._promise(mechanism, fit, settings),
            _fitted_loss=mechanism.score_loss,
            **facts,
        )

    def _check_room(self, mechanism: Any, n_rows: int, n_classes: int, n_features: int) -> None:
        """Refuse what memory is lacking for, before anything is spent."""
        # Weights, and a frequency of a kernel for every feature.
        kept = 0 if mechanism.trainer == "gradient" else n_rows * n_classes
        check_room(n_classes * (mechanism.n_columns + 1) + n_features, kept)
        if mechanism.n_columns != n_features:
            check_room(0, mechanism.n_columns * n_features)

    def _public_map(self, bounds: Bounds | None, settings: SimpleNamespace) -> PublicMap:
        """The map of raw rows by public numbers."""
        public = public_map(bounds, sparse_rows=settings.sparse)
        check_extent(public)
        return public

    def _complete(self, settings: SimpleNamespace) -> None:
        """What "auto" means."""
        # Known once data are there; as public as the number of columns.
        settings.sparse = False
        if settings.mechanism == "auto":
            settings.mechanism = "gradient" if settings.delta > 0.0 else "objective"
        if settings.mechanism == "gradient" and settings.delta == 0.0:
            raise InvalidParameterError.of(
                "delta", got=0.0, accepted="a number in (0, 1) with mechanism='gradient'"
            )
        if settings.whiten is True and settings.delta == 0.0:
            raise InvalidParameterError.of(
                "whiten", got=True, accepted="'auto' or False with delta=0"
            )

    def _shared_settings(
        self, settings: SimpleNamespace, n_classes: int, n_features: int
    ) -> dict[str, Any]:
        """Settings of the mechanism that both pipelines have."""
        names = ("epsilon", "delta", "adjacency", "noise_grid", "fit_intercept", "whiten")
        centred = settings.mechanism == "gradient" or not settings.sparse
        if settings.whiten is True and not centred:
            raise InvalidParameterError.of(
                "whiten",
                got=True,
                accepted=f"'auto' or False for sparse rows with mechanism={settings.mechanism!r}",
            )
        return {name: getattr(settings, name) for name in names} | {
            "trainer": settings.mechanism,
            "loss": _loss(settings.mechanism, settings.delta, n_classes, settings.margin),
            "n_features": n_features,
            "centred": centred,
        }

    def _used_loss(self) -> Loss:
        """The loss of the fitted model, or the one that a fit would use for two classes."""
        fitted: Loss | None = vars(self).get("_fitted_loss")
        if fitted is not None:
            return fitted
        delta = check.check_delta(self.delta)
        trainer = check.check_option("mechanism", self.mechanism, ("auto", *TRAINERS))
        if trainer == "auto":
            trainer = "gradient" if delta > 0.0 else "objective"
        return _loss(trainer, delta, 2, self._parameters["margin"](self.margin))

    def _released_facts(self, fit: Any, mechanism: Any) -> dict[str, Any]:
        """What was released besides the weights, and the choices that follow from it."""
        rule, solver = fit.training.rule, fit.training.solver
        gradient = rule is not None
        lam = rule.regularization if rule is not None else getattr(solver, "regularization", None)
        return {
            "n_samples_": fit.count,
            "centre_": fit.centre,
            "whitened_": fit.training.whitened,
            "whitening_": fit.whitening,
            "mu_": _parameters_of(fit.training) if gradient else {},
            "max_grad_norm_": rule.clip if rule is not None else None,
            "n_steps_": rule.n_steps if rule is not None else None,
            "learning_rate_": rule.learning_rate if rule is not None else None,
            "c_": rule.c if rule is not None else None,
            "lambda_": lam if mechanism.trainer != "output" else None,
        }

    def _promise(self, mechanism: Any, fit: Any, settings: SimpleNamespace) -> PrivacyStatement:
        """What this fit promises."""
        promised: PrivacyStatement = mechanism.statement(
            fit.training, **promise_facts(settings, "bounds")
        )
        return promised


def _parameters_of(training: Training) -> dict[str, float]:
    """The Gaussian parameter of each kind of release."""
    found: dict[str, list[float]] = {}
    for part in training.sums:
        if part.mu is not None:
            found.setdefault(part.name, []).append(part.mu)
    return {
        name: mus[0] if len(mus) == 1 else joined_parameter(*mus) for name, mus in found.items()
    }


def _loss(trainer: str, delta: float, n_classes: int, margin: float | str) -> Loss:
    """The loss of each kind of training."""
    if trainer == "gradient":
        return chosen_loss("softmax_margin", n_classes, 1.0, 0.0 if margin == "auto" else margin)
    if trainer == "output":
        return chosen_loss("margin_distance", n_classes, "auto", margin)
    name = "huber" if delta == 0.0 and n_classes == 2 else "softmax_margin"
    return chosen_loss(name, n_classes, "auto", margin)
