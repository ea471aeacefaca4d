"""What is scanned of tools' records is what the exact path decodes, whatever stands in a record; and most are scanned."""

from __future__ import annotations

import copy
import json

import pytest
from frame.circumstances import assume
from hypothesis import given
from hypothesis import strategies as st
from inputs.lines import batch_of, refuse_unlike_exact, scanned
from inputs.tool_records import SCHEMA, WRITERS, records
from local.support import plain
from oracles.any_records import JSON, paths, replaced

pytestmark = pytest.mark.group("compiled")
OWN = {
    "type": "mapped",
    "operation": {"field": "op.word", "insert": ["I", 2], "snapshot": [None, 7], "update": ["U"], "delete": ["D"], "ignore": ["X"]},
    "row": "row", "before": "old", "deleted": "gone", "table": ["at.schema", "at.table"], "event_time": {"field": "time", "unit": "us"},
}  # fmt: skip
OF_OWN = {
    "op": {"word": "U"}, "row": {"id": 7, "v": "a", "n": 1, "total": "1.50"}, "old": {"v": "b"}, "gone": None, "time": 10**15,
    "at": {"schema": "shop", "table": "orders", "more": [1]}, "seq": 5, "place": "master.000009:4",
}  # fmt: skip
BESIDE = OWN | {"row": None, "before": None, "deleted": "gone", "table": []}
OF_BESIDE = {name: OF_OWN[name] for name in ("op", "gone", "time")} | OF_OWN["row"]
POSITIONS = [{"field": "place", "type": "binlog_position"}, {"field": "seq", "type": "number"}]
ORDERS = {"upsert": "upsert", "arrival": "arrival", "sequence": None}
IGNORED = {
    "fivetran": ["_fivetran_synced"],
    "airbyte_flat": ["_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_generation_id", "_airbyte_meta", "_ab_cdc_lsn"],
}  # fmt: skip
TAKEN = ["maxwell", "dms", "dms_s3", "sequin", "airbyte_flat", "fivetran"]
"""Tools whose values are not all text, and whose marks are not within the row."""
CASES = [
    *((name, order) for name in TAKEN for order in ORDERS if not (order == "sequence" and not WRITERS[name].sequence)),
    *(("own", order) for order in ORDERS),
    ("beside", "upsert"),
]
CASES = [case for case in CASES if case[1] == "upsert" or case[0] not in ("dms_s3", "airbyte_flat", "fivetran")]
ODD = JSON | st.sampled_from(
    ["I", "U", "D", "X", 2, 7, None, "insert", "update", "delete", "bootstrap-insert", "load", "r", True, False, 0, 1, "true", "2026-01-31", "0", "1",
     "1767225600", "+5", -5, 10**18, 2**62, 0.0, "2026-01-31T00:00:00.5Z", "2026-01-31 00:00:00", "orders", "shop.orders", "master.000010:7", {"id": 7}, {"id": 8}, {"more": 1}]
)  # fmt: skip


@pytest.fixture(autouse=True)
def _scan_whatever_there_is():
    assume("compiled")


def decoding_of(name, order):
    fields = {"own": OWN, "beside": BESIDE}.get(name) or {"type": WRITERS[name].format}
    sequence = POSITIONS if name == "own" else list(WRITERS[name].sequence) if name in WRITERS else []
    table = {"own": "shop.orders", "maxwell": "orders", "sequin": "public.orders"}.get(name)
    source = {"path": "in", "records": "value"} | ({"table": table} if table else {})
    return plain(
        SCHEMA,
        format=fields,
        order=ORDERS[order] or {"sequence": sequence},
        source=source,
        ignored_columns=IGNORED.get(name, []),
    ).decoding


def values_of(name):
    if name in WRITERS:
        return records(WRITERS[name], seed=3, n=30)[0]
    return [OF_OWN if name == "own" else OF_BESIDE]


@pytest.mark.parametrize(("name", "order"), CASES)
def test_records_of_each_tool_are_mostly_scanned(name, order):
    decoding = decoding_of(name, order)
    written = batch_of([json.dumps(value) for value in values_of(name)])
    n_taken, n_left = scanned(decoding, written)
    assert n_taken > n_left
    refuse_unlike_exact(decoding, written)


@given(st.data())
def test_any_record_is_staged_as_by_the_exact_path(data):
    name, order = data.draw(st.sampled_from(CASES))
    usual = values_of(name)
    lines = []
    for _ in range(data.draw(st.integers(1, 3))):
        value = copy.deepcopy(data.draw(st.sampled_from(usual)))
        for _ in range(data.draw(st.integers(0, 2))):
            value = replaced(value, data.draw(st.sampled_from(paths(value))), data.draw(ODD))
        lines.append(json.dumps(value).encode("utf-8", "replace"))
    refuse_unlike_exact(decoding_of(name, order), batch_of(lines), wall_ms=10**12)


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": {"field": "row.op", "insert": ["I"]}},
        {"deleted": "op"},
        {"type": "ticdc"},
    ],
)
def test_map_with_a_field_within_another_is_not_scanned(fields):
    of = {"type": "ticdc"} if "type" in fields else OWN | fields
    assert scanned(plain(SCHEMA, format=of, order="upsert").decoding, batch_of([json.dumps(OF_OWN)])) == (0, 1)
