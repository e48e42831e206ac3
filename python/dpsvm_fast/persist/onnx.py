"""Fitted models as ONNX graphs, for runtimes without Python."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
)
from sklearn.utils.validation import check_is_fitted

from dpsvm_fast import _core
from dpsvm_fast import preprocessing as ours
from dpsvm_fast.data.encoder import SchemaEncoder, known_schema
from dpsvm_fast.data.schema import Column
from dpsvm_fast.estimators.base import PrivateLinearClassifier
from dpsvm_fast.estimators.gaussian_margin import EllipsoidClassifier
from dpsvm_fast.estimators.inputs import FEATURE_FACTS, broadcast_bounds, checked_bounds
from dpsvm_fast.estimators.linear import PipelineClassifier
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError
from dpsvm_fast.files import write_bytes
from dpsvm_fast.mechanisms.moments import JUST_BELOW_ONE
from dpsvm_fast.mechanisms.rows import (
    SAFE_NORM,
    SHORTEST_ROW,
    FourierFeatures,
    PublicMap,
    SplineMap,
)
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.pipelines import total_privacy
from dpsvm_fast.validation import check_option, check_path, optional_module

# A graph of ONNX operators that is written from its input on.


# Old enough for every runtime in use: the operators and the file format are from 2020.
OPSET, ML = 13, "ai.onnx.ml"

IR_VERSION = 7
# Bytes of all constants. A file of this kind cannot have more than 2 GiB.
MAX_BYTES = 1 << 30


# Names in a graph that are not inputs.
MADE_UP = re.compile(
    r"[A-Z][A-Za-z]*_[0-9]+|constant_[0-9]+|label|scores|probabilities|transformed"
)


class Graph:
    """Builder of a graph: nodes, constants and outputs, with generated names.

    Parameters
    ----------
    dtype : {"float64", "float32"}
        Type of the rows and of everything computed from them.
    n_features : int
        Number of columns of the input ``X``.

    Raises
    ------
    ImportError
        onnx is not installed.
    """

    def __init__(self, dtype: str, n_features: int) -> None:
        self.onnx = optional_module("onnx", "to_onnx", "onnx")
        self.dtype = np.dtype(dtype)
        self.kind = self.onnx.helper.np_dtype_to_tensor_dtype(self.dtype)
        self.n_features = n_features
        self.inputs: dict[str, Any] = {}
        self.operators = [("", OPSET)]
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.outputs: list[Any] = []
        self.n_bytes = 0
        self.input("X", self.kind, n_features)

    def input(self, name: str, kind: int, n_columns: int) -> str:
        """Declare an input: rows, or one column of a table."""
        if name in self.inputs or MADE_UP.fullmatch(name):
            raise InvalidParameterError(
                f"model: the column name {name!r} is taken in the graph; rename the column"
            )
        shape = ["n", n_columns]
        self.inputs[name] = self.onnx.helper.make_tensor_value_info(name, kind, shape)
        return name

    def constant(self, values: Any) -> str:
        """Return a float constant, or an integer one for a list."""
        if isinstance(values, list):
            return self.stored(np.array(values, dtype=np.int64))
        array: NDArray[Any] = np.ascontiguousarray(values, dtype=self.dtype)
        return self.stored(array.reshape(np.shape(values)))

    def stored(self, array: NDArray[Any]) -> str:
        """Return a constant with the array's type."""
        self.n_bytes += array.nbytes
        if self.n_bytes > MAX_BYTES:
            raise InvalidParameterError(
                f"model: got more than {MAX_BYTES} bytes of weights, as random features are "
                "written out as a matrix; use fewer of them, or load_model"
            )
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """Add an operator and return its output; numbers become float, lists integer constants."""
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        name = f"{kind}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(kind, names, [name], name=name, **attributes)
        self.nodes.append(node)
        return name

    def output(self, name: str, value: str, kind: int, shape: list[Any]) -> None:
        """Declare a named output."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name], name=name))
        info = self.onnx.helper.make_tensor_value_info(name, kind, shape)
        self.outputs.append(info)

    def places(self, texts: str, known: dict[str, int]) -> str:
        """Map each text to its index in ``known``, others to -1."""
        if len(self.operators) == 1:
            self.operators.append((ML, 2))
        how = {"keys_strings": list(known), "values_int64s": list(known.values())}
        return self.op("LabelEncoder", texts, default_int64=-1, domain=ML, **how)

    def column(self, value: str) -> str:
        """Reshape values from (n, 1) to (n,)."""
        return self.op("Squeeze", value, [1])

    def with_last(self, rows: str, number: float) -> str:
        """Append the same entry to every row."""
        none = self.op("Mul", self.op("Gather", rows, [0], axis=1), 0.0)
        return self.op("Concat", rows, self.op("Add", none, number), axis=1)

    def row_sum(self, value: str) -> str:
        """Return sums along rows, shape (n, 1)."""
        return self.op("ReduceSum", value, [1], keepdims=1)

    def or_one(self, value: str) -> str:
        """Return the value where it is above 0, and 1 elsewhere."""
        positive = self.op("Greater", value, 0.0)
        return self.op("Where", positive, value, 1.0)

    def norms(self, rows: str) -> tuple[str, str, str]:
        """Return rows divided by their largest entry, that entry, and the norm of the quotient.

        Nothing overflows. For a zero row the last two are given as 1.
        """
        largest = self.op("ReduceMax", self.op("Abs", rows), axes=[1], keepdims=1)
        scaled = self.op("Div", rows, self.or_one(largest))
        return scaled, largest, self.or_one(self.norm(scaled))

    def norm(self, rows: str) -> str:
        """Return norms of rows, shape (n, 1)."""
        return self.op("Sqrt", self.row_sum(self.op("Mul", rows, rows)))

    def unit(self, rows: str) -> str:
        """Scale rows to norm 1; rows of zeros stay zero."""
        scaled, _, norm = self.norms(rows)
        return self.op("Div", scaled, norm)

    def within(self, rows: str, data_norm: float) -> str:
        """Clip rows to a norm and divide them by it."""
        scaled, largest, norm = self.norms(rows)
        inverse = self.op("Div", 1.0, norm)
        shrunk = self.op("Div", largest, data_norm)
        return self.op("Mul", scaled, self.op("Min", inverse, shrunk))

    def proto(self, properties: dict[str, str]) -> Any:
        """Return the checked model.

        Parameters
        ----------
        properties : dict of str
            Facts stored with the graph.
        """
        helper = self.onnx.helper
        graph = helper.make_graph(
            self.nodes,
            "dpsvm_fast",
            list(self.inputs.values()),
            self.outputs,
            initializer=self.constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*one) for one in self.operators],
            ir_version=IR_VERSION,
            producer_name="dpsvm_fast",
            producer_version=_core.build_info()["version"],
            domain="dpsvm_fast",
            model_version=1,
        )
        helper.set_model_props(model, properties)
        self.onnx.checker.check_model(model)
        return model


# Fitted objects as operators: the same arithmetic on released and public numbers.


# Increase of the total of each cell of an image, as a share of their mean.
COMMON_SHARE = 0.1
# Scores over temperatures are cut here: beyond, probabilities are 0 or 1.
LARGEST_LOGIT = {"float64": 1e300, "float32": 1e30}


def transform_rows(graph: Graph, step: Any, rows: str) -> str:
    """Apply a fitted transformer to rows.

    Raises
    ------
    InvalidParameterError
        The step cannot be expressed by ONNX operators.
    """
    if step is None or isinstance(step, str):
        return rows
    if isinstance(step, FunctionTransformer) and step.func is None:
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
    """Return scores, the class index, and the classifier.

    Scores have shape (n, n_classes), or (n, 1) for two classes.

    Raises
    ------
    InvalidParameterError
        The model cannot be expressed by ONNX operators.
    """
    if isinstance(model, PrivateGridSearch):
        return score_rows(graph, model.best_estimator_, rows)
    if isinstance(model, Pipeline):
        for _, step in model.steps[:-1]:
            rows = transform_rows(graph, step, rows)
        return score_rows(graph, model.steps[-1][1], rows)
    if isinstance(model, EllipsoidClassifier):
        return (*_ellipsoid_scores(graph, model, rows), model)
    if isinstance(model, PipelineClassifier):
        scores = _mapped_scores(graph, model, rows)
    elif isinstance(model, PrivateLinearClassifier):
        scores = _affine(graph, rows, model)
    else:
        raise _not_expressible(model)
    if model.coef_.shape[0] > 1:
        return scores, graph.op("ArgMax", scores, axis=1, keepdims=0), model
    positive = graph.op("Greater", scores, 0.0)
    whole = graph.op("Cast", positive, to=graph.onnx.TensorProto.INT64)
    return scores, graph.column(whole), model


def probabilities(graph: Graph, model: Any, scores: str) -> str:
    """Return class probabilities for a loss that is a likelihood, shape (n, n_classes)."""
    loss = model._used_loss()
    largest = LARGEST_LOGIT[graph.dtype.name]
    logits = graph.op("Div", scores, model.likelihood_scale())
    logits = graph.op("Clip", logits, -largest, largest)
    if loss.n_scores == 1:
        other = graph.op("Sigmoid", graph.op("Neg", logits))
        return graph.op("Concat", other, graph.op("Sigmoid", logits), axis=1)
    if not loss.joint:
        # log(sigmoid(x)) = min(x, 0) - log(1 + exp(-|x|)).
        below = graph.op("Exp", graph.op("Neg", graph.op("Abs", logits)))
        tail = graph.op("Log", graph.op("Add", below, 1.0))
        logits = graph.op("Sub", graph.op("Min", logits, 0.0), tail)
    return graph.op("Softmax", logits, axis=1)


def _affine(graph: Graph, rows: str, model: Any) -> str:
    """Multiply rows by the weights and add the intercepts."""
    return graph.op("Add", graph.op("MatMul", rows, model.coef_.T), model.intercept_)


def _entries(graph: Graph, public: PublicMap, rows: str) -> str:
    """Map the entries of rows one by one."""
    if public.splines is not None:
        rows = _hats(graph, public.splines, rows)
    if public.offset is not None:
        rows = graph.op("Sub", rows, public.offset)
    if public.scale is not None:
        rows = graph.op("Mul", rows, public.scale)
    if np.isfinite(public.low):
        rows = graph.op("Clip", rows, public.low, public.high)
    if public.floor is not None:
        rows = graph.op("Max", rows, public.floor)
    return rows


def _lengths(graph: Graph, model: Any, moved: str) -> str | None:
    """Return the divisor of centred rows, or None."""
    if model.centre_ is None and model.whitening_ is None:
        return None
    norms = graph.norm(moved)
    if model.whitening_ is None:
        return graph.op("Max", norms, SHORTEST_ROW)
    safe = graph.op("Greater", norms, SAFE_NORM)
    return graph.op("Where", safe, norms, 1.0)


def _mapped_scores(graph: Graph, model: Any, rows: str) -> str:
    """Return scores of the private pipelines, linear or with random features."""
    public = model.fitted_map(sparse_rows=False)
    rows = _entries(graph, public, rows)
    if public.constant > 0.0:
        rows = graph.with_last(rows, public.constant)
    rows = graph.unit(rows) if public.unit else graph.within(rows, public.data_norm)
    if model.centre_ is not None:
        rows = graph.op("Sub", rows, model.centre_)
    moved = rows if model.whitening_ is None else graph.op("MatMul", rows, model.whitening_.T)
    lengths = _lengths(graph, model, moved)
    features = getattr(model, "features_", None)
    if features is not None:
        mapped = moved if lengths is None else graph.op("Div", moved, lengths)
        return _affine(graph, _fourier(graph, features, mapped), model)
    # Weights have the whitening in them.
    products = graph.op("MatMul", rows, model.mapped_weights().T)
    products = products if lengths is None else graph.op("Div", products, lengths)
    return graph.op("Add", products, model.intercept_)


def _fourier(graph: Graph, features: FourierFeatures, rows: str) -> str:
    """Return random features of norm 1; a structured map is expanded to a matrix."""
    drawn = features.map()
    angles = graph.op("MatMul", rows, drawn.weights().T)
    # 1 - 2 sin(x / 2)^2: older runtimes have no cosine in double precision.
    half = graph.op("Sin", graph.op("Mul", angles, 0.5))
    twice = graph.op("Mul", graph.op("Mul", half, half), 2.0)
    cosines, sines = graph.op("Sub", 1.0, twice), graph.op("Sin", angles)
    if features.centre == "none":
        both = graph.op("Concat", cosines, sines, axis=1)
        return graph.op("Mul", both, features.n_components**-0.5)
    cosines = graph.op("Sub", cosines, drawn.constants())
    return graph.unit(graph.op("Concat", cosines, sines, axis=1))


def _ellipsoid_scores(graph: Graph, model: Any, rows: str) -> tuple[str, str]:
    """Return scores, and the class of the smallest quadratic form."""
    n_classes, n_each, side = model.ellipsoids_.shape[:3]
    rows = _clipped(graph, model, rows)
    lifted = graph.with_last(rows, 1.0)
    flat = model.ellipsoids_.reshape(-1, side, side)
    products = graph.op("MatMul", lifted, np.hstack(list(flat)))
    products = graph.op("Reshape", products, [0, len(flat), side])
    forms = graph.op("Mul", products, graph.op("Unsqueeze", lifted, [1]))
    values = graph.op("Max", graph.op("ReduceSum", forms, [2], keepdims=0), 0.0)
    values = graph.op("Reshape", values, [0, n_classes, n_each])
    values = graph.op("ReduceMin", values, axes=[2], keepdims=0)
    index = graph.op("ArgMin", values, axis=1, keepdims=0)
    scores = graph.op("Neg", values)
    if n_classes == 2:
        scores = graph.op("MatMul", scores, np.array([[-1.0], [1.0]]))
    return scores, index


def _scaled(graph: Graph, step: Any, rows: str) -> str:
    """Apply ``PublicScaler``."""
    facts = (vars(step).get(name) for name in FEATURE_FACTS)
    bounds = broadcast_bounds(checked_bounds("bounds", step.bounds), *facts) or ()
    low, high = np.broadcast_arrays(*map(np.atleast_1d, bounds))
    return _entries(graph, PublicMap.from_bounds(low, high), rows)


def _hats(graph: Graph, splines: SplineMap, rows: str) -> str:
    """Apply hat functions: the smaller of a rising and a falling line, clipped to [0, 1].

    The first hat of a column has no rising line and the last no falling one: slope 0, height 1.
    """
    columns, rising, falling = [], [], []
    for column, (knots, linear) in enumerate(zip(splines.knots, splines.linear, strict=True)):
        slopes = 1.0 / np.diff(knots)
        up = np.column_stack([knots[:-1], slopes, np.zeros(slopes.size)])
        down = np.column_stack([knots[1:], slopes, np.zeros(slopes.size)])
        flat = [[0.0, 0.0, 1.0]]
        lines = np.vstack([flat, up]), np.vstack([down, flat])
        kept = slice(1 if linear else 0, None)
        columns += [column] * lines[0][kept].shape[0]
        rising.append(lines[0][kept])
        falling.append(lines[1][kept])
    low, high = (np.array([knots[end] for knots in splines.knots]) for end in (0, -1))
    rows = graph.op("Min", graph.op("Max", rows, low), high)
    x = graph.op("Gather", rows, columns, axis=1)
    start, slope, height = np.vstack(rising).T
    above = graph.op("Add", graph.op("Mul", graph.op("Sub", x, start), slope), height)
    end, slope, height = np.vstack(falling).T
    below = graph.op("Add", graph.op("Mul", graph.op("Sub", end, x), slope), height)
    return graph.op("Max", graph.op("Min", above, below), 0.0)


def _spline_step(graph: Graph, step: Any, rows: str) -> str:
    """Apply ``PublicSplines``."""
    n_features = getattr(step, "n_features_in_", graph.n_features)
    return _hats(graph, step.functions(n_features), rows)


def _edges(graph: Graph, step: Any, rows: str) -> str:
    """Apply ``PublicImageFeatures``."""
    known = getattr(step, "n_features_in_", graph.n_features)
    first, *more = step.grids(known)
    largest = graph.or_one(graph.op("ReduceMax", graph.op("Abs", rows), axes=[1], keepdims=1))
    planes = graph.op("Reshape", graph.op("Div", rows, largest), [0, *first.shape])
    planes = graph.op("Transpose", planes, perm=[0, 3, 1, 2])
    found = _flat_cells(graph, first, _cells_of_edges(graph, first, planes))
    if not more:
        return found
    inner, second = more
    # Channels of the image of edges: the orientations of each channel.
    edges = _flat_cells(graph, inner, _cells_of_edges(graph, inner, planes))
    (height, width, n_channels), channels = second.shape, first.shape[2]
    edges = graph.op("Reshape", edges, [0, channels, height, width, first.n_orientations])
    edges = graph.op("Transpose", edges, perm=[0, 1, 4, 2, 3])
    edges = graph.op("Reshape", edges, [0, n_channels, height, width])
    behind = _flat_cells(graph, second, _cells_of_edges(graph, second, edges))
    found = graph.op("Mul", found, math.sqrt(1.0 - ours.SECOND_SHARE))
    behind = graph.op("Mul", behind, math.sqrt(ours.SECOND_SHARE))
    return graph.op("Concat", found, behind, axis=1)


def _cells_of_edges(graph: Graph, grid: Any, planes: str) -> str:
    """Sum planes, whose last two axes are height and width, over each cell and direction."""
    (height, width, _), cells, n_orientations = grid
    dx, dy = (_differences(graph, planes, axis, n) for axis, n in ((3, width), (2, height)))
    size = graph.op("Sqrt", graph.op("Add", graph.op("Mul", dx, dx), graph.op("Mul", dy, dy)))
    dx, dy = (graph.op("Div", d, graph.or_one(size)) for d in (dx, dy))
    left, right = graph.constant(_nearness(height, cells[0])), _nearness(width, cells[1]).T
    cells_of = []
    for angle in 2.0 * np.pi * np.arange(n_orientations) / n_orientations:
        along = graph.op("Mul", dx, np.cos(angle)), graph.op("Mul", dy, np.sin(angle))
        share = graph.op("Max", graph.op("Add", *along), 0.0)
        for _ in range(3):
            share = graph.op("Mul", share, share)
        cell = graph.op("MatMul", graph.op("MatMul", left, graph.op("Mul", size, share)), right)
        cells_of.append(graph.op("Unsqueeze", cell, [4]))
    return graph.op("Concat", *cells_of, axis=4)


def _flat_cells(graph: Graph, grid: Any, sums: str) -> str:
    """Return square roots of the normalised sums of each cell."""
    total = graph.op("ReduceSum", sums, [1, 2, 3, 4], keepdims=1)
    sums = graph.op("Div", sums, graph.or_one(total))
    own = graph.op("ReduceSum", sums, [1, 4], keepdims=1)
    level = graph.op("Add", own, COMMON_SHARE / math.prod(grid.cells))
    sums = graph.op("Reshape", graph.op("Div", sums, level), [0, grid.n_features])
    return graph.op("Sqrt", graph.op("Div", sums, graph.or_one(graph.row_sum(sums))))


def _differences(graph: Graph, planes: str, axis: int, side: int) -> str:
    """Subtract the neighbours of each pixel along an axis; border pixels are repeated."""
    places = np.arange(side)
    after, before = (
        graph.op("Gather", planes, graph.stored(np.clip(places + step, 0, side - 1)), axis=axis)
        for step in (1, -1)
    )
    return graph.op("Sub", after, before)


def _nearness(side: int, cells: int) -> NDArray[np.float64]:
    """Return interpolation weights of pixels by nearness to cell centres, shape (cells, side)."""
    places = (np.arange(side) + 0.5) * cells / side - 0.5
    return np.asarray(np.maximum(0.0, 1.0 - np.abs(places - np.arange(cells)[:, None])))


def _normalized(graph: Graph, step: Any, rows: str) -> str:
    """Apply scikit-learn's ``Normalizer``."""
    if step.norm == "l2":
        return graph.unit(rows)
    sizes = graph.op("Abs", rows)
    if step.norm == "l1":
        return graph.op("Div", rows, graph.or_one(graph.row_sum(sizes)))
    return graph.op("Div", rows, graph.or_one(graph.op("ReduceMax", sizes, axes=[1], keepdims=1)))


def _clipped(graph: Graph, step: Any, rows: str) -> str:
    """Clip rows to the norm bound of the fit."""
    return graph.op("Mul", graph.within(rows, step.data_norm_), step.data_norm_)


def _projected(graph: Graph, step: Any, rows: str) -> str:
    """Apply ``PrivatePCA``."""
    if step.centre_.any():
        rows = graph.op("Sub", rows, step.centre_)
    rows = graph.within(rows, step.data_norm_)
    matrix = (step.components_ * step.scales_[:, None]).T
    rows = graph.op("MatMul", rows, matrix)
    over = graph.op("Max", graph.op("Div", graph.norm(rows), JUST_BELOW_ONE), 1.0)
    return graph.op("Mul", graph.op("Div", rows, over), step.data_norm_)


def _standardised(graph: Graph, step: Any, rows: str) -> str:
    """Apply ``PrivateStandardScaler``."""
    low, high = step.bounds_
    rows = graph.op("Sub", graph.op("Min", graph.op("Max", rows, low), high), step.mean_)
    return rows if step.scale_ is None else graph.op("Div", rows, step.scale_)


def _encoded(graph: Graph, step: Any, rows: str) -> str:
    """Apply ``SchemaEncoder``: one input per column, of numbers or text."""
    if rows != "X":
        raise InvalidParameterError(
            "model: got a SchemaEncoder after another step, expected it first"
        )
    del graph.inputs["X"]
    schema, types, parts = known_schema(step), graph.onnx.TensorProto, []
    for column in schema.features:
        if column.text is not None:
            raise InvalidParameterError(
                f"model: column {column.name!r} is text, whose hashed words ONNX cannot express; "
                "drop it from the schema, or load the model in Python"
            )
        if column.categories is not None:
            parts.append(_categories(graph, column, schema.text.missing_values))
            continue
        # In single precision first, as in Python.
        value = graph.op("Cast", graph.input(column.name, graph.kind, 1), to=types.FLOAT)
        value = graph.op("Cast", value, to=graph.kind)
        if column.fill is not None:
            value = graph.op("Where", graph.op("IsNaN", value), column.fill, value)
        parts.append(value)
    return graph.op("Concat", *parts, axis=1)


def _joined(graph: Graph, step: Any, rows: str) -> str:
    """Apply a ``ColumnTransformer``; if it comes first, each named column is an input."""
    names = list(getattr(step, "feature_names_in_", ()))
    first = rows == "X" and bool(names)
    if first:
        del graph.inputs["X"]
    indices, parts = step._transformer_to_input_indices, []
    inputs: dict[str, int] = {}
    for name, inner, _ in step.transformers_:
        # No columns, or dropped.
        if not len(indices[name]) or inner == "drop":
            continue
        codes = _encoder_in(inner)
        values = []
        for place, column in enumerate(indices[name]):
            if not first:
                values.append(graph.op("Gather", rows, [int(column)], axis=1))
                continue
            label = str(names[column])
            text = codes is not None and _is_text(codes.categories_[place])
            kind = graph.onnx.TensorProto.STRING if text else graph.kind
            if inputs.setdefault(label, kind) != kind:
                raise InvalidParameterError(
                    f"model: column {label!r} is used both as numbers and as text"
                )
            values.append(label if label in graph.inputs else graph.input(label, kind, 1))
        parts.append(_through(graph, inner, values))
    return graph.op("Concat", *parts, axis=1)


def _encoder_in(step: Any) -> Any:
    """Return the encoder of text cells, possibly after an imputer; None for numbers."""
    if isinstance(step, Pipeline):
        for _, inner in step.steps:
            if not isinstance(inner, (SimpleImputer, str)):
                return _encoder_in(inner)
    return step if isinstance(step, (OneHotEncoder, OrdinalEncoder)) else None


def _is_text(categories: Any) -> bool:
    """Return whether any category is not a number."""
    return not all(isinstance(one, (bool, int, float)) for one in categories.tolist())


def _through(graph: Graph, step: Any, columns: list[str]) -> str:
    """Apply one part of a ``ColumnTransformer`` to columns of shape (n, 1)."""
    codes = _encoder_in(step)
    if codes is None or not any(map(_is_text, codes.categories_)):
        return transform_rows(graph, step, graph.op("Concat", *columns, axis=1))
    steps = [one for _, one in step.steps] if isinstance(step, Pipeline) else [step]
    at = steps.index(codes)
    filled = [one.fill_value for one in steps[:at] if isinstance(one, SimpleImputer)]
    fill = "missing_value" if filled and filled[0] is None else (filled or [None])[0]
    rows = _indicated(graph, codes, columns, fill)
    for one in steps[at + 1 :]:
        rows = transform_rows(graph, one, rows)
    return rows


def _indicated(graph: Graph, step: Any, columns: list[str], fill: Any = None) -> str:
    """Apply an encoder of declared categories, after a look-up for text."""
    parts, places = [], getattr(step, "drop_idx_", None)
    for number, (value, known) in enumerate(zip(columns, step.categories_, strict=True)):
        categories = known.tolist()
        if any(one is None or one != one for one in categories):
            raise InvalidParameterError("model: ONNX cannot express a missing value as a category")
        if _is_text(known):
            words = {str(one): place for place, one in enumerate(categories)}
            words |= {"": words.get(str(fill), -1)} if "" not in words else {}
            value = graph.places(value, words)
            own = graph.stored(np.arange(len(categories))[None, :])
        else:
            own = graph.constant(np.array([categories], dtype=np.float64))
        found = graph.op("Cast", graph.op("Equal", value, own), to=graph.kind)
        kept = np.arange(len(categories))
        if isinstance(step, OrdinalEncoder):
            other = 0.0 if step.unknown_value is None else float(step.unknown_value)
            code = graph.op("MatMul", found, (kept[:, None] - other).astype(np.float64))
            found = graph.op("Add", code, other)
        elif places is not None and places[number] is not None:
            found = graph.op("Gather", found, np.delete(kept, places[number]).tolist(), axis=1)
        parts.append(found)
    return graph.op("Concat", *parts, axis=1)


def _coded(graph: Graph, step: Any, rows: str) -> str:
    """Apply an encoder of numbers."""
    if any(map(_is_text, step.categories_)):
        raise InvalidParameterError(
            "model: an encoder of text must take columns by name, in a ColumnTransformer as the "
            "first step"
        )
    columns = [graph.op("Gather", rows, [j], axis=1) for j in range(step.n_features_in_)]
    return _indicated(graph, step, columns)


def _filled(graph: Graph, step: Any, rows: str) -> str:
    """Apply ``SimpleImputer`` with a constant number."""
    fill, gap = 0.0 if step.fill_value is None else float(step.fill_value), step.missing_values
    empty = graph.op("IsNaN", rows) if gap != gap else graph.op("Equal", rows, float(gap))
    return graph.op("Where", empty, fill, rows)


def _powers(graph: Graph, step: Any, rows: str) -> str:
    """Apply ``PolynomialFeatures`` by repeated products of columns."""
    ones = graph.op("Add", graph.op("Mul", graph.op("Gather", rows, [0], axis=1), 0.0), 1.0)
    extended = graph.op("Concat", rows, ones, axis=1)
    d, most = step.n_features_in_, int(step.powers_.sum(axis=1).max())
    factors = [[*np.repeat(np.arange(d), own), *[d] * (most - own.sum())] for own in step.powers_]
    product = None
    for chosen in np.array(factors, dtype=int).reshape(len(factors), most).T:
        column = graph.op("Gather", extended, [int(j) for j in chosen], axis=1)
        product = column if product is None else graph.op("Mul", product, column)
    return product or graph.op("Gather", extended, [d] * len(factors), axis=1)


def _splines(graph: Graph, step: Any, rows: str) -> str:
    """Apply ``SplineTransformer`` by the Cox-de Boor recursion on declared knots."""
    if step.extrapolation not in ("constant", "error") or step.degree < 1:
        raise InvalidParameterError(
            "model: SplineTransformer needs extrapolation='constant' and a degree above 0 in ONNX"
        )
    parts, k = [], step.degree
    for number, spline in enumerate(step.bsplines_):
        t = np.asarray(spline.t)
        first, last = k, len(t) - k - 1
        x = graph.op("Gather", rows, [number], axis=1)
        x = graph.op("Clip", x, float(t[first]), float(t[last]))
        # Bounds of the intervals between knots; the last one holds its right end.
        below, above = t[:-1][None, :].copy(), t[1:][None, :].copy()
        above[0, last - 1 :], below[0, last:] = np.inf, np.inf
        inside = graph.op("Not", graph.op("Less", x, below))
        inside = graph.op("And", inside, graph.op("Less", x, above))
        values = graph.op("Cast", inside, to=graph.kind)
        for degree in range(1, k + 1):
            n = len(t) - degree - 1
            rise = graph.op("Div", graph.op("Sub", x, t[None, :n]), (t[degree:-1] - t[:n])[None, :])
            fall = graph.op(
                "Div",
                graph.op("Sub", t[None, degree + 1 :], x),
                (t[degree + 1 :] - t[1 : n + 1])[None, :],
            )
            left = graph.op("Gather", values, list(range(n)), axis=1)
            right = graph.op("Gather", values, list(range(1, n + 1)), axis=1)
            values = graph.op("Add", graph.op("Mul", rise, left), graph.op("Mul", fall, right))
        width = len(t) - k - 1 - (not step.include_bias)
        parts.append(graph.op("Gather", values, list(range(width)), axis=1))
    return graph.op("Concat", *parts, axis=1)


def _categories(graph: Graph, column: Column, texts: Any) -> str:
    """Declare an input of categories; return an indicator for each, or their positions."""
    declared = [str(one) for one in column.categories or ()]
    missing = declared.index(str(column.missing)) if str(column.missing) in declared else -1
    places: Any = np.array([range(len(declared))])
    if all(isinstance(one, int) for one in column.categories or ()):
        value = graph.input(column.name, graph.kind, 1)
        if missing >= 0:
            value = graph.op("Where", graph.op("IsNaN", value), float(declared[missing]), value)
        same = graph.op("Equal", value, np.array([declared], dtype=np.float64))
    else:
        value = graph.input(column.name, graph.onnx.TensorProto.STRING, 1)
        keys = dict.fromkeys(texts, missing) | {name: place for place, name in enumerate(declared)}
        same = graph.op("Equal", graph.places(value, keys), graph.stored(places))
    found = graph.op("Cast", same, to=graph.kind)
    return graph.op("MatMul", found, places.T.astype(np.float64)) if column.ordered else found


TRANSFORMERS: dict[Any, Callable[[Graph, Any, str], str]] = {
    ours.PublicImageFeatures: _edges,
    ours.PublicScaler: _scaled,
    ours.PublicSplines: _spline_step,
    ours.PrivateCenter: lambda g, step, rows: g.op("Sub", _clipped(g, step, rows), step.mean_),
    ours.PrivateWhitener: lambda g, step, rows: g.op(
        "MatMul", _clipped(g, step, rows), step.whitening_
    ),
    ours.PrivatePCA: _projected,
    ours.PrivateStandardScaler: _standardised,
    ours.RandomFourierFeatures: lambda g, step, rows: _fourier(g, step._features, rows),
    SchemaEncoder: _encoded,
    ColumnTransformer: _joined,
    OneHotEncoder: _coded,
    OrdinalEncoder: _coded,
    SimpleImputer: _filled,
    PolynomialFeatures: _powers,
    SplineTransformer: _splines,
    Normalizer: _normalized,
}


def _not_expressible(step: Any) -> InvalidParameterError:
    """Return the error that lists what can be exported."""
    known = ", ".join(kind.__name__ for kind in TRANSFORMERS)
    return InvalidParameterError(
        f"model: {type(step).__name__} cannot be written in ONNX; expected a classifier of this "
        f"library, {known}, or a Pipeline or search of them"
    )


DTYPES = ("float64", "float32")


def to_onnx(
    model: Any, path: str | os.PathLike[str] | None = None, *, dtype: str = "float64"
) -> Any:
    """Export a model as an ONNX graph from rows to scores and labels.

    Parameters
    ----------
    model : estimator
        Fitted classifier or transformer of this library, a ``PrivateGridSearch``, or a Pipeline of
        these and of ``Normalizer``.
    path : str, path or None, default=None
        File to write; None writes none.
    dtype : {"float64", "float32"}, default="float64"
        Type of the rows and of all arithmetic. With float32, scores have about six digits, and
        labels of rows near a decision boundary may differ.

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
        The model cannot be expressed by ONNX operators, or has too many numbers.
    NotFittedError
        The model is not fitted.
    ImportError
        onnx is not installed.

    Notes
    -----
    Guarantees: the graph is post-processing of the release and contains only released and public
    numbers. Scores agree with Python's up to the rounding of the runtime, not to the last bit.
    Random features are expanded to a matrix. Rows are not checked: a row with a missing value gets
    a label like any other.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.persist import to_onnx
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PrivateLinearSVC(2.0, bounds=(0, 10), classes=[0, 1, 2]).fit(X, y)
    >>> [output.name for output in to_onnx(model).graph.output]
    ['label', 'scores', 'probabilities']
    """
    check_option("dtype", dtype, DTYPES)
    target = None if path is None else Path(check_path("path", path))
    if not hasattr(model, "fit"):
        raise InvalidTypeError.of("model", model, "a fitted estimator")
    check_is_fitted(model)
    n_features = getattr(model, "n_features_in_", None)
    if n_features is None:
        raise InvalidParameterError("model: not fitted; call fit before to_onnx")
    graph = Graph(dtype, int(n_features))
    if hasattr(model, "predict"):
        _write_classifier(graph, model)
    else:
        rows = transform_rows(graph, model, "X")
        graph.output("transformed", rows, graph.kind, ["n", None])
    proto = graph.proto(_properties(model))
    if target is not None:
        write_bytes(target, proto.SerializeToString())
    return proto


def _write_classifier(graph: Graph, model: Any) -> None:
    """Declare labels, scores and, if available, probabilities as outputs."""
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
    """Return the label set as a constant, and its type."""
    kinds = {"U": (object, "STRING"), "b": (np.bool_, "BOOL"), "f": (np.float64, "DOUBLE")}
    dtype, name = kinds.get(classes.dtype.kind, (np.int64, "INT64"))
    if name == "INT64" and int(classes.max()) > np.iinfo(np.int64).max:
        raise InvalidParameterError(
            "model: got labels beyond 64-bit integers, expected smaller ones"
        )
    return graph.stored(classes.astype(dtype)), getattr(graph.onnx.TensorProto, name)


def _properties(model: Any) -> dict[str, str]:
    """Return the facts stored with the graph."""
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
