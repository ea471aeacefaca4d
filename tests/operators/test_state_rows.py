"""States as rows: the stored names, and what comes back of them."""

import pyarrow as pa
import pytest
from servers.store_support import stateful

from ebbtide.keyed_state import TIMERS, Entry, ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from ebbtide.operators import RowsStore, StateSpec
from ebbtide.testing import MemoryPipeline

STATES = {
    "last": StateSpec(ValueStateDescriptor.kind, pa.string()),
    "recent": StateSpec(ListStateDescriptor.kind, pa.int64()),
    "seen": StateSpec(MapStateDescriptor.kind, pa.int64(), pa.string()),
}
ENTRIES = [
    ("last", None, Entry("x", 5)),
    ("recent", 0, Entry(7)),
    ("recent", 1, Entry(8)),
    ("recent", 10, Entry(9)),
    ("seen", "k", Entry(1, 6, 20)),
    (TIMERS, ("EVENT_TIME", 30), Entry(value=True)),
]
STORED = [
    {"_state": "@timers", "_sub": "EVENT_TIME/30", "_position": 30},
    {"_state": "last", "_sub": "", "_stamp_ms": 5, "_value_last": "x"},
    {"_state": "recent", "_sub": "0", "_position": 0, "_value_recent": 7},
    {"_state": "recent", "_sub": "1", "_position": 1, "_value_recent": 8},
    {"_state": "recent", "_sub": "10", "_position": 10, "_value_recent": 9},
    {"_state": "seen", "_sub": "=k", "_stamp_ms": 6, "_ttl_ms": 20, "_key_seen": "k", "_value_seen": 1},
]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [3, 1, 5, 2, 0, 4]])
def test_entries_are_stored_under_these_names_and_come_back_those_of_a_list_in_its_order(order):
    store = RowsStore(STATES)
    for name, sub, entry in (ENTRIES[number] for number in order):
        store.state(name).put(("k",), sub, entry)
    store.flush()
    rows = [{name: value for name, value in row.items() if value is not None} for row in store.rows.to_pylist()]
    common = {"key": "k", "_step": 1, "_removed": False}
    assert sorted(rows, key=lambda row: (row["_state"], row["_sub"])) == [common | row for row in STORED]
    assert [(name, *found) for name in (*STATES, TIMERS) for found in store.state(name).entries(("k",))] == ENTRIES


def test_row_for_the_sink_may_be_null_in_every_column():
    of = stateful("user_functions:Alarm", schema="id BIGINT NOT NULL", format={"type": "plain"})
    operator = MemoryPipeline(of).operator
    assert operator.schema.field("_out").type == pa.struct([("id", pa.int64()), ("rang", pa.int64())])
