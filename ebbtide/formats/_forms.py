"""Typed forms: the common form of a format's records as structs, which a JSON parser fills directly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
from msgspec import UNSET, UnsetType

from ebbtide.columns import Mask
from ebbtide.formats._encodings import Encoding
from ebbtide.formats._scan import Cells, Fields, Path, Rows, Scanned
from ebbtide.formats._scan_loops import ANY
from ebbtide.formats._scan_schemas import SchemaReading

LogPosition = tuple[int | None, ...]
"""Position of a change in the source's log: one number for each log column of the sequence, in order; None if it is missing."""
OriginOffset = tuple[int, int]
"""Partition and offset of a record in its source."""
Struct = type[Any]
"""A class of structs."""
Field = tuple[str, str, Any, Any]
"""Name in the JSON, attribute, type, default."""


class TakenChange(NamedTuple):
    """A change, its row still a struct.

    Args:
        row: The struct.
        kind: `RowKind`, as text.
        op: The source's own operation.
        position: Position in the source's log.
        event_ms: Event time, epoch ms.
        offset: Partition and offset, if the record names them.
        snapshot, log: See `DecodedChange`.
    """

    row: Any
    kind: str
    op: str
    position: LogPosition = ()
    event_ms: int | None = None
    offset: OriginOffset | None = None
    snapshot: str | None = None
    log: str | None = None


Take = Callable[[Any], Sequence[TakenChange]]
"""Returns a record's changes; empty if the exact path must read it."""


@dataclass(frozen=True)
class TakenChanges:
    """The changes of some records, a list for each field of `TakenChange`.

    Args:
        row: See `TakenChange`, like all fields up to `offset`.
        record: (n,) index of each change's record, ascending.
        left: Indices of records that the exact path must read.
        snapshot: See `TakenChange`; empty: no change is a snapshot row.
        log: See `TakenChange`; empty: all unknown.
    """

    row: Sequence[Any]
    kind: Sequence[str]
    op: Sequence[str]
    position: Sequence[LogPosition]
    event_ms: Sequence[int | None]
    offset: Sequence[OriginOffset | None]
    record: Sequence[int]
    left: Sequence[int] = ()
    snapshot: Sequence[str | None] = ()
    log: Sequence[str | None] = ()

    @classmethod
    def of_each(cls, take: Take, values: Iterable[Any]) -> TakenChanges:
        """Take records one by one.

        Args:
            take: Returns a record's changes; empty if the exact path must read it.
            values: The records' values as structs.
        """
        changes: list[TakenChange] = []
        record: list[int] = []
        left: list[int] = []
        for number, value in enumerate(values):
            own = take(value)
            if own:
                changes += own
                record += [number] * len(own)
            else:
                left.append(number)
        if not changes:
            return cls((), (), (), (), (), (), record, left)
        row, kind, op, position, event_ms, offset, snapshot, log = zip(*changes, strict=True)
        marks = snapshot if any(snapshot) else ()
        logs = log if any(log) else ()
        return cls(row, kind, op, position, event_ms, offset, record, left, marks, logs)


class TypedForm(Protocol):
    """The common form of a format's records."""

    @property
    def value(self) -> Struct:
        """The struct that a record's value is parsed into; the exact path reads values that do not fit."""

    @property
    def rows(self) -> Sequence[str | None]:
        """The value's fields that hold rows; None is the value itself."""

    def take(self, values: Sequence[Any]) -> TakenChanges:
        """Return the changes of some records; `Format.changes` reads those without any.

        Args:
            values: The records' values as structs.
        """


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
    """The form of a row on the quick path.

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
        """The row's fields for the scan: lists, objects and values of unknown columns are any JSON."""
        scalars = {name for name, type_ in self._types.items() if not pa.types.is_nested(type_)}
        return {name: None if name in scalars else ANY for name in self.names}

    @cached_property
    def attributes(self) -> dict[str, str]:
        """Column to attribute of the struct. Attributes are numbered, since column names need not be identifiers."""
        return {name: f"f{number}" for number, name in enumerate(self.names)}

    def attributes_of(self, names: Iterable[str]) -> list[str]:
        """Return the attributes of some columns."""
        return [self.attributes[name] for name in names]

    def struct(self, reserved: Sequence[Field] = ()) -> Struct:
        """Create the struct class of a row.

        Args:
            reserved: Fields in addition to the columns.
        """
        fields: list[Field] = []
        for name in self.names:
            attribute = self.attributes[name]
            json_type = self._json_type_of(name)
            field: Field = name, attribute, json_type, UNSET
            fields.append(field)
        return struct(
            "Row",
            [*reserved, *fields],
            forbid_unknown_fields=True,
        )

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        return {column.name: column.type for column in self.columns}

    def _json_type_of(self, name: str) -> Any:
        is_encoded = name in self.encodings
        if is_encoded or name not in self._types:
            return Any
        return _json_type(self._types[name])


def is_readable(name: str) -> bool:
    """Return whether the parser can read a field of this name into a struct."""
    has_escapes = "\\" in name or '"' in name
    return bool(name) and name.isprintable() and not has_escapes


def struct(
    name: str,
    fields: Sequence[Field],
    *,
    forbid_unknown_fields: bool = False,
) -> Struct:
    """Create a struct class.

    Args:
        name: Name of the class.
        fields: All fields; each has a default.
        forbid_unknown_fields: Refuse objects with any other field.
    """
    attributes = []
    json_names = {}
    for json_name, attribute, type_, default in fields:
        attributes.append((attribute, type_, default))
        json_names[attribute] = json_name
    return msgspec.defstruct(
        name,
        attributes,
        rename=json_names,
        forbid_unknown_fields=forbid_unknown_fields,
        gc=False,  # rows have no cycles: the collector can skip them
    )


def _json_type(type_: pa.DataType) -> Any:
    """Return the JSON types that a column allows; `convert` checks the rest."""
    if pa.types.is_string(type_):
        return str | None | UnsetType
    if pa.types.is_boolean(type_):
        return bool | None | UnsetType
    if pa.types.is_integer(type_):
        return int | str | None | UnsetType
    if pa.types.is_decimal(type_) or pa.types.is_temporal(type_):
        return str | int | None | UnsetType
    return Any
