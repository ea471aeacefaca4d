"""`on_expire` of a function: each entry that expires is handed over once, in the step that removes it."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from servers.store_support import line, stateful

from ebbtide.entries import Step
from ebbtide.testing import MemoryPipeline

TTL_MS = 100
STATES = ("newest", "items", "each")
BY_PROCESSING_TIME = {"ttl": "100ms"}
BY_EVENT_TIME = {"ttl": "100ms", "time_characteristic": "EVENT_TIME"}


def handing_over(ttl, **more):
    """A pipeline whose sink shows what was handed over."""
    fields = {"ttl": dict.fromkeys(STATES, ttl), "output_key": ["id", "entry"], "event_time": "at"}
    return MemoryPipeline(stateful("user_functions:HandedOver", **fields, **more))


def shown(pipeline):
    return {(row["id"], row["entry"], row["ended_ms"], row["times"]) for row in pipeline.rows()}


@dataclass
class Model:
    """What has been handed over, by the lines alone.

    Args:
        by_event: Entries age by the watermark, the greatest event time of earlier steps.
    """

    by_event: bool
    live: dict = field(default_factory=dict)
    handed: set = field(default_factory=set)
    greatest_ms: int | None = None
    watermark_ms: int | None = None

    def clock(self, now_ms):
        self.watermark_ms = self.greatest_ms
        return self.watermark_ms if self.by_event else now_ms

    def expire(self, clock_ms, key=None):
        if clock_ms is None:
            return
        for (id_, name), (value, stamp_ms) in list(self.live.items()):
            if stamp_ms + TTL_MS <= clock_ms and key in (None, id_):
                self.handed.add((id_, f"{name.partition(' ')[0]}/{value}", stamp_ms + TTL_MS, 1))
                del self.live[id_, name]

    def step(self, now_ms, rows):
        clock_ms = self.clock(now_ms)
        for id_ in {id_ for id_, _, _ in rows}:
            self.expire(clock_ms, id_)
        for id_, n, at_ms in rows:
            stamp_ms = at_ms if self.by_event else now_ms
            before_ms = self.live.get((id_, "newest"), (None, stamp_ms))[1]
            self.put(id_, "newest", n, max(stamp_ms, before_ms), clock_ms)
            self.put(id_, f"items {n}", n, stamp_ms, clock_ms)
            self.put(id_, f"each {n}", n, stamp_ms, clock_ms)
        times = [at_ms for _, _, at_ms in rows]
        self.greatest_ms = max([*times, self.greatest_ms or 0]) if times or self.greatest_ms else None

    def put(self, id_, name, value, stamp_ms, clock_ms):
        is_late = clock_ms is not None and stamp_ms + TTL_MS <= clock_ms
        if is_late:
            self.live.pop((id_, name), None)
        else:
            self.live[id_, name] = value, stamp_ms


passes = st.tuples(
    st.integers(0, 120),
    st.none() | st.lists(st.tuples(st.integers(1, 3), st.integers(-150, 150)), max_size=4),
)


@pytest.mark.parametrize("by_event", [False, True])
@pytest.mark.demand("ttl-callback")
@settings(max_examples=40, deadline=None)
@given(course=st.lists(passes, max_size=12))
def test_each_entry_is_handed_over_once_when_it_has_expired(by_event, course):
    pipeline = handing_over(BY_EVENT_TIME if by_event else BY_PROCESSING_TIME)
    model = Model(by_event)
    now_ms, n = 1_000, 0
    for waits_ms, records in [*course, (10_000, [(9, 5_000)]), (0, None)]:
        now_ms += waits_ms
        if records is None:
            pipeline.tick(now_ms=now_ms)
            model.expire(model.clock(now_ms))
        else:
            rows = []
            for id_, off_ms in records:
                n += 1
                rows.append((id_, n, now_ms + off_ms))
            pipeline.step([line(id_, seq=n, at=at_ms) for id_, n, at_ms in rows], now_ms=now_ms)
            model.step(now_ms, rows)
        assert shown(pipeline) == model.handed
    assert {id_ for id_, *_ in model.handed} >= {
        id_ for _, records in course for id_, _ in records or () if not by_event
    }


def test_expired_entries_come_before_the_timers_and_rows_of_their_key():
    pipeline = MemoryPipeline(stateful("user_functions:InOrder", ttl={"seen": "100ms"}))
    pipeline.step([line(1, seq=1)], now_ms=0)
    pipeline.step([line(1, seq=2)], now_ms=100)
    assert pipeline.rows() == [{"id": 1, "course": "row 1; expired 1, timer 50, row 2"}]


def test_entry_written_again_by_the_call_is_handed_over_again_at_its_own_end():
    pipeline = MemoryPipeline(stateful("user_functions:Reminds", ttl={"seen": "100ms"}))
    pipeline.step([line(1, seq=7)], now_ms=0)
    for now_ms, times in ((99, 0), (100, 1), (199, 1), (200, 2), (450, 3), (450, 3)):
        pipeline.tick(now_ms=now_ms)
        assert pipeline.rows() == [{"id": 1, "times": times}]


def test_entry_that_a_read_has_shortened_in_the_step_is_handed_over_in_the_step():
    pipeline = MemoryPipeline(stateful("user_functions:Shortens", ttl={"seen": "100ms"}))
    pipeline.step([line(1, seq=7)], now_ms=0)
    assert pipeline.rows() == [{"id": 1, "expired": None}]
    pipeline.step([line(1, seq=8)], now_ms=50)
    assert pipeline.rows() == [{"id": 1, "expired": 7}], "the write of 8 has replaced it"
    pipeline.tick(now_ms=149)
    assert pipeline.rows() == [{"id": 1, "expired": 7}]
    pipeline.tick(now_ms=150)
    assert pipeline.rows() == [{"id": 1, "expired": 8}]


@pytest.mark.parametrize(
    ("ttl", "sentence"),
    [
        (
            {"cleanup": {"background": False}},
            r"cleanup\.background: got False; allowed: true, or timers: true, as user_functions:HandedOver has on_expire",
        ),
        (
            {"state_visibility": "RETURN_EXPIRED_IF_NOT_CLEANED_UP"},
            r"state_visibility: .*allowed: NEVER_RETURN_EXPIRED, as user_functions:HandedOver has on_expire",
        ),
    ],
)
def test_settings_under_which_entries_would_not_be_handed_over_are_refused(ttl, sentence):
    with pytest.raises(ValidationError, match=sentence):
        handing_over({"ttl": "1h", **ttl})
    handing_over({"ttl": "1h", "cleanup": {"background": False, "timers": True}})


@settings(max_examples=20, deadline=None)
@given(
    course=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 3)), min_size=1, max_size=6), by_event=st.booleans()
)
def test_next_end_is_the_first_time_at_which_an_entry_or_a_timer_is_due(course, by_event):
    ttl = {"seen": {"ttl": "70ms"} | ({"time_characteristic": "EVENT_TIME"} if by_event else {})}
    pipeline = MemoryPipeline(stateful("user_functions:InOrder", ttl=ttl, event_time="at"))
    now_ms = 0
    for number, (waits_ms, id_) in enumerate(course):
        now_ms += waits_ms
        pipeline.step([line(id_, seq=number, at=now_ms)], now_ms=now_ms)
    pipeline.tick(now_ms=now_ms)
    operator = pipeline.operator
    entries = operator.live_entries(pipeline.state)
    times_ms = [time_ms for time_ms in range(now_ms, now_ms + 200) if is_due(operator, entries, time_ms, now_ms)]
    assert operator.expiry.next_ms(entries, Step(9, now_ms, now_ms)) == min(times_ms, default=2**63 - 1)


def is_due(operator, entries, time_ms, watermark_ms):
    return operator.expiry.due(entries, Step(9, time_ms, watermark_ms)).any()
