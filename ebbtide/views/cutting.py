"""Tables cut down here, without Spark: what a step touches is mostly little, and Spark costs more than reading a column.

Data files and change files are read as they are, a table's files one after the other, so that no more than one is held with what
was found. Of FLOAT, DOUBLE and nested columns Spark alone says which are equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ebbtide.delta import log
from ebbtide.delta.snapshot import DataFile, Snapshot
from ebbtide.delta.table import read_file
from ebbtide.spec.ddl import is_exact
from ebbtide.tables.sink_definition import RESERVED
from ebbtide.views.lineage import Cut

FEED_BYTES = 2**30
"""Bytes of change files that are looked through; after more than that a view is computed whole."""
TABLE_BYTES = 256 * 2**20
"""Bytes of a table's data files that are looked through here."""
MOST_ROWS = 200_000
"""Rows that are handed to Spark from here, of one table, and values that tables are looked through for here."""


@dataclass(frozen=True)
class PinnedTable:
    """A table at a location, as of a version."""

    location: str
    version: int

    @cached_property
    def snapshot(self) -> Snapshot:
        """What the version holds."""
        found = Snapshot.read(self.location, self.version)
        if found is None:
            raise LookupError(f"no Delta table at {self.location}")
        return found

    @property
    def schema(self) -> StructType:
        """Its columns, without reserved ones, all nullable; known without a JVM."""
        stored = json.loads(self.snapshot.metadata["schemaString"])
        own = StructType()
        for field in StructType.fromJson(stored):
            if field.name not in RESERVED:
                own.add(field.name, field.dataType)
        return own

    def cut(self, cuts: Cut, values: pa.Table) -> pa.Table | None:
        """Return the rows that have some values, and perhaps others.

        Args:
            cuts: The columns to be looked at, in the order of the values' columns; several: rows that fit one of them.
            values: The values.

        Returns:
            They, with all columns; None if Spark has to look: of many rows, or by values that are not exact.
        """
        files = self.snapshot.files.values()
        is_large = sum(file.size for file in files) > TABLE_BYTES or len(values) > MOST_ROWS
        if is_large or not are_exact(values.schema):
            return None
        columns = to_arrow_schema(self.schema, timezone="UTC")
        names = set().union(*cuts)
        looked_at = pa.schema([field for field in columns if field.name in names])
        found = [columns.empty_table()]
        for file in files:
            rows = read_file(self.location, file, looked_at)
            fits = np.zeros(len(rows), bool)
            for cut in cuts:
                fits |= _may_fit(rows, cut, values)
            if fits.any():  # all columns of these rows are Spark's to read: which a query needs, it alone knows
                found.append(read_file(self.location, file, columns).filter(pa.array(fits)))
            if sum(map(len, found)) > MOST_ROWS:
                return None
        return pa.concat_tables(found)

    def feed(self, versions: Iterable[int]) -> list[log.Action]:
        """Return the files that show what some versions changed: change files, or of a version without these its data files."""
        files: list[log.Action] = []
        for version in versions:
            actions = log.actions(self.location, version)
            change_files = [action["cdc"] for action in actions if "cdc" in action]
            files += change_files or log.changed_files(actions)
        return files

    def values(
        self,
        feed: Iterable[log.Action],
        cut: Sequence[str],
        names: pa.Schema,
    ) -> pa.Table:
        """Return the values that changed rows have, before and after.

        Args:
            feed: Files of `feed`.
            cut: The columns to be looked at.
            names: Names and types of the values, in the same order.
        """
        columns = pa.schema(list(zip(cut, names.types, strict=True)))
        found = [names.empty_table()]
        for file in feed:
            rows = read_file(self.location, DataFile(file), columns, live=False)
            named = rows.rename_columns(names.names)
            found.append(distinct(named))
        return distinct(pa.concat_tables(found))


def distinct(values: pa.Table) -> pa.Table:
    """Return each row once; all of them where values are not exact."""
    return values.group_by(values.column_names).aggregate([]) if are_exact(values.schema) else values


def are_exact(values: pa.Schema) -> bool:
    """Return whether values can be compared here."""
    return all(map(is_exact, values.types))


def _may_fit(rows: pa.Table, cut: Sequence[str], values: pa.Table) -> np.ndarray:
    """Mark the rows each of whose columns has one of its values: all that have some values together, and perhaps others."""
    fits = np.ones(len(rows), bool)
    for name, wanted in zip(cut, values.columns, strict=True):
        fits &= pc.is_in(rows[name], wanted.combine_chunks()).to_numpy()
    return fits
