"""The common form of flattened Debezium rows (ExtractNewRecordState) for the scan."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.formats.debezium_rules import DebeziumRules
from ebbtide.formats.debezium_scan import are_of_table, kinds_of, log_position
from ebbtide.formats.forms import RowForm, ScannedChanges
from ebbtide.formats.scan import Cells, Fields, Scanned, marked
from ebbtide.formats.scan_loops import ABSENT, ESCAPED, INTEGER, NULL, TEXT
from ebbtide.model.sequences import LOG_POSITIONS

_TIME = "__source_ts_ms"


class ScannedFlattened:
    """The `ScanForm` of flattened rows: the columns, and fields of the event whose names begin with two underscores.

    Args:
        rules: Settings of the format.
        row: The form of a row.
    """

    exact = ((),)
    but_marked = True
    row_in = "after"

    def __init__(self, rules: DebeziumRules, row: RowForm) -> None:
        self._rules = rules
        self._names = row.names
        self._positions = [name.removeprefix("_") for name in rules.sequence if name in LOG_POSITIONS]
        of_event = ["__op", "__deleted", "__schema", "__db", "__table", _TIME]
        for name in self._positions:
            of_event += [f"__{name}", f"__source_{name}"]
        self.fields: Fields = dict.fromkeys((*of_event, *row.names))

    def take(self, scanned: Scanned) -> ScannedChanges:
        """See `ScanForm`."""
        cells = scanned.cells
        op = self._operations(scanned)
        kind = kinds_of(op)
        event_ms = cells[_TIME,]
        is_taken = marked(kind.is_valid())
        is_taken &= event_ms.has(INTEGER, NULL, ABSENT)
        named = [cells[name,] for name in ("__schema", "__db", "__table")]
        is_taken &= are_of_table(self._rules, scanned, named, default=self._rules.table)
        position = []
        for name in self._positions:
            numbers = log_position(scanned, self._position_cells(scanned, name), name)
            is_natural = pc.greater_equal(numbers, 0)
            is_taken &= marked(is_natural)
            position.append(numbers)
        rows = {name: cells[name,] for name in self._names}
        return ScannedChanges(is_taken, kind, op, rows, position, event_ms=scanned.integers(event_ms))

    def _operations(self, scanned: Scanned) -> pa.StringArray:
        """Return the operations: of a row that names none, but is marked as deleted, a delete."""
        named = scanned.cells["__op",]
        op = scanned.texts(named.filled(~named.has(TEXT, ESCAPED), NULL))
        deleted = scanned.cells["__deleted",]
        is_deleted = marked(pc.equal(scanned.texts(deleted), "true")) & deleted.has(TEXT, ESCAPED)
        is_delete = is_deleted & (named.kind == ABSENT)
        return pc.if_else(pa.array(is_delete), "d", op)

    def _position_cells(self, scanned: Scanned, name: str) -> Cells:
        """Return the cells of a component of the position: under the source's name if it is there, else under its own."""
        of_source = scanned.cells[f"__source_{name}",]
        own = scanned.cells[f"__{name}",]
        if name == "ts_ms":  # `__ts_ms` is the connector's clock
            return of_source
        return of_source.but(np.asarray(of_source.kind == ABSENT), own)
