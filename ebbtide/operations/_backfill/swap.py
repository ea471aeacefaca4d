"""Swap: a backfill is compared with its pipeline, and replaces the pipeline's tables.

The pipeline's lease is held, and the backfill reads the rest up to the pipeline's position or beyond. Then one step takes its tables:

| table | takes |
|---|---|
| state | the backfill's data files, copied |
| sink | the rows that differ, in one commit: readers see the old rows before it and the new ones after it, the change feed what differs |
| changelog, quarantine | all rows of the backfill's |

All of it follows from versions of the backfill's tables that the step names, so that it is done again alike after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ebbtide.amounts import amount
from ebbtide.delta import Action, DataFile, Log, Snapshot
from ebbtide.errors import BackfillError
from ebbtide.ledger import NoStep, StepFacts
from ebbtide.model import Decision, Replace
from ebbtide.operations._backfill.asked import (
    asked_of,
    beside_of,
    is_swapped,
    refuse_other_columns,
    refuse_other_log,
    refuse_unfit,
)
from ebbtide.operations._operation import Report
from ebbtide.operations._places import BY_VACUUM, Place, of_folder, of_table, with_places
from ebbtide.operations._stepping import executor_of_runs, stepping
from ebbtide.runtime import Plan, SinkDifference, Stepper, run, system_clock
from ebbtide.spec import Pipeline

if TYPE_CHECKING:
    from ebbtide.executors import Executor

SAMPLE = 20
"""Maximum number of keys that a comparison shows."""


def _report(
    pipeline: str,
    records: int,
    changes: Mapping[str, int],
    keys: Sequence[dict[str, Any]] = (),
    step: int | None = None,
) -> Report:
    """Make the report of a swap, planned or done.

    Args:
        pipeline: Name of the pipeline.
        records: Records that the backfill has read.
        changes: How many rows are `added`, `changed` and `deleted`.
        keys: Some of their keys; none if a column of the key is personal.
        step: The step that did it; None for a plan.
    """
    counts = {"records": records, "added": 0, "changed": 0, "deleted": 0, **changes}
    read = amount(records, "record")
    added = amount(counts["added"], "row")
    changed = f"{counts['changed']:,} changed"
    deleted = f"{counts['deleted']:,} deleted"
    lines = [f"backfill of {read}: {added} added, {changed}, {deleted}."]
    for key in keys:
        values = [f"{name}: {value}" for name, value in key.items()]
        named = ", ".join(values)
        lines.append(f"  {named}")
    next_step = "To do it: 'ebbtide backfill swap --apply'."
    if step is not None:
        lines.append(f"Done in step {step}.")
        next_step = ""
    return Report(pipeline, lines, counts, {"keys": list(keys)}, step, next_step)


def swap_in(
    executor: Executor,
    spec: Pipeline,
    root: str,
    *,
    applies: bool,
    clock: Callable[[], int] = system_clock,
) -> Report:
    """Compare a backfill with the pipeline at the same position of the source; swap it in if requested.

    A continuous run yields the lease meanwhile.

    Args:
        root: Folder of all pipelines' tables.
        applies: Swap it in; otherwise only compare.
        clock: Returns the time, epoch ms.

    Raises:
        BackfillError: there is no backfill, or it has not read all that the pipeline has.
        LeaseHeldError: the pipeline is being run, or the backfill is.
    """
    tables = Plan.under(root, spec)
    with stepping(executor, tables) as stepper:
        last = stepper.last
        asked = asked_of(tables)
        if not isinstance(last, NoStep) and is_swapped(tables, last, asked):
            stepper.publish(executor)
            n_records = last.frontier.total_records or 0
            return _report(spec.name, n_records, {}, step=last.step)
        if asked is None:
            raise _none(tables)
        refuse_unfit(tables)
        beside = beside_of(spec, asked)
        built = Plan.under(tables.backfills, beside)
        refuse_other_log(tables, built)
        # The pipeline does not advance while its lease is held, so the backfill reaches its position.
        run(executor_of_runs(executor), beside, tables.backfills, clock=clock, log_begins=stepper.log_begins)
        with stepping(executor, built) as taken:
            _refuse_behind(stepper, taken)
            _refuse_erased(stepper, taken)
            refuse_other_columns(tables, taken.plan)
            taken.publish(executor)
            n_records, changes, keys = _compared(executor, tables, taken)
            places = list(_places(tables))
            if not applies:
                planned = _report(spec.name, n_records, changes, keys)
                return with_places(planned, places)
            actions = _state_actions(tables, stepper.newest(), taken.newest())
            facts = _facts(stepper, taken, clock())
            stepper.commit(facts, actions)
        # The backfill's lease has been released: publishing deletes its folder.
        stepper.publish(executor)
        done = _report(spec.name, n_records, changes, keys, facts.step)
        return with_places(done, places)


def _places(tables: Plan) -> Iterator[Place]:
    """Yield the files of the tables that the backfill's tables replace. Rows of the sink are replaced one by one."""
    fate = f"replaced by the backfill's, {BY_VACUUM}"
    for name in ("state", "changelog", "quarantine"):
        yield from of_table(tables, name, fate)
    yield from of_folder("backfill", tables.backfills, "deleted once its tables have replaced the pipeline's")


def _refuse_behind(own: Stepper, taken: Stepper) -> None:
    """Refuse a backfill that has not read all that the pipeline has."""
    missing = list(_missing(own, taken))
    if missing:
        first = "; ".join(missing[:SAMPLE])
        raise BackfillError.of(
            f"The backfill of '{own.spec.name}' has not read all that the pipeline has.",
            got=f"missing {first}",
            next_step="Run 'ebbtide backfill start' to continue it; or 'ebbtide backfill drop' if the source is now another one.",
        )


def _refuse_erased(own: Stepper, taken: Stepper) -> None:
    """Refuse a backfill that was begun before keys were erased or released: it may hold or lack their rows."""
    of_pipeline = _erased(own)
    of_backfill = _erased(taken)
    if of_pipeline == of_backfill:
        return
    was_erased = not of_pipeline <= of_backfill
    what = "erased" if was_erased else "released"
    raise BackfillError.of(
        f"Keys of '{own.spec.name}' were {what} after its backfill was begun.",
        got="a backfill that may hold their rows" if was_erased else "a backfill that has refused their records",
        next_step="Run 'ebbtide backfill drop', and begin it again.",
    )


def _erased(stepper: Stepper) -> frozenset[str]:
    erasures = stepper.plan.erasures
    name = erasures.newest(stepper.last)
    if name is None:
        return frozenset()
    return erasures.keys(name).hashes


def _missing(own: Stepper, taken: Stepper) -> Iterator[str]:
    if not taken.number:
        yield "every record"
        return
    stands = own.last_read
    # A source of files is read in parts: the files themselves are compared.
    if stands is None:
        missing = own.files_read().keys() - taken.files_read().keys()
        yield from sorted(missing)
        return
    reached = taken.last_read
    # A topic that was recreated has other records at the same offsets.
    if reached is None or stands.identity != reached.identity:
        yield f"all of {stands.source_text}"
        return
    for partition, offset in stands.end.items():
        n_reached = reached.end.get(partition, 0)
        if n_reached < offset:
            yield f"offsets {n_reached} to {offset} of partition {partition}"


def _compared(executor: Executor, tables: Plan, taken: Stepper) -> tuple[int, dict[str, int], Sequence[dict[str, Any]]]:
    """Return the records that a backfill has read, how many rows of the sink differ, and some of their keys."""
    version = taken.plan.delta_sink.version()
    changes = SinkDifference.to_backfill(executor, tables, version)
    counts = changes.counts()
    is_personal = not tables.spec.personal.isdisjoint(tables.sink.key)
    keys = [] if is_personal else changes.keys(SAMPLE)
    frontier = taken.last.frontier
    n_records = frontier.total_records if frontier else 0
    return n_records or 0, counts, keys


def _state_actions(plan: Plan, own: Snapshot, taken: Snapshot) -> list[Action]:
    """Copy the data files of a backfill's state; return the actions that put them in the place of the state's.

    Args:
        own: The newest version of its state.
        taken: That of the backfill's.
    """
    definition = plan.state.redefined(own)
    adds = taken.copied_to(plan.state.path)
    actions = [*definition, *adds]
    return DataFile.replacing(own.files.values(), actions)


def _facts(stepper: Stepper, taken: Stepper, wall_ms: int) -> StepFacts:
    """Return the facts of the step that replaces the pipeline's tables by a backfill's; it starts a new incarnation.

    Args:
        taken: Stepper of the backfill, which has made a step.
        wall_ms: The wall clock, epoch ms.
    """
    last = taken.made
    versions = _versions(taken.plan)
    incarnation = taken.lease.facts.incarnation
    replaces = {}
    for name in Decision.OWN_OUTPUTS:
        replaces[name] = Replace(incarnation, versions.get(name))
    # Pauses are the pipeline's: they did not affect the backfill.
    paused_ms = stepper.lease.seen.paused_until(wall_ms)
    clock = replace(last.frontier.clock, paused_ms=paused_ms)
    frontier = last.frontier.model_copy(update={"clock": clock})
    begun = stepper.source_begun(taken.last_read, taken.source_start)
    source = begun.model_copy(update={"path": taken.source_path})
    as_taken = {**last.state.of_entries, "evolved": dict(taken.plan.evolved)}
    return stepper.begun_elsewhere("swap", replaces, source, frontier, as_taken, after=taken.last_number)


def _versions(plan: Plan) -> dict[str, int]:
    """Return the newest versions of the output tables."""
    newest = {}
    for name in Decision.OWN_OUTPUTS:
        versions = Log(plan.at(name)).versions()
        if versions:
            newest[name] = versions[-1]
    return newest


def _none(tables: Plan) -> BackfillError:
    return BackfillError.of(
        f"There is no backfill of '{tables.spec.name}'.",
        next_step="Run 'ebbtide backfill start' first.",
    )
