"""Repair: the sink is brought to what the state shows, and the state to what its last step decided. Acknowledge: it stays as it is, with a reason.

Both end what is red. A repair follows a damage: rows that others changed, a sink that was dropped, replaced or put back to an older
version. It is a step: the decision is that the sink shall show the state, the redo compares both and writes what differs. To
acknowledge is for what was meant, such as rows deleted by hand: their keys are written down in the state, and checks leave them out
until they change again. Checks then look no further back than either step.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.amounts import amount
from ebbtide.delta import log
from ebbtide.delta.snapshot import DataFile
from ebbtide.errors import ConfigError, RepairError
from ebbtide.ledger.facts import Cause, Head
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.maintenance.job import stepping
from ebbtide.maintenance.losses import Loss, losses_of, lost_tables, pass_over, set_aside
from ebbtide.maintenance.sink_files import damaged_files, refuse_unknown, take_out, was_taken_out
from ebbtide.maintenance.state_repair import decided_version, refuse_damaged_state, restore_state
from ebbtide.model.decision import Decision, Rewrite
from ebbtide.runtime.belonging import OwnTables, refuse_older_state
from ebbtide.runtime.completeness import DECIDED, SHOWN, differences, is_kept
from ebbtide.runtime.foreign import ROWS, UNSURE, foreign_commits, may_forget, unread
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.refusals import refuse_changed_spec
from ebbtide.runtime.step import Stepper
from ebbtide.spec.pipeline import Pipeline
from ebbtide.state_table.columns import columns
from ebbtide.state_table.others import change_of_others

UNKNOWN_ROWS = (
    "Put these rows right in the sink, or accept the sink as it is: 'ebbtide acknowledge --reason TEXT';"
    " or run 'ebbtide refresh' to rebuild all tables from the source."
)
"""What ends a difference that a repair cannot."""
MOST_NAMED = 10
"""Keys that an error names."""


@dataclass(frozen=True)
class RepairReport:
    """In what a sink differs from what its state shows, and what was done about it.

    Args:
        pipeline: Its name.
        missing: Keys that the sink lacks.
        other: Keys of which it has another row.
        extra: Keys that it should not have.
        repeated: Keys of which it has several rows, counted among those above or not.
        made: Tables that were gone and are made anew.
        state_version: Version of the state that its rows are brought back to; None: nobody changed them.
        action: What was done: `repair`, `acknowledge`; empty: nothing, this is the plan.
        step: The step that did it; None of a plan, and where nothing differed.
        unsure: Keys that others changed and that the state has forgotten, of which is unknown what the sink must have.
        unread: Commits of others of which that is so, as their files are deleted; empty: there are none.
        losses: What became of other tables that were deleted, replaced or put back: in words, which rows are lost and which come back.
        damaged: Data files of the sink that are gone or damaged. A plan compares no rows then: the files must go first.
    """

    pipeline: str
    missing: int = 0
    other: int = 0
    extra: int = 0
    repeated: int = 0
    made: tuple[str, ...] = ()
    state_version: int | None = None
    action: str = ""
    step: int | None = None
    unsure: int = 0
    unread: str = ""
    losses: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether there is anything to do."""
        of_rows = self.missing or self.other or self.extra or self.repeated
        unknown = self.unsure or self.unread
        of_tables = self.made or self.losses or self.damaged
        return bool(of_rows or unknown or of_tables or self.state_version is not None)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)

    def text(self) -> str:
        """Write it for a terminal."""
        if not self.differs and self.step is None:
            return f"{self.pipeline}: the sink shows what the state says; nothing to repair."
        missing = amount(self.missing, "row")
        repeated = amount(self.repeated, "key")
        counts = f"{missing} missing, {self.other:,} other, {self.extra:,} too many, {repeated} repeated"
        lines = [f"{self.pipeline}: {counts}."]
        if self.unsure:
            unsure = amount(self.unsure, "key")
            lines.append(f"{unsure} that others changed and the state has forgotten: what they must be is unknown")
        if self.unread:
            lines.append(
                f"changes of others to what the state has forgotten that cannot be read any more: {self.unread}"
            )
        if self.made:
            lines.append(f"gone: {', '.join(self.made)}")
        lines += self.losses
        lines += [f"gone or damaged, its rows come back from the state: {location}" for location in self.damaged]
        if self.state_version is not None:
            lines.append(f"rows of the state that others changed: as in its version {self.state_version}")
        if self.step is None and (self.unsure or self.unread):
            lines.append(f"A repair is refused. {UNKNOWN_ROWS}")
        elif self.step is None:
            lines.append("To bring the sink to what the state shows: 'ebbtide repair --apply'.")
            lines.append("To leave it as it is: 'ebbtide acknowledge --reason TEXT'.")
        else:
            lines.append(f"Done in step {self.step}: {self.action}.")
        return "\n  ".join(lines)


def plan(spark: SparkSession, spec: Pipeline, root: str) -> RepairReport:
    """Return in what the sink differs. Changes nothing.

    Args:
        spark: A session with Delta.
        spec: The pipeline.
        root: Folder of all pipelines' tables.

    Raises:
        RepairError: the state does not keep what the sink must show, or a data file of it is gone or damaged; or, of `repair`, others
            changed rows that the state has forgotten, and what they must be is unknown.
        TableMismatchError: it is not the state that wrote the sink, or the sink has other columns than the pipeline has given it.
    """
    tables = Plan.under(root, spec)
    _refuse_unkept(spark, tables)
    with stepping(spark, tables, refuse=_refuse_nothing) as stepper:
        unreadable = stepper.tables.leave_out_unreadable()
        refuse_older_state(tables, stepper.tables, stepper.head)
        if stepper.last is None:
            return RepairReport(spec.name)
        refuse_damaged_state(stepper)
        look = _Look.of(spark, stepper, unreadable)
        changed_by, versions = change_of_others(stepper.version, stepper.found())
        state_version = versions[-1] if changed_by else None
        return replace(look.report, state_version=state_version)


def repair(spark: SparkSession, spec: Pipeline, root: str) -> RepairReport:
    """Bring the sink to what the state shows; arguments and errors as `plan`.

    Raises:
        LeaseHeldError: the pipeline is being run.
        SpecChangedError: the spec no longer fits the stored state.
    """
    tables = Plan.under(root, spec)
    _refuse_unkept(spark, tables)
    with stepping(spark, tables, refuse=_refuse_nothing) as stepper:
        unreadable = stepper.tables.leave_out_unreadable()
        refuse_older_state(tables, stepper.tables, stepper.head)
        if stepper.last is None:
            return RepairReport(spec.name)
        refuse_changed_spec(tables, stepper)
        refuse_damaged_state(stepper)
        look = _Look.of(spark, stepper, unreadable)
        report = look.report
        _refuse_unknown(spark, stepper, report)
        state_version = restore_state(stepper)
        set_aside(stepper, [loss.table for loss in look.losses if loss.is_aside])
        take_out(stepper, look.damaged)
        tables.sink.create(spark)
        if spec.emits_every:
            tables.changelog.create()
        if "quarantine" in stepper.last.state.tables:
            tables.quarantine.create()
        if not stepper.last.decision.is_by_changes:  # what the others decided the repair brings to the tables itself
            pass_over(stepper, look.lost_tables)
            stepper.publish(spark)
        if not look.is_compared:
            compared = _compared(spark, stepper)
            report = replace(compared, made=report.made, losses=report.losses, damaged=report.damaged)
        rewrites = {name: Rewrite() for name in BESIDE_STATE}
        cause = Cause(what="repair", notes=tuple(report.losses))
        facts = stepper.facts(cause, decision=Decision(tables=rewrites))
        stepper.commit(facts, [])
        stepper.publish(spark)
        return replace(
            report,
            state_version=state_version,
            action="repair",
            step=facts.step,
        )


def acknowledge(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    reason: str,
) -> RepairReport:
    """Leave the sink as it is, and let checks begin anew; arguments and errors as `repair`.

    Args:
        spark: See `plan`.
        spec: The same.
        root: The same.
        reason: Kept with the step.
    """
    if not reason.strip():
        raise ConfigError.of(
            "To acknowledge takes a reason.",
            got="none",
            allowed="a text, kept with the step",
        )
    tables = Plan.under(root, spec)
    with stepping(spark, tables) as stepper:
        if stepper.last is None:
            return RepairReport(spec.name)
        refuse_changed_spec(tables, stepper)
        stepper.publish(spark)
        decision = Decision(accepts_sink=tables.sink.version())
        facts = stepper.facts(Cause(what="acknowledge", why=reason), decision=decision)
        report = RepairReport(spec.name)
        actions = []
        if is_kept(tables):
            differing = _differing(spark, stepper).cache()
            report = _counted(spec.name, differing)
            keys = differing.select(*columns(tables.sink.key)).toArrow()
            differing.unpersist()
            if len(keys):
                actions.append(tables.state.add_acknowledged(_typed(keys, tables), facts.step))
        stepper.commit(facts, actions)
        return replace(report, action=f"acknowledged: {reason}", step=facts.step)


def _refuse_unkept(spark: SparkSession, tables: Plan) -> None:
    """Refuse a pipeline whose sink its state does not tell; of its lost files it is said all the same how far back the state is whole."""
    if is_kept(tables):
        return
    if log.versions(tables.state.path):
        with stepping(spark, tables, refuse=refuse_older_state) as stepper:
            refuse_damaged_state(stepper)
    raise RepairError.of(
        f"The state of '{tables.spec.name}' does not keep what its sink must show.",
        got="a function of the user's, whose rows for the sink are forgotten once they are there",
        allowed="an upsert pipeline",
        next_step="Run 'ebbtide rewind' to go back to an earlier step, or 'ebbtide refresh' to rebuild the sink from the source.",
    )


def _refuse_nothing(_: Plan, __: OwnTables, ___: Head) -> None:
    """Let tables through that cannot be read: what a repair refuses is looked for without them."""


def _gone(tables: Plan, unreadable: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the tables that a run would have made and that are not there, or cannot be read."""
    wanted = ["sink"]
    if tables.spec.emits_every:
        wanted.append("changelog")
    return tuple(name for name in wanted if name in unreadable or not log.versions(tables.at(name)))


@dataclass(frozen=True)
class _Look:
    """What is found before anything is changed.

    Args:
        report: What is said of it.
        losses: What became of tables.
        lost_tables: Names of the tables that were deleted, replaced or put back, or cannot be read.
        damaged: Data files of the sink that cannot be read.
        is_compared: The sink could be compared with the state.
    """

    report: RepairReport
    losses: tuple[Loss, ...]
    lost_tables: tuple[str, ...]
    damaged: list[DataFile]
    is_compared: bool

    @classmethod
    def of(cls, spark: SparkSession, stepper: Stepper, unreadable: Collection[str]) -> _Look:
        """Look at all tables; refuse what is unknown."""
        sink = stepper.plan.sink.path
        gone = _gone(stepper.plan, unreadable)
        damaged = [] if "sink" in gone else damaged_files(sink)
        version = decided_version(stepper)
        refuse_unknown(stepper, damaged, version)
        has_lost_files = "sink" not in gone and (bool(damaged) or was_taken_out(stepper, version))
        losses = losses_of(stepper, unreadable, has_damaged_files=has_lost_files)
        is_compared = "sink" not in gone and not damaged and not _lacks_columns(stepper)
        report = _compared(spark, stepper) if is_compared else RepairReport(stepper.spec.name)
        said = replace(
            report,
            made=gone,
            losses=tuple(loss.text() for loss in losses),
            damaged=tuple(file.location(sink) for file in damaged),
        )
        return cls(said, losses, lost_tables(stepper, unreadable), damaged, is_compared)


def _lacks_columns(stepper: Stepper) -> bool:
    """Return whether the sink has not taken the columns yet that the last step gives it."""
    last = stepper.last
    return last is not None and last.decision.changes_columns and stepper.plan.sink.last_step() < last.step


def _differing(spark: SparkSession, stepper: Stepper) -> DataFrame:
    if stepper.last is None:
        raise LookupError("no step was made")
    return differences(
        spark,
        stepper.plan,
        stepper.last,
        state_version=decided_version(stepper),
        sink_version=stepper.plan.sink.version(),
    )


def _compared(spark: SparkSession, stepper: Stepper) -> RepairReport:
    stepper.plan.sink.refuse_altered()
    report = _counted(stepper.spec.name, _differing(spark, stepper))
    return replace(report, unread=_unread(stepper))


def _unread(stepper: Stepper) -> str:
    """Say which commits of others changed rows that the state may have forgotten, where that cannot be read any more."""
    if stepper.last is None or not may_forget(stepper.plan, stepper.last):
        return ""
    sink_version = stepper.plan.sink.version()
    commits = foreign_commits(
        stepper.plan,
        stepper.last,
        state_version=decided_version(stepper),
        sink_version=sink_version,
    )
    return unread(stepper.plan, commits, sink_version)


def _refuse_unknown(spark: SparkSession, stepper: Stepper, report: RepairReport) -> None:
    """Refuse to end the look back at changes of others of which is unknown what the sink must have."""
    if report.unread:
        raise RepairError.of(
            f"Others have changed rows of the sink of '{report.pipeline}' that its state may have forgotten, and their files are gone.",
            got=report.unread,
            next_step=UNKNOWN_ROWS,
        )
    if not report.unsure:
        return
    sink = stepper.plan.sink
    unsure = _differing(spark, stepper).where(UNSURE).select(*columns(sink.key)).limit(MOST_NAMED)
    is_personal = not stepper.spec.personal.isdisjoint(sink.key)
    named = [] if is_personal else [str(row.asDict()) for row in unsure.collect()]
    keys = amount(report.unsure, "key")
    raise RepairError.of(
        f"Others have changed rows of the sink of '{report.pipeline}' that its state has forgotten, and what they must be is unknown.",
        got=": ".join([keys, *filter(None, [", ".join(named)])]),
        next_step=UNKNOWN_ROWS,
    )


def _counted(pipeline: str, differing: DataFrame) -> RepairReport:
    decided = F.col(DECIDED)
    shown = F.col(SHOWN)
    is_decided = decided.isNotNull()
    is_shown = shown.isNotNull()
    are_unlike = decided != shown
    is_repeated = F.col(ROWS) > 1
    is_unsure = F.col(UNSURE)
    sure = ~is_unsure
    counts = differing.agg(
        F.count_if(sure & is_decided & ~is_shown).alias("missing"),
        F.count_if(sure & is_decided & is_shown & are_unlike).alias("other"),
        F.count_if(sure & ~is_decided).alias("extra"),
        F.count_if(sure & is_repeated).alias("repeated"),
        F.count_if(is_unsure).alias("unsure"),
    )
    [row] = counts.collect()
    return RepairReport(pipeline, **row.asDict())


def _typed(keys: pa.Table, tables: Plan) -> pa.Table:
    own_names = tables.spec.state_key_of
    stored = tables.operator.schema
    names = [own_names[name] for name in keys.column_names]
    fields = [stored.field(name).with_nullable(True) for name in names]
    named = keys.rename_columns(names)
    return named.cast(pa.schema(fields))
