"""Sequence mode: which events a step decides on, and in which order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from inputs.lines import batch_of
from local.support import UNAVAILABLE, change, envelope, plain, record, spec
from plans import operator_of

from ebbtide.entries import Step
from ebbtide.testing import MemoryPipeline


@pytest.mark.parametrize("turn", [1, -1])
def test_of_one_change_delivered_twice_the_first_by_file_and_line_changes_the_row(turn):
    of = spec()
    same = record(envelope("c", 1, after={"id": 1, "n": 1}))
    batches = [batch_of([same], part=part, first=line) for part, line in [(0, 5), (1, 3)][::turn]]
    changes = pa.Table.from_batches(of.decoding.decode(batches, step=1, wall_ms=None), of.decoding.schema)
    operator = operator_of(of)
    [entry] = operator.apply(changes, operator.schema.empty_table(), Step(1, 0)).entries.to_pylist()
    assert entry["_changed_by"] == {"step": 1, "part": 0, "position": 5}


def test_rows_that_stop_waiting_in_a_step_are_counted_and_are_not_filled():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, v STRING", ttl="100ms"))
    for key in (1, 2):
        moved = envelope("u", 5, before={"id": 10 + key, "v": None}, after={"id": key, "v": UNAVAILABLE})
        pipeline.step([record(moved, key)], now_ms=0)
    pipeline.step([record(envelope("c", 1, after={"id": 11, "v": "late"}), 9)], now_ms=100)
    assert [row["v"] for row in pipeline.rows() if row["id"] < 10] == [None, None]
    assert pipeline.metrics["waiting_expired"] == 2


def test_retraction_that_lacks_a_value_deletes_what_stands_at_its_sequence():
    """Its content is not known, so that it is no row that it could take back alone."""
    of = plain("id BIGINT NOT NULL, at INT, n INT, v STRING", order={"sequence": ["at"]})
    row = {"id": 1, "at": 5, "n": 1, "v": "x"}
    for lacks, left in (({"n": 2}, [row]), ({"n": 2, "v": UNAVAILABLE}, [])):
        pipeline = MemoryPipeline(of)
        pipeline.step([change("+I", **row), change("-U", **row | lacks)])
        assert pipeline.rows() == left


def test_what_an_entry_does_not_know_is_no_other_entry_s():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, a STRING, b STRING"))
    rows = [{"id": 1, "a": UNAVAILABLE, "b": "x"}, {"id": 2, "a": "y", "b": UNAVAILABLE}]
    pipeline.step([record(envelope("u", 9, after=row), row["id"]) for row in rows])
    pipeline.step([record(envelope("c", 4, after={"id": 2, "a": "old", "b": "old"}), 3)])
    assert pipeline.rows() == [{"id": 1, "a": None, "b": "x"}, {"id": 2, "a": "y", "b": "old"}]


def test_value_is_known_since_its_own_entry_s_sequence():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, v STRING"))
    for key, known in ((1, 1), (2, 5)):
        changes = [("c", known, "old"), ("u", 9, UNAVAILABLE)]
        pipeline.step([record(envelope(op, lsn, after={"id": key, "v": v})) for op, lsn, v in changes])
    pipeline.step([record(envelope("u", 3, after={"id": key, "v": "late"})) for key in (1, 2)])
    assert pipeline.rows() == [{"id": 1, "v": "late"}, {"id": 2, "v": "old"}]


@pytest.mark.parametrize(("first", "turn"), [("d", 1), ("r", 1), ("r", -1)])
def test_delete_and_snapshot_row_stand_before_a_change_at_their_lsn_and_contradict_none(first, turn):
    row = {"id": 1, "n": 1}
    same = [envelope(first, 5, **{"before" if first == "d" else "after": row}), envelope("c", 5, after=row | {"n": 2})]
    pipeline = MemoryPipeline(spec())
    pipeline.step([record(each, at) for at, each in enumerate(same[::turn])])
    assert pipeline.rows() == [{"id": 1, "n": 2}]
    assert (pipeline.metrics["conflicts"], pipeline.metrics["duplicates"]) == (0, 0)


def test_deletes_at_one_sequence_are_one_whatever_else_they_say():
    of = plain("id BIGINT NOT NULL, at INT, t TIMESTAMP", order={"sequence": ["at"]}, event_time="t")
    pipeline = MemoryPipeline(of)
    pipeline.step([change("-D", id=1, at=5, t=at) for at in (0, 1)])
    assert (pipeline.metrics["conflicts"], pipeline.metrics["duplicates"]) == (0, 1)


def test_what_each_of_two_changes_at_one_sequence_left_out_comes_from_the_other():
    """Beside a change of another key that left out a third column, and two of one more key that contradict each other there."""
    of = spec("id BIGINT NOT NULL, at INT, a STRING, b STRING, c STRING", order={"sequence": ["at"]})
    row = {"id": 1, "at": 5, "a": "a", "b": "b", "c": "c"}
    rows = [row | {"id": 9, "a": UNAVAILABLE}, row | {"b": UNAVAILABLE}, row | {"c": UNAVAILABLE}]
    rows += [row | {"id": 5, "b": text} for text in "xy"]
    pipeline = MemoryPipeline(of)
    pipeline.step([record(envelope("u", 1, after=each), at) for at, each in enumerate(rows)])
    assert (pipeline.rows()[0], pipeline.metrics["conflicts"]) == (row, 1)
