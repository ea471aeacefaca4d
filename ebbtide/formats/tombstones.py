"""Tombstones: records with a key and no value, one behind each delete. One without its delete is all that shows it.

The delete may have been dropped on the way (Debezium's ExtractNewRecordState does so unless configured otherwise), or have gone by compaction.
So a tombstone is staged a second time, as `IN_DOUBT` and with its key, unless the record just before it shows that it is none of these: one of
the same key, in the same partition, that adds no row. The step then looks whether the key's row is still there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.formats.avro import AvroRecords, text_of
from ebbtide.formats.columns import InexactNumberError, convert
from ebbtide.formats.connect import Fields, read_key
from ebbtide.formats.encodings import decoded
from ebbtide.formats.format import BadRecordError, Json
from ebbtide.formats.parsing import envelope_origin, parse
from ebbtide.formats.quick import orders_of
from ebbtide.formats.records import are_placed
from ebbtide.formats.settings import IN_DOUBT, TOMBSTONE, DecodingSettings
from ebbtide.model.changelog import ORIGIN, RowKind
from ebbtide.model.entries import entry_table, equals, order_struct

Ints = NDArray[np.int64]
Key = tuple[Json, Fields]
"""A key's row and its own schema."""
_ADDING = [RowKind.INSERT, RowKind.UPDATE_AFTER]
_RECORDS = pa.schema(
    [
        ("file", pa.string()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("has_value", pa.bool_()),
    ]
)


def in_doubt(settings: DecodingSettings, batch: pa.RecordBatch, staged: Sequence[pa.Table], step: int) -> pa.Table:
    """Return the tombstones of a batch of which it is to be found out whether the row of their key is there.

    Args:
        settings: Settings of the pipeline.
        batch: All records.
        staged: All rows that were made of them; the tombstones are in the last table.
        step: Number of the step.

    Returns:
        Staged rows; the key is null where it cannot be read.
    """
    has_keys = settings.in_envelopes or are_placed(batch)
    has_tombstones = equals(staged[-1], "_kind", TOMBSTONE).any()
    if not (settings.doubts_tombstones and has_keys and has_tombstones):
        return settings.schema.empty_table()
    made = pa.concat_tables([table.select(["_kind", "_order"]) for table in staged])
    _, parts, lines = order_struct(made).T
    places = _places(parts, lines)
    is_tombstone = equals(made, "_kind", TOMBSTONE)
    is_adding = _mask(pc.is_in(made["_kind"], pa.array(_ADDING, pa.string())))
    places_in_batch = _places(batch.column("part").to_numpy(), batch.column("line").to_numpy())
    rows = np.flatnonzero(np.isin(places_in_batch, places[is_tombstone]))
    own = _records(batch, rows)
    is_empty = _mask(pc.invert(own["has_value"]))  # the rest is of a kind that is not taken
    rows = rows[is_empty]
    own = own.filter(pa.array(is_empty))
    rows_before = np.maximum(rows - 1, 0)  # the first has none before it: it is its own, and has no value
    before = _records(batch, rows_before)
    is_behind_row = np.isin(places_in_batch[rows_before], places[is_adding])
    is_known = _mask(before["has_value"]) & ~is_behind_row
    for name in ("file", "partition", "key"):
        is_known &= _mask(pc.equal(own[name], before[name]))
    is_doubted = _mask(own["key"].is_valid()) & ~is_known  # one without a key is of no row
    return _rows(settings, batch, rows[is_doubted], own.filter(pa.array(is_doubted)), step)


def _places(parts: Ints, lines: Ints) -> Ints:
    """Return one number for each place of a batch; lines within a part are less than 2^40 apart, so that no two are equal."""
    return (parts << 40) + lines


def _mask(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    filled = values.fill_null(False)
    return np.array(filled.to_numpy(), dtype=bool)


def _records(batch: pa.RecordBatch, rows: Ints) -> pa.Table:
    """Return where some records of a batch stand, their keys, and whether they have a value."""
    indices = pa.array(rows)
    values = batch.column("value")
    if not are_placed(batch):
        lines = values.take(indices).to_pylist()
        found = list(map(_of_line, lines))
        return pa.Table.from_pylist(found, _RECORDS)
    columns = []
    for name in ("file", "partition", "offset", "key"):
        column = batch.column(name)
        columns.append(column.take(indices))
    has_value = values.is_valid()
    columns.append(has_value.take(indices))
    return pa.Table.from_arrays(columns, schema=_RECORDS)


def _of_line(line: bytes) -> Json:
    """Read a line that holds a Kafka record; what is none has nothing."""
    try:
        envelope = parse(line)
        topic, partition, offset = envelope_origin(envelope)
    except BadRecordError:
        return {}
    key = envelope.get("key")
    return {
        "file": topic,
        "partition": partition,
        "offset": offset,
        "key": key.encode(errors="surrogatepass") if isinstance(key, str) else None,
        "has_value": envelope.get("value") is not None,
    }


def _rows(
    settings: DecodingSettings,
    batch: pa.RecordBatch,
    rows: Ints,
    records: pa.Table,
    step: int,
) -> pa.Table:
    """Return staged rows of some tombstones, with their keys."""
    n = len(rows)
    avro = AvroRecords.of(batch)
    raw_keys = records["key"].to_pylist()
    keys = [_read_key(raw, avro) for raw in raw_keys]
    columns: dict[str, object] = {}
    for name in settings.key:
        columns[name] = _key_column(settings, name, keys)
    places = []
    for name in ("file", "partition", "offset"):
        place = records[name].combine_chunks()
        places.append(place)
    columns["_kind"] = [IN_DOUBT] * n
    columns["_order"] = orders_of(batch, rows.tolist(), step)
    columns["_origin"] = pa.StructArray.from_arrays(places, fields=list(ORIGIN))
    return entry_table(settings.schema, columns, n)


def _read_key(key: bytes | None, avro: AvroRecords | None) -> Key:
    """Return a key as a row of the key's columns, with its schema; nothing where it cannot be read."""
    try:
        text = text_of(key) if avro is None else avro.key_text(key)
        row, fields = read_key(text)
    except BadRecordError:
        return {}, {}
    return row or {}, fields


def _key_column(settings: DecodingSettings, name: str, keys: list[Key]) -> pa.Array:
    """Return one column of some keys; null where it is missing, or does not fit."""
    type_ = settings.columns.field(name).type
    old_name = settings.renamed.get(name, name)
    values = [row.get(name, row.get(old_name)) for row, _ in keys]
    schemas = (fields for _, fields in keys)
    plain = decoded(values, settings.encodings.get(name), type_, schemas)
    try:
        array, _ = convert(plain, type_, settings.time_units.get(name, "us"))
    except InexactNumberError:
        return pa.nulls(len(keys), type_)
    return array
