"""Histories of a table, as each tool that is known by its name would write them, with the rows that are left.

The records have the form of the tools' public documents, which each function names.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
SCHEMA = "id BIGINT NOT NULL, v STRING, n BIGINT, total DECIMAL(12,2)"
START_S = 1_767_225_600


@dataclass(frozen=True)
class Change:
    """One change of the table: an insert has no row before, a delete none after."""

    before: Row | None
    after: Row | None
    number: int

    @property
    def kind(self) -> str:
        if self.before is None:
            return "insert"
        return "update" if self.after else "delete"

    @property
    def row(self) -> Row:
        return self.after or self.before or {}

    @property
    def changed(self) -> Row:
        """The former values of the columns that changed."""
        after = self.after or {}
        return {name: value for name, value in (self.before or {}).items() if after.get(name) != value}


def history(seed: int, n: int = 60) -> tuple[list[Change], list[Row]]:
    """Draw changes of a table of few keys, and return the rows that are left. Keys change, and come back."""
    draw = random.Random(seed)
    rows: dict[int, Row] = {}
    changes = []
    for number in range(n):
        unused = [key for key in range(2**53 + 1, 2**53 + 7) if key not in rows]
        before = after = None
        kind = draw.choice(["insert", "update", "update", "key", "delete"])
        if not rows or (kind == "insert" and unused):
            after = {"id": draw.choice(unused)}
        else:
            before = rows.pop(draw.choice(sorted(rows)))
            if kind != "delete":
                moves = kind == "key" and unused
                after = {"id": draw.choice(unused) if moves else before["id"]}
        if after is not None:
            after |= {
                "v": draw.choice(["a", "ü", None, "01"]),
                "n": draw.choice([0, 2**62, None]),
                "total": draw.choice([f"{number}.10", "0.00"]),
            }
            rows[after["id"]] = after
        changes.append(Change(before, after, number))
    left = [row | {"total": Decimal(row["total"])} for _, row in sorted(rows.items())]
    return changes, left


def _text(row: Row) -> Row:
    return {name: None if value is None else str(value) for name, value in row.items()}


def maxwell(change: Change) -> Row:
    """Source: maxwells-daemon.io/dataformat."""
    record = {
        "database": "shop",
        "table": "orders",
        "type": change.kind,
        "ts": START_S + change.number // 7,
        "xid": 23396,
        # Three changes are a transaction, at one position: the last one has `commit` in place of its offset.
        **({"commit": True} if change.number % 3 == 2 else {"xoffset": change.number % 3}),
        "position": f"master.{change.number // 30 + 9:06}:{800911 - change.number // 30 + change.number // 3}",
        "data": change.row,
    }
    return record | ({"old": change.changed} if change.kind == "update" else {})


def canal(change: Change) -> Row:
    """Source: docs.pingcap.com/tidb/stable/ticdc-canal-json, which compares it with Canal's."""
    is_update = change.kind == "update"
    return {
        "id": change.number,
        "database": "shop",
        "table": "orders",
        "pkNames": ["id"],
        "isDdl": False,
        "type": change.kind.upper(),
        "es": START_S * 1000 + change.number,
        "ts": START_S * 1000 + change.number + 200,
        "sql": "",
        "sqlType": {"id": -5, "v": 12, "n": -5, "total": 3},
        "mysqlType": {"id": "bigint", "v": "varchar(20)", "n": "bigint(20)", "total": "decimal(12,2)"},
        "data": [_text(change.row)],
        "old": [_text(change.changed)] if is_update else None,
    }


def canal_of_ticdc(change: Change) -> Row:
    """Source: as `canal`; its old row is whole."""
    is_update = change.kind == "update"
    return canal(change) | {
        "old": [_text(change.before or {})] if is_update else None,
        "_tidb": {"commitTs": 429918007904436226 + change.number},
    }


def ticdc(change: Change) -> Row:
    """Source: docs.pingcap.com/tidb/stable/ticdc-simple-protocol."""
    record = {
        "version": 1,
        "database": "shop",
        "table": "orders",
        "tableID": 148,
        "type": change.kind.upper(),
        "commitTs": 447984084414103554 + change.number,
        "buildTs": 1708923662983,
        "schemaVersion": 447984074911121426,
    }
    sides = {"data": change.after, "old": change.before}
    return record | {name: _text(side) for name, side in sides.items() if side is not None}


def dms(change: Change) -> Row:
    """Source: docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.Kafka.html, with BeforeImageSettings."""
    record: Row = {
        "data": change.row,
        "metadata": {
            "timestamp": "2026-01-01T00:00:00.000000Z",
            "record-type": "data",
            "operation": change.kind,
            "partition-key-type": "schema-table",
            "schema-name": "public",
            "table-name": "orders",
            "transaction-id": 1139 + change.number // 3,
            "transaction-record-id": 1 + change.number % 3,
            "commit-timestamp": f"2026-01-01T00:00:00.{change.number // 3:06}Z",
        },
    }
    return record | ({"before-image": change.changed} if change.kind == "update" else {})


def dms_s3(change: Change) -> Row:
    """Source: docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.S3.html: an update that changes the key is a delete and an insert."""
    return {"Op": change.kind[0].upper(), **change.row}


def sequin(change: Change) -> Row:
    """Source: sequinstream.com/docs/reference/messages."""
    return {
        "record": change.row,
        "changes": change.changed if change.kind == "update" else None,
        "action": change.kind,
        "metadata": {
            "table_schema": "public",
            "table_name": "orders",
            "idempotency_key": "c2VxdWluc3RyZWFtLmNvbS9jYXJlZXJz",
            "commit_timestamp": "2024-10-28T21:37:01.127470Z",
            "commit_lsn": 123456789 + change.number // 3,
            "commit_idx": change.number % 3,
            "database_name": "myapp-prod",
        },
    }


def airbyte(change: Change) -> Row:
    """Source: docs.airbyte.com/understanding-airbyte/cdc; raw records of the S3 destination."""
    at = "2024-10-28T21:37:01.127470Z"
    own = {
        "_ab_cdc_lsn": 33227720 + change.number,
        "_ab_cdc_updated_at": at,
        "_ab_cdc_deleted_at": None if change.after else at,
    }
    return {
        "_airbyte_raw_id": "26d73cde-7eb1-4e1e-b7db-a4c03b4cf206",
        "_airbyte_extracted_at": 1622135805000,
        "_airbyte_generation_id": 0,
        "_airbyte_meta": {"changes": [], "sync_id": 10111},
        "_airbyte_data": change.row | own,
    }


def airbyte_flat(change: Change) -> Row:
    """Source: docs.airbyte.com/integrations/destinations/s3, root level flattening."""
    record = airbyte(change)
    return record | record.pop("_airbyte_data")


def fivetran(change: Change) -> Row:
    """Source: fivetran.com/docs/core-concepts/sync-modes/soft-delete."""
    return change.row | {"_fivetran_deleted": change.after is None, "_fivetran_synced": "2024-01-01T00:00:00Z"}


@dataclass(frozen=True)
class Writer:
    """A tool: how it writes a change, what orders them, and whether it sends the former key of one whose key changes."""

    write: Callable[[Change], Row]
    format: str
    sequence: tuple[str, ...] = ()
    sends_old_key: bool = True


WRITERS = {
    "maxwell": Writer(maxwell, "maxwell", ("position", "xoffset")),
    "canal": Writer(canal, "canal"),
    "canal of TiCDC": Writer(canal_of_ticdc, "canal", ("_tidb.commitTs",)),
    "ticdc": Writer(ticdc, "ticdc", ("commitTs",)),
    "dms": Writer(dms, "dms", ("metadata.commit-timestamp", "metadata.transaction-record-id")),
    "dms_s3": Writer(dms_s3, "dms_s3", sends_old_key=False),
    "sequin": Writer(sequin, "sequin", ("metadata.commit_lsn", "metadata.commit_idx")),
    "airbyte": Writer(airbyte, "airbyte", ("_airbyte_data._ab_cdc_lsn",), sends_old_key=False),
    "airbyte_flat": Writer(airbyte_flat, "airbyte_flat", ("_ab_cdc_lsn",), sends_old_key=False),
    "fivetran": Writer(fivetran, "fivetran", sends_old_key=False),
}


def records(writer: Writer, seed: int, n: int = 60) -> tuple[list[Row], list[Row]]:
    """Return a history as a tool writes it, and the rows that are left."""
    changes, rows = history(seed, n)
    written = []
    for change in changes:
        parts = [change] if writer.sends_old_key else in_parts(change)
        written += [writer.write(part) for part in parts]
    return written, rows


def in_parts(change: Change) -> Iterator[Change]:
    """Yield a change of the key as a delete and an insert, as tools do that send no former values."""
    before, after = change.before, change.after
    if before is None or after is None or before["id"] == after["id"]:
        yield change
        return
    yield Change(before, None, change.number)
    yield Change(None, after, change.number)


def lines(written: list[Row]) -> list[str]:
    """Return records as lines; amounts are numbers with two digits after the point, as no float would print them."""
    return [json.dumps(record) for record in written]
