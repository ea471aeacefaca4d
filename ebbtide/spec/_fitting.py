"""Refuses fields of a pipeline that do not fit together; each function refuses those of one group."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ebbtide.changelog import SequenceColumns, changelog_schema
from ebbtide.ddl import TableSchema, as_compared, is_exact
from ebbtide.durations import format_duration
from ebbtide.formats import Coding, Decoding
from ebbtide.model import Decision
from ebbtide.operators import OPERATOR_COLUMNS
from ebbtide.spec._fields import PipelineFields
from ebbtide.spec._names import NAME
from ebbtide.spec._parts import ByMap, DebeziumFormat, Encoding, FormatPart, refuse

RESERVED_COLUMNS = OPERATOR_COLUMNS | {
    *changelog_schema(pa.schema([])).names,
    *Decoding.ADDED_COLUMNS,
    *SequenceColumns.LOG_POSITIONS,
    "_entry",
    "_note",
    "_commit_version",
    "_commit_timestamp",
    "_change_type",
    *("_n", "_rows", "_new", "_before", "_truncates", "_emptied", "_decided", "_waits", "_overdue_ms"),
}
"""Columns added to the user's: in tables, in staged rows, in the checks' results."""
STATISTICS = "delta.dataSkippingStatsColumns"
"""Property of a Delta table: the columns that writers keep statistics of."""
_LISTED = re.compile(r"`((?:[^`]|``)+)`(?:\.[^,]*)?|([^,`]+)")
"""A column in the value of `STATISTICS`, or one that holds the named field."""
OWNER = re.compile(r"team:.+|[A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
"""Pattern of an owner in Dagster."""
LARGEST_UNSIGNED = 2**64 - 1


def refuse_unfit_settings(fields: PipelineFields) -> None:
    """Refuse owners that Dagster does not accept, and a run age above the sink's maximum age."""
    strangers = [owner for owner in fields.owners if not OWNER.fullmatch(owner)]
    refuse("owners", strangers, "email addresses or team:NAME")
    age = fields.max_run_age
    window = fields.freshness.fail_window
    if age is not None and age >= window:
        limit = format_duration(window)
        refuse("max_run_age", [format_duration(age)], f"less than freshness.fail_window, {limit}")


def refuse_unfit_outputs(fields: PipelineFields) -> None:
    """Refuse further outputs under the name of another table, and those of a pipeline whose sink cannot be read."""
    names = list(fields.outputs)
    refuse(
        "outputs",
        [name for name in names if name in ("state", *Decision.OWN_OUTPUTS)],
        "names other than those of the pipeline's own tables",
    )
    refuse(
        "outputs",
        [name for name in names if not re.fullmatch(NAME, name)],
        "names of lower-case letters, digits, underscores",
    )
    if fields.sink.type != "delta":
        refuse("outputs", names, "none, unless the sink is of type delta: they show its rows")


def refuse_shown_statistics(fields: PipelineFields, *, has_personal: bool) -> None:
    """Refuse a choice of columns for statistics if columns are personal: Ebbtide then chooses them."""
    properties = getattr(fields.sink, "table_properties", {})  # a sink of another package has none
    chosen = [name for name in properties if has_personal and name.lower() == STATISTICS.lower()]
    allowed = "none if columns are personal: Ebbtide chooses only other columns, so that no personal value is in the table's log"
    refuse("sink.table_properties", chosen, allowed)


def refuse_unknown_statistics(fields: PipelineFields, names: Sequence[str]) -> None:
    """Refuse a choice of columns for statistics that names a column which the sink lacks: Spark would refuse to write it then.

    Args:
        fields: The spec's.
        names: The user's columns of the sink.
    """
    chosen = getattr(fields.sink, "table_properties", {}).get(STATISTICS, "")
    known = {as_compared(name) for name in [*names, "_sequence", "_changed_by"]}
    unknown = []
    for quoted_name, name in _LISTED.findall(chosen):
        column = quoted_name.replace("``", "`") or name.strip().partition(".")[0]
        if as_compared(column) not in known:
            unknown.append(column)
    refuse("sink.table_properties", unknown, f"{STATISTICS} with columns of the sink: {', '.join(names)}")


def refuse_unfit_schema(fields: PipelineFields, table: TableSchema) -> None:
    """Refuse columns that Ebbtide reserves, and defaults that do not fit their columns."""
    reserved = [name for name in table.columns.names if as_compared(name) in RESERVED_COLUMNS]
    refuse("schema", reserved, "names that Ebbtide does not reserve")
    unfit = []
    for name, value in table.defaults.items():
        column = table.columns.field(name)
        if not _holds(column, value, fields.format.coding(name)):
            written = "NULL" if value is None else value
            unfit.append(f"{name} DEFAULT {written}")
    refuse("schema", unfit, "defaults that fit their columns")


def _holds(column: pa.Field, value: Any, coding: Coding) -> bool:
    """Return whether a column can hold a value."""
    if value is None:
        return bool(column.nullable)
    if isinstance(value, str) and pa.types.is_string(column.type):
        return True  # known without `Coding.convert`, which loads pandas: specs are loaded often
    _, failures = coding.convert([value], column.type)
    return not failures


def refuse_unfit_columns(
    fields: PipelineFields,
    names: Sequence[str],
    sink_names: Sequence[str],
    renamed: Mapping[str, str],
    fixed: Collection[str],
) -> None:
    """Refuse settings of columns that do not exist, and new names for columns that must keep theirs.

    Args:
        fields: The spec's.
        names: Columns of the schema.
        sink_names: Columns of the sink.
        renamed: Columns to their former names.
        fixed: Columns that identify or order entries.
    """
    columns_there = {*names, *sink_names}
    unknown = [name for name in fields.columns if name not in columns_there]
    refuse("columns", unknown, f"columns of the schema or of the sink: {', '.join(names)}")
    old_names = list(renamed.values())
    still_there = [old for old in old_names if old in names or old_names.count(old) > 1]
    refuse("columns.renamed_from", still_there, "names that no column has now, each once")
    unmovable = [name for name in renamed if name in fixed or name not in names]
    refuse(
        "columns.renamed_from", unmovable, "none for columns of the key or the order, or columns that the schema lacks"
    )
    read = {*names, *old_names}
    ignored = [name for name in fields.ignored_columns if name in read]
    refuse("ignored_columns", ignored, "columns that the schema lacks")


def refuse_unfit_key(key: Sequence[str], columns: pa.Schema) -> None:
    """Refuse a key with unknown columns, repeated columns, or columns without an exact type."""
    unknown = [name for name in key if name not in columns.names]
    known = ", ".join(columns.names)
    refuse("key", unknown, f"columns of the schema: {known}")
    repeated = [name for name in key if key.count(name) > 1]
    refuse("key", repeated, "each column once")
    types = [columns.field(name).type for name in key]
    inexact = [name for name, type_ in zip(key, types, strict=True) if not is_exact(type_)]
    refuse("key", inexact, "columns with an exact type: no FLOAT, DOUBLE, ARRAY, MAP, STRUCT")


def refuse_unfit_format(fields: PipelineFields, columns: pa.Schema) -> None:
    """Refuse units and encodings of unfit columns, and selection by table or topic if records do not name these."""
    times = [column.name for column in columns if pa.types.is_timestamp(column.type)]
    timeless = [name for name in fields.format.time_units if name not in times]
    refuse("format.time_units", timeless, f"TIMESTAMP columns: {', '.join(times) or 'none in the schema'}")
    _refuse_unfit_encodings(getattr(fields.format, "encodings", {}), columns)
    if fields.source.table and not names_tables(fields.format):
        without = f"none with format {fields.format.type}, whose records do not name their table"
        refuse("source.table", [fields.source.table], without)
    if fields.source.topic and fields.source.records == "value":
        refuse("source.topic", [fields.source.topic], "none with records: value, which name no topic")


def names_tables(format_: FormatPart) -> bool:
    """Return whether records of a format name their table."""
    if isinstance(format_, ByMap):
        return bool(format_.map.table)
    return isinstance(format_, DebeziumFormat)


def names_event_times(format_: FormatPart) -> bool:
    """Return whether records of a format have the time of their change."""
    if isinstance(format_, ByMap):
        return format_.map.event_time is not None
    return isinstance(format_, DebeziumFormat)


def refuse_lone_updates(format_: FormatPart) -> None:
    """Refuse a map for retractions if its updates lack the row before, which they must retract."""
    if not isinstance(format_, ByMap) or format_.map.before is not None:
        return
    meanings = [meaning for _, meaning in format_.map.words]
    if format_.map.operation is None or "update" in meanings:
        allowed = f"upsert, or materializer.upsert_key: updates of format {format_.type} do not have the row before"
        refuse("order", ["arrival"], allowed)


def _refuse_unfit_encodings(given: Mapping[str, Encoding], columns: pa.Schema) -> None:
    encodings = {name: encoding for name, encoding in given.items() if Coding.of(encoding).binary is None}
    of_binary = [name for name in given if name not in encodings]
    binary = [column.name for column in columns if Coding.is_of_bytes(column.type)]
    without_bytes = [name for name in of_binary if name not in binary]
    refuse("format.encodings", without_bytes, f"BINARY columns: {', '.join(binary) or 'none in the schema'}")
    decimals = [column.name for column in columns if pa.types.is_decimal(column.type)]
    exact = [column.name for column in columns if pa.types.is_integer(column.type) or column.name in decimals]
    inexact = [name for name in encodings if name not in exact]
    named = ", ".join(exact) or "none in the schema"
    refuse("format.encodings", inexact, f"integer or DECIMAL columns: {named}")
    narrow = []
    scaleless = []
    for name, encoding in encodings.items():
        if encoding == "unsigned" and not _holds(columns.field(name), LARGEST_UNSIGNED, Coding()):
            narrow.append(name)
        if encoding == "precise" and name not in decimals:
            scaleless.append(name)
    refuse("format.encodings", narrow, "for unsigned, columns that hold 2^64 - 1: DECIMAL(20,0)")
    refuse("format.encodings", scaleless, "for precise, DECIMAL columns")


def refuse_unfit_event_time(fields: PipelineFields, columns: pa.Schema, *, is_needed: bool) -> None:
    """Refuse an event time that is not a time, and a missing one if state expires by event time.

    Args:
        fields: The spec's.
        columns: Columns of the schema.
        is_needed: State expires by event time.
    """
    dated = [column.name for column in columns if pa.types.is_temporal(column.type)]
    shown = ", ".join(dated) or "none in the schema"
    name = fields.event_time
    if name is not None and name not in dated:
        refuse("event_time", [name], f"DATE or TIMESTAMP columns: {shown}")
    if is_needed and name is None and not names_event_times(fields.format):
        refuse(
            "event_time",
            [None],
            f"a DATE or TIMESTAMP column, since state expires by event time: {shown}",
        )
