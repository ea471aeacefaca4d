"""Writes data files of a state table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyroaring import BitMap64

from ebbtide.columns import entry_table
from ebbtide.delta import Action, DataFile, write_files
from ebbtide.tables._state.layout import NOTES, EntryKind, columns_by_name
from ebbtide.tables._state.lookup import Stored


@dataclass(frozen=True)
class StateWriter:
    """Writes data files of a state table; picklable, since workers write them.

    Args:
        stored: The table's data files; it also names the local copies of new files.
        schema: Columns of the table.
        bounded: Columns to keep statistics of.
    """

    stored: Stored
    schema: pa.Schema
    bounded: tuple[str, ...]

    def entry_rows(self, entries: pa.Table) -> pa.Table:
        """Return entries, with all their columns, as rows of the table."""
        n_rows = len(entries)
        columns = columns_by_name(entries)
        columns["_entry"] = pa.repeat(EntryKind.ROW, n_rows)
        return entry_table(self.schema, columns, n_rows)

    def emitted_rows(self, emitted: pa.Table, step: int) -> pa.Table:
        """Return the emissions of a step as rows of the table.

        Args:
            emitted: `_kind`, `_order`, `_number` and the user's columns.
            step: Number of the step.
        """
        n_rows = len(emitted)
        columns = columns_by_name(emitted)
        columns["_entry"] = [EntryKind.EMITTED] * n_rows
        columns["_note"] = columns.pop("_kind")
        columns["_changed_by"] = columns.pop("_order")
        columns["_position"] = columns.pop("_number")
        columns["_step"] = [step] * n_rows
        return entry_table(self.schema, columns, n_rows)

    def write(
        self,
        rows: pa.Table,
        key: Sequence[str],
        *,
        data_change: bool = True,
        rows_per_file: int | None = None,
        tags: Mapping[str, str] | None = None,
        notes: pa.Table | None = None,
    ) -> list[Action]:
        """Write rows as data files, in their order; return the actions that add them, none without rows.

        Args:
            rows: Rows of the table.
            key: Names of the key's columns.
            data_change: The rows are new, or change.
            rows_per_file: The most rows of a file. Default: one file.
            tags: Tags of the files. Default: none.
            notes: Further rows, notes on source files; with these all rows are in one file. Default: none.
        """
        if notes is not None:
            rows = pa.concat_tables([rows, notes])
            tags = {**(tags or {}), NOTES: str(len(notes))}
        # Indexed from memory: the next step looks keys up in a file without reading it back.
        copies = self.stored.copies(key)
        return write_files(
            self.stored.table,
            rows,
            self.bounded,
            rows_per_file=rows_per_file,
            data_change=data_change,
            copies=copies,
            tags=tags,
        )

    def without(self, deletion: tuple[DataFile, bytes]) -> list[Action]:
        """Write a data file again without some of its rows; return the actions that add it, none if no row is left.

        Args:
            deletion: The file, and the numbers of the rows to delete, as a bitmap.
        """
        file, serialized = deletion
        deleted_rows = BitMap64.deserialize(serialized)
        return file.written_without(self.stored.table, deleted_rows, self.schema, self.bounded)
