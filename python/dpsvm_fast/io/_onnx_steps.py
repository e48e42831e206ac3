"""Fitted objects as operators: the same arithmetic on released and public numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from dpsvm_fast import preprocessing as ours
from dpsvm_fast.estimators._base import PrivateLinearClassifier
from dpsvm_fast.estimators._bounds import checked_bounds, public_map
from dpsvm_fast.estimators._ellipsoid_classifier import EllipsoidClassifier
from dpsvm_fast.estimators._private_pipeline import PrivatePipeline
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.io._onnx_graph import Graph
from dpsvm_fast.mechanisms._row_maps import SAFE_NORM, SHORTEST_ROW, PublicMap
from dpsvm_fast.mechanisms.fourier import FourierFeatures
from dpsvm_fast.mechanisms.pca import JUST_BELOW_ONE
from dpsvm_fast.model_selection import PrivateGridSearch

__all__ = ["score_rows", "transform_rows"]

# Scores over temperatures are cut here: beyond, probabilities are 0 or 1.
LARGEST_LOGIT = {"float64": 1e300, "float32": 1e30}


def transform_rows(graph: Graph, step: Any, rows: str) -> str:
    """Rows under a fitted transformer.

    Raises
    ------
    InvalidParameterError
        What it does cannot be written as operators.
    """
    if step is None or isinstance(step, str):
        return rows
    if isinstance(step, Pipeline):
        for _, inner in step.steps:
            rows = transform_rows(graph, inner, rows)
        return rows
    if isinstance(step, PrivateGridSearch):
        return transform_rows(graph, step.best_estimator_, rows)
    for kind, write in TRANSFORMERS.items():
        if type(step) is kind:
            return write(graph, step, rows)
    raise _not_expressible(step)


def score_rows(graph: Graph, model: Any, rows: str) -> tuple[str, str, Any]:
    """Scores, the index of the class, and the classifier itself.

    Scores have shape (n, n_classes), or (n, 1) for two classes.

    Raises
    ------
    InvalidParameterError
        What it does cannot be written as operators.
    """
    if isinstance(model, PrivateGridSearch):
        return score_rows(graph, model.best_estimator_, rows)
    if isinstance(model, Pipeline):
        for _, step in model.steps[:-1]:
            rows = transform_rows(graph, step, rows)
        return score_rows(graph, model.steps[-1][1], rows)
    if isinstance(model, EllipsoidClassifier):
        return (*_ellipsoid_scores(graph, model, rows), model)
    if isinstance(model, PrivatePipeline):
        scores = _mapped_scores(graph, model, rows)
    elif isinstance(model, PrivateLinearClassifier):
        scores = _affine(graph, rows, model.coef_.T, model.intercept_)
    else:
        raise _not_expressible(model)
    if model.coef_.shape[0] > 1:
        return scores, graph.op("ArgMax", scores, axis=1, keepdims=0), model
    positive = graph.op("Greater", scores, graph.constant(0.0))
    whole = graph.op("Cast", positive, to=graph.onnx.TensorProto.INT64)
    return scores, graph.column(whole), model


def probabilities(graph: Graph, model: Any, scores: str) -> str:
    """Probabilities of the classes of a loss that is a likelihood, shape (n, n_classes)."""
    loss = model._used_loss()
    largest = LARGEST_LOGIT[graph.dtype.name]
    logits = graph.op("Div", scores, graph.constant(loss.temperature))
    logits = graph.op("Clip", logits, graph.constant(-largest), graph.constant(largest))
    if loss.n_scores == 1:
        other = graph.op("Sigmoid", graph.op("Neg", logits))
        return graph.op("Concat", other, graph.op("Sigmoid", logits), axis=1)
    if not loss.joint:
        logits = _log_sigmoid(graph, logits)
    return graph.op("Softmax", logits, axis=1)


def _log_sigmoid(graph: Graph, x: str) -> str:
    """min(x, 0) - log(1 + exp(-|x|))."""
    below = graph.op("Exp", graph.op("Neg", graph.op("Abs", x)))
    tail = graph.op("Log", graph.op("Add", below, graph.constant(1.0)))
    return graph.op("Sub", graph.op("Min", x, graph.constant(0.0)), tail)


def _affine(graph: Graph, rows: str, matrix: Any, offset: Any) -> str:
    """Rows times a matrix plus a row."""
    product = graph.op("MatMul", rows, graph.constant(matrix))
    return graph.op("Add", product, graph.constant(offset))


def _public(graph: Graph, public: PublicMap, rows: str) -> str:
    """Rows under the map by public numbers."""
    rows = _entries(graph, public, rows)
    return graph.unit(rows) if public.unit else graph.within(rows, public.data_norm)


def _entries(graph: Graph, public: PublicMap, rows: str) -> str:
    """Entries by themselves."""
    if public.offset is not None:
        rows = graph.op("Sub", rows, graph.constant(public.offset))
    if public.scale is not None:
        rows = graph.op("Mul", rows, graph.constant(public.scale))
    if np.isfinite(public.low):
        rows = graph.op("Clip", rows, graph.constant(public.low), graph.constant(public.high))
    return rows


def _released(graph: Graph, model: Any, rows: str) -> str:
    """Rows under the released maps, before they are scaled."""
    if model.centre_ is not None:
        rows = graph.op("Sub", rows, graph.constant(model.centre_))
    if model.whitening_ is None:
        return rows
    return graph.op("MatMul", rows, graph.constant(model.whitening_.T))


def _lengths(graph: Graph, model: Any, moved: str) -> str | None:
    """What moved rows are divided by; None for nothing."""
    if model.centre_ is None and model.whitening_ is None:
        return None
    norms = graph.norm(moved)
    if model.whitening_ is None:
        return graph.op("Max", norms, graph.constant(SHORTEST_ROW))
    safe = graph.op("Greater", norms, graph.constant(SAFE_NORM))
    return graph.op("Where", safe, norms, graph.constant(1.0))


def _mapped_scores(graph: Graph, model: Any, rows: str) -> str:
    """Scores of the private pipelines, linear or with random features."""
    data_norm = getattr(model, "data_norm_", None)
    public = (
        public_map(model.bounds_, sparse_rows=False)
        if data_norm is None
        else PublicMap(unit=False, data_norm=data_norm)
    )
    rows = _public(graph, public, rows)
    moved = _released(graph, model, rows)
    lengths = _lengths(graph, model, moved)
    features = getattr(model, "features_", None)
    if features is not None:
        mapped = moved if lengths is None else graph.op("Div", moved, lengths)
        return _affine(graph, _fourier(graph, features, mapped), model.coef_.T, model.intercept_)
    if model.centre_ is not None:
        # Weights have the whitening in them, so that only the centre is taken away.
        rows = graph.op("Sub", rows, graph.constant(model.centre_))
    products = graph.op("MatMul", rows, graph.constant(model.coef_.T))
    products = products if lengths is None else graph.op("Div", products, lengths)
    return graph.op("Add", products, graph.constant(model.intercept_))


def _fourier(graph: Graph, features: FourierFeatures, rows: str) -> str:
    """Random features of norm 1; a structured map is written out as a matrix."""
    drawn = features.map()
    angles = graph.op("MatMul", rows, graph.constant(drawn.weights().T))
    cosines, sines = _cosines(graph, angles), graph.op("Sin", angles)
    if features.centre == "none":
        both = graph.op("Concat", cosines, sines, axis=1)
        return graph.op("Mul", both, graph.constant(features.n_components**-0.5))
    cosines = graph.op("Sub", cosines, graph.constant(drawn.constants()))
    return graph.unit(graph.op("Concat", cosines, sines, axis=1))


def _cosines(graph: Graph, angles: str) -> str:
    """1 - 2 sin(x / 2)^2: older runtimes have no cosine in double precision."""
    half = graph.op("Sin", graph.op("Mul", angles, graph.constant(0.5)))
    twice = graph.op("Mul", graph.op("Mul", half, half), graph.constant(2.0))
    return graph.op("Sub", graph.constant(1.0), twice)


def _ellipsoid_scores(graph: Graph, model: Any, rows: str) -> tuple[str, str]:
    """Scores and the class of the smallest quadratic form."""
    n_classes, n_each, side = model.ellipsoids_.shape[:3]
    bound = graph.constant(model.data_norm_)
    rows = graph.op("Mul", graph.within(rows, model.data_norm_), bound)
    # A column of ones, of as many rows as there are.
    first = graph.op(
        "Slice", rows, *(graph.stored(np.array([i], dtype=np.int64)) for i in (0, 1, 1))
    )
    ones = graph.op("Add", graph.op("Mul", first, graph.constant(0.0)), graph.constant(1.0))
    lifted = graph.op("Concat", rows, ones, axis=1)
    flat = model.ellipsoids_.reshape(-1, side, side)
    products = graph.op("MatMul", lifted, graph.constant(np.hstack(list(flat))))
    shape = graph.stored(np.array([0, len(flat), side], dtype=np.int64))
    middle = graph.stored(np.array([1], dtype=np.int64))
    forms = graph.op(
        "Mul", graph.op("Reshape", products, shape), graph.op("Unsqueeze", lifted, middle)
    )
    last = graph.stored(np.array([2], dtype=np.int64))
    values = graph.op("ReduceSum", forms, last, keepdims=0)
    values = graph.op("Max", values, graph.constant(0.0))
    shape = graph.stored(np.array([0, n_classes, n_each], dtype=np.int64))
    values = graph.op("ReduceMin", graph.op("Reshape", values, shape), axes=[2], keepdims=0)
    index = graph.op("ArgMin", values, axis=1, keepdims=0)
    scores = graph.op("Neg", values)
    if n_classes == 2:
        sides = graph.constant([[-1.0], [1.0]])
        scores = graph.op("MatMul", scores, sides)
    return scores, index


def _scaled(graph: Graph, step: Any, rows: str) -> str:
    """Of ``PublicScaler``."""
    sides = (np.atleast_1d(side) for side in checked_bounds(step.bounds))
    low, high = np.broadcast_arrays(*sides)
    return _entries(graph, PublicMap.from_bounds(low, high), rows)


def _normalized(graph: Graph, step: Any, rows: str) -> str:
    """Of scikit-learn's ``Normalizer``."""
    if step.norm == "l2":
        return graph.unit(rows)
    sizes = graph.op("Abs", rows)
    if step.norm == "l1":
        return graph.op("Div", rows, graph.or_one(graph.row_sum(sizes)))
    return graph.op("Div", rows, graph.or_one(graph.op("ReduceMax", sizes, axes=[1], keepdims=1)))


def _clipped(graph: Graph, step: Any, rows: str) -> str:
    """Rows scaled down to the bound of the fit."""
    within = graph.within(rows, step.data_norm_)
    return graph.op("Mul", within, graph.constant(step.data_norm_))


def _centred(graph: Graph, step: Any, rows: str) -> str:
    """Of ``PrivateCenter``."""
    return graph.op("Sub", _clipped(graph, step, rows), graph.constant(step.mean_))


def _whitened(graph: Graph, step: Any, rows: str) -> str:
    """Of ``PrivateWhitener``."""
    return graph.op("MatMul", _clipped(graph, step, rows), graph.constant(step.whitening_))


def _projected(graph: Graph, step: Any, rows: str) -> str:
    """Of ``PrivatePCA``."""
    if step.centre_.any():
        rows = graph.op("Sub", rows, graph.constant(step.centre_))
    rows = graph.within(rows, step.data_norm_)
    matrix = (step.components_ * step.scales_[:, None]).T
    rows = graph.op("MatMul", rows, graph.constant(matrix))
    over = graph.op("Div", graph.norm(rows), graph.constant(JUST_BELOW_ONE))
    over = graph.op("Max", over, graph.constant(1.0))
    return graph.op("Mul", graph.op("Div", rows, over), graph.constant(step.data_norm_))


def _standardised(graph: Graph, step: Any, rows: str) -> str:
    """Of ``PrivateStandardScaler``."""
    low, high = (graph.constant(side) for side in step.bounds_)
    rows = graph.op(
        "Sub", graph.op("Min", graph.op("Max", rows, low), high), graph.constant(step.mean_)
    )
    return rows if step.scale_ is None else graph.op("Div", rows, graph.constant(step.scale_))


def _randomised(graph: Graph, step: Any, rows: str) -> str:
    """Of ``RandomFourierFeatures``."""
    return _fourier(graph, step._features, rows)


TRANSFORMERS: dict[Any, Callable[[Graph, Any, str], str]] = {
    ours.PublicScaler: _scaled,
    ours.PrivateCenter: _centred,
    ours.PrivateWhitener: _whitened,
    ours.PrivatePCA: _projected,
    ours.PrivateStandardScaler: _standardised,
    ours.RandomFourierFeatures: _randomised,
    Normalizer: _normalized,
}


def _not_expressible(step: Any) -> InvalidParameterError:
    """Says what can be."""
    known = ", ".join(kind.__name__ for kind in TRANSFORMERS)
    return InvalidParameterError(
        f"model: {type(step).__name__} cannot be written in ONNX; expected a classifier of this "
        f"library, {known}, or a Pipeline or search of them"
    )
