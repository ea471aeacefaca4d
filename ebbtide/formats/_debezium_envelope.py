"""Names in Debezium's envelope: fields that order changes, their order by connector, and the metadata of flattened rows.

A flattened row (ExtractNewRecordState) also has fields of the envelope, as named by `add.fields`:

| field | in a flattened row |
|---|---|
| `source.lsn` | `__source_lsn`, or `__lsn` |
| `source.ts_ms` | `__source_ts_ms`; `__ts_ms` is the connector's clock |
| `transaction.total_order` | `__transaction_total_order`, or `__total_order` |

Source: Debezium 3.7, "Data change events" of its connectors; TiCDC, "Debezium protocol"; YugabyteDB, "Debezium connector".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ebbtide.formats._format import Json
from ebbtide.formats._positions import PositionField, PositionType

TYPES: Mapping[str, PositionType] = {
    "source.lsn": "number",
    "source.file": "binlog_file",
    "source.pos": "number",
    "source.row": "number",
    "source.gtid": "gtid",
    "source.ts_ms": "number",
    "source.ts_us": "number",
    "source.ts_ns": "number",
    "source.commit_lsn": "lsn",
    "source.change_lsn": "lsn",
    "source.begin_lsn": "lsn",
    "source.event_serial_no": "number",
    "source.scn": "decimal",
    "source.commit_scn": "decimal",
    "source.rs_id": "lsn",
    "source.ssn": "number",
    "source.commit_ts": "number",
    "source.commit_time": "number",
    "source.record_time": "number",
    "source.ord": "number",
    "transaction.total_order": "number",
    "transaction.data_collection_order": "number",
    "transaction.transaction_epoch": "number",
    "transaction.transaction_rank": "decimal",
}
"""Fields that order changes, with the type of their values."""
ORDERS: Mapping[str, tuple[str, ...]] = {
    "postgresql": ("source.lsn",),
    "mysql": ("source.file", "source.pos", "source.row"),
    "mariadb": ("source.file", "source.pos", "source.row"),
    "sqlserver": ("source.commit_lsn", "source.change_lsn", "source.event_serial_no"),
    "oracle": ("source.scn", "source.rs_id", "source.ssn"),
    "db2": ("source.commit_lsn", "source.change_lsn"),
    "informix": ("source.commit_lsn", "source.change_lsn"),
    "vitess": ("transaction.transaction_epoch", "transaction.transaction_rank", "transaction.total_order"),
    "mongodb": ("source.ts_ms", "source.ord"),
    "ticdc": ("source.commit_ts",),
    "yugabytedb": ("source.commit_time", "source.record_time"),
}
"""Connector (`source.connector` in lower case) to the fields that order its changes, most significant first."""
LEFT_OUT = ("source.rs_id", "source.ssn", "source.event_serial_no", "source.record_time")
"""Fields of these orders that older connectors or flattened rows may lack."""
SHORT_NAMES: Mapping[str, str] = {
    "_lsn": "source.lsn",
    "_file": "source.file",
    "_pos": "source.pos",
    "_row": "source.row",
    "_ts_ms": "source.ts_ms",
}
"""Short names of fields, for specs and stored sequences."""
NAMED_BY = ("source.name", "source.file", "source.server_id")
"""Envelope fields that name the log and the server that executed the change."""
SNAPSHOT = "source.snapshot"
"""Field that marks a snapshot row: first, true, last; `incremental` for a part of the table."""
INCREMENTAL = "incremental"
_PARTS = ("source", "transaction")
_OF_SOURCE = (
    *(
        "version",
        "connector",
        "name",
        "ts_ms",
        "ts_us",
        "ts_ns",
        "snapshot",
        "db",
        "schema",
        "table",
        "sequence",
        "collection",
    ),
    *("txId", "xmin", "lsn", "file", "pos", "row", "gtid", "server_id", "thread", "query", "origin", "origin_lsn"),
    *(
        "commit_lsn",
        "change_lsn",
        "begin_lsn",
        "event_serial_no",
        "scn",
        "commit_scn",
        "start_scn",
        "lcr_position",
        "rs_id",
    ),
    *(
        "ssn",
        "redo_thread",
        "user_name",
        "redo_sql",
        "row_id",
        "start_ts_ms",
        "commit_ts_ms",
        "commit_ts",
        "cluster_id",
    ),
    *(
        "rs",
        "ord",
        "lsid",
        "txnNumber",
        "wallTime",
        "vgtid",
        "keyspace",
        "shard",
        "commit_time",
        "record_time",
        "txn_id",
    ),
)
_OF_TRANSACTION = ("id", "total_order", "data_collection_order", "transaction_epoch", "transaction_rank")
METADATA = ("__op", "__deleted", *(f"__{name}" for name in dict.fromkeys((*_OF_SOURCE, *_OF_TRANSACTION))))
"""Names of event fields in a flattened row."""
METADATA_PREFIXES = ("__source_", "__transaction_", "__source.", "__transaction.")
"""Prefixes of further such names."""
_METADATA = frozenset(METADATA)


def is_metadata(name: str) -> bool:
    """Return whether a field of a flattened row belongs to the event, unless the table has a column of this name.

    Example:
        >>> is_metadata("__source_scn"), is_metadata("__v")
        (True, False)
    """
    return name in _METADATA or name.startswith(METADATA_PREFIXES)


def position_field(name: str, type_: PositionType | None = None) -> PositionField | None:
    """Return the field that a spec names; None if envelopes do not have it, or its type is neither known nor stated.

    Args:
        name: Path (`source.scn`), short name (`_lsn`), or name in a flattened row (`__source_scn`).
        type_: The type that the spec states.

    Example:
        >>> position_field("__source_scn")
        PositionField(path='source.scn', type='decimal')
    """
    path = SHORT_NAMES.get(name, name)
    if path.startswith("__"):
        path = _path_of(path)
    part, point, field = path.partition(".")
    is_field = part in _PARTS and bool(point) and field.isidentifier()
    type_ = type_ or TYPES.get(path)
    return PositionField(path, type_) if is_field and type_ else None


def _path_of(flattened: str) -> str:
    """Return the path of a field by its name in a flattened row."""
    name = flattened.removeprefix("__")
    for part in _PARTS:
        if name.startswith((f"{part}_", f"{part}.")):
            return f"{part}.{name[len(part) + 1 :]}"
    part = "transaction" if name in _OF_TRANSACTION else "source"
    return f"{part}.{name}"


def names_in_row(path: str) -> tuple[str, ...]:
    """Return the possible names of a field in a flattened row; the first one present counts.

    Example:
        >>> names_in_row("source.lsn"), names_in_row("source.ts_ms")
        (('__source_lsn', '__lsn'), ('__source_ts_ms',))
    """
    part, _, field = path.partition(".")
    whole = f"__{part}_{field}"
    return (whole,) if field == "ts_ms" else (whole, f"__{field}")


def value_in(event: Json, path: str) -> Any:
    """Return the value of a field in an envelope; None if it has none."""
    part, _, field = path.partition(".")
    fields = event.get(part)
    return fields.get(field) if isinstance(fields, dict) else None


def value_in_row(row: Json, path: str) -> Any:
    """Return the value of a field in a flattened row; None if it has none."""
    for name in names_in_row(path):
        if name in row:
            return row[name]
    return None


def whole_snapshot(op: Any, mark: Any) -> str | None:
    """Return the mark of a row that a snapshot of the whole table read; None for any other change.

    Args:
        op: The operation.
        mark: Value of `SNAPSHOT`.
    """
    is_of_whole = op == "r" and isinstance(mark, str) and mark != INCREMENTAL
    return mark if is_of_whole else None


def log_named(connector: Any, file: Any, server: Any) -> str:
    """Return the name of a change's log as in staged rows: its parts separated by tabs.

    Args:
        connector: Value of `source.name`.
        file: Value of `source.file`.
        server: Value of `source.server_id`.

    Example:
        >>> log_named("shop", "binlog.000003", 7).split(), log_named(None, "binlog.000003", None).split()
        (['shop', 'binlog.000003', '7'], ['binlog.000003'])
    """
    texts = [value if isinstance(value, str) else "" for value in (connector, file)]
    number = str(server) if type(server) is int else ""
    return "\t".join((*texts, number))
