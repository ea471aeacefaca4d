"""Tombstones: records with a key and no value, one after each delete. A lost delete leaves only its tombstone.

The delete may have been dropped on the way (Debezium's ExtractNewRecordState does so unless configured otherwise), or removed by
compaction. So a tombstone is staged a second time, as `IN_DOUBT`, with its key, unless the record just before it proves
that the delete
arrived: a record of the same key and partition that adds no row. The step then checks whether the key still has a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.changelog import ORIGIN, RowKind, order_struct
from ebbtide.columns import CompiledLoop, entry_table, equals
from ebbtide.formats._avro import AvroRecords, text_of
from ebbtide.formats._columns import InexactNumberError, TimeUnit
from ebbtide.formats._connect import Fields, in_unit, read_key, time_units
from ebbtide.formats._encodings import decoded
from ebbtide.formats._format import BadRecordError, Json
from ebbtide.formats._parsing import NULLS, envelope_origin, envelope_value, parse
from ebbtide.formats._places import are_utf8, orders_of
from ebbtide.formats._records import are_placed
from ebbtide.formats._settings import DecodingSettings, StagedKind

Ints = NDArray[np.int64]
Key = tuple[Json, Fields]
"""A key's row and its own schema."""
_FEWEST = 100
"""Smallest number of lines that are scanned: a scan takes some tenths of a millisecond, however few they are."""
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


def in_doubt(
    settings: DecodingSettings,
    batch: pa.RecordBatch,
    staged: Sequence[pa.Table],
    step: int,
) -> pa.Table:
    """Return the tombstones of a batch whose delete may be lost.

    Args:
        settings: Settings of the pipeline.
        batch: All records.
        staged: All rows staged for them.
        step: Number of the step.

    Returns:
        Staged rows; the key is null if it cannot be read. A tombstone that deletes its row (`tombstones_delete`) is a `-D`.
    """
    has_keys = settings.in_envelopes or are_placed(batch)
    if not (settings.doubts_tombstones and has_keys and staged):
        return settings.schema.empty_table()
    kinds_and_orders = [table.select(["_kind", "_order"]) for table in staged]
    rows_of_batch = pa.concat_tables(kinds_and_orders)
    is_tombstone = equals(rows_of_batch, "_kind", StagedKind.TOMBSTONE)
    if not is_tombstone.any():
        return settings.schema.empty_table()
    # 1. The batch's tombstones: staged rows and records are joined by their order in the step.
    _, parts, lines = order_struct(rows_of_batch).T
    staged_numbers = _order_numbers(parts, lines)
    numbers = _order_numbers(
        batch.column("part").to_numpy(),
        batch.column("line").to_numpy(),
    )
    is_own = np.isin(numbers, staged_numbers[is_tombstone])
    rows = np.flatnonzero(is_own)
    # The record just before each. The first record of a batch is its own predecessor: it has no value.
    rows_before = np.maximum(rows - 1, 0)
    records = _records(batch, np.concatenate([rows, rows_before]))
    own, before = records[: len(rows)], records[len(rows) :]
    is_empty = _mask(pc.invert(own["has_value"]))  # records of kinds that are not read have a value
    rows, rows_before = rows[is_empty], rows_before[is_empty]
    own, before = own.filter(pa.array(is_empty)), before.filter(pa.array(is_empty))
    # 2. The record before may add a row.
    adding_kinds = pa.array(_ADDING, pa.string())
    is_adding = _mask(pc.is_in(rows_of_batch["_kind"], adding_kinds))
    adds_row = np.isin(numbers[rows_before], staged_numbers[is_adding])
    # 3. It is the delete if it has a value, adds no row, and has the same key in the same partition.
    has_delete = _mask(before["has_value"]) & ~adds_row
    for name in ("file", "partition", "key"):
        has_delete &= _mask(pc.equal(own[name], before[name]))
    # A tombstone without a key belongs to no row.
    is_doubted = _mask(own["key"].is_valid()) & ~has_delete
    doubted = own.filter(pa.array(is_doubted))
    return _rows(
        settings,
        batch,
        rows[is_doubted],
        doubted,
        step,
    )


def without_deleting(staged: pa.Table, doubts: pa.Table) -> pa.Table:
    """Leave out the staged rows of tombstones that delete a row: the delete already represents their record.

    Args:
        staged: Staged rows with all tombstones of a batch.
        doubts: The rows of `in_doubt`.
    """
    deletes = doubts.filter(pc.equal(doubts["_kind"], RowKind.DELETE))
    if not len(deletes):
        return staged
    _, parts, lines = order_struct(deletes).T
    of_deletes = _order_numbers(parts, lines)
    _, parts, lines = order_struct(staged).T
    is_deleting = equals(staged, "_kind", StagedKind.TOMBSTONE) & np.isin(_order_numbers(parts, lines), of_deletes)
    return staged.filter(pa.array(~is_deleting))


def _order_numbers(parts: Ints, lines: Ints) -> Ints:
    """Return one number for each part and line. A part has fewer than 2^40 lines, so numbers are unique."""
    return (parts << 40) + lines


def _mask(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    filled = values.fill_null(False)
    return np.array(filled.to_numpy(), dtype=bool)


def _records(batch: pa.RecordBatch, rows: Ints) -> pa.Table:
    """Return the origins and keys of some records of a batch, and whether they have a value."""
    indices = pa.array(rows)
    values = batch.column("value")
    if not are_placed(batch):
        lines = values.take(indices)
        pays = CompiledLoop.pays(len(rows) if len(rows) >= _FEWEST else 0)
        return _scanned(lines) if pays and are_utf8(lines) else _of_lines(lines)
    columns = []
    for name in ("file", "partition", "offset", "key"):
        column = batch.column(name)
        columns.append(column.take(indices))
    columns.append(_have_values(values.take(indices)))
    return pa.Table.from_arrays(columns, schema=_RECORDS)


def _scanned(lines: pa.BinaryArray) -> pa.Table:
    """Read lines like `_of_lines`, by a scan."""
    from ebbtide.formats._scan_envelopes import KafkaEnvelopes

    envelopes = KafkaEnvelopes.scan(lines)
    is_read = envelopes.has_value | envelopes.is_tombstone
    columns = [
        envelopes.topics,
        envelopes.partitions,
        envelopes.offsets,
        envelopes.texts("key", is_read),
        _have_values(envelopes.texts("value", is_read)),
    ]
    table = pa.Table.from_arrays(columns, schema=_RECORDS)
    if is_read.all():
        return table
    rest = _of_lines(lines.filter(pa.array(~is_read)))
    # Where each record is: among those of the scan, else among the rest, which follow them.
    places = np.where(is_read, np.arange(len(lines)), len(lines) + np.cumsum(~is_read) - 1)
    return pa.concat_tables([table, rest]).take(pa.array(places))


def _have_values(values: pa.BinaryArray) -> pa.BooleanArray:
    is_null = pc.is_in(values, pa.array([None, *NULLS], values.type))
    return pc.invert(is_null)


def _of_lines(lines: pa.BinaryArray) -> pa.Table:
    records = list(map(_of_line, lines.to_pylist()))
    return pa.Table.from_pylist(records, _RECORDS)


def _of_line(line: bytes) -> Json:
    """Read a line that holds a Kafka record; any other line gives no fields."""
    try:
        envelope = parse(line)
        topic, partition, offset = envelope_origin(envelope)
        value = envelope_value(envelope)
    except BadRecordError:
        return {}
    key_text = envelope.get("key")
    key = None
    if isinstance(key_text, str):
        key = key_text.encode(errors="surrogatepass")
    return {
        "file": topic,
        "partition": partition,
        "offset": offset,
        "key": key,
        "has_value": value is not None,
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
    origin = []
    for name in ("file", "partition", "offset"):
        component = records[name].combine_chunks()
        origin.append(component)
    columns["_kind"] = _kinds(settings, columns, n)
    columns["_order"] = orders_of(batch, rows.tolist(), step)
    columns["_origin"] = pa.StructArray.from_arrays(origin, fields=list(ORIGIN))
    return entry_table(settings.schema, columns, n)


def _kinds(settings: DecodingSettings, columns: Mapping[str, Any], n: int) -> pa.StringArray:
    """Return `-D` for the tombstones that delete a row whose whole key is known, else `IN_DOUBT`."""
    if not (settings.by_place and settings.tombstones_delete):
        return pa.repeat(StagedKind.IN_DOUBT, n)
    has_key = np.ones(n, bool)
    for name in settings.key:
        is_valid = columns[name].is_valid()
        has_key &= np.asarray(is_valid.to_numpy(zero_copy_only=False), dtype=bool)
    return pc.if_else(pa.array(has_key), RowKind.DELETE, StagedKind.IN_DOUBT)


def _read_key(key: bytes | None, avro: AvroRecords | None) -> Key:
    """Return a key as a row of the key's columns, with its schema; both empty if it cannot be read."""
    try:
        text = text_of(key) if avro is None else avro.key_text(key)
        row, fields = read_key(text)
    except BadRecordError:
        return {}, {}
    return row or {}, fields


def _in_unit(value: Any, given: TimeUnit, wanted: TimeUnit) -> Any:
    """Return a value of a key; a time in another unit than the spec's, as the key's schema says; None if it is none of that."""
    if given == wanted or type(value) is not int:
        return value
    try:
        return in_unit(value, given, wanted)
    except ValueError:
        return None


def _key_column(settings: DecodingSettings, name: str, keys: list[Key]) -> pa.Array:
    """Return one column of some keys; null if it is missing, or does not fit."""
    type_ = settings.columns.field(name).type
    old_name = settings.renamed.get(name, name)
    encoding = settings.encodings.get(name)
    coding = settings.coding(name)
    values = []
    for row, fields in keys:
        at = name if name in row else old_name
        unit = (time_units(fields) or {}).get(at, coding.unit)
        values.append(_in_unit(row.get(at), unit, coding.unit))
    schemas = (fields for _, fields in keys)
    plain = decoded(values, encoding, type_, schemas)
    try:
        array, _ = coding.convert(plain, type_)
    except InexactNumberError:
        return pa.nulls(len(keys), type_)
    return array
