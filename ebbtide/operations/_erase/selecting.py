"""The keys of the rows that fulfil a condition: in the sink, and among the newest entries of the state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ebbtide.errors import ConfigError
from ebbtide.runtime import ErasureKey
from ebbtide.sqltext import UnfitExpressionError
from ebbtide.tables import HashRange, RowSelection, Stored, StoredEntries
from ebbtide.user_code import packed

if TYPE_CHECKING:
    from ebbtide.executors import Executor


@dataclass(frozen=True)
class _SinkRows:
    """The rows of a sink.

    Args:
        stored: Its data files.
        key: Names of the key's columns.
    """

    stored: Stored
    key: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """See `RowSelection.of`."""
        return self.stored.columns

    @property
    def n_rows(self) -> int:
        """See `RowSelection.of`."""
        return self.stored.n_rows

    def __call__(self, part: HashRange) -> Iterator[pa.Table]:
        """See `RowSelection.of`."""
        yield self.stored.part(part, self.key)


@dataclass(frozen=True)
class _Entries:
    """The entries of a state that are not dropped.

    Args:
        entries: The stored entries.
    """

    entries: StoredEntries

    @property
    def schema(self) -> pa.Schema:
        """See `RowSelection.of`."""
        return self.entries.state.columns

    @property
    def n_rows(self) -> int:
        """See `RowSelection.of`."""
        return self.entries.state.n_rows

    def __call__(self, part: HashRange) -> Iterator[pa.Table]:
        """See `RowSelection.of`."""
        return self.entries.live(part)


def keys_where(executor: Executor, asked: ErasureKey, where: str) -> pa.Table:
    """Return the keys whose row in the sink fulfils a condition, or whose entry in the state does.

    Args:
        asked: The key that the pipeline's erasures go by.
        where: The condition, as Spark SQL.

    Raises:
        ConfigError: it is a condition neither on columns of the sink nor on those of the state.
    """
    plan = asked.plan
    key = asked.columns
    last = plan.state.last()
    if last is None:
        return key.empty_table()
    version, _ = last
    entries = StoredEntries(plan.state.stored(plan.state.snapshot(version)), packed(plan.operator))
    tables: list[tuple[_Entries | _SinkRows, tuple[str, ...]]] = [(_Entries(entries), asked.state)]
    sink = None if plan.sink_log is None else plan.delta_sink.snapshot()
    if sink is not None:
        columns = pa.schema([field.with_nullable(True) for field in plan.sink.schema])
        stored = Stored(plan.sink.path, tuple(sink.files.values()), columns, table_id=sink.id)
        tables.insert(0, (_SinkRows(stored, asked.sink), asked.sink))
    found = [key.empty_table()]
    n_usable = 0
    for rows, own_names in tables:
        # A condition on columns of only one table selects only there.
        try:
            keys = RowSelection(own_names, is_distinct=True).of(executor, rows, where)
        except UnfitExpressionError:
            continue
        n_usable += 1
        found.append(keys.rename_columns(key.names).cast(key))
    if not n_usable:
        allowed = "; or on ".join(", ".join(rows.schema.names) for rows, _ in tables)
        raise ConfigError.of(
            "The value of --where is a condition neither on the sink's columns nor on the state's.",
            got=where,
            allowed=f"SQL on {allowed}",
        )
    return RowSelection(tuple(key.names), is_distinct=True).joined(found)
