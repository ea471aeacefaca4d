"""Records of every form, and whatever JSON may stand anywhere in them."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

from hypothesis import strategies as st
from local.support import envelope, plain, record, spec

from ebbtide import UpsertPipeline

SCHEMA = """id BIGINT NOT NULL, n INT, f FLOAT, price DECIMAL(6,2), name STRING NOT NULL, flag BOOLEAN, born DATE,
at TIMESTAMP, local TIMESTAMP_NTZ, data BINARY, tags ARRAY<INT>, pair STRUCT<a: INT, b: STRING>, rates MAP<STRING, DOUBLE>"""
ROW = {
    "id": 7, "n": 1, "f": 0.5, "price": "1.50", "name": "x", "flag": True, "born": 9, "at": "2026-01-01T00:00:00Z",
    "local": 1, "data": "AAE=", "tags": [1], "pair": {"a": 1, "b": "y"}, "rates": {"k": 1.5},
}  # fmt: skip
TYPES = {"price": "org.apache.kafka.connect.data.Decimal", "local": "io.debezium.time.Timestamp"}
FIELDS = [{"field": n, "type": "t", "name": TYPES.get(n), "parameters": {"scale": "2"}} for n in ROW]
UPDATE = envelope("u", 5, before=ROW | {"id": 6}, after=ROW)
VALUES = {
    "update": UPDATE,
    "delete": envelope("d", 5, before=ROW),
    "with schema": {"schema": {"fields": [{"field": "after", "fields": FIELDS}]}, "payload": UPDATE},
    "flattened": ROW | {"__op": "c", "__lsn": 5, "__source_ts_ms": 1, "__deleted": "false"},
    "plain": {"kind": "+I", "row": ROW, "part": 0, "seq": 5},
}
NUMBERS = (
    st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([0, 1, -1, 2**31, 2**63, -(2**63) - 1, 1e39, -0.0])
)
TEXTS = st.text(st.characters(), max_size=4) | st.sampled_from(
    [
        "NaN",
        "1e-77",
        "1e999999999",
        "0." + "0" * 60 + "1",
        "AQ==",
        "__debezium_unavailable_value",
        "9999-12-31",
        "\ud800",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.sampled_from(sorted(ROW)), inner, max_size=3)
    ),
    max_leaves=5,
)


@cache
def spec_of(form: str, mode: str) -> UpsertPipeline:
    order = mode if mode in ("arrival", "upsert") else {"sequence": ["local" if mode == "column" else "_lsn"]}
    timed = {"event_time": "born", "quarantine": {"max_event_time_ahead": "1h"}} if mode == "column" else {}
    if form == "plain":
        return plain(SCHEMA, format={"type": "plain", "position": ["part", "seq"]}, order=order, **timed)
    return spec(SCHEMA, order=order, **timed)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for name, item in inner for path in paths(item, (*at, name)))]


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    found = copy.deepcopy(value)
    place = found
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = by
    return found


def line_of(form: str, value: Any, key: Any = None) -> bytes:
    return (json.dumps(value) if form == "plain" else record(json.dumps(value), 1, key=key)).encode("utf-8", "replace")


def neighbour(form: str, key: int) -> bytes:
    row = ROW | {"id": key}
    if form == "plain":
        return line_of(form, {"kind": "+I", "row": row, "part": 1, "seq": key})
    return record(envelope("c", 9, after=row), key, partition=1).encode()


MODES = [
    (form, mode)
    for form in VALUES
    for mode in ("log", "arrival", "column", "upsert")
    if (form, mode) != ("plain", "log")
]
