"""What the tables must hold, said a second time and slowly: plain dicts, one event after the other.

Nothing of Ebbtide is used. `fold_log` is for change events with log positions, `Histories` for changelogs that apply as
they arrive, `canonical` makes typed rows, JSON values and the truth's text comparable.
"""

from __future__ import annotations

import base64
import json
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

UNAVAILABLE = "__debezium_unavailable_value"
NO_LSN = 0
Row = dict[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Event:
    """One change as the database logged it; `arrived` decides only between events that the log does not tell apart."""

    op: str
    lsn: int | None
    before: Row | None
    after: Row | None
    arrived: int = 0

    def key(self, names: list[str]) -> Key:
        row = self.after or self.before or {}
        return tuple(row.get(name) for name in names)

    def place(self) -> tuple[int, int, int]:
        return NO_LSN if self.lsn is None else self.lsn, {"t": 0, "d": 1}.get(self.op, 2), self.arrived


def read_event(line: str | bytes, topic: str | None = None) -> Event | None:
    """Read a Kafka record that holds an envelope, with or without schema, or a flattened row; None for all else."""
    record = json.loads(line)
    if record["value"] is None or topic not in (None, record["topic"]):
        return None
    value = json.loads(record["value"])
    if "payload" in value:
        types = {f["field"]: f for f in value["schema"]["fields"]}["after"]["fields"]
        value = value["payload"] | {side: _decoded(value["payload"][side], types) for side in ("before", "after")}
    if "op" in value:
        return Event(value["op"], value["source"]["lsn"], value["before"], value["after"])
    row = {name: v for name, v in value.items() if not name.startswith("__")}
    deleted = value["__op"] == "d"
    return Event(value["__op"], value["__lsn"], row if deleted else None, None if deleted else row)


def _decoded(row: Row | None, types: list[Row]) -> Row | None:
    """Undo Connect's decimals: an unscaled integer in base64, its scale in the schema or beside it."""
    if row is None:
        return None
    found = dict(row)
    for field in types:
        name, value = field["field"], row[field["field"]]
        if value is None:
            continue
        if field.get("name", "").endswith("data.Decimal"):
            found[name] = _unscaled(value, int(field["parameters"]["scale"]))
        elif field.get("name", "").endswith("VariableScaleDecimal"):
            found[name] = _unscaled(value["value"], value["scale"])
    return found


def _unscaled(text: str, scale: int) -> str:
    number = int.from_bytes(base64.b64decode(text), "big", signed=True)
    digits = f"{abs(number):0{scale + 1}d}"
    return ("-" if number < 0 else "") + digits[: len(digits) - scale] + "." + digits[len(digits) - scale :] + "0"


def fold_log(events: list[Event], key: list[str], defaults: Row | None = None) -> dict[Key, Row]:
    """Apply each distinct event once, in the order of the log; whatever is not known in the end is UNAVAILABLE.

    A snapshot row without a place in the log counts as lowest. Where a row changes its key and some value was not sent,
    the value is the one under the old key; but not a snapshot row's that came only after the change of the key.
    """
    table: dict[
        Key, dict[str, tuple[Any, int]]
    ] = {}  # each value with the arrival of the snapshot row it is from, or -1
    done: set[tuple[int, str, Key]] = set()
    for event in sorted(events, key=Event.place):
        at = event.key(key)
        if (event.place()[0], event.op, at) in done:
            continue
        done.add((event.place()[0], event.op, at))
        if event.op == "t":
            table.clear()
        elif event.op == "d":
            table.pop(at, None)
        else:
            known = table.get(at, {})
            was = tuple((event.before or {}).get(name) for name in key)
            if event.op == "u" and was != at and None not in was:
                old = table.pop(was, {})
                known = known | {
                    n: (v, -1) for n, (v, read) in old.items() if v != UNAVAILABLE and read < event.arrived
                }
            row = (defaults or {}) | (event.after or {})
            read = event.arrived if event.lsn is None else -1
            table[at] = {n: known.get(n, (v, -1)) if _unsent(v) else (v, read) for n, v in row.items()}
    return {at: {n: v for n, (v, _) in row.items()} for at, row in table.items()}


def _unsent(value: Any) -> bool:
    return value in (UNAVAILABLE, [UNAVAILABLE])


class Histories:
    """Per key the rows not yet retracted, oldest first, what a sink shows after each change, and what was emitted on the way.

    A row is `[identity, text, stamp]`. It leaves its history when `stamp + ttl <= now`; the sink's row stays then, unless it is to be
    deleted.
    """

    def __init__(
        self,
        key: list[str],
        ttl_ms: int | None = None,
        *,
        upsert_key: Sequence[str] = (),
        deletes: bool = False,
        grace_ms: int = 0,
        max_history: int | None = None,
        first: bool = False,
        keeps_stamp: bool = False,
    ) -> None:
        self.key, self.ttl_ms, self.upsert_key, self.deletes = key, ttl_ms, list(upsert_key), deletes
        self.grace_ms, self.max_history, self.first, self.keeps_stamp = grace_ms, max_history, first, keeps_stamp
        self.rows: defaultdict[Key, list[list[Any]]] = defaultdict(list)
        self.waiting: defaultdict[Key, list[list[Any]]] = defaultdict(list)
        self.shown_row: dict[Key, list[Any]] = {}
        self.sink: dict[Key, str] = {}
        self.emitted: list[tuple[str, str]] = []
        self.unmatched = self.dropped = self.cancelled = 0

    def expire(self, clock_ms: int, keys: Iterable[Key] | None = None, *, now_ms: int | None = None) -> int:
        """Forget what is past its time, rows by one clock and waiting retractions by processing time; return how many rows."""
        gone = 0
        for at in {*self.rows, *self.shown_row, *self.waiting} if keys is None else keys:
            late = [
                each for each in self.waiting[at] if each[1] + self.grace_ms <= (clock_ms if now_ms is None else now_ms)
            ]
            self.unmatched += len(late)
            self.waiting[at] = [each for each in self.waiting[at] if each not in late]
            if self.ttl_ms is None:
                continue
            alive = [row for row in self.rows[at] if row[2] + self.ttl_ms > clock_ms]
            gone += len(self.rows[at]) - len(alive)
            self.rows[at] = alive
            if at in self.shown_row and self.shown_row[at][2] + self.ttl_ms <= clock_ms:
                last = self.shown_row.pop(at)
                if self.deletes:
                    self._show(at, self._edge(at), last[1])
        return gone

    def apply(self, kind: str, row: Row, stamp_ms: int = 0, now_ms: int = 0) -> None:
        at, text = tuple(row[name] for name in self.key), json.dumps(row, sort_keys=True)
        identity = [row[name] for name in self.upsert_key] if self.upsert_key else text
        rows, edge = self.rows[at], self._edge(at)
        found = next((each for each in rows if each[0] == identity), None)
        if kind in ("+I", "+U"):
            early = next((each for each in self.waiting[at] if each[0] == identity), None)
            if early is not None:
                self.waiting[at].remove(early)
                self.cancelled += 1
            elif found is not None and self.upsert_key:
                found[1:] = text, found[2] if self.keeps_stamp else stamp_ms
                if not self.first or found is edge:
                    self._show(at, found, text)
            else:
                rows.append([identity, text, stamp_ms])
                if not self.first or edge is None:
                    self._show(at, rows[-1], text, "+U" if edge or at in self.shown_row else "+I")
        elif found is None:
            if self.grace_ms:
                self.waiting[at].append([identity, now_ms])
            else:
                self.unmatched += 1
        else:
            self.rows[at] = [each for each in rows if each is not found]
            if found is edge or not self.rows[at]:
                self._show(at, self._edge(at), text)

    def end_step(self) -> None:
        """Drop the oldest rows of the keys that have too many."""
        for rows in self.rows.values() if self.max_history else ():
            self.dropped += len(rows[: -self.max_history])
            del rows[: -self.max_history]

    def clear(self) -> None:
        self.rows.clear()
        self.shown_row.clear()
        self.sink.clear()

    def shown(self) -> list[Row]:
        return sorted(
            (json.loads(text) for text in self.sink.values()), key=lambda row: [str(row[n]) for n in self.key]
        )

    def _edge(self, at: Key) -> list[Any] | None:
        return self.rows[at][0 if self.first else -1] if self.rows[at] else None

    def _show(self, at: Key, row: list[Any] | None, text: str, kind: str = "+U") -> None:
        if row is None:
            self.shown_row.pop(at, None)
            self.sink.pop(at, None)
            self.emitted.append(("-D", text))
        else:
            self.shown_row[at], self.sink[at] = row, row[1]
            self.emitted.append((kind, row[1]))


def canonical(value: Any, type_: pa.DataType, unit: str = "us") -> Any:
    """Bring a typed value, a Debezium JSON value or a database's text to one comparable form."""
    if value is None or _unsent(value):
        return None
    if pa.types.is_boolean(type_):
        return {"t": True, "true": True, "f": False, "false": False}[value] if isinstance(value, str) else value
    if pa.types.is_integer(type_):
        return int(value)
    if pa.types.is_decimal(type_):
        return Decimal(value).normalize()
    if pa.types.is_float32(type_):
        return struct.unpack("f", struct.pack("f", float(value)))[0]
    if pa.types.is_floating(type_):
        return float(value)
    if pa.types.is_date(type_):
        value = date(1970, 1, 1) + timedelta(days=value) if isinstance(value, int) else value
        return value if isinstance(value, date) else date.fromisoformat(value)
    if pa.types.is_timestamp(type_):
        if isinstance(value, int):
            return value * {"us": 1, "ms": 1000}[unit]
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
        return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
            microseconds=1
        )
    if pa.types.is_list(type_):
        return [
            canonical(item, type_.value_type, unit) for item in (json.loads(value) if isinstance(value, str) else value)
        ]
    return value


def canonical_rows(rows: list[Row], columns: pa.Schema, units: dict[str, str] | None = None) -> list[str]:
    """Write rows as sorted text, the columns of the schema only."""
    return sorted(
        repr([canonical(row[f.name], f.type, (units or {}).get(f.name, "us")) for f in columns]) for row in rows
    )


def differences(got: list[str], want: list[str]) -> list[str]:
    """Say which rows are missing and which are too many; empty if the tables are the same."""
    missing, extra = sorted(set(want) - set(got)), sorted(set(got) - set(want))
    twice = [] if len(got) == len(set(got)) else ["a row stands twice"]
    return [f"missing {row}" for row in missing] + [f"too many {row}" for row in extra] + twice
