"""The change set of a step, read from the files of its commit alone: in Spark, or in this process without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import equals
from ebbtide.delta import Action, DataFile, Log
from ebbtide.operators import Operator
from ebbtide.storage import ParquetFile
from ebbtide.tables._state.layout import EntryKind, columns_by_name, of_sink, typed
from ebbtide.tables._state.lookup import Stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART_BYTES = 64 * 2**20
"""Bytes of changes that are applied to a sink at a time: the files of a step may hold gigabytes where few of them are compressed."""


@dataclass(frozen=True)
class StepChanges:
    """The change set of one step.

    Args:
        table: Location of the state table.
        version: Version of the state that the step made.
        operator: The operator that decided.
    """

    table: str
    version: int
    operator: Operator

    def frame(self, spark: SparkSession) -> DataFrame:
        """Read it in Spark, with `_step`."""
        from ebbtide.tables._state.frames import StateFrames

        frames = StateFrames(self.table, self.operator)
        return frames.change_set(spark, self.version)

    def rows(self, columns: pa.Schema) -> pa.Table:
        """Read it in this process: `_change` and some columns of the sink, in these types."""
        return pa.concat_tables(self.parts(columns))

    def parts(self, columns: pa.Schema) -> Iterator[pa.Table]:
        """Read it as `rows`, in parts of whole keys of about `PART_BYTES`; at least one."""
        change = pa.field("_change", pa.string())
        schema = pa.schema([change, *columns])
        part = [schema.empty_table()]
        n_bytes = 0
        # A file has the decisions of one task: all changes of some keys.
        for add in Log(self.table).commit(self.version).adds():
            rows = self._rows_of(add, schema)
            if n_bytes and n_bytes + rows.nbytes > PART_BYTES:
                yield pa.concat_tables(part)
                part, n_bytes = [], 0
            part.append(rows)
            n_bytes += rows.nbytes
        yield pa.concat_tables(part)

    def _rows_of(self, add: Action, schema: pa.Schema) -> pa.Table:
        names = schema.names
        if "_out" in self.operator.schema.names:
            out = self.operator.schema.field("_out")
            reserved = [name for name in names if name not in out.type.names]
            names = [*reserved, "_out"]
        stored = self._just_decided(add, names)
        if stored is None:
            stored = self._read(add, names)
        is_change = pc.is_valid(stored["_change"])
        return of_sink(stored.filter(is_change), schema, {})

    def _just_decided(self, add: Action, names: list[str]) -> pa.Table | None:
        """Return the entries of a file that this process has written for the step, from its local copy; None if there is none.

        A change is on an entry, and the copy has all of these.
        """
        entries = Stored(self.table, (), self.operator.schema, where=("_entry", EntryKind.ROW))
        copies = entries.copies(self.operator.key)
        index = copies.opened(DataFile(add))
        if index is None:
            return None
        n_rows = len(index.rows)
        return index.rows.slice(0, n_rows, names)

    def _read(self, add: Action, names: list[str] | None = None) -> pa.Table:
        location = Log(self.table).location_of(add["path"])
        footer = DataFile(add).footer
        return ParquetFile(location).read(names, footer=footer)

    def emitted(self, columns: pa.Schema) -> pa.Table:
        """Read the emissions of the step record by record: `_kind`, the user's columns, `_order`, `_number`.

        Args:
            columns: Columns of the changelog table.
        """
        tables = [columns.empty_table()]
        for add in Log(self.table).commit(self.version).adds():
            rows = self._read(add)
            is_emitted = equals(rows, "_entry", EntryKind.EMITTED)
            emitted = rows.filter(pa.array(is_emitted))
            values = columns_by_name(emitted)
            # Emissions are rows of the state table, which has no columns for these values: three other columns hold them.
            values["_kind"] = emitted["_note"]
            values["_order"] = emitted["_changed_by"]
            values["_number"] = emitted["_position"]
            tables.append(typed(values, columns))
        return pa.concat_tables(tables)
