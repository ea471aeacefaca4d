"""Backfills of topics: from the beginning, a time or offsets, beside a run that goes on, at a bounded rate."""

import threading
import time

import pytest
from local.local_pipeline import LATER, up
from servers.kafka_support import TopicPipeline, plainly

from ebbtide.errors import BackfillError, ConfigError, PausedError, SourceLostError
from ebbtide.runtime import Stepper
from ebbtide.runtime._following import Following
from ebbtide.runtime._publish import publish as step_module_publish
from ebbtide.runtime._timing import Pace

pytestmark = pytest.mark.group("broker")  # one broker for all


@pytest.fixture
def over(broker, tmp_path):
    topic = f"backfill.{time.monotonic_ns()}"
    broker.create(topic, 2, retention_ms="-1")
    return lambda **fields: TopicPipeline(tmp_path, broker, topic, **fields)


def start(pipeline, place=None, snapshot=None, **means):
    return pipeline.act("backfill.start", begin=place, snapshot=snapshot, means=means)


def test_backfill_from_the_beginning_goes_beside_and_reading_goes_on_behind_it(over):
    pipeline = over(source={"start": "latest", "max_records_per_step": 2})
    pipeline.send(*(up(number, number) for number in range(1, 6)))
    pipeline.run()
    pipeline.send(up(1, 7), up(9, 9), partition=1)
    pipeline.run()
    assert pipeline.rows() == {1: 7, 9: 9}
    found = start(pipeline, "earliest")
    assert (found["records"], found["waiting"], found["percent"]) == (7, 0, 100.0)
    pipeline.send(up(10, 10))
    waits = pipeline.act("backfill.status", "plan", LATER)
    assert (waits["waiting"], waits["percent"]) == (1, 87.5)
    assert "waiting: 1 record.\n  To continue: 'ebbtide backfill start'." in waits.text()
    report = pipeline.do("swap")
    assert (report["added"], report["changed"], report["deleted"]) == (5, 0, 0)
    assert pipeline.rows() == {1: 7, 2: 2, 3: 3, 4: 4, 5: 5, 9: 9, 10: 10}
    assert pipeline.is_idle()
    pipeline.send(up(2, 11))
    [step] = pipeline.run().steps
    assert (step.records, pipeline.rows()[2]) == (1, 11)


def test_backfill_begins_at_offsets_or_a_time_and_stays_there(over):
    pipeline = over()
    times = [1_000_000, 2_000_000, 3_000_000]
    for at_ms, id_ in zip(times, (1, 2, 3), strict=True):
        pipeline.broker.put(pipeline.topic, plainly(up(id_, id_), timestamp=at_ms))
    pipeline.run()
    assert start(pipeline, "0=2")["records"] == 1
    with pytest.raises(BackfillError, match=r"Got: earliest\. Allowed: 0=2\. Continue that one"):
        start(pipeline, "earliest")
    assert start(pipeline)["records"] == 1
    pipeline.act("backfill.drop")
    assert start(pipeline, "1970-01-01T00:33:20")["records"] == 2
    assert pipeline.do("swap")["deleted"] == 1
    assert pipeline.rows() == {2: 2, 3: 3}


def test_place_that_is_not_there_or_has_no_record_behind_it_leaves_nothing(over):
    pipeline = over()
    pipeline.send(up(1, 1))
    pipeline.run()
    with pytest.raises(ConfigError, match=r"names offsets that topic .*Allowed: partition 0: 0 to 1\."):
        start(pipeline, "0=7")
    for place in ("2999-01-01T00:00:00", "0=1,1=0"):
        with pytest.raises(ConfigError, match=r"no record to build the backfill of 't' from.*before the last record"):
            start(pipeline, place)
    assert pipeline.act("backfill.drop").text() == "t: there was no backfill."
    assert start(pipeline)["records"] == 1
    assert pipeline.act("backfill.drop").text().startswith("t: backfill dropped.")


def test_swap_makes_a_run_that_goes_on_end_its_step_and_read_on_from_there(over):
    pipeline = over(lease_ttl="30s", source={"start": "latest"})
    pipeline.send(up(1, 1))
    pipeline.run()
    pipeline.send(up(2, 2))
    stop = threading.Event()
    reports = []

    def build_and_swap():
        start(pipeline, "earliest")
        reports.append(pipeline.act("backfill.swap"))
        pipeline.send(up(3, 3))

    building = threading.Thread(target=build_and_swap)

    def on_progress(step):
        if step.kind == "batch" and not building.ident:
            building.start()
        elif reports and 3 in pipeline.rows():
            stop.set()

    pipeline.follow(Following(interval_ms=1, tick_every_ms=1), on_progress, stop)
    building.join()
    assert reports[0]["added"] == 1
    assert pipeline.rows() == {1: 1, 2: 2, 3: 3}
    causes = [
        facts.cause.what for _, facts in pipeline.plan.state.steps() if facts.read.records or facts.decision.swapped
    ]
    assert causes == ["batch", "swap", "batch"]
    assert sum(facts.read.records for _, facts in pipeline.plan.state.steps()) == 2, "no record is read twice"


def test_rate_makes_steps_smaller_and_lets_them_wait_for_each_other(over, monkeypatch):
    pipeline = over(source={"max_records_per_second": 1})
    waits = []
    monkeypatch.setattr(Pace, "passed", lambda self, records: waits.append((self._per_second, records)))
    pipeline.send(*(up(number, number) for number in range(25)))
    assert [step.records for step in pipeline.run().steps] == [10, 10, 5]
    assert waits == [(1, 10), (1, 10), (1, 5)]
    waits.clear()
    pipeline.act("backfill.start", rate=2)
    assert waits == [(2, 20), (2, 5)], "of the backfill what it was asked to"


def paused_at_latest(over, **fields):
    """A pipeline that began behind five records and has read two."""
    pipeline = over(**{"source": {"start": "latest", "max_records_per_step": 2}, **fields})
    pipeline.send(*(up(number, number) for number in range(1, 6)))
    pipeline.run()
    pipeline.send(up(1, 7), up(9, 9), partition=1)
    pipeline.run()
    pipeline.act("pause", clock_ms=LATER, reason="why")
    return pipeline


def into(pipeline, place="earliest", reason="what was before is wanted too", **means):
    return pipeline.act("backfill.into", begin=place, reason=reason, means=means)


def test_records_are_read_into_the_paused_sink_and_it_stands_where_it_did(over):
    pipeline = paused_at_latest(over)
    position = pipeline.last.source.position
    pipeline.send(up(8, 8))
    report = into(pipeline)
    assert (report["records"], report["waiting"], len(report["steps"])) == (7, 0, 4)
    assert report.text() == (
        "t: 7 records read in 4 steps: 7 changes, 1 superseded, 4 inserted, 2 duplicates.\n  To read on: 'ebbtide resume'."
    )
    assert pipeline.rows() == {1: 7, 2: 2, 3: 3, 4: 4, 5: 5, 9: 9}, "the newest of a key wins; what is next is not read"
    last = pipeline.last
    assert (last.cause.what, last.cause.why) == ("backfill", "what was before is wanted too")
    assert last.source.position == position
    with pytest.raises(PausedError):
        pipeline.run()
    pipeline.act("resume", clock_ms=LATER)
    [step] = pipeline.run().steps
    assert (step.records, pipeline.rows()[8]) == (1, 8)


def test_topic_made_anew_while_it_is_read_again_is_refused_before_a_record_of_it_counts(over, broker):
    pipeline = paused_at_latest(over)

    def make_anew(_):
        broker.delete(pipeline.topic)
        broker.create(pipeline.topic, 2)
        for partition in (0, 1):
            pipeline.send(*(up(20 + number, 1) for number in range(9)), partition=partition)

    with pytest.raises(SourceLostError, match="deleted and recreated"):
        into(pipeline, on_progress=make_anew)
    assert [facts.read.records for _, facts in pipeline.plan.state.steps() if facts.source.reread] == [2]
    assert max(pipeline.rows()) == 9


def test_reading_that_died_or_was_stopped_is_gone_on_with(over, monkeypatch):
    pipeline = paused_at_latest(over)
    stop = threading.Event()
    first = into(pipeline, stop=stop, on_progress=lambda _: stop.set())
    assert (first["records"], first["waiting"]) == (2, 5)
    assert first.text().endswith("\n  Left: 5; the same command continues.")

    def killed(*_):
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr("ebbtide.runtime._step.publish", killed_at_second(killed))
        with pytest.raises(InterruptedError):
            into(pipeline)
    assert not idle_unless_paused(pipeline)
    rest = into(pipeline)
    assert rest["records"] == 3
    assert pipeline.rows() == {1: 7, 2: 2, 3: 3, 4: 4, 5: 5, 9: 9}
    assert into(pipeline)["records"] == 7, "what is done is done again when it is asked for"


def killed_at_second(kill):
    """Publish the step that is open, then die before the next is published."""
    calls = []

    def publish_or_die(*given):
        calls.append(given)
        return step_module_publish(*given) if len(calls) < 2 else kill()

    return publish_or_die


def idle_unless_paused(pipeline):
    pipeline.act("resume", clock_ms=LATER)
    is_idle = pipeline.is_idle()
    pipeline.act("pause", clock_ms=LATER, reason="why")
    return is_idle


@pytest.mark.parametrize("order", ["arrival", None])
def test_reading_again_is_refused_where_it_cannot_be_right(over, order):
    pipeline = over(**({"order": order} if order else {}))
    pipeline.send(up(1, 1, "+I"))
    pipeline.run()
    with pytest.raises(BackfillError, match=r"order: arrival, where|'t' is not paused"):
        into(pipeline)
    with pytest.raises(ConfigError, match="needs a reason"):
        into(pipeline, reason="")
    assert pipeline.last.step == 1


def test_snapshot_topic_is_read_first_and_the_pipeline_s_own_behind_it(over, broker):
    pipeline = over(source={"max_records_per_step": 2})
    snapshot = f"{pipeline.topic}.snapshot"
    broker.create(snapshot, 1, retention_ms="-1")
    broker.put(snapshot, plainly(*(up(number, 0) for number in range(1, 6))))
    pipeline.send(up(1, 1), up(2, 2, "-D"), up(3, 3))
    pipeline.run()
    stop = threading.Event()
    begun = start(pipeline, "0=2", snapshot=snapshot, stop=stop, on_progress=lambda _: stop.set())
    assert (begun["records"], begun["waiting"], begun["percent"]) == (2, 3, 40.0)
    with pytest.raises(BackfillError, match=r"has not read all|Another backfill"):
        start(pipeline, "earliest")
    built = start(pipeline)
    assert (built["records"], built["waiting"]) == (6, 0)
    assert built.text().startswith(f"t: backfill from topic {snapshot}, then 0=2: ")
    pipeline.do("swap")
    assert pipeline.rows() == {1: 0, 2: 0, 3: 3, 4: 0, 5: 0}
    pipeline.send(up(4, 4))
    pipeline.run()
    assert pipeline.rows()[4] == 4


def test_backfill_killed_as_it_turns_to_the_topic_goes_on_there(over, broker, monkeypatch):
    pipeline = over()
    snapshot = f"{pipeline.topic}.snapshot"
    broker.create(snapshot, 1, retention_ms="-1")
    pipeline.send(up(1, 1))
    pipeline.run()
    with pytest.raises(BackfillError, match="The snapshot of 't' is empty"):
        start(pipeline, snapshot=snapshot)
    broker.put(snapshot, plainly(up(9, 0)))

    commit = Stepper.commit

    def killed_behind_it(*given):
        commit(*given)
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(Stepper, "commit", killed_behind_it)
        with pytest.raises(InterruptedError):
            start(pipeline)
    assert start(pipeline)["records"] == 2
    pipeline.do("swap")
    assert pipeline.rows() == {1: 1, 9: 0}
