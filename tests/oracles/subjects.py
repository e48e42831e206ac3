"""Every estimator and transformer of the library, as small as it can be, and what they share.

A test over `every_subject` asks one question of all of them. Variants are other recipes of the same
class, for questions about data that reach the mechanism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

import dpsvm_fast as dp
from dpsvm_fast import PrivacyLedger
from oracles.watching import fitted_names

CLASSES = {"classes": range(3)}
# With less, most of what follows from twelve rows is a public default.
RICH = {"epsilon": 50.0}
BOUNDS = {"bounds": (-3, 3)}
DIRECTIONS = {"bounds": "unit_norm"}
KERNEL = CLASSES | {"kernel": "rbf", "n_components": 20}


@dataclass(frozen=True)
class Subject:
    """One recipe of one class.

    Parameters
    ----------
    kind : type
    settings : dict
        What it is made with beside a ledger.
    classifier, private : bool
        Whether a fit takes labels; whether it spends.
    variant : bool
        Another recipe of a class that is there already.
    dense_only : bool
        Sparse rows are refused.
    max_features : int
        More are refused before anything is spent.
    slow : bool
        Takes long enough to be left to the nightly run.
    lacks : tuple of str
        Parameters of the class that this recipe has no use for, and refuses.
    """

    kind: Any
    settings: dict[str, Any] = field(default_factory=dict)
    classifier: bool = True
    private: bool = True
    variant: bool = False
    dense_only: bool = False
    max_features: int = 2**30
    slow: bool = False
    lacks: tuple[str, ...] = ()


def variant(kind: Any, *, slow: bool = False, **settings: Any) -> Subject:
    lacks = ("data_norm",) if kind is dp.PrivateKernelSVC and "normalize" not in settings else ()
    return Subject(kind, CLASSES | settings, variant=True, slow=slow, lacks=lacks)


SUBJECTS: dict[str, Subject] = {
    "output": Subject(dp.OutputPerturbationSVC, CLASSES),
    "psgd": Subject(
        dp.OutputPerturbationSVC,
        CLASSES | {"solver": "psgd", "loss": "softmax_margin", "adjacency": "replace_one"},
    ),
    "objective": Subject(dp.ObjectivePerturbationSVC, CLASSES),
    "gradient": Subject(dp.GradientPerturbationSVC, CLASSES | {"n_steps": 10}),
    "linear": Subject(dp.PrivateLinearSVC, CLASSES | DIRECTIONS),
    "kernel": Subject(dp.PrivateKernelSVC, KERNEL | DIRECTIONS, lacks=("data_norm",)),
    "ellipsoids": Subject(
        dp.PrivateGaussianMarginClassifier, CLASSES, dense_only=True, max_features=1000
    ),
    "centre": Subject(dp.PrivateCenter, {"dense_output": True} | RICH, classifier=False),
    "whitener": Subject(dp.PrivateWhitener, RICH, classifier=False, max_features=2**15),
    "pca": Subject(dp.PrivatePCA, RICH, classifier=False, max_features=2**15),
    "standard scaler": Subject(
        dp.PrivateStandardScaler, {"bounds": (-3, 3)} | RICH, classifier=False
    ),
    "public scaler": Subject(dp.PublicScaler, {"bounds": (-3, 3)}, classifier=False, private=False),
    "splines": Subject(
        dp.PublicSplines,
        {"bounds": (-3, 3), "knots": 3, "log": True, "sparse_output": False},
        classifier=False,
        private=False,
    ),
    "features": Subject(
        dp.RandomFourierFeatures, {"n_components": 7}, classifier=False, private=False
    ),
    # Other recipes.
    "output gamma": variant(dp.OutputPerturbationSVC, noise="gamma"),
    "objective gamma": variant(dp.ObjectivePerturbationSVC, slow=True, noise="gamma"),
    "gradient sgd": variant(dp.GradientPerturbationSVC, optimizer="sgd", n_steps=10),
    "gradient adam": variant(dp.GradientPerturbationSVC, optimizer="adam", n_steps=10),
    "linear whitened": Subject(
        dp.PrivateLinearSVC, CLASSES | {"whiten": True}, variant=True, max_features=2**15
    ),
    "linear output": variant(dp.PrivateLinearSVC, mechanism="output"),
    "linear objective": variant(dp.PrivateLinearSVC, slow=True, mechanism="objective"),
    "linear pure": variant(dp.PrivateLinearSVC, slow=True, delta=0.0),
    "kernel with norms": variant(dp.PrivateKernelSVC, **KERNEL | {"normalize": False}),
    "kernel additive": variant(dp.PrivateKernelSVC, **BOUNDS, kernel="additive", knots=3),
    "kernel output": variant(dp.PrivateKernelSVC, **KERNEL | {"mechanism": "output"}),
    "ellipsoids in the cone": Subject(
        dp.PrivateGaussianMarginClassifier,
        CLASSES | {"psd": "constraint", "n_ellipsoids": 2},
        variant=True,
        dense_only=True,
        max_features=1000,
        slow=True,
    ),
}

MAIN = [name for name, subject in SUBJECTS.items() if not subject.variant]
CLASSIFIERS = [name for name in MAIN if SUBJECTS[name].classifier]
TRANSFORMERS = [name for name in MAIN if not SUBJECTS[name].classifier]
PRIVATE = [name for name in MAIN if SUBJECTS[name].private]
every_subject = pytest.mark.parametrize("subject", MAIN)
every_recipe = pytest.mark.parametrize(
    "subject",
    [
        pytest.param(name, marks=pytest.mark.slow if subject.slow else ())
        for name, subject in SUBJECTS.items()
    ],
)
every_classifier = pytest.mark.parametrize("subject", CLASSIFIERS)
every_transformer = pytest.mark.parametrize("subject", TRANSFORMERS)
every_private = pytest.mark.parametrize("subject", PRIVATE)


@cache
def _parameters(subject: str) -> frozenset[str]:
    recipe = SUBJECTS[subject]
    return frozenset(recipe.kind._get_param_names()) - set(recipe.lacks)


def known(subject: str, settings: dict[str, Any]) -> bool:
    """Whether it has a use for all of these parameters."""
    return set(settings) <= _parameters(subject)


def made(subject: str, **settings: Any) -> Any:
    """An unfitted one, with a budget that nothing exhausts and on one thread."""
    recipe = SUBJECTS[subject]
    common: dict[str, Any] = dict(recipe.settings)
    if recipe.private:
        relation = settings.get("adjacency", common.get("adjacency", "add_remove"))
        if relation not in ("add_remove", "replace_one"):
            relation = "add_remove"
        common["ledger"] = PrivacyLedger(epsilon=1e4, delta=0.5, adjacency=relation, strict=False)
    if known(subject, {"n_threads": 1}):
        common["n_threads"] = 1
    return recipe.kind(**(common | settings))


def spent(estimator: Any) -> int:
    """Number of events that its ledger has recorded; 0 where there is none."""
    ledger = getattr(estimator, "ledger", None)
    return len(ledger.history) if isinstance(ledger, PrivacyLedger) else 0


def released(estimator: Any) -> dict[str, NDArray[np.float64]]:
    """All published floats and arrays of floats, by name."""
    names = [name for name in vars(estimator) if name.endswith("_") and name != "classes_"]
    values = {name: getattr(estimator, name) for name in names}
    arrays = {
        name: np.asarray(value)
        for name, value in values.items()
        if isinstance(value, (np.ndarray, float))
    }
    return {name: value for name, value in arrays.items() if value.dtype.kind == "f"}


def outputs(estimator: Any, rows: Any) -> dict[str, NDArray[Any]]:
    """What it says about rows."""
    if hasattr(estimator, "predict"):
        return {name: getattr(estimator, name)(rows) for name in ("decision_function", "predict")}
    found = {"transform": estimator.transform(rows)}
    if hasattr(estimator, "inverse_transform"):
        found["inverse_transform"] = estimator.inverse_transform(found["transform"])
    return {name: v.toarray() if sparse.issparse(v) else v for name, v in found.items()}


def chained_text(error: BaseException | None) -> str:
    """All that a traceback prints, chained exceptions included, source lines left out."""
    text, seen = "", []
    while error is not None and error not in seen:
        seen.append(error)
        text += f"{type(error).__name__}: {error}\n"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return text


# Arguments of methods, as errors name them.
DATA = ("X", "y", "X and y", "groups", "sample_weight", "periods")


def assert_refused(call: Callable[[], Any], estimator: Any, words: str) -> BaseException:
    """A typed error with these words that names the argument; nothing spent, nothing fitted."""
    before = spent(estimator)
    with pytest.raises((ValueError, TypeError, RuntimeError), match=words) as caught:
        call()
    assert spent(estimator) == before
    assert fitted_names(estimator) == []
    if isinstance(caught.value, (ValueError, TypeError)):
        named = getattr(caught.value, "parameter", "nothing").partition(".")[0]
        assert named in {*DATA, *estimator.get_params()}, repr(caught.value)
    return caught.value
