"""Common forms of Debezium events for the scan: envelopes and flattened rows that keep the key, or retract their whole row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import RowKind
from ebbtide.columns import Mask, row_codes
from ebbtide.formats._connect_scan import schema_reading
from ebbtide.formats._debezium_envelope import (
    INCREMENTAL,
    METADATA,
    METADATA_PREFIXES,
    NAMED_BY,
    SNAPSHOT,
    names_in_row,
)
from ebbtide.formats._debezium_rules import FLATTENED_MARKS, DebeziumRules
from ebbtide.formats._forms import RowForm, ScannedChanges
from ebbtide.formats._positions import PositionField, are_known, snapshot_numbers
from ebbtide.formats._record_map import FieldPath
from ebbtide.formats._scan import Cells, Fields, Scanned, marked
from ebbtide.formats._scan_loops import ABSENT, ESCAPED, INTEGER, NULL, OBJECT, TEXT
from ebbtide.formats._scan_schemas import SchemaReading

_TABLE = ("schema", "db", "table")
_TIME = "__source_ts_ms"
_KINDS = {"c": "+I", "r": "+I", "u": "+U", "d": "-D"}


class ScannedEnvelopes:
    """The `ScanForm` of envelopes.

    Args:
        rules: Settings of the format.
        row: The form of a row.
    """

    exact = (("before",), ("after",))
    event_fields = ()

    def __init__(self, rules: DebeziumRules, row: RowForm) -> None:
        self._rules = rules
        self._names = row.names
        self._key = [name for name in rules.key if name in row.names]
        self._non_key = [name for name in rules.columns if name not in rules.key]
        columns = row.cells
        # Paths of positions begin with a part of the envelope, such as `source`.
        parts: dict[str, dict[str, None]] = {"source": dict.fromkeys((*_TABLE, "ts_ms", "snapshot"))}
        for field in rules.log_fields:
            part, _, name = field.path.partition(".")
            parts.setdefault(part, {})[name] = None
        if rules.names_logs:
            parts["source"] |= dict.fromkeys(("name", "server_id"))
        self.fields: Fields = {
            "before": columns,
            "after": columns,
            **parts,
            "op": None,
            **dict.fromkeys(FLATTENED_MARKS),
        }

    def reading(self, head: bytes, columns: pa.Schema) -> SchemaReading | None:
        """See `ScanForm`."""
        return schema_reading(head, "after", columns)

    def take(self, scanned: Scanned) -> ScannedChanges:
        """See `ScanForm`."""
        op = scanned.texts(scanned.cells["op",])
        is_update = marked(pc.equal(op, "u"))
        is_retraction = np.zeros(len(op), bool)
        record = None
        if self._rules.retract:
            # An update is two changes, in this order: it retracts the old row, and adds the new one.
            record = np.repeat(np.arange(len(op)), 1 + is_update)
            scanned, op, is_update = scanned.take(record), op.take(pa.array(record)), is_update[record]
            is_retraction = is_update & (np.diff(record, prepend=-1) > 0)
        cells = scanned.cells
        kind = pc.if_else(pa.array(is_retraction), RowKind.UPDATE_BEFORE, _kinds_of(self._rules, op))
        is_of_old = marked(pc.equal(op, "d")) | is_retraction
        has_before = cells["before",].has(OBJECT)
        has_after = cells["after",].has(OBJECT)
        event_ms = cells["source", "ts_ms"]
        is_taken = marked(kind.is_valid())
        is_taken &= cells["source",].has(OBJECT)
        for name in FLATTENED_MARKS:
            is_taken &= cells[name,].has(ABSENT)
        is_taken &= np.where(is_of_old, has_before, has_after)
        is_taken &= event_ms.has(INTEGER, NULL, ABSENT)
        if self._rules.retract:
            is_taken &= ~is_of_old | _are_whole([cells["before", name] for name in self._non_key], len(op))
        else:
            is_taken &= ~is_update | self._keeps_key(scanned)
        named = [cells["source", name] for name in _TABLE]
        is_taken &= _are_of_table(self._rules, scanned, named)
        of_position = [(field, cells[FieldPath.of(field.path)]) for field in self._rules.log_fields]
        times = scanned.integers(event_ms)
        position = _log_positions(scanned, of_position, op, times, is_taken)
        rows = {}
        for name in self._names:
            before = cells["before", name]
            after = cells["after", name]
            rows[name] = after.but(is_of_old, before)
        return ScannedChanges(
            is_taken,
            kind,
            op,
            rows,
            position,
            times,
            _snapshot_marks(scanned, cells["source", "snapshot"], op),
            self._logs(scanned),
            record=record,
        )

    def _logs(self, scanned: Scanned) -> pa.StringArray | None:
        """Return the logs that the records were read from; None if unknown."""
        if not self._rules.names_logs:
            return None
        return _scanned_logs(scanned, *(scanned.cells[FieldPath.of(path)] for path in NAMED_BY))

    def _keeps_key(self, scanned: Scanned) -> Mask:
        """Mark the records without a row before, or with the same key in it, in the same notation."""
        cells = scanned.cells
        has_before = cells["before",].has(OBJECT)
        is_same = np.ones(len(has_before), bool)
        if not has_before.any():
            return is_same
        for name in self._key:
            is_same &= scanned.are_same(cells["before", name], cells["after", name])
        is_same[~has_before] = True
        return is_same


class ScannedFlattened:
    """The `ScanForm` of flattened rows: the columns, and fields of the event.

    Args:
        rules: Settings of the format.
        row: The form of a row.
    """

    exact = ((),)
    event_fields = (*METADATA, *(f"{beginning}*" for beginning in METADATA_PREFIXES))

    def __init__(self, rules: DebeziumRules, row: RowForm) -> None:
        self._rules = rules
        self._names = row.names
        self._non_key = [name for name in rules.columns if name not in rules.key]
        of_event = [*FLATTENED_MARKS, "__schema", "__db", "__table", _TIME]
        of_logs = NAMED_BY if rules.names_logs else ()
        for path in (SNAPSHOT, *of_logs, *(field.path for field in rules.log_fields)):
            of_event += names_in_row(path)
        self.fields: Fields = {**dict.fromkeys(of_event), **row.cells}

    def reading(self, head: bytes, columns: pa.Schema) -> SchemaReading | None:
        """See `ScanForm`."""
        return schema_reading(head, "after", columns)

    def take(self, scanned: Scanned) -> ScannedChanges:
        """See `ScanForm`."""
        cells = scanned.cells
        op = self._operations(scanned)
        kind = _kinds_of(self._rules, op)
        event_ms = cells[_TIME,]
        is_taken = marked(kind.is_valid())
        is_taken &= event_ms.has(INTEGER, NULL, ABSENT)
        if self._rules.retract:
            # The old row, which an update retracts, is not there; a deleted one may have only its key.
            is_delete = marked(pc.equal(op, "d"))
            is_taken &= ~marked(pc.equal(op, "u"))
            is_taken &= ~is_delete | _are_whole([cells[name,] for name in self._non_key], len(op))
        named = [cells[name,] for name in ("__schema", "__db", "__table")]
        is_taken &= _are_of_table(self._rules, scanned, named, default=self._rules.table)
        of_position = [(field, self._first_of(scanned, names_in_row(field.path))) for field in self._rules.log_fields]
        times = scanned.integers(event_ms)
        position = _log_positions(scanned, of_position, op, times, is_taken)
        rows = {name: cells[name,] for name in self._names}
        return ScannedChanges(
            is_taken,
            kind,
            op,
            rows,
            position,
            times,
            _snapshot_marks(scanned, self._first_of(scanned, names_in_row(SNAPSHOT)), op),
            self._logs(scanned),
        )

    def _logs(self, scanned: Scanned) -> pa.StringArray | None:
        """Return the logs that the records were read from; None if unknown."""
        if not self._rules.names_logs:
            return None
        return _scanned_logs(scanned, *(self._first_of(scanned, names_in_row(path)) for path in NAMED_BY))

    def _operations(self, scanned: Scanned) -> pa.StringArray:
        """Return the operations. A row without one that is marked as deleted is a delete."""
        named = scanned.cells["__op",]
        is_text = named.has(TEXT, ESCAPED)
        texts_alone = named.filled(~is_text, NULL)
        op = scanned.texts(texts_alone)
        deleted = scanned.cells["__deleted",]
        deleted_texts = scanned.texts(deleted)
        is_true = marked(pc.equal(deleted_texts, "true"))
        is_deleted = is_true & deleted.has(TEXT, ESCAPED)
        names_none = named.kind == ABSENT
        is_delete = pa.array(is_deleted & names_none)
        return pc.if_else(is_delete, "d", op)

    def _first_of(self, scanned: Scanned, names: Sequence[str]) -> Cells:
        """Return the cells of an event's field, by the first of its names that is present."""
        first, *further = (scanned.cells[name,] for name in names)
        for other in further:
            is_absent = np.asarray(first.kind == ABSENT)
            first = first.but(is_absent, other)
        return first


def _kinds_of(rules: DebeziumRules, op: pa.StringArray) -> pa.StringArray:
    """Return the kinds of changes by operation; null for those that the exact path must read.

    It reads deletes whose sequence is in their old row: a source may send a part of that row.
    """
    scanned = {name: kind for name, kind in _KINDS.items() if name != "d" or not rules.own_sequence}
    ops = pa.array(scanned.keys(), pa.string())  # not at import: pyarrow loads pandas for it
    kinds = pa.array(scanned.values(), pa.string())
    number = pc.index_in(op, ops)
    return kinds.take(number)


def _are_whole(of_non_key: Sequence[Cells], n: int) -> Mask:
    """Mark the (n,) rows before a change that have more than their key, or no other columns."""
    is_whole = np.full(n, not of_non_key)
    for cells in of_non_key:
        is_whole |= cells.kind != ABSENT
    return is_whole


def _are_of_table(
    rules: DebeziumRules,
    scanned: Scanned,
    named: Sequence[Cells],
    *,
    default: str | None = None,
) -> Mask:
    """Mark the records of the requested table; records whose table name is not text are not marked.

    Args:
        rules: Settings of the format.
        scanned: The records.
        named: Cells of the names of schema, database and table.
        default: Table of records that name none.
    """
    is_named = np.ones(len(scanned.is_taken), bool)
    texts = []
    for cells in named:
        is_named &= cells.has(TEXT, ESCAPED, NULL, ABSENT)
        texts.append(scanned.texts(cells))
    if not rules.table:
        return is_named
    if default is not None:
        *_, table = named
        is_absent = pa.array(table.kind == ABSENT)
        named_tables = texts[-1]
        texts[-1] = pc.if_else(is_absent, default, named_tables)
    names = pa.table(texts, list(_TABLE))
    is_named &= _are_taken(rules, names)
    return is_named


def _are_taken(rules: DebeziumRules, names: pa.Table) -> Mask:
    """Mark the names of source tables whose events are read."""
    # Few tables in many records: each is judged once.
    codes = row_codes(names, _TABLE)
    _, first_of_code = np.unique(codes, return_index=True)
    distinct = names.take(pa.array(first_of_code))
    takes = []
    for each in distinct.to_pylist():
        schema = each["schema"] or each["db"]
        takes.append(rules.takes(schema, each["table"]))
    is_of_code: Mask = np.array(takes, bool)
    return is_of_code[codes]


def _snapshot_marks(scanned: Scanned, cells: Cells, op: pa.StringArray) -> pa.StringArray:
    """Return the marks of rows from snapshots of the whole table, as `whole_snapshot` does."""
    is_row = marked(pc.equal(op, "r"))
    if not is_row.any():
        return pa.nulls(len(is_row), pa.string())
    is_mark = is_row & cells.has(TEXT, ESCAPED)
    marks = scanned.texts(cells.filled(~is_mark, NULL))
    is_of_whole = pc.not_equal(marks, INCREMENTAL)
    return pc.if_else(is_of_whole, marks, None)


def _log_positions(
    scanned: Scanned,
    of_fields: Sequence[tuple[PositionField, Cells]],
    op: pa.StringArray,
    event_ms: pa.Int64Array,
    is_taken: Mask,
) -> list[pa.Int64Array]:
    """Return the numbers of the position in the database's log, in order.

    Records without one of them are dropped from `is_taken`.

    Args:
        scanned: The records.
        of_fields: The fields of the position, with their cells.
        op: The operations.
        event_ms: Times of the events, epoch ms.
        is_taken: (n,) the records taken so far; updated in place.
    """
    is_snapshot = marked(pc.equal(op, "r"))
    instead = snapshot_numbers(is_snapshot, event_ms)
    position = []
    for field, cells in of_fields:
        numbers = field.scanned(scanned, cells, instead)
        is_taken &= are_known(numbers)
        position += numbers
    return position


def _scanned_logs(scanned: Scanned, connector: Cells, file: Cells, server: Cells) -> pa.StringArray:
    """Return (n,) the names of scanned records' logs, as `log_named` does.

    Args:
        scanned: The records.
        connector: Cells of `source.name`.
        file: Cells of `source.file`.
        server: Cells of `source.server_id`.
    """
    parts = []
    for cells, kinds in ((connector, (TEXT, ESCAPED)), (file, (TEXT, ESCAPED)), (server, (INTEGER,))):
        texts = scanned.texts(cells.filled(~cells.has(*kinds), NULL))
        parts.append(texts.fill_null(""))
    return pc.binary_join_element_wise(*parts, "\t")
