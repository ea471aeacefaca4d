"""Inputs of rules: tables at a version, a change feed, given rows. Each is read here or registered in Spark.

Rows and bytes are known from the Delta log before anything is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from ebbtide.columns import Mask, quoted
from ebbtide.delta import Action, Commit, DataFile, Log, Snapshot, positions_in
from ebbtide.errors import DeltaFeatureError, DeltaLogError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ebbtide.sessions import Frames

CHANGE_TYPE = pa.field("_change_type", pa.string())
COMMIT_VERSION = pa.field("_commit_version", pa.int64())
BYTES_OF_A_ROW = 10
"""Assumed bytes of a row in a change file."""


class Size(NamedTuple):
    """The size of an input.

    Attributes:
        rows: Rows.
        n_bytes: Bytes of the files.
    """

    rows: int
    n_bytes: int


class Input(ABC):
    """Rows that a query of a rule names. It is hashable: an input that several rules name is read once."""

    @abstractmethod
    def size(self) -> Size | None:
        """Return the size of the input; None if it is unknown, or if only Spark can read it."""

    @abstractmethod
    def read(self) -> pa.Table:
        """Read it here."""

    @abstractmethod
    def frame(self, frames: Frames) -> DataFrame:
        """Read it in Spark."""


@dataclass(frozen=True)
class TableRows(Input):
    """The rows of a table as of a version.

    Args:
        table: Its location.
        version: The version.
        columns: All its columns; columns missing from a file are null.
    """

    table: str
    version: int
    columns: pa.Schema

    @cached_property
    def _snapshot(self) -> Snapshot:
        found = Snapshot.read(self.table, self.version)
        if found is None or found.version != self.version:
            raise DeltaLogError.of(f"Version {self.version} of the table '{self.table}' is not there.")
        return found

    def size(self) -> Size | None:
        """See `Input`."""
        try:
            files = self._snapshot.files.values()
        except DeltaFeatureError:
            return None
        return _size(files)

    def read(self) -> pa.Table:
        """See `Input`."""
        return self._snapshot.rows(self.columns)

    def frame(self, frames: Frames) -> DataFrame:
        """See `Input`."""
        return frames.of_delta(self.table, self.version)


@dataclass(frozen=True)
class ChangeFeed(Input):
    """The change feed of a table: its rows before and after each change, with `_change_type` and `_commit_version`.

    Args:
        table: Its location.
        since: The version before the first one.
        until: The last version.
        columns: The requested columns of the table.
    """

    table: str
    since: int
    until: int
    columns: pa.Schema

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([*self.columns, CHANGE_TYPE, COMMIT_VERSION])

    @cached_property
    def _commits(self) -> list[tuple[int, Commit]]:
        commits = []
        for version in range(self.since + 1, self.until + 1):
            actions = Log(self.table).commit(version)
            commits.append((version, actions))
        return commits

    def size(self) -> Size | None:
        """See `Input`; change files have no statistics: their rows are estimated from their bytes."""
        try:
            Snapshot.read(self.table, self.until)
        except DeltaFeatureError:
            return None
        n_rows = 0
        n_bytes = 0
        for _, actions in self._commits:
            files = _change_files(actions) or actions.changed_files()
            for action in files:
                size = int(action.get("size") or 0)
                known = DataFile(action).rows
                n_rows += size // BYTES_OF_A_ROW if known is None else known
                n_bytes += size
        return Size(n_rows, n_bytes)

    def read(self) -> pa.Table:
        """See `Input`."""
        tables = [self._schema.empty_table()]
        for version, actions in self._commits:
            for rows in self._changes(actions):
                versions = pa.repeat(pa.scalar(version, pa.int64()), len(rows))
                tables.append(rows.append_column(COMMIT_VERSION, versions))
        return pa.concat_tables(tables)

    def _changes(self, actions: Commit) -> Iterator[pa.Table]:
        """Yield the rows that a commit changed, each with its `_change_type`.

        Source: Delta transaction log protocol, "Reader Requirements for AddCDCFile": change files are complete. In a commit
        without one, rows of added files were inserted and rows of removed files deleted. A file that is both got another deletion
        vector: only rows whose visibility changes count.
        """
        change_files = _change_files(actions)
        if change_files:
            schema = pa.schema([*self.columns, CHANGE_TYPE])
            for action in change_files:
                yield DataFile(action).read(self.table, schema, live=False)
            return
        added = _by_path(actions, "add")
        removed = _by_path(actions, "remove")
        paths = {**removed, **added}
        for path in paths:
            before = removed.get(path)
            after = added.get(path)
            file = after or removed[path]
            rows = file.read(self.table, self.columns, live=False)
            was_live = self._live(before, len(rows))
            is_live = self._live(after, len(rows))
            yield _typed(rows, was_live & ~is_live, "delete")
            yield _typed(rows, is_live & ~was_live, "insert")

    def _live(self, file: DataFile | None, n_rows: int) -> Mask:
        """Mark the visible rows of a file; none if there is no file."""
        live = np.full(n_rows, file is not None)
        if file is not None and file.vector is not None:
            gone = file.deleted_rows(self.table)
            live[positions_in(gone)] = False
        return live

    def frame(self, frames: Frames) -> DataFrame:
        """See `Input`."""
        from ebbtide.sessions import spark_schema

        if self.since >= self.until:  # Delta refuses to read from a version that is not there yet
            return frames.of_arrow(self._schema.empty_table(), spark_schema(self._schema))
        return frames.of_changes(self.table, self.since + 1, self.until).select(*map(quoted, self._schema.names))


def _change_files(actions: Iterable[Action]) -> list[Action]:
    return [action["cdc"] for action in actions if "cdc" in action]


def _by_path(actions: Iterable[Action], kind: str) -> dict[str, DataFile]:
    """Return the files whose rows a commit changes: those that it adds, or removes."""
    files = {}
    for action in actions:
        file = action.get(kind)
        if file is not None and file.get("dataChange", True):
            files[file["path"]] = DataFile(file)
    return files


def _typed(rows: pa.Table, mask: Mask, change_type: str) -> pa.Table:
    """Return the marked rows, with the type of their change."""
    changed = rows.filter(pa.array(mask))
    types = pa.repeat(change_type, len(changed))
    return changed.append_column(CHANGE_TYPE, types)


@dataclass(frozen=True, eq=False)
class GivenRows(Input):
    """Given rows: facts of steps and commits, net effects of several steps.

    Args:
        rows: The rows.
    """

    rows: pa.Table

    def size(self) -> Size:
        """See `Input`: nothing is left to read."""
        return Size(0, 0)

    def read(self) -> pa.Table:
        """See `Input`."""
        return self.rows

    def frame(self, frames: Frames) -> DataFrame:
        """See `Input`."""
        from ebbtide.sessions import spark_schema

        return frames.of_arrow(self.rows, spark_schema(self.rows.schema, nullable=True))


def _size(files: Iterable[DataFile]) -> Size | None:
    """Return the size of some data files; None if one has no row count."""
    n_rows = 0
    n_bytes = 0
    for file in files:
        if file.rows is None:
            return None
        n_rows += file.rows
        n_bytes += file.size
    return Size(n_rows, n_bytes)
