"""The states of a stateful function as rows of a state table, and back.

In addition to the columns of `ebbtide.entries._entry` and the key's:

| column | meaning |
|---|---|
| `_state` | name of the state, `@timers` for timers; null in rows for the sink |
| `_sub` | identifies the entry within the key: '' for a value, a list element's position, a timer's `CLOCK/time`, the name of a map's key |
| `_position` | a list's position, a timer's time in epoch ms; else null |
| `_ttl_ms` | the entry's time to live; null: its state's |
| `_key_NAME` | the map's key, of map state NAME |
| `_value_NAME` | the value, the list's element, the map's value, of state NAME |
| `_out` | for rows of the sink (those with a `_change`): the row |

The name of a map's key is `-` for null, else `=` and a text by the key's declared type, the same for equal keys:

| type | text |
|---|---|
| BOOLEAN | `true`, `false` |
| TINYINT to BIGINT | digits |
| DECIMAL | digits, no zeros at the end of the fraction: `1.5` for 1.50, `100` for 1E+2, `0` for -0 |
| STRING | itself |
| BINARY | hexadecimal, lower case |
| DATE | `2026-01-31` |
| TIMESTAMP, TIMESTAMP_NTZ | microseconds since 1970-01-01 (UTC) |

`_stamp_ms` is null if nothing expires.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import map_key
from ebbtide.keyed_state import TIMERS, Entry
from ebbtide.operators._stateful.store import StateSpec, WorkingStore

Key = tuple[Any, ...]
EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH = EPOCH_UTC.replace(tzinfo=None)
MICROSECOND = timedelta(microseconds=1)


class UnfitValueError(ValueError):
    """Raised when a value does not fit the type of its column."""

    def __init__(
        self,
        column: str,
        allowed: str,
        why: str,
    ) -> None:
        super().__init__(why)
        for prefix in ("_value_", "_key_", "_"):
            column = column.removeprefix(prefix)
        self.column = column
        self.allowed = allowed


def state_columns(states: dict[str, StateSpec], output: pa.Schema) -> dict[str, pa.DataType]:
    """Return the columns that states add to a state table."""
    types: dict[str, pa.DataType] = {
        "_state": pa.string(),
        "_sub": pa.string(),
        "_position": pa.int64(),
        "_ttl_ms": pa.int64(),
    }
    for name, spec in states.items():
        if spec.key is not None:
            types[f"_key_{name}"] = spec.key
        types[f"_value_{name}"] = spec.value
    out_fields = [column.with_nullable(True) for column in output]
    types["_out"] = pa.struct(out_fields)
    return types


def load(
    entries: pa.Table,
    keys: Sequence[Key],
    states: dict[str, StateSpec],
    store: WorkingStore,
) -> None:
    """Put stored entries into a store.

    Args:
        entries: (n,) rows, the newest version of each, none removed.
        keys: (n,) their keys.
        states: The states declared; entries of undeclared states are ignored.
        store: Receives the entries.
    """
    names = entries["_state"].combine_chunks()
    for name in [*states, TIMERS]:
        is_of_state = pc.equal(names, name).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(is_of_state)
        if not len(rows):
            continue
        own = entries.take(pa.array(rows))
        if name == TIMERS:
            subs = _timer_subs(own)
            values = [True] * len(own)
        else:
            subs = _subs(own, name, states[name])
            values = _list(own, f"_value_{name}")
        columns = (
            rows.tolist(),
            subs,
            values,
            _list(own, "_stamp_ms"),
            _list(own, "_ttl_ms"),
        )
        loaded = list(zip(*columns, strict=True))
        if _is_list(states.get(name)):
            loaded.sort(key=lambda element: element[1])  # by position
        state = store.state(name)
        for row, sub, value, stamp_ms, ttl_ms in loaded:
            entry = Entry(value, stamp_ms, ttl_ms)
            state.load(keys[row], sub, entry)


def _timer_subs(rows: pa.Table) -> list[Any]:
    """Return the sub-keys of timers: clock and time."""
    subs: list[Any] = []
    names = _list(rows, "_sub")
    times = _list(rows, "_position")
    for name, time_ms in zip(names, times, strict=True):
        clock, _, _ = name.partition("/")
        subs.append((clock, time_ms))
    return subs


def _subs(
    rows: pa.Table,
    name: str,
    spec: StateSpec,
) -> list[Any]:
    """Return the sub-keys of a state's entries."""
    if _is_list(spec):
        return _list(rows, "_position")
    if spec.key is not None:
        return _list(rows, f"_key_{name}")
    return [None] * len(rows)


def changed_rows(
    store: WorkingStore,
    states: dict[str, StateSpec],
) -> tuple[list[Key], dict[str, list[Any]]]:
    """Return the keys and columns of the entries that a step changed or removed."""
    keys: list[Key] = []
    names = [
        "_state",
        "_sub",
        "_position",
        "_ttl_ms",
        "_stamp_ms",
        "_removed",
    ]
    for name, spec in states.items():
        names.append(f"_value_{name}")
        if spec.key is not None:
            names.append(f"_key_{name}")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for name, state in store.states.items():
        declared = states.get(name)
        for key, sub, entry in state.changes():
            keys.append(key)  # type: ignore[arg-type]
            value, stamp_ms, ttl_ms = entry or (None, None, None)
            columns["_state"].append(name)
            columns["_sub"].append(_sub_name(sub, declared))
            columns["_position"].append(_position(name, sub, declared))
            columns["_removed"].append(entry is None)
            columns["_stamp_ms"].append(stamp_ms)
            columns["_ttl_ms"].append(ttl_ms)
            if declared is None:
                continue
            columns[f"_value_{name}"].append(value)
            if declared.key is not None:
                columns[f"_key_{name}"].append(sub)
        # The columns of other states are null in these rows.
        for column in columns.values():
            n_missing = len(keys) - len(column)
            column.extend([None] * n_missing)
    return keys, columns


def to_table(
    schema: pa.Schema,
    key: Sequence[str],
    keys: Sequence[Key],
    columns: dict[str, list[Any]],
    step: int,
) -> pa.Table:
    """Build a table of the state's types from rows.

    Args:
        schema: Schema of an entry.
        key: Names of the key's columns.
        keys: (n,) the rows' keys.
        columns: Column to up to n values; nulls follow.
        step: The step that writes them.

    Raises:
        UnfitValueError: a value does not fit its column.
    """
    n = len(keys)
    given = dict(columns)
    given["_step"] = [step] * n
    for part, name in enumerate(key):
        given[name] = [values[part] for values in keys]
    arrays = []
    for field in schema:
        values = given.get(field.name, [])
        missing = [None] * (n - len(values))
        try:
            array = pa.array(values + missing, field.type)
        except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
            raise UnfitValueError(
                column=field.name,
                allowed=str(field.type),
                why=str(error),
            ) from error
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def _position(
    name: str,
    sub: Any,
    spec: StateSpec | None,
) -> int | None:
    """Return `_position` of an entry: a timer's time, a list element's place."""
    if name == TIMERS:
        _, time_ms = sub
        return int(time_ms)
    if _is_list(spec):
        return int(sub)
    return None


def _is_list(spec: StateSpec | None) -> bool:
    return spec is not None and spec.kind.is_list


def _sub_name(sub: Any, spec: StateSpec | None) -> str:
    """Return `_sub` of an entry."""
    if spec is not None and spec.key is not None:
        return _map_key_name(sub)
    if isinstance(sub, tuple):  # a timer
        clock, time_ms = sub
        return f"{clock}/{time_ms}"
    if sub is None:
        return ""
    return str(sub)


def _map_key_name(sub: Any) -> str:
    """Name a map's key, whose type was checked; see above."""
    match sub:
        case None:
            return "-"
        case bool():
            text = str(sub)
            return f"={text.lower()}"
        case bytes():
            return f"={sub.hex()}"
        case datetime():
            epoch = EPOCH if sub.tzinfo is None else EPOCH_UTC
            since_epoch = sub - epoch
            return f"={since_epoch // MICROSECOND}"
        case Decimal():
            normal = map_key(sub)
            return f"={normal:f}"
        case _:
            return f"={sub}"


def _list(rows: pa.Table, name: str) -> list[Any]:
    values = rows[name].to_pylist(maps_as_pydicts="strict")
    return list(values)
