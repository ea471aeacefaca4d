"""The worker's part of a comparison: a range of keys, the rows that a sink must have and those that it has.

Invariant: all rows of a key meet in one task, as ranges are those of the keys' hashes. No row passes through the JVM, and only what
differs comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Codes, Mask, count_codes, ints, row_codes
from ebbtide.entries import SinkChange
from ebbtide.tables import HashRange, Stored, StoredEntries, Take

DECIDED = "_decided"
"""Column: the sink must have a row of the key."""
SHOWN = "_shown"
"""Column: the sink has one."""
ALIKE = "_alike"
"""Column: these two are equal."""
ROWS = "_rows"
"""Column: number of the sink's rows with the key."""
STEP = "_step"
"""Column: the step that decided a row; null: unknown."""


class Side(Protocol):
    """Rows that a sink must have."""

    @property
    def n_rows(self) -> int:
        """Stored rows to read for them."""

    def rows(self, part: HashRange) -> pa.Table:
        """Read those of a range of keys: the sink's columns, and `_step`."""


@dataclass(frozen=True)
class ShownEntries:
    """Rows that a state keeps for its sink: those that no TRUNCATE left dead.

    Args:
        entries: The stored entries.
        columns: The sink's columns.
        key_of: Column of the sink's key to that of the state's.
        is_below: Marks rows below the floor; None: there is no floor.
    """

    entries: StoredEntries
    columns: pa.Schema
    key_of: dict[str, str]
    is_below: Callable[[pa.Table], Mask] | None = None

    @property
    def n_rows(self) -> int:
        """See `Side`."""
        return self.entries.state.n_rows

    def rows(self, part: HashRange) -> pa.Table:
        """See `Side`."""
        shown = self.entries.shown(part, self.schema, self.key_of)
        rows = pa.concat_tables([self.schema.empty_table(), *shown])
        if self.is_below is None:
            return rows
        return rows.filter(pa.array(~self.is_below(rows)))

    @property
    def schema(self) -> pa.Schema:
        """The sink's columns, and `_step`."""
        return self.columns.append(pa.field(STEP, pa.int64()))


@dataclass(frozen=True)
class TableRows:
    """Rows of a table with a sink's columns.

    Args:
        stored: The table's data files.
        key: Names of the key's columns, in the order that ranges go by.
        changes: Changes to the rows: `_change` and the sink's columns, each key once. None: none.
        is_below: See `ShownEntries`.
    """

    stored: Stored
    key: tuple[str, ...]
    changes: pa.Table | None = None
    is_below: Callable[[pa.Table], Mask] | None = None

    @property
    def n_rows(self) -> int:
        """See `Side`."""
        return self.stored.n_rows

    def rows(self, part: HashRange) -> pa.Table:
        """See `Side`."""
        rows = self.stored.part(part, self.key)
        if self.changes is not None:
            rows = _changed(rows, part.only(self.changes, self.key), self.key)
        if self.is_below is not None:
            rows = rows.filter(pa.array(~self.is_below(rows)))
        return rows.append_column(STEP, pa.nulls(len(rows), pa.int64()))


def _changed(rows: pa.Table, changes: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Return rows with changes applied."""
    changed, of_rows = _in_both(changes, rows, key)
    is_there = pc.not_equal(changes["_change"], SinkChange.DELETE)
    coming = changes.filter(is_there).select(rows.column_names).cast(rows.schema)
    stays = ~np.isin(of_rows, changed)
    return pa.concat_tables([rows.filter(pa.array(stays)), coming])


def _in_both(first: pa.Table, second: pa.Table, key: tuple[str, ...]) -> tuple[Codes, Codes]:
    """Number the keys of two tables: equal ones alike."""
    keys = second.select(key)
    both = pa.concat_tables([first.select(key).cast(keys.schema), keys])
    codes = row_codes(both, key)
    return codes[: len(first)], codes[len(first) :]


class Compared(NamedTuple):
    """The result of comparing a range.

    Attributes:
        differing: A row for each key that differs: the key's columns, `_decided`, `_shown`, `_alike`, `_rows`.
        taken: What `Take` returned for the rows of these keys that must come; None if there are none.
        samples: The least of these keys, their rows in both as structs, `_decided` and `_shown`, and `_rows`.
    """

    differing: pa.Table
    taken: Any
    samples: pa.Table


@dataclass(frozen=True)
class CompareRange:
    """Compares the rows of a range of keys; runs in workers.

    Args:
        decided: The rows that the sink must have.
        sink: The rows that it has.
        names: Columns that are compared.
        accepted: Acknowledged keys under the sink's names, and `_step`: they are left out, unless the row is of a later step.
        only_decided: Leave out rows of the sink that need not be there: the state may have forgotten them.
        forgotten: Rows of keys that `decided` does not have; None: it has all.
        take: Takes the rows that must come; None: they are not asked for.
        n_samples: Maximum number of keys whose rows are returned.
    """

    decided: Side
    sink: TableRows
    names: tuple[str, ...]
    accepted: pa.Table
    only_decided: bool = False
    forgotten: TableRows | None = None
    take: Take | None = None
    n_samples: int = 0

    @property
    def n_rows(self) -> int:
        """Stored rows of the larger side."""
        return max(self.decided.n_rows, self.sink.n_rows)

    def __call__(self, part: HashRange) -> Compared:
        """Compare the rows of a part."""
        key = self.sink.key
        decided = self.decided.rows(part)
        sink = self.sink.rows(part)
        differing, rows = _differing(decided, sink, key, self.names)
        if self.only_decided:
            differing = differing.filter(differing[DECIDED])
        is_accepted = _accepted(differing, self.accepted, key)
        differing = differing.filter(pa.array(~is_accepted))
        taken = None
        if self.take is not None:
            taken = _taken(decided.take(rows), self.accepted, key, self.take)
        samples = [self._samples(differing, decided, sink)]
        found = [differing]
        if self.forgotten is not None:
            forgotten = self.forgotten.rows(part)
            more, _ = _differing(forgotten, sink, key, self.names)
            of_more, of_decided = _in_both(more, decided, key)
            more = more.filter(pa.array(~np.isin(of_more, of_decided)))
            found.append(more)
            samples.append(self._samples(more, forgotten, sink))
        return Compared(pa.concat_tables(found).drop_columns([STEP]), taken, pa.concat_tables(samples))

    def _samples(self, differing: pa.Table, decided: pa.Table, sink: pa.Table) -> pa.Table:
        """Return the rows of the least of some keys."""
        key = self.sink.key
        least = least_keys(differing.select([*key, ROWS]), key, self.n_samples)
        for name, rows in ((DECIDED, decided), (SHOWN, sink)):
            least = least.append_column(name, _least_rows(least, rows, key, self.names))
        return least


def least_keys(rows: pa.Table, key: Sequence[str], most: int) -> pa.Table:
    """Return the rows with the least keys, in their order, nulls first.

    Args:
        rows: With the columns of the key.
        key: Their names.
        most: Maximum number of rows.
    """
    if not most:
        return rows.slice(0, 0)
    return rows.take(_order(rows, key)[:most])


def _order(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Return the positions of rows, from the least on by some columns, nulls first."""
    columns = {}
    for number, name in enumerate(names):
        columns[f"is set {number}"] = rows[name].is_valid()  # false is less than true
        columns[f"value {number}"] = rows[name]
    return pc.sort_indices(pa.table(columns), [(name, "ascending") for name in columns])


def _least_rows(keys: pa.Table, rows: pa.Table, key: tuple[str, ...], names: tuple[str, ...]) -> pa.StructArray:
    """Return the row of each key as a struct, null if there is none; of several the least, as far as their columns have an order."""
    of_rows, of_keys = _in_both(rows, keys, key)
    own = np.flatnonzero(np.isin(of_rows, of_keys))
    columns = rows.take(pa.array(own)).select(names)
    plain = [field.name for field in columns.schema if not pa.types.is_nested(field.type)]
    # From the greatest to the least: of equal keys the last one stays.
    greatest_first = _order(columns, plain).to_numpy()[::-1]
    at = dict(zip(of_rows[own][greatest_first].tolist(), greatest_first.tolist(), strict=True))
    places = pa.array([at.get(code) for code in of_keys.tolist()], pa.int64())
    values = [columns[name].combine_chunks().take(places) for name in names]
    return pa.StructArray.from_arrays(values, fields=list(columns.schema), mask=places.is_null())


@dataclass(frozen=True)
class TakeRange:
    """Takes all rows that a sink must have of a range of keys; runs in workers.

    Args:
        decided: The rows.
        key: The sink's key.
        accepted: See `CompareRange`.
        take: Takes them.
    """

    decided: Side
    key: tuple[str, ...]
    accepted: pa.Table
    take: Take

    def __call__(self, part: HashRange) -> Any:
        """Take the rows of a part; None if there are none."""
        return _taken(self.decided.rows(part), self.accepted, self.key, self.take)


@dataclass(frozen=True)
class TakeColumns:
    """Takes some columns of rows; a `Take`.

    Args:
        names: Names of the columns.
        take: Takes them.
    """

    names: tuple[str, ...]
    take: Take

    def __call__(self, rows: pa.Table) -> Any:
        """Take rows."""
        return self.take(rows.select(self.names))


def _taken(rows: pa.Table, accepted: pa.Table, key: tuple[str, ...], take: Take) -> Any:
    """Return what `take` returns for rows that were not acknowledged; None if there are none."""
    left = rows.filter(pa.array(~_accepted(rows, accepted, key)))
    return take(left.drop_columns([STEP])) if len(left) else None


def _differing(
    decided: pa.Table, sink: pa.Table, key: tuple[str, ...], names: tuple[str, ...]
) -> tuple[pa.Table, pa.Array]:
    """Return a row for each differing key (see `Compared`, and `_step`), and the positions of their decided rows.

    Args:
        decided: Rows that the sink must have, one a key.
        sink: Rows that it has.
        key: The key's columns.
        names: Columns that are compared.
    """
    n_decided, n_sink = len(decided), len(sink)
    keys = pa.concat_tables([decided.select(key), sink.select(key)])
    rows = pa.concat_tables([decided.select(names), sink.select(names)])
    key_codes = row_codes(keys, key)
    codes = row_codes(rows, names)
    n_keys = count_codes(key_codes)
    # Position of a key's decided row, and of the first of the sink's; -1: it has none.
    decided_at = np.full(n_keys, -1)
    decided_at[key_codes[:n_decided]] = np.arange(n_decided)
    shown_at = np.full(n_keys, -1)
    shown_at[key_codes[n_decided:][::-1]] = np.arange(n_decided, n_decided + n_sink)[::-1]
    n_shown = np.bincount(key_codes[n_decided:], minlength=n_keys)
    is_decided = decided_at >= 0
    is_shown = shown_at >= 0
    is_alike = is_decided & is_shown
    is_alike[is_alike] = codes[decided_at[is_alike]] == codes[shown_at[is_alike]]
    differs = ~(is_alike & (n_shown == 1))
    at = np.where(is_decided, decided_at, shown_at)[differs]
    steps = pa.concat_arrays([*decided[STEP].chunks, pa.nulls(n_sink, pa.int64())])
    found = keys.take(pa.array(at))
    marks = {DECIDED: is_decided, SHOWN: is_shown, ALIKE: is_alike, ROWS: n_shown}
    for name, values in marks.items():
        found = found.append_column(name, pa.array(values[differs]))
    return found.append_column(STEP, steps.take(pa.array(at))), pa.array(decided_at[differs & is_decided])


def _accepted(rows: pa.Table, accepted: pa.Table, key: tuple[str, ...]) -> Mask:
    """Mark the rows whose key was acknowledged after the step that decided them."""
    is_accepted = np.zeros(len(rows), dtype=bool)
    if not len(accepted) or not len(rows):
        return is_accepted
    of_rows, of_accepted = _in_both(rows, accepted, key)
    last = np.zeros(1 + max(of_rows.max(), of_accepted.max()), np.int64)
    np.maximum.at(last, of_accepted, ints(accepted, STEP))
    return np.asarray(last[of_rows] > ints(rows, STEP, null=0))
