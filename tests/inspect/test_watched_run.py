"""A followed run as seen from beside it: its metrics, without a look at a table, and whether it goes on."""

import json
import threading

import pytest
from frame.alert_rules import fires
from frame.circumstances import assume
from frame.installing import install
from frame.parts import PROMTOOL, needs
from local.local_pipeline import LATER, up
from local.local_run import SPARK, START
from local.metrics_support import samples_of, text_of
from local.support import plain

import ebbtide
from ebbtide.errors import SourceUnavailableError
from ebbtide.inspect import WatchedFleet, WatchedRun, status
from ebbtide.ledger import LastVerdict, Lease
from ebbtide.runtime import Observer, Phase
from ebbtide.runtime._following import Following
from ebbtide.sources import Backlog, FileSource, PositionedSource

OFTEN = Following(interval_ms=1, tick_every_ms=1)

KNOWN = ("ordering", "expiry")


class Watch:
    """A run that is watched, by a clock that the test moves.

    Args:
        pipeline: What is run.
    """

    def __init__(self, pipeline):
        self.pipeline = pipeline
        self.now_s = 0.0
        self.run = WatchedRun(pipeline.spec, pipeline.root, 60, lambda: LATER, lambda: self.now_s)
        self.fleet = WatchedFleet([self.run], pipeline.root)
        self.stop = threading.Event()

    def follow(self, *on_looks, on_step=lambda step: None, clock=lambda: START):
        """Follow; each of the calls is made at one of the run's looks at its source, and the last one ends the run."""
        left = [lambda look: None, *on_looks]  # the first look is that of the beginning, before a step

        failed = []

        def look(found):
            try:
                if left:
                    left.pop(0)(found)
            except Exception as error:  # noqa: BLE001 - a run goes on without an observer that fails
                failed.append(error)
            if failed or not left:
                self.stop.set()

        looks = Observer()
        looks.look = look
        how = {"on_progress": on_step, "stop": self.stop, "clock": clock, "follow": OFTEN}
        summary = ebbtide.run(SPARK, self.pipeline.spec, self.pipeline.root, observers=[self.run, looks], **how)
        if failed:
            raise failed[0]
        return summary

    def samples(self):
        return samples_of(text_of(self.fleet))


@pytest.fixture
def watch(make):
    return Watch(make())


def test_run_knows_its_values_as_the_status_reads_them(watch):
    pipeline = watch.pipeline
    pipeline.put(up(1, 1), up(2, 2), "bad")
    found = {}

    def compare(_):
        found.update(watch.samples())
        by_status = status(pipeline.spec, pipeline.root)
        names = ("step", "state_rows", "state_bytes")
        assert [found[f"ebbtide_{name}",] for name in names] == [by_status.as_dict()[name] for name in names]
        assert found["ebbtide_step_timestamp_seconds",] == by_status.last.now.timestamp()
        assert (found["ebbtide_records_total",], found["ebbtide_quarantined_total",]) == (3, 1)
        assert found["ebbtide_lease_held",] == 1
        assert found["ebbtide_lease_taken_total",] == by_status.lease.epoch == 1

    watch.follow(compare)
    assert ("ebbtide_sink_rows",) not in found, "the run does not know them"


def test_scrape_reads_no_table_and_asks_no_source(watch, monkeypatch):
    watch.pipeline.put(up(1, 1))
    read = []

    def scrape(_):
        with monkeypatch.context() as patch:
            for place in (
                "ebbtide.delta._log.Log.commit",
                "ebbtide.storage.Location.read_bytes",
                "ebbtide.storage.Location.list_files",
                "ebbtide.sources._file_source.FileSource.discover",
            ):
                patch.setattr(place, lambda *given: read.append(given))
            assert watch.samples()["ebbtide_step",] == 1

    watch.follow(scrape)
    assert read == []


def test_steps_are_counted_by_kind_with_their_counts_and_seconds(watch):
    watch.pipeline.put(up(1, 1), up(2, 2))
    watch.pipeline.put(up(2, 3, "-D"), "bad")
    watch.follow(lambda look: None)
    found = watch.samples()
    assert found["ebbtide_run_steps_total", "batch"] == 2
    names = ("records", "inserted", "deleted", "quarantined", "expired")
    assert [found["ebbtide_run_counts_total", name] for name in names] == [4, 2, 1, 1, 0]
    assert found["ebbtide_run_step_seconds_count",] == found["ebbtide_run_step_seconds_bucket", "+Inf"] == 2


def test_events_that_change_no_row_are_a_count_of_the_run_also_before_the_first(make):
    watch = Watch(make(format={"type": "debezium"}, order={"sequence": ["_lsn"]}))
    created = {"op": "c", "source": {"lsn": 1}, "after": {"id": 1, "n": 1}}
    watch.pipeline.put(json.dumps(created))
    counted = []

    def count(_):
        counted.append(watch.samples()["ebbtide_run_counts_total", "not_rows"])

    def put(_):
        watch.pipeline.put(json.dumps({"ts_ms": 1}), json.dumps({"ts_ms": 2}))

    watch.follow(count, put, lambda look: None, count)
    assert counted == [0, 2]


def test_time_of_each_phase_is_summed_up_and_between_steps_is_waiting(make):
    watch = Watch(make())
    run = watch.run

    def after(seconds, call):
        watch.now_s += seconds
        call()

    progress = make().read(up(1, 1))[0]
    after(1, lambda: run.phase(Phase("t", "reading", 1)))
    after(2, lambda: run.phase(Phase("t", "merging", 1)))
    after(3, lambda: run.step(progress))
    after(4, lambda: run.phase(Phase("t", "reading", 2)))
    watch.now_s += 5
    found = watch.samples()
    seconds = {name[1]: value for name, value in found.items() if name[0] == "ebbtide_run_phase_seconds_total"}
    assert seconds == {"waiting": 1 + 4, "reading": 2 + 5, "merging": 3}


def test_files_that_wait_are_those_of_the_last_look_without_what_was_read_since(watch):
    pipeline = watch.pipeline
    for number in range(3):
        pipeline.put(up(number, number))
    waiting = []

    def measure(_):
        watch.fleet.measure()
        waiting.append(watch.samples()["ebbtide_lag_files",])

    def more(look):
        measure(look)
        pipeline.put(up(9, 9))
        pipeline.put(up(9, 10))

    watch.follow(more, lambda look: watch.stop.set(), on_step=measure)
    assert waiting == [2, 1, 0, 0]


def test_records_of_a_topic_that_wait_are_asked_for_again_behind_the_last_step(make, tmp_path, monkeypatch, shell):
    install(tmp_path / "logbook", shell, "logbook")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "id").write_text("first")
    (logs / "0.log").write_text('{"put": {"id": 1, "n": 1}}\n')
    pipeline = make()
    source = {"type": "logbook", "folder": str(logs)}
    pipeline.spec = plain(order={"sequence": ["n"]}, format={"type": "puts"}, source=source)
    held = {}

    def waiting(_, span):
        return Backlog(records=span.sizes, held=dict(held), oldest_ms={0: LATER - 9_000} if held else {})

    monkeypatch.setattr(PositionedSource, "waiting", waiting)
    watch = Watch(pipeline)
    found = []

    def measure(_):
        watch.fleet.measure()
        found.append(watch.samples())

    def write(look):
        measure(look)
        with (logs / "0.log").open("a") as file:
            file.write('{"put": {"id": 2, "n": 2}}\n{"put": {"id": 3, "n": 3}}\n')
        held[0] = 4
        measure(look)

    watch.follow(write)
    names = ("ebbtide_lag_records", "ebbtide_lag_held_records", "ebbtide_lag_seconds")
    assert [tuple(each[name,] for name in names) for each in found] == [(0, 0, 0), (2, 4, 9)]


def test_source_that_does_not_answer_is_said_and_the_last_lag_with_it_no_more(watch, monkeypatch):
    watch.pipeline.put(up(1, 1))
    found = []

    def measure(_):
        def fail(*_):
            raise SourceUnavailableError("away")

        watch.fleet.measure()
        found.append(watch.samples())
        with monkeypatch.context() as patch:
            patch.setattr(FileSource, "backlog", fail)
            watch.fleet.measure()
        found.append(watch.samples())

    watch.follow(measure)
    good, bad = found
    assert (good["ebbtide_readable", "source"], good["ebbtide_lag_files",]) == (1, 0)
    assert bad["ebbtide_readable", "source"] == 0
    assert ("ebbtide_lag_files",) not in bad


def test_verdicts_copies_and_disks_are_those_of_the_last_measurement(watch):
    pipeline = watch.pipeline
    pipeline.read(up(1, 1))
    LastVerdict(check="ordering", outcome="failed", broken=1, at_ms=1).note(pipeline.plan.root, KNOWN)
    assert ("ebbtide_check", "ordering", "failed") not in watch.samples()
    watch.fleet.measure()
    found = watch.samples()
    assert found["ebbtide_check", "ordering", "failed"] == 1
    assert found["ebbtide_disk_size_bytes", "root"] > found["ebbtide_disk_free_bytes", "root"] > 0
    assert found["ebbtide_cache_bytes",] >= found["ebbtide_copies_bytes",]


def test_measurements_go_on_until_they_are_stopped_whatever_fails(watch, monkeypatch, caplog):
    stop = threading.Event()

    def fail(*_, **__):
        stop.set()
        raise ValueError("strange")

    monkeypatch.setattr(watch.run, "measure", fail)
    watch.fleet.keep_measuring(stop)
    assert caplog.messages == ["The source of 't' could not be measured: strange"]


def test_run_is_healthy_within_its_bound_and_not_beyond_it(watch):
    watch.run.phase(Phase("t", "reading", 1))
    watch.now_s = 60.0
    assert watch.run.health().reason == ""
    watch.now_s = 60.5
    health = watch.run.health()
    assert health.as_dict() == {
        "pipeline": "t",
        "phase": "reading",
        "step": None,
        "progress_s": 60.5,
        "reason": "no step, phase or look at the source for 60 s; allowed: 60 s",
        "failure": "",
        "is_healthy": False,
    }
    assert watch.samples()["ebbtide_run_healthy",] == 0
    watch.run.phase(Phase("t", "deciding", 1))
    assert watch.run.health().reason == ""


@pytest.mark.parametrize("phase", ["paused", "making way for maintenance"])
def test_run_that_waits_for_someone_is_healthy_for_as_long_as_that_lasts(watch, phase):
    watch.run.phase(Phase("t", phase))
    watch.now_s = 1e6
    assert watch.run.health().reason == ""
    assert watch.samples()["ebbtide_paused",] == (phase == "paused")


@needs(PROMTOOL)
def test_run_that_has_failed_is_named_until_it_goes_on(watch):
    watch.pipeline.put(up(1, 1))
    watch.follow(lambda look: None)
    before = watch.samples()
    watch.run.failed(SourceUnavailableError("away: postgresql://u:secret@host/db"))
    watch.now_s = 1e6
    health = watch.run.health()
    assert (health.reason, watch.fleet.health().reason) == ("", ""), "the process need not end for it"
    assert health.failure.startswith("SourceUnavailableError: away")
    assert "secret" not in health.failure
    assert not health.as_dict()["is_healthy"]
    failing = watch.samples()
    names = ("ebbtide_run_failing", "ebbtide_run_failures_total", "ebbtide_lease_held")
    assert [failing[name,] for name in names] == [1, 1, 0]
    assert failing["ebbtide_step",] == before["ebbtide_step",]
    assert (fires("EbbtideRunFailing", before, before), fires("EbbtideRunFailing", before, failing)) == (False, True)
    watch.stop.clear()
    watch.follow(lambda look: None)
    assert [watch.samples()[name,] for name in names[:2]] == [1, 1], "a look is no success"
    watch.run.goes_on()
    assert [watch.samples()[name,] for name in names[:2]] == [0, 1]


def test_bound_is_ten_triggers_and_at_least_as_long_as_faults_are_waited_out(make):
    assert WatchedRun(make().spec, "root").longest_silence_s == 600
    assert WatchedRun(make(trigger_interval="10m").spec, "root").longest_silence_s == 6000


@needs(PROMTOOL)
def test_lost_lease_is_not_healthy(watch):
    pipeline = watch.pipeline
    pipeline.put(up(1, 1))
    found = []
    assume("without heartbeats")

    def take(look):
        lease = look.stepper.lease
        lease._me = "elsewhere@0-1:1:1/x"
        lease._renew(holder=lease._me)
        found.append((watch.run.health().reason, watch.samples()))
        with Lease(pipeline.plan.at("ledger"), "t", 0.05):
            with pytest.raises(Exception, match="has taken 't' over"):
                lease.check()
            found.append((watch.run.health().reason, watch.samples()))

    watch.follow(take)
    (before, held), (after, lost) = found
    assert (before, held["ebbtide_lease_held",], held["ebbtide_run_lease_lost",]) == ("", 1, 0)
    assert after == "lease lost: another process has taken the pipeline over"
    assert (lost["ebbtide_lease_held",], lost["ebbtide_run_lease_lost",], lost["ebbtide_run_healthy",]) == (0, 1, 0)
    for rule in ("EbbtideLeaseLost", "EbbtideRunStuck"):
        assert (fires(rule, held, held), fires(rule, held, lost)) == (False, True)


def test_paused_run_keeps_its_values_without_the_lease_and_holds_no_table(watch):
    watch.pipeline.put(up(1, 1))
    watch.follow(lambda look: None)
    before = watch.samples()
    watch.run.phase(Phase("t", "paused"))
    paused = watch.samples()
    names = [f"ebbtide_{name}" for name in ("step", "records_total", "state_rows", "state_bytes", "lease_taken_total")]
    assert [paused[name,] for name in names] == [before[name,] for name in names]
    assert (paused["ebbtide_lease_held",], paused["ebbtide_paused",], paused["ebbtide_run_healthy",]) == (0, 1, 1)
    assert watch.run._look is None
