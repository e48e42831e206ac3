"""Fitted models as ONNX graphs, for runtimes without Python."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast._validation import check_option
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.io._model_files import write_bytes
from dpsvm_fast.io._onnx_graph import Graph
from dpsvm_fast.io._onnx_steps import probabilities, score_rows, transform_rows
from dpsvm_fast.pipelines import total_privacy

__all__ = ["to_onnx"]

DTYPES = ("float64", "float32")


def to_onnx(
    model: Any, path: str | os.PathLike[str] | None = None, *, dtype: str = "float64"
) -> Any:
    """Write the map from rows to scores and labels as an ONNX graph.

    Parameters
    ----------
    model : estimator
        A fitted classifier or transformer of this library, a ``PrivateGridSearch``, or a Pipeline
        of them and of ``Normalizer``.
    path : str, path or None, default=None
        Where to write the graph.
    dtype : {"float64", "float32"}, default="float64"
        Of the rows and of all arithmetic. With float32 scores have about six digits, and labels of
        rows between two classes may differ.

    Returns
    -------
    onnx.ModelProto
        Input ``X`` of shape (n, n_features). Outputs of a classifier: ``label`` of shape (n,),
        ``scores`` as ``decision_function`` returns them, and ``probabilities`` of shape (n,
        n_classes) where the model has ``predict_proba``; of a transformer: ``transformed``. The
        certificate is in ``metadata_props`` under ``dpsvm_fast.certificate``.

    Raises
    ------
    InvalidParameterError
        The model holds something that cannot be written as operators, or too many numbers.
    NotFittedError
        The model is not fitted.
    ImportError
        onnx is not installed.

    Notes
    -----
    Guarantees: post-processing of what the fit released; the graph holds released and public
    numbers only. Its roundings are those of the runtime, so that scores agree with Python's up to
    rounding and not to the last bit. Random features are written out as a matrix. Rows are not
    checked: a missing value gives a label like any other.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.io import to_onnx
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PrivateLinearSVC(2.0, bounds=(0, 10), classes=[0, 1, 2]).fit(X, y)
    >>> [output.name for output in to_onnx(model).graph.output]
    ['label', 'scores', 'probabilities']
    """
    check_option("dtype", dtype, DTYPES)
    check_is_fitted(model)
    graph = Graph(dtype, _n_features(model))
    if hasattr(model, "predict"):
        _write_classifier(graph, model)
    else:
        rows = transform_rows(graph, model, "X")
        graph.output("transformed", rows, graph.kind, ["n", None])
    proto = graph.proto(_properties(model))
    if path is not None:
        write_bytes(Path(path), proto.SerializeToString())
    return proto


def _n_features(model: Any) -> int:
    """Columns of a row."""
    n_features = getattr(model, "n_features_in_", None)
    if n_features is None:
        raise InvalidParameterError(
            "model: expected one that knows its number of features; call fit before to_onnx"
        )
    return int(n_features)


def _write_classifier(graph: Graph, model: Any) -> None:
    """Labels, scores, and probabilities where there are any."""
    scores, index, classifier = score_rows(graph, model, "X")
    classes = classifier.classes_
    labels, kind = _labels(graph, classes)
    graph.output("label", graph.op("Gather", labels, index, axis=0), kind, ["n"])
    two = len(classes) == 2
    shown = graph.column(scores) if two else scores
    graph.output("scores", shown, graph.kind, ["n"] if two else ["n", len(classes)])
    if hasattr(classifier, "predict_proba"):
        shares = probabilities(graph, classifier, scores)
        graph.output("probabilities", shares, graph.kind, ["n", len(classes)])


def _labels(graph: Graph, classes: Any) -> tuple[str, int]:
    """The label set as a constant, and its type."""
    types = graph.onnx.TensorProto
    if classes.dtype.kind == "U":
        return graph.stored(classes.astype(object)), types.STRING
    if classes.dtype.kind == "b":
        return graph.stored(classes.astype(np.bool_)), types.BOOL
    if classes.dtype.kind == "f":
        return graph.stored(classes.astype(np.float64)), types.DOUBLE
    if int(classes.max()) > np.iinfo(np.int64).max:
        raise InvalidParameterError(
            "model: got labels beyond 64-bit integers, expected smaller ones"
        )
    return graph.stored(classes.astype(np.int64)), types.INT64


def _properties(model: Any) -> dict[str, str]:
    """What people and tools read beside the graph."""
    found = {
        "dpsvm_fast.library_version": str(_core.build_info()["version"]),
        "dpsvm_fast.model": type(model).__name__,
    }
    statement = getattr(model, "privacy_", None)
    if statement is None and isinstance(model, Pipeline):
        private = any(hasattr(step, "privacy_") for _, step in model.steps)
        statement = total_privacy(model) if private else None
    if statement is not None:
        found["dpsvm_fast.certificate"] = statement.to_json(indent=None)
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        found["dpsvm_fast.feature_names"] = json.dumps([str(name) for name in names])
    return found
