"""Public facts of a table: its label, its classes, its columns and their bounds or categories."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.exceptions import SchemaError, TableError
from dpsvm_fast.io._columns import MAX_COLUMNS, Category, Column, quoted, shown
from dpsvm_fast.io._schema_file import read_record
from dpsvm_fast.io._schema_record import schema_values, target_is_feature
from dpsvm_fast.io._text_format import NO_NAMES, TextFormat, may_be_a_row, other_delimiter
from dpsvm_fast.io._toml_text import column_lines, toml_string

__all__ = ["OF_MODEL", "TableSchema"]

# The origin of a schema that was saved with a model.
OF_MODEL = "the model"

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class TableSchema:
    """What is public of a table. Nothing here is ever learned from rows.

    Made by :meth:`load` from a TOML or JSON file, or by :meth:`from_dict`. ``open_table`` returns
    it with every column named, as ``table.schema``: that is what goes with a model.

    Parameters
    ----------
    columns : tuple of Column
        In the order of the features.
    target : str, int or None
        Name of the column of labels, or its place in the file.
    classes : tuple of str or of int, or None
        Declared labels.
    all_other_columns : Column or None
        Holds for every column of the file that is not named.
    extra_columns : {"refuse", "ignore"}
        What becomes of columns that the schema says nothing of.
    declared_width : int or None
        ``n_features`` as declared; needed where a file does not name its columns.
    zero_based : bool
        Whether indices in LIBSVM files start at 0, not 1.
    text : TextFormat
        How CSV files are written.
    origin : str
        Where the schema comes from, for messages.
    """

    columns: tuple[Column, ...] = ()
    target: str | int | None = None
    classes: tuple[Category, ...] | None = None
    all_other_columns: Column | None = None
    extra_columns: str = "refuse"
    declared_width: int | None = None
    zero_based: bool = False
    text: TextFormat = field(default_factory=TextFormat)
    origin: str = field(default="the schema", compare=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TableSchema:
        """Read a schema from a file.

        Parameters
        ----------
        path : str or path
            TOML (``.toml``) or JSON (``.json``).

        Returns
        -------
        TableSchema

        Raises
        ------
        SchemaError
            The file is no schema; the message names the key, what came and what is accepted.
        OSError
            The file cannot be opened.
        """
        return cls.from_dict(read_record(path), origin=os.path.basename(os.fspath(path)))

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], *, origin: str = "the schema") -> TableSchema:
        """Build a schema from the plain values of its file.

        Parameters
        ----------
        record : mapping
            As in the file, or as of :meth:`to_dict`.
        origin : str, default="the schema"
            Where it comes from, for messages.

        Returns
        -------
        TableSchema

        Raises
        ------
        SchemaError
        """
        try:
            return cls(**schema_values(record), origin=origin)
        except SchemaError as error:
            raise SchemaError(f"{origin}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values from which :meth:`from_dict` builds the same schema."""
        record: dict[str, Any] = {}
        if self.target is not None:
            record["target"] = self.target
        if self.classes is not None:
            record["classes"] = list(self.classes)
        if self.declared_width is not None:
            record["n_features"] = self.declared_width
        if self.extra_columns != "refuse":
            record["extra_columns"] = self.extra_columns
        if self.zero_based:
            record["zero_based"] = True
        text = self.text.to_dict()
        if text:
            record["csv"] = text
        if self.columns:
            # A list: the order of the features must survive whoever sorts keys.
            record["columns"] = [{"name": one.name, **one.to_dict()} for one in self.columns]
        if self.all_other_columns is not None:
            record["all_other_columns"] = self.all_other_columns.to_dict()
        return record

    @staticmethod
    def template(
        path: str | os.PathLike[str], *, target: str | None = None, format: str | None = None
    ) -> str:
        """Return a schema file to be filled in, from the names of a file's columns.

        Parameters
        ----------
        path : str or path
            The table. Only its header is read, no row.
        target : str or None, default=None
            The column of the labels.
        format : str or None, default=None
            As of `open_table`.

        Returns
        -------
        str
            TOML. Loading it as it is fails, and says what is missing.
        """
        from dpsvm_fast.io._template import template

        return template(path, target=target, format=format)

    @property
    def is_positional(self) -> bool:
        """Whether features are told apart by their place only: x0, x1, ..."""
        return self.declared_width is not None and self.all_other_columns is not None

    @property
    def is_uniform(self) -> bool:
        """Whether nothing is said of any one of them."""
        return self.is_positional and not self.columns

    @cached_property
    def features(self) -> tuple[Column, ...]:
        """The columns that become features, in order."""
        if self.all_other_columns is None:
            found = tuple(column for column in self.columns if not column.ignore)
            if not found:
                raise SchemaError(f"{self.origin}: columns: expected one that is not ignored")
            return found
        if self.declared_width is None:
            raise SchemaError(
                f"{self.origin}: all_other_columns: the columns are known once a file is opened; "
                "use open_table(path, schema).schema, or declare n_features"
            )
        self._check_places()
        if self.declared_width > MAX_COLUMNS:
            raise SchemaError(
                f"{self.origin}: n_features: got {self.declared_width}, expected at most "
                f"{MAX_COLUMNS} where columns are named"
            )
        named = {column.name: column for column in self.columns}
        return tuple(
            named.get(name) or replace(self.all_other_columns, name=name)
            for name in (f"x{j}" for j in range(self.declared_width))
        )

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features; "column=category" for categories."""
        return tuple(name for column in self.features for name in column.feature_names)

    @cached_property
    def n_features(self) -> int:
        """Number of features."""
        if self.is_uniform:
            assert self.declared_width is not None
            return self.declared_width
        if self.is_positional:
            # Not by way of the features: a schema out of a file may declare billions.
            self._check_places()
            assert self.declared_width is not None
            return self.declared_width + sum(column.width - 1 for column in self.columns)
        return sum(column.width for column in self.features)

    @cached_property
    def bounds(self) -> Bounds:
        """Lowest and highest value of each feature: two float64 arrays of shape (n_features,)."""
        if self.is_uniform:
            assert self.all_other_columns is not None
            low, high = self.all_other_columns.feature_bounds
            return np.full(self.n_features, low), np.full(self.n_features, high)
        widths = [column.width for column in self.features]
        ends = np.array([column.feature_bounds for column in self.features])
        low, high = np.repeat(ends, widths, axis=0).T.copy()
        return low, high

    def of_names(self, names: Sequence[str], *, labelled: bool, file: str) -> TableSchema:
        """Return the schema of a file with these columns: all named, none left over.

        Parameters
        ----------
        names : sequence of str
            Of the columns, in the order of the file.
        labelled : bool
            Whether the target must be among them.
        file : str
            Its name in messages.

        Returns
        -------
        TableSchema
            Without ``all_other_columns``.

        Raises
        ------
        TableError
            The file lacks a column.
        SchemaError
            The file has columns of which the schema says nothing.
        """
        known = {column.name for column in self.columns}
        target = self._target_name(names, labelled=labelled, file=file)
        if labelled and target in known:
            raise SchemaError(target_is_feature(str(target), self.origin))
        found = set(names)
        absent = [c.name for c in self.columns if not c.ignore and c.name not in found]
        if absent:
            raise TableError(
                f"{file}: {_columns(absent)} {'is' if len(absent) == 1 else 'are'} missing, which "
                f"{self.origin} asks for; the file has {_found(names)}"
            )
        others = [name for name in names if name not in known and name != target]
        columns = self.columns
        if self.all_other_columns is not None:
            columns = self._with_others(others)
        elif others and self.extra_columns == "refuse":
            raise self._undescribed(others, file)
        named = replace(
            self,
            columns=columns,
            target=self.target if target is None else target,
            all_other_columns=None,
            declared_width=None,
        )
        if self.declared_width is not None and named.n_features != self.declared_width:
            raise TableError(
                f"{file}: got {named.n_features} features, expected {self.declared_width}, as "
                f"n_features in {self.origin} says"
            )
        return named

    def of_width(self, width: int | None, *, file: str) -> TableSchema:
        """Return the schema of a file without names of columns, of this width where it is known.

        Parameters
        ----------
        width : int or None
            Number of columns of features.
        file : str
            Its name in messages.

        Returns
        -------
        TableSchema
            That says how many features there are.

        Raises
        ------
        TableError
            The file is wider or narrower than declared.
        SchemaError
            The schema does not say how wide it is, or leaves columns out.
        """
        found = self
        if width == 0:
            raise TableError(f"{file}: it has no columns of features")
        if self.all_other_columns is not None and self.declared_width is None:
            if width is None:
                raise SchemaError(
                    f"{self.origin}: n_features: missing; {file} does not say how many features "
                    "there are, write for example n_features = 100"
                )
            found = replace(self, declared_width=width)
        if found.is_positional and any(column.ignore for column in self.columns):
            raise SchemaError(
                f"{self.origin}: columns: got ignore = true, expected it only for a file that "
                f"names its columns, which {file} does not"
            )
        expected = found.declared_width if found.is_positional else len(found.features)
        if width is not None and width != expected:
            raise TableError(
                f"{file}: got {width} columns of features, expected {expected}, as {self.origin} "
                "says"
            )
        return found

    def _check_places(self) -> None:
        """Refuse names that are no places in a file that does not name its columns."""
        width = self.declared_width or 0
        for column in self.columns:
            place = column.name[1:]
            known = column.name[:1] == "x" and place.isascii() and place.isdecimal()
            if not (known and len(place) < 12 and place == str(int(place)) and int(place) < width):
                raise SchemaError(
                    f"{self.origin}: columns: got {quoted(column.name)}, expected names "
                    f"from 'x0' to 'x{width - 1}' for a file that does not name its columns"
                )

    def _with_others(self, names: Sequence[str]) -> tuple[Column, ...]:
        """All columns, those of these names with what is said of all others."""
        assert self.all_other_columns is not None
        if self.is_positional and len(names) + len(self.columns) == self.declared_width:
            known = {column.name for column in self.columns}
            if {f"x{j}" for j in range(self.declared_width)} == {*names, *known}:
                # Names that say the place, in whatever order the file has them.
                return self.features
        return (*self.columns, *(replace(self.all_other_columns, name=name) for name in names))

    def _target_name(self, names: Sequence[str], *, labelled: bool, file: str) -> str | None:
        """The column of labels; None where there is none and none is asked for."""
        target = self.target
        if target is None and labelled:
            raise SchemaError(
                f"{self.origin}: target: missing; write the name of the column of labels, for "
                f'example target = "label"; {file} has {_found(names)}'
            )
        if isinstance(target, int):
            if -len(names) <= target < len(names):
                return names[target]
            if labelled:
                raise TableError(
                    f"{file}: target: got {shown(target)}, but it has {len(names)} columns"
                )
        elif labelled and target not in names:
            raise TableError(
                f"{file}: target: it has no column {quoted(str(target))}; it has {_found(names)}"
            )
        return target if isinstance(target, str) else None

    def _undescribed(self, names: Sequence[str], file: str) -> ValueError:
        """Say which lines are missing, or that a model cannot take these columns."""
        one = len(names) == 1
        if may_be_a_row(names):
            return TableError(f"{file}: {self.origin} does not describe it; it has {NO_NAMES}")
        if self.origin == OF_MODEL:
            return TableError(
                f"{file}: {_columns(names)} {'is' if one else 'are'} none of those that the model "
                f"was trained with: remove {'it' if one else 'them'} from the file, or give a "
                'schema with extra_columns = "ignore"'
            )
        return SchemaError(
            f"{file}: {self.origin} says nothing of {_columns(names)}: add "
            f"{'this line' if one else 'these lines'} with public bounds (or "
            'categories = [...], or ignore = true), or write extra_columns = "ignore":\n'
            f"[columns]\n{column_lines(names)}"
        )


def _found(names: Sequence[str]) -> str:
    """Names that a file has for its columns, in a sentence."""
    if mark := other_delimiter(names):
        return (
            f"one column, in whose name is {mark!r}: where that separates cells, write delimiter = "
            f"{toml_string(mark)} in the [csv] table of the schema"
        )
    return NO_NAMES if may_be_a_row(names) else _columns(names)


def _columns(names: Sequence[str]) -> str:
    """Names of columns in a sentence."""
    shown = ", ".join(map(quoted, names[:50]))
    more = ", ..." if len(names) > 50 else ""
    return f"column{'s' if len(names) != 1 else ''} {shown}{more}" if names else "no columns"
