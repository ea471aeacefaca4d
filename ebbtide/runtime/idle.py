"""Whether a run would find nothing to do, judged from source, logs and checkpoint alone: no JVM, about a CPU second.

Whatever is not certain counts as something to do: the run then starts as ever, and refuses what does not fit.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.delta import log
from ebbtide.ledger.checkpoint import Checkpoint
from ebbtide.ledger.facts import FREE, STATE_FORMAT, LedgerFacts, StepFacts
from ebbtide.model.entries import LONG_MIN, Step, live_entries
from ebbtide.model.state.timers import TIMERS
from ebbtide.model.step import StepKind, clock_after, next_frontier
from ebbtide.model.ttl import TimeCharacteristic
from ebbtide.operators.operator import Operator
from ebbtide.paths import join
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.progress import RunSummary
from ebbtide.spec.pipeline import Pipeline
from ebbtide.state_table.layout import FILE, ROW, counts, noted_files, rows_of

MOST_FILES = 1_000
"""Data files that are opened; for more Spark is no dearer."""
MOST_ROWS = 200_000
"""Stored entries that are looked through for what is due."""
WRITES = ("inserted", "updated", "deleted", "filled")
"""Counts of a step that changes the sink."""


def idle_run(spec: Pipeline, root: str, clock_ms: int) -> RunSummary | None:
    """Run a pipeline that has nothing to do: all files are read, the last step is finished, nothing is due.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms.

    Returns:
        The summary, without a step; None if there may be something to do.

    Raises:
        SourceReadError: the source folder is not there.
        FileChangedError, LateFileError: see `ebbtide.sources.listing.discover`.
    """
    plan = Plan.under(root, spec)
    plan.source.refuse_absent()
    home, state = plan.root, plan.at("state")
    last = next(log.own_commits(state), None)
    files = log.data_files(state)
    if last is None or files is None or len(files) > MOST_FILES:
        return None
    version, found = last
    if found[log.FACTS] != STATE_FORMAT:
        return None
    facts = StepFacts.model_validate(found)
    is_idle = (
        not spec.misfits(facts.spec)
        and spec.source_path == facts.source_path
        and _is_free(home)
        and _is_finished(spec, home, version, facts)
        and not _may_be_due(plan, files, facts, clock_ms)
    )
    if not is_idle:
        return None
    listed = plan.source.discover(_files_read(files), clock_ms)
    if listed.streams or listed.nothing_matched:
        return None
    return RunSummary(spec.name, home, files_unmatched=listed.unmatched, files_young=listed.young)


def _is_free(home: str) -> bool:
    """Whether no run holds the pipeline, nor died with it."""
    found = next(log.own_commits(join(home, "ledger")), None)
    return found is not None and LedgerFacts.model_validate(found[1]).holder == FREE


def _is_finished(spec: Pipeline, home: str, version: int, facts: StepFacts) -> bool:
    """Whether the last step reached sink and checkpoint, and both are the ones it was made with."""
    checkpoint = Checkpoint(join(home, "checkpoint"))
    committed = checkpoint.last_committed()
    is_read_up = committed is not None and committed == facts.batch_id and not checkpoint.is_open
    sink, changelog = join(home, "sink"), join(home, "changelog")
    are_there = log.versions(sink) and (log.versions(changelog) or not spec.emits_every)
    if facts.kind is StepKind.RESET or not is_read_up or checkpoint.query_id != facts.query_id or not are_there:
        return False
    if facts.kind is not StepKind.TICK:
        return True  # Spark commits a batch after its step; maintenance finishes the step before it
    wrote = counts(join(home, "state"), version)
    in_sink = log.last_step(sink) >= facts.step or not any(wrote[name] for name in WRITES)
    return in_sink and (log.last_step(changelog) >= facts.step or not wrote["emitted"])


def _files_read(files: list[log.DataFile]) -> dict[str, int | None]:
    rows = rows_of(files, FILE, ["_note"])
    return {} if rows is None else noted_files(rows)


def _may_be_due(plan: Plan, files: list[log.DataFile], facts: StepFacts, clock_ms: int) -> bool:
    """Whether a tick might expire an entry or fire a timer."""
    operator, names = plan.operator, plan.operator.schema.names
    has_timers = "_state" in names
    if not operator.ttls and not has_timers:
        return False
    if plan.spec.downtime_over is not None:
        return True  # the run writes down when it ended
    if any(file.rows is None for file in files):
        return True
    at = _next_tick(plan, facts, clock_ms)
    if not has_timers and not any(_may_hold_expired(file, operator, at) for file in files):
        return False
    if sum(file.rows or 0 for file in files) > MOST_ROWS:
        return True
    wanted = {*operator.entry_key, "_step", "_stamp_ms", "_removed", operator.state_column}
    wanted |= {"_ttl_ms", "_position", *operator.mortal} & set(names)
    schema = pa.schema([field for field in operator.schema if field.name in wanted])
    rows = rows_of(files, ROW, schema.names)
    if rows is None:
        return False
    if not set(schema.names) <= set(rows.column_names):
        return True  # written before a column was added
    if has_timers:
        rows = rows.filter(pc.is_valid(rows["_state"]))  # the others are rows for the sink
    return _any_due(operator, live_entries(rows.select(schema.names).cast(schema), schema, operator.entry_key), at)


def _may_hold_expired(file: log.DataFile, operator: Operator, at: Step) -> bool:
    """Whether a file's least stamp has expired by a time to live that is no entry's own."""
    stamp = file.least.get("_stamp_ms")
    return stamp is not None and any(stamp + ttl.ttl_ms <= at.clock_ms(ttl) for ttl in operator.ttls.values())


def _next_tick(plan: Plan, facts: StepFacts, clock_ms: int) -> Step:
    """Return what the tick of a run that reads nothing goes by."""
    clock = clock_after(facts, plan.rules, clock_ms, started_ms=clock_ms)
    return next_frontier(facts, StepKind.TICK, clock, plan.rules).operator_step


def _is_set(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.fill_null(False) if pa.types.is_boolean(column.type) else column.is_valid()


def _any_due(operator: Operator, entries: pa.Table, at: Step) -> bool:
    """Whether the time of an entry is over, or a timer is due; an entry that two states' times fit is taken for due by either."""
    names = entries.schema.names
    is_set = [_is_set(entries[name]) for name in operator.mortal]
    mortal = entries.filter(reduce(pc.or_, is_set)) if is_set else entries
    for state, ttl in operator.ttls.items():
        own = mortal if state is None else mortal.filter(pc.equal(mortal[operator.state_column], state))
        ttl_ms = own["_ttl_ms"].fill_null(ttl.ttl_ms) if "_ttl_ms" in names else ttl.ttl_ms
        clock = at.clock_ms(ttl)
        if clock > LONG_MIN and pc.any(pc.less_equal(own["_stamp_ms"], pc.subtract(clock, ttl_ms))).as_py():
            return True
    if "_sub" not in names:
        return False
    timers = entries.filter(pc.equal(entries["_state"], TIMERS))
    clocks = {TimeCharacteristic.PROCESSING_TIME: at.now_ms, TimeCharacteristic.EVENT_TIME: at.watermark_ms}
    for kind, now in clocks.items():
        own = timers.filter(pc.starts_with(timers["_sub"], f"{kind}/"))
        if now is not None and pc.any(pc.less_equal(own["_position"], now)).as_py():
            return True
    return False
