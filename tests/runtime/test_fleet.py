"""Many pipelines followed in one process: each gets its turns, and one that fails stops no other."""

import threading
import time
from types import SimpleNamespace

import pytest
from frame.waiting import PATIENCE_S
from local.local_pipeline import LATER, LocalPipeline, up
from local.local_run import SPARK
from local.support import plain

import ebbtide
from ebbtide.errors import SourceReadError
from ebbtide.fleet import Ended, Failed, Fleet, GoesOn
from ebbtide.fleet._fleet import Retries, in_fair_steps
from ebbtide.fleet._slots import Slots
from ebbtide.runtime import RunSummary, StepProgress
from ebbtide.runtime._following import Following
from ebbtide.runtime._progress import StepClock
from ebbtide.sources import Discovery

OFTEN = Following(interval_ms=1, tick_every_ms=10**6)


class Time(threading.Event):
    """A stop whose waits take no time: a clock goes on by them. It stops after so many.

    Args:
        most: Number of waits.
    """

    def __init__(self, most):
        super().__init__()
        self.now_s = 0.0
        self.waits = []
        self._most = most

    def wait(self, timeout=None):
        if timeout is None:
            return super().wait(PATIENCE_S)
        self.waits.append(timeout)
        self.now_s += timeout
        if len(self.waits) == self._most:
            self.set()
        return self.is_set()


LOOKS = {
    name: SimpleNamespace(found=Discovery(streams=name == "something waits"))
    for name in ("something waits", "nothing waits")
}


def progress(spec, batch_id):
    return StepProgress(spec.name, 1, "batch", batch_id, 1, 0, {}, StepClock(0), 0.1)


def specs(*names):
    return [plain(name=name) for name in names]


def summary(spec):
    return RunSummary(spec.name, "root")


def test_one_that_fails_is_begun_again_after_a_time_that_doubles_up_to_a_bound():
    clock = Time(9)
    begun = []
    all_have_begun = threading.Barrier(3)

    def follow(spec, *, in_turn, observers):
        begun.append(spec.name)
        if begun.count(spec.name) == 1:
            all_have_begun.wait(PATIENCE_S)
        if spec.name == "bad":
            raise SourceReadError("not there")
        clock.wait()
        return summary(spec)

    fleet = Fleet(specs("good", "bad", "fine"), follow, clock, retries=lambda: Retries(lambda: clock.now_s))
    events = list(fleet.events())
    assert clock.waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert begun.count("bad") == 9
    assert (begun.count("good"), begun.count("fine")) == (1, 1)
    failures = [event for event in events if isinstance(event, Failed)]
    assert {event.spec.name for event in failures} == fleet.failing == {"bad"}
    assert [event.again_s for event in failures] == clock.waits
    assert sorted(event.spec.name for event in events if isinstance(event, Ended)) == ["fine", "good"]


def test_time_is_short_again_after_a_run_that_went_on_for_long():
    now_s = [0.0]
    retries = Retries(lambda: now_s[0])
    assert [retries.wait_after_failure() for _ in range(3)] == [5, 10, 20]
    retries.begin()
    now_s[0] += 299
    assert retries.wait_after_failure() == 40
    retries.begin()
    now_s[0] += 300
    assert retries.wait_after_failure() == 5
    retries.begin()
    assert retries.wait_after_failure() == 10


def test_one_that_goes_on_again_is_no_longer_failing():
    clock = Time(100)
    attempts = []

    def follow(spec, *, in_turn, observers):
        if spec.name == "bad":
            attempts.append(1)
            if len(attempts) < 3:
                raise SourceReadError("not there")
            for observer in observers:
                observer.look(LOOKS["something waits"])
                observer.look(LOOKS["nothing waits"])
                observer.look(LOOKS["nothing waits"])
            clock.set()
        clock.wait()
        return summary(spec)

    fleet = Fleet(specs("good", "bad"), follow, clock)
    events = [type(event) for event in fleet.events() if event.spec.name == "bad"]
    assert events == [Failed, Failed, GoesOn, Ended]
    assert fleet.failing == set()


@pytest.mark.parametrize("passes", [1, 2, 4])
def test_one_that_fails_at_each_step_does_not_go_on_before_it_is_past_it(passes):
    """It looks at its source, and may tick, each time before it fails."""
    clock = Time(100)
    attempts = []

    def follow(spec, *, in_turn, observers):
        if spec.name == "bad":
            attempts.append(1)
            for observer in observers:
                observer.look(LOOKS["something waits"])
                observer.step(progress(spec, None))
                if len(attempts) <= passes:
                    raise SourceReadError("its step fails")
                observer.step(progress(spec, 7))
            clock.set()
        clock.wait()
        return summary(spec)

    events = [type(event) for event in Fleet(specs("good", "bad"), follow, clock).events() if event.spec.name == "bad"]
    assert events == [*[Failed] * passes, GoesOn, Ended]


class PanicError(BaseException):
    """As libraries in Rust raise it: no Exception."""


@pytest.mark.parametrize("ending", [PanicError("a panic"), SystemExit(3), KeyboardInterrupt(), GeneratorExit("x")])
def test_one_that_is_ended_by_what_is_no_exception_is_named_and_begun_again(ending):
    clock = Time(100)
    attempts = []

    def follow(spec, *, in_turn, observers):
        if spec.name == "bad":
            attempts.append(1)
            if len(attempts) < 3:
                raise ending
            clock.set()
        clock.wait()
        return summary(spec)

    events = [event for event in Fleet(specs("good", "bad"), follow, clock).events() if event.spec.name == "bad"]
    assert [type(event) for event in events] == [Failed, Failed, Ended]
    assert str(events[0].error) == f"The run was ended by {type(ending).__name__}: {ending}"
    assert (events[0].again_s, events[0].error.__cause__) == (5, ending)


@pytest.mark.parametrize("names", [("one",), ("one", "two", "three")])
def test_fleet_ends_once_no_pipeline_goes_on(names):
    stop = threading.Event()

    def follow(spec, *, in_turn, observers):
        raise KeyError(spec.name)

    fleet = Fleet(specs(*names), follow, stop)
    events = list(fleet.events())
    assert stop.is_set()
    assert fleet.failing == set(names)
    assert [event.again_s for event in events][-1] is None


def fleet_of(pipelines, on_progress, stop, slots=None):
    """Return a fleet of real runs without Spark, whose steps are reported with the names of their pipelines."""
    by_name = {pipeline.spec.name: pipeline for pipeline in pipelines}

    def follow(spec, *, in_turn, observers):
        how = {"in_turn": in_turn, "observers": observers, "follow": OFTEN, "stop": stop, "clock": lambda: LATER}
        root = by_name[spec.name].root
        return ebbtide.run(SPARK, spec, root, on_progress=lambda step: on_progress(step.pipeline, step), **how)

    return Fleet([pipeline.spec for pipeline in pipelines], follow, stop, slots, lambda: Retries(first_s=0.01))


@pytest.fixture
def make_named(tmp_path):
    return lambda name, **fields: LocalPipeline(tmp_path / name, name=name, **fields)


def test_large_backlog_lets_the_others_have_their_turns(make_named):
    large, *small = [make_named(name) for name in ("large", "a", "b", "c")]
    stop = threading.Event()
    made = []

    def on_progress(name, step):
        if step.records:  # the first step of one without input notes where reading begins
            made.append(name)
        if name == "large" and step.step == 2:
            for number, pipeline in enumerate(small):
                pipeline.put(up(1, number))
        if len(made) == 15:
            stop.set()

    for number in range(12):
        large.put(up(1, number))
    events = list(fleet_of([large, *small], on_progress, stop, Slots(1)).events())
    assert [type(event) for event in events] == [Ended] * 4
    assert made[-1] == "large", "the others came in between"
    assert sorted(made) == ["a", "b", "c", *["large"] * 12]
    assert large.rows() == {1: 11}
    assert [pipeline.rows() for pipeline in small] == [{1: 0}, {1: 1}, {1: 2}]


def test_leases_are_kept_while_the_step_of_another_pipeline_takes_long(make_named):
    long, waiting = make_named("long"), make_named("waiting", lease_ttl="150ms")
    stop = threading.Event()
    beats = []

    def on_progress(name, step):
        if name == "waiting":
            long.put(up(1, 1))
        elif step.records:  # within its step, which has the only slot
            first = waiting.plan.ledger.turn
            while waiting.plan.ledger.turn.heartbeat < first.heartbeat + 3:
                assert time.monotonic() < end_s
                time.sleep(0.01)
            beats.append((first.epoch, waiting.plan.ledger.turn.epoch))
            stop.set()

    end_s = time.monotonic() + PATIENCE_S
    waiting.put(up(1, 1))
    events = list(fleet_of([long, waiting], on_progress, stop, Slots(1, most=1)).events())
    assert [type(event) for event in events] == [Ended, Ended]
    assert beats == [(1, 1)]


def test_bad_one_gives_its_lease_back_and_goes_on_once_it_is_mended(make_named):
    good, bad = make_named("good"), make_named("bad")
    good.put(up(1, 1))
    bad.read(up(1, 1))
    aside = bad.source.rename(bad.source.with_name("aside"))
    stop = threading.Event()

    def on_progress(name, step):
        if name == "bad" and step.records:
            stop.set()

    seen = []
    for event in fleet_of([good, bad], on_progress, stop).events():
        seen.append((event.spec.name, type(event)))
        if seen.count(("bad", Failed)) == 2 and not bad.source.exists():
            assert bad.plan.ledger.turn.is_free, "free for others"
            aside.rename(bad.source)
            bad.put(up(7, 7))
    assert ("bad", GoesOn) in seen
    assert {("good", Ended), ("bad", Ended)} <= set(seen)
    assert (good.rows(), bad.rows()) == ({1: 1}, {1: 1, 7: 7})


def test_steps_are_made_no_longer_than_others_should_wait_for():
    files = in_fair_steps(plain())
    assert files.source.max_bytes_per_step == 16 * 2**20
    small = plain(source={"path": "in", "records": "value", "max_bytes_per_step": 1000})
    assert in_fair_steps(small) == small
    topic = plain(source={"type": "kafka", "bootstrap_servers": "x:1", "topic": "t"})
    fair = in_fair_steps(topic)
    assert (fair.source.max_records_per_step, fair.source.max_bytes_per_step) == (20_000, None)
    assert fair.identity == topic.identity
    on_spark = plain(engine="spark", source=topic.source.model_dump())
    assert in_fair_steps(on_spark) == on_spark
