"""Runs a pipeline: a bounded stream of steps and a tick, under the lease. Plain functions, at home in any process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from ebbtide.errors import CheckpointMismatchError, EbbtideError, SpecChangedError
from ebbtide.model.durations import to_ms
from ebbtide.sources.files import list_source, refuse_late
from ebbtide.streaming.lease import Lease
from ebbtide.streaming.progress import OnProgress, RunSummary, StepProgress
from ebbtide.streaming.spec import Pipeline
from ebbtide.streaming.step import Stepper
from ebbtide.streaming.tables import Tables

Clock = Callable[[], int]


def ignore(step: StepProgress) -> None:
    """Report to nobody."""


def system_clock() -> int:
    """Return the wall clock, epoch ms."""
    return time.time_ns() // 1_000_000


def run(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    *,
    on_progress: OnProgress = ignore,
    stop: threading.Event | None = None,
    clock: Clock = system_clock,
) -> RunSummary:
    """Read all that is there, bring the sink up to date, expire what is due, and end.

    Args:
        spark: A session with Delta; `ebbtide.streaming.session.build_session` makes one.
        spec: The pipeline.
        root: Folder of all pipelines' tables; this one's are in `root/name`.
        on_progress: Called after each step.
        stop: Set it to end the run after the step under way.
        clock: Tells the time of the closing tick, epoch ms.

    Raises:
        EbbtideError: see `ebbtide.errors`; the step under way has then left nothing, or is finished by the next run.
    """
    return _under_lease(spark, spec, root, on_progress, stop or threading.Event(), clock, fresh=False)


def refresh(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    *,
    on_progress: OnProgress = ignore,
    stop: threading.Event | None = None,
    clock: Clock = system_clock,
) -> RunSummary:
    """Forget state, sink rows, quarantine and checkpoint, and rebuild them from the source as the spec now is.

    The tables' history stays. Arguments and errors are those of `run`.
    """
    return _under_lease(spark, spec, root, on_progress, stop or threading.Event(), clock, fresh=True)


def _under_lease(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    on_progress: OnProgress,
    stop: threading.Event,
    clock: Clock,
    *,
    fresh: bool,
) -> RunSummary:
    tables = Tables.under(root, spec)
    summary = RunSummary(spec.name, tables.root)

    def report(progress: StepProgress | None) -> None:
        if progress is not None:
            summary.steps.append(progress)
            on_progress(progress)

    list_source(spec.source.path)  # a wrong path is refused before anything is made
    with Lease(spark, tables.at("ledger"), spec.name, to_ms(spec.lease_ttl) / 1000) as lease:
        tables.state.create(spark)
        tables.sink.create(spark)
        if spec.emits_every:
            tables.changelog.create(spark)
        stepper = Stepper(tables, lease)
        if fresh:
            stepper.reset(spark, lease.renew_incarnation(), clock())
        _refuse_misfits(spark, tables, stepper)
        stepper.redo(spark)
        _stream(spark, spec, stepper, report, stop)
        if not stop.is_set():
            report(stepper.tick(spark, clock()))
    return summary


def _refuse_misfits(spark: SparkSession, tables: Tables, stepper: Stepper) -> None:
    """Refuse a spec, a checkpoint or a source that does not belong to the stored state."""
    last, checkpoint = stepper.last, tables.checkpoint
    if last is None:
        if checkpoint.last_committed() is not None:
            raise CheckpointMismatchError.of(
                f"The checkpoint '{checkpoint.path}' has committed batches, but the state at '{tables.state.path}' has no steps.",
                next_step="Restore the state table, or run 'ebbtide refresh' to rebuild both.",
            )
        return
    refuse_changed_spec(tables, stepper)
    if last.batch_id is None:
        return
    if checkpoint.query_id != last.query_id:
        got = "none" if checkpoint.query_id is None else f"another one ({checkpoint.query_id})"
        raise CheckpointMismatchError.of(
            f"The state at '{tables.state.path}' stands at step {last.step}, but its checkpoint is gone.",
            got=got,
            allowed=f"the checkpoint with id {last.query_id} at '{checkpoint.path}'",
            next_step="Restore it, or run 'ebbtide refresh' to rebuild the sink from the source.",
        )
    read = tables.state.files(spark, stepper.version)
    newest = max(read, default="")
    refuse_late([n for n in list_source(tables.spec.source.path) if n <= newest], read, newest, tables.spec.source.path)


def refuse_changed_spec(tables: Tables, stepper: Stepper) -> None:
    """Refuse a spec that does not fit the stored state.

    Raises:
        SpecChangedError: key, order, columns, or whether there is a ttl, are not those of the last step.
    """
    now = tables.spec.identity
    stored = stepper.last.spec if stepper.last else now
    changed = tables.spec.misfits(stored)
    if changed:
        raise SpecChangedError.of(
            f"The spec of '{tables.spec.name}' no longer fits its stored state.",
            got="; ".join(f"{name}: {now[name]}" for name in changed),
            allowed="; ".join(f"{name}: {stored.get(name)}" for name in changed),
            next_step="Change it back, or run 'ebbtide migrate' to see what it would do to the stored state."
            if set(changed) <= tables.spec.migrates
            else "Change it back, or run 'ebbtide refresh' to rebuild the sink from the source.",
        )


def _stream(
    spark: SparkSession,
    spec: Pipeline,
    stepper: Stepper,
    report: Callable[[StepProgress | None], None],
    stop: threading.Event,
) -> None:
    """Drive Spark's micro-batches until the source is read up or `stop` is set.

    Another thread waits for the query, so that an interrupt of this one never cuts a call into the JVM in two.
    """
    failure: list[BaseException] = []
    idle = threading.Event()
    idle.set()

    def step(frame: DataFrame, batch_id: int) -> None:
        if stop.is_set():
            raise InterruptedError("stopped between steps")
        report(stepper.batch(frame, batch_id))

    def on_batch(frame: DataFrame, batch_id: int) -> None:
        idle.clear()  # before `stop` is looked at: whoever sees it set and us idle knows that no step will begin
        try:
            step(frame, batch_id)
        except BaseException as error:
            failure.append(error)
            raise
        finally:
            idle.set()

    options: dict[str, str | int] = {
        "path": spec.source.path,
        "maxFiles": spec.source.max_files_per_step,
        "tasks": spark.sparkContext.defaultParallelism,
    }
    source = spark.readStream.format("ebbtide_files").options(**options)
    writer = (
        source.load().writeStream.foreachBatch(on_batch).option("checkpointLocation", stepper.tables.checkpoint.path)
    )
    query = writer.queryName(spec.name).trigger(availableNow=True).start()
    done = threading.Event()

    def wait() -> None:
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - raised again below, on the thread that waits
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=wait, daemon=True, name=f"query-{spec.name}").start()
    while not done.wait(0.1):
        if stop.is_set() and idle.is_set():
            query.stop()
    if failure and not (stop.is_set() and isinstance(failure[0], InterruptedError)):
        raise EbbtideError.within(failure[0]) or failure[0]
