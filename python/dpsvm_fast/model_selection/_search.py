"""Search over parameters whose price is the price of everything that it looked at."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast._arithmetic import in_usual_arithmetic
from dpsvm_fast.accounting import PrivacyLedger
from dpsvm_fast.accounting.selection import SelectionStatement
from dpsvm_fast.estimators._released import Released
from dpsvm_fast.estimators._training import CHARGED, spend_label, warn_not_private
from dpsvm_fast.exceptions import PrivacyLeakWarning
from dpsvm_fast.model_selection._budgets import allot
from dpsvm_fast.model_selection._data import Data, checked_data
from dpsvm_fast.model_selection._default import ConstantClassifier
from dpsvm_fast.model_selection._runs import release_only
from dpsvm_fast.model_selection._settings import (
    check_size,
    checked_settings,
    planned,
    settle_labels,
    shape_of,
)
from dpsvm_fast.model_selection._statement import learned_in, search_statement
from dpsvm_fast.model_selection._strategies import (
    Chosen,
    Rows,
    best_of_parts,
    best_of_runs,
    refitted,
)

__all__ = ["PrivateGridSearch"]


def _best_has(name: str) -> Any:
    """Whether the model, or before a fit the estimator, has a method; for ``available_if``."""

    def check(search: Any) -> bool:
        getattr(vars(search).get("best_estimator_", search.estimator), name)
        return True

    return available_if(check)


class PrivateGridSearch(Released, MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    r"""Search over a grid of parameters within one budget.

    A grid search that reports the best of many private models at the price of one is not private.
    Here the choice is paid for, in one of two ways:

    - ``strategy="partition"``: every record is put into one of m + 1 parts without looking at it.
      Each of m candidates is trained on a part of its own, and one is chosen by its errors on the
      last part, by the exponential mechanism or permute-and-flip. A record pays for its own part
      only: the total is the largest of the parts' budgets, not their sum.
    - ``strategy="random_stopping"``: a random number of runs that nobody is told, each with a
      random candidate on all records, and a noisy score. The best run is released. This costs about
      two to three times a single run, for any number of candidates.

    Parameters
    ----------
    estimator : estimator, Pipeline or DeclaredTrainer
        Any estimator of this library, a Pipeline with one or more of them, or a function with
        declared events. Its ``adjacency`` must be that of the search, its ``ledger`` and
        ``random_state`` None. Its ``epsilon`` and ``delta`` are set by the search; in a Pipeline
        with several private steps their epsilons count as proportions. A step whose delta is 0
        stays pure.
    param_grid : dict of lists, or list of such dicts
        As for scikit-learn's GridSearchCV. PUBLIC: it must not come from the data. Not for
        ``epsilon``, ``delta``, ``adjacency``, ``classes``, ``ledger`` and ``random_state``.
    epsilon : float, default=1.0
        Privacy parameter of the whole search, 0 < epsilon <= 1e4.
    delta : float, default=1e-6
        Privacy parameter of the whole search, 0 <= delta < 1; 0 needs pure candidates.
    strategy : {"partition", "random_stopping"}, default="partition"
    selection : {"permute_and_flip", "exponential"}, default="permute_and_flip"
        How "partition" chooses. Permute-and-flip is never worse.
    scoring : {"errors", "balanced_errors"}, default="errors"
        What is to be small: the number of errors, or the sum of their classes' weights.
    class_weight : dict or None, default=None
        PUBLIC weight of an error on each class, for "balanced_errors"; rounded to multiples of
        1/256 of the largest.
    adjacency : {"add_remove", "replace_one"}, default="add_remove"
        Neighbouring data sets: one row more or fewer, or one row exchanged for another; then the
        number of rows is public.
    validation_fraction : float in (0, 1), default=0.2
        Share of the records by which "partition" chooses. Every part must have 50 records at
        least in expectation.
    refit_fraction : float in [0, 1), default=0.8
        Share of the budget (of epsilon with ``delta=0``, else of the squared parameter of Gaussian
        noise) that is kept to fit the winner again on all records. 0 releases the winner itself.
    stopping : {"geometric", "logarithmic", "poisson"}, default="geometric"
        Law of the number of runs of "random_stopping". With "poisson" it may be 0; then a constant
        model is released. The others are often 1, whatever their mean, and one run is a candidate
        at random; a Poisson number is near its mean, but costs more with ``delta=0``.
    mean_runs : float in (1, 1000] or None, default=None
        Mean number of runs; None is three times the number of candidates, at least 10.
    score_fraction : float in (0, 1), default=0.1
        Share of a run's budget for its noisy score, in the units of ``refit_fraction``.
    n_jobs : int or None, default=None
        Fits at a time, through joblib: any of its backends will do. Never changes the result.
    random_state : int or None, default=None
        None takes the operating system's entropy. A seed makes the search reproducible and thereby
        not private: a ``NotPrivateWarning``, and the statement says so.
    ledger : PrivacyLedger or None, default=None
        Charged once for the whole search, before anything is drawn.
    verbose : {0, 1}, default=0
        1 prints the budgets of all parts before the search.

    Attributes
    ----------
    best_estimator_ : estimator
        The released model. Its ``privacy_`` is that of the search.
    best_params_ : dict
        Parameters of the winner.
    best_index_ : int
        Its number in the grid; -1 where a Poisson number of runs was 0 and nothing is fitted again.
    best_score_ : float
        Noisy score of the winner, with "random_stopping" alone.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
    privacy_ : SelectionStatement
        What the search promises, and every number needed to recompute it.

    Notes
    -----
    Guarantees: all fitted attributes together are (epsilon, delta)-differentially private for the
    relation ``adjacency``, provided that the estimator, the grid and every other parameter were
    chosen without looking at the data. Proof: docs/proofs/private_selection.md. Scores of
    candidates are not kept: there is no ``cv_results_``. The assignment to parts looks at nothing
    in a record: it is never stratified. Not covered: running time, which with "random_stopping"
    tells the number of runs; that a search ends with an error, also the one that there are too few
    rows for the parts; what the candidates do not cover.

    How much a search may cost: with "partition" every candidate sees ``(1 - validation_fraction) /
    m`` of the records, so that grids should be short. The refit trains the winner on all records,
    with less of the budget; parameters that suit a small part need not suit all records. Beside
    defaults that follow from public facts, as they do here, a search mostly does no better:
    benches/README.md, "What tuning is worth".

    References
    ----------
    .. [1] McKenna and Sheldon, "Permute-and-flip: a new mechanism for differentially private
       selection", NeurIPS 2020.
    .. [2] Liu and Talwar, "Private selection from private candidates", STOC 2019.
    .. [3] Papernot and Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.model_selection import PrivateGridSearch
    >>> X, y = load_digits(return_X_y=True)
    >>> search = PrivateGridSearch(
    ...     PrivateLinearSVC(classes=range(10), bounds=(0, 16)),
    ...     {"margin": [0.0, 1.0]},
    ...     epsilon=4.0,
    ... ).fit(X, y)
    >>> sorted(search.best_params_)
    ['margin']
    >>> search.privacy_.private, search.privacy_.epsilon
    (True, 4.0)
    """

    best_estimator_: Any
    best_params_: dict[str, Any]
    best_index_: int
    classes_: NDArray[Any]
    privacy_: SelectionStatement

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        strategy: str = "partition",
        selection: str = "permute_and_flip",
        scoring: str = "errors",
        class_weight: dict[Any, float] | None = None,
        adjacency: str = "add_remove",
        validation_fraction: float = 0.2,
        refit_fraction: float = 0.8,
        stopping: str = "geometric",
        mean_runs: float | None = None,
        score_fraction: float = 0.1,
        n_jobs: int | None = None,
        random_state: int | None = None,
        ledger: PrivacyLedger | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.strategy = strategy
        self.selection = selection
        self.scoring = scoring
        self.class_weight = class_weight
        self.adjacency = adjacency
        self.validation_fraction = validation_fraction
        self.refit_fraction = refit_fraction
        self.stopping = stopping
        self.mean_runs = mean_runs
        self.score_fraction = score_fraction
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.ledger = ledger
        self.verbose = verbose

    @in_usual_arithmetic
    def fit(self, X: Any, y: Any) -> PrivateGridSearch:
        """Search, spend the budget and publish the winner.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            What the candidates take.
        y : array-like of shape (n_samples,)
            Labels, each one of the candidates' ``classes``.

        Returns
        -------
        PrivateGridSearch
            This search.

        Raises
        ------
        InvalidParameterError, TypeError
            A parameter of the search or of a candidate is outside its range, or there are too few
            rows for the parts. Nothing was spent.
        BudgetExceededError
            The ledger refuses. Nothing was spent.
        ValueError
            X or y are invalid; the text does not quote them. Nothing was spent, except where only a
            candidate could find out.
        CertificationError
            A candidate's fit failed. The budget is spent and nothing is released.
        KeyboardInterrupt
            The budget is spent and nothing is released.
        """
        self._forget()
        settings = checked_settings(self)
        _warn_of_leaks(settings)
        warn_not_private(settings)
        settings.learned_before += settings.learned
        data = checked_data(self, settings.candidates, X, y)
        settle_labels(settings, data)
        check_size(settings, data)
        # Where all that is public was known beforehand, this is the plan that was checked.
        plan = planned(settings, shape_of(settings, data))
        settings.statement = search_statement(settings, plan)
        if settings.verbose:
            sys.stdout.write(f"{type(self).__name__}: {_summary(settings, plan)}\n")
        if settings.ledger is not None:
            settings.ledger.spend(plan.events, spend_label(self, settings))
        rows = Rows(data.X, data.y, settings.n_jobs, settings.random_state)
        if settings.strategy == "partition":
            chosen = best_of_parts(rows, plan, settings.counted, settings.validation_fraction)
        else:
            chosen = best_of_runs(rows, plan, settings.counted)
        self._publish(_released(settings, chosen, rows, plan, data), settings, data)
        return self

    def _publish(self, chosen: Chosen, settings: SimpleNamespace, data: Data) -> None:
        """Sets all fitted attributes at once."""
        best = release_only(chosen.estimator, settings.statement)
        facts: dict[str, Any] = dict(data.facts)
        if settings.known_classes is not None:
            facts["classes_"] = settings.known_classes
        for name in ("classes_", "n_features_in_", "feature_names_in_"):
            if name not in facts and hasattr(best, name):
                facts[name] = getattr(best, name)
        if chosen.score is not None:
            facts["best_score_"] = chosen.score
        parameters = settings.parameters[chosen.index] if chosen.index >= 0 else {}
        self.__dict__.update(
            facts,
            best_estimator_=best,
            best_params_=dict(parameters),
            best_index_=chosen.index,
            privacy_=settings.statement,
        )

    @_best_has("predict")  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> NDArray[Any]:
        """Label of every row by the released model, ndarray of shape (n_samples,)."""
        return np.asarray(self._model().predict(X))

    @_best_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores by the released model, ndarray of shape (n_samples, n_classes) or (n_samples,)."""
        return np.asarray(self._model().decision_function(X))

    @_best_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities by the released model, ndarray of shape (n_samples, n_classes)."""
        return np.asarray(self._model().predict_proba(X))

    @_best_has("predict_log_proba")  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of probabilities, ndarray of shape (n_samples, n_classes)."""
        return np.asarray(self._model().predict_log_proba(X))

    @_best_has("transform")  # type: ignore[untyped-decorator]
    def transform(self, X: Any) -> Any:
        """Rows as the released model maps them."""
        return self._model().transform(X)

    def _model(self) -> Any:
        """The released model, if there is one."""
        check_is_fitted(self)
        return self.best_estimator_

    def __sklearn_tags__(self) -> Any:
        """What the estimator takes; no accuracy is promised on small data: noise may drown it."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags


def _warn_of_leaks(settings: SimpleNamespace) -> None:
    """Name what candidates learn without privacy, once for all of them."""
    settings.learned = learned_in(settings.candidates)
    if settings.learned:
        warnings.warn(
            "candidates have steps that learn from the rows without privacy: "
            f"{', '.join(settings.learned)}; what is released is not private. Scale by "
            "PublicScaler or PrivateStandardScaler, or take another private or stateless step"
            + ("" if settings.ledger is None else CHARGED),
            PrivacyLeakWarning,
            stacklevel=4,
        )


def _released(
    settings: SimpleNamespace, chosen: Chosen, rows: Rows, plan: Any, data: Data
) -> Chosen:
    """The winner as it is released: fitted again where that was paid for."""
    if plan.refit_budget is not None:
        # Without a run there is no winner; then the first candidate is fitted, for the same price.
        index = max(chosen.index, 0)
        whole = shape_of(settings, data).whole
        again = allot(settings.candidates[index], plan.refit_budget, whole)
        return Chosen(index, refitted(rows, again), chosen.score)
    if chosen.index < 0:
        return Chosen(-1, ConstantClassifier(settings.known_classes), None)
    return chosen


def _summary(settings: SimpleNamespace, plan: Any) -> str:
    """Public facts in one line."""
    each = plan.branches[0].budget.epsilon
    again = plan.refit_budget
    kept = "" if again is None else f", {again.epsilon:.4g} for the refit"
    return (
        f"{settings.strategy}, {len(plan.branches)} candidates, epsilon = {each:.4g} for a fit"
        f"{kept}; {plan.selection}"
    )
