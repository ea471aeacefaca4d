"""Debezium change events, in the three forms that Kafka Connect writes.

| form | looks like |
|---|---|
| envelope | `{"before", "after", "source": {"lsn", "ts_ms", ...}, "op"}` |
| with schema | `{"schema": ..., "payload": <envelope or flattened>}`; decimals, times and bits as the schema says |
| flattened | the columns, and `__op`, `__lsn`, `__source_ts_ms`, `__deleted` (ExtractNewRecordState) |

Operations: c, u, r (snapshot) add a row; d removes one; t empties the table; m, a message that an application wrote into the
log, changes no row and is skipped. Where a change stands in the database's log:

| sequence column | Postgres | MySQL, MariaDB |
|---|---|---|
| `_lsn` | `source.lsn`; of a snapshot row without one `source.ts_ms` - 2^63 | |
| `_file`, `_pos`, `_row` | | the number after the last dot of `source.file`, `source.pos`, `source.row` |
| `_ts_ms` | `source.ts_ms` | |

A flattened row has them as `__lsn` or `__source_lsn` and so on. Source: Debezium 3.7, "Data change events" of the Postgres,
MySQL and MariaDB connectors.

A retraction (arrival mode) needs the whole row before the change, which Postgres sends for tables with REPLICA IDENTITY
FULL. With DEFAULT an update comes without `before`; a delete's has the key's columns, and may have the others as null, 0,
'' or 1970, which a row may also have been.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ebbtide.formats.change import BadRecordError, Change, Json
from ebbtide.formats.columns import TimeUnit
from ebbtide.model.changelog import TRUNCATE, RowKind
from ebbtide.model.entries import LONG_MIN
from ebbtide.model.sequences import LOG_POSITIONS

UNAVAILABLE = "__debezium_unavailable_value"
_FILLERS = (None, 0, "", False)
_EPOCH = "1970-01-01T00:00:00"
OPERATIONS = ("c", "r", "u", "d", "t")
MESSAGE = "message"
"""The kind of a change that is none: a logical decoding message."""
_UNAVAILABLE_BYTES = base64.b64encode(UNAVAILABLE.encode()).decode()
_UNITS: dict[str, TimeUnit] = {
    "io.debezium.time.Timestamp": "ms",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
}
_UNSCALED_BYTES = 1024
"""Longest unscaled decimal: a column takes 38 digits, beyond them there can only be zeros; the time to convert grows with the square."""


def unavailable_form(type_: pa.DataType) -> str | list[str] | None:
    """Return what stands, in a column of this type, for a value that the database did not log as it had not changed."""
    if pa.types.is_list(type_):
        return [UNAVAILABLE]
    return _UNAVAILABLE_BYTES if pa.types.is_binary(type_) else UNAVAILABLE if pa.types.is_string(type_) else None


@dataclass(frozen=True)
class DebeziumDecoder:
    """Decodes Debezium events.

    Args:
        key: Names of the key's columns.
        sequence: What orders a key's changes; empty in arrival mode.
        retract: Give the whole row before a change as a retraction (arrival mode), instead of only deleted keys.
        table: Take only events of this source table, `orders` or `public.orders`; None takes all.
        columns: Names of the pipeline's columns.
    """

    key: tuple[str, ...]
    sequence: tuple[str, ...] = ("_lsn",)
    retract: bool = False
    table: str | None = None
    columns: tuple[str, ...] = ()

    def changes(self, value: Json, key: str | None) -> list[Change]:
        """See `Decoder.changes`."""
        fields: dict[str, Json] = {}
        if value.keys() == {"schema", "payload"}:
            fields = _row_fields(value["schema"])
            value = value["payload"]
            if not isinstance(value, dict):
                raise BadRecordError("not_a_change", f"payload: got {_short(value)}; allowed: an object")
        is_flattened = "__op" in value or "__deleted" in value
        if value.get("__op" if is_flattened else "op") == "m":
            return [Change(MESSAGE, None, "m")]  # it is of no table
        if is_flattened:
            return self._flattened(value, fields)
        if "op" not in value:
            raise BadRecordError(
                "not_a_change",
                f"got fields {sorted(value)[:8]}; allowed: a Debezium envelope (op, before, after, source) or a flattened row (__op)",
            )
        return self._envelope(value, key, fields)

    def _envelope(self, value: Json, key: str | None, fields: dict[str, Json]) -> list[Change]:
        source = value.get("source")
        if not isinstance(source, dict):
            raise BadRecordError(
                "missing_source", f"source: got {_short(source)}; allowed: an object with the change's place and ts_ms"
            )
        if self.table and not self._of_table(source.get("schema") or source.get("db"), source.get("table")):
            return []
        event_ms = _integer(source.get("ts_ms"), "source.ts_ms", "bad_event_time")
        before, after = (_row(value.get(side), side, fields) for side in ("before", "after"))
        if before is None and value["op"] == "d":
            before = _key_row(key)
        position = self._position(value["op"], event_ms, source, "source.")
        return self._build(value["op"], before, after, position, event_ms, fields)

    def _flattened(self, value: Json, fields: dict[str, Json]) -> list[Change]:
        schema = value.get("__schema") or value.get("__db")
        if self.table and not self._of_table(schema, value.get("__table", self.table)):
            return []
        row = _row({c: v for c, v in value.items() if not c.startswith("__")}, "row", fields)
        op = value.get("__op", "d" if value.get("__deleted") == "true" else None)
        event_ms = _integer(value.get("__source_ts_ms"), "__source_ts_ms", "bad_event_time")
        fields_of_source = ("lsn", "file", "pos", "row")
        source = {name: value.get(f"__source_{name}", value.get(f"__{name}")) for name in fields_of_source}
        source["ts_ms"] = value.get("__source_ts_ms")  # __ts_ms is the connector's clock
        position = self._position(op, event_ms, source, "__")
        return self._build(op, row if op == "d" else None, None if op == "d" else row, position, event_ms, fields)

    def _of_table(self, schema: Any, table: Any) -> bool:
        return self.table in (table, f"{schema}.{table}")

    def _left(self, before: Json, new: Json) -> Json:
        """Return the row under its old key, with the sequence at which it leaves it: its own, else that of the row that it becomes."""
        if not self._is_key_only(before):
            return before
        return before | {name: new[name] for name in self._own_sequence if name in new}

    def _is_key_only(self, row: Json) -> bool:
        """Whether a row before a change holds the key alone: Postgres fills the other columns without REPLICA IDENTITY FULL."""
        return all(value in _FILLERS or str(value).startswith(_EPOCH) for c, value in row.items() if c not in self.key)

    @property
    def _own_sequence(self) -> list[str]:
        return [name for name in self.sequence if name not in LOG_POSITIONS and name not in self.key]

    def _position(self, op: Any, event_ms: int | None, source: Json, prefix: str) -> tuple[int | None, ...]:
        """Return where a change stands in the database's log: each column of the sequence that is such a place."""
        found: list[int | None] = []
        for column in self.sequence:
            if column not in LOG_POSITIONS:
                continue
            name = column.removeprefix("_")
            value = source.get(name)
            if column == "_file":
                value = _file_number(value, prefix + name)
            value = _integer(value, prefix + name, "bad_sequence")
            if value is not None and value < 0:
                raise BadRecordError("bad_sequence", f"{prefix}{name}: got {value}; allowed: 0 to 2^63 - 1")
            if value is None and column == "_lsn" and op == "r":
                # An incremental snapshot's row stands below all changes, by its time.
                value = LONG_MIN + max(event_ms or 0, 0)
            found.append(value)
        return tuple(found)

    def _build(
        self,
        op: Any,
        before: Json | None,
        after: Json | None,
        position: tuple[int | None, ...],
        event_ms: int | None,
        fields: dict[str, Json],
    ) -> list[Change]:
        if op not in OPERATIONS:
            raise BadRecordError("unknown_operation", f"op: got {_short(op)}; allowed: {', '.join(OPERATIONS)}")
        units = {c: _UNITS[f["name"]] for c, f in fields.items() if f.get("name") in _UNITS} or None
        if op == "t":
            return [Change(TRUNCATE, None, op, position, event_ms)]
        if op == "d":
            old = self._whole(before, op) if self.retract else self._present(before, "before", op)
            if self._own_sequence and self._is_key_only(old):
                # What fills the row up is no sequence.
                old = {name: value for name, value in old.items() if name in self.key}
            return [Change(RowKind.DELETE, old, op, position, event_ms, units=units)]
        new = self._present(after, "after", op)
        if op == "u" and self.retract:
            old = self._whole(before, op)
            return [
                Change(k, r, op, position, event_ms, units=units)
                for k, r in ((RowKind.UPDATE_BEFORE, old), (RowKind.UPDATE_AFTER, new))
            ]
        add = Change(RowKind.UPDATE_AFTER if op == "u" else RowKind.INSERT, new, op, position, event_ms, units=units)
        if (
            op == "u"
            and before
            and all(before.get(k) is not None for k in self.key)
            and any(before[k] != new.get(k) for k in self.key)
        ):
            moved = Change(add.kind, new, op, position, event_ms, old_row=before, units=units)
            gone = self._left(before, new)
            return [Change(RowKind.UPDATE_BEFORE, gone, op, position, event_ms, units=units), moved]
        return [add]

    def _whole(self, before: Json | None, op: str) -> Json:
        """Refuse a row before the change that is not there, or is surely no more than its key."""
        others = set(self.columns) - set(self.key)
        if before is None or (others and not others & before.keys()):
            raise BadRecordError(
                "missing_before",
                f"before: got {_short(before)}; allowed: the whole row, which op {op!r} needs with order: arrival. Next: ALTER TABLE ... REPLICA IDENTITY FULL",
            )
        return before

    @staticmethod
    def _present(row: Json | None, side: str, op: str) -> Json:
        if row is None:
            raise BadRecordError(f"missing_{side}", f"{side}: got null; allowed: the row, which op {op!r} needs")
        return row


def _row(value: Any, side: str, fields: dict[str, Json]) -> Json | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadRecordError("not_a_row", f"{side}: got {_short(value)}; allowed: an object or null")
    if not fields:
        return value
    try:
        return {c: _logical(v, fields[c]) if c in fields else v for c, v in value.items()}
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:
        raise BadRecordError(
            "schema_mismatch", f"{side}: {error}; allowed: values in the form that the record's schema gives"
        ) from error


def _key_row(key: str | None) -> Json | None:
    """Read a record's key, with or without its schema, as a row of the key's columns."""
    try:
        row = json.loads(key or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    fields: dict[str, Json] = {}
    if "payload" in row:
        fields = _row_fields(row["schema"]) if "schema" in row else {}
        row = row["payload"]
    return _row(row, "key", fields) if isinstance(row, dict) else None


def _row_fields(schema: Any) -> dict[str, Json]:
    """Find the row's fields in a Connect schema: those of `after`, or of the flattened row itself."""
    try:
        fields = {f["field"]: f for f in schema["fields"]}
        fields = {f["field"]: f for f in fields["after"]["fields"]} if "after" in fields else fields
        hash(tuple(f.get("name") for f in fields.values()))  # looked up later: a list there is refused here
    except (KeyError, TypeError, AttributeError) as error:
        raise BadRecordError(
            "bad_schema", f"schema: got {_short(schema)}; allowed: a Kafka Connect schema with fields"
        ) from error
    return fields


def _logical(value: Any, field: Json) -> Any:
    """Undo Connect's encoding of decimals and bits; other values are read by the column's type."""
    name = field.get("name")
    if value is None or value in (UNAVAILABLE, _UNAVAILABLE_BYTES):
        return value
    if name == "org.apache.kafka.connect.data.Decimal" and isinstance(value, str):
        return _unscaled(value, int(field["parameters"]["scale"]))
    if name == "io.debezium.data.VariableScaleDecimal":
        return _unscaled(value["value"], int(value["scale"]))
    if name == "io.debezium.data.Bits" and isinstance(value, str):
        return bits(value)
    return value


def bits(text: str) -> int:
    """Read a BIT(n) column: base64 of its bytes, the lowest first."""
    return int.from_bytes(base64.b64decode(text, validate=True), "little")


def _file_number(name: Any, field: str) -> int | None:
    """Read the number of a binary log's file: `mariadb-bin.000003` is 3, and 1000000 comes after 999999."""
    if name is None:
        return None
    number = name.rpartition(".")[2] if isinstance(name, str) else ""
    if not (number.isascii() and number.isdigit() and len(number) <= 18):
        raise BadRecordError(
            "bad_sequence", f"{field}: got {_short(name)}; allowed: a name that ends in . and a number"
        )
    return int(number)


def _unscaled(text: str, scale: int) -> str:
    data = base64.b64decode(text, validate=True)
    if len(data) > _UNSCALED_BYTES:
        raise ValueError(f"a decimal of {len(data)} bytes")
    unscaled = int.from_bytes(data, "big", signed=True)
    sign, digits, _ = Decimal(unscaled).as_tuple()
    return str(Decimal((sign, digits, -scale)))


def _integer(value: Any, name: str, reason: str) -> int | None:
    if value is None or (type(value) is int and -(2**63) <= value < 2**63):
        return value
    raise BadRecordError(reason, f"{name}: got {_short(value)}; allowed: an integer of 64 bits")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
