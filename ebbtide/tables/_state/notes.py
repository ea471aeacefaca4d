"""The rows of a state table that are not entries: source files that were read, and acknowledged keys."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from ebbtide.columns import entry_table
from ebbtide.delta import Action, DataFile
from ebbtide.operators import FormerKeys, Operator
from ebbtide.tables._state.layout import EntryKind, FileSizes, columns_of_state, files_noted, notes_of_files, rows_of


@dataclass(frozen=True)
class StateNotes:
    """Reads and writes the notes of one pipeline's state table.

    Args:
        path: Its location.
        operator: The reconciler whose entries it holds.
        personal: Columns whose values the log does not show.
    """

    path: str
    operator: Operator
    personal: frozenset[str] = frozenset()

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return columns_of_state(self.operator)

    @property
    def bounded(self) -> tuple[str, ...]:
        """Columns that statistics are kept of."""
        shown_key = [name for name in self.operator.key if name not in self.personal]
        names = ["_entry", "_step", "_stamp_ms", *shown_key]
        if FormerKeys.COLUMN in self.operator.schema.names:
            names.append(FormerKeys.COLUMN)
        return tuple(names)

    def files(self, files: Iterable[DataFile]) -> FileSizes:
        """Return the source files that some data files note; see `files_noted`."""
        return files_noted(self.path, files)

    def notes_in(self, files: Iterable[DataFile]) -> pa.Table:
        """Read the notes on source files in some data files, to be written again as they are."""
        return notes_of_files(self.path, files)

    def acknowledged_in(self, files: Iterable[DataFile]) -> pa.Table:
        """Read the acknowledged keys in some data files, as rows of the table."""
        rows = rows_of(self.path, files, EntryKind.ACKNOWLEDGED, self.schema.remove(0))
        return rows.select(self.schema.names)

    def add_acknowledged(self, keys: pa.Table, step: int) -> Action:
        """Note keys whose sink rows may differ until they change again.

        Args:
            keys: The key's columns.
            step: Number of the step.

        Returns:
            The action that adds them.
        """
        n_keys = len(keys)
        values: dict[str, object] = {
            "_entry": [EntryKind.ACKNOWLEDGED] * n_keys,
            "_step": [step] * n_keys,
        }
        for name in self.operator.key:
            values[name] = keys[name]
        rows = entry_table(self.schema, values, n_keys)
        return self.add_rows(rows, data_change=True)

    def add_rows(self, rows: pa.Table, *, data_change: bool) -> Action:
        """Write rows as a data file; return the action that adds it."""
        return DataFile.write(
            self.path, f"notes-{uuid.uuid4()}.parquet", rows, bounded=self.bounded, data_change=data_change
        )

    def noted_files(self, files: Iterable[tuple[str, int | None]], step: int) -> pa.Table:
        """Return the notes on the source files that a step read, as rows of the table.

        Args:
            files: Name and bytes of each.
            step: Number of the step.
        """
        text_of = json.JSONEncoder(ensure_ascii=False).encode
        notes = [text_of({"name": name, "size": size}) for name, size in files]
        n_notes = len(notes)
        columns: dict[str, object] = {
            "_entry": [EntryKind.FILE] * n_notes,
            "_note": notes,
            "_step": [step] * n_notes,
        }
        return entry_table(self.schema, columns, n_notes)
