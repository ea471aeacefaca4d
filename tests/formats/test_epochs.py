"""A log that begins again: changes from that event time on come after all earlier ones."""

import itertools
import json
import random

import pytest
from local.support import UNAVAILABLE, cut, envelope, spec

from ebbtide.errors import ConfigError
from ebbtide.testing import MemoryPipeline

SWITCH_MS = 5_000
ORDERS = {
    "postgresql": (["_lsn"], lambda at: {"lsn": at}),
    "mysql": (["_file", "_pos", "_row"], lambda at: {"file": f"bin.{at // 4:06d}", "pos": at % 4, "row": 0}),
    "sqlserver": (["source.commit_lsn"], lambda at: {"commit_lsn": f"{at:08x}:00000001:0001"}),
    "oracle": (["source.scn"], lambda at: {"scn": str(at)}),
}


def pipeline_of(sequence, log_begins, **more):
    pipeline = MemoryPipeline(
        spec(
            "id BIGINT NOT NULL, n STRING",
            order={"sequence": sequence},
            source={"path": "in", "records": "value"},
            **more,
        )
    )
    pipeline.decoding = pipeline.decoding.after(log_begins)
    return pipeline


def change(op, position, ms, key, n):
    row = {"id": key, "n": n}
    event = envelope(op, None, before=row if op == "d" else None, after=None if op == "d" else row, ts_ms=ms)
    event["source"].update(position)
    return json.dumps(event)


@pytest.mark.parametrize("connector", ORDERS)
def test_any_arrival_of_two_logs_gives_the_rows_of_the_second(connector):
    sequence, position = ORDERS[connector]
    draw = random.Random(connector)
    for _ in range(4):
        rows, records = {}, []
        for at in range(14):
            is_new = at >= 7
            key = draw.choice([1, 2])
            op = "d" if key in rows and draw.random() < 0.3 else "u"
            rows.pop(key, None)
            if op == "u":
                rows[key] = str(at)
            place = position(at - 6 if is_new else 1000 + at)
            records.append(change(op, place, (SWITCH_MS if is_new else 0) + at, key, str(at)))
        arrived = [*records, *draw.sample(records, 5)]
        draw.shuffle(arrived)
        pipeline = pipeline_of(sequence, [SWITCH_MS])
        for part in cut(arrived, [draw.randrange(20) for _ in range(3)]):
            pipeline.step(part)
        assert {row["id"]: row["n"] for row in pipeline.rows()} == rows
        assert pipeline.quarantine == []


def test_changed_key_of_the_second_log_takes_unsent_values_along():
    old = change("c", {"lsn": 900}, 1, 1, "kept")
    moving = envelope("u", 3, before={"id": 1, "n": UNAVAILABLE}, after={"id": 2, "n": UNAVAILABLE}, ts_ms=SWITCH_MS)
    for records in itertools.permutations([old, json.dumps(moving)]):
        pipeline = pipeline_of(["_lsn"], [SWITCH_MS])
        for record in records:
            pipeline.step([record])
        assert pipeline.rows() == [{"id": 2, "n": "kept"}]


def test_truncate_of_the_second_log_empties_what_the_first_one_left():
    pipeline = pipeline_of(["_lsn"], [SWITCH_MS])
    pipeline.step([change("c", {"lsn": 900}, 1, 1, "old")])
    pipeline.step([json.dumps(envelope("t", 3, ts_ms=SWITCH_MS)), change("c", {"lsn": 4}, SWITCH_MS, 2, "new")])
    assert pipeline.rows() == [{"id": 2, "n": "new"}]


def test_log_may_begin_again_more_than_once():
    pipeline = pipeline_of(["_lsn"], [10, 20])
    records = [change("u", {"lsn": lsn}, ms, 1, f"{ms}") for lsn, ms in ((900, 9), (500, 19), (5, 20), (4, 21))]
    pipeline.step(records[::-1])
    assert pipeline.rows() == [{"id": 1, "n": "20"}]


def test_change_without_an_event_time_is_bad_where_a_log_began_again():
    pipeline = pipeline_of(["_lsn"], [10])
    pipeline.step([change("u", {"lsn": 1}, None, 1, "x")])
    assert [bad["_reason"] for bad in pipeline.quarantine] == ["null_event_time"]


def test_position_without_room_for_an_epoch_stops_the_step():
    pipeline = pipeline_of(["_lsn"], [10])
    with pytest.raises(ConfigError, match="too large to be ordered after the old ones"):
        pipeline.step([change("u", {"lsn": 2**56}, 10, 1, "x")])
