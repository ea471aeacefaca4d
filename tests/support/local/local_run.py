"""Runs, maintenance and all, without a JVM, at times that do not depend on when a test runs."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from frame.limits import set_limits
from operating import act, replay

import ebbtide
from ebbtide.delta import DataFile, Definition, Log, Snapshot, Writer, write_files
from ebbtide.ledger import Head
from ebbtide.operations import Context, maintain
from ebbtide.operations._repair.state import restore_state
from ebbtide.operations._stepping import stepping
from ebbtide.runtime import Plan
from ebbtide.runtime import _driver as driver
from ebbtide.runtime._following import Following
from ebbtide.spec import Pipeline
from ebbtide.tables import Selection

HOUR = 3_600_000
START = 1_000 * HOUR
BATCH_MS = 1_000
"""From one batch to the next: the clock is the same however often a run begins."""
SPARK = ebbtide.InProcess(lambda batch_id: START + batch_id * BATCH_MS)
"""Runs work here; the clock is the batch's."""


def time_text(time_ms: int) -> str:
    """A time as a user gives it to an operation."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


def vacuum(spec: Pipeline, root: str) -> Any:
    """Vacuum tables of which all files, and all commits that a checkpoint covers, are old enough to go."""
    for commit in Path(root).glob("*/*/_delta_log/*.json"):
        os.utime(commit, (0, 0))
    set_limits(retention="interval 0 hours")
    return maintain(SPARK, spec, root, "vacuum")


class StreamError(Exception):
    """Stands for what Spark raises where it cannot write its checkpoint."""


PARTITIONED = {"partitioned": ("v",)}
"""Pipelines whose sink others partition before the first run: name to the columns."""
ADOPTED = [{"id": 100 + number, "v": f"old{number}", "n": -1} for number in range(5)]
"""Rows of the table of others: keys that no change is of."""


def make_partitioned(path: str, definition: Definition, *columns: str) -> None:
    """Make a table without rows that others have partitioned."""
    actions = definition.actions(table_id=str(uuid.uuid4()), name="theirs", partitioned=columns)
    Writer().commit_version(path, 0, actions, {"operation": "CREATE TABLE"})


def make_table(path: str, columns: pa.Schema, partitioned: Sequence[str] = ()) -> None:
    """Make a table as others have it: the user's columns alone."""
    make_partitioned(path, Definition(columns), *partitioned)
    rows = pa.Table.from_pylist(ADOPTED, columns)
    empty = Snapshot.read(path)
    assert empty is not None
    adds = write_files(path, rows, (), data_change=True, partitioned=partitioned)
    Writer().commit(empty, adds, {"operation": "WRITE"})


def change_state(plan: Plan) -> None:
    """Delete a data file's rows of the state, as others do."""
    state = plan.state.snapshot()
    first, *_ = state.files.values()
    Writer().commit(state, [first.removed(0, data_change=True)], {"operation": "DELETE"})


def spoil(path: str) -> None:
    """Take a data file out of a table, as somebody else does who deletes its rows."""
    found = Snapshot.read(path)
    assert found is not None
    [file, *_] = found.files.values()
    Writer().commit(found, DataFile.replacing([file], []), {"operation": "DELETE"})


def perform(work: str, spec: Pipeline, root: str, clock_ms: int, given: dict[str, Any]) -> Any:
    """Do what a user asks for, by name.

    Args:
        work: `run`, `refresh`, `cleanup`, `compaction`, `merge` (a bounded one), `vacuum`, `migrate`, `alter` (a migration of columns), `replay`, `drop`, `rewind` (to
            step 1), `table` (one of others in the sink's place), `adopt`, `change` (what others do to the state), `undo` (a rewind to
            the last step, which brings it back), `restore` (what a repair does about it), `repair`, `clock` (set back by half an hour), `spoil`
            (others delete rows of the sink), `backfill`, `swap`, `erase` (the `keys` given), `savepoint` and `start` (with `to`).
        spec: The pipeline as it is for this.
        root: Folder of the tables.
        clock_ms: The time.
        given: Of `run` and `refresh` perhaps `accept_loss`; `follows`: a run goes on for ever; of `replay` the `mended` lines, the oldest
            record's first; `width`: small files of a class that are folded, 2 if it is not given: tables are folded after each step.
    """
    set_limits(width=given.get("width", 2))
    plan = Plan.under(root, spec)
    is_new = not Log(plan.sink.path).versions() and plan.state.last() is None
    if spec.name in PARTITIONED and is_new and work != "table":
        definition = Definition(plan.delta_sink.stored_schema, plan.delta_sink.stored_properties)
        make_partitioned(plan.sink.path, definition, *PARTITIONED[spec.name])
    if "checkpoints" in given:
        set_limits(checkpoint_interval=given["checkpoints"])
    if work in ("run", "refresh"):
        begin = getattr(driver, work)
        options: dict[str, Any] = {"accept_loss": given.get("accept_loss", False)}
        if given.get("follows"):
            options["follow"] = Following(interval_ms=1)
        return begin(SPARK, spec, root, clock=lambda: clock_ms, **options)
    context = Context(spec, root, SPARK, clock=lambda: clock_ms)
    ask = partial(act, action="apply", context=context)
    if work in ("migrate", "alter"):
        return ask("migrate")
    if work == "rewind":
        return ask("rewind", to_step=1)
    if work == "undo":
        _, last = Plan.under(root, spec).state.last()
        return ask("rewind", to_step=last.step)
    if work == "change":
        return change_state(Plan.under(root, spec))
    if work == "repair":
        return ask("repair")
    if work == "restore":
        with stepping(SPARK, Plan.under(root, spec), parts=("state",)) as stepper:
            return restore_state(stepper)
    if work == "clock":
        return ask("clock", to=time_text(clock_ms - HOUR // 2), reason="it was ahead")
    if work == "table":
        return make_table(plan.sink.path, spec.sink_table.columns, PARTITIONED.get(spec.name, ()))
    if work == "adopt":
        set_limits(rows_per_step=2)
        return ask("adopt")
    if work == "backfill":
        return ask("backfill.start")
    if work == "spoil":
        return spoil(Plan.under(root, spec).sink.path)
    if work == "swap":
        return ask("backfill.swap", action="apply" if given.get("applies", True) else "plan")
    if work == "erase":
        keys = Path(root, "keys.jsonl")
        keys.write_text("".join(json.dumps({"id": id_}) + "\n" for id_ in given["keys"]))
        return ask("erase", keys=str(keys))
    if work == "merge":
        set_limits(rewriting_rows_in_part=4)  # several ranges, of which some are left
        return ask("compact", max_files=2)
    if work == "vacuum":
        return vacuum(spec, root)
    if work in ("savepoint", "start"):
        return act("savepoint", "apply" if work == "savepoint" else "start", context, to=given["to"])
    if work == "drop":
        return ask("quarantine.drop", steps=[1], note="given up")
    if work == "replay":
        records = Plan.under(root, spec).quarantine.records(Selection()).to_pylist()
        origins = [tuple(record["origin"].values()) for record in records]
        return replay("apply", context, dict(zip(origins, given["mended"], strict=False)), accept_late=True)
    return maintain(SPARK, spec, root, work, clock=lambda: clock_ms)


def die_behind_a_decision(session: Any, root: Any, spec: Pipeline) -> None:
    """Run until a step is decided, and end before any table beside the state has it."""
    last = Plan.under(str(root), spec).state.last()
    before = 0 if last is None else last[1].step

    def killed(_spark: Any, _plan: Any, head: Head, *_: Any) -> dict[str, int]:
        if head.facts.step > before:
            raise InterruptedError
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ebbtide.runtime._step.publish", killed)
        with pytest.raises(InterruptedError):
            driver.run(session, spec, str(root), clock=lambda: START + HOUR)
