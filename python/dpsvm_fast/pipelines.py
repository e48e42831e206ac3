"""Private pipelines: private, public and learned steps, and the total privacy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.certificates import PipelineStatement, PipelineStep, PrivacyEvent
from dpsvm_fast.certificates.statement import Statement
from dpsvm_fast.estimators.frames import has_sparse
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError, PrivacyLeakWarning
from dpsvm_fast.mechanisms.plan import Facts
from dpsvm_fast.rounding import add_up, mul_down
from dpsvm_fast.validation import check_delta

__all__ = ["PrivatePipeline", "total_privacy"]

OURS = "dpsvm_fast."
# Replacements for steps that learn from the rows, by class.
SCALED = "scale by PublicScaler or PrivateStandardScaler"
ENCODED = (
    "give {} public categories=..., a handle_unknown= that never warns (not 'warn', nor 'ignore' "
    "with drop=), and sparse_output=False in a ColumnTransformer"
)
# Advice if a ColumnTransformer gets sparse rows with its default threshold.
DENSE_HINT = "set sparse_threshold=0, or zeros in all rows decide whether its output is sparse"
REPLACEMENTS = {
    **dict.fromkeys(("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"), SCALED),
    **dict.fromkeys(("PCA", "TruncatedSVD", "KernelPCA"), "reduce by PrivatePCA"),
    **dict.fromkeys(("OneHotEncoder", "OrdinalEncoder"), ENCODED),
    **dict.fromkeys(
        ("PublicSplines", "HashingVectorizer", "FeatureHasher"),
        f"in the ColumnTransformer around {{}}, {DENSE_HINT}",
    ),
    "SimpleImputer": "fill gaps with SimpleImputer(strategy='constant', fill_value=..., "
    "keep_empty_features=True) and a public value, or by SchemaEncoder",
    "SplineTransformer": "give SplineTransformer an array of public knots, and sparse_output=False "
    "in a ColumnTransformer, or use PublicSplines",
    "KBinsDiscretizer": "use PublicSplines with public knots",
    "ColumnTransformer": "name its columns instead of passing a function of the rows, "
    f"and for sparse rows {DENSE_HINT}",
}


def private_steps_instead(steps: Iterable[object]) -> str:
    """Return advice on private steps that replace steps which learn from the rows."""
    names = (str(step).rpartition("(")[2].rstrip(")") for step in steps)
    known = dict.fromkeys(REPLACEMENTS[name].format(name) for name in names if name in REPLACEMENTS)
    advice = "; ".join(known) or "use a private step, or a public one"
    return advice[0].upper() + advice[1:]


def total_privacy(pipeline: Any, *, delta: float | None = None) -> PipelineStatement:
    r"""Return one privacy statement for all fitted steps of a pipeline.

    Parameters
    ----------
    pipeline : Pipeline, FeatureUnion, ColumnTransformer, estimator, or list of them
        Fitted. A list holds estimators fitted on the same private rows, one after another or in
        parallel.
    delta : float in [0, 1), optional
        Delta at which epsilon is computed. None takes the sum of the steps' deltas, rounded up.

    Returns
    -------
    PipelineStatement
        The statements of the steps, with the epsilon and delta of their composition by the ledger's
        accountant. ``print`` shows it as text; ``verify`` recomputes it without the steps.

    Raises
    ------
    NotFittedError
        A step that learns has not been fitted.
    InvalidParameterError
        The steps have different relations, no step is private, or delta = 0 with Gaussian noise.
    TypeError
        A step is not an estimator.

    Warns
    -----
    PrivacyLeakWarning
        A step learned from the rows without privacy, as do scikit-learn's StandardScaler, PCA and
        SelectKBest. The statement is then marked not private and gives the reason.

    Notes
    -----
    Guarantees: if the result is ``private``, all fitted attributes of all steps together are
    (epsilon, delta)-differentially private for the relation of the steps, provided that the facts
    listed as public are public. A step costs nothing if it is a step of this library without a
    budget (``Public...``, ``RandomFourierFeatures``, ``SchemaEncoder``), a scikit-learn step that
    maps each row by itself (``Normalizer``, ``FunctionTransformer``), your own class whose tags say
    that it needs no fit, or a step that uses declared values only: ``OneHotEncoder`` and
    ``OrdinalEncoder`` with ``categories``, ``SimpleImputer`` with a constant and
    ``keep_empty_features=True``, ``SplineTransformer`` with given knots, ``PolynomialFeatures``.
    Names and types of columns are public. An estimator listed twice is counted twice. Proof:
    docs/proofs/private_scaling.md, section "Pipelines".

    A search over hyper-parameters fits many pipelines on the same rows; this statement covers only
    one.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer
    >>> from dpsvm_fast import OutputPerturbationSVC, PrivateCenter, PublicScaler, total_privacy
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(
    ...     PublicScaler((0, 10)),
    ...     Normalizer(),
    ...     PrivateCenter(1.0),
    ...     OutputPerturbationSVC(2.0, classes=[0, 1, 2]),
    ... ).fit(X, y)
    >>> total = total_privacy(model)
    >>> total.private, total.epsilon < 3.0
    (True, True)
    """
    leaves = _fitted_leaves(pipeline)
    steps = tuple(
        PipelineStep(
            name=leaf.name,
            estimator=type(leaf.estimator).__name__,
            statement=leaf.statement,
            learned=leaf.role == "learned",
        )
        for leaf in leaves
    )
    statements = [step.statement for step in steps if step.statement is not None]
    if not statements:
        raise InvalidParameterError("pipeline: no step is private")
    if delta is None:
        delta = add_up(*(statement.delta for statement in statements))
    whole = PipelineStatement(
        epsilon=0.0,
        delta=check_delta("delta", delta),
        adjacency=statements[0].adjacency,
        steps=steps,
        functions=tuple(str(leaf) for leaf in leaves if leaf.maps_by_function),
        library_version=_core.build_info()["version"],
    )
    leaks = [step.title for step in steps if step.learned]
    if leaks:
        warnings.warn(
            f"steps learned from the rows without privacy: {', '.join(leaks)}; the whole pipeline "
            f"is not private. {private_steps_instead(leaks)}",
            PrivacyLeakWarning,
            stacklevel=2,
        )
    epsilon = composed_epsilon(whole.events, whole.delta)
    if math.isinf(epsilon):
        raise InvalidParameterError(
            f"delta: got {whole.delta!r}, expected a larger one, at which epsilon is finite (above "
            "0 unless all noise is pure)"
        )
    return replace(whole, epsilon=epsilon)


class PrivatePipeline(Pipeline):
    """Scikit-learn Pipeline of private and public steps only.

    A step does not know that it is inside a Pipeline, so its statement covers that step only. This
    Pipeline checks all steps before it fits any, and has one statement for all of them.

    Parameters
    ----------
    steps : list of (name, estimator)
        As in scikit-learn's Pipeline.
    transform_input : list of str or None, default=None
        As in scikit-learn's Pipeline.
    memory : str, joblib.Memory or None, default=None
        As in scikit-learn's Pipeline. The cache stores rows: protect it like the rows.
    verbose : bool, default=False
        As in scikit-learn's Pipeline.

    Attributes
    ----------
    privacy_ : PipelineStatement
        Guarantee of all steps together, as returned by `total_privacy`.

    Notes
    -----
    Guarantees: those of `total_privacy`, which lists the private and the public steps.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import StandardScaler
    >>> from dpsvm_fast import OutputPerturbationSVC, PrivatePipeline, PublicScaler
    >>> X, y = load_iris(return_X_y=True)
    >>> svc = OutputPerturbationSVC(2.0, classes=[0, 1, 2])
    >>> PrivatePipeline([("scale", PublicScaler((0, 10))), ("svc", svc)]).fit(X, y).privacy_.private
    True
    >>> PrivatePipeline([("scale", StandardScaler()), ("svc", svc)]).fit(X, y)
    Traceback (most recent call last):
    ...
    dpsvm_fast.exceptions.InvalidParameterError: steps: expected no steps that learn from \
the rows without privacy, got 'scale' (StandardScaler). Scale by PublicScaler or \
PrivateStandardScaler
    """

    def fit(self, X: Any, y: Any = None, **params: Any) -> PrivatePipeline:
        """Check all steps, then fit them in order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Input of the first step.
        y : array-like of shape (n_samples,), optional
            Labels.
        **params : dict
            Passed to the steps, as in scikit-learn's Pipeline.

        Returns
        -------
        PrivatePipeline
            Itself.

        Raises
        ------
        InvalidParameterError
            A step learns from the rows without privacy, or no step is private. Nothing was spent.
        """
        self._check_steps(X)
        super().fit(X, y, **params)
        return self

    @available_if(Pipeline._can_fit_transform)  # type: ignore[untyped-decorator]
    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Check all steps, fit them and transform the rows.

        Parameters
        ----------
        X, y, **params
            As in ``fit``.

        Returns
        -------
        array-like of shape (n_samples, n_transformed_features)
        """
        self._check_steps(X)
        return super().fit_transform(X, y, **params)

    @property
    def privacy_(self) -> PipelineStatement:
        """Privacy statement of all steps together."""
        check_is_fitted(self)
        return total_privacy(self)

    def _check_steps(self, X: Any) -> None:
        """Refuse steps that would make the pipeline not private."""
        check_form("steps", X, [self])
        if learned := learned_steps(self, refit=True):
            raise InvalidParameterError(
                "steps: expected no steps that learn from the rows without privacy, got "
                f"{', '.join(map(str, learned))}. " + private_steps_instead(learned)
            )
        if not private_steps(self):
            raise InvalidParameterError("steps: expected at least one private step")


def _fitted_leaves(pipeline: Any) -> list[Step]:
    """Return all nested estimators that contain no others; refuse what is not fitted."""
    # A lone estimator has no name but its class.
    parts = [("" if hasattr(pipeline, "steps") else type(pipeline).__name__.lower(), pipeline)]
    if isinstance(pipeline, (list, tuple)):
        parts = [(str(i), part) for i, part in enumerate(pipeline)]
    elif not hasattr(pipeline, "fit"):
        raise InvalidTypeError.of("pipeline", pipeline, "a fitted Pipeline, estimator, or a list")
    leaves: list[Step] = []
    for name, part in parts:
        # Only a PrivatePipeline has checked its input.
        sparse = False if isinstance(part, PrivatePipeline) else None
        leaves += leaf_steps(part, name, sparse=sparse)
    for leaf in leaves:
        if not hasattr(leaf.estimator, "fit"):
            raise InvalidTypeError.of("pipeline", leaf.estimator, f"an estimator as {leaf.name!r}")
        if leaf.role != "public":
            check_is_fitted(leaf.estimator)
    return leaves


# Steps of a pipeline by what they learn from its rows, and its cost.
#
# A step is *private* when its fit is one of this library's releases, *public* when it maps every
# row by itself and by public numbers or categories, and has *learned* otherwise: what was fitted on
# private rows by anything else may repeat them.


# How scikit-learn writes a step that does nothing.
NOTHING = ("passthrough", "drop")

# scikit-learn's steps that make sparse rows of text, for which its release 1.6 has no tags.
HASHES = ("FeatureHasher", "HashingVectorizer")
# scikit-learn's steps that map each row by itself. Its tags do not tell: a
# GaussianProcessRegressor needs no fit to predict, but a fit keeps all rows; a PatchExtractor makes
# several rows of one.
STATELESS = (*HASHES, "AdditiveChi2Sampler", "Binarizer", "FunctionTransformer", "Normalizer")


@dataclass(frozen=True, eq=False)
class Step:
    """A step that is not itself a pipeline.

    Parameters
    ----------
    name : str
        Names of the enclosing steps and of this one, joined by two underscores.
    estimator : object
    threshold : float, default=0.0
        Share of nonzero entries, over all rows, below which sparse output stays sparse.
    trusted : bool, default=False
        Whether the step maps rows independently only if its input was dense, which is unknown after
        the fit.
    """

    name: str
    estimator: Any
    threshold: float = 0.0
    trusted: bool = False

    @property
    def statement(self) -> Statement | None:
        """Privacy statement of the step's fit."""
        found = getattr(self.estimator, "privacy_", None)
        return found if isinstance(found, Statement) and not found.inside else None

    @property
    def role(self) -> str:
        """One of "private", "public" and "learned"."""
        kind = type(self.estimator)
        if self.statement is not None:
            return "private"
        if self.trusted:
            return "public"
        # Sparse and dense rows are trained on in different ways.
        if self.threshold > 0.0 and _share_matters(self.estimator, self.threshold):
            return "learned"
        own = getattr(kind, "_learns_from_rows", True) is False
        if own or _declared(self.estimator) or not _requires_fit(self.estimator):
            return "public"
        # An estimator of this library has no statement before its fit has ended.
        if kind.__module__.startswith(OURS) and hasattr(self.estimator, "epsilon"):
            return "private"
        return "learned"

    @property
    def spends(self) -> bool:
        """Whether a fit of the step spends budget; the class may be a user's own."""
        return self.role == "private" or _states_cost(self.estimator)

    @property
    def maps_by_function(self) -> bool:
        """Return whether the step maps rows by a user's function or class, not inspected."""
        step = self.estimator
        if isinstance(step, FunctionTransformer):
            return step.func is not None
        if self.trusted:
            return True
        # Also a subclass of a public step may learn.
        return self.role == "public" and not type(step).__module__.startswith((OURS, "sklearn."))

    def __str__(self) -> str:
        return f"{self.name!r} ({type(self.estimator).__name__})"


def leaf_steps(
    estimator: Any, name: str, *, sparse: bool | None = False, refit: bool = False
) -> Iterator[Step]:
    """Yield every nested estimator, in the order in which rows pass them.

    A ColumnTransformer that itself learns is included: which columns are numbers, or whether sparse
    rows become dense.

    Parameters
    ----------
    estimator : object
        A Pipeline, FeatureUnion or ColumnTransformer with anything inside, or one estimator.
    name : str
        Name of the outermost estimator; may be empty.
    sparse : bool or None, default=False
        Whether the input rows are sparse; None if unknown.
    refit : bool, default=False
        Whether a fit follows, so that attributes of an earlier fit are ignored.
    """
    if estimator is None or (isinstance(estimator, str) and estimator in NOTHING):
        return
    inside = _nested_estimators(estimator, refit=refit)
    if inside is None:
        yield Step(name, estimator)
        return
    threshold = _threshold(estimator)
    came_sparse = sparse or (not refit and _was_given_sparse(estimator))
    looks = _is_column_transformer(estimator) and any(map(_chooses_by_rows, estimator.transformers))
    if looks or (threshold > 0.0 and came_sparse):
        yield Step(name, estimator)
    elif threshold > 0.0 and sparse is None and not hasattr(estimator, "feature_names_in_"):
        yield Step(name, estimator, trusted=True)
    for part, step in inside:
        own = f"{name}__{part}" if name else str(part)
        for leaf in leaf_steps(step, own, sparse=sparse, refit=refit):
            least = min(leaf.threshold or threshold, threshold)
            yield replace(leaf, threshold=least) if threshold > 0.0 else leaf
        if isinstance(estimator, Pipeline) and _gives_sparse(step):
            sparse = True


def _was_given_sparse(estimator: Any) -> bool:
    """Return whether a fitted ColumnTransformer gives sparse rows not made by its steps."""
    inside = _nested_estimators(estimator, refit=False) or []
    made = any(_gives_sparse(step) for _, step in inside)
    return bool(getattr(estimator, "sparse_output_", False)) and not made


def _threshold(estimator: Any) -> float:
    """Return the density above which a ColumnTransformer gives dense rows; 0 if always."""
    return float(estimator.sparse_threshold) if _is_column_transformer(estimator) else 0.0


def check_form(name: str, X: Any, estimators: Iterable[Any]) -> None:
    """Refuse sparse rows for a ColumnTransformer that makes them dense if they have few zeros.

    Parameters
    ----------
    name : str
        Name of the user's parameter that holds the estimators.
    X : object
        Rows; only their type is used.
    estimators : iterable
        Estimators, or Pipelines of them.

    Raises
    ------
    InvalidParameterError
        The rows are sparse, and one of the estimators contains such a ColumnTransformer.
    """
    if not has_sparse(X):
        return
    leaves = (leaf for one in estimators for leaf in leaf_steps(one, "", sparse=True, refit=True))
    if any(_threshold(leaf.estimator) > 0.0 for leaf in leaves):
        raise InvalidParameterError(f"{name}: in a ColumnTransformer of sparse rows, {DENSE_HINT}")


def _gives_sparse(estimator: Any) -> bool:
    """Return whether an estimator may turn dense rows into sparse ones."""
    inside = _nested_estimators(estimator, refit=True)
    if inside is None:
        hashes = any(_scikit_name(kind) in HASHES for kind in type(estimator).__mro__)
        return bool(getattr(estimator, "sparse_output", hashes))
    dense = _is_column_transformer(estimator) and not _threshold(estimator)
    return not dense and any(_gives_sparse(step) for _, step in inside)


def _share_matters(step: Any, threshold: float) -> bool:
    """Return whether a step of a ColumnTransformer gives sparse rows of unknown density."""
    if threshold == 1.0 and _scikit_name(type(step)) == "OneHotEncoder" and step.drop is None:
        # One category of several in every row: most are 0, whatever the rows are.
        return not any(len(column) > 1 for column in step.categories)
    return _gives_sparse(step)


def _scikit_name(kind: type) -> str:
    """Return the name of a scikit-learn class without importing it; empty for other classes."""
    return kind.__name__ if kind.__module__.startswith("sklearn.") else ""


def _is_column_transformer(estimator: Any) -> bool:
    """Return whether the estimator is a ColumnTransformer."""
    return "ColumnTransformer" in map(_scikit_name, type(estimator).__mro__)


def _chooses_by_rows(part: tuple[str, Any, Any]) -> bool:
    """Return whether a function of the rows chooses columns by more than names and types."""
    return callable(part[2]) and _scikit_name(type(part[2])) != "make_column_selector"


def _nested_estimators(estimator: Any, *, refit: bool) -> list[tuple[str, Any]] | None:
    """Return nested names and estimators, fitted ones unless a fit follows; None for a leaf."""
    if isinstance(estimator, Pipeline):
        return list(estimator.steps)
    if isinstance(estimator, FeatureUnion):
        return list(estimator.transformer_list)
    if _is_column_transformer(estimator):
        parts = None if refit else getattr(estimator, "transformers_", None)
        if parts is None:
            parts = [*estimator.transformers, ("remainder", estimator.remainder, None)]
        return [(name, step) for name, step, _ in parts]
    return None


def learned_steps(estimator: Any, name: str = "", *, refit: bool = False) -> list[Step]:
    """Return the nested steps that learn from rows without privacy."""
    return [leaf for leaf in leaf_steps(estimator, name, refit=refit) if leaf.role == "learned"]


def _declared(estimator: Any) -> bool:
    """Return whether the step is of scikit-learn and its fit learns nothing from the rows.

    Such fits use the number, names and types of columns and the parameters. They read values only
    to refuse invalid rows.
    """
    kind = _scikit_name(type(estimator))
    if kind in ("OneHotEncoder", "OrdinalEncoder"):
        frequent = estimator.min_frequency is None and estimator.max_categories is None
        return frequent and not isinstance(estimator.categories, str) and not _may_warn(estimator)
    if kind == "SimpleImputer":
        # Columns without any value would be left out, or columns with gaps marked.
        kept = estimator.keep_empty_features is True and not estimator.add_indicator
        return kept and isinstance(estimator.strategy, str) and estimator.strategy == "constant"
    return kind == "PolynomialFeatures" or (
        kind == "SplineTransformer" and not isinstance(estimator.knots, str)
    )


def _may_warn(encoder: Any) -> bool:
    """Return whether an encoder warns about undeclared categories, which names the column."""
    unknown, dropped = encoder.handle_unknown, getattr(encoder, "drop", None) is not None
    return unknown == "warn" or (dropped and unknown in ("ignore", "infrequent_if_exist"))


def _requires_fit(estimator: Any) -> bool:
    """Return whether a class learns in fit: known for scikit-learn, else by its tags, else True."""
    if known := _scikit_name(type(estimator)):
        return known not in STATELESS
    try:
        return bool(get_tags(estimator).requires_fit)
    except (AttributeError, TypeError, ValueError):
        return True


# Charge of a fit, known before it, for any estimator here and for Pipelines of them. A budget
# does not depend on the number of columns: what a wider sum costs in rounding is paid by its noise.
# So a Pipeline is planned as a whole, though only its fit knows how many columns each step hands
# on. The last bits of a noise scale may depend on that number; events planned here are larger by
# more than that: relatively, far above what rounding does to the parameter of a Gaussian mechanism,
# and far below what a ledger forgives.
MARGIN = 2.0**-42


def private_steps(estimator: Any) -> list[Any]:
    """Return the nested estimators that will spend budget, in the order of their fits."""
    return [leaf.estimator for leaf in leaf_steps(estimator, "") if leaf.spends]


def _states_cost(step: Any) -> bool:
    """Return whether a step states the cost of its fit; the class may be a user's own."""
    return hasattr(step, "plan") and hasattr(step, "checked")


def planned_events(estimator: Any, facts: Facts) -> tuple[PrivacyEvent, ...]:
    """Return the events of one fit of an estimator or of a Pipeline.

    Parameters
    ----------
    estimator : object
        Estimator with the parameters of the fit; no data are read and nothing is spent.
    facts : Facts
        Public facts about the rows, without the number of features.

    Returns
    -------
    tuple of PrivacyEvent
        Events in the order of the fits. Each is at least as large as the one that will be spent, by
        at most a relative 2**-42.

    Raises
    ------
    InvalidParameterError, TypeError
        A parameter is outside its range.
    """
    events: list[PrivacyEvent] = []
    for step in private_steps(estimator):
        if not _states_cost(step):
            accepted = "an estimator of this library that fits once, or a DeclaredTrainer"
            raise InvalidTypeError.of("estimator", step, accepted)
        step = step.checked()
        own = facts if step.adjacency == "replace_one" else replace(facts, n_samples=None)
        if getattr(step, "classes", None) is not None:
            own = replace(own, n_classes=step.classes.size)
        events += map(_with_less_noise, step.plan(_owner_facts(step, own)).events)
    return tuple(events)


def takes(step: Any) -> tuple[str, ...]:
    """Return which of "groups" and "sample_weight" a fit accepts."""
    return tuple(getattr(step, "_takes", ()))


def _owner_facts(step: Any, facts: Facts) -> Facts:
    """Return the facts about persons and weights for a step; some steps get no weights."""
    if facts.unit == "person" and "groups" not in takes(step):
        raise InvalidParameterError(
            f"groups: {type(step).__name__} with these parameters protects rows only"
        )
    facts = replace(facts, weighted=facts.weighted and "sample_weight" in takes(step))
    return step.owned(facts) if hasattr(step, "owned") else facts


def _with_less_noise(event: PrivacyEvent) -> PrivacyEvent:
    """Return the event with slightly less noise, if rounding affects the noise."""
    less = {
        name: mul_down(getattr(event, name), 1.0 - MARGIN)
        for name in ("sigma", "noise_multiplier")
        if hasattr(event, name)
    }
    return cast(PrivacyEvent, replace(cast(Any, event), **less))
