"""Any training procedure with a declared price, as an estimator."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast._arithmetic import in_usual_arithmetic
from dpsvm_fast._validation import (
    check_adjacency,
    check_delta,
    check_epsilon,
)
from dpsvm_fast.accounting import PrivacyEvent, PrivacyLedger, check_ledger
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["DeclaredTrainer"]

Events = tuple[PrivacyEvent, ...]


class DeclaredTrainer(ClassifierMixin, BaseEstimator):
    """A training function of one's own, with the privacy events that it is declared to have.

    Parameters
    ----------
    train : callable
        ``train(X, y, **parameters)`` returns an object with ``predict``. It is also given
        ``epsilon``, ``delta`` and ``adjacency`` when ``events`` is a function.
    events : tuple of PrivacyEvent, or callable
        What one call of ``train`` costs every record: events of its own, or
        ``events(epsilon, delta, adjacency, **parameters)`` that returns them for a budget. It must
        not look at data.
    parameters : dict or None, default=None
        Keyword arguments of both functions. ``set_params`` puts every name that is no argument
        here into it, so that grids may vary them.
    epsilon : float, default=1.0
        Privacy parameter handed to the functions.
    delta : float, default=1e-6
        Privacy parameter handed to the functions.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        The relation of all events.
    ledger : PrivacyLedger or None, default=None
        Charged before ``train`` is called.

    Attributes
    ----------
    model_ : object
        What ``train`` returned.
    events_ : tuple of PrivacyEvent
        What was charged for it.

    Notes
    -----
    Guarantees: none. That ``train`` costs what it declares, that what it returns holds nothing else
    about the data, and that its randomness is not the same twice, is up to whoever wrote it.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast.accounting import PureEvent
    >>> from dpsvm_fast.model_selection import DeclaredTrainer
    >>> class Constant:
    ...     def __init__(self, label):
    ...         self.label = label
    ...     def predict(self, X):
    ...         return np.full(len(X), self.label)
    >>> trainer = DeclaredTrainer(lambda X, y, label: Constant(label), (), {"label": 1})
    >>> trainer.fit([[0.0], [1.0]], [0, 1]).predict([[2.0]])
    array([1])
    """

    model_: Any
    events_: Events

    def __init__(
        self,
        train: Callable[..., Any],
        events: Events | Callable[..., Events],
        parameters: Mapping[str, Any] | None = None,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        adjacency: str = "add_remove",
        ledger: PrivacyLedger | None = None,
    ) -> None:
        self.train = train
        self.events = events
        self.parameters = parameters
        self.epsilon = epsilon
        self.delta = delta
        self.adjacency = adjacency
        self.ledger = ledger

    def set_params(self, **params: Any) -> DeclaredTrainer:
        """Set arguments of the constructor, and by any other name parameters of ``train``."""
        own = self.get_params(deep=False)
        others = {name: value for name, value in params.items() if name not in own}
        super().set_params(**{name: value for name, value in params.items() if name in own})
        if others:
            self.parameters = {**(self.parameters or {}), **others}
        return self

    @in_usual_arithmetic
    def fit(self, X: Any, y: Any) -> DeclaredTrainer:
        """Charge the ledger and call ``train``.

        Parameters
        ----------
        X, y : anything
            Handed on.

        Returns
        -------
        DeclaredTrainer

        Raises
        ------
        InvalidParameterError, TypeError
            An argument of another type or outside its range, events of another relation, or a
            result without ``predict``.
        BudgetExceededError
            The ledger refuses; ``train`` was not called.
        """
        for name in ("model_", "events_"):
            self.__dict__.pop(name, None)
        events = self._planned_events(None)
        ledger = check_ledger(self.ledger, self.adjacency)
        if ledger is not None and events:
            ledger.spend(events, type(self).__name__)
        budget = self._budget() if callable(self.events) else {}
        # What one call does to its arguments must not reach the next one.
        model = self.train(X, y, **budget, **copy.deepcopy(dict(self.parameters or {})))
        if not hasattr(model, "predict"):
            kind = type(model).__name__
            raise TypeError(f"train: returned {kind}, expected an object with predict")
        self.model_, self.events_ = model, events
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """What the model predicts, ndarray of shape (n_samples,)."""
        check_is_fitted(self)
        return np.asarray(self.model_.predict(X))

    def _planned_events(self, rows: object) -> Events:
        """Events of one fit, checked; reads no data."""
        if not callable(self.train):
            raise TypeError(f"train: got {type(self.train).__name__}, expected a function")
        if self.parameters is not None and not isinstance(self.parameters, Mapping):
            kind = type(self.parameters).__name__
            raise TypeError(f"parameters: got {kind}, expected a dict or None")
        budget = self._budget()
        events = self.events
        if callable(events):
            events = events(**budget, **copy.deepcopy(dict(self.parameters or {})))
        events = (events,) if isinstance(events, PrivacyEvent) else events
        if not isinstance(events, (tuple, list)):
            raise TypeError(f"events: got {type(events).__name__}, expected a tuple of events")
        for event in events:
            if not isinstance(event, PrivacyEvent):
                raise TypeError(f"events: got {type(event).__name__}, expected a PrivacyEvent")
            if event.adjacency != budget["adjacency"]:
                raise InvalidParameterError.of(
                    "events", got=event.adjacency, accepted=f"events of {budget['adjacency']}"
                )
        return tuple(events)

    def _budget(self) -> dict[str, Any]:
        """What a function of the budget is told."""
        return {
            "epsilon": check_epsilon(self.epsilon),
            "delta": check_delta(self.delta),
            "adjacency": check_adjacency(self.adjacency),
        }
