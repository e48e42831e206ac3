"""What private transformers have in common: one noisy sum over rows of bounded norm."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from dpsvm_fast import _core
from dpsvm_fast import _validation as check
from dpsvm_fast._arithmetic import in_usual_arithmetic
from dpsvm_fast.accounting import PrivacyStatement, check_ledger
from dpsvm_fast.accounting.words import FLOATING_POINT_CAVEAT, RUNNING_TIME_CAVEAT
from dpsvm_fast.estimators._released import Released
from dpsvm_fast.estimators._training import (
    FEATURE_FACTS,
    promise_facts,
    spend_label,
    warn_not_private,
)
from dpsvm_fast.estimators._training_data import check_room, checked_training_rows
from dpsvm_fast.mechanisms._noisy_sum import NoisySum
from dpsvm_fast.mechanisms._row_maps import PartitionedRows, PublicMap
from dpsvm_fast.mechanisms._settings import NOISE_GRIDS, check_range

__all__ = ["PrivateTransformer", "clipped_rows", "unlabelled"]


Fitted = TypeVar("Fitted", bound="PrivateTransformer")


class PrivateTransformer(Released, TransformerMixin, BaseEstimator):
    """Base of transformers whose fitted attributes follow from one noisy sum over the rows."""

    _mechanism_name: ClassVar[str]
    # The public parameter on which the sensitivity rests.
    _bounded_by: ClassVar[str] = "data_norm"
    _parameters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "epsilon": check.check_epsilon,
        "delta": check.check_delta,
        "data_norm": partial(check.check_positive, "data_norm"),
        "adjacency": check.check_adjacency,
        "random_state": check.check_random_state,
        "n_threads": check.check_n_threads,
        "noise_grid": partial(check.check_option, "noise_grid", options=NOISE_GRIDS),
    }

    n_features_in_: int
    privacy_: PrivacyStatement

    @abstractmethod
    def _mechanism(self, settings: SimpleNamespace, n_features: int) -> Any:
        """The release for rows of so many features; its ``sum`` has the noise."""

    @abstractmethod
    def _facts(self, mechanism: Any, records: Any, X: Any, how: SimpleNamespace) -> dict[str, Any]:
        """Makes the release; returns the attributes to publish. ``X`` knows the number of rows."""

    def _learned(self, n_features: int) -> int:
        """How many numbers a fit learns."""
        return n_features

    def _check_shape(self, settings: SimpleNamespace, n_features: int) -> None:
        """Refuse parameters that do not go with so many features, before anything is spent."""

    def _records(self, X: Any, settings: SimpleNamespace) -> Any:
        """The rows as ``_facts`` takes them: over the bound of their norm, longer ones clipped."""
        return unlabelled(_public_map(settings.data_norm), X, settings.n_threads)

    @in_usual_arithmetic
    def fit(self: Fitted, X: Any, y: Any = None) -> Fitted:
        """Spend the budget on private rows and publish what came out.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Finite numbers; rows longer than ``data_norm`` are scaled down to it, silently.
        y : ignored

        Returns
        -------
        object
            This transformer.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter is outside its range. Nothing was read or spent.
        BudgetExceededError
            The ledger refuses. Nothing was read or spent.
        ValueError
            X is invalid; the text does not quote it. Nothing was spent.
        """
        self._forget()
        settings = self._checked_parameters()
        warn_not_private(settings)
        probe = copy.copy(self)
        X = checked_training_rows(probe, X)
        facts = {name: vars(probe)[name] for name in FEATURE_FACTS if name in vars(probe)}
        self._fit_on(X, facts, settings)
        return self

    def _fit_on(self, X: Any, feature_facts: dict[str, Any], settings: SimpleNamespace) -> None:
        """Spend, release and publish; ``X`` may be a PartitionedRows."""
        n_features = feature_facts["n_features_in_"]
        self._check_shape(settings, n_features)
        mechanism = self._mechanism(settings, n_features)
        check_room(self._learned(n_features))
        settings.source = _core.NoiseSource(settings.random_state)
        if settings.ledger is not None:
            settings.ledger.spend(mechanism.event, spend_label(self, settings))
        records = self._records(X, settings)
        facts = self._facts(mechanism, records, X, settings)
        if "data_norm" in self._parameters:
            facts["data_norm_"] = settings.data_norm
        statement = self._statement(mechanism.sum, settings)
        self.__dict__.update(facts | feature_facts, privacy_=statement)

    def _checked_parameters(self) -> SimpleNamespace:
        """All parameters in their ranges and affordable; reads no data."""
        check.check_arithmetic()
        settings = SimpleNamespace(
            **{name: test(getattr(self, name)) for name, test in self._parameters.items()}
        )
        settings.parameter_names = tuple(self._parameters)
        if "data_norm" in self._parameters:
            check_range("data_norm", settings.data_norm, "the bound of the rows' norm")
        settings.ledger = check_ledger(self.ledger, settings.adjacency)
        mechanism = self._mechanism(settings, 1)
        if settings.ledger is not None:
            settings.ledger.check(mechanism.event)
        return settings

    def _statement(self, released: NoisySum, settings: SimpleNamespace) -> PrivacyStatement:
        """What this fit promises."""
        floating_point = released.grid is None
        return PrivacyStatement(
            mechanism=self._mechanism_name,
            loss="none",
            adjacency=settings.adjacency,
            epsilon=settings.epsilon,
            delta=settings.delta,
            events=(released.event,),
            parts=(released.part,),
            caveats=(RUNNING_TIME_CAVEAT, *((FLOATING_POINT_CAVEAT,) if floating_point else ())),
            **promise_facts(settings, self._bounded_by),
        )

    def __sklearn_tags__(self) -> Any:
        """Sparse rows are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _public_map(data_norm: float) -> PublicMap:
    """Rows over the bound of their norm."""
    return PublicMap(unit=False, data_norm=data_norm)


def unlabelled(public: PublicMap, X: Any, n_threads: int) -> Any:
    """Records of rows without labels: every one is of class 0."""
    if isinstance(X, PartitionedRows):
        return X.mapped_records(public, 2)
    return public.records(X, np.zeros(X.shape[0], dtype=np.int64), 2, n_threads)


def clipped_rows(X: Any, data_norm: float) -> Any:
    """Rows scaled down to the bound where they are longer; CSR stays CSR."""
    return _public_map(data_norm).apply(X) * data_norm
