"""From raw records to typed changelog rows, a batch at a time; bad records become rows with a reason.

A staged row is a changelog row (`ebbtide.model.changelog`) and these columns:

| column | meaning |
|---|---|
| `_reason`, `_detail` | why the record is bad: a short code, a sentence; null for good ones |
| `_raw` | the bad record's bytes; of a line that is too large its head, as long as is allowed |
| `_ignored` | columns that the record has and the pipeline's schema has not, separated by commas |

Records that change nothing are staged too where their place must be known, so that the places read have no gaps. `_kind` is
`tombstone` for one without a value, of a kind that is not taken, or that changes no row by its kind (Debezium's `m`);
`skipped`, in arrival mode, for another one without a change for this pipeline, as of another table; `bad` for a bad record
that names its place, null for one that does not. Records of other topics are not staged: their places are of partitions of
their own.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import from_json

from ebbtide.formats.change import BadRecordError, Change, Decoder, Json
from ebbtide.formats.columns import InexactNumberError, TimeUnit, convert
from ebbtide.formats.debezium import bits, unavailable_form
from ebbtide.formats.records import MAX_RECORD_BYTES
from ebbtide.model.changelog import ORDER, ORIGIN, TRUNCATE, RowKind, changelog_schema
from ebbtide.model.sequences import LOG_POSITIONS, is_log_position, sequence_type

TOMBSTONE, SKIPPED, BAD = "tombstone", "skipped", "bad"
STAGED_COLUMNS = {"_reason": pa.string(), "_detail": pa.string(), "_raw": pa.binary(), "_ignored": pa.string()}
Encoding = Literal["unsigned", "bits"]
_ABSENT = object()
_UNSIGNED_BEYOND = 2**64


@dataclass(frozen=True)
class Decoding:
    """Everything that decoding needs; sent to the workers.

    Args:
        columns: The user's columns; not nullable ones refuse null.
        key: Names of the key's columns.
        decoder: Format of the records' values.
        defaults: Column to the JSON value that it has in records from before it was added.
        kafka_records: Lines hold Kafka records (topic, partition, offset, key, value) instead of bare values.
        topic: Take only records of this topic; None takes all.
        sequence: Columns that order changes, the source's or the user's; empty in arrival mode.
        kinds: Kinds of changes to take; the others are skipped as tombstones are.
        truncates: TRUNCATE may come; else it is bad.
        event_time: Column with the event time; None takes the source's own.
        needs_event_time: Something expires by event time, so that it may not be null.
        time_units: What integers mean in timestamp columns; microseconds where not given.
        encodings: How integers are coded, where they are not numbers: see `DebeziumFormat`.
        max_record_bytes: Longer records are bad.
        max_ahead_ms: Records whose event time is further ahead of now are bad; None takes any.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    decoder: Decoder
    defaults: Mapping[str, Any] = field(default_factory=dict)
    kafka_records: bool = False
    topic: str | None = None
    sequence: tuple[str, ...] = ()
    kinds: frozenset[str] = frozenset({*RowKind, TRUNCATE})
    truncates: bool = True
    event_time: str | None = None
    needs_event_time: bool = False
    time_units: Mapping[str, TimeUnit] = field(default_factory=dict)
    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    max_record_bytes: int = MAX_RECORD_BYTES
    max_ahead_ms: int | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a staged row."""
        changes = changelog_schema(self.columns, self.key, self.sequence)
        return pa.schema([*changes, *(pa.field(n, t) for n, t in STAGED_COLUMNS.items())])

    def decode(self, records: Iterable[pa.RecordBatch], *, step: int, wall_ms: int | None) -> Iterator[pa.RecordBatch]:
        """Decode batches of `RECORDS`, good rows and bad ones together.

        Args:
            records: Raw records.
            step: Number of the step, for `_order`.
            wall_ms: Wall time of the step, epoch ms, which `max_ahead_ms` counts from; None: it is not known, none is ahead.
        """
        for batch in records:
            with _no_cycles():
                try:
                    staged = _Batch(self, batch, step, wall_ms, _parse).staged()
                except InexactNumberError:
                    staged = _Batch(self, batch, step, wall_ms, _parse_exactly).staged()
            yield from staged.to_batches()


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Keep the collector of cycles from looking at millions of small objects that are in none: a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(slots=True)
class _Record:
    """One record on its way: where it stands, and what is wrong with it, if anything."""

    row: int
    origin: tuple[str, int, int]
    names_place: bool = False
    bad: BadRecordError | None = None


class _Batch:
    def __init__(
        self,
        decoding: Decoding,
        batch: pa.RecordBatch,
        step: int,
        wall_ms: int | None,
        parse: Callable[[str | bytes], Json],
    ) -> None:
        self.d, self.batch, self.step, self.wall_ms, self.parse = decoding, batch, step, wall_ms, parse
        self.raw = batch.column("value").to_pylist()
        self.records: list[_Record] = []
        self.changes: list[tuple[Change, _Record]] = []
        self.tombstones: list[_Record] = []
        self.skipped: list[_Record] = []
        self._read()
        self.own_units = any(change.units for change, _ in self.changes)

    def _read(self) -> None:
        files, lines = self.batch.column("file").to_pylist(), self.batch.column("line").to_pylist()
        for row, raw in enumerate(self.raw):
            if not raw.strip():
                continue
            record = _Record(row, (files[row], 0, lines[row]))
            try:
                for change in self._changes(raw, record):
                    if change.kind in self.d.kinds:
                        self.changes.append((change, record))
                    else:
                        self.tombstones.append(record)
            except BadRecordError as error:
                record.bad = error
                if error.place:
                    record.origin, record.names_place = ("", *error.place), True
                self.records.append(record)

    def _changes(self, raw: bytes, record: _Record) -> list[Change]:
        if len(raw) > self.d.max_record_bytes:
            limit = self.d.max_record_bytes  # by how much is not known: a reader cuts a line there
            raise BadRecordError("too_large", f"got more than {limit} bytes; allowed: up to {limit}")
        value, key = self.parse(raw), None
        if self.d.kafka_records:
            if value.get("topic") != self.d.topic and self.d.topic and isinstance(value.get("topic"), str):
                return []
            record.origin, record.names_place = _origin(value), True
            key, text = value.get("key"), value.get("value", _ABSENT)
            if text is None:
                self.tombstones.append(record)
                return []
            if not isinstance(text, str):
                got = "nothing" if text is _ABSENT else type(text).__name__
                raise BadRecordError("not_a_record", f"value: got {got}; allowed: the record's value as text, or null")
            value = self.parse(text)
        changes = self.d.decoder.changes(value, key if isinstance(key, str) else None)
        for change in changes:
            if change.place:
                record.origin, record.names_place = ("", *change.place), True
        if not changes and record.names_place and not self.d.sequence:
            self.skipped.append(record)
        return changes

    def staged(self) -> pa.Table:
        """Type the columns, judge the rows, and put good, bad and tombstones into one table."""
        columns = self._columns()
        event_ms = self._event_ms(columns)
        if self.d.sequence:
            columns["_sequence"] = self._sequence(columns)
        self._judge(columns, event_ms)
        changes = [change for change, _ in self.changes]
        if self.d.sequence:
            columns["_moved_from"] = self._moved_from(columns)
        known = set(self.d.columns.names)
        columns |= {
            "_kind": pa.array([str(c.kind) for c in changes], pa.string()),
            "_op": pa.array([c.op for c in changes], pa.string()),
            "_event_ms": event_ms,
            "_ignored": pa.array([_extra(c.row, known) for c in changes], pa.string()),
        }
        good = self._table(columns, [record for _, record in self.changes])
        good = good.filter(pa.array([record.bad is None for _, record in self.changes], pa.bool_()))
        bad = list({record.row: record for record in [*self.records, *(r for _, r in self.changes if r.bad)]}.values())
        reasons = {
            "_kind": pa.array([BAD if r.names_place else None for r in bad], pa.string()),
            "_reason": pa.array([r.bad.reason for r in bad if r.bad], pa.string()),
            "_detail": pa.array([r.bad.detail for r in bad if r.bad], pa.string()),
            "_raw": pa.array([self.raw[r.row] for r in bad], pa.binary()),
        }
        empty = [
            self._table({"_kind": pa.array([kind] * len(records), pa.string())}, records)
            for kind, records in ((TOMBSTONE, self.tombstones), (SKIPPED, self.skipped))
        ]
        return pa.concat_tables([good, self._table(reasons, bad), *empty])

    def _table(self, columns: Mapping[str, pa.Array], records: list[_Record]) -> pa.Table:
        n = len(records)
        rows = pa.array([r.row for r in records], pa.int64())
        place = [
            pa.array(np.full(n, self.step)),
            self.batch.column("part").take(rows),
            self.batch.column("line").take(rows),
        ]
        origin = [pa.array([r.origin[i] for r in records], t.type) for i, t in enumerate(ORIGIN)]
        ours = {
            "_order": pa.StructArray.from_arrays(place, fields=list(ORDER)),
            "_origin": pa.StructArray.from_arrays(origin, fields=list(ORIGIN)),
        }
        every = {**columns, **ours}
        return pa.Table.from_arrays(
            [every.get(f.name, pa.nulls(n, f.type)) for f in self.d.schema], schema=self.d.schema
        )

    def _columns(self) -> dict[str, pa.Array]:
        """Type the user's columns; collect which values were not sent."""
        unavailable: list[list[str] | None] = [None] * len(self.changes)
        columns: dict[str, pa.Array] = {}
        rows = [self._needed(change) for change, _ in self.changes]
        for f in self.d.columns:
            default = self.d.defaults.get(f.name, _ABSENT)
            values = [row.get(f.name, default) for row in rows]
            if default is _ABSENT and _ABSENT in values:
                for i in _where(values, _ABSENT):
                    self._fail(
                        i,
                        "missing_column",
                        f"{f.name}: the record has no such column; allowed: a value, or a DEFAULT in the schema for records from before it was added",
                    )
                    values[i] = None
            form = unavailable_form(f.type)
            if form is not None and form in values:
                for i in _where(values, form):
                    unavailable[i] = [*(unavailable[i] or []), f.name]
                    values[i] = None
            if f.name in self.d.encodings:
                values = [_number(value, self.d.encodings[f.name]) for value in values]
            columns[f.name], bad = self._convert(f, values)
            for i in bad:
                self._fail(i, "wrong_type", f"{f.name}: got {_short(values[i])}; allowed: {f.type}")
        columns["_unavailable"] = pa.array(unavailable, pa.list_(pa.string()))
        return columns

    def _convert(self, f: pa.Field, values: list[Any]) -> tuple[pa.Array, list[int]]:
        """Type a column, each value by the unit that its own record gives."""
        units = [self._unit(change, f.name) for change, _ in self.changes] if self.own_units else []
        if len(set(units)) <= 1:
            return convert(values, f.type, units[0] if units else self.d.time_units.get(f.name, "us"))
        array, bad = pa.nulls(len(values), f.type), list[int]()
        for unit in set(units):
            part, unfit = convert([v if u == unit else None for v, u in zip(values, units, strict=True)], f.type, unit)
            array, bad = pc.coalesce(array, part), bad + unfit
        return array, bad

    def _unit(self, change: Change, column: str) -> TimeUnit:
        """Tell what integers mean in a timestamp column: the record's own schema goes before the spec."""
        return (change.units or {}).get(column, self.d.time_units.get(column, "us"))

    def _needed(self, change: Change) -> Json:
        """A delete by sequence needs the key and the sequence only; its other columns may be absent or stale."""
        if change.row is None:
            return dict.fromkeys(self.d.columns.names)
        if change.kind not in (RowKind.DELETE, RowKind.UPDATE_BEFORE) or not self.d.sequence:
            return change.row
        if change.op == RowKind.UPDATE_BEFORE and not is_log_position(self.d.sequence):
            return change.row  # it takes back the row with its own content
        wanted = {*self.d.key, *self.d.sequence, self.d.event_time}
        return {name: change.row.get(name) if name in wanted else None for name in self.d.columns.names}

    def _sequence(self, columns: Mapping[str, pa.Array]) -> pa.StructArray:
        type_ = sequence_type(self.d.columns, self.d.sequence)
        in_log = [name for name in self.d.sequence if name in LOG_POSITIONS]
        parts = []
        for f in type_:
            if f.name in LOG_POSITIONS:
                at = in_log.index(f.name)
                parts.append(pa.array([c.position[at] if c.position else None for c, _ in self.changes], f.type))
            else:
                parts.append(columns[f.name])
        return pa.StructArray.from_arrays(parts, fields=list(type_))

    def _event_ms(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        if self.d.event_time is None:
            return pa.array([c.event_ms for c, _ in self.changes], pa.int64())
        return _epoch_ms(columns[self.d.event_time])

    def _judge(self, columns: Mapping[str, pa.Array], event_ms: pa.Array) -> None:
        truncates = {i for i, (c, _) in enumerate(self.changes) if c.kind == TRUNCATE}
        for i in truncates if not self.d.truncates else ():
            self._fail(
                i, "truncate", "got TRUNCATE; allowed: changes of rows, as only a reconciler knows what it empties"
            )
        for name in self.d.key:
            for i in _nulls(columns[name], truncates):
                self._fail(i, "null_key", f"{name}: got null; allowed: a value in every key column")
        for f in self.d.columns:
            if not f.nullable and f.name not in self.d.key:
                for i in _nulls(columns[f.name], truncates):
                    deletes = self.d.sequence and self.changes[i][0].kind in (RowKind.DELETE, RowKind.UPDATE_BEFORE)
                    if not deletes and f.name not in (columns["_unavailable"][i].as_py() or []):
                        self._fail(
                            i, "null_value", f"{f.name}: got null; allowed: a value, as the schema says NOT NULL"
                        )
        for at, name in enumerate(self.d.sequence):
            for i in _nulls(columns["_sequence"].field(at)):
                self._fail(i, "null_sequence", f"{name}: got null; allowed: a value in every column of the sequence")
        if self.d.needs_event_time:
            for i in _nulls(event_ms):
                self._fail(i, "null_event_time", "event time: got null; allowed: a time, as state expires by it")
        if self.d.max_ahead_ms is not None and self.wall_ms is not None:
            limit = self.wall_ms + self.d.max_ahead_ms
            for i in np.flatnonzero(
                pc.greater(event_ms, limit).fill_null(False).to_numpy(zero_copy_only=False)
            ).tolist():
                self._fail(i, "event_time_ahead", f"event time: got {event_ms[i]} ms; allowed: up to {limit} ms")

    def _fail(self, change: int, reason: str, detail: str) -> None:
        record = self.changes[change][1]
        record.bad = record.bad or BadRecordError(reason, detail)

    def _moved_from(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Note the old key of updates that changed it."""
        type_ = self.d.schema.field("_moved_from").type
        moves: list[list[Json] | None] = [None] * len(self.changes)
        for i, (change, record) in enumerate(self.changes):
            if change.old_row is not None and record.bad is None:
                old_key = {name: self._one(change, name, change.old_row.get(name)) for name in self.d.key}
                moves[i] = [{"sequence": columns["_sequence"][i].as_py(), "key": old_key}]
        return pa.array(moves, type_)

    def _one(self, change: Change, column: str, value: Any) -> Any:
        if column in self.d.encodings:
            value = _number(value, self.d.encodings[column])
        return convert([value], self.d.columns.field(column).type, self._unit(change, column))[0][0].as_py()


def _number(value: Any, encoding: Encoding) -> Any:
    """Read an integer that is coded otherwise; what it is not is judged by the column's type."""
    if encoding == "unsigned" and type(value) is int and value < 0:
        return value + _UNSIGNED_BEYOND
    if encoding == "bits" and isinstance(value, bool):
        return int(value)
    if encoding == "bits" and isinstance(value, str):
        try:
            return bits(value)
        except ValueError:
            return value
    return value


def _parse(text: str | bytes) -> Json:
    """Parse quickly; floats become floats. What the quick parser refuses, the exact one judges."""
    try:
        value = from_json(text, allow_inf_nan=False, cache_strings="keys")
    except (ValueError, TypeError):  # a lone surrogate is a TypeError
        return _parse_exactly(text)
    return value if isinstance(value, dict) else _parse_exactly(text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_EXACT = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant)


def _parse_exactly(text: str | bytes) -> Json:
    """Parse with every digit kept, 4 times slower, and say what is wrong."""
    try:
        value = _EXACT.decode(text if isinstance(text, str) else text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadRecordError("not_utf8", f"{error.reason} at byte {error.start}; allowed: UTF-8") from error
    except RecursionError as error:
        raise BadRecordError("too_deep", "nested too deep; allowed: a few hundred levels") from error
    except (ValueError, ArithmeticError) as error:
        raise BadRecordError("bad_json", f"{error}; allowed: one JSON object") from error
    if not isinstance(value, dict):
        raise BadRecordError("not_an_object", f"got {_short(value)}; allowed: one JSON object")
    return value


def _origin(record: Json) -> tuple[str, int, int]:
    topic, partition, offset = (record.get(name) for name in ("topic", "partition", "offset"))
    if (
        not isinstance(topic, str)
        or not _is_text(topic)
        or type(partition) is not int
        or type(offset) is not int
        or not 0 <= partition < 2**31
        or not 0 <= offset < 2**63
    ):
        raise BadRecordError(
            "not_a_record",
            f"got topic {_short(topic)}, partition {_short(partition)}, offset {_short(offset)}; allowed: text and two integers from 0",
        )
    return topic, partition, offset


def _extra(row: Json | None, known: set[str]) -> str | None:
    if row is None or known.issuperset(row):
        return None
    return ",".join(name if _is_text(name) else ascii(name) for name in sorted(row.keys() - known))


def _is_text(value: str) -> bool:
    """Tell whether a string can be stored: JSON may hold lone surrogates, UTF-8 may not."""
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _where(values: list[Any], wanted: Any) -> list[int]:
    return [
        i
        for i, value in enumerate(values)
        if value is wanted or (value.__class__ is wanted.__class__ and value == wanted)
    ]


def _nulls(array: pa.Array, but: set[int] = frozenset()) -> list[int]:  # type: ignore[assignment]
    return (
        []
        if not array.null_count
        else [i for i in np.flatnonzero(~array.is_valid().to_numpy(zero_copy_only=False)).tolist() if i not in but]
    )


def _epoch_ms(array: pa.Array) -> pa.Array:
    """Return dates and timestamps as epoch ms."""
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("us"))
    return array.cast(pa.timestamp("ms", array.type.tz), safe=False).cast(pa.int64())


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
