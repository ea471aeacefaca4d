"""Doors for programs that have a DataFrame or a stream of Spark: its rows become a pipeline's next step.

```python
query = joined.writeStream.foreachBatch(ebbtide.spark.into(spec, root)).option("checkpointLocation", place).start()
```

The spec has `source: {type: spark}`. Each row is a record of the spec's format: with `format: {type: plain, row: null}` it has the column `kind`
(`+I`, `-U`, `+U`, `-D`) and those of the schema. Tasks of the query decode and stage the rows. A micro-batch is applied exactly once: its query and its number
are stored with the step's decision. All else, from checks to rewinds, is as for any pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ebbtide.errors import ConfigError
from ebbtide.runtime import Plan, RunSummary, run
from ebbtide.sessions import OnSpark
from ebbtide.sources import HandedRows, Span

if TYPE_CHECKING:
    import threading

    from pyspark.sql import DataFrame

    from ebbtide.spec import Pipeline

QUERY_ID = "sql.streaming.queryId"
"""Property of the thread of a query of Spark."""
BY_CALL = "ebbtide.spark.upsert"
"""Stands for the query of DataFrames that are handed over one by one."""


def into(spec: Pipeline, root: str, *, new_query: bool = False) -> Callable[[DataFrame, int], None]:
    """Return the function for `foreachBatch` of a stream: it applies each micro-batch as a step of a pipeline.

    Args:
        spec: The pipeline, with `source: {type: spark}`.
        root: Folder of all pipelines' tables.
        new_query: The first micro-batch may be of another query than before, one with a new checkpoint. Its rows may repeat earlier ones: for an order
            by sequence that changes nothing.

    Raises:
        ConfigError: the spec has another source; when called: the micro-batch is of no query.
        SourceLostError: when called: the query is another one than before, or a micro-batch was left out.
    """
    _refuse_other_source(spec)
    is_new = new_query

    def apply(rows: DataFrame, batch: int) -> None:
        nonlocal is_new
        query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if query is None:
            raise ConfigError.of(
                f"The rows for '{spec.name}' are of no query.",
                got="a call outside of a stream",
                allowed="writeStream.foreachBatch(ebbtide.spark.into(spec, root))",
                next_step="Hand a DataFrame over with ebbtide.spark.upsert(rows, spec, root).",
            )
        _apply(spec, root, HandedRows(rows, query, batch, is_new_query=is_new))
        is_new = False

    return apply


def upsert(rows: DataFrame, spec: Pipeline, root: str, *, batch: int | None = None) -> RunSummary:
    """Apply the rows of a DataFrame as a step of a pipeline.

    Args:
        rows: The rows; not a stream.
        spec: The pipeline, with `source: {type: spark}`.
        root: Folder of all pipelines' tables.
        batch: Number of the rows, from 0, each one more than the last: rows whose number was applied before are not applied again, as after a failure of the
            caller. Default: the next one, so that a call is always applied.

    Raises:
        ConfigError: the spec has another source, or the rows are a stream.
        SourceLostError: a number was left out, or a stream has handed over rows before.
    """
    _refuse_other_source(spec)
    if rows.isStreaming:
        raise ConfigError.of(
            f"The rows for '{spec.name}' are a stream.",
            got="a streaming DataFrame",
            allowed="a DataFrame that ends",
            next_step="Use writeStream.foreachBatch(ebbtide.spark.into(spec, root)).",
        )
    number = _next_batch(spec, root) if batch is None else batch
    return _apply(spec, root, HandedRows(rows, BY_CALL, number))


def _apply(spec: Pipeline, root: str, rows: HandedRows) -> RunSummary:
    handed = spec.handed(rows).model_copy(update={"run": "bounded"})  # the query goes on, with a run a micro-batch
    executor = InQuery(rows.frame.sparkSession)
    if spec.has_transform:
        rows.frame.persist()  # a transform reads records a second time, which must be the same ones
    try:
        summary = run(executor, handed, root)
        if not any(step.kind == "batch" for step in summary.steps):
            # Applied before: but the query's own state, as of a join, advances only by rows that are computed.
            rows.frame.write.format("noop").mode("overwrite").save()
        return summary
    finally:
        if spec.has_transform:
            rows.frame.unpersist()


def _next_batch(spec: Pipeline, root: str) -> int:
    last = Plan.under(root, spec).state.last()
    read = None if last is None else Span.from_stored(last[1].source.position)
    return 0 if read is None else max(read.end.values())


def _refuse_other_source(spec: Pipeline) -> None:
    if not spec.reads_stream_of_spark or spec.stream_function:
        raise ConfigError.of(
            f"'{spec.name}' reads its rows by itself.",
            got=f"source.type: {spec.source.type}" + (", with a function" if spec.stream_function else ""),
            allowed="spark, without a function",
            next_step="Set source to {type: spark}; or let 'ebbtide run' run the pipeline.",
        )


class InQuery(OnSpark):
    """Runs work in Spark's jobs from within a micro-batch of the user's query: it starts no query for the run's batches."""

    def drive(self, name: str, batches: Iterable[int], stop: threading.Event) -> None:
        """Make the batches here; see `Executor`."""
        for _ in batches:
            pass
