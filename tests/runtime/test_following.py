"""Runs that do not end by themselves: batches come as records do, ticks come by the clock, faults are waited out for so long."""

import threading
import time
from dataclasses import replace

import pytest
from frame.limits import set_limits
from local.local_pipeline import up
from local.local_run import HOUR, START

from ebbtide.errors import LeaseHeldError, LeaseLostError, SourceUnavailableError, StoreUnavailableError
from ebbtide.ledger import Lease
from ebbtide.runtime import _reading as reading
from ebbtide.runtime._batches import Query
from ebbtide.runtime._following import Age, Faults, Following, Watcher
from ebbtide.sources import Discovery, FileSource
from ebbtide.tables import SinkTable

OFTEN = Following(interval_ms=1, tick_every_ms=1)


def follow(pipeline, on_progress, clock=lambda: START, following=OFTEN):
    stop = threading.Event()
    ended = pipeline.follow(following, lambda step: on_progress(step, stop), stop, clock)
    return [step.kind for step in ended.steps]


def test_files_that_come_while_a_run_goes_on_are_read_until_it_is_stopped(make):
    pipeline = make()
    pipeline.put(up(1, 1))

    def on_progress(step, stop):
        if step.step < 3:
            pipeline.put(up(1, step.step + 1))
        else:
            stop.set()

    assert follow(pipeline, on_progress) == ["batch"] * 3
    assert pipeline.rows() == {1: 3}
    assert pipeline.is_idle()


@pytest.mark.parametrize("following", [OFTEN, replace(OFTEN, tick_every_ms=10**12)], ids=["each tick", "when due"])
def test_run_that_goes_on_expires_by_the_clock_while_nothing_comes(make, following):
    pipeline = make(order="arrival", ttl="1h", materializer={"on_expire": "delete"})
    pipeline.put(up(1, 1, "+I"))
    now = [START]

    def on_progress(step, stop):
        now[0] += 2 * HOUR
        if step.kind == "tick":
            stop.set()

    assert follow(pipeline, on_progress, lambda: now[0], following) == ["batch", "tick"]
    assert pipeline.rows() == {}


def test_spec_says_that_its_runs_go_on(make):
    pipeline = make(run="continuous", trigger_interval="10ms")
    pipeline.put(up(1, 1))
    stop = threading.Event()
    pipeline.run(stop=stop, on_progress=lambda _: stop.set())
    assert pipeline.rows() == {1: 1}


def test_faults_are_waited_out_longer_each_time_within_the_budget():
    now = [0.0]
    faults = Faults(100.0, lambda: now[0])
    waits = []
    for _ in range(7):
        waits.append(faults.wait_after(SourceUnavailableError("away")))
        now[0] += waits[-1]
    assert waits == [1, 2, 4, 8, 16, 32, 60]
    with pytest.raises(SourceUnavailableError):
        faults.wait_after(SourceUnavailableError("away"))
    faults.passed()
    assert faults.wait_after(SourceUnavailableError("away")) == 1


def test_fault_is_told_with_its_wait_and_waited_out_until_the_budget_is_over(caplog):
    now = [0.0]
    faults = Faults(1.0, lambda: now[0])
    assert faults.wait_after(SourceUnavailableError("The brokers are away.")) == 1
    assert caplog.messages == ["The brokers are away. Again in 1 s."]
    now[0] = 1.0
    assert faults.wait_after(SourceUnavailableError("away")) == 2
    now[0] = 1.1
    with pytest.raises(SourceUnavailableError):
        faults.wait_after(SourceUnavailableError("away"))


STOPPED = threading.Event()
STOPPED.set()


class Watched:
    """A source, a plan and steps that note what a watcher asks of them, and when."""

    last_read = "where the last step ended"

    def __init__(self):
        self.now_s, self.now_ms = 0.0, START
        self.asked, self.looks = [], []
        self.found = Discovery(streams=True)
        self.fault = None
        self.source = self.lease = self.plan = self.stepper = self
        self.is_at_end = False
        self.version, self.n_files_read = 1, 0
        self.is_due, self.tick_s, self.expires_on_time = False, 0.0, False
        self.newly_read = {}
        self.has_news, self.waits = False, []

    follows_on = "where the first run began"

    def newest(self, *, looks):
        assert not looks, "a look that finds nothing asks the tables for nothing"
        return self

    def files_read(self):
        self.n_files_read += 1
        return {"a": 1}

    def make_way(self, *, looks):
        self.asked.append("make way")

    def look(self, *given):
        if self.fault is not None:
            raise self.fault
        self.asked.append(("discover", *given))
        return self.found

    def news(self):
        return self

    def wait(self, longest_s, stop):
        """A wait that news end at once, where there are some."""
        self.waits.append(longest_s)
        return self.has_news

    def ends_at(self, since):
        if self.is_at_end:
            self.asked.append(("ends at", since))
        return self.is_at_end

    def note(self, found):
        self.asked.append(("note", found))

    def on_look(self, found):
        self.looks.append(found)

    def may_be_due(self, now_ms):
        return self.is_due

    def tick(self, *given, is_extra):
        self.asked.append(("extra tick" if is_extra else "tick", *given))
        self.now_s += self.tick_s
        return f"tick of {given[1]}"

    def at_times(self, watcher, *times_s):
        """Look at these times; return what was asked at each."""
        asked = []
        for now_s in times_s:
            self.now_s, self.now_ms = now_s, START + round(1000 * now_s)
            self.asked.clear()
            watcher.look()
            asked.append([each if isinstance(each, str) else each[0] for each in self.asked])
        return asked


@pytest.fixture
def watched():
    return Watched()


@pytest.fixture
def watcher(watched):
    often = Following(interval_ms=1_000, tick_every_ms=5_000)
    faults = Faults(100.0, lambda: watched.now_s)
    reported = watched.reported = []
    return Watcher("session", watched, watched, often, faults, lambda: watched.now_ms, reported.append)


def test_source_is_looked_at_once_in_an_interval_and_noted_where_it_is_another(watched, watcher):
    first, again = ["make way", "discover", "note"], ["make way", "discover"]
    assert watched.at_times(watcher, 0, 0.9995, 1.0, 1.9995, 2.0) == [[], [], first, [], again]
    watched.found = Discovery(streams=True, young=1)
    assert watched.at_times(watcher, 3.0) == [first]
    since = "where the last step ended"
    assert watched.asked[1:] == [
        ("discover", {"a": 1}, START + 3_000, since),
        ("note", watched.found),
    ]


def test_source_without_news_is_asked_for_its_end_alone_for_half_a_minute(watched, watcher):
    whole, less = ["make way", "discover", "note"], ["make way", "ends at"]
    watched.found, watched.is_at_end = Discovery(), True
    assert watched.at_times(watcher, 1, 2, 4) == [whole, less, less]
    assert watched.asked[-1] == ("ends at", "where the last step ended")
    assert watched.at_times(watcher, 31)[0][:2] == whole[:2]
    assert watched.at_times(watcher, 32) == [less]
    watched.is_at_end, watched.found = False, Discovery(streams=True)
    assert watched.at_times(watcher, 33) == [whole]
    watched.is_at_end = True
    assert watched.at_times(watcher, 34) == [whole[:2]], "there is something to read"


def test_source_without_news_gives_a_tick_in_its_time(watched, watcher):
    watched.found = Discovery()
    quiet = ["make way", "discover"]
    first, *rest = watched.at_times(watcher, 1, 4.999, 5.999, 9.5, 10.998, 11.998)
    assert first == [*quiet, "note"]
    assert rest == [quiet, [*quiet, "tick"], quiet, quiet, [*quiet, "tick"]]
    assert watched.asked[-1] == ("tick", "session", START + 11_998)
    assert watched.reported == [f"tick of {START + 5_999}", f"tick of {START + 11_998}"]


def test_tick_comes_as_soon_as_its_time_is_over(watched, watcher):
    watched.found = Discovery()
    *_, at_five = watched.at_times(watcher, 4, 5)
    assert at_five[-1] == "tick"


def test_tick_comes_early_where_something_may_be_due_and_takes_a_hundredth_of_the_time(watched, watcher):
    watched.found, watched.is_due, watched.tick_s = Discovery(), True, 0.02
    looks = watched.at_times(watcher, 1, 2.5, 4, 5.5)
    assert [("extra tick" in look, "tick" in look) for look in looks] == [
        (True, False),
        (False, False),
        (True, False),
        (False, True),
    ]
    watched.asked.clear()
    watcher.expire_due()
    assert watched.asked == []
    watched.now_s = 9
    watcher.expire_due()
    assert [asked for asked, *_ in watched.asked] == ["extra tick"]


@pytest.mark.demand("ttl-timers-bound")
def test_tick_of_a_state_with_timers_comes_within_half_a_minute_however_long_it_takes(watched, watcher):
    watched.is_due, watched.expires_on_time, watched.tick_s = True, True, 3.0
    ticks_s = []
    for second in range(100):
        watched.now_s = max(watched.now_s, second)
        watched.asked.clear()
        watcher.expire_due()
        ticks_s += [watched.now_s] if watched.asked else []
    assert ticks_s == [3, 36, 69, 102]
    watched.expires_on_time = False
    watched.now_s = 200
    watcher.expire_due()
    watched.asked.clear()
    watched.now_s = 400
    watcher.expire_due()
    assert watched.asked == [], "else they take a hundredth of the time"


def test_stream_that_is_never_idle_expires_what_is_due(make):
    pipeline = make(order="arrival", ttl="1h", materializer={"on_expire": "delete"})
    pipeline.put(up(1, 1, "+I"))
    now = [START]

    def on_progress(step, stop):
        now[0] += 2 * HOUR
        if step.step < 6:
            pipeline.put(up(10 + step.step, 1, "+I"))
        else:
            stop.set()

    kinds = follow(pipeline, on_progress, lambda: now[0])
    assert kinds[:2] == ["batch", "tick"], "while a file waits"


def test_fault_of_the_source_is_waited_out_and_then_looked_again(watched, watcher):
    watched.fault = SourceUnavailableError("away")
    assert watched.at_times(watcher, 1, 1.5) == [["make way"], []]  # a second's wait
    assert watched.at_times(watcher, 2, 3.9) == [["make way"], []]  # two
    watched.fault = None
    assert watched.at_times(watcher, 4) == [["make way", "discover", "note"]]
    watched.fault = SourceUnavailableError("away")
    assert watched.at_times(watcher, 5, 5.9, 6) == [["make way"], [], ["make way"]], "from a second on again"


def waited(watched, watcher):
    """Wait; return for how long at most the source was asked for news, None if it was not."""
    watched.waits.clear()
    watcher.wait(1.0, STOPPED)
    return watched.waits[0] if watched.waits else None


def test_news_bring_the_next_look_forward_but_not_the_next_step(watched, watcher):
    watched.found = Discovery()
    watched.at_times(watcher, 1)
    assert waited(watched, watcher) == 1.0
    assert watched.at_times(watcher, 1.5) == [[]], "no news"
    watched.found, watched.has_news = Discovery(streams=True), True
    assert waited(watched, watcher) == 0.5
    assert watched.at_times(watcher, 1.6) == [["make way", "discover", "note"]]
    assert waited(watched, watcher) is None, "what was found is read first"
    assert waited(watched, watcher) == 1.0
    assert watched.at_times(watcher, 2.5, 2.6) == [[], ["make way", "discover"]], "an interval behind the last step"


def test_news_of_what_is_not_read_bring_few_looks(watched, watcher):
    watched.found, watched.has_news = Discovery(), True
    looks = 0
    for number in range(1000):
        waited(watched, watcher)
        [asked] = watched.at_times(watcher, 2 + number / 1000)
        looks += bool(asked)
    assert looks <= 21


def test_news_do_not_shorten_the_wait_behind_a_fault(watched, watcher):
    watched.fault, watched.has_news = SourceUnavailableError("away"), True
    assert watched.at_times(watcher, 1) == [["make way"]]
    waited(watched, watcher)
    assert watched.at_times(watcher, 1.5) == [[]]


def test_files_that_were_read_are_asked_for_once_and_those_of_steps_are_added(watched, watcher):
    watched.at_times(watcher, 1, 2, 3)
    assert watched.n_files_read == 1
    watched.newly_read = {"b": 2}
    watched.at_times(watcher, 4, 5)
    _, known, *_ = watched.asked[1]
    assert known == {"a": 1, "b": 2}
    assert watched.n_files_read == 1


def test_files_that_are_too_many_to_be_held_are_asked_for_in_each_look(watched, watcher):
    set_limits(most_files_held=0)
    watched.at_times(watcher, 1, 2)
    assert watched.n_files_read == 2


def test_each_look_that_found_out_something_is_reported_and_one_that_failed_is_not(watched, watcher):
    watched.at_times(watcher, 0, 1, 2)
    watched.fault = SourceUnavailableError("away")
    watched.at_times(watcher, 3)
    assert watched.looks == [watched.found] * 2


def test_good_look_does_not_end_the_faults_of_steps(watched, watcher):
    faults = watcher._faults
    assert faults.wait_after(StoreUnavailableError("503")) == 1
    watched.at_times(watcher, 1)
    assert faults.wait_after(StoreUnavailableError("503")) == 2
    watched.fault = SourceUnavailableError("away")
    watched.at_times(watcher, 2)
    watched.fault = None
    watched.at_times(watcher, 9)
    assert faults.wait_after(StoreUnavailableError("503")) == 8, "also not behind a look that failed meanwhile"


def test_tick_with_nothing_left_to_do_ends_the_faults_of_steps(watched, watcher):
    faults = watcher._faults
    faults.wait_after(StoreUnavailableError("503"))
    watched.found = Discovery()
    watched.at_times(watcher, 1)
    assert not faults.are_over, "no tick yet"
    watched.at_times(watcher, 12)
    assert faults.are_over


def test_step_that_fails_again_and_again_uses_up_the_budget_though_the_source_answers(make, monkeypatch):
    pipeline = make()
    pipeline.put(up(1, 1))
    stop = threading.Event()
    attempts = []

    def fail(*_):
        attempts.append(1)
        if len(attempts) == 30:
            stop.set()
        raise StoreUnavailableError("503")

    made = Query.made

    def look_first(query, *given):
        query.stop.wait(2 * OFTEN.interval_ms / 1000)
        query.between()
        yield from made(query, *given)

    monkeypatch.setattr(reading, "stage", fail)
    monkeypatch.setattr(Query, "made", look_first)
    set_limits(first_wait_s=0.01)
    with pytest.raises(StoreUnavailableError):
        pipeline.follow(replace(OFTEN, fault_budget_s=0.2), lambda _: None, stop)
    assert len(attempts) < 30


def test_step_whose_sink_was_away_is_in_it_before_the_next_step(make, monkeypatch):
    pipeline = make(order="arrival", ttl="1h", materializer={"on_expire": "delete"})
    pipeline.put(up(1, 1, "+I"))
    now = [START]
    apply = SinkTable.apply
    away = []

    def apply_later(*given, **how):
        if now[0] > START and not away:
            away.append("the tick")
            pipeline.put(up(2, 2, "+I"))
            raise StoreUnavailableError("503")
        return apply(*given, **how)

    def on_progress(step, stop):
        now[0] = START + 2 * HOUR
        if away:
            stop.set()

    monkeypatch.setattr(SinkTable, "apply", apply_later)
    set_limits(first_wait_s=0.01)
    assert follow(pipeline, on_progress, lambda: now[0]) == ["batch", "batch"]
    assert pipeline.rows() == {2: 2}


def test_lost_lease_is_not_waited_out():
    with pytest.raises(LeaseLostError):
        Faults(100.0).wait_after(LeaseLostError("another run"))


def test_run_that_goes_on_makes_way_for_maintenance_and_takes_its_turn_again(make):
    pipeline = make(lease_ttl="30s")
    pipeline.put(up(1, 1))
    kinds = []
    asking = threading.Thread(target=lambda: kinds.append(pipeline.do("compaction")))

    def on_progress(step, stop):
        if step.step == 1:
            asking.start()
            pipeline.put(up(2, 2))
        elif step.step > 2 and not asking.is_alive():
            stop.set()
        elif step.kind == "batch":
            pipeline.put(up(1, step.step + 10))

    follow(pipeline, on_progress)
    asking.join()
    made = [facts.cause.what for _, facts in pipeline.plan.state.steps()][::-1]
    assert made[0] == made[-1] == "batch"
    assert "compaction" in made
    assert len(kinds) == 1
    assert pipeline.plan.ledger.requests.names == ()
    assert pipeline.rows()[2] == 2


def test_source_that_is_away_when_a_run_takes_its_turn_again_is_waited_for(make, monkeypatch):
    pipeline = make()
    pipeline.put(up(1, 1))
    requests = pipeline.plan.ledger.requests
    look = FileSource.look
    asked, away = [], []

    def look_later(self, *given):
        if asked and not away:
            away.append(self)
            raise SourceUnavailableError("away")
        return look(self, *given)

    monkeypatch.setattr(FileSource, "look", look_later)
    monkeypatch.setattr(type(requests), "wait_until_served", lambda *_: requests.withdraw("job"))
    set_limits(first_wait_s=0.01)

    def on_progress(step, stop):
        if step.step == 1:
            asked.append(requests.leave("job"))
            pipeline.put(up(2, 2))
        else:
            stop.set()

    follow(pipeline, on_progress)
    assert len(away) == 1
    assert pipeline.rows() == {1: 1, 2: 2}


def test_run_that_ends_makes_no_way(make):
    pipeline = make()
    pipeline.put(up(1, 1))
    with Lease(pipeline.plan.at("ledger"), "t", 3600), pytest.raises(LeaseHeldError):
        Lease(pipeline.plan.at("ledger"), "t", 3600, asks=True).__enter__()
    assert pipeline.plan.ledger.requests.names == ()


def test_run_ends_after_a_step_once_it_is_as_old_as_it_may_get(make):
    pipeline = make()
    pipeline.put(up(1, 1))
    following = Following(interval_ms=1, tick_every_ms=10**6, max_age_s=0.3)
    begun = time.monotonic()
    first = pipeline.follow(following, lambda _: pipeline.put(up(1, pipeline.last.step + 1)), threading.Event())
    assert first.is_aged
    assert time.monotonic() - begun >= 0.3
    idle = pipeline.follow(following, lambda _: None, threading.Event())
    assert idle.is_aged, "also where nothing comes"
    made = [facts.step for _, facts in pipeline.plan.state.steps()][::-1]
    assert made == list(range(1, len(made) + 1))
    assert pipeline.rows() == {1: made[-1]}


def test_run_that_was_stopped_is_not_as_old_as_it_may_get():
    stop = threading.Event()
    now = [0.0]
    age = Age(10.0, stop, lambda: now[0])
    age.look()
    assert not stop.is_set()
    stop.set()
    now[0] = 11.0
    age.look()
    assert not age.is_reached


def test_run_as_old_as_it_may_get_goes_on_while_a_fault_is_waited_out(make, monkeypatch):
    pipeline = make()
    pipeline.put(up(1, 1))
    set_limits(first_wait_s=0.05)
    looks = []
    discover = Watcher._discover

    def away_at_first(watcher):
        looks.append(len(looks) >= 4)
        if not looks[-1]:
            raise SourceUnavailableError("away")
        return discover(watcher)

    monkeypatch.setattr(Watcher, "_discover", away_at_first)
    ended = pipeline.follow(Following(interval_ms=1, max_age_s=0.5), lambda _: None, threading.Event())
    assert ended.is_aged
    assert looks[-1:] != [False], "a success came first"


def test_run_that_goes_on_waits_for_maintenance_to_end_and_is_refused_beside_another(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    pipeline.put(up(1, 2))
    ledger = pipeline.plan.at("ledger")
    maintenance = Lease(ledger, "t", 3600).__enter__()
    release = threading.Timer(0.2, lambda: maintenance.__exit__(None, None, None))
    release.start()
    assert follow(pipeline, lambda step, stop: stop.set()) == ["batch"]
    release.join()
    with Lease(ledger, "t", 3600, makes_way=True), pytest.raises(LeaseHeldError):
        follow(pipeline, lambda step, stop: stop.set())


def test_beside_the_tables_there_are_as_many_files_after_many_steps(make):
    pipeline = make()
    seen = {}

    def on_progress(step, stop):
        seen[step.step] = beside_tables(pipeline.home)
        pipeline.put(up(1, step.step + 1))
        if step.step == 20:
            stop.set()

    pipeline.put(up(1, 1))
    follow(pipeline, on_progress)
    assert seen[20] == seen[3]


def beside_tables(home):
    """Files that no table's log cares for."""
    found = {path.relative_to(home) for path in home.rglob("*") if path.is_file()}
    tables_and_logs = {"state", "sink", "ledger", "changelog", "quarantine"}
    return {path for path in found if path.parts[0] not in tables_and_logs}
