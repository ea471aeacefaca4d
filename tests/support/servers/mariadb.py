"""A real capture of MariaDB by Debezium, and the tables of the database."""

import base64
import json
from datetime import timedelta

from local.support import ROOT, lines_of, spec
from oracles.reference import canonical_rows

from ebbtide.testing import MemoryPipeline

CAPTURE = ROOT / "tests/data/mariadb"
MS = {"updated_at": "ms", "closed_at": "ms", "valid_from": "ms"}
TABLES = {
    "customers": (
        ["customer_id"],
        """customer_id DECIMAL(20,0), name STRING, loyalty_tier STRING DEFAULT 'basic', email STRING, balance DECIMAL(14,2), born DATE,
        vip TINYINT, attrs STRING, score DOUBLE, langs STRING, points BIGINT, big DECIMAL(20,0), since INT, updated_at TIMESTAMP""",
        {"customer_id": "unsigned", "big": "unsigned"},
    ),
    "orders": (
        ["order_id"],
        """order_id BIGINT, customer_id DECIMAL(20,0), status STRING, channel STRING DEFAULT 'web', total DECIMAL(12,2), currency STRING,
        notes STRING, placed_at TIMESTAMP_NTZ, updated_at TIMESTAMP_NTZ, closed_at TIMESTAMP_NTZ, ship_on DATE, took BIGINT, label BINARY,
        meta STRING, urgent BOOLEAN, flags INT, discount DECIMAL(5,2) DEFAULT NULL""",
        {"customer_id": "unsigned", "flags": "bits", "label": "base64"},
    ),
    "order_items": (
        ["order_id", "line_no"],
        """order_id BIGINT, line_no SMALLINT, sku STRING, qty INT, unit_price DECIMAL(18,6), tax_rate FLOAT, gift_msg STRING, token BINARY""",
        {"token": "base64"},
    ),
    "price_list": (
        ["sku"],
        """sku STRING, price DECIMAL(24,9), valid_from TIMESTAMP_NTZ, from_time BIGINT, weight DECIMAL(30,10), level TINYINT, seen TIMESTAMP""",
        {},
    ),
}


def pipeline_of(table, capture):
    key, schema, encodings = TABLES[table]
    times = {name: unit for name, unit in MS.items() if f"{name} TIMESTAMP_NTZ" in schema}
    made = spec(
        schema,
        key,
        source={"path": "in", "topic": f"shop.shop.{table}"},
        format={"type": "debezium", "time_units": times, "encodings": encodings},
        order={"sequence": ["_file", "_pos", "_row"]},
    )
    return MemoryPipeline(made)


def truth(table, capture, columns):
    rows = [json.loads(line) for line in lines_of(capture / "truth" / f"{table}.jsonl.gz")]
    return canonical_rows([{f.name: typed(row.get(f.name), f.name) for f in columns} for row in rows], columns)


def typed(value, name):
    """Bring MariaDB's text to the form that `canonical` reads."""
    if value is None:
        return None
    if name == "urgent":
        return value == "1"
    if name in ("took", "from_time"):
        sign, (hours, minutes, seconds) = value.startswith("-"), value.lstrip("-").split(":")
        micros = timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds)) // timedelta(microseconds=1)
        return -micros if sign else micros
    return value


def found(pipeline):
    assert pipeline.quarantine == []
    columns = pipeline.spec.table.columns
    rows = [{n: as_text(v) for n, v in row.items()} for row in pipeline.rows()]
    return canonical_rows(rows, columns)


def as_text(value):
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
