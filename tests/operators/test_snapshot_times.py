"""Rows of incremental snapshots beside changed keys that leave values out: `source.ts_ms` says which changes such a row was read after."""

import itertools
import json

import pytest
from local.notes_log import rows_by_order
from local.support import UNAVAILABLE, envelope, record, spec


def event(number, op, lsn, ms, before, after, **key_change):
    """An event as a topic holds it; `ms` None: it has no time."""
    snapshot = "incremental" if op == "r" else "false"
    made = envelope(op, lsn, before=before, after=after, ts_ms=ms, snapshot=snapshot)
    return record(made, number, key=json.dumps({"id": (after or before)["id"]}), **key_change)


def moved_between_snapshots(*, has_times):
    """Key 1 becomes 2 with a value that is not sent, a new row gets key 1, and a snapshot reads that."""
    moved, created, read = (30, 40, 50) if has_times else (None, None, None)
    old, new = {"id": 1, "v": None}, {"id": 1, "v": "new"}
    return [
        event(0, "d", 30, moved, old, None, new_key='{"id": 2}'),
        event(1, "c", 30, moved, None, {"id": 2, "v": UNAVAILABLE}, old_key='{"id": 1}'),
        event(2, "c", 40, created, None, new),
        event(3, "r", None, read, None, new),
    ]


@pytest.mark.parametrize(("has_times", "values"), [(True, {None}), (False, {None, "new"})])
def test_row_that_waits_shows_another_row_s_value_only_where_snapshot_rows_have_no_time(has_times, values):
    orders = list(itertools.permutations(moved_between_snapshots(has_times=has_times)))
    found = rows_by_order(spec("id BIGINT, v STRING", source={"path": "in"}), orders)
    assert {rows[0]["v"] for rows in found} == {"new"}
    assert {rows[1]["v"] for rows in found} == values, "the limit that docs/explanation/guarantees.md names"
