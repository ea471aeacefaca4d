"""Ordering: changes reach the sink in order, and the sink shows what the state decided.

Source: DESIGN, "Expectations"; FLIP-544, on what a disordered changelog does to a sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import ORDER
from ebbtide.checks import _changelog as changelog
from ebbtide.checks._comparing import compared
from ebbtide.checks._dialects import Dialect
from ebbtide.checks._entries import Entries
from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks._rule import Rows, Rule, Severity, rule
from ebbtide.entries import SinkChange

_CONTRADICTIONS = pa.schema(
    [
        ("step", pa.int64()),
        ("changes", pa.int64()),
        ("unmatched", pa.int64()),
        ("repeated", pa.int64()),
        ("superseded_newer", pa.int64()),
        ("created_over_rows", pa.int64()),
        ("late_deletes", pa.int64()),
    ]
)


def sink_changes(judged: Judged) -> Rows:
    """Select the rows written in the sink's change feed, each with the `_changed_by` of its key's previous row (`_before`)."""

    def query(sql: Dialect) -> str:
        key = sql.names(judged.key)
        # A commit that updates a row writes both its images: the old one comes first.
        image = "CASE WHEN _change_type IN ('delete', 'update_preimage') THEN 0 ELSE 1 END"
        by_position = sql.ranks("_changed_by", ORDER.names)
        in_order = ", ".join(["_commit_version", image, *by_position])
        before = f"lag(_changed_by) OVER (PARTITION BY {key} ORDER BY {in_order})"
        beside = f"SELECT *, {before} AS _before FROM sink_feed"
        return f"""
            SELECT *
            FROM ({beside}) AS _beside
            WHERE _change_type IN ('insert', 'update_postimage')"""

    columns = [*judged.key, "_changed_by", "_change_type", "_commit_version", "_before"]
    return Rows({"sink_feed": judged.sink_feed}, query, columns, [*judged.key, "_commit_version"])


@rule("expect_changes_to_rise_per_key", "Per $key, _changed_by must rise from change to change.")
def disordered_changes(sql: Dialect, key: Sequence[str]) -> str:
    """Pick the changes whose `_changed_by` is not after that of the row before, per key.

    Args:
        sql: The dialect.
        key: Names of the key's columns.
    """
    before = sql.ranks("_before", ORDER.names)
    after = sql.ranks("_changed_by", ORDER.names)
    rises = sql.is_before(before, after)
    return f"_changed_by IS NULL OR (_before IS NOT NULL AND NOT {rises})"


def decisions(judged: Judged) -> Rows:
    """Select the state's last decision and the sink's row for keys that changed in either table within the window.

    Rows are compared with the change that wrote them. Keys deleted by a TRUNCATE, or without a stored decision, are left out.
    """
    tables = judged.tables
    facts = judged.window.last_step(tables)
    floor = None if facts is None else facts.frontier.floor
    step_before = judged.window.step_since(tables)
    sink = tables.delta_sink
    compared_by = pa.schema([*sink.columns, sink.schema.field("_changed_by")])

    def query(sql: Dialect) -> str:
        entries = Entries(tables, sql)
        key = sql.names(judged.key)
        later = entries.decided_since(step_before)
        newest = entries.decided(floor)
        changed = f"""
            SELECT {key}
            FROM sink_feed
            UNION
            SELECT {key}
            FROM ({later}) AS _later"""
        last = f"""
            SELECT *, _change <> '{SinkChange.DELETE}' AS _ebbtide_is_decided
            FROM ({newest}) AS _last"""
        decided = f"""
            SELECT *
            FROM ({last}) AS _decisions
            INNER JOIN ({changed}) AS _changed
            USING ({key})"""
        return compared(sql, decided, "SELECT * FROM sink_rows", judged.key, compared_by)

    inputs = {
        "sink_feed": judged.sink_feed,
        "sink_rows": judged.sink_rows,
        "state_rows": judged.state_rows,
    }
    return Rows(inputs, query, [*judged.key, "_decided", "_shown"], judged.key)


@rule("expect_sink_to_show_decisions", "The sink must show, per key, what the state decided last.")
def decision_mismatches(sql: Dialect) -> str:
    """Select the keys whose row in the sink differs from the decided one; each differing row of a key counts."""
    return "NOT _ebbtide_is_same"


def undecided(judged: Judged) -> Rows:
    """Select the keys with a conflict that was not acknowledged, in sequence mode: a repair decides none."""
    step_before = judged.window.last_accepted_step(judged.tables)
    key = list(judged.tables.spec.key)

    def query(sql: Dialect) -> str:
        current = Entries(judged.tables, sql).current(step_before)
        return f"""
            SELECT {sql.names(key)}, _sequence, _conflict
            FROM ({current}) AS _current
            WHERE NOT _removed AND _conflict"""

    return Rows({"state_rows": judged.state_rows}, query, [*key, "_sequence", "_conflict"], key)


def sequenced(judged: Judged) -> Rows:
    """Select each live key of the window, its `_sequence`, and the columns whose values it `_waits` for, in sequence mode."""
    step_before = judged.window.input_step(judged.tables)
    key = list(judged.tables.spec.key)

    def query(sql: Dialect) -> str:
        current = Entries(judged.tables, sql).current(step_before)
        names = sql.names(key)
        # A column whose value was not sent has no sequence.
        waits = sql.keys_of_nulls("_columns")
        return f"""
            SELECT {names}, _sequence, {waits} AS _waits
            FROM ({current}) AS _current
            WHERE NOT _removed AND NOT _tombstone"""

    return Rows({"state_rows": judged.state_rows}, query, [*key, "_sequence", "_waits"], key)


@rule(
    "expect_sequences_to_decide",
    "A key's sequence must determine which of its changes came last; add a column to order.sequence that does.",
)
def undecided_keys(sql: Dialect) -> str:
    """Select the keys whose sequence does not determine the row, or its existence after retractions."""
    return "_conflict"


@rule("expect_values_to_arrive", "A value that an update left out must be known from an earlier change.")
def missing_values(sql: Dialect) -> str:
    """Select the rows that show null because a value was not sent and has not been found yet."""
    return f"{sql.length('_waits')} > 0"


def contradictions(judged: Judged) -> pa.Table:
    """Read the number of changes of each step that contradicted stored rows.

    Returns:
        One row per step: `step`, `changes`; `unmatched`, retractions without a row (not counting expired rows);
        `repeated`, rows added to a history with an equal one; `superseded_newer`, changes that lost to a row with an
        older event time; `created_over_rows`, creates under a key that had a row; `late_deletes`, deletes of rows that were replaced in an earlier step.
    """
    window = judged.window
    rows = []
    for version, facts in judged.tables.state.steps():
        if version <= window.input_since:
            break
        if version > window.state_until:
            continue
        counts = facts.decision.counts
        row = {name: counts.get(name, 0) for name in _CONTRADICTIONS.names}
        row["step"] = facts.step
        row["unmatched"] -= counts.get("unmatched_expired", 0)
        rows.append(row)
    return pa.Table.from_pylist(rows, _CONTRADICTIONS)


@rule("expect_retractions_to_find_their_rows", "A retraction must find its row: else the row that it means stays.")
def unmatched_retractions(sql: Dialect) -> str:
    """Pick the steps with unmatched retractions."""
    return "unmatched > 0"


@rule(
    "expect_added_rows_to_be_new",
    "No row may be added to a key that has an equal one: one delivered twice stays when the row is deleted.",
)
def repeated_additions(sql: Dialect) -> str:
    """Pick the steps that added a row twice."""
    return "repeated > 0"


@rule(
    "expect_newer_changes_to_win",
    "No change may lose to a row with an older event time, as where the source's log begins again.",
)
def newer_changes_that_lost(sql: Dialect) -> str:
    """Pick the steps with changes that lost, though they are newer."""
    return "superseded_newer > 0"


@rule(
    "expect_creates_to_meet_no_row",
    "No row may be created under a key that has one: a delete is missing, or two rows have one key.",
)
def creates_over_rows(sql: Dialect) -> str:
    """Pick the steps with creates that no delete of the row before preceded."""
    return "created_over_rows > 0"


def _unsettled(steps: pa.Table) -> pa.Table:
    """Return the steps without their creates over rows if as many deletes came late: a create may overtake the delete before it."""
    n_created = _total(steps, "created_over_rows")
    n_late = _total(steps, "late_deletes")
    return steps.slice(0, 0) if n_late >= n_created else steps


def _total(steps: pa.Table, counted: str) -> int:
    return pc.sum(steps[counted]).as_py() or 0


def _judged_by_share(
    judged: Judged, steps: pa.Table, counted: str, wrong: Rule, *, is_expected: bool = False
) -> Iterator[Batch]:
    """Judge changes that contradict stored rows: one is a warning, more than the allowed share an error.

    Args:
        judged: The question.
        steps: See `contradictions`.
        counted: Its column that counts them.
        wrong: Picks the steps that have any.
        is_expected: Some are normal: only more than the allowed share is a warning.
    """
    n_wrong = _total(steps, counted)
    n_changes = _total(steps, "changes")
    is_excess = n_wrong > judged.tables.spec.checks.max_unapplied_rate * n_changes
    if is_expected and not is_excess:
        return
    severity: Severity = "critical" if is_excess and not is_expected else "warning"
    yield judged.batch(Rows.given(steps), wrong.expected(severity))


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the changes of the sink one by one, and the final rows."""
    yield judged.batch(sink_changes(judged), disordered_changes.expected(key=judged.key))
    yield judged.batch(decisions(judged), decision_mismatches.expected())
    spec = judged.tables.spec
    if spec.sequence:
        values = missing_values.expected("warning")
        yield judged.batch(undecided(judged), undecided_keys.expected())
        yield judged.batch(sequenced(judged), values)
        steps = contradictions(judged)
        yield from _judged_by_share(judged, steps, "superseded_newer", newer_changes_that_lost)
        yield from _judged_by_share(judged, _unsettled(steps), "created_over_rows", creates_over_rows)
    elif spec.retracts:
        steps = contradictions(judged)
        # A retraction of an expired row that is no longer stored finds nothing: this is normal.
        yield from _judged_by_share(judged, steps, "unmatched", unmatched_retractions, is_expected=bool(spec.ttls))
        if not spec.has_positions:
            yield from _judged_by_share(judged, steps, "repeated", repeated_additions)
    if spec.emits_every:
        yield from changelog.judge(judged)
