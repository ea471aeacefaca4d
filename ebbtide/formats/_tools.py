"""Record maps of known tools, by their names in a spec's `format`.

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

from collections.abc import Mapping

from ebbtide.formats._record_map import FieldPath, RecordMap


def _paths(*names: str) -> tuple[FieldPath, ...]:
    return tuple(FieldPath.of(name) for name in names)


_MAXWELL = RecordMap(
    operation=FieldPath.of("type"),
    words=RecordMap.words_of(
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
    row=FieldPath.of("data"),
    before=FieldPath.of("old"),
    table=_paths("database", "table"),
    event_time=FieldPath.of("ts"),
    event_unit="s",
    writes_base64=True,
    positions=(("position", "binlog_position"), ("xoffset", "number")),
    last_without=("xoffset",),
)
_CANAL = RecordMap(
    operation=FieldPath.of("type"),
    words=RecordMap.words_of(
        insert=["INSERT"],
        update=["UPDATE"],
        delete=["DELETE"],
        truncate=["TRUNCATE"],
        ignore=[
            *("QUERY", "CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX"),
            *("GTID", "XACOMMIT", "XAROLLBACK", "MHEARTBEAT", "TIDB_WATERMARK"),
        ],
    ),
    row=FieldPath.of("data"),
    before=FieldPath.of("old"),
    table=_paths("database", "table"),
    event_time=FieldPath.of("es"),
    positions=(("_tidb.commitTs", "number"),),
    has_text_values=True,
    mysql_types=FieldPath.of("mysqlType"),
)
_TICDC = RecordMap(
    operation=FieldPath.of("type"),
    words=RecordMap.words_of(
        insert=["INSERT"],
        update=["UPDATE"],
        delete=["DELETE"],
        truncate=["TRUNCATE"],
        ignore=["CREATE", "RENAME", "CINDEX", "DINDEX", "ERASE", "ALTER", "QUERY", "WATERMARK", "BOOTSTRAP"],
    ),
    row=FieldPath.of("data"),
    before=FieldPath.of("old"),
    table=_paths("database", "table"),
    event_time=FieldPath.of("commitTs"),
    event_unit="tso",
    positions=(("commitTs", "number"),),
    has_text_values=True,
    writes_base64=True,
)
_DMS = RecordMap(
    operation=FieldPath.of("metadata.operation"),
    words=RecordMap.words_of(
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
    row=FieldPath.of("data"),
    before=FieldPath.of("before-image"),
    table=_paths("metadata.schema-name", "metadata.table-name"),
    event_time=FieldPath.of("metadata.timestamp"),
    positions=(("metadata.commit-timestamp", "timestamp"), ("metadata.transaction-record-id", "number")),
)
_DMS_S3 = RecordMap(
    operation=FieldPath.of("Op"),
    words=RecordMap.words_of(insert=["I"], snapshot=[None], update=["U"], delete=["D"]),
)
_SEQUIN = RecordMap(
    operation=FieldPath.of("action"),
    words=RecordMap.words_of(insert=["insert"], snapshot=["read"], update=["update"], delete=["delete"]),
    row=FieldPath.of("record"),
    before=FieldPath.of("changes"),
    table=_paths("metadata.table_schema", "metadata.table_name"),
    event_time=FieldPath.of("metadata.commit_timestamp"),
    positions=(("metadata.commit_lsn", "number"), ("metadata.commit_idx", "number")),
)
_AIRBYTE = RecordMap(
    row=FieldPath.of("_airbyte_data"),
    deleted=FieldPath.of("_airbyte_data._ab_cdc_deleted_at"),
    event_time=FieldPath.of("_airbyte_data._ab_cdc_updated_at"),
    positions=(("_airbyte_data._ab_cdc_lsn", "number"),),
)
_AIRBYTE_FLAT = RecordMap(
    deleted=FieldPath.of("_ab_cdc_deleted_at"),
    event_time=FieldPath.of("_ab_cdc_updated_at"),
    positions=(("_ab_cdc_lsn", "number"),),
)
_FIVETRAN = RecordMap(deleted=FieldPath.of("_fivetran_deleted"))

TOOLS: Mapping[str, RecordMap] = {
    "maxwell": _MAXWELL,
    "canal": _CANAL,
    "ticdc": _TICDC,
    "dms": _DMS,
    "dms_s3": _DMS_S3,
    "sequin": _SEQUIN,
    "airbyte": _AIRBYTE,
    "airbyte_flat": _AIRBYTE_FLAT,
    "fivetran": _FIVETRAN,
}
"""Tool to the map of its records."""
