"""A graph of ONNX operators that is written from its input on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast._optional import optional_module
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["Graph"]

# Old enough for every runtime in use: these operators and this file format are of 2020.
OPSET = 13
IR_VERSION = 7
# Bytes of all constants. A file of this kind cannot have more than 2 GiB.
MOST_BYTES = 1 << 30


class Graph:
    """Nodes, constants and outputs, with names made up as they come.

    Parameters
    ----------
    dtype : {"float64", "float32"}
        Of the rows and of everything that is computed from them.
    n_features : int
        Columns of the input ``X``.

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
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.outputs: list[Any] = []
        self.n_bytes = 0

    def constant(self, values: Any) -> str:
        """A float constant."""
        array: NDArray[Any] = np.ascontiguousarray(values, dtype=self.dtype)
        if np.shape(values) == ():
            array = array.reshape(())
        return self.stored(array)

    def stored(self, array: NDArray[Any]) -> str:
        """A constant of its own type."""
        self.n_bytes += array.nbytes
        if self.n_bytes > MOST_BYTES:
            raise InvalidParameterError(
                f"model: got more than {MOST_BYTES} bytes of weights, expected fewer: random "
                "features are written out as a matrix; fewer of them, or load_model, avoid it"
            )
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The output of one operator."""
        name = f"{kind}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes)
        self.nodes.append(node)
        return name

    def output(self, name: str, value: str, kind: int, shape: list[Any]) -> None:
        """Publish a value under a name."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name], name=name))
        info = self.onnx.helper.make_tensor_value_info(name, kind, shape)
        self.outputs.append(info)

    def column(self, value: str) -> str:
        """Values of shape (n, 1) as values of shape (n,)."""
        return self.op("Squeeze", value, self.stored(np.array([1], dtype=np.int64)))

    def row_sum(self, value: str) -> str:
        """Sums along rows, shape (n, 1)."""
        return self.op("ReduceSum", value, self.stored(np.array([1], dtype=np.int64)), keepdims=1)

    def or_one(self, value: str) -> str:
        """The value where it is above 0, and 1 elsewhere."""
        positive = self.op("Greater", value, self.constant(0.0))
        return self.op("Where", positive, value, self.constant(1.0))

    def norms(self, rows: str) -> tuple[str, str, str]:
        """Rows over their largest entry, that entry, and the norm of the quotient.

        Nothing overflows. For a row of zeros all three are zeros but the last two are given as 1.
        """
        largest = self.op("ReduceMax", self.op("Abs", rows), axes=[1], keepdims=1)
        scaled = self.op("Div", rows, self.or_one(largest))
        return scaled, largest, self.or_one(self.norm(scaled))

    def norm(self, rows: str) -> str:
        """Norms of rows, shape (n, 1)."""
        return self.op("Sqrt", self.row_sum(self.op("Mul", rows, rows)))

    def unit(self, rows: str) -> str:
        """Rows of norm 1; rows of zeros stay zero."""
        scaled, _, norm = self.norms(rows)
        return self.op("Div", scaled, norm)

    def within(self, rows: str, data_norm: float) -> str:
        """Rows scaled down to a norm where they are longer, over that norm."""
        scaled, largest, norm = self.norms(rows)
        inverse = self.op("Div", self.constant(1.0), norm)
        shrunk = self.op("Div", largest, self.constant(data_norm))
        return self.op("Mul", scaled, self.op("Min", inverse, shrunk))

    def proto(self, properties: dict[str, str]) -> Any:
        """The model, checked.

        Parameters
        ----------
        properties : dict of str
            Facts for people, beside the graph.
        """
        helper = self.onnx.helper
        rows = helper.make_tensor_value_info("X", self.kind, ["n", self.n_features])
        graph = helper.make_graph(
            self.nodes, "dpsvm_fast", [rows], self.outputs, initializer=self.constants
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="dpsvm_fast",
            producer_version=_core.build_info()["version"],
            domain="dpsvm_fast",
            model_version=1,
        )
        helper.set_model_props(model, properties)
        self.onnx.checker.check_model(model)
        return model
