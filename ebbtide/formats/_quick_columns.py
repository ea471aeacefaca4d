"""Typing and judging on the quick path, column by column. The exact path reads changes that break a rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any

import pyarrow as pa
from msgspec import UNSET

from ebbtide.changelog import RowKind
from ebbtide.formats._encodings import decoded
from ebbtide.formats._forms import RowForm, TakenChanges
from ebbtide.formats._judging import null_indices
from ebbtide.formats._settings import DELETING, DecodingSettings
from ebbtide.formats._typed import indices_of, needed_of_delete, takes_back_by_content, unsent_within


class QuickColumns:
    """Types and judges changes column by column; collects those that the exact path must read.

    Args:
        settings: Settings of the pipeline.
        row: The form of their rows.
        changes: The changes.
        has_schemas: Their records have schemas.
    """

    def __init__(
        self,
        settings: DecodingSettings,
        row: RowForm,
        changes: TakenChanges,
        *,
        has_schemas: bool,
    ) -> None:
        self._settings = settings
        self._has_schemas = has_schemas
        self._n_changes = len(changes.row)
        self.kinds = changes.kind
        self.ops = changes.op
        self._positions = changes.position
        self.event_ms = changes.event_ms
        self.offsets = changes.offset
        self.snapshots = changes.snapshot
        self.logs = changes.log
        self._values = _values_of(row, changes.row)
        self._ignored = row.ignored
        self._unsent: dict[int, list[str]] = {}
        self._deletes: list[int] = []
        self.left: set[int] = set()
        kinds = settings.kinds
        if not kinds.issuperset(self.kinds):
            not_taken = [change for change, kind in enumerate(self.kinds) if kind not in kinds]
            self.left.update(not_taken)
        if settings.by_place:
            retractions = [change for change, op in enumerate(self.ops) if op == RowKind.UPDATE_BEFORE]
            self.left.update(retractions)
        if settings.sequence:
            self._deletes = [change for change, kind in enumerate(self.kinds) if kind in DELETING]

    def leave(self, changes: Iterable[int]) -> None:
        """Leave changes to the exact path."""
        self.left.update(changes)

    def columns(self) -> dict[str, pa.Array]:
        """Return the user's columns, and `_unavailable`."""
        needed = needed_of_delete(self._settings)
        key_only = self._key_only()
        columns = {}
        for column in self._settings.columns:
            name = column.name
            is_needed = name in needed
            values = self._values[name].copy()
            # Stale or absent columns of a delete are nulls: they must not make it bad.
            for change in key_only:
                if not is_needed or values[change] is UNSET:
                    values[change] = None
            columns[name] = self._column(column, values)
        unavailable = self._settings.schema.field("_unavailable")
        changes = range(self._n_changes)
        unsent = [self._unsent.get(change) for change in changes]
        columns["_unavailable"] = pa.array(unsent, unavailable.type)
        return columns

    def _key_only(self) -> list[int]:
        """Return the deletes that need only key and sequence."""
        if not takes_back_by_content(self._settings):
            return self._deletes
        retraction = RowKind.UPDATE_BEFORE
        return [change for change in self._deletes if self.ops[change] != retraction]

    def _column(self, column: pa.Field, values: list[Any]) -> pa.Array:
        settings = self._settings
        name = column.name
        own_unsent = settings.unavailable.take_out(values, column.type)
        if settings.needs_whole_rows:
            self.leave(own_unsent)
        if pa.types.is_nested(column.type):
            self.leave(unsent_within(settings, column, values))
        for change in own_unsent:
            unsent = self._unsent.setdefault(change, [])
            unsent.append(name)
        encoding = settings.encodings.get(name)
        if encoding is not None:
            values = decoded(values, encoding, column.type, repeat(self._has_schemas))
        if UNSET in values:
            values = self._with_default(name, values)
        coding = settings.coding(name)
        if self._has_schemas:
            coding = coding._replace(binary="base64")
        array, misfits = coding.convert(values, column.type)
        self.leave(misfits)
        if name in settings.key:
            nulls = null_indices(array)
            self.leave(nulls)
        elif not column.nullable:
            self._leave_nulls(name, array)
        return array

    def _with_default(self, name: str, values: list[Any]) -> list[Any]:
        """Return a column's values, with its default for records that lack it; without a default such records are left."""
        defaults = self._settings.defaults
        if name not in defaults:
            absent = indices_of(values, UNSET)
            self.leave(absent)
        default = defaults.get(name)
        return [default if value is UNSET else value for value in values]

    def _leave_nulls(self, name: str, array: pa.Array) -> None:
        """Leave the changes with a null in a column that is not nullable; deletes and unsent values are allowed."""
        deletes = set(self._deletes)
        for change in null_indices(array, but=deletes):
            unsent = self._unsent.get(change, ())
            if name not in unsent:
                self.left.add(change)

    def sequence(self, columns: dict[str, pa.Array]) -> pa.StructArray:
        """Return `_sequence`: the source's positions and the user's columns."""
        settings = self._settings
        type_ = settings.sequence_columns.type
        of_log = [component for component in type_ if component.name not in columns]
        n_positions = len(of_log)
        nowhere = (None,) * n_positions
        positions = [position or nowhere for position in self._positions]
        by_component = columns_of(positions, n_positions)
        remaining = iter(by_component)
        components = []
        for component in type_:
            name = component.name
            if name in columns:
                array = columns[name]
            else:
                values = next(remaining)
                array = pa.array(values, component.type)
            nulls = null_indices(array)
            self.leave(nulls)
            components.append(array)
        return pa.StructArray.from_arrays(components, fields=list(type_))

    def ignored(self) -> list[str | None] | None:
        """Return the names of each change's columns that the schema does not have; None if no record has any."""
        allowed = self._settings.ignored_columns
        if allowed.issuperset(self._ignored):
            return None
        texts: list[str | None] = []
        columns = [self._values[name] for name in self._ignored]
        for values in zip(*columns, strict=True):
            names = []
            for name, value in zip(self._ignored, values, strict=True):
                is_sent = value is not UNSET
                if is_sent and name not in allowed:
                    names.append(name)
            text = ",".join(names)
            texts.append(text or None)
        return texts


def columns_of(rows: Iterable[tuple[Any, ...]], n: int) -> list[tuple[Any, ...]]:
    """Return the n columns of some rows."""
    columns = list(zip(*rows, strict=True))
    if not columns:
        return [()] * n
    return columns


def _values_of(row: RowForm, structs: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the values of each column of some rows."""
    values = {}
    for name, attribute in row.attributes.items():
        read = attrgetter(attribute)
        values[name] = list(map(read, structs))
    return values
