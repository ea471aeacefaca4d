"""Tables cut down here, without Spark: what a step touches is mostly little, and Spark costs more than reading a column.

Data files and change files are read as they are, a table's files one after the other, so that no more than one is held with what
was found. Values are compared exactly: of FLOAT, DOUBLE and nested columns Spark alone says which are equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from ebbtide.delta import log
from ebbtide.delta.feed import feed_files
from ebbtide.delta.snapshot import DataFile, Snapshot
from ebbtide.delta.table import read_file
from ebbtide.model.codes import row_codes
from ebbtide.paths import size_of
from ebbtide.sinks.delta import RESERVED
from ebbtide.views.lineage import Cut

FEED_BYTES = 32 * 2**20
"""Bytes of change files that are read here."""
TABLE_BYTES = 256 * 2**20
"""Bytes of a table's data files that are looked through here."""
MOST_ROWS = 200_000
"""Rows that are handed to Spark from here, of one table."""


@dataclass(frozen=True)
class PinnedTable:
    """A table as of a version.

    Args:
        location: Where it is.
        version: The version.
    """

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
                nullable = StructField(field.name, field.dataType)
                own.add(nullable)
        return own

    def cut(self, cuts: Cut, values: pa.Table) -> pa.Table | None:
        """Return the rows that have some values.

        Args:
            cuts: The columns to be looked at, in the order of the values' columns; several: rows that fit one of them.
            values: The values, each once.

        Returns:
            The rows, with all columns; None if Spark has to look: the table, or what is found, is large.
        """
        files = self.snapshot.files.values()
        n_bytes = sum(file.size for file in files)
        if n_bytes > TABLE_BYTES:
            return None
        columns = to_arrow_schema(self.schema, timezone="UTC")
        names = _names(cuts)
        looked_at = pa.schema([field for field in columns if field.name in names])
        found = [columns.empty_table()]
        n_found = 0
        for file in files:
            rows = read_file(self.location, file, looked_at)
            fits = _fit_any(rows, cuts, values)
            n_found += int(fits.sum())
            if n_found > MOST_ROWS:
                return None
            if fits.any():  # all columns of these rows are Spark's to read: which a query needs, it alone knows
                whole = read_file(self.location, file, columns)
                found.append(whole.filter(pa.array(fits)))
        return pa.concat_tables(found)

    def changed_values(
        self,
        since: int,
        cuts: Cut,
        values: pa.Schema,
    ) -> pa.Table | None:
        """Return the values that changed rows have, before and after.

        Args:
            since: The version after which changes count.
            cuts: See `cut`.
            values: Names and types of the values.

        Returns:
            Them, not each once; None if Spark has to look: the change files are large.
        """
        versions = range(since + 1, self.version + 1)
        commits = [log.actions(self.location, version) for version in versions]
        n_bytes = sum(_feed_bytes(self.location, actions) for actions in commits)
        if n_bytes > FEED_BYTES:
            return None
        read = _columns_of(cuts, values)
        found = [values.empty_table()]
        for actions in commits:
            for rows in _feed(self.location, actions, read):
                found += [_renamed(rows, cut, values) for cut in cuts]
        return pa.concat_tables(found)


def distinct(values: pa.Table) -> pa.Table:
    """Return each row once."""
    return values.group_by(values.column_names).aggregate([])


def _names(cuts: Cut) -> set[str]:
    """Return the columns that some cuts look at."""
    return set().union(*cuts)


def _columns_of(cuts: Cut, values: pa.Schema) -> pa.Schema:
    """Return the columns that some cuts look at, with the types of the values there."""
    types: dict[str, pa.DataType] = {}
    for cut in cuts:
        types |= zip(cut, values.types, strict=True)
    return pa.schema(sorted(types.items()))


def _feed_bytes(table: str, actions: list[log.Action]) -> int:
    sizes = [size_of(location) for location in feed_files(table, actions)]
    return sum(size or 0 for size in sizes)


def _feed(
    table: str,
    actions: list[log.Action],
    columns: pa.Schema,
) -> Iterator[pa.Table]:
    """Yield the rows that a commit changed, before and after; where it has no change files, all rows of its data files."""
    change_files = [action["cdc"] for action in actions if "cdc" in action]
    for file in change_files or log.changed_files(actions):
        yield read_file(table, DataFile(file), columns, live=False)


def _renamed(
    rows: pa.Table,
    cut: Sequence[str],
    values: pa.Schema,
) -> pa.Table:
    arrays = [rows[name] for name in cut]
    return pa.Table.from_arrays(arrays, schema=values)


def _fit_any(rows: pa.Table, cuts: Cut, values: pa.Table) -> np.ndarray:
    fits = np.zeros(len(rows), bool)
    for cut in cuts:
        columns = rows.select(list(cut))
        fits |= _fit(columns, values)
    return fits


def _fit(rows: pa.Table, values: pa.Table) -> np.ndarray:
    """Mark the rows that are among some values; null is a value too.

    O(n) for one column; for more the first one is looked at alone, and only what is left is numbered.
    """
    names = values.column_names
    first_values = values.column(0).combine_chunks()
    fits: np.ndarray = pc.is_in(rows.column(0), first_values).to_numpy()
    if rows.num_columns == 1:
        return fits
    left = np.flatnonzero(fits)
    candidates = rows.take(pa.array(left)).rename_columns(names)
    both = pa.concat_tables([values, candidates.cast(values.schema)])
    codes = row_codes(both, names)
    n_values = len(values)
    codes_of_values = codes[:n_values]
    codes_left = codes[n_values:]
    fits[left] = np.isin(codes_left, codes_of_values)
    return fits
