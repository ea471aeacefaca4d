"""A sample to the attributes of a spec, and to the notes that go with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ebbtide.changelog import RowKind
from ebbtide.ddl import TableSchema, as_written
from ebbtide.errors import ConfigError
from ebbtide.formats import (
    TOOLS,
    BadRecordError,
    DebeziumDecoder,
    DebeziumEvent,
    DecodedChange,
    Format,
    MappedDecoder,
    PlainDecoder,
    key_row,
)
from ebbtide.proposal._columns import ProposedColumn, propose_columns
from ebbtide.proposal._order import has_retractions, order_notes
from ebbtide.proposal._recognition import Recognised, recognise
from ebbtide.proposal._sample import Sample
from ebbtide.proposal._tools import Json
from ebbtide.redaction import printable

_WHOLE_ROWS = (RowKind.INSERT, RowKind.UPDATE_AFTER)
"""Kinds of changes whose rows have all columns: a delete may have its key alone."""
NO_KIND = (
    "If they are Debezium's rows by ExtractNewRecordState, set add.fields: op,lsn (of MySQL op,file,pos,row) and "
    "delete.tombstone.handling.mode: rewrite in the connector. Of other records write the spec by hand, with format: {type: mapped}: "
    "docs/reference/formats.md."
)
"""The next step for records whose writer is not known."""
NUMBER_AS_TEXT = "DECIMAL(38,0)"
"""Type of a column that orders changes and holds numbers as text: as texts 999 comes after 1001."""
TTL = "30d"
"""For how long deletes, or the rows of histories, are remembered, until a user decides."""


@dataclass(frozen=True)
class Proposal:
    """Fields that a proposed spec may have.

    Args:
        attributes: Its format, schema, key, order and ttl, as written in a `defs.yaml`.
        notes: What the sample leaves open, for people.
    """

    attributes: dict[str, Any]
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        sample: Sample,
        *,
        key: Sequence[str] = (),
        sequence: Sequence[str] = (),
        types: Mapping[str, str] | None = None,
    ) -> Proposal:
        """Propose format, schema, key and order for the records of a sample.

        Args:
            sample: The records.
            key: The key's columns. Default: those of the records' own keys.
            sequence: The columns that order a key's changes. Default: the place in the database's log, where records have
                one; else changes apply as they arrive, retractions (-U) by content, all else by key.
            types: Types that are known, by column, as DDL.

        Raises:
            ConfigError: the records are not a changelog, or their key is unknown.
        """
        known = dict(types or {})
        reading = _reading_of(sample, asked_for=(*sequence, *known), key=key)
        changes = _changes(sample, reading)
        for name in sequence:
            if name not in known and _are_digits(changes, name):
                known[name] = NUMBER_AS_TEXT
        columns = propose_columns(changes, known)
        if reading.says_bytes:
            columns = [
                replace(column, note="", encoding=None) if column.type == "BINARY" else column for column in columns
            ]
        key = tuple(key) or _key_of(sample, columns)
        _refuse_unknown("key", key, columns)
        order_columns = tuple(sequence) or reading.sequence
        if reading.is_flattened and not order_columns:
            raise ConfigError.of(
                "The rows are flattened, without a position in the database's log: nothing orders them.",
                allowed="records with that place, by ExtractNewRecordState's add.fields: op,lsn (of MySQL and MariaDB op,file,pos,row; "
                "of SQL Server op,commit_lsn,change_lsn,event_serial_no; of Oracle op,scn,rs_id,ssn); "
                "or --sequence with columns of the table that order a key's changes",
                next_step="Where the changes of a key arrive in their order, write the spec by hand, with order: upsert: docs/reference/formats.md.",
            )
        own_columns = _own_columns(reading, columns, {*key, *sequence, *(types or {})})
        usable = [column for column in columns if column.type is not None and column.name not in own_columns]
        order: Any = {"sequence": list(order_columns)}
        if not order_columns:
            order = "arrival" if has_retractions(sample, reading.decoder) else "upsert"
        attributes: dict[str, Any] = {
            "format": _format(reading, usable),
            "schema": _schema(usable, key),
            "key": list(key),
            "order": order,
            "ttl": TTL,
        }
        recognised = reading.recognised
        not_taken = [column.name for column in columns if column.type is None or column.name in own_columns]
        # A name that cannot be written into a spec is left out without being listed.
        left_out = list(filter(TableSchema.is_listable, not_taken))
        if left_out:
            attributes["ignored_columns"] = left_out
        notes = [
            f"{column.name}: {column.note}" for column in columns if column.note and column.name not in own_columns
        ]
        if recognised is not None and recognised.note:
            notes.append(recognised.note)
        notes += sample.notes
        notes += order_notes(order, TTL, sample)
        return cls(attributes, tuple(notes))


@dataclass(frozen=True)
class _Reading:
    """The form of records: the spec's format, and its decoder.

    Args:
        settings: The spec's `format`.
        decoder: Its decoder.
        sequence: The columns or record fields that order the source's changes.
        is_flattened: They are Debezium's flattened rows.
        recognised: What is known of them, if they are a tool's, or their fields say what happened.
    """

    settings: dict[str, Any]
    decoder: Format
    sequence: tuple[Any, ...]
    is_flattened: bool = False
    recognised: Recognised | None = None

    @property
    def says_bytes(self) -> bool:
        """Return whether the format itself says how bytes are coded."""
        record_map = self.recognised.map if self.recognised else None
        return record_map is not None and (record_map.writes_base64 or record_map.has_text_values)


def _format(reading: _Reading, columns: Sequence[ProposedColumn]) -> dict[str, Any]:
    """Return the format, with the units of times where they are not microseconds, and how numbers are coded."""
    units = {}
    encodings = {}
    for column in columns:
        if column.unit not in (None, "us"):
            units[column.name] = column.unit
        if column.encoding is not None:
            encodings[column.name] = column.encoding
    by_column = {"time_units": units, "encodings": encodings}
    return {**reading.settings, **{name: given for name, given in by_column.items() if given}}


def _schema(columns: Sequence[ProposedColumn], key: Sequence[str]) -> str:
    """Return columns as the schema of a spec, one a line."""
    lines = [_ddl(column, key) for column in columns]
    return ",\n".join(lines) + "\n"


def _are_digits(changes: Sequence[DecodedChange], name: str) -> bool:
    """Return whether all values of a column are integers as text."""
    values = [change.row.get(name) for change in changes if change.row]
    return all(isinstance(value, str) and value.isascii() and value.isdigit() for value in values)


def _reading_of(sample: Sample, asked_for: tuple[str, ...], key: Sequence[str]) -> _Reading:
    """Return how records are read, by the first of them.

    Args:
        sample: The records.
        asked_for: Columns that the spec shall have, also where a flattened row has them as metadata.
        key: The key's columns; empty: those of the records' own keys.
    """
    first = sample.records[0].value
    event = DebeziumEvent.of(first)
    if event is not None:
        return _debezium(event, asked_for)
    kinds = [name for name, value in first.items() if value in list(RowKind)]
    if not kinds:
        recognised = recognise(sample.records, key)
        if recognised is None:
            raise _unread(first)
        return _Reading(recognised.settings, MappedDecoder(recognised.map), recognised.sequence, recognised=recognised)
    rows = [name for name, value in first.items() if isinstance(value, dict)]
    return _plain(
        kind=kinds[0],
        row=rows[0] if rows else None,
    )


def _unread(record: Json) -> ConfigError:
    """Return the refusal of records that nothing shows how to read."""
    tools = ", ".join(TOOLS)
    return ConfigError.of(
        "The records are not a known changelog.",
        got=f"fields {_printable(record)}",
        allowed="Debezium's events (op, before, after, source; or __op), rows with a kind: +I, -U, +U, -D, "
        f"rows with an operation in words, or records of {tools}",
        next_step=NO_KIND,
    )


def _own_columns(reading: _Reading, columns: Sequence[ProposedColumn], wanted: Collection[str]) -> frozenset[str]:
    """Return the columns that the tool added to the table's, but for those that are asked for."""
    beginnings = reading.recognised.own_columns if reading.recognised else ()
    names = [column.name for column in columns if column.name not in wanted]
    return frozenset(name for name in names if name.startswith(tuple(beginnings)))


def _debezium(event: DebeziumEvent, asked_for: tuple[str, ...]) -> _Reading:
    return _Reading(
        settings={"type": "debezium"},
        decoder=DebeziumDecoder(key=(), sequence=(), columns=asked_for),
        sequence=event.sequence,
        is_flattened=event.is_flattened,
    )


def _plain(kind: str, row: str | None) -> _Reading:
    settings = {
        "type": "plain",
        "kind": kind,
        "row": row,
    }
    return _Reading(
        settings=settings,
        decoder=PlainDecoder(kind, row),
        sequence=(),
    )


def _changes(sample: Sample, reading: _Reading) -> list[DecodedChange]:
    """Return the changes with whole rows."""
    whole: list[DecodedChange] = []
    reasons: dict[str, str] = {}
    for record in sample.records:
        try:
            changes = reading.decoder.changes(record.value, record.key)
        except BadRecordError as error:
            reasons[error.reason] = error.detail
            continue
        of_key = key_row(record.key) or {}
        rows = [change for change in changes if change.kind in _WHOLE_ROWS]
        whole += [replace(change, row={**of_key, **(change.row or {})}) for change in rows]
    if not whole:
        problems = [f"{reason}: {detail}" for reason, detail in reasons.items()]
        raise ConfigError.of(
            "No record of the sample adds a row, so there are no columns.",
            got="; ".join(problems) or "deletes only",
            next_step="Take a larger --sample.",
        )
    return whole


def _key_of(sample: Sample, columns: Sequence[ProposedColumn]) -> tuple[str, ...]:
    """Return the columns of the records' own keys."""
    for record in sample.records:
        row = key_row(record.key)
        if row:
            return tuple(row)
    names = [column.name for column in columns]
    raise ConfigError.of(
        "The records have no key, so the table's primary key is unknown.",
        allowed=f"--key with some of {_printable(names)}",
    )


def _printable(names: Iterable[str]) -> str:
    return ", ".join(map(printable, names))


def _refuse_unknown(
    what: str,
    names: Sequence[str],
    columns: Sequence[ProposedColumn],
) -> None:
    usable = [column.name for column in columns if column.type is not None]
    unknown = [name for name in names if name not in usable]
    if unknown:
        raise ConfigError.of(
            f"The {what} has columns that the records do not have.",
            got=_printable(unknown),
            allowed=_printable(usable),
        )


def _ddl(column: ProposedColumn, key: Sequence[str]) -> str:
    """Write a column; one that some rows lack is null in those."""
    constraint = ""
    if column.name in key:
        constraint = " NOT NULL"
    elif not column.is_in_all:
        constraint = " DEFAULT NULL"
    return f"{as_written(column.name)} {column.type}{constraint}"
