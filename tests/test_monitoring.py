"""The rules and the dashboard of examples/monitoring: they use metrics that there are, and fire on their faults."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from urllib.error import URLError

import pytest
import yaml
from crashes.mounting import IN_NAMESPACE
from frame.alert_rules import MONITORING, RULES, UP, fires
from frame.installing import install
from frame.parts import MOUNTS, PROMTOOL, needs
from frame.waiting import PATIENCE_S
from local.local_pipeline import LATER, up
from local.local_run import HOUR
from local.metrics_support import command, followed, get, samples_of, wait_for_step, write_spec
from local.support import plain
from servers.kafka_broker import free_port

import ebbtide
from ebbtide.cli.verbs import COMMANDS
from ebbtide.errors import SourceReadError
from ebbtide.inspect import MetricsAtRest
from ebbtide.inspect._metrics import METRICS
from ebbtide.ledger import LastVerdict
from ebbtide.sources import Backlog, PositionedSource

PANELS = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
OF_PANELS = {f"{panel['title']} {target['refId']}": target["expr"] for panel in PANELS for target in panel["targets"]}
EXPRESSIONS = {**{name: rule["expr"] for name, rule in RULES.items()}, **OF_PANELS}
LABELS_OF = {metric.sample: set(metric.label_names) for metric in METRICS} | {
    f"{metric.name}{suffix}": {*metric.label_names, "le"}
    for metric in METRICS
    if metric.kind == "histogram"
    for suffix in ("_bucket", "_count", "_sum")
}
SELECTOR = re.compile(r"(ebbtide_\w+)(?:\{([^}]*)\})?")

KNOWN = ("ordering", "expiry")
DAY = 24 * HOUR


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_expression_uses_metrics_and_labels_that_there_are(expression):
    found = SELECTOR.findall(expression)
    for name, selected in found:
        assert set(re.findall(r"(\w+)\s*=~?", selected)) <= LABELS_OF[name], name
    by = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(",")}
    assert by <= {"alertname"}.union(*(LABELS_OF[name] for name, _ in found))


@pytest.mark.parametrize("name", RULES)
def test_rule_says_what_is_wrong_of_which_pipeline_and_what_to_do(name):
    rule = RULES[name]
    labels = {"instance"}.union(*(LABELS_OF[found] for found, _ in SELECTOR.findall(rule["expr"])))
    text = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= labels
    assert rule["annotations"].keys() == {"summary", "next_step"}
    assert set(re.findall(r"ebbtide ([a-z]+)(?: list)? SPEC", text)) <= COMMANDS.keys()
    assert rule["labels"]["severity"] in ("warning", "critical")


def test_every_rule_has_a_fault_in_the_unit_tests_of_the_rules():
    _, faults = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]
    [fired] = faults["promql_expr_test"]
    assert {re.search(r'"(\w+)"', each["labels"])[1] for each in fired["exp_samples"]} == set(RULES)


def test_panels_have_places_of_their_own():
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in PANELS}
    assert len(places) == len(PANELS) == len({panel["id"] for panel in PANELS})


@needs(PROMTOOL)
@pytest.mark.parametrize(
    "asked",
    [("check", "rules", "alerts.yaml"), ("check", "config", "prometheus.yaml"), ("test", "rules", "alerts_test.yaml")],
)
def test_promtool_takes_the_rules_which_fire_on_every_fault_and_on_nothing_else(asked):
    done = subprocess.run(["promtool", *asked], cwd=MONITORING, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_has_a_test_in_which_its_fault_is_made():
    tests = Path(__file__).parent
    text = "".join((tests / name).read_text() for name in ("test_monitoring.py", "inspect/test_watched_run.py"))
    assert [name for name in RULES if f'"{name}"' not in text] == []


def scraped(pipeline, clock_ms=LATER):
    """Return the samples of a pipeline at rest."""
    return samples_of(MetricsAtRest.of([pipeline.spec], pipeline.root, clock_ms).text)


def read_at(pipeline, clock_ms, *lines):
    """Read a file on a host whose clock says so."""
    pipeline.put(*lines)
    ebbtide.run(ebbtide.InProcess(lambda _: clock_ms), pipeline.spec, pipeline.root, clock=lambda: clock_ms)


@needs(PROMTOOL)
def test_files_that_are_old_fire_though_no_more_come(make):
    pipeline = make(freshness={"fail_window": "2h"})
    pipeline.read(up(1, 1))
    well = scraped(pipeline)
    pipeline.put(up(2, 1))
    for name in pipeline.source.iterdir():
        os.utime(name, (LATER / 1000, LATER / 1000))
    young, old = (scraped(pipeline, LATER + hours * HOUR) for hours in (1, 3))
    assert young["ebbtide_lag_seconds",] == 3600
    assert (fires("EbbtideOld", well, young), fires("EbbtideOld", well, old)) == (False, True)
    pipeline.run(LATER + 3 * HOUR)
    assert not fires("EbbtideOld", old, scraped(pipeline, LATER + 3 * HOUR))


@needs(PROMTOOL)
def test_records_that_are_old_fire_though_no_more_come(topic):
    few = scraped(topic)
    assert few["ebbtide_lag_seconds",] == 600
    assert not fires("EbbtideOld", few, few)
    assert not fires("EbbtideLagRising", few, few), "they become no more"
    freshness = topic.spec.freshness.model_copy(update={"fail_window": timedelta(minutes=5)})
    topic.spec = topic.spec.model_copy(update={"freshness": freshness})
    flat = scraped(topic)
    assert fires("EbbtideOld", flat, flat)


@needs(PROMTOOL)
def test_producer_that_has_stopped_fires_though_runs_find_nothing_to_read(make):
    pipeline = make(freshness={"fail_window": "3h"}, downtime_over="1h")
    pipeline.read(up(1, 1))
    found = scraped(pipeline)
    assert not fires("EbbtideNoRecords", found, found)
    pipeline.run(LATER + 4 * HOUR)
    idle = scraped(pipeline, LATER + 4 * HOUR)
    assert fires("EbbtideNoRecords", idle, idle, at_ms=LATER + 4 * HOUR)
    read_at(pipeline, LATER + 4 * HOUR, up(2, 1))
    read = scraped(pipeline, LATER + 4 * HOUR)
    assert not fires("EbbtideNoRecords", read, read, at_ms=LATER + 4 * HOUR)


@needs(PROMTOOL)
def test_pause_that_is_forgotten_fires_until_it_ends(make):
    pipeline = make(freshness={"fail_window": "3h"})
    pipeline.read(up(1, 1))
    pipeline.act("pause", reason="a migration")
    paused = scraped(pipeline)
    assert not fires("EbbtidePauseForgotten", paused, paused)
    assert fires("EbbtidePauseForgotten", paused, paused, at_ms=LATER + 3 * HOUR)
    pipeline.act("resume", clock_ms=LATER + 3 * HOUR)
    assert not fires("EbbtidePauseForgotten", scraped(pipeline), scraped(pipeline), at_ms=LATER + 3 * HOUR)


@needs(PROMTOOL)
def test_metrics_that_nothing_measures_any_more_fire(make):
    found = scraped(make())
    now_ms = round(time.time() * 1000)
    assert not fires("EbbtideMetricsOld", found, found, at_ms=now_ms, minutes=10)
    assert fires("EbbtideMetricsOld", found, found, at_ms=now_ms, minutes=20)


@needs(PROMTOOL)
def test_metrics_that_are_there_no_more_fire(make):
    found = scraped(make())
    assert not fires("EbbtideMetricsGone", found, found)
    assert fires("EbbtideMetricsGone", found, {})


@needs(PROMTOOL)
def test_clock_that_was_wrong_fires_while_it_is_ahead_and_after_it_is_right(make):
    pipeline = make(max_clock_jump="1d")
    pipeline.read(up(1, 1))
    well = scraped(pipeline)
    wrong_ms = LATER + 800 * DAY
    read_at(pipeline, wrong_ms, up(2, 1))
    held = scraped(pipeline, wrong_ms)
    assert fires("EbbtideClockHeld", well, held, at_ms=wrong_ms)
    read_at(pipeline, LATER, up(3, 1))
    right = scraped(pipeline)
    assert not fires("EbbtideClockHeld", held, right)
    assert (fires("EbbtideClockAhead", well, well), fires("EbbtideClockAhead", well, right)) == (False, True)


@needs(PROMTOOL)
def test_check_that_is_not_judged_any_more_fires(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    LastVerdict(check="ordering", outcome="passed", broken=0, at_ms=LATER).note(pipeline.plan.root, KNOWN)
    found = scraped(pipeline)
    assert not fires("EbbtideCheckOld", found, found, "ordering")
    assert fires("EbbtideCheckOld", found, found, "ordering", at_ms=LATER + 2 * DAY)


@needs(PROMTOOL)
def test_runs_that_begin_again_and_again_fire(make):
    pipeline = make()

    def after(n_runs):
        for _ in range(n_runs):
            pipeline.read(up(1, 1))
        return scraped(pipeline)

    first, few, many = after(1), after(2), after(12)
    assert (fires("EbbtideRestarts", first, few), fires("EbbtideRestarts", few, many)) == (False, True)


@needs(PROMTOOL)
def test_copies_that_fill_their_bytes_fire(make, tmp_path, shell):
    shell.export(EBBTIDE_CACHE=tmp_path / "cache")
    pipeline = make()
    pipeline.read(up(1, 1))
    roomy = scraped(pipeline)
    n_bytes = int(roomy["ebbtide_cache_bytes",])
    shell.export(EBBTIDE_CACHE_BYTES=str(n_bytes))
    full = scraped(pipeline)
    assert n_bytes > 0
    assert (fires("EbbtideCopiesEvicted", roomy, roomy), fires("EbbtideCopiesEvicted", roomy, full)) == (False, True)


@needs(PROMTOOL)
def test_run_that_was_killed_answers_no_more_and_fires(make, tmp_path):
    pipeline = make()
    pipeline.put(up(1, 1))
    run, port = followed(pipeline, tmp_path)
    try:
        well = wait_for_step(port, 1) | {(UP,): 1}
    finally:
        run.kill()
        run.communicate(timeout=PATIENCE_S)
    with pytest.raises(URLError):
        get(port, "/metrics")
    assert (fires("EbbtideRunDown", well, well), fires("EbbtideRunDown", well, {(UP,): 0})) == (False, True)


@needs(PROMTOOL)
def test_share_of_bad_records_fires(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    before = scraped(pipeline)
    pipeline.read(*(up(number, 2) for number in range(200)), "bad")
    few = scraped(pipeline)
    assert not fires("EbbtideQuarantineRate", before, few)
    pipeline.read(*(up(number, 3) for number in range(10)), "bad")
    assert fires("EbbtideQuarantineRate", few, scraped(pipeline))


@needs(PROMTOOL)
def test_check_that_failed_fires_until_it_passes(make, tmp_path):
    pipeline = make(checks={"max_quarantine_rate": 0.1})
    pipeline.read(up(1, 1), "bad")

    def judged():
        command(pipeline, tmp_path, "check", "--only", "quarantine_rate")
        return scraped(pipeline)

    failed = judged()
    assert fires("EbbtideCheckFailed", failed, failed, "quarantine_rate")
    pipeline.spec = pipeline.with_fields(checks={"max_quarantine_rate": 0.9})
    passed = judged()
    assert not fires("EbbtideCheckFailed", failed, passed, "quarantine_rate")


@needs(PROMTOOL)
def test_files_that_no_run_reads_fire(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    read = scraped(pipeline)
    pipeline.put(up(1, 2))
    one = scraped(pipeline)
    assert not fires("EbbtideFilesWait", read, one)
    pipeline.put(up(1, 3))
    assert fires("EbbtideFilesWait", one, scraped(pipeline))


@pytest.fixture
def topic(make, tmp_path, monkeypatch, shell):
    """A pipeline that is read by position, what waits there, and what is held."""
    install(tmp_path / "logbook", shell, "logbook")
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "id").write_text("first")
    pipeline = make()
    source = {"type": "logbook", "folder": str(folder)}
    pipeline.spec = plain(order={"sequence": ["n"]}, format={"type": "puts"}, source=source)
    pipeline.held = {}
    oldest = {0: LATER - 600_000}
    monkeypatch.setattr(
        PositionedSource,
        "waiting",
        lambda _, span: Backlog(records=span.sizes, oldest_ms=oldest, held=dict(pipeline.held)),
    )
    pipeline.log = folder / "0.log"
    pipeline.log.write_text('{"put": {"id": 1, "n": 1}}\n')
    return pipeline


@needs(PROMTOOL)
def test_lag_that_rises_fires_and_one_that_falls_does_not(topic):
    few = scraped(topic)
    with topic.log.open("a") as log:
        log.write('{"put": {"id": 2, "n": 2}}\n')
    more = scraped(topic)
    assert fires("EbbtideLagRising", few, more)
    assert not fires("EbbtideLagRising", more, few)
    topic.run()
    assert not fires("EbbtideLagRising", few, scraped(topic))


@needs(PROMTOOL)
def test_open_transaction_fires_while_it_holds_records(topic):
    topic.run()
    free = scraped(topic)
    assert not fires("EbbtideOpenTransaction", free, free)
    topic.held[0] = 3
    assert fires("EbbtideOpenTransaction", free, scraped(topic))


@needs(PROMTOOL)
@needs(MOUNTS)
def test_full_disk_fires(make, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = f"mount -t tmpfs -o size=1000k none {disk} && head -c 950k /dev/zero > {disk}/filler"
    status = f"{sys.executable} -m ebbtide.cli status {write_spec(make(), tmp_path)} --root {disk}"
    done = subprocess.run(
        [*IN_NAMESPACE, "sh", "-c", f"{mounted} && {status} --metrics; {status}"],
        check=False,
        capture_output=True,
        text=True,
    )
    metrics, end, said = done.stdout.partition("# EOF\n")
    assert done.returncode == 1, "it needs a look"
    assert re.search(r"the disk of '.*' has [\d,]+ bytes left: make room, by '.*vacuum", said)
    found = samples_of(metrics + end)
    assert fires("EbbtideDiskFull", found, found, "root")
    larger = {**found, ("ebbtide_disk_size_bytes", "root"): 5 * found["ebbtide_disk_free_bytes", "root"]}
    assert not fires("EbbtideDiskFull", found, larger, "root")


@needs(PROMTOOL)
def test_tables_that_do_not_fit_and_a_source_that_is_gone_fire(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    well = scraped(pipeline)
    assert not fires("EbbtideRefused", well, well)
    assert not fires("EbbtideUnreadable", well, well, "source")
    shutil.rmtree(pipeline.home / "sink")
    shutil.rmtree(pipeline.source)
    now = scraped(pipeline)
    assert fires("EbbtideRefused", well, now)
    assert fires("EbbtideUnreadable", well, now, "source")


@needs(PROMTOOL)
def test_run_that_failed_fires_until_one_succeeds(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    well = scraped(pipeline)
    assert not fires("EbbtideLastRunFailed", well, well)
    gone = pipeline.source.rename(pipeline.source.with_name("gone"))
    with pytest.raises(SourceReadError):
        pipeline.run()
    gone.rename(pipeline.source)
    failed = scraped(pipeline)
    assert fires("EbbtideLastRunFailed", well, failed)
    pipeline.read(up(2, 1))
    assert not fires("EbbtideLastRunFailed", failed, scraped(pipeline))


@needs(PROMTOOL)
def test_foreign_write_fires(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    before = scraped(pipeline)
    pipeline.do("spoil")
    assert fires("EbbtideForeignWrites", before, scraped(pipeline))


@pytest.mark.grid
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_prometheus_scrapes_a_followed_run_and_fires_its_alert(make, tmp_path):
    pipeline = make()
    pipeline.put(up(1, 1))
    run, port = followed(pipeline, tmp_path)
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(MONITORING / "alerts.yaml")]
    config["scrape_configs"] = [{"job_name": "ebbtide", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    own = free_port()
    data, listen = f"--storage.tsdb.path={tmp_path / 'tsdb'}", f"--web.listen-address=127.0.0.1:{own}"
    command = ["prometheus", f"--config.file={tmp_path / 'prometheus.yaml'}", data, listen]
    prometheus = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_step(port, 1)
        LastVerdict(check="ordering", outcome="failed", broken=1, at_ms=LATER).note(pipeline.plan.root, KNOWN)
        firing = until(lambda: alerts(own))
        targets = json.loads(get(own, "/api/v1/targets")[2])["data"]["activeTargets"]
    finally:
        for process in (prometheus, run):
            process.terminate()
            process.communicate(timeout=PATIENCE_S)
    assert [target["health"] for target in targets] == ["up"], targets
    assert "EbbtideCheckFailed" in firing
    assert not {"EbbtideRunDown", "EbbtideRunStuck", "EbbtideLeaseLost"} & firing


def alerts(port):
    """Return the names of the alerts that fire; none while Prometheus starts."""
    try:
        found = json.loads(get(port, "/api/v1/alerts")[2])["data"]["alerts"]
    except (URLError, ValueError, KeyError):
        return set()
    return {alert["labels"]["alertname"] for alert in found if alert["state"] == "firing"}


def until(look):
    """Look again and again until something is found."""
    end_s = time.monotonic() + 2 * PATIENCE_S
    while time.monotonic() < end_s:
        found = look()
        if "EbbtideCheckFailed" in found:
            return found
        time.sleep(0.5)
    raise TimeoutError("no alert fires")
