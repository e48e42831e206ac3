"""Files: tables to train on and to predict, and the schemas that say what is public of them."""

from dpsvm_fast.exceptions import ModelFormatError, SchemaError, TableError
from dpsvm_fast.io.schema import TableSchema
from dpsvm_fast.io.tables import Table, open_table

__all__ = [
    "ModelFormatError",
    "SchemaError",
    "Table",
    "TableError",
    "TableSchema",
    "open_table",
]
