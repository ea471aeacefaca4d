"""What others did to rows of the sink that the state does not tell: those of entries that have expired, and that stay there.

Of a key that the state shows the sink is compared with it. Of another one the commits alone tell: its rows are right as the pipeline
left them. Unless the pipeline has written the key since, they are

    the rows that are there, without those that others added, and with those that others took away.

A row that others took away comes back only where no step since may have deleted it: a step that deletes a row that is not there
leaves nothing in the sink's commits. By order of arrival the state's commits tell it. Where nothing does, the key is `_unsure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.delta.feed import readable_since
from ebbtide.errors import DamagedFileError
from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.foreign_writes import data_commits
from ebbtide.ledger.windows import sink_window_end, window_end
from ebbtide.model.decision import Apply, Rewrite
from ebbtide.model.entries import DELETE
from ebbtide.runtime.plan import Plan
from ebbtide.state_table.change_set import StepChanges
from ebbtide.state_table.columns import columns, json_text, spark_schema

ROWS = "_rows"
"""How many rows the sink has for the key."""
REMOVES_DAMAGED = "REMOVE DAMAGED FILES"
"""What the commit of a repair calls itself that takes out data files which cannot be read."""
UNSURE = "_unsure"
"""Whether it is unknown which row must be there."""


@dataclass(frozen=True)
class ForeignCommit:
    """A commit by which others changed rows of the sink.

    Args:
        version: The sink's.
        operation: What it says that it did.
        step: The last step that the sink had then.
    """

    version: int
    operation: str
    step: int

    def text(self) -> str:
        """Name it."""
        return f"version {self.version}, {self.operation}"


@dataclass(frozen=True)
class ForeignRows:
    """What others did to rows that the state may have forgotten.

    Args:
        changed: Of each key the key columns, a row that must be there (`_wanted`) and one that is (`_found`), null for none, `_rows`
            and `_unsure`.
        rows: The rows of these keys that must be there, as the sink's.
    """

    changed: DataFrame
    rows: DataFrame


def may_forget(plan: Plan, facts: StepFacts) -> bool:
    """Return whether a row of a key that the state does not know may be right.

    Args:
        plan: The pipeline.
        facts: Of its last step.
    """
    return facts.frontier.orphans or plan.spec.expires_live


def foreign_commits(
    plan: Plan,
    facts: StepFacts,
    *,
    state_version: int,
    sink_version: int,
    sink_since: int | None = None,
) -> list[ForeignCommit]:
    """Return the commits of others that nothing has put right or accepted yet, in order.

    Args:
        plan: The pipeline.
        facts: Of its last step.
        state_version: Version of the state to look back from.
        sink_version: Version of the sink to look back from.
        sink_since: Version of the sink up to which all was judged good. Default: the end of the last window.
    """
    since = _since(plan, facts, state_version, sink_version) if sink_since is None else sink_since
    commits = _commits_beside_steps(plan, since, sink_version)
    return [commit for commit in commits if commit.operation != REMOVES_DAMAGED]


def has_taken_out(plan: Plan, facts: StepFacts, *, state_version: int, sink_version: int) -> bool:
    """Return whether a repair has taken damaged data files out of the sink, and made no step; arguments as `foreign_commits`."""
    since = _since(plan, facts, state_version, sink_version)
    commits = _commits_beside_steps(plan, since, sink_version)
    return any(commit.operation == REMOVES_DAMAGED for commit in commits)


def _commits_beside_steps(plan: Plan, since: int, sink_version: int) -> list[ForeignCommit]:
    """Return the commits of no step that changed rows of the sink after one version, up to another, in order."""
    sink = plan.sink.path
    versions = range(since + 1, sink_version + 1)
    commits = data_commits(plan.spec.name, "sink", sink, versions)
    foreign = [commit for commit in commits if not commit.is_own]
    if not foreign:
        return []
    steps = [(version, int(own["step"])) for version, own in log.own_commits(sink)]
    return [
        ForeignCommit(commit.version, commit.operation or "unknown", _last_step_before(commit.version, steps))
        for commit in foreign
    ]


def _last_step_before(version: int, steps: Sequence[tuple[int, int]]) -> int:
    """Return the last step before a version of the sink; 0 before the first.

    Args:
        version: The version.
        steps: Versions of the sink and their steps, the newest first.
    """
    return next((step for own_version, step in steps if own_version < version), 0)


def _since(plan: Plan, facts: StepFacts, state_version: int, sink_version: int) -> int:
    """Return the version of the sink at which the last window has ended."""
    sink = plan.sink.path
    writes_all = isinstance(facts.decision.tables.get("sink"), Rewrite)
    is_open = writes_all and plan.sink.last_step() < facts.step
    # A repair that is being made has not ended the window yet that it looks at.
    before = facts.state.version if is_open else state_version
    state_end = window_end(plan.state.path, 0, before)
    sink_end = window_end(sink, 0, sink_version)
    return sink_window_end(plan.state.path, state_end, sink_end)


def unread(plan: Plan, commits: Sequence[ForeignCommit], sink_version: int) -> str:
    """Say which commits of others changed rows, if it cannot be read any more which; empty if it can.

    Args:
        plan: The pipeline.
        commits: As from `foreign_commits`.
        sink_version: Version of the sink.
    """
    if not commits:
        return ""
    first = commits[0].version
    since = readable_since(plan.sink.path, first - 1, sink_version)
    if since < first:
        return ""
    return "; ".join(commit.text() for commit in commits)


def foreign_rows(
    spark: SparkSession,
    plan: Plan,
    facts: StepFacts,
    *,
    state_version: int,
    sink_version: int,
    sink_since: int | None = None,
) -> ForeignRows | None:
    """Work out which rows must be there of the keys that others changed.

    Args:
        spark: A session with Delta.
        plan: The pipeline.
        facts: Of its last step.
        state_version: Version of the state.
        sink_version: Version of the sink.
        sink_since: See `foreign_commits`.

    Returns:
        None where nothing is to be looked at, or no feed is left that tells it (see `unread`).
    """
    if not may_forget(plan, facts):
        return None
    commits = foreign_commits(
        plan,
        facts,
        state_version=state_version,
        sink_version=sink_version,
        sink_since=sink_since,
    )
    if not commits or unread(plan, commits, sink_version):
        return None
    key = list(plan.sink.key)
    # Worked out once: what follows reads it several times.
    theirs = _net(_their_changes(spark, plan, commits, sink_version), key).localCheckpoint()
    keys = _judged(spark, theirs, _deletions(plan, commits[0].step), key)
    sink = _with_row(plan.sink.read(spark, sink_version), plan)
    there = sink.join(keys, key, "left_semi").select("*", F.lit(1).alias("_n"), F.lit(0).alias("_since"))
    right = _right(there.unionByName(theirs), plan, facts)
    stays = keys.where("NOT _deleted")
    rows = right.join(stays, key, "left_semi")
    return ForeignRows(
        changed=_beside(keys, rows, there, key),
        rows=rows.select("_row.*"),
    )


def _their_changes(spark: SparkSession, plan: Plan, commits: Sequence[ForeignCommit], sink_version: int) -> DataFrame:
    """Read what others changed of keys that the pipeline has not written since: the row, and the version."""
    key = list(plan.sink.key)
    feed = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", commits[0].version)
        .option("endingVersion", sink_version)
        .load(plan.sink.path)
    )
    by_version = {commit.version: commit.step for commit in commits}
    is_theirs = F.col("_commit_version").isin(list(by_version))
    own = feed.where(~is_theirs).groupBy(*columns(key)).agg(F.max("_commit_version").alias("_own"))
    pairs = [F.lit(number).cast("bigint") for pair in by_version.items() for number in pair]
    step_then = F.create_map(*pairs)[F.col("_commit_version")]
    is_removed = F.col("_change_type").isin("delete", "update_preimage")
    rows = _with_row(feed.where(is_theirs), plan, "_commit_version", "_change_type").join(own, key, "left")
    is_newest = F.col("_own").isNull() | (F.col("_commit_version") > F.col("_own"))
    # What others removed is missing: it counts for the row. What they added counts against it.
    counted = F.when(is_removed, 1).otherwise(-1)
    return rows.where(is_newest).select(
        *columns(key),
        "_row",
        "_text",
        counted.alias("_n"),
        step_then.alias("_since"),
    )


def _with_row(rows: DataFrame, plan: Plan, *more: str) -> DataFrame:
    """Select the key columns, the whole row and its text: a map in a row can be neither grouped nor compared."""
    names = plan.sink.schema.names
    row = F.struct(*columns(names))
    text = json_text(row)
    return rows.select(*columns(plan.sink.key), row.alias("_row"), text.alias("_text"), *more)


def _net(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Sum up changes by row; a row that came and went again is none."""
    by_row = changes.groupBy(*columns(key), "_text")
    row = F.first("_row").alias("_row")
    net = F.sum("_n").alias("_n")
    since = F.min("_since").alias("_since")
    summed = by_row.agg(row, net, since)
    return summed.where("_n != 0")


def _right(rows: DataFrame, plan: Plan, facts: StepFacts) -> DataFrame:
    """Pick the rows that must be there, of those that are there and what others did to them."""
    right = _net(rows, plan.sink.key).where("_n > 0")
    if not facts.frontier.floor:
        return right
    is_below = plan.sink.below(facts.frontier.floor, "_row.")
    return right.where(~F.coalesce(is_below, F.lit(False)))


def _beside(keys: DataFrame, right: DataFrame, there: DataFrame, key: Sequence[str]) -> DataFrame:
    """Put beside each key a row that must be there and one that is."""
    names = list(key)
    some_row = F.first("_row")
    n_rows = F.count("*").alias(ROWS)
    wanted = right.groupBy(*columns(key)).agg(some_row.alias("_wanted"))
    found = there.groupBy(*columns(key)).agg(some_row.alias("_found"), n_rows)
    with_wanted = keys.join(wanted, names, "left")
    beside = with_wanted.join(found, names, "left")
    return beside.where("_wanted IS NOT NULL OR _found IS NOT NULL")


@dataclass(frozen=True)
class _Deletions:
    """What steps deleted that may not have been in the sink.

    Args:
        keys: The key columns of what they deleted, and `_deleted_in`, the step.
        unknown_until: The last step of which it is unknown; 0: there is none.
    """

    keys: pa.Table
    unknown_until: int


def _deletions(plan: Plan, since: int) -> _Deletions:
    """Read what the steps after one deleted."""
    key = pa.schema([plan.sink.columns.field(name) for name in plan.sink.key])
    with_step = key.append(pa.field("_deleted_in", pa.int64()))
    parts = [with_step.empty_table()]
    unknown_until = 0
    for version, facts in plan.state.steps():
        if facts.step <= since:
            break
        if not isinstance(facts.decision.tables.get("sink"), Apply):
            continue
        try:
            gone = _deleted_in(plan, version, key)
        except DamagedFileError:
            gone = None
        if gone is None:
            unknown_until = max(unknown_until, facts.step)
        else:
            steps = pa.array([facts.step] * len(gone), pa.int64())
            parts.append(gone.append_column(with_step.field("_deleted_in"), steps))
    return _Deletions(pa.concat_tables(parts), unknown_until)


def _deleted_in(plan: Plan, version: int, key: pa.Schema) -> pa.Table | None:
    """Read the keys that a step deleted; None where it does not tell them."""
    if plan.spec.expires_live:
        return None  # the sink stands in for the state there: of a row that is not in it no deletion is decided
    changes = StepChanges(plan.state.path, version, plan.operator).rows(key)
    is_deleted = pc.equal(changes["_change"], DELETE)
    return changes.filter(is_deleted).select(key.names)


def _judged(spark: SparkSession, theirs: DataFrame, deletions: _Deletions, key: Sequence[str]) -> DataFrame:
    """Return the keys that others changed: whether they were deleted since (`_deleted`), or may have been (`_unsure`)."""
    is_removed = F.col("_n") > 0
    has_removed = F.max(is_removed).alias("_has_removed")
    first_step = F.min("_since").alias("_since")
    by_key = theirs.groupBy(*columns(key)).agg(has_removed, first_step)
    last = _last_deletions(spark, deletions, key)
    beside = by_key.join(last, list(key), "left")
    since = F.col("_since")
    was_deleted = F.col("_deleted_in") > since
    is_deleted = F.coalesce(was_deleted, F.lit(False))
    is_unknown = since < F.lit(deletions.unknown_until)
    may_be_deleted = F.col("_has_removed") & is_unknown
    is_unsure = may_be_deleted & ~is_deleted
    return beside.select(*columns(key), is_deleted.alias("_deleted"), is_unsure.alias(UNSURE))


def _last_deletions(spark: SparkSession, deletions: _Deletions, key: Sequence[str]) -> DataFrame:
    """Return for each key that steps deleted the last that did."""
    rows = deletions.keys.to_pylist()
    schema = spark_schema(deletions.keys.schema)
    deleted = spark.createDataFrame(rows, schema)
    last_step = F.max("_deleted_in").alias("_deleted_in")
    return deleted.groupBy(*columns(key)).agg(last_step)
