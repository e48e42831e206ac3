"""Data: tables in files, their schemas, and rows larger than memory.

:class:`Partitions` describes rows that do not fit into memory; :func:`fit` trains an estimator on
them, in this process or on a Dask cluster, and releases what ``estimator.fit`` on all rows would.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpsvm_fast.exceptions import ClusterError, PartitionError, SchemaError, TableError

if TYPE_CHECKING:
    from dpsvm_fast.data.encoder import SchemaEncoder as SchemaEncoder
    from dpsvm_fast.data.partitioned import fit as fit
    from dpsvm_fast.data.partitions import Partitions as Partitions
    from dpsvm_fast.data.schema import TableSchema as TableSchema
    from dpsvm_fast.data.tables import Table as Table
    from dpsvm_fast.data.tables import open_table as open_table

# Imported at first use: reading a table does not wait for the estimators.
_HOMES = {
    "fit": "partitioned",
    "Partitions": "partitions",
    "SchemaEncoder": "encoder",
    "TableSchema": "schema",
    "Table": "tables",
    "open_table": "tables",
}

__all__ = [*_HOMES, "ClusterError", "PartitionError", "SchemaError", "TableError"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
