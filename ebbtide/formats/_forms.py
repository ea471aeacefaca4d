"""The common form of a format's records, for the scan."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from ebbtide.columns import Mask
from ebbtide.formats._encodings import Encoding
from ebbtide.formats._scan import Cells, Fields, Path, Rows, Scanned
from ebbtide.formats._scan_loops import ANY
from ebbtide.formats._scan_schemas import SchemaReading

LogPosition = tuple[int | None, ...]
"""Position of a change in the source's log: one number for each log column of the sequence, in order; None if it is missing."""
OriginOffset = tuple[int, int]
"""Partition and offset of a record in its source."""


@dataclass(frozen=True)
class ScannedChanges:
    """The changes of some scanned records.

    Args:
        is_taken: (n,) the change is here. Otherwise other paths read its record, and its values here are ignored.
        kind: (n,) `RowKind`, as text.
        op: (n,) the source's own operation.
        cells: Column to its (n,) cells.
        position: The (n,) numbers of each log column of the sequence, in order.
        event_ms: (n,) event time of the source, epoch ms; None: it has none.
        snapshot: (n,) as in `DecodedChange`; None: no change is a snapshot row.
        log: (n,) as in `DecodedChange`; None: all unknown.
        place: (n,) partitions and offsets that the records name; None: they name none.
        record: (n,) index of each change's record, ascending; None: each record has one change.
    """

    is_taken: Mask
    kind: pa.StringArray
    op: pa.StringArray
    cells: Mapping[str, Cells]
    position: Sequence[pa.Int64Array] = ()
    event_ms: pa.Int64Array | None = None
    snapshot: pa.StringArray | None = None
    log: pa.StringArray | None = None
    place: tuple[pa.Int64Array, pa.Int64Array] | None = None
    record: Rows | None = None


class ScanForm(Protocol):
    """The common form of a format's records, to be scanned into columns."""

    @property
    def fields(self) -> Fields:
        """The fields of a record that are read."""

    @property
    def exact(self) -> Collection[Path]:
        """The objects that may have no other fields: the rows."""

    @property
    def event_fields(self) -> Sequence[str]:
        """Event fields that rows may also have, see `Scanner`."""

    def reading(self, head: bytes, columns: pa.Schema) -> SchemaReading | None:
        """Return how to read rows with a schema; None: other paths must read such records.

        Args:
            head: Bytes of a record with a schema, before its payload.
            columns: Columns of the pipeline.
        """

    def take(self, scanned: Scanned) -> ScannedChanges:
        """Return the changes of some records.

        Args:
            scanned: The records, all of the form.
        """


@dataclass(frozen=True)
class RowForm:
    """The form of a row.

    Args:
        columns: Columns of the pipeline.
        encodings: Column to the encoding of its numbers.
        ignored: Unknown columns that rows have.
    """

    columns: pa.Schema
    encodings: dict[str, Encoding]
    ignored: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return [*self.columns.names, *self.ignored]

    @property
    def cells(self) -> Fields:
        """The row's fields: lists, objects, encoded values and those of unknown columns are any JSON."""
        scalars = {
            column.name for column in self.columns if not pa.types.is_nested(column.type)
        } - self.encodings.keys()
        return {name: None if name in scalars else ANY for name in self.names}


def is_readable(name: str) -> bool:
    """Return whether the scan can find a field of this name: as it is written in JSON."""
    has_escapes = "\\" in name or '"' in name
    return bool(name) and name.isprintable() and not has_escapes
