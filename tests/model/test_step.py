import hypothesis.strategies as st
from hypothesis import given

from ebbtide.model import BatchCounts, BatchSummary, Frontier, Reading, StepRecords, StepRules

DAY_MS = 86_400_000
RULES = StepRules(max_clock_jump_ms=DAY_MS, allowed_delay_ms=10)
AT = Reading(0, 0)

times = st.none() | st.integers(-50, 10**6)
walls = st.lists(st.tuples(st.integers(0, 10**9), st.booleans()), min_size=1, max_size=12)


def sequence(value):
    return None if value is None else (value,)


def steps(summaries, rules=RULES, last=None):
    """Where a pipeline stands after each of some batches; None is a tick."""
    for summary in summaries:
        last = rules.next_frontier(last, AT, summary)
        yield last


def raised(summaries):
    """Whether each of some batches raised the floor."""
    before = [None, *steps(summaries)]
    return [StepRecords.of(last, summary).floor_raised for last, summary in zip(before, summaries, strict=False)]


@given(st.lists(times, max_size=12))
def test_watermark_is_the_greatest_event_time_of_earlier_steps_less_the_delay(event_times):
    stands = list(steps([BatchSummary(max_event_ms=ms) for ms in event_times]))
    for number, frontier in enumerate(stands):
        earlier = [ms for ms in event_times[:number] if ms is not None]
        assert frontier.watermark_ms == (max(earlier) - 10 if earlier else None)


@given(st.lists(times, min_size=1, max_size=8), st.integers(0, 10**6))
def test_watermark_does_not_fall_where_the_delay_grows(event_times, delay):
    *_, last = steps([*(BatchSummary(max_event_ms=ms) for ms in event_times), None])
    longer = StepRules(DAY_MS, allowed_delay_ms=delay).next_frontier(last, AT)
    assert last.watermark_ms is None or longer.watermark_ms >= last.watermark_ms


@given(walls, st.none() | st.integers(1, 10**9))
def test_clock_never_goes_back_nor_jumps_further_than_it_may(readings, ignored):
    rules = StepRules(max_clock_jump_ms=1000, ignore_downtime_over_ms=ignored)
    last = None
    for wall_ms, is_new_run in readings:
        clock = rules.clock_after(last, wall_ms, started_ms=wall_ms if is_new_run else 0)
        frontier = rules.next_frontier(last, clock)
        assert last is None or last.now_ms <= frontier.now_ms <= last.now_ms + 1000
        assert frontier.clock == clock
        last = frontier


def test_downtime_counts_from_the_last_step_whatever_made_it():
    rules = StepRules(max_clock_jump_ms=DAY_MS, ignore_downtime_over_ms=100)
    first = rules.next_frontier(None, rules.clock_after(None, 1000, 0))
    cleanup = rules.next_frontier(first, first.clock)
    assert rules.clock_after(cleanup, 5000, started_ms=4990).now_ms == 1000
    assert rules.clock_after(cleanup, 5000, started_ms=0).now_ms == 5000, "in one run nothing is downtime"


@given(st.lists(st.none() | st.integers(0, 100), min_size=1, max_size=12))
def test_floor_rises_with_the_greatest_truncate_and_only_then(floors):
    highest = None
    batches = [BatchSummary(truncate=sequence(floor)) for floor in floors]
    for summary, frontier, has_raised in zip(floors, steps(batches), raised(batches), strict=True):
        met = sequence(summary)
        rises = met is not None and (highest is None or met > highest)
        highest = met if rises else highest
        assert has_raised == rises
        assert frontier.floor == highest


def test_truncate_read_before_raises_no_floor():
    truncate = {("t/0", 5): (1, 0, 5)}
    batch = BatchSummary(truncate=(1, 0, 5), offsets={"t/0": [(0, 5)]}, truncates=truncate)
    repeated = BatchSummary(truncate=(2, 0, 0), offsets={"t/0": [(5, 5)]}, truncates={("t/0", 5): (2, 0, 0)})
    first, again = steps([batch, repeated])
    assert (first.floor, again.floor) == ((1, 0, 5), (1, 0, 5))
    assert raised([batch, repeated]) == [True, False]
    assert again.offsets == {"t/0": [(0, 5)]}


def test_reset_starts_over_but_for_the_clock():
    assert Frontier.reset(Reading(9, 9)) == Frontier(clock=Reading(9, 9), total_records=0, total_quarantined=0)


def test_orphans_are_never_forgotten_until_a_reset():
    [first] = steps([BatchSummary()], StepRules(DAY_MS, leaves_orphans=True))
    assert [frontier.orphans for frontier in steps([None, None], last=first)] == [True, True]


@given(st.lists(st.tuples(st.integers(0, 9), times, times), max_size=6), st.randoms())
def test_summary_of_parts_is_the_same_in_any_order(given_parts, random):
    parts = [
        BatchSummary(
            BatchCounts(records=n, bad=n // 2),
            max_event_ms=ms,
            truncate=sequence(low),
            ignored=frozenset("ab"[:n]),
        )
        for n, ms, low in given_parts
    ]
    total = BatchSummary.total(parts)
    random.shuffle(parts)
    assert BatchSummary.total(parts) == total
    assert total.counts.records == sum(part.counts.records for part in parts)


def test_summary_of_parts_sums_them_up():
    """The greatest times and sequences, all columns ignored; of a TRUNCATE delivered twice the first."""
    parts = [
        BatchSummary(
            BatchCounts(records=9, bad=3, changes=5, key_changes=1),
            max_event_ms=70,
            truncate=(3, 1),
            ignored=frozenset("x"),
            offsets={"t/0": [(0, 4)]},
            truncates={("t/0", 4): (1, 0, 4)},
        ),
        BatchSummary(),
        BatchSummary(
            BatchCounts(records=1, bad=1, changes=2, key_changes=4),
            max_event_ms=80,
            truncate=(2, 9),
            ignored=frozenset("xy"),
            offsets={"t/0": [(3, 5)], "t/1": [(0, 0)]},
            truncates={("t/0", 4): (1, 1, 0), ("t/0", 5): (1, 1, 1)},
        ),
    ]
    want = BatchSummary(
        BatchCounts(records=10, bad=4, changes=7, key_changes=5),
        max_event_ms=80,
        truncate=(3, 1),
        ignored=frozenset("xy"),
        offsets={"t/0": [(0, 4), (3, 5)], "t/1": [(0, 0)]},
        truncates={("t/0", 4): (1, 0, 4), ("t/0", 5): (1, 1, 1)},
    )
    assert BatchSummary.total(parts) == want
    assert BatchSummary.total(parts[::-1]).truncates == want.truncates
    assert BatchSummary.total([]) == BatchSummary()


def test_step_tells_what_its_own_batch_was_and_the_greatest_event_time_so_far():
    batch = BatchSummary(BatchCounts(records=9, bad=2, other_tables=4), ignored=frozenset("ba"), max_event_ms=70)
    own = StepRecords.of(None, batch)
    assert (own.records, own.quarantined, own.other_tables, own.ignored_columns) == (9, 2, 4, ("a", "b"))
    stands = steps([batch, None, BatchSummary(BatchCounts(records=1), max_event_ms=60)])
    assert [step.max_event_ms for step in stands] == [70, 70, 70]
