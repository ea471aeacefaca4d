"""What the facts of each kind of step say as actions of the tables beside the state."""

import pytest

from ebbtide.ledger.decisions import decision_of
from ebbtide.ledger.facts import StepFacts, SwappedTables
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.model.decision import Alter, Append, Apply, Clear, Replace, Restore, Rewrite, Source
from ebbtide.model.schema_change import SchemaChange
from ebbtide.model.step import StepKind

ADDED = SchemaChange(added={"more": None})
BAD = [{"add": {"path": "part.parquet"}}]
ALTER = Alter(ADDED, "id BIGINT")


def facts(kind, **given):
    return StepFacts(
        kind=kind, pipeline="p", incarnation="i", epoch=1, step=7, now_ms=0, state_version=6, spec={}, code="1", **given
    )


def all_of(action):
    return dict.fromkeys(BESIDE_STATE, action)


@pytest.mark.parametrize(
    ("kind", "given", "counts", "tables"),
    [
        (StepKind.BATCH, {}, {"inserted": 1}, {"sink": Apply(only_inserts=True)}),
        (StepKind.BATCH, {}, {"inserted": 1, "updated": 1}, {"sink": Apply()}),
        (StepKind.BATCH, {}, {"updated": 1}, {"sink": Apply()}),
        (StepKind.BATCH, {}, {"deleted": 1}, {"sink": Apply()}),
        (StepKind.BATCH, {}, {"filled": 1}, {"sink": Apply()}),
        (StepKind.BATCH, {"floor_raised": True}, {"inserted": 1}, {"sink": Apply(), "changelog": Append()}),
        (StepKind.BATCH, {"floor_raised": True}, {}, {"sink": Apply(), "changelog": Append()}),
        (StepKind.BATCH, {}, {"changes": 1}, {}),
        (StepKind.BATCH, {}, {"emitted": 1}, {"changelog": Append()}),
        (StepKind.BATCH, {"bad_rows": BAD}, {}, {"quarantine": Append()}),
        (StepKind.BATCH, {"bad_rows": []}, {}, {}),
        (StepKind.BATCH, {"quarantined": 1}, {}, {"quarantine": Append()}),
        (StepKind.ADOPT, {}, {"inserted": 1}, {"sink": Apply()}),
        (StepKind.TICK, {}, {"deleted": 1}, {"sink": Apply()}),
        (StepKind.BACKFILL, {}, {"updated": 1}, {"sink": Apply()}),
        (StepKind.QUARANTINE_REPLAY, {"bad_rows": BAD}, {"inserted": 1}, {"sink": Apply(only_inserts=True), "quarantine": Append()}),
        (StepKind.QUARANTINE_DROP, {"bad_rows": BAD}, {}, {"quarantine": Append()}),
        (StepKind.RESET, {}, {}, all_of(Clear())),
        (StepKind.REPAIR, {}, {}, all_of(Rewrite())),
        (StepKind.REWIND, {"restores": {"sink": 3}}, {}, {"sink": Restore(3, changes_rows=True)}),
        (StepKind.MIGRATION, {"restores": {"sink": 3}}, {}, {"sink": Restore(3, changes_rows=False)}),
        (StepKind.MIGRATION, {"schema_change": ADDED, "columns_before": "id BIGINT"}, {}, {"sink": ALTER, "changelog": ALTER}),
        (StepKind.MIGRATION, {"reselects": True}, {}, {"sink": Rewrite(alters=True)}),
        (StepKind.MIGRATION, {}, {}, {}),
        (StepKind.CLEANUP, {}, {}, {}),
        (StepKind.COMPACTION, {"floor_raised": True}, {}, {}),
        (StepKind.ACKNOWLEDGE, {"sink_version": 4}, {}, {}),
        (StepKind.CLOCK, {}, {}, {}),
        (StepKind.SOURCE, {}, {}, {}),
    ],
)  # fmt: skip
def test_each_table_has_the_action_of_the_step(kind, given, counts, tables):
    assert decision_of(facts(kind, **given), counts, emits=True).tables == tables


def test_swap_replaces_all_tables_by_those_that_the_backfill_has():
    swapped = facts(StepKind.SWAP, swap=SwappedTables(incarnation="other", versions={"sink": 5}))
    decision = decision_of(swapped, {}, emits=True)
    assert decision.tables == all_of(Replace("other", None)) | {"sink": Replace("other", 5)}
    assert decision.is_swap


@pytest.mark.parametrize("kind", [StepKind.BATCH, StepKind.REPAIR])
def test_pipeline_without_a_changelog_writes_no_rows_of_one(kind):
    assert "changelog" not in decision_of(facts(kind, floor_raised=True), {"emitted": 1}, emits=False).tables


def test_changelog_of_an_earlier_spec_is_cleared():
    assert decision_of(facts(StepKind.RESET), {}, emits=False).tables == all_of(Clear())


@pytest.mark.parametrize("kind", StepKind)
def test_source_begins_with_steps_that_go_elsewhere_and_advances_with_batches(kind):
    begins = kind in (StepKind.RESET, StepKind.REWIND, StepKind.SOURCE, StepKind.SWAP)
    advances = kind is StepKind.BATCH
    expected = Source.BEGIN if begins else Source.ADVANCE if advances else Source.KEEP
    assert decision_of(facts(kind), {}, emits=True).source is expected
