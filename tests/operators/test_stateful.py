"""Stateful pipelines in memory: the decoder, the function and its states as rows."""

import json
import re
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from pydantic import ValidationError
from servers.store_support import line, stateful

from ebbtide.entries import Step
from ebbtide.errors import StatefulFunctionError
from ebbtide.formats import RECORDS
from ebbtide.testing import MemoryPipeline

DAY = 86_400_000


def stored(pipeline, state):
    """The keys of which a state is stored."""
    entries = [entry for entry in pipeline.state.sort_by("_step").to_pylist() if entry["_state"] == state]
    newest = {entry["id"]: entry["_removed"] for entry in entries}
    return {key for key, removed in newest.items() if not removed}


def test_states_of_every_kind_and_type_come_back_as_they_were():
    pipeline = MemoryPipeline(stateful("user_functions:Everything"))
    pipeline.step([line(1, v="a", seq=5, day="2026-01-01"), line(2, v="x", seq=1, day="2026-01-01")], now_ms=1000)
    pipeline.step([line(1, v="b", seq=6, day="2026-01-01"), line(1, v="a", seq=7, day="2026-01-02")], now_ms=1050)
    assert pipeline.rows()[0] == {
        "id": 1,
        "seen": "a:a,b,a",
        "total": Decimal("4.50"),
        "recent": [5, 6, 7],
        "per_word": [("a", 2), ("b", 1)],
    }
    pipeline.step([line(1, v="c", seq=8, day="2026-01-02")], now_ms=1100)
    assert pipeline.rows()[0]["recent"] == [6, 7, 8], "each element has its own time"
    assert pipeline.rows()[1]["seen"] == "x:x"


def test_reduced_and_aggregated_values_come_back_and_expire():
    pipeline = MemoryPipeline(stateful("user_functions:Extremes"))
    pipeline.step([line(1, seq=9), line(1, seq=1)], now_ms=1000)
    pipeline.step([line(1, seq=5)], now_ms=1099)
    assert pipeline.rows() == [{"id": 1, "most": 9, "mean": 5.0}]
    pipeline.step([line(1, seq=3)], now_ms=1199)
    assert pipeline.rows() == [{"id": 1, "most": 3, "mean": 3.0}]
    pipeline.tick(now_ms=1299)
    assert stored(pipeline, "most") | stored(pipeline, "mean") == set()


def test_value_changed_in_place_and_put_back_is_stored():
    pipeline = MemoryPipeline(stateful("user_functions:InPlace"))
    for _ in range(3):
        pipeline.step([line(1)])
    assert pipeline.rows()[0]["n"] == 3


def test_step_cuts_do_not_matter():
    lines = [line(i % 3, v="ab"[i % 2], seq=i, day="2026-01-01") for i in range(20)]
    sinks = []
    for size in (1, 3, 20):
        pipeline = MemoryPipeline(stateful("user_functions:Everything"))
        for at in range(0, 20, size):
            pipeline.step(lines[at : at + size], now_ms=5)
        sinks.append(pipeline.rows())
    assert sinks[0] == sinks[1] == sinks[2]


def test_timers_fire_at_the_tick_and_before_the_rows_of_a_later_step():
    pipeline = MemoryPipeline(stateful("user_functions:Alarm"))
    pipeline.step([line(1), line(2)], now_ms=0)
    pipeline.tick(now_ms=49)
    assert pipeline.rows() == [{"id": 1, "rang": 0}, {"id": 2, "rang": 0}]
    pipeline.step([line(1)], now_ms=50)
    assert pipeline.rows()[0] == {"id": 1, "rang": 1}
    pipeline.tick(now_ms=60)
    assert pipeline.rows() == [{"id": 1, "rang": 1}, {"id": 2, "rang": 1}]
    pipeline.step([line(2)], now_ms=70)
    pipeline.tick(now_ms=120)
    assert pipeline.rows() == []
    counts = {name: n for name, n in pipeline.metrics.items() if n}
    assert counts == {"changes": 4, "updated": 5, "deleted": 2, "timers": 4}


def test_row_for_the_sink_has_the_place_of_its_key_s_last_change_and_a_timer_s_that_of_its_step():
    pipeline = MemoryPipeline(stateful("user_functions:Alarm"))
    pipeline.step([line(1), line(2), line(1)], now_ms=0)
    pipeline.tick(now_ms=50)
    rows = [entry for entry in pipeline.state.to_pylist() if entry["_change"]]
    found = [(row["_step"], *row["_changed_by"].values(), row["_removed"]) for row in rows]
    assert found == [(1, 1, 0, 2, False), (1, 1, 0, 1, False), (2, 2, 0, 0, False), (2, 2, 0, 0, False)]


@pytest.mark.demand("ttl-cleaned")
def test_tick_drops_what_expires_beside_a_state_that_does_not():
    pipeline = MemoryPipeline(stateful("user_functions:Everything"))
    pipeline.step([line(1, v="a", seq=1, day="2026-01-01")], now_ms=0)
    pipeline.tick(now_ms=100)
    assert (stored(pipeline, "profile"), stored(pipeline, "recent")) == ({1}, set())


def test_function_knows_the_key_of_its_sink():
    pipeline = MemoryPipeline(stateful("ebbtide.functions:LagLead", output_key=["id", "seq"]))
    pipeline.step([line(1, v="a", seq=1), line(1, v="b", seq=2)])
    pipeline.step([line(1, v="a", seq=1, kind="-D")])
    assert [row["seq"] for row in pipeline.rows()] == [2]


def test_function_gets_a_map_as_a_dict():
    fields = {"schema": "id BIGINT, attributes MAP<STRING, STRING>", "format": {"type": "plain"}}
    pipeline = MemoryPipeline(stateful("user_functions:Colour", **fields))
    pipeline.step([line(1, attributes={"size": "8", "colour": "red"})])
    assert pipeline.rows() == [{"id": 1, "colour": "red"}]


def test_sink_key_may_be_wider_than_the_functions():
    pipeline = MemoryPipeline(stateful("user_functions:PerDay", output_key=["id", "day"], event_time="day"))
    pipeline.step([line(1, day="2026-01-01"), line(1, day="2026-01-02"), line(1, day="2026-01-01")])
    assert [(row["day"], row["n"]) for row in pipeline.rows()] == [(date(2026, 1, 1), 2), (date(2026, 1, 2), 1)]


def test_event_that_is_past_its_time_is_not_stored_and_counted_late():
    pipeline = MemoryPipeline(stateful("user_functions:PerDay", output_key=["id", "day"], event_time="day"))
    pipeline.step([line(1, day="2026-01-10")])
    pipeline.step([line(1, day="2026-01-08"), line(1, day="2026-01-09")])
    assert [row["day"].day for row in pipeline.rows()] == [9, 10]
    assert pipeline.metrics["late"] == 1


def test_key_not_seen_for_its_time_leaves_the_sink():
    pipeline = MemoryPipeline(
        stateful(
            "ebbtide.functions:LastSeen",
            event_time="at",
            ttl={"seen": {"ttl": "1d", "time_characteristic": "EVENT_TIME"}},
        )
    )
    pipeline.step([line(1, at=0), line(2, at=5), line(1, at=3)])
    pipeline.step([line(2, at=DAY)])
    assert [(row["id"], row["changes"]) for row in pipeline.rows()] == [(1, 2), (2, 2)]
    pipeline.step([line(3, at=DAY + 3)])
    pipeline.tick(now_ms=0)
    assert [row["id"] for row in pipeline.rows()] == [2, 3], "the watermark has reached the end of 1"
    pipeline.step([line(1, at=DAY + 4)])
    assert next(row["changes"] for row in pipeline.rows() if row["id"] == 1) == 1, "it is counted anew"


@pytest.mark.demand("ttl-first-login")
def test_deduplicator_lets_the_first_row_through_until_its_time_from_creation_is_over():
    pipeline = MemoryPipeline(
        stateful("ebbtide.functions:Deduplicate", ttl={"first": {"ttl": "10ms", "update_type": "ON_CREATE"}})
    )
    pipeline.step([line(1, v="a"), line(1, v="b"), line(2, v="c", kind="-D")], now_ms=0)
    pipeline.step([line(1, v="d")], now_ms=9)
    assert [(row["id"], row["v"]) for row in pipeline.rows()] == [(1, "a")]
    pipeline.step([line(1, v="e")], now_ms=10)
    assert pipeline.rows()[0]["v"] == "e"


def test_truncate_is_a_bad_record():
    fields = {"format": {"type": "debezium"}, "source": {"path": "in", "records": "value"}, "schema": "id BIGINT"}
    pipeline = MemoryPipeline(stateful("ebbtide.functions:Deduplicate", **fields))
    pipeline.step([json.dumps({"op": "t", "before": None, "after": None, "source": {"lsn": 1, "ts_ms": 1}})])
    assert [row["_reason"] for row in pipeline.quarantine] == ["truncate"]


REPAIR = r"Nothing of the step was committed\. Repair the function, then run again\."
MISFIT = r"Fails yielded a row that does not fit its output\. Got: "
COLUMNS = r"\. Allowed: the columns id, n; those of the key are added; none of id, n null\."


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", rf"Fails failed on key \(1,\): KeyError: 'gone'\. {REPAIR}"),
        ("raise lines", rf"Fails failed on key \(1,\): ValueError: one two\. {REPAIR}"),
        ("column", rf"{MISFIT}{{'m': 1}}{COLUMNS}"),
        ("key", rf"{MISFIT}{{'id': 99, 'n': 1}}{COLUMNS}"),
        ("null", rf"{MISFIT}{{'n': None}}{COLUMNS}"),
        ("type", r"Fails gave .* fit 'out': Could not convert 'many'.*\. Allowed: struct<id: int64, n: int64>\."),
        ("state", r"Fails gave a value that does not fit 'count': .*'many'.*\. Allowed: int64\."),
        ("map key", r"Fails gave a value that does not fit 'seen': .*1000.*\. Allowed: int8\."),
    ],
)
def test_function_that_fails_is_named_with_what_it_did_and_what_is_allowed(how, message):
    pipeline = MemoryPipeline(stateful("user_functions:Fails", output_key=["id", "n"], options={"how": how}))
    with pytest.raises(StatefulFunctionError, match=f"^{message}$"):
        pipeline.step([line(1)])


@pytest.mark.parametrize("how", ["raise", "raise lines", "column", "key", "null", "type", "state", "map key"])
def test_error_of_a_function_shows_no_value_where_a_column_is_personal(how):
    fields = {"output_key": ["id", "n"], "options": {"how": how}, "columns": {"n": {"personal": True}}}
    pipeline = MemoryPipeline(stateful("user_functions:Fails", **fields))
    with pytest.raises(StatefulFunctionError, match=r"^Fails (failed|yielded|gave)") as caught:
        pipeline.step([line(1)])
    message = str(caught.value)
    assert not re.search(r"gone|one two|many|99|1000|\(1,\)", message), message
    assert caught.value.__cause__ is None


REFUSED = {
    "no such module": ({"function": "no_such:Thing"}, "got no_such:Thing, No module named 'no_such'"),
    "no such class": ({"function": "user_functions:Nothing"}, "has no attribute 'Nothing'"),
    "no function": ({"function": "datetime:date"}, "allowed: a subclass of ebbtide.StatefulFunction"),
    "not a name": ({"function": "user_functions"}, "should match pattern"),
    "ttl of no state": ({"ttl": {"nothing": "1d"}}, "ttl: got nothing; allowed: states of user_functions:Everything: profile, recent, per_word"),
    "ttl bare number": ({"ttl": {"recent": 5}}, "got 5; allowed: a number with its unit"),
    "live expiry": ({"ttl": {"recent": {"ttl": "1d", "expire_live": True}}}, "ttl.recent.expire_live: got True; allowed: false"),
    "asks the clock": ({"ttl": {"recent": {"ttl": "1d", "cleanup": {"compaction_filter": {"query_time_after_num_entries": 5}}}}}, "on Delta a compaction uses one clock"),
    "every record": ({"ttl": {"recent": {"ttl": "1d", "cleanup": {"incremental": {}}}}}, "on Delta a step reads only the keys that it touches"),
    "event time without events": ({"ttl": {"recent": {"ttl": "1d", "time_characteristic": "EVENT_TIME"}}}, "event_time: got None"),
    "output key unknown": ({"output_key": ["id", "nope"]}, "output_key: got nope; allowed: columns of the function's output"),
    "output key too narrow": ({"output_key": ["seen"]}, r"output_key: got id; allowed: the key \(id\) and more"),
    "reserved": ({"schema": "id BIGINT, _state STRING, at TIMESTAMP"}, "schema: got _state; allowed: names that Ebbtide does not reserve"),
    "reserved output": ({"function": "user_functions:Reserved"}, "function: got _Changed_by; allowed: an output of user_functions:Reserved without names that Ebbtide reserves"),
    "output twice": ({"function": "user_functions:TwiceTheKey"}, "function: got id, ID; allowed: an output of user_functions:TwiceTheKey that names no column twice"),
    "order": ({"order": "arrival"}, "there is no such field"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.demand("ttl-incremental-rocksdb")
def test_spec_that_cannot_work_is_refused(case):
    fields, message = REFUSED[case]
    with pytest.raises(ValidationError, match=message):
        stateful(**{"function": "user_functions:Everything"} | fields)


@pytest.mark.parametrize(("clock", "left"), [("WATERMARK", [{2}, {2}]), ("PROCESSING_TIME", [{1, 2}, set()])])
@pytest.mark.demand("ttl-event-clock")
def test_tick_drops_what_the_expiry_clock_says_and_not_the_other(clock, left):
    """The watermark passes the end of 1 only; processing time first no end, then both."""
    ttl = {"ttl": "100ms", "time_characteristic": "EVENT_TIME", "expiry_clock": clock}
    pipeline = MemoryPipeline(stateful("ebbtide.functions:Deduplicate", event_time="at", ttl={"first": ttl}))
    pipeline.step([line(1, at=100), line(2, at=200)], now_ms=0)
    found = []
    for now in (1, 300):
        pipeline.tick(now_ms=now)
        found.append(stored(pipeline, "first"))
    assert found == left


@pytest.mark.parametrize(
    ("cleanup", "left"), [({}, set()), ({"background": False}, {1}), ({"background": False, "timers": True}, set())]
)
@pytest.mark.demand("ttl-background")
def test_tick_drops_nothing_where_no_cleanup_may(cleanup, left):
    ttl = {"ttl": "100ms", "cleanup": cleanup}
    pipeline = MemoryPipeline(stateful("ebbtide.functions:Deduplicate", ttl={"first": ttl}))
    pipeline.step([line(1)], now_ms=0)
    pipeline.tick(now_ms=100)
    assert stored(pipeline, "first") == left


def test_rows_of_a_key_come_by_file_and_line_however_they_are_given():
    pipeline = MemoryPipeline(stateful("user_functions:Everything"))
    lines = [line(1, v=v, seq=n, day="2026-01-01") for n, v in enumerate("abc")]
    parts, places = [0, 0, 1], [0, 1, 0]
    batch = pa.record_batch([["f"] * 3, parts, places, [each.encode() for each in lines]], schema=RECORDS)
    staged = pa.Table.from_batches(pipeline.decoding.decode([batch], step=1, wall_ms=None))
    operator = pipeline.operator
    decided = operator.apply(staged.take([2, 0, 1]), operator.schema.empty_table(), Step(1, 0)).entries.to_pylist()
    assert [entry["_out"]["seen"] for entry in decided if entry["_out"]] == ["a:a,b,c"]
