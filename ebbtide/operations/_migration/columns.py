"""Migration of columns: state, sink and changelog take the columns of a changed schema, without a rebuild.

| change of the schema | existing rows |
|---|---|
| a column added | null, or its DEFAULT, as for older records |
| `columns: {new: {renamed_from: old}}` | the same values under the new name |
| a wider type | cast |
| a column dropped | without its values |
| columns in another order | unchanged |

Files are rewritten only if values are added, moved or removed. Refused: other types, NOT NULL without a
DEFAULT, other key or order columns, and, by arrival, FLOAT to DOUBLE, since a retraction finds its row by its content.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ebbtide.columns import columns_named
from ebbtide.ddl import ddl_of, type_ddl
from ebbtide.errors import MigrationError
from ebbtide.formats import Coding
from ebbtide.ledger import StepFacts
from ebbtide.model import SchemaChange
from ebbtide.operations._migration.widening import widens
from ebbtide.operators import Operator
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline
from ebbtide.tables import Keep

FIRST_OWN_COLUMN = "_step"
"""The state table's first column after the user's."""
BY_COLUMN = ("time_units", "encodings")
"""Fields of a format with settings of single columns."""


@dataclass(frozen=True)
class ColumnMigration:
    """The effect of a migration on a pipeline's columns.

    Args:
        before: The spec, with the columns of the tables.
        change: Change from these columns to the spec's; None: they are the same.
        changes: Descriptions of the changes.
    """

    before: Pipeline
    change: SchemaChange | None = None
    changes: tuple[str, ...] = ()

    @property
    def rewrites(self) -> bool:
        """Return whether data files must be rewritten."""
        return self.change is not None and self.change.rewrites


def column_migration(spec: Pipeline, last: StepFacts, stored: pa.Schema) -> ColumnMigration:
    """Determine the migration of the columns.

    Args:
        spec: The pipeline with its new spec.
        last: Facts of the last step.
        stored: The columns of the state table.

    Raises:
        MigrationError: a column has changed its type, or has no value for existing rows.
    """
    if "columns" not in spec.misfits(last.state.spec):
        return ColumnMigration(spec)
    old = user_columns(stored)
    new = spec.table.columns
    renamed = _renamed(spec, old)
    added: dict[str, Any] = {}
    widened = []
    changes = []
    for column in new:
        old_name = renamed.get(column.name, column.name)
        if old_name != column.name:
            changes.append(f"column {old_name}: renamed to {column.name}")
        if old_name not in old.names:
            value = _value_of_added(spec, column)
            added[column.name] = value
            given = _value_text(value)
            changes.append(f"column {column.name}: added, {given}")
            continue
        old_type = old.field(old_name).type
        if old_type != column.type:
            _refuse_other_type(spec, column, old_type)
            widened.append(column.name)
            before_ddl = type_ddl(old_type)
            after_ddl = type_ddl(column.type)
            changes.append(f"column {column.name}: {before_ddl} -> {after_ddl}")
    # A stored column that neither stays nor is renamed is dropped.
    taken = {*new.names, *renamed.values()}
    dropped = [name for name in old.names if name not in taken]
    changes += [f"column {name}: dropped, with its values" for name in dropped]
    change = SchemaChange(
        added=added,
        renamed=renamed,
        widened=widened,
        dropped=dropped,
    )
    before = spec.model_copy(update={"schema_": ddl_of(old)})
    return ColumnMigration(
        before,
        change,
        tuple(changes or ["columns: in another order"]),
    )


def user_columns(stored: pa.Schema) -> pa.Schema:
    """Return the user's columns among those of a state table."""
    names = stored.names
    first = names.index("_note") + 1
    end = names.index(FIRST_OWN_COLUMN)
    return columns_named(stored, names[first:end])


def has_same_format(spec: Pipeline, last: StepFacts, stored: pa.Schema) -> bool:
    """Return whether a changed format reads the remaining columns as before.

    Settings of single columns may differ if their columns do.
    """
    given = dict(spec.format.identity)
    known = dict(last.state.spec["format"])
    old = user_columns(stored)
    for field in BY_COLUMN:
        by_new_name = given.pop(field, {})
        by_old_name = known.pop(field, {})
        for column in spec.table.columns:
            name = column.name
            stays = name in old.names and old.field(name).type == column.type
            if stays and by_new_name.get(name) != by_old_name.get(name):
                return False
    return given == known


def _renamed(spec: Pipeline, old: pa.Schema) -> dict[str, str]:
    """Return new names to old ones, for columns that are not renamed yet."""
    renamed = {}
    for name, old_name in spec.renamed.items():
        is_still_to_do = name not in old.names and old_name in old.names
        if is_still_to_do:
            renamed[name] = old_name
    return renamed


def _value_of_added(spec: Pipeline, column: pa.Field) -> Any:
    """Return a new column's value in existing rows, as JSON that does not depend on a unit of time.

    Raises:
        MigrationError: it may not be null, and has no default.
    """
    default = spec.table.defaults.get(column.name)
    if default is None:
        if not column.nullable:
            raise MigrationError.of(
                f"Column '{column.name}' of '{spec.name}' cannot be added.",
                got="NOT NULL without a DEFAULT",
                allowed="a column that may be null, or a DEFAULT for existing rows",
                next_step="Give it a DEFAULT, or run 'ebbtide refresh' to rebuild the sink from the source.",
            )
        return None
    array, _ = spec.format.coding(column.name).convert([default], column.type)
    value = array[0].as_py()
    if isinstance(value, date):  # also times
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def _value_text(value: Any) -> str:
    if value is None:
        return "null in existing rows"
    return f"{value!r} in existing rows"


def _refuse_other_type(spec: Pipeline, column: pa.Field, old: pa.DataType) -> None:
    """Refuse a type that cannot hold all stored values."""
    # By arrival a row is found by its content: FLOAT 0.1 as DOUBLE is not the DOUBLE 0.1 that a retraction would carry.
    is_inexact = pa.types.is_float32(old) and pa.types.is_float64(column.type)
    is_by_content = not spec.sequence
    if widens(old, column.type) and not (is_inexact and is_by_content):
        return
    raise MigrationError.of(
        f"Column '{column.name}' of '{spec.name}' cannot be migrated.",
        got=f"{type_ddl(old)} -> {type_ddl(column.type)}",
        allowed="a type with all values of the old one: wider integers; a DECIMAL with no fewer digits before and after the point (BIGINT needs 19 "
        "before it, INT 10, SMALLINT 5, TINYINT 3); up to INT to DOUBLE; FLOAT to DOUBLE (by sequence); DATE to TIMESTAMP_NTZ; more fields in structs",
        next_step="Give the new type to a column of another name, or run 'ebbtide refresh' to rebuild the sink from the source.",
    )


@dataclass(frozen=True)
class AlteredEntries:
    """Keeps entries, with the new columns.

    Args:
        keep: Selects the entries to keep, with the old columns.
        operator: Operator of the new entries.
        change: The change of the columns.
    """

    keep: Keep
    operator: Operator
    change: SchemaChange

    def __call__(self, entries: pa.Table, operator: Operator) -> pa.Table:
        """See `ebbtide.tables.Keep`."""
        kept = self.keep(entries, operator)
        fills = self.change.fills(self.operator.schema, Coding().convert)
        return self.operator.altered(kept, self.change, fills)


def altered(keep: Keep, spec: Pipeline, change: SchemaChange) -> Keep:
    """Return a function that keeps entries, with the columns of a spec."""
    return AlteredEntries(keep, Plan("", spec).operator, change)
