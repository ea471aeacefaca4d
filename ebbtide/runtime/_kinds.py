"""The kinds of sources, operators and sinks: the one place that knows all.

A new built-in kind is a module in its room, a spec model, and a line here; one of another package is found by an entry point
(`ebbtide.spec._extensions`). This module loads no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from ebbtide.durations import to_ms
from ebbtide.errors import ConfigError
from ebbtide.operators import ArrivalOperator, Materialization, Operator, SequenceOperator, StatefulOperator
from ebbtide.sources import Client, FileSource, KafkaSource, PositionedSource, Registry, Source, SourceSettings
from ebbtide.spec import KafkaSource as KafkaSpec
from ebbtide.spec import (
    MaterializedView,
    OtherSink,
    OtherSource,
    Pipeline,
    PositionedPart,
    StatefulPipeline,
    UpsertPipeline,
)
from ebbtide.spec import _parts as parts

if TYPE_CHECKING:
    from ebbtide.tables import Sink, SinkTable


Maker = TypeVar("Maker")


def file_source(spec: Pipeline) -> Source:
    """Make the source of a folder of files."""
    given = cast("parts.FileSource", spec.source)
    return FileSource(
        given.path,
        tuple(given.pattern),
        in_order=spec.applies_in_order,
        counts_repeats=spec.applies_in_order and not spec.has_positions,
        min_age_ms=to_ms(given.min_age),
        max_files_per_step=given.max_files_per_step,
        max_bytes_per_step=given.max_bytes_per_step,
    )


def positioned_source(spec: Pipeline) -> PositionedSource:
    """Make a source that is read by position."""
    return source_of(cast("PositionedPart", spec.source), spec.name, in_order=spec.applies_in_order)


def source_of(given: PositionedPart, pipeline: str, *, in_order: bool) -> PositionedSource:
    """Make a source that is read by position.

    Args:
        given: What the spec says of it.
        pipeline: The spec's name.
        in_order: Changes apply as they arrive.
    """
    start = given.start
    settings = SourceSettings(
        pipeline,
        start if isinstance(start, str) else start.timestamp or start.offsets or {},
        in_order,
        given.records_per_step,
        given.max_bytes_per_step,
    )
    make = of_kind(POSITIONED, given, "source")
    return make(given, settings)


def kafka_source(given: PositionedPart, settings: SourceSettings) -> PositionedSource:
    """Make the source of a Kafka topic."""
    given = cast("KafkaSpec", given)
    client = Client(given.bootstrap_servers, given.properties, f"ebbtide-{settings.pipeline}")
    registry = given.registry
    if registry is None:
        return KafkaSource(client, given.topic, settings)
    reached = Registry(registry.url, registry.username, registry.password, registry.ca_location)
    return KafkaSource(client, given.topic, settings, reached)


def other_source(given: PositionedPart, settings: SourceSettings) -> PositionedSource:
    """Make a source that another package brings along."""
    given = cast("OtherSource", given)
    make: Callable[..., PositionedSource] = given.kind
    return make(given.options, settings)


def upsert_operator(spec: Pipeline) -> Operator:
    """Make the reconciler of an upsert pipeline."""
    spec = cast("UpsertPipeline", spec)
    columns = spec.state_columns
    key = tuple(spec.state_key)
    if spec.sequence:
        output = spec.sink_table.columns if spec.selects_rows else None
        output_key = tuple(spec.state_key_of.items()) if spec.selects_rows else ()
        # Times of a column of the user's say nothing about the order of changes.
        allowed_delay_ms = to_ms(spec.allowed_delay) if spec.event_time is None else None
        return SequenceOperator(columns, key, spec.sequence, spec.ttl, output, output_key, allowed_delay_ms)
    given = spec.materializer
    materialization = Materialization(
        upsert_key=tuple(given.upsert_key),
        on_expire=given.on_expire,
        retraction_grace_ms=to_ms(given.retraction_grace),
        max_history=given.max_history,
        emission=given.emission,
        keep=given.keep,
    )
    return ArrivalOperator(columns, key, spec.ttl, materialization)


def stateful_operator(spec: Pipeline) -> Operator:
    """Make what runs a stateful pipeline's function."""
    spec = cast("StatefulPipeline", spec)
    return StatefulOperator(
        columns=spec.table.columns,
        key=tuple(spec.key),
        output=spec.sink_table.columns,
        sink_key=tuple(spec.sink_key),
        function=partial(spec.function_class, **spec.options),
        states=spec.states,
        shows_values=not spec.personal,
    )


def view_operator(spec: Pipeline) -> Operator:
    """Create the operator that applies the differences computed by a view's steps."""
    spec = cast("MaterializedView", spec)
    return SequenceOperator(spec.table.columns, tuple(spec.key), spec.sequence, spec.ttl)


def delta_sink(spec: Pipeline, location: str) -> Sink:
    """Make the sink of a Delta table."""
    given = cast("parts.DeltaSink", spec.sink)
    make = _class_of(given)
    return make(
        path=location,
        columns=spec.sink_table.columns,
        key=tuple(spec.sink_key),
        sequence=spec.sequence,
        deletes_by="vectors" if given.write == "vectors" else "rewrite",
        with_images=given.change_feed == "images",
        properties=given.table_properties,
        sequence_columns=spec.table.columns if spec.selects_rows else None,
        personal=spec.personal,
    )


def _class_of(given: parts.DeltaSink) -> type[SinkTable]:
    """Return the class of a Delta sink: who makes and who writes the table."""
    if not given.is_spark_s:
        from ebbtide.tables import SinkTable

        return SinkTable
    from ebbtide.tables import SparkMadeSink  # loads PySpark

    return SparkMadeSink.written_by(given.write)


def other_sink(spec: Pipeline, location: str) -> Sink:
    """Make a sink that another package brings along."""
    given = cast("OtherSink", spec.sink)
    make: Callable[..., Sink] = given.kind
    return make(given.options, location, spec.sink_table.columns, tuple(spec.sink_key))


SOURCES: dict[type, Callable[[Pipeline], Source]] = {
    parts.FileSource: file_source,
    PositionedPart: positioned_source,
}
POSITIONED: dict[type, Callable[[PositionedPart, SourceSettings], PositionedSource]] = {
    KafkaSpec: kafka_source,
    OtherSource: other_source,
}
OPERATORS: dict[type, Callable[[Pipeline], Operator]] = {
    UpsertPipeline: upsert_operator,
    StatefulPipeline: stateful_operator,
    MaterializedView: view_operator,
}
SINKS: dict[type, Callable[[Pipeline, str], Sink]] = {
    parts.DeltaSink: delta_sink,
    OtherSink: other_sink,
}
"""The kinds of parts: a spec's model to what makes the part. A model that derives from one of these is of its kind."""


def of_kind(kinds: Mapping[type, Maker], part: object, what: str) -> Maker:
    """Return what makes a part, by the part's model or the nearest that it derives from."""
    for model in type(part).__mro__:
        if model in kinds:
            return kinds[model]
    known = [model.__name__ for model in kinds]
    raise ConfigError.of(
        f"There is no {what} of this kind.",
        got=type(part).__name__,
        allowed=", ".join(known),
        next_step="Register it in ebbtide.runtime._kinds (docs/how-to/extending.md).",
    )
