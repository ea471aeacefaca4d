"""Tests that recognize the records of a known tool, by several fields and their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ebbtide.formats import TOOLS, FieldPath, PositionField, RecordMap

Json = dict[str, Any]


@dataclass(frozen=True)
class Tool:
    """A tool whose records are known.

    Args:
        name: Its name in a spec's `format`.
        wrote: Returns whether the tool wrote a record, judged by several fields and their values.
        own_columns: Prefixes of the names of columns that the tool adds.
        orders: Lists of fields that order changes, if sources differ. Default: those of the map.
        note: What its records leave open, for people; empty if nothing.
    """

    name: str
    wrote: Callable[[Json], bool]
    own_columns: tuple[str, ...] = ()
    orders: tuple[tuple[PositionField, ...], ...] = ()
    note: str = ""

    @property
    def map(self) -> RecordMap:
        """The fields of its records that make up a change."""
        return TOOLS[self.name]

    @property
    def possible_orders(self) -> tuple[tuple[PositionField, ...], ...]:
        """All lists of fields that may order changes, depending on the source."""
        known = tuple(PositionField(path, type_) for path, type_ in self.map.positions)
        return self.orders or ((known,) if known else ())


def _has(record: Json, types: dict[str, type | tuple[type, ...]]) -> bool:
    """Return whether a record has fields, given by path, with values of some types."""
    return all(isinstance(FieldPath.of(name).value_in(record), type_) for name, type_ in types.items())


def _has_word(record: Json, tool: str) -> bool:
    """Return whether a record's operation is a word of a tool."""
    path = TOOLS[tool].operation or FieldPath()
    known = [word for word, _ in TOOLS[tool].words]
    return path.value_in(record) in known


def _is_maxwells(record: Json) -> bool:
    is_row = _has(record, {"data": dict})
    is_of_table = _has(record, {"database": str, "type": str, "ts": int})
    return is_of_table and _has_word(record, "maxwell") and (is_row or "def" in record or "sql" in record)


def _is_canals(record: Json) -> bool:
    is_message = _has(record, {"database": str, "table": str, "isDdl": bool, "es": int, "ts": int})
    return is_message and _has_word(record, "canal")


def _is_ticdcs(record: Json) -> bool:
    return _has(record, {"version": int, "commitTs": int, "buildTs": int}) and _has_word(record, "ticdc")


def _is_dms(record: Json) -> bool:
    named = {"metadata.schema-name": str, "metadata.table-name": str, "metadata.record-type": str}
    return _has(record, {**named}) and _has_word(record, "dms")


def _is_dms_s3(record: Json) -> bool:
    is_flat = not any(isinstance(cell, dict) for cell in record.values())
    return _has(record, {"Op": str}) and _has_word(record, "dms_s3") and is_flat and len(record) > 1


def _is_sequins(record: Json) -> bool:
    named = {"record": dict, "metadata.table_schema": str, "metadata.table_name": str}
    return _has(record, {**named}) and "changes" in record and _has_word(record, "sequin")


_AIRBYTES_MARKS = ("_airbyte_raw_id", "_airbyte_ab_id"), ("_airbyte_extracted_at", "_airbyte_emitted_at")
"""Names of a record's identifier and time, in the newer and the older form."""


def _is_airbytes(record: Json) -> bool:
    return _has(record, {"_airbyte_data": dict}) and any(mark in record for names in _AIRBYTES_MARKS for mark in names)


def _is_flat_airbytes(record: Json) -> bool:
    has_marks = all(any(mark in record for mark in names) for names in _AIRBYTES_MARKS)
    return has_marks and "_airbyte_data" not in record


def _is_fivetrans(record: Json) -> bool:
    return _has(record, {"_fivetran_deleted": bool, "_fivetran_synced": (str, int)})


def _airbytes_orders(within: str) -> tuple[tuple[PositionField, ...], ...]:
    """Return the lists of fields that order Airbyte's changes, for MySQL and for databases with an LSN.

    Args:
        within: Prefix of the paths of the row's fields.
    """
    lsn = f"{within}_ab_cdc_lsn"
    binlog = (PositionField(f"{within}_ab_cdc_log_file", "binlog_file"), PositionField(f"{within}_ab_cdc_log_pos"))
    return binlog, (PositionField(lsn),), (PositionField(lsn, "lsn"),)


_AIRBYTES_COLUMNS = ("_airbyte_", "_ab_cdc_")
_AIRBYTES_NOTE = (
    "format: a sync that overwrites, or a refresh that removes records, deletes no row here; "
    "after one, move the files of the earlier _airbyte_generation_id away and run 'ebbtide refresh'"
)
KNOWN_TOOLS = (
    Tool("maxwell", _is_maxwells),
    Tool("canal", _is_canals),
    Tool("ticdc", _is_ticdcs),
    Tool("dms", _is_dms),
    Tool("dms_s3", _is_dms_s3),
    Tool("sequin", _is_sequins),
    Tool("airbyte", _is_airbytes, _AIRBYTES_COLUMNS, _airbytes_orders("_airbyte_data."), _AIRBYTES_NOTE),
    Tool("airbyte_flat", _is_flat_airbytes, _AIRBYTES_COLUMNS, _airbytes_orders(""), _AIRBYTES_NOTE),
    Tool("fivetran", _is_fivetrans, ("_fivetran_",)),
)
"""The tools of `TOOLS`; the first that fits counts."""


def table_of(record: Json) -> str | None:
    """Return the table that a known tool's record names; None if it names none."""
    for tool in KNOWN_TOOLS:
        if tool.map.table and tool.wrote(record):
            names = tool.map.table_in(record)
            return ".".join(map(str, names)) if all(names) else None
    return None
