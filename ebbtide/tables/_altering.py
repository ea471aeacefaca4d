"""Rewrites data files of a table under new columns.

Column mapping and type widening would rewrite no file, but readers would have to know these features. Files are rewritten one by one,
with their rows in order, in commits that declare no data change: so the change feed shows no row.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ebbtide.delta import Action, DataFile, write_files
from ebbtide.formats import Coding
from ebbtide.model import SchemaChange


@dataclass(frozen=True)
class FileUnderNewColumns:
    """Rewrites data files under new columns; runs in workers.

    Args:
        table: Location of the table.
        stored: Its old columns.
        columns: Its new columns.
        bounded: Columns to keep statistics of.
        change: The change from the old columns to the new ones.
        partitioned: The table's partition columns, by their new names.
    """

    table: str
    stored: pa.Schema
    columns: pa.Schema
    bounded: tuple[str, ...]
    change: SchemaChange
    partitioned: tuple[str, ...]

    def __call__(self, file: DataFile) -> list[Action]:
        """Return the actions that add a file's rows again; none if all its rows are deleted."""
        rows = file.read(self.table, self.stored)
        fills = self.change.fills(self.columns, Coding().convert)
        altered = self.change.rows(rows, self.columns, fills)
        return write_files(
            self.table,
            altered,
            self.bounded,
            data_change=False,
            tags=file.tags_of_rows,
            partitioned=self.partitioned,
        )
