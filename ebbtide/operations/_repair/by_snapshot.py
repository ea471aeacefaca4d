"""Repair by a snapshot: rows that the source's newest snapshot did not show are deleted.

After a lost replication slot, or lost offsets, a connector takes a second snapshot into the same topic. The deletes between
the two are in no log, so their rows stay in the sink. These are the rows below the snapshot's position, since each row of the
snapshot is at that position or above. So the repair acts like a TRUNCATE at this position: it raises the floor, in one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ebbtide.amounts import amount
from ebbtide.changelog import SequenceColumns, rank_sequences
from ebbtide.columns import columns_named
from ebbtide.delta import Snapshot
from ebbtide.errors import ConfigError, RepairError
from ebbtide.ledger import Cause
from ebbtide.model import BatchSummary, WholeSnapshot
from ebbtide.operations._operation import Report
from ebbtide.operations._stepping import stepping
from ebbtide.runtime import Plan, Staged, Stepper
from ebbtide.spec import DeltaSink, Pipeline

if TYPE_CHECKING:
    from ebbtide.executors import Executor


def plan(spec: Pipeline, root: str) -> Report:
    """Count the rows that a repair would delete. Changes nothing, and needs no Spark.

    Args:
        root: Folder of all pipelines' tables.

    Raises:
        ConfigError: the pipeline is not ordered by a log, or has no Delta sink.
        RepairError: no snapshot is known, or the newest one has not ended.
    """
    tables = Plan.under(root, spec)
    commit = tables.state.last()
    snapshot = _ended(tables, None if commit is None else commit[1].frontier.snapshot)
    n_rows = _rows_below(tables, snapshot)
    lines = [f"{amount(n_rows, 'row')} that the newest snapshot of the source did not show."]
    next_step = "To delete them: 'ebbtide repair --by-snapshot --apply'." if n_rows else ""
    return Report(spec.name, lines, {"rows": n_rows}, next_step=next_step)


def repair(executor: Executor, spec: Pipeline, root: str, clock_ms: int) -> Report:
    """Delete these rows, in one step; arguments and errors as `plan`.

    Args:
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms.

    Raises:
        LeaseHeldError: the pipeline is being run.
        SpecChangedError: the spec no longer fits the stored state.
    """
    tables = Plan.under(root, spec)
    with stepping(executor, tables, clock_ms) as stepper:
        stepper.diagnosis.refuse("spec")
        stepper.publish(executor)
        last = stepper.last.frontier
        snapshot = _ended(tables, None if last is None else last.snapshot)
        n_rows = _rows_below(tables, snapshot)
        if not n_rows:
            return Report(
                spec.name, ["The newest snapshot of the source showed all rows; nothing to delete."], {"rows": 0}
            )
        _raise_floor(executor, stepper, snapshot, clock_ms)
        deleted = f"{amount(n_rows, 'row')} deleted that the newest snapshot of the source did not show, in step {stepper.number}."
        return Report(spec.name, [deleted], {"rows": n_rows}, step=stepper.number)


def _raise_floor(executor: Executor, stepper: Stepper, snapshot: WholeSnapshot, clock_ms: int) -> None:
    batch = BatchSummary(truncate=snapshot.lowest)
    cause = Cause(what="repair", why="rows that the newest snapshot of the source did not show")
    facts = stepper.facts(cause, stepper.next_clock(clock_ms), batch)
    stepper.apply(executor, Staged((), batch), facts)
    stepper.publish(executor)
    stepper.fold(executor)


def _ended(tables: Plan, snapshot: WholeSnapshot | None) -> WholeSnapshot:
    """Return the newest snapshot; refuse a pipeline without one that has ended."""
    spec = tables.spec
    if not isinstance(spec.sink, DeltaSink):
        raise ConfigError.of(
            f"'{spec.name}' cannot be repaired by a snapshot.",
            got=f"a sink of type '{spec.sink.type}'",
            allowed="a Delta sink",
            next_step="Take the snapshot into an empty topic or folder, and run 'ebbtide refresh'.",
        )
    if snapshot is None or not snapshot.has_ended:
        raise RepairError.of(
            f"'{spec.name}' cannot be repaired by a snapshot.",
            got="no snapshot of the whole table" if snapshot is None else "a snapshot whose last row has not come",
            allowed="order.sequence by the database's log, and a snapshot whose rows source.snapshot marks, up to the last of the table",
            next_step="Run 'ebbtide run' once the connector has ended its snapshot. Without these marks: 'ebbtide refresh'.",
        )
    return snapshot


def _rows_below(tables: Plan, snapshot: WholeSnapshot) -> int:
    """Count the sink's rows below a snapshot; a file of it at a time."""
    return sum(_below(sequences, snapshot.lowest) for sequences in _sequences(tables))


def _sequences(tables: Plan) -> Iterator[pa.Array]:
    sink = Snapshot.read(tables.sink.path)
    if sink is None:
        return
    columns = columns_named(tables.delta_sink.schema, ["_sequence"])
    for file in sink.files.values():
        rows = file.read(tables.sink.path, columns)
        yield rows["_sequence"].combine_chunks()


def _below(stored: pa.StructArray, position: tuple[int, ...]) -> int:
    sequences = SequenceColumns.without_op(stored)
    names = [field.name for field in sequences.type]
    limit = pa.array([dict(zip(names, position, strict=True))], sequences.type)
    [ranks, [least]], _ = rank_sequences([sequences, limit])
    return int((ranks < least).sum())
