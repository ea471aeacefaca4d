"""Filters tables by values without Spark: a step mostly touches few rows, and Spark costs more than reading a column.

The files of a table, and its change files, are read one after the other, so that one file and the rows found are in memory. Values
of FLOAT, DOUBLE and nested columns are compared by Spark alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from ebbtide.ddl import is_exact
from ebbtide.delta import Action, DataFile, Log, Snapshot
from ebbtide.sessions import arrow_schema
from ebbtide.tables import SinkTable
from ebbtide.views.lineage import Cut

FEED_BYTES = 2**30
"""Maximum size of change files that are read; with more a view is computed whole."""
TABLE_BYTES = 256 * 2**20
"""Maximum size of a table's data files that are read here."""
MOST_ROWS = 200_000
"""Maximum number of rows of a table that are passed to Spark from here, and of values to filter by."""


@dataclass(frozen=True)
class PinnedTable:
    """A table at a location, as of a version."""

    location: str
    version: int

    @cached_property
    def snapshot(self) -> Snapshot:
        """Snapshot of the version."""
        found = Snapshot.read(self.location, self.version)
        if found is None:
            raise LookupError(f"no Delta table at {self.location}")
        return found

    @property
    def schema(self) -> StructType:
        """Columns without the reserved ones, all nullable; needs no JVM."""
        stored = json.loads(self.snapshot.metadata["schemaString"])
        own = StructType()
        for field in StructType.fromJson(stored):
            if field.name not in SinkTable.RESERVED:
                own.add(field.name, field.dataType)
        return own

    def cut(self, cuts: Cut, values: pa.Table) -> pa.Table | None:
        """Return a superset of the rows with some values.

        Args:
            cuts: Columns to be compared, in the order of the values' columns; with several cuts, rows that fit any of them.
            values: The values.

        Returns:
            The rows with all columns; None if Spark has to filter, since they are many or the values are not exact.
        """
        files = self.snapshot.files.values()
        n_bytes = sum(file.size for file in files)
        is_large = n_bytes > TABLE_BYTES or len(values) > MOST_ROWS
        if is_large or not are_exact(values.schema):
            return None
        # The compared columns of a file are read first, its other columns only if a row fits.
        columns = arrow_schema(self.schema)
        names = set().union(*cuts)
        looked_at = pa.schema([field for field in columns if field.name in names])
        found = [columns.empty_table()]
        for file in files:
            rows = file.read(self.location, looked_at)
            fits = np.zeros(len(rows), bool)
            for cut in cuts:
                fits |= _may_fit(rows, cut, values)
            if fits.any():  # with all columns, since only Spark knows which of them the query needs
                whole = file.read(self.location, columns)
                found.append(whole.filter(pa.array(fits)))
            n_found = sum(map(len, found))
            if n_found > MOST_ROWS:
                return None
        return pa.concat_tables(found)

    def feed(self, versions: Iterable[int]) -> list[Action]:
        """Return the files with the changes of some versions: change files, or the data files of a version without these."""
        files: list[Action] = []
        for version in versions:
            actions = Log(self.location).commit(version)
            change_files = [action["cdc"] for action in actions if "cdc" in action]
            files += change_files or actions.changed_files()
        return files

    def values(
        self,
        feed: Iterable[Action],
        cut: Sequence[str],
        names: pa.Schema,
    ) -> pa.Table:
        """Return the values of changed rows, before and after the change.

        Args:
            feed: Files of `feed`.
            cut: Columns to be read.
            names: Names and types of the values, in the same order.
        """
        columns = pa.schema(list(zip(cut, names.types, strict=True)))
        found = [names.empty_table()]
        for file in feed:
            rows = DataFile(file).read(self.location, columns, live=False)
            named = rows.rename_columns(names.names)
            found.append(distinct(named))
        return distinct(pa.concat_tables(found))


def distinct(values: pa.Table) -> pa.Table:
    """Return each row once; rows of values that are not exact are returned as they are."""
    if not are_exact(values.schema):
        return values
    groups = values.group_by(values.column_names)
    return groups.aggregate([])


def are_exact(values: pa.Schema) -> bool:
    """Return whether values can be compared without Spark."""
    return all(map(is_exact, values.types))


def _may_fit(rows: pa.Table, cut: Sequence[str], values: pa.Table) -> np.ndarray:
    """Return a mask of rows whose columns each have one of their values: a superset of the rows with a tuple of values."""
    fits = np.ones(len(rows), bool)
    for name, wanted in zip(cut, values.columns, strict=True):
        value_set = wanted.combine_chunks()
        is_wanted = pc.is_in(rows[name], value_set)
        fits &= is_wanted.to_numpy()
    return fits
