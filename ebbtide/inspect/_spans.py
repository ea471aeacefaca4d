"""Spans of runs, steps and their phases, by OpenTelemetry. Needs `pip install 'ebbtide[otel]'`.

```
run                       from its beginning to its end
  opening the tables      phases outside of steps
  step                    of a bounded run; in a continuous run each step is a separate trace, with a link to the run
    reading               phases of steps
```

The names and attributes are listed in docs/how-to/observability.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points, version
from typing import Any

from ebbtide.environment import variable
from ebbtide.errors import ConfigError, MissingExtraError
from ebbtide.redaction import shown
from ebbtide.runtime import Observer, Phase, RunBegun, RunEnded, StepProgress
from ebbtide.spec import Pipeline

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.propagate import extract
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.trace import Link, Span, Status, StatusCode
except ModuleNotFoundError as missing:
    raise MissingExtraError.of_extra("otel", "OpenTelemetry") from missing

EXPORTERS = "opentelemetry_traces_exporter"
"""Group of the entry points of exporters, by the names that `OTEL_TRACES_EXPORTER` has."""
PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""Values of `OTEL_EXPORTER_OTLP_PROTOCOL` to these names."""
DEFAULT_PROTOCOL = "http/protobuf"
CALLER = ("traceparent", "tracestate")
"""Headers of the span above, by which the variables of the same names give it."""
SENT_WITHIN_S = 5.0
"""Seconds that the end of a run waits for its spans to be exported."""
_log = logging.getLogger(__name__)
UNFINISHED = "the step was not finished"
Attributes = Mapping[str, Any]


class Spans(Observer):
    """Makes the spans of one run.

    Args:
        provider: Takes them. Default: the process's, or else one by the variables `OTEL_*`.
    """

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._provider = provider
        self._tracer: trace.Tracer = trace.NoOpTracer()
        self._run: Span = trace.INVALID_SPAN
        self._step: Span | None = None
        self._number: int | None = None
        self._phase: Span | None = None
        self._goes_on = False
        self._shared: Attributes = {}

    def begun(self, run: RunBegun) -> None:
        """Begin the run's span: below the one that the variable `TRACEPARENT` names, if it does."""
        if self._provider is None:
            self._provider = _provider_of_process()
        release = version("ebbtide")
        self._tracer = self._provider.get_tracer("ebbtide", release)
        self._goes_on = run.goes_on
        source = _source_attributes(run.spec)
        self._shared = {"ebbtide.pipeline": run.spec.name, **source}
        caller = {name: variable(name.upper()) for name in CALLER}
        above = extract(caller)
        kind = "refresh" if run.is_fresh else "run"
        attributes = {**self._shared, "ebbtide.goes_on": run.goes_on}
        self._run = self._tracer.start_span(kind, context=above, attributes=attributes)

    def phase(self, phase: Phase) -> None:
        """End the phase before, and begin this one's span; the first of a step begins the step's."""
        self._end_phase()
        if phase.step is None:
            self._end_step(UNFINISHED)
        elif phase.step != self._number:
            self._end_step(UNFINISHED)
            self._begin_step(phase.step)
        above = trace.set_span_in_context(self._step or self._run)
        self._phase = self._tracer.start_span(phase.name, context=above, attributes=self._shared)

    def step(self, progress: StepProgress) -> None:
        """End the step's span with what it did."""
        self._end_phase()
        made = self._step or self._begin_step(progress.step)  # a step may have no phase
        made.set_attributes(_step_attributes(progress))
        self._end_step()

    def ended(self, end: RunEnded) -> None:
        """End all spans, with the error if the run failed, and export them."""
        self._end_phase()
        self._end_step(UNFINISHED)
        summary = end.summary
        for name, total in summary.totals.items():
            if total:
                self._run.set_attribute(f"ebbtide.{name}", total)
        self._run.set_attribute("ebbtide.engine", summary.engine)
        if end.error is not None:
            _set_error(self._run, end.error)
        self._run.end()
        if isinstance(self._provider, TracerProvider):
            _flush(self._provider)

    def _begin_step(self, number: int) -> Span:
        """Begin a step's span: a root in a continuous run, whose span is exported at its end."""
        above = trace.set_span_in_context(self._run)
        links = []
        if self._goes_on:
            above = Context()
            to_run = Link(self._run.get_span_context())
            links.append(to_run)
        attributes = {**self._shared, "ebbtide.step": number}
        begun = self._tracer.start_span("step", context=above, links=links, attributes=attributes)
        self._number = number
        self._step = begun
        return begun

    def _end_phase(self) -> None:
        if self._phase is not None:
            self._phase.end()
            self._phase = None

    def _end_step(self, unfinished: str = "") -> None:
        """End the span of the step under way, if there is one.

        Args:
            unfinished: Why it counts as failed; empty: it does not.
        """
        if self._step is None:
            return
        if unfinished:
            failed = Status(StatusCode.ERROR, unfinished)
            self._step.set_status(failed)
        self._step.end()
        self._step = None
        self._number = None


def _source_attributes(spec: Pipeline) -> dict[str, str]:
    """Return the attributes of a topic, by the semantic conventions of messaging."""
    source = spec.source
    if source.type != "kafka":
        return {}
    topic = source.topic or ""
    return {
        "messaging.system": "kafka",
        "messaging.destination.name": topic,
    }


def _step_attributes(progress: StepProgress) -> dict[str, Any]:
    """Return what a step did; counts of 0 are left out."""
    attributes: dict[str, Any] = {}
    for name, count in progress.counts.items():
        if count:
            attributes[f"ebbtide.{name}"] = count
    attributes["ebbtide.kind"] = progress.kind
    attributes["ebbtide.now_ms"] = progress.clock.now_ms
    if progress.batch_id is not None:
        attributes["ebbtide.batch_id"] = progress.batch_id
    if progress.clock.watermark_ms is not None:
        attributes["ebbtide.watermark_ms"] = progress.clock.watermark_ms
    if progress.recomputed:
        attributes["ebbtide.recomputed"] = progress.recomputed
    return attributes


def _set_error(span: Span, error: BaseException) -> None:
    """Mark a span as failed. No stack: its values are not masked."""
    kind = type(error).__qualname__
    message = shown(str(error))
    failed = Status(StatusCode.ERROR, message)
    span.set_status(failed)
    span.set_attribute("error.type", kind)
    exception = {"exception.type": kind, "exception.message": message}
    span.add_event("exception", exception)


_flushing: list[threading.Thread] = []
"""The thread that exports what is left at the end of a run, while it does."""


def _flush(provider: TracerProvider) -> None:
    """Export what is left of a run, and wait a while for it: a collector that is away or slow keeps no run from its end."""
    # OpenTelemetry's own flush has no bound: it exports on the caller's thread, and tries again for a minute.
    if any(thread.is_alive() for thread in _flushing):
        return
    thread = threading.Thread(target=provider.force_flush, daemon=True, name="opentelemetry")
    _flushing[:] = [thread]
    thread.start()
    thread.join(SENT_WITHIN_S)
    if thread.is_alive():
        _warn_once(f"not all was sent within {SENT_WITHIN_S:g} s")


_warned: set[str] = set()


def _warn_once(why: str) -> None:
    """Say once a process that spans are lost."""
    if not _warned:
        _warned.add(why)
        _log.warning("Spans are lost: %s", shown(why))


class _Exporting(SpanExporter):
    """Exports spans, and says once that it fails.

    Args:
        exporter: The exporter.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans; called by a thread of OpenTelemetry's."""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - of any transport; the run continues
            _warn_once(f"{type(error).__name__}: {error}")
            return SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            _warn_once("the collector does not take them")
        return result

    def shutdown(self) -> None:
        """End the exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what the exporter holds back."""
        return self._exporter.force_flush(timeout_millis)


@cache
def _provider_of_process() -> trace.TracerProvider:
    """Return the provider that the program has set up; else one that exports as the variables `OTEL_*` say.

    Raises:
        ConfigError: they name an exporter that is not installed.
    """
    found = trace.get_tracer_provider()
    if not isinstance(found, trace.ProxyTracerProvider):
        return found
    resource = Resource.create()
    service = str(resource.attributes[SERVICE_NAME])
    if service.startswith("unknown_service"):
        own_name = Resource({SERVICE_NAME: "ebbtide"})
        resource = resource.merge(own_name)
    # Each run exports at its end; at the end of the process a collector that does not answer would be waited for again.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    # Exporters log each try; that spans are lost is said once instead.
    for name in ("opentelemetry.exporter", "opentelemetry.sdk"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    listed = variable("OTEL_TRACES_EXPORTER", "otlp")
    for name in map(str.strip, listed.split(",")):
        if name != "none":
            processor = BatchSpanProcessor(_Exporting(_exporter(name)))
            provider.add_span_processor(processor)
    return provider


def _exporter(name: str) -> SpanExporter:
    """Make an exporter by its name in `OTEL_TRACES_EXPORTER`."""
    wanted = name
    if name == "otlp":
        general = variable("OTEL_EXPORTER_OTLP_PROTOCOL", DEFAULT_PROTOCOL)
        protocol = variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general)
        wanted = PROTOCOLS.get(protocol, protocol)
    points: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=EXPORTERS)}
    if wanted not in points:
        installed = ", ".join(sorted(points))
        raise ConfigError.of(
            "Spans cannot be exported.",
            got=f"OTEL_TRACES_EXPORTER={name} ({wanted})",
            allowed=f"none, otlp, {installed}",
            next_step="Install the exporter's package, or name another.",
        )
    make = points[wanted].load()
    exporter: SpanExporter = make()
    return exporter
