"""Reads the records of a batch into changes, one by one; records that cannot be read are refused with a reason."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from ebbtide.formats._avro import AvroRecords, refuse_avro, text_of
from ebbtide.formats._connect import SharedSchema, has_schema, with_key
from ebbtide.formats._format import NOT_A_ROW, BadRecordError, DecodedChange, Json, under_new_names
from ebbtide.formats._forms import OriginOffset
from ebbtide.formats._parsing import (
    BYTE_ORDER_MARK,
    Parse,
    envelope_origin,
    envelope_other_key,
    envelope_value,
    is_null,
)
from ebbtide.formats._records import are_placed
from ebbtide.formats._settings import DecodingSettings

_BYTE_ORDER_MARK = BYTE_ORDER_MARK.encode()
_SCHEMA_TEXT, _PAYLOAD_TEXT = '{"schema":', '"payload":{'
_SCHEMA, _PAYLOAD = _SCHEMA_TEXT.encode(), _PAYLOAD_TEXT.encode()
"""The begin of a value with its schema, and what is before its payload, an object."""
_MOST_SHARED = 64
"""Most schemas of a batch that are kept: values with ever new ones gain nothing."""


@dataclass(slots=True)
class Record:
    """One record: its position, and the reason if it is bad.

    Args:
        row: Its index in the batch.
        origin: Topic or file, partition, and offset or line.
        has_own_offset: The record names its own position; otherwise `origin` is its file and line.
        bad: The first rule that it breaks; None if it is good.
    """

    row: int
    origin: tuple[str, int, int]
    has_own_offset: bool = False
    bad: BadRecordError | None = None

    def stands_at(self, origin_offset: OriginOffset | None) -> None:
        """Note the partition and offset that the record names, if it names them."""
        if origin_offset:
            self.origin = ("", *origin_offset)
            self.has_own_offset = True

    def refuse(self, error: BadRecordError) -> None:
        """Mark the record as bad; the first error counts."""
        if self.bad is None:
            self.bad = error


@dataclass(slots=True)
class Contents:
    """The contents of a batch of records.

    Args:
        changes: The changes taken, in order.
        records: The record of each change; one record may have several.
        refused: Records that could not be read.
        tombstones: Records without a value, or of a kind that is not read.
        skipped: Records of other tables.
        not_rows: Records that change no row of any table.
    """

    changes: list[DecodedChange] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    refused: list[Record] = field(default_factory=list)
    tombstones: list[Record] = field(default_factory=list)
    skipped: list[Record] = field(default_factory=list)
    not_rows: list[Record] = field(default_factory=list)


class RecordReader:
    """Reads the records of one batch.

    Args:
        settings: Settings of the pipeline.
        parse: Parses a line, and a Kafka record's value.
    """

    def __init__(self, settings: DecodingSettings, parse: Parse) -> None:
        self._settings = settings
        self._parse = parse
        self._contents = Contents()
        self._shared: dict[str | bytes, SharedSchema | None] = {}

    def read(self, batch: pa.RecordBatch) -> Contents:
        """Read a batch of `RECORDS`, without blank lines, or of `PLACED_RECORDS`."""
        if are_placed(batch):
            self._read_placed(batch)
        else:
            self._read_lines(batch)
        return self._contents

    def _read_placed(self, batch: pa.RecordBatch) -> None:
        avro = AvroRecords.of(batch)
        names = ("file", "partition", "offset", "key", "old_key", "new_key", "value")
        columns = [batch.column(name).to_pylist() for name in names]
        limit = self._settings.max_record_bytes
        for row, cells in enumerate(zip(*columns, strict=True)):
            topic, partition, offset, key, old_key, new_key, raw = cells
            origin = topic, partition, offset
            record = Record(row, origin, has_own_offset=True)
            if raw is None or is_null(raw):
                self._contents.tombstones.append(record)
                continue
            try:
                if len(raw) > limit:
                    raise self._too_large()
                value, key_text = self._read_placed_value(raw, key, avro)
                # A create names the old key, a delete the new one: never both.
                other_key = new_key if old_key is None else old_key
                other_key_text = text_of(other_key)
                self._take_value(value, key_text, other_key_text, record)
            except BadRecordError as error:
                record.bad = error
                self._contents.refused.append(record)

    def _read_placed_value(
        self,
        raw: bytes,
        key: bytes | None,
        avro: AvroRecords | None,
    ) -> tuple[Json, str | None]:
        """Return a record's value, and its key as text."""
        if avro is None:
            refuse_avro(raw)
            return self._parse_value(raw), text_of(key)
        return avro.value(raw, self._parse), avro.key_text(key)

    def _read_lines(self, batch: pa.RecordBatch) -> None:
        files = batch.column("file").to_pylist()
        lines = batch.column("line").to_pylist()
        values = batch.column("value").to_pylist()
        for row, raw in enumerate(values):
            is_blank = not raw.startswith(b"{") and not raw.strip().strip(_BYTE_ORDER_MARK)
            if is_blank:
                continue
            origin = files[row], 0, lines[row]
            record = Record(row, origin)
            try:
                self._read_record(raw, record)
            except BadRecordError as error:
                record.bad = error
                record.stands_at(error.origin_offset)
                self._contents.refused.append(record)

    def _read_record(self, raw: bytes, record: Record) -> None:
        if len(raw) > self._settings.max_record_bytes:
            raise self._too_large()
        key = other_key = None
        if not self._settings.in_envelopes:
            if is_null(raw.rstrip()):  # a consumer that prints values
                self._contents.tombstones.append(record)
                return
            value = self._parse_value(raw)
        else:
            envelope = self._parse(raw)
            if self._is_of_other_topic(envelope):
                return
            record.origin = envelope_origin(envelope)
            record.has_own_offset = True
            text = envelope_value(envelope)
            if text is None:
                self._contents.tombstones.append(record)
                return
            key = envelope.get("key")
            other_key = envelope_other_key(envelope)
            value = self._parse_value(text)
        key_text = key if isinstance(key, str) else None
        self._take_value(value, key_text, other_key, record)

    def _parse_value(self, text: str | bytes) -> Json:
        """Parse a value. A schema that many values begin with is parsed once."""
        begin, before_payload = (_SCHEMA_TEXT, _PAYLOAD_TEXT) if isinstance(text, str) else (_SCHEMA, _PAYLOAD)
        at = text.find(before_payload) if text.startswith(begin) else -1  # type: ignore[arg-type]
        if at < 0:
            return self._parse(text)
        head, payload = text[: at + len(before_payload) - 1], text[at + len(before_payload) - 1 : -1]
        schema = self._shared.get(head)
        if schema is not None and text[-1:] in ("}", b"}"):
            try:
                return {"schema": schema, "payload": self._parse(payload)}
            except BadRecordError:
                return self._parse(text)  # something follows the payload: the whole text says what is bad
        value = self._parse(text)
        if head not in self._shared and len(self._shared) < _MOST_SHARED:
            self._shared[head] = self._schema_before(head, value)
        return value

    def _schema_before(self, head: str | bytes, value: Json) -> SharedSchema | None:
        """Return the schema of all values that begin so; None if it does not end there."""
        if not has_schema(value) or not isinstance(value["schema"], dict):
            return None
        whole = head + "null}" if isinstance(head, str) else head + b"null}"
        try:
            is_own = self._parse(whole) == {"schema": value["schema"], "payload": None}
        except BadRecordError:
            return None
        return SharedSchema(value["schema"]) if is_own else None

    def _take_value(
        self,
        value: Json,
        key_text: str | None,
        other_key: str | None,
        record: Record,
    ) -> None:
        """Take a record's changes, but for those of kinds that are not read."""
        changes = self._settings.format.changes(value, key_text, other_key)
        if key_text is not None:
            changes = [with_key(change, key_text, self._settings.key) for change in changes]
        if self._settings.renamed:
            changes = [self._under_new_names(change) for change in changes]
        contents = self._contents
        if not changes:
            contents.skipped.append(record)
            return
        kinds = self._settings.kinds
        for change in changes:
            if change.origin_offset is not None:
                record.stands_at(change.origin_offset)
            if change.kind in kinds:
                contents.changes.append(change)
                contents.records.append(record)
            elif change.kind == NOT_A_ROW:
                contents.not_rows.append(record)
            else:
                contents.tombstones.append(record)

    def _under_new_names(self, change: DecodedChange) -> DecodedChange:
        """Return a change with renamed columns, if its record has the old names."""
        row = change.row
        if row is None:
            return change
        renamed_columns = self._settings.renamed.items()
        new_names = {old: name for name, old in renamed_columns if old in row and name not in row}
        if not new_names:
            return change
        units = change.units
        if units is not None:
            units = under_new_names(units, new_names)
        schema = change.schema
        if schema is not None:
            schema = schema.renamed(new_names)
        return replace(
            change,
            row=under_new_names(row, new_names),
            units=units,
            schema=schema,
        )

    def _too_large(self) -> BadRecordError:
        # The true size is unknown: readers cut a line just above the limit.
        limit = self._settings.max_record_bytes
        detail = f"got more than {limit} bytes; allowed: up to {limit}"
        return BadRecordError("too_large", detail, masked=detail)

    def _is_of_other_topic(self, envelope: Json) -> bool:
        if not self._settings.topic:
            return False
        topic = envelope.get("topic")
        has_topic = isinstance(topic, str)
        return has_topic and topic != self._settings.topic
