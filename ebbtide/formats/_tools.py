"""Record maps of known tools, by their names in a spec's `format`, and tests that recognize a tool's records.

| name | records | described in |
|---|---|---|
| `maxwell` | Maxwell's daemon | maxwells-daemon.io/dataformat |
| `canal` | Canal's flat messages, TiCDC's protocol `canal-json` | github.com/alibaba/canal, docs.pingcap.com/tidb/stable/ticdc-canal-json |
| `ticdc` | TiCDC's protocol `simple`, as JSON | docs.pingcap.com/tidb/stable/ticdc-simple-protocol |
| `dms` | AWS DMS to Kafka and Kinesis | docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.Kafka.html |
| `dms_s3` | AWS DMS to S3, as JSON: rows with `Op`, which a full load lacks | docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.S3.html |
| `sequin` | Sequin | sequinstream.com/docs/reference/messages |
| `airbyte` | Airbyte's raw records, of sources with CDC and without | docs.airbyte.com/understanding-airbyte/cdc |
| `airbyte_flat` | Airbyte's records with the columns at the root ("Root level Flattening") | docs.airbyte.com/integrations/destinations/s3 |
| `fivetran` | Fivetran's tables, soft deletes | fivetran.com/docs/core-concepts/system-columns-and-tables |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ebbtide.formats._format import Json
from ebbtide.formats._positions import PositionField
from ebbtide.formats._record_map import Meaning, Path, RecordMap, Word, found_at, path_of


def _words(**words: Iterable[Word]) -> tuple[tuple[Word, Meaning], ...]:
    pairs: list[tuple[Word, Any]] = []
    for meaning, own in words.items():
        pairs += [(word, meaning) for word in own]
    return tuple(pairs)


def _paths(*names: str) -> tuple[Path, ...]:
    return tuple(path_of(name) for name in names)


_MAXWELL = RecordMap(
    operation=path_of("type"),
    words=_words(
        insert=["insert"],
        snapshot=["bootstrap-insert"],
        update=["update"],
        delete=["delete"],
        ignore=[
            "bootstrap-start",
            "bootstrap-complete",
            *("database-create", "database-alter", "database-drop"),
            *("table-create", "table-alter", "table-drop"),
        ],
    ),
    row=path_of("data"),
    before=path_of("old"),
    table=_paths("database", "table"),
    event_time=path_of("ts"),
    event_unit="s",
    writes_base64=True,
    positions=(("position", "binlog_position"), ("xoffset", "number")),
    last_without=("xoffset",),
)
_CANAL = RecordMap(
    operation=path_of("type"),
    words=_words(
        insert=["INSERT"],
        update=["UPDATE"],
        delete=["DELETE"],
        truncate=["TRUNCATE"],
        ignore=[
            *("QUERY", "CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX"),
            *("GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT", "TIDB_WATERMARK"),
        ],
    ),
    row=path_of("data"),
    before=path_of("old"),
    table=_paths("database", "table"),
    event_time=path_of("es"),
    positions=(("_tidb.commitTs", "number"),),
    has_text_values=True,
    mysql_types=path_of("mysqlType"),
)
_TICDC = RecordMap(
    operation=path_of("type"),
    words=_words(
        insert=["INSERT"],
        update=["UPDATE"],
        delete=["DELETE"],
        truncate=["TRUNCATE"],
        ignore=["CREATE", "RENAME", "CINDEX", "DINDEX", "ERASE", "ALTER", "QUERY", "WATERMARK", "BOOTSTRAP"],
    ),
    row=path_of("data"),
    before=path_of("old"),
    table=_paths("database", "table"),
    event_time=path_of("commitTs"),
    event_unit="tso",
    positions=(("commitTs", "number"),),
    has_text_values=True,
    writes_base64=True,
)
_DMS = RecordMap(
    operation=path_of("metadata.operation"),
    words=_words(
        insert=["insert"],
        snapshot=["load"],
        update=["update"],
        delete=["delete"],
        truncate=["truncate-table"],
        ignore=[
            *("create-table", "drop-table", "change-columns", "rename-table"),
            *("add-column", "drop-column", "rename-column", "column-type-change"),
        ],
    ),
    row=path_of("data"),
    before=path_of("before-image"),
    table=_paths("metadata.schema-name", "metadata.table-name"),
    event_time=path_of("metadata.timestamp"),
    positions=(("metadata.commit-timestamp", "timestamp"), ("metadata.transaction-record-id", "number")),
)
_DMS_S3 = RecordMap(
    operation=path_of("Op"),
    words=_words(insert=["I"], snapshot=[None], update=["U"], delete=["D"]),
)
_SEQUIN = RecordMap(
    operation=path_of("action"),
    words=_words(insert=["insert"], snapshot=["read"], update=["update"], delete=["delete"]),
    row=path_of("record"),
    before=path_of("changes"),
    table=_paths("metadata.table_schema", "metadata.table_name"),
    event_time=path_of("metadata.commit_timestamp"),
    positions=(("metadata.commit_lsn", "number"), ("metadata.commit_idx", "number")),
)
_AIRBYTE = RecordMap(
    row=path_of("_airbyte_data"),
    deleted=path_of("_airbyte_data._ab_cdc_deleted_at"),
    event_time=path_of("_airbyte_data._ab_cdc_updated_at"),
    positions=(("_airbyte_data._ab_cdc_lsn", "number"),),
)
_AIRBYTE_FLAT = RecordMap(
    deleted=path_of("_ab_cdc_deleted_at"),
    event_time=path_of("_ab_cdc_updated_at"),
    positions=(("_ab_cdc_lsn", "number"),),
)
_FIVETRAN = RecordMap(deleted=path_of("_fivetran_deleted"))


@dataclass(frozen=True)
class Tool:
    """A tool whose records are known.

    Args:
        map: The fields of its records that make up a change.
        wrote: Returns whether the tool wrote a record, judged by several fields and their values.
        own_columns: Prefixes of the names of columns that the tool adds.
        orders: Lists of fields that order changes, if sources differ. Default: those of the map.
    """

    map: RecordMap
    wrote: Callable[[Json], bool]
    own_columns: tuple[str, ...] = ()
    orders: tuple[tuple[PositionField, ...], ...] = ()

    @property
    def possible_orders(self) -> tuple[tuple[PositionField, ...], ...]:
        """All lists of fields that may order changes, depending on the source."""
        known = tuple(PositionField(path, type_) for path, type_ in self.map.positions)
        return self.orders or ((known,) if known else ())


def _has(record: Json, types: dict[str, type | tuple[type, ...]]) -> bool:
    """Return whether a record has fields, given by path, with values of some types."""
    return all(isinstance(found_at(record, path_of(name)), type_) for name, type_ in types.items())


def _has_word(record: Json, record_map: RecordMap) -> bool:
    path = record_map.operation or ()
    known = [word for word, _ in record_map.words]
    return found_at(record, path) in known


def _is_maxwells(record: Json) -> bool:
    is_row = _has(record, {"data": dict})
    is_of_table = _has(record, {"database": str, "type": str, "ts": int})
    return is_of_table and _has_word(record, _MAXWELL) and (is_row or "def" in record or "sql" in record)


def _is_canals(record: Json) -> bool:
    is_message = _has(record, {"database": str, "table": str, "isDdl": bool, "es": int, "ts": int})
    return is_message and _has_word(record, _CANAL)


def _is_ticdcs(record: Json) -> bool:
    return _has(record, {"version": int, "commitTs": int, "buildTs": int}) and _has_word(record, _TICDC)


def _is_dms(record: Json) -> bool:
    named = {"metadata.schema-name": str, "metadata.table-name": str, "metadata.record-type": str}
    return _has(record, {**named}) and _has_word(record, _DMS)


def _is_dms_s3(record: Json) -> bool:
    is_flat = not any(isinstance(cell, dict) for cell in record.values())
    return _has(record, {"Op": str}) and _has_word(record, _DMS_S3) and is_flat and len(record) > 1


def _is_sequins(record: Json) -> bool:
    named = {"record": dict, "metadata.table_schema": str, "metadata.table_name": str}
    return _has(record, {**named}) and "changes" in record and _has_word(record, _SEQUIN)


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
TOOLS = {
    "maxwell": Tool(_MAXWELL, _is_maxwells),
    "canal": Tool(_CANAL, _is_canals),
    "ticdc": Tool(_TICDC, _is_ticdcs),
    "dms": Tool(_DMS, _is_dms),
    "dms_s3": Tool(_DMS_S3, _is_dms_s3),
    "sequin": Tool(_SEQUIN, _is_sequins),
    "airbyte": Tool(_AIRBYTE, _is_airbytes, _AIRBYTES_COLUMNS, _airbytes_orders("_airbyte_data.")),
    "airbyte_flat": Tool(_AIRBYTE_FLAT, _is_flat_airbytes, _AIRBYTES_COLUMNS, _airbytes_orders("")),
    "fivetran": Tool(_FIVETRAN, _is_fivetrans, ("_fivetran_",)),
}


def table_of(record: Json) -> str | None:
    """Return the table that a known tool's record names; None if it names none."""
    for tool in TOOLS.values():
        if tool.map.table and tool.wrote(record):
            names = [found_at(record, path) for path in tool.map.table]
            return ".".join(map(str, names)) if all(names) else None
    return None
