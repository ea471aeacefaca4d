"""Spans of runs and steps, as OpenTelemetry's own SDK keeps and sends them."""

import socket
import threading
from itertools import pairwise

import pytest
from frame.limits import set_limits
from frame.loopback import posts_kept
from local.local_pipeline import up
from local.support import plain
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ebbtide.errors import ConfigError
from ebbtide.inspect import _spans as spans
from ebbtide.inspect._spans import Spans
from ebbtide.runtime import Phase, RunBegun
from ebbtide.runtime._following import Following

PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def kept():
    return InMemorySpanExporter()


@pytest.fixture
def observer(kept):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    return Spans(provider)


def names_below(found, parent):
    """The names of the spans directly below one, by the time of their beginning."""
    below = [span for span in found if span.parent and span.parent.span_id == parent.context.span_id]
    return [span.name for span in sorted(below, key=lambda span: span.start_time)]


def named(found, name):
    return [span for span in found if span.name == name]


def test_bounded_run_is_one_trace_of_steps_and_phases(make, kept, observer):
    pipeline = make()
    pipeline.put(up(1, 1), up(2, 2), "bad")
    pipeline.put(up(3, 3))
    pipeline.run(observers=[observer])
    found = kept.get_finished_spans()
    [run] = named(found, "run")
    steps = named(found, "step")
    assert run.parent is None
    assert len({span.context.trace_id for span in found}) == 1
    assert names_below(found, run) == [
        "opening the tables",
        "listing the source",
        "starting the stream",
        "step",
        "step",
    ]
    assert [names_below(found, step) for step in steps] == [["reading", "deciding", "merging"]] * 2
    assert run.instrumentation_scope.name == "ebbtide"
    assert dict(run.attributes) == {
        "ebbtide.pipeline": "t",
        "ebbtide.goes_on": False,
        "ebbtide.steps": 2,
        "ebbtide.records": 4,
        "ebbtide.quarantined": 1,
        "ebbtide.changes": 3,
        "ebbtide.inserted": 3,
        "ebbtide.engine": run.attributes["ebbtide.engine"],
    }
    first = steps[0].attributes
    names = ("pipeline", "step", "kind", "records", "inserted", "quarantined", "batch_id")
    assert [first[f"ebbtide.{name}"] for name in names] == ["t", 1, "batch", 3, 2, 1, 0]
    assert all(span.status.is_unset for span in found)


def test_spans_of_a_step_lie_within_it_one_after_the_other(make, kept, observer):
    pipeline = make()
    pipeline.put(up(1, 1))
    pipeline.run(observers=[observer])
    found = kept.get_finished_spans()
    [step] = named(found, "step")
    phases = [span for name in ("reading", "deciding", "merging") for span in named(found, name)]
    assert step.start_time <= phases[0].start_time
    assert all(before.end_time <= after.start_time for before, after in pairwise(phases))
    assert phases[-1].end_time <= step.end_time


def test_steps_of_a_run_that_goes_on_are_traces_of_their_own_with_a_link_to_it(make, kept, observer):
    pipeline = make()
    for number in (1, 2):
        pipeline.put(up(number, number))
    stop = threading.Event()

    def on_progress(progress):
        if progress.step == 1:  # exported though the run goes on
            assert [span.attributes["ebbtide.step"] for span in named(kept.get_finished_spans(), "step")] == [1]
        else:
            stop.set()

    pipeline.run(observers=[observer], stop=stop, on_progress=on_progress, follow=Following(1, tick_every_ms=10**9))
    found = kept.get_finished_spans()
    [run] = named(found, "run")
    steps = named(found, "step")
    assert [step.parent for step in steps] == [None, None]
    assert len({span.context.trace_id for span in [run, *steps]}) == 3
    assert {link.context.span_id for step in steps for link in step.links} == {run.context.span_id}


def test_failed_run_says_why_without_a_stack_and_its_step_was_not_finished(make, kept, observer, monkeypatch):
    def fail(*_, **__):
        raise ValueError("cannot reach kafka://user:hunter22@broker")

    pipeline = make()
    pipeline.put(up(1, 1))
    monkeypatch.setattr("ebbtide.runtime._reading.SourceSteps._finish", fail)
    with pytest.raises(ValueError, match="cannot reach"):
        pipeline.run(observers=[observer])
    found = kept.get_finished_spans()
    [run], [step] = named(found, "run"), named(found, "step")
    assert step.status.description == "the step was not finished"
    assert (run.status.status_code.name, run.status.description) == ("ERROR", "cannot reach kafka://***@broker")
    [event] = run.events
    assert dict(event.attributes) == {
        "exception.type": "ValueError",
        "exception.message": "cannot reach kafka://***@broker",
    }
    assert run.attributes["error.type"] == "ValueError"


def test_step_that_is_tried_again_is_one_span_and_waiting_for_maintenance_ends_it(make, kept, observer):
    observer.begun(RunBegun(make().spec, "root", goes_on=True))
    for name, step in [("reading", 5), ("reading", 5), ("making way for maintenance", None), ("reading", 6)]:
        observer.phase(Phase("t", name, step))
    steps = named(kept.get_finished_spans(), "step")
    assert [(step.attributes["ebbtide.step"], step.status.description) for step in steps] == [
        (5, "the step was not finished")
    ]


def test_topic_is_named_by_the_conventions_of_messaging(make, kept, observer):
    spec = plain(source={"type": "kafka", "bootstrap_servers": "broker:9092", "topic": "orders"})
    observer.begun(RunBegun(spec, "root", goes_on=True))
    observer.phase(Phase("t", "reading", 1))
    observer.phase(Phase("t", "paused"))
    [step] = named(kept.get_finished_spans(), "step")
    assert (step.attributes["messaging.system"], step.attributes["messaging.destination.name"]) == ("kafka", "orders")


@pytest.fixture
def fresh_process(monkeypatch):
    """The state of a process that has set up no provider."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    spans._provider_of_process.cache_clear()
    yield
    spans._provider_of_process.cache_clear()


@pytest.mark.usefixtures("fresh_process")
def test_variables_alone_send_spans_by_otlp_below_the_span_that_started_the_run(make, shell):
    pipeline = make()
    pipeline.put(up(1, 1))
    with posts_kept() as posted:
        shell.export(
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{posted.port}",
            OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=shop",
            TRACEPARENT=f"00-{'-'.join(PARENT)}-01",
        )
        pipeline.run()
        sent_by_its_end = list(posted.bodies)
        spans._provider_of_process().shutdown()
    assert posted.bodies == sent_by_its_end, "a process may be replaced behind a run"
    assert {path for path, _ in posted.bodies} == {"/v1/traces"}
    sent = [ExportTraceServiceRequest.FromString(body) for _, body in posted.bodies]
    [resource] = {str(of.resource) for request in sent for of in request.resource_spans}
    assert '"service.name"' in resource
    assert 'string_value: "ebbtide"' in resource
    assert 'string_value: "shop"' in resource
    found = [
        span for request in sent for of in request.resource_spans for scope in of.scope_spans for span in scope.spans
    ]
    [run] = [span for span in found if span.name == "run"]
    assert (run.trace_id.hex(), run.parent_span_id.hex()) == PARENT
    assert "step" in {span.name for span in found if span.parent_span_id == run.span_id}


@pytest.mark.usefixtures("fresh_process")
@pytest.mark.parametrize("is_there", [True, False], ids=["never answers", "away"])
def test_run_does_not_wait_for_a_collector_and_says_once_that_spans_are_lost(
    make, monkeypatch, shell, caplog, is_there
):
    monkeypatch.setattr(spans, "_warned", set())
    monkeypatch.setattr(spans, "_flushing", [])
    set_limits(spans_sent_within_s=0.05)
    pipeline = make()
    pipeline.put(up(1, 1))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        if not is_there:
            silent.close()
        shell.export(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}")
        assert len(pipeline.run().steps) == 1
        pipeline.put(up(2, 1))
        assert len(pipeline.run().steps) == 1
    said = [record.getMessage() for record in caplog.records if "pans" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("Spans are lost: ")


@pytest.mark.usefixtures("fresh_process")
def test_provider_that_the_program_has_set_up_is_taken(kept, monkeypatch, shell, make):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    shell.export(OTEL_TRACES_EXPORTER="otlp")
    make().run()
    assert "run" in {span.name for span in kept.get_finished_spans()}


@pytest.mark.usefixtures("fresh_process")
@pytest.mark.parametrize(
    ("variables", "got"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin (zipkin)"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_TRACES_EXPORTER=otlp (otlp_proto_grpc)"),
    ],
)
def test_exporter_that_is_not_installed_is_named_with_those_that_are(shell, variables, got):
    shell.export(**variables)
    with pytest.raises(ConfigError) as refused:
        spans._provider_of_process()
    assert f"Got: {got}. Allowed: none, otlp, console, otlp_proto_http." in str(refused.value)
