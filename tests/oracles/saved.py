"""Fitted models of every kind that can be saved, and hands that change their files."""

from __future__ import annotations

import hashlib
import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import dpsvm_fast as dp
from dpsvm_fast.federated import FederatedSpec, simulate
from dpsvm_fast.model_selection import PrivateGridSearch
from oracles.subjects import SUBJECTS, made

__all__ = ["COMPOSED", "QUICK", "ROWS", "answers", "fitted", "rewritten", "sealed"]

RNG = np.random.default_rng(3)
ROWS: NDArray[np.float64] = RNG.normal(size=(300, 4))
LABELS: NDArray[np.int64] = np.arange(300) % 3

METHODS = ("predict", "decision_function", "predict_proba", "transform", "inverse_transform")
COMPOSED = ("pipeline", "pipeline of names", "search", "random search", "federated", "components")
# One of every class whose certificate is recomputed at once.
QUICK = ("output", "linear", "kernel", "ellipsoids", "pca", "features", "pipeline", "search")


@cache
def fitted(kind: str) -> Any:
    """A fitted model; the same object for every test, which none may change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.NotPrivateWarning)
        if kind in SUBJECTS:
            return made(kind).fit(ROWS, LABELS)
        return {
            "pipeline": _pipeline,
            "pipeline of names": _named_pipeline,
            "search": _search,
            "random search": _random_search,
            "federated": _federated,
            "components": _components,
        }[kind]()


def _pipeline() -> Any:
    return make_pipeline(
        dp.PublicScaler((-3, 3)),
        Normalizer(),
        dp.PrivatePCA(2, 3.0),
        dp.OutputPerturbationSVC(2.0, classes=range(3)),
    ).fit(ROWS, LABELS)


def _named_pipeline() -> Any:
    import pandas as pd

    frame = pd.DataFrame(ROWS, columns=["age", "höhe", "a\nb", "x"])
    names = np.array(["no", "perhaps", "yes"])[LABELS]
    steps = (dp.PublicScaler((-3, 3)).set_output(transform="pandas"), "passthrough")
    svc = dp.OutputPerturbationSVC(2.0, classes=["no", "perhaps", "yes"], random_state=4)
    return make_pipeline(*steps, svc).fit(frame, names)


def _search() -> Any:
    candidate = dp.OutputPerturbationSVC(classes=range(3))
    return PrivateGridSearch(candidate, {"C": [0.1, "auto"]}, 8.0).fit(ROWS, LABELS)


def _random_search() -> Any:
    svc = dp.OutputPerturbationSVC(classes=[0, 1, 2], noise="gamma")
    grid = {"outputperturbationsvc__C": (0.1, np.float64(0.2), "auto")}
    weights = {"class_weight": {0: 1.0, 1: 2.0, 2: 1.0}, "scoring": "balanced_errors"}
    return PrivateGridSearch(
        make_pipeline(Normalizer(), svc), grid, 8.0, 0.0, strategy="random_stopping", **weights
    ).fit(ROWS, LABELS)


def _parties() -> list[Any]:
    return [(ROWS[part], LABELS[part] % 2) for part in np.split(np.arange(80), 4)]


def _federated() -> Any:
    shared: dict[str, Any] = {"n_users": 4, "n_features": 4, "classes": [0, 1], "delta": 1e-6}
    spec = FederatedSpec.dp_helmet(**shared, epsilon=1.0, max_records=20, n_epochs=2)
    return simulate(spec, _parties())


def _components() -> Any:
    shared: dict[str, Any] = {"n_users": 4, "n_features": 4, "classes": [0, 1], "delta": 1e-6}
    spec = FederatedSpec.fed_dpdr(
        **shared, epsilon=1.0, max_records=20, n_components=2, local="output"
    )
    return simulate(spec, _parties())


def answers(model: Any, rows: NDArray[Any] = ROWS) -> dict[str, NDArray[Any]]:
    """Everything that it says about rows."""
    found = {name: getattr(model, name) for name in METHODS if hasattr(model, name)}
    inverse = found.pop("inverse_transform", None)
    said = {name: np.asarray(method(rows)) for name, method in found.items()}
    if inverse is not None and hasattr(model, "transform"):
        said["inverse_transform"] = np.asarray(inverse(model.transform(rows)))
    return said


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with a digest of its own: what somebody does who changes it on purpose.

    Written out here, after docs/model_format.md.
    """
    names = ("format", "version", "library_version", "model", "schema")
    contents = {name: document[name] for name in names if name in document}
    text = json.dumps(contents, sort_keys=True, separators=(",", ":"))
    return document | {"sha256": hashlib.sha256(text.encode()).hexdigest()}


def rewritten(path: Path, document: Any) -> Path:
    """Writes a document that was changed on purpose."""
    path.write_text(json.dumps(sealed(document)))
    return path
