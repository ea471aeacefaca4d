"""The metrics of pipelines at rest: by the logs and the source, as `status` and `lag` show them."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from local.local_pipeline import LATER, up
from local.metrics_support import command, samples_of

from ebbtide.delta import LocalCopies
from ebbtide.errors import SourceReadError
from ebbtide.inspect import MetricsAtRest, status
from ebbtide.inspect._exposition import openmetrics
from ebbtide.inspect._metrics import BOUNDS_S, BY_NAME, METRICS, Distribution, Values
from ebbtide.ledger import LastVerdict, Lease

KNOWN = ("ordering", "expiry")


def measure(pipeline, clock_ms=LATER):
    found = MetricsAtRest.of([pipeline.spec], pipeline.root, clock_ms)
    return samples_of(found.text), [error for _, error in found.errors]


def test_metrics_have_the_values_of_the_status(make, tmp_path):
    pipeline = make()
    pipeline.read(up(1, 1), up(2, 2), "bad")
    pipeline.put(up(3, 3), up(4, 4))
    shown = command(pipeline, tmp_path, "status", "--metrics")
    assert (shown.exit_code, shown.stderr) == (0, "")
    found, by_status = samples_of(shown.stdout), status(pipeline.spec, pipeline.root)
    assert found["ebbtide_records_total",] == by_status.read.records == 3
    assert found["ebbtide_quarantined_total",] == found["ebbtide_quarantine_records",] == 1
    assert found["ebbtide_step",] == by_status.last.step == 1
    assert found["ebbtide_step_timestamp_seconds",] == by_status.last.now.timestamp()
    assert found["ebbtide_state_rows",] == by_status.state.rows
    assert found["ebbtide_sink_rows",] == by_status.sink.rows == 2
    for table in ("state", "sink"):
        files = pipeline.home.joinpath(table).rglob("*.parquet")
        n_bytes = sum(path.stat().st_size for path in files if "_delta_log" not in path.parts)
        assert found[f"ebbtide_{table}_bytes",] == n_bytes > 0
    [waiting] = [path for path in pipeline.source.iterdir() if path.name.startswith("0001")]
    assert (found["ebbtide_lag_files",], found["ebbtide_lag_bytes",]) == (1, waiting.stat().st_size)
    assert found["ebbtide_readable", "tables"] == found["ebbtide_readable", "source"] == 1
    assert found["ebbtide_lease_held",] == found["ebbtide_misfit",] == found["ebbtide_paused",] == 0
    assert found["ebbtide_disk_size_bytes", "root"] == shutil.disk_usage(pipeline.root).total


def test_newest_event_and_watermark_are_those_of_the_last_step(make):
    pipeline = make(event_time="at", schema="id BIGINT NOT NULL, n INT, at TIMESTAMP", allowed_delay="1h")
    pipeline.read(up(1, 1, at="2026-01-01T02:00:00Z"), up(1, 2, at="2026-01-01T01:00:00Z"))
    pipeline.read(up(1, 3, at="2026-01-01T00:00:00Z"))
    found, _ = measure(pipeline)
    assert found["ebbtide_newest_event_timestamp_seconds",] == 1767232800
    assert found["ebbtide_watermark_timestamp_seconds",] == 1767232800 - 3600


def test_lease_counts_while_it_is_held_and_each_time_it_was_taken(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    with Lease(pipeline.plan.at("ledger"), "t", 60):
        found, _ = measure(pipeline)
    assert (found["ebbtide_lease_held",], found["ebbtide_lease_taken_total",]) == (1, 2)


def test_last_verdict_of_each_check_is_shown_and_a_later_one_takes_its_place(make):
    pipeline = make(checks={"max_quarantine_rate": 0.5})
    pipeline.read("bad", "worse", up(1, 1))
    home = pipeline.plan.root
    assert LastVerdict.of_checks(home) == ()
    LastVerdict(check="ordering", outcome="passed", broken=0, at_ms=1_000).note(home, KNOWN)
    LastVerdict(check="expiry", outcome="failed", broken=1, at_ms=1_000).note(home, KNOWN)
    LastVerdict(check="expiry", outcome="warning", broken=7, at_ms=9_000).note(home, KNOWN)
    found, _ = measure(pipeline)
    assert [found["ebbtide_check", "expiry", outcome] for outcome in ("passed", "warning", "failed")] == [0, 1, 0]
    assert (found["ebbtide_check_broken_rows", "expiry"], found["ebbtide_check_timestamp_seconds", "expiry"]) == (7, 9)
    assert found["ebbtide_check", "ordering", "passed"] == 1
    assert "check" not in status(pipeline.spec, pipeline.root).text()
    LastVerdict(check="expiry", outcome="failed", broken=1, at_ms=1_000).note(home, KNOWN)
    assert (
        "  check expiry failed at 1970-01-01 00:00:01 UTC: 'ebbtide check --only expiry' shows"
        in status(pipeline.spec, pipeline.root).text()
    )


def test_source_that_cannot_be_read_hides_neither_the_tables_nor_other_pipelines(make, tmp_path):
    pipeline = make()
    pipeline.read(up(1, 1))
    shutil.rmtree(pipeline.source)
    shown = command(pipeline, tmp_path, "status", "--metrics")
    found = samples_of(shown.stdout)
    assert (found["ebbtide_readable", "source"], found["ebbtide_readable", "tables"]) == (0, 1)
    assert ("ebbtide_lag_files",) not in found
    assert found["ebbtide_step",] == 1
    assert (shown.exit_code, "SourceReadError" in shown.stderr) == (0, True), "the exit code is that of a scrape"


def test_tables_that_cannot_be_read_are_counted_as_such(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    (pipeline.home / "checks").mkdir()
    (pipeline.home / "checks" / "x.json").write_text("{")
    found, errors = measure(pipeline)
    assert found["ebbtide_readable", "tables"] == 0
    assert ("ebbtide_step",) not in found
    assert f"'{pipeline.home}/checks/x.json'" in str(errors[0])


def test_metrics_and_json_are_not_printed_at_once(make, tmp_path):
    pipeline = make()
    Path(pipeline.root).mkdir(parents=True, exist_ok=True)
    refused = command(pipeline, tmp_path, "status", "--metrics", "--json")
    assert (refused.exit_code, "Allowed: one of them." in refused.stderr) == (2, True)


def test_copies_are_counted_for_their_pipeline(make, tmp_path, shell):
    pipeline = make()
    shell.export(EBBTIDE_CACHE=tmp_path, EBBTIDE_CACHE_BYTES="1000")
    for table, n_bytes in (("t/state", 3), ("t/sink", 4), ("other/state", 5)):
        (tmp_path / f"{LocalCopies().prefix_of(f'{pipeline.root}/{table}')}x.arrow").write_bytes(b"." * n_bytes)
    found, _ = measure(pipeline)
    assert (found["ebbtide_copies",], found["ebbtide_copies_bytes",]) == (2, 7)
    assert (found["ebbtide_cache_bytes",], found["ebbtide_cache_limit_bytes",]) == (12, 1000)
    assert ("ebbtide_disk_free_bytes", "root") not in found, "there is no such folder yet"


def test_disk_has_what_is_left_of_it(tmp_path, monkeypatch):
    disk = SimpleNamespace(total=100, free=9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk)
    found = samples_of(MetricsAtRest.of([], str(tmp_path), LATER).text)
    assert (found["ebbtide_disk_free_bytes", "root"], found["ebbtide_disk_size_bytes", "root"]) == (9, 100)
    in_store = samples_of(MetricsAtRest.of([], "s3://bucket/root", LATER).text)
    assert ("ebbtide_disk_free_bytes", "root") not in in_store


def test_names_say_unit_and_kind_and_are_given_once():
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("ebbtide_"), metric
        assert not metric.name.endswith("_total"), metric
        assert metric.text.endswith("."), metric


def test_values_of_another_viewer_are_left_out_and_unknown_names_are_refused():
    values = Values("run", "t")
    values.set("ebbtide_sink_rows", 3)
    values.set("ebbtide_step", None)
    assert openmetrics([values]) == "# EOF\n"
    with pytest.raises(KeyError):
        values.set("ebbtide_nothing", 1)


def test_histogram_counts_each_value_up_to_its_bounds():
    seconds = Distribution()
    for value in (0.1, 0.2, 3.0, 10_000.0):
        seconds.add(value)
    buckets = dict(seconds.buckets())
    assert (buckets["0.1"], buckets["0.25"], buckets["2.5"], buckets["5.0"], buckets["+Inf"]) == (1, 2, 2, 3, 4)
    assert seconds.total == pytest.approx(10_003.3)
    assert len(buckets) == len(BOUNDS_S) + 1


def test_lag_is_refused_as_the_next_run_is(make):
    pipeline = make()
    shutil.rmtree(pipeline.source)
    _, errors = measure(pipeline)
    assert [type(error) for error in errors] == [SourceReadError]
