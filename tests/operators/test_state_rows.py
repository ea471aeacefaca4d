"""States as rows: the stored names, and what comes back of them."""

import pyarrow as pa
import pytest

from ebbtide.keyed_state import TIMERS, Entry, ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from ebbtide.operators import StateSpec
from ebbtide.operators._stateful.rows import UnfitValueError, changed_rows, load, state_columns, to_table
from ebbtide.operators._stateful.store import WorkingStore

ListState = ListStateDescriptor.kind
MapState = MapStateDescriptor.kind
ValueState = ValueStateDescriptor.kind

STATES = {
    "last": StateSpec(ValueState, pa.string()),
    "recent": StateSpec(ListState, pa.int64()),
    "seen": StateSpec(MapState, pa.int64(), pa.string()),
}
OUTPUT = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("_step", pa.int64()),
        ("_stamp_ms", pa.int64()),
        ("_removed", pa.bool_()),
        *state_columns(STATES, OUTPUT).items(),
    ]
)
ENTRIES = [
    ("last", None, Entry("x", 5)),
    ("recent", 0, Entry(7)),
    ("recent", 1, Entry(8)),
    ("recent", 10, Entry(9)),
    ("seen", "k", Entry(1, 6, 20)),
    (TIMERS, ("EVENT_TIME", 30), Entry(value=True)),
]


def store():
    return WorkingStore(STATES)


def rows_of(entries):
    filled = store()
    for name, sub, entry in entries:
        filled.state(name).put((1,), sub, entry)
    return to_table(SCHEMA, ["id"], *changed_rows(filled, STATES), step=3)


def test_entries_are_stored_under_these_names():
    rows = [{name: value for name, value in row.items() if value is not None} for row in rows_of(ENTRIES).to_pylist()]
    common = {"id": 1, "_step": 3, "_removed": False}
    assert rows == [
        common | {"_state": "last", "_sub": "", "_stamp_ms": 5, "_value_last": "x"},
        common | {"_state": "recent", "_sub": "0", "_position": 0, "_value_recent": 7},
        common | {"_state": "recent", "_sub": "1", "_position": 1, "_value_recent": 8},
        common | {"_state": "recent", "_sub": "10", "_position": 10, "_value_recent": 9},
        common | {"_state": "seen", "_sub": "=k", "_stamp_ms": 6, "_ttl_ms": 20, "_key_seen": "k", "_value_seen": 1},
        common | {"_state": "@timers", "_sub": "EVENT_TIME/30", "_position": 30},
    ]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [3, 1, 5, 2, 0, 4]])
def test_entries_come_back_as_they_were_and_those_of_a_list_in_its_order(order):
    rows = rows_of(ENTRIES).take(pa.array(order))
    loaded = store()
    load(rows, [(1,)] * len(rows), STATES, loaded)
    assert [(name, *found) for name in (*STATES, TIMERS) for found in loaded.state(name).entries((1,))] == ENTRIES


def test_row_for_the_sink_may_be_null_in_every_column():
    assert state_columns(STATES, OUTPUT)["_out"] == pa.struct([("id", pa.int64()), ("n", pa.int64())])


def test_value_that_does_not_fit_tells_its_state_what_is_allowed_and_why():
    with pytest.raises(UnfitValueError, match="many") as caught:
        rows_of([("recent", 0, Entry("many"))])
    assert (caught.value.column, caught.value.allowed) == ("recent", "int64")
