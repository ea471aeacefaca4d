"""What watches a run: the order of its events, what a failing observer does, and what the environment switches on."""

import sys
import threading
from importlib.util import find_spec, module_from_spec

import pytest
from local.local_pipeline import killed, up
from local.local_run import SPARK

import ebbtide
from ebbtide.errors import MissingExtraError
from ebbtide.runtime import Observer
from ebbtide.runtime import _observers as observers
from ebbtide.runtime._following import Following
from ebbtide.runtime._observers import observers_of_environment


class Noting(Observer):
    def __init__(self):
        self.events = []
        self.end = None

    def begun(self, run):
        self.events.append("begun")

    def phase(self, phase):
        self.events.append(phase.name)

    def step(self, progress):
        self.events.append(f"step {progress.step}")

    def look(self, look):
        self.events.append("look")

    def ended(self, end):
        self.events.append("ended")
        self.end = end


def test_events_come_in_the_order_of_the_run(make):
    pipeline, noting = make(), Noting()
    pipeline.put(up(1, 1))
    summary = pipeline.run(observers=[noting])
    assert noting.events == [
        "begun",
        "opening the tables",
        "listing the source",
        "look",
        "starting the stream",
        "reading",
        "deciding",
        "merging",
        "step 1",
        "ended",
    ]
    assert (noting.end.summary, noting.end.error, noting.end.is_cut) == (summary, None, False)


def test_refresh_reports_its_own_events_and_none_of_the_step_that_it_tries(make):
    pipeline, noting = make(), Noting()
    pipeline.read(up(1, 1))
    ebbtide.refresh(SPARK, pipeline.spec, pipeline.root, observers=[noting])
    assert [event for event in noting.events if event.startswith("step")] == ["step 3"]
    assert (noting.events[0], noting.events[-1]) == ("begun", "ended")


def test_error_of_a_run_ends_it_for_its_observers_too(make, monkeypatch):
    pipeline, noting = make(), Noting()
    pipeline.put(up(1, 1))
    monkeypatch.setattr("ebbtide.runtime._reading.SourceSteps._finish", killed)
    with pytest.raises(InterruptedError) as raised:
        pipeline.run(observers=[noting])
    assert noting.end.error is raised.value
    assert noting.events[-1] == "ended"


def test_run_stopped_before_its_end_is_cut_and_a_followed_one_is_not(make):
    pipeline = make()
    for number in (1, 2):
        pipeline.put(up(number, number))
    cut, followed = Noting(), Noting()
    stop = threading.Event()
    pipeline.run(observers=[cut], stop=stop, on_progress=lambda _: stop.set())
    stop.clear()
    pipeline.run(
        observers=[followed], stop=stop, on_progress=lambda _: stop.set(), follow=Following(1, tick_every_ms=1)
    )
    assert ([event for event in cut.events if "step" in event], cut.end.is_cut) == (["step 1"], True)
    assert ([event for event in followed.events if "step" in event], followed.end.is_cut) == (["step 2"], False)


def test_observer_that_fails_is_left_out_with_one_warning_and_the_run_goes_on(make, caplog):
    class Failing(Noting):
        def phase(self, phase):
            super().phase(phase)
            raise ValueError("full")

    pipeline, failing, noting = make(), Failing(), Noting()
    pipeline.put(up(1, 1))
    assert [step.step for step in pipeline.run(observers=[failing, noting]).steps] == [1]
    assert failing.events == ["begun", "opening the tables"]
    assert noting.events[-1] == "ended"
    assert caplog.messages == ["Failing takes no more events of this run: ValueError: full"]


def test_error_of_a_callback_still_ends_the_run(make):
    pipeline, noting = make(), Noting()
    pipeline.put(up(1, 1))
    with pytest.raises(InterruptedError):
        pipeline.run(observers=[noting], on_progress=killed)
    assert isinstance(noting.end.error, InterruptedError)


def test_variables_switch_observers_on(shell):
    for variables in observers.BUILT_IN.values():
        shell.unset(*variables)
    assert observers_of_environment() == []
    shell.export(OPENLINEAGE_URL="")
    assert observers_of_environment() == []
    shell.export(OTEL_TRACES_EXPORTER="none", OPENLINEAGE_URL="http://127.0.0.1:9", DAGSTER_PIPES_CONTEXT="x")
    assert [type(found).__name__ for found in observers_of_environment()] == ["Spans", "Lineage", "Pipes"]


def test_library_that_is_missing_is_said_once_and_the_run_goes_on(monkeypatch, shell, caplog):
    def missing(name):
        raise MissingExtraError.of_extra("otel", "OpenTelemetry")

    monkeypatch.setattr(observers, "resolve_name", missing)
    shell.export(OTEL_TRACES_EXPORTER="otlp")
    shell.unset("OPENLINEAGE_URL")
    observers._kind.cache_clear()
    try:
        assert [observers_of_environment(), observers_of_environment()] == [[], []]
    finally:
        observers._kind.cache_clear()
    assert caplog.messages == ["OpenTelemetry is not installed. Install it: pip install 'ebbtide[otel]'."]


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("spans", "opentelemetry", "otel"),
        ("lineage", "openlineage.client", "lineage"),
        ("pipes", "dagster_pipes", "pipes"),
    ],
)
def test_module_without_its_library_names_the_extra(module, library, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    spec = find_spec(f"ebbtide.inspect._{module}")
    with pytest.raises(MissingExtraError, match=rf"Install it: pip install 'ebbtide\[{extra}\]'."):
        spec.loader.exec_module(module_from_spec(spec))
