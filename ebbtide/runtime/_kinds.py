"""The kinds of sources, operators and sinks: the one place that knows all.

A new built-in kind is a module in its room, a spec model, and a line here; one of another package is found by an entry point
(`ebbtide.spec._extensions`). This module loads no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from ebbtide import operators  # a kind of operators is loaded when it is first made
from ebbtide.durations import to_ms
from ebbtide.errors import ConfigError
from ebbtide.spec import DeltaSink, Pipeline

if TYPE_CHECKING:
    from ebbtide.operators import Operator
    from ebbtide.spec import MaterializedView, StatefulPipeline, UpsertPipeline
    from ebbtide.tables import Sink


Maker = TypeVar("Maker")


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
        return operators.SequenceOperator(columns, key, spec.sequence, spec.ttl, output, output_key, allowed_delay_ms)
    given = spec.materializer
    materialization = operators.Materialization(
        upsert_key=tuple(given.upsert_key),
        on_expire=given.on_expire,
        retraction_grace_ms=to_ms(given.retraction_grace),
        max_history=given.max_history,
        emission=given.emission,
        keep=given.keep,
    )
    return operators.ArrivalOperator(columns, key, spec.ttl, materialization)


def stateful_operator(spec: Pipeline) -> Operator:
    """Make what runs a stateful pipeline's function."""
    spec = cast("StatefulPipeline", spec)
    return operators.StatefulOperator(
        columns=spec.table.columns,
        key=tuple(spec.key),
        output=spec.sink_table.columns,
        sink_key=tuple(spec.sink_key),
        function=partial(spec.function_class, **spec.options),
        states=spec.states,
        shows_values=not spec.personal,
        hands_over=spec.function_class.handles_expiry(),
        transformed=spec.function_class.transformed(),
    )


def view_operator(spec: Pipeline) -> Operator:
    """Create the operator that applies the differences computed by a view's steps."""
    spec = cast("MaterializedView", spec)
    return operators.SequenceOperator(spec.table.columns, tuple(spec.key), spec.sequence, spec.ttl)


def sink_of(spec: Pipeline, location: str) -> Sink:
    """Make a pipeline's sink.

    Args:
        location: The sink's folder.
    """
    given = spec.sink
    if not isinstance(given, DeltaSink):
        return given.opened(location, spec.sink_table.columns, spec.sink_key)
    from ebbtide.tables import SinkTable

    return SinkTable(
        path=location,
        columns=spec.sink_table.columns,
        key=tuple(spec.sink_key),
        sequence=spec.sequence,
        deletes_by=given.write,
        with_images=given.change_feed == "images",
        properties=given.table_properties,
        sequence_columns=spec.table.columns if spec.selects_rows else None,
        personal=spec.personal,
    )


OPERATORS: dict[str, Callable[[Pipeline], Operator]] = {
    "UpsertPipeline": upsert_operator,
    "StatefulPipeline": stateful_operator,
    "MaterializedView": view_operator,
}
"""The kinds of pipelines: the name of a spec's model to what makes its operator. A model that derives from one of these is of its kind."""


def of_kind(kinds: Mapping[str, Maker], part: object, what: str) -> Maker:
    """Return what makes a part, by the name of the part's model or of the nearest that it derives from."""
    for model in type(part).__mro__:
        if model.__name__ in kinds:
            return kinds[model.__name__]
    known = list(kinds)
    raise ConfigError.of(
        f"There is no {what} of this kind.",
        got=type(part).__name__,
        allowed=", ".join(known),
        next_step="Register it in ebbtide.runtime._kinds (docs/how-to/extending.md).",
    )
