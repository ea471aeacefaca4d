"""A data file of a table: its entry in the log, and its rows.

Source: Delta transaction log protocol, "Add File and Remove File".
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from ebbtide.delta import _vectors as vectors
from ebbtide.delta._key_range import KeyRange
from ebbtide.delta._log import FOOTER, KEY_RANGE, LEAST_UNPACKED, UNPACKED, Action, Log
from ebbtide.delta._partitions import Partition, folder_of, in_partitions
from ebbtide.delta._statistics import statistics
from ebbtide.delta._values import UnfitValuesError, fitted, repeated
from ebbtide.errors import DeltaLogError, TableMismatchError
from ebbtide.storage import Attached, Location, ParquetFile

FileId = tuple[str, str]
"""A data file's path, and the unique id of its deletion vector: the key by which the log adds and removes."""
BYTES_A_ROW = 8
"""Least bytes of a row, for files whose rows the log does not count."""
CHANGES = "_change_data"
"""Folder of change files in a table."""
ROW_GROUP = 1 << 17
"""Rows in one row group of a data file."""


@dataclass(frozen=True)
class DataFile:
    """A data file of a table.

    Args:
        add: The value under `add` in the log.
    """

    add: Action

    @property
    def path(self) -> str:
        """Path as in the log: relative to the table or absolute, percent-encoded."""
        return str(self.add["path"])

    @property
    def id(self) -> FileId:
        """The key by which the log adds and removes the file, with its vector."""
        return file_id(self.add)

    @property
    def vector(self) -> vectors.Descriptor | None:
        """Descriptor of its deletion vector; None if all rows count."""
        return self.add.get("deletionVector")

    @cached_property
    def stats(self) -> dict[str, Any]:
        """Its statistics; empty without any."""
        text = self.add.get("stats") or "{}"
        try:
            stats: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise DeltaLogError.of(
                f"The log of a Delta table has statistics of the file '{self.path}' that are not JSON.",
                got=error,
                next_step="Have the table's writer compute them again (ANALYZE TABLE ... COMPUTE DELTA STATISTICS), or restore the log.",
            ) from error
        return stats

    @property
    def size(self) -> int:
        """Its bytes."""
        return int(self.add["size"])

    @property
    def unpacked_bytes(self) -> int:
        """The bytes that its rows take in memory, if noted: equal values are stored in few bytes."""
        return max(self.size, int(self.tags.get(UNPACKED, 0)))

    @property
    def partition(self) -> Partition:
        """The values of partition columns, which are not in the file, as text."""
        return self.add.get("partitionValues") or {}

    @property
    def tags(self) -> Mapping[str, str]:
        """Tags of its writer."""
        return self.add.get("tags") or {}

    @property
    def tags_of_rows(self) -> Mapping[str, str]:
        """The tags that its rows keep in another file: all but those that describe this one."""
        return {name: value for name, value in self.tags.items() if name not in (FOOTER, KEY_RANGE, UNPACKED)}

    def key_range(self, identity: str | None = None) -> KeyRange:
        """Return the range of its keys' hashes, by its tag; all hashes if that is unknown.

        Args:
            identity: Identifies the rows and columns that were hashed; None: any.
        """
        return KeyRange.of(self.tags.get(KEY_RANGE, ""), identity)

    @property
    def rows(self) -> int | None:
        """Number of rows in the file, deleted ones included; None if unknown."""
        return self.stats.get("numRecords")

    @property
    def live_rows(self) -> int | None:
        """Number of rows that count; None if unknown."""
        if self.rows is None or not self.vector:
            return self.rows
        n_gone: int = self.vector["cardinality"]
        return self.rows - n_gone

    @property
    def likely_rows(self) -> int:
        """Number of rows that count; guessed by the file's bytes if unknown."""
        return self.size // BYTES_A_ROW if self.live_rows is None else self.live_rows

    def least(self, column: str) -> Any:
        """Return a lower bound of a column; None if unknown."""
        least = self.stats.get("minValues", {})
        return least.get(column)

    def greatest(self, column: str) -> Any:
        """Return an upper bound of a column; None if unknown."""
        greatest = self.stats.get("maxValues", {})
        return greatest.get(column)

    def is_all_null(self, column: str) -> bool:
        """Return whether a column is known to be null in each row."""
        nulls = self.stats.get("nullCount", {})
        return self.rows is not None and nulls.get(column) == self.rows

    def location(self, table: str) -> str:
        """Return its location.

        Args:
            table: Location of the table.

        Raises:
            DeltaLogError: it is outside of the table.
        """
        return Log(table).location_of(self.path)

    @property
    def footer(self) -> str | None:
        """Checksum of its footer; None if it was not noted."""
        return self.tags.get(FOOTER)

    def read(
        self,
        table: str,
        columns: pa.Schema,
        *,
        live: bool = True,
        positions: NDArray[np.int64] | None = None,
    ) -> pa.Table:
        """Read its rows, in their order.

        Args:
            table: Location of the table.
            columns: Columns to read, in these types; a column that the file lacks is null.
            live: Leave out deleted rows; not with `positions`.
            positions: Numbers of the rows to read, in their order. Default: all.

        Raises:
            DamagedFileError: the file is damaged or missing.
            TableMismatchError: it does not fit the columns.
        """
        location = self.location(table)
        # Partition values are only in the log, as text. Names of columns are case-insensitive in Delta.
        partition = {name.lower(): text for name, text in self.partition.items()}
        rows = ParquetFile(location).read(
            columns.names,
            footer=self.footer,
            positions=positions,
            without_nulls=True,
        )
        arrays = []
        for column in columns:
            name = column.name.lower()
            try:
                if name in partition:
                    array = repeated(partition[name], column.type, len(rows))
                elif column.name in rows.column_names:
                    array = fitted(rows[column.name], column.type)
                else:
                    array = pa.nulls(len(rows), column.type)
            except pa.ArrowException as error:
                is_ours = isinstance(error, UnfitValuesError)
                stored = rows[column.name].type if column.name in rows.column_names else "the log's text"
                why = error if is_ours else f"values of {stored} that do not fit, {type(error).__name__}"
                raise TableMismatchError.of(
                    f"The file '{location}' does not fit the columns of its table.",
                    got=f"column '{column.name}': {why}",
                    allowed=str(column.type),
                    next_step="Rewrite it with the table's columns, for instance by Spark's REORG TABLE or an overwrite; of a sink, 'ebbtide repair' replaces it.",
                ) from None
            arrays.append(array)
        typed = pa.Table.from_arrays(arrays, schema=columns)
        if not live or self.vector is None:
            return typed
        return vectors.rows_without(typed, self.deleted_rows(table))

    def read_without(self, table: str, columns: pa.Schema, gone: BitMap64) -> pa.Table:
        """Read the rows of the file without some, those that its deletion vector hides included.

        Args:
            table: Location of the table.
            columns: See `read`.
            gone: Positions of the rows to leave out.
        """
        rows = self.read(table, columns, live=False)
        return vectors.rows_without(rows, gone)

    def deleted_rows(self, table: str) -> BitMap64:
        """Return the positions of its deleted rows, by its deletion vector; none without one.

        Args:
            table: Location of the table.

        Raises:
            DeltaLogError: the vector is torn, or does not exist.
        """
        return BitMap64() if self.vector is None else vectors.read(table, self.vector)

    def is_live(self, table: str, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mark the rows that are not deleted.

        Args:
            table: Location of the table.
            positions: (n,) positions of the rows to judge.
        """
        return vectors.counts(table, self.vector, positions)

    def vector_location(self, table: str) -> str | None:
        """Return the location of the file of its deletion vector; None without one, or if the log itself has it.

        Args:
            table: Location of the table.
        """
        return None if self.vector is None else vectors.location_of(table, self.vector)

    @classmethod
    def write(
        cls,
        table: str,
        name: str,
        rows: pa.Table,
        *,
        bounded: Iterable[str],
        data_change: bool = True,
        attached: Attached | None = None,
        partition: Partition | None = None,
    ) -> Action:
        """Write a data file; return the action that adds it.

        Args:
            table: Location of the table.
            name: Name of the file, below it.
            rows: Rows of the file.
            bounded: Columns to keep statistics of.
            data_change: The rows are new to the table.
            attached: What else is in the file. Default: nothing.
            partition: The values of partition columns, which all rows have. Default: the table has no such columns.
        """
        location = Location(table) / name
        partition = dict(partition or {})
        of_partition = {column.lower() for column in partition}
        rows = rows.select([column for column in rows.column_names if column.lower() not in of_partition])
        bounded = [column for column in bounded if column.lower() not in of_partition]
        # The log has the footer's checksum and the size: a file that is replaced is detected.
        written = ParquetFile(location).write(rows, row_group_size=ROW_GROUP, attached=attached)
        tags = {FOOTER: written.footer}
        if rows.nbytes >= LEAST_UNPACKED:
            tags[UNPACKED] = str(rows.nbytes)
        add: Action = {
            "path": encoded(name),
            "partitionValues": partition,
            "size": written.size,
            "modificationTime": now_ms(),
            "dataChange": data_change,
            "stats": statistics(rows, bounded),
            "tags": tags,
        }
        return {"add": add}

    @classmethod
    def write_changes(cls, table: str, changes: pa.Table, partitioned: Sequence[str]) -> list[Action]:
        """Write rows as files of a commit's change feed; return the actions that name the files.

        Args:
            table: Location of the table.
            changes: All columns, and `_change_type`.
            partitioned: Partition columns of the table: each file has rows of one value of each.
        """
        actions: list[Action] = []
        for partition, part in in_partitions(table, changes, partitioned):
            name = f"{CHANGES}/{folder_of(partition)}cdc-{uuid.uuid4()}.parquet"
            add = cls.write(table, name, part, bounded=(), partition=partition)["add"]
            kept = {field: add[field] for field in ("path", "partitionValues", "size")}
            actions.append({"cdc": {**kept, "dataChange": False}})
        return actions

    def written_without(
        self,
        table: str,
        goes: BitMap64,
        columns: pa.Schema,
        bounded: Iterable[str],
        *,
        cleaned: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    ) -> list[Action]:
        """Write it again without some of its rows; return the actions that add those left, none if none is.

        In a partitioned table they keep its values of partition columns, which are only in the log.

        Args:
            table: Location of the table.
            goes: Positions of rows to remove, in addition to those that its vector hides.
            columns: Columns of the table.
            bounded: Columns to keep statistics of.
            cleaned: Converts the remaining rows for writing.
        """
        # The file is read with the rows that its vector hides: positions count from the beginning of the file.
        if self.vector is not None:
            goes |= self.deleted_rows(table)
        rows = self.read(table, columns, live=False)
        remaining = vectors.rows_without(rows, goes)
        left = cleaned(remaining)
        if not len(left):
            return []
        partition = self.partition
        action = self.write(table, new_name(partition), left, bounded=bounded, partition=partition)
        add = action["add"]
        add["tags"] = {**self.tags_of_rows, **add["tags"]}
        return [action]

    def removed(self, at_ms: int, *, data_change: bool) -> Action:
        """Return the action that removes it.

        Args:
            at_ms: The start of VACUUM's retention, epoch ms.
            data_change: Rows are deleted with it; False if another file has them.
        """
        action = {
            "path": self.path,
            "deletionTimestamp": at_ms,
            "dataChange": data_change,
            # With it, the protocol also requires partition values and size.
            "extendedFileMetadata": True,
            "partitionValues": self.partition,
            "size": self.add.get("size"),
        }
        if self.vector is not None:
            action["deletionVector"] = self.vector
        return {"remove": action}

    @staticmethod
    def replacing(
        files: Iterable[DataFile],
        actions: Iterable[Action],
        *,
        data_change: bool = True,
    ) -> list[Action]:
        """Return actions, and those that remove some data files.

        Args:
            files: Files to remove.
            actions: Actions to add.
            data_change: The commit changes rows.
        """
        at_ms = now_ms()
        replaced = list(actions)
        for file in files:
            remove = file.removed(at_ms, data_change=data_change)
            replaced.append(remove)
        return replaced

    def with_vector(self, vector: vectors.Descriptor, *, data_change: bool) -> Action:
        """Return the action that adds it with a new deletion vector.

        Args:
            vector: Descriptor of the vector.
            data_change: The vector deletes rows.
        """
        # Bounds may be too wide now, since they include deleted rows: the protocol has a field for that.
        stats = {
            **self.stats,
            "tightBounds": False,
        }
        add = {
            **self.add,
            "deletionVector": vector,
            "stats": json.dumps(stats),
            "dataChange": data_change,
        }
        return {"add": add}


def file_id(action: Action) -> FileId:
    """Return the `DataFile.id` that an `add` or a `remove` names."""
    vector = action.get("deletionVector")
    return str(action["path"]), vectors.unique_id(vector)


def new_name(partition: Partition) -> str:
    """Return a new name for a data file of a partition, below the table."""
    return f"{folder_of(partition)}part-{uuid.uuid4()}.parquet"


def encoded(path: str) -> str:
    """Return a relative path as written in the log."""
    return quote(path, safe="/=-_.~")


def now_ms() -> int:
    """Return the time, epoch ms."""
    return time.time_ns() // 1_000_000


class LostRows(NamedTuple):
    """The rows that a data file loses.

    Args:
        file: The file.
        dead: Positions of all its deleted rows, those deleted before included.
        is_whole: No row is left.
    """

    file: DataFile
    dead: BitMap64
    is_whole: bool
