"""Changes of a pipeline's columns: a migration decides them, and state, sink and changelog then apply them.

Stored in the facts of the step that decides it. Pure: it converts rows from the old columns to the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pydantic import Field

from ebbtide.facts import Facts


class SchemaChange(Facts):
    """Columns that are added, renamed, widened and dropped; all other columns stay as they are."""

    added: dict[str, Any] = Field(
        default_factory=dict, description="New column to its value in existing rows, as JSON; null: no value."
    )
    renamed: dict[str, str] = Field(default_factory=dict, description="New name to the old one.")
    widened: list[str] = Field(default_factory=list, description="Columns, by their new names, with a wider type.")
    dropped: list[str] = Field(default_factory=list, description="Columns that are removed, with their values.")

    @property
    def rewrites(self) -> bool:
        """Return whether data files must be written again. A new column without values needs no rewrite: it reads as null."""
        has_values = any(value is not None for value in self.added.values())
        return bool(self.renamed or self.widened or self.dropped or has_values)

    def fills(
        self, columns: pa.Schema, convert: Callable[[list[Any], pa.DataType], tuple[pa.Array, Any]]
    ) -> dict[str, pa.Scalar]:
        """Return the values of added columns in existing rows.

        Args:
            columns: All columns, with their types.
            convert: Converts JSON values to a type, as that of the formats.
        """
        fills = {}
        for name, value in self.added.items():
            if value is not None:
                array, _ = convert([value], columns.field(name).type)
                fills[name] = array[0]
        return fills

    def rows(
        self,
        rows: pa.Table,
        columns: pa.Schema,
        fills: Mapping[str, pa.Scalar],
    ) -> pa.Table:
        """Return rows under their new columns.

        Args:
            rows: Rows with the old columns.
            columns: The new columns, including Ebbtide's.
            fills: Added column to its value in all rows; any other missing column is null.

        Example:
            >>> change = SchemaChange(renamed={"b": "a"}, added={"c": 7})
            >>> new = pa.schema([("b", pa.int64()), ("c", pa.int32())])
            >>> change.rows(pa.table({"a": [1]}), new, {"c": pa.scalar(7)}).to_pylist()
            [{'b': 1, 'c': 7}]
        """
        # Three origins of a column: the old one under its old name, the value that the migration gives, or null.
        arrays = []
        n_rows = len(rows)
        for column in columns:
            old_name = self.renamed.get(column.name, column.name)
            if old_name in rows.column_names:
                array = rows[old_name].cast(column.type)
            elif column.name in fills:
                fill = fills[column.name].cast(column.type)
                array = pa.repeat(fill, n_rows)
            else:
                array = pa.nulls(n_rows, column.type)
            arrays.append(array)
        return pa.Table.from_arrays(arrays, schema=columns)

    def new_name(self, old: str) -> str | None:
        """Return the new name of a column; None if it was dropped."""
        if old in self.dropped:
            return None
        for new, before in self.renamed.items():
            if before == old:
                return new
        return old
