"""What the steps of a pipeline learn from its rows, and at what price.

A step is *private* when its fit is one of this library's releases, *public* when it maps every row
by itself and by public numbers or categories, and has *learned* otherwise: what was fitted on
private rows by anything else may repeat them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder
from sklearn.utils import get_tags

from dpsvm_fast.accounting import FederatedStatement, PrivacyStatement, SelectionStatement

__all__ = ["Step", "leaf_steps", "learned_steps"]

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
