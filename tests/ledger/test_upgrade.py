"""Facts that earlier releases have stored: each kind of step of format 2 becomes the actions that it stood for."""

import json
import tarfile
from pathlib import Path

import pytest
from frame.limits import limits
from local.local_pipeline import LocalPipeline

from ebbtide.delta import Log
from ebbtide.errors import DamagedFileError
from ebbtide.ledger import StepFacts
from ebbtide.ledger._upgrade import beginning_of
from ebbtide.model import Alter, Append, Apply, Clear, Decision, Replace, Restore, Rewrite, SchemaChange, Source

KEPT = Path(__file__).parent.parent / "data" / "format_2"
"""Roots as a release with format 2 left them when it was killed right behind a step's decision, and what its next run made of them."""
NAMES = sorted(path.name.removesuffix(".json") for path in KEPT.glob("*.json"))
ADDED = {"added": {"more": None}}
BAD = [{"add": {"path": "part.parquet"}}]
ALTER = Alter(SchemaChange(**ADDED), "id BIGINT")
APPENDED = {"quarantine": Append(tuple(BAD))}


def facts(kind, **given):
    """Facts of format 2, as they are read now."""
    made_by = {"pipeline": "p", "incarnation": "i", "epoch": 1, "step": 7, "code": "1"}
    stored = {
        "ebbtide": 2,
        "kind": kind,
        **made_by,
        "now_ms": 5,
        "state_version": 6,
        "spec": {"key": ["id"]},
        "counts": {},
    }
    return StepFacts.of_commit(stored | given, "t")


def all_of(action):
    return dict.fromkeys(Decision.OWN_OUTPUTS, action)


@pytest.mark.parametrize(
    ("kind", "given", "tables"),
    [
        ("batch", {"counts": {"inserted": 1}}, {"sink": Apply(only_inserts=True)}),
        ("batch", {"counts": {"inserted": 1, "updated": 1}}, {"sink": Apply()}),
        ("batch", {"counts": {"updated": 1}}, {"sink": Apply()}),
        ("batch", {"counts": {"deleted": 1}}, {"sink": Apply()}),
        ("batch", {"counts": {"filled": 1}}, {"sink": Apply()}),
        ("batch", {"counts": {"inserted": 1}, "floor_raised": True}, {"sink": Apply(), "changelog": Append()}),
        ("batch", {"floor_raised": True}, {"sink": Apply(), "changelog": Append()}),
        ("batch", {"counts": {"changes": 1}}, {}),
        ("batch", {"counts": {"emitted": 1}}, {"changelog": Append()}),
        ("batch", {"bad_rows": BAD}, APPENDED),
        ("batch", {"bad_rows": []}, {}),
        ("batch", {"counts": None}, {"sink": Apply(), "changelog": Append()}),
        ("adopt", {"counts": {"inserted": 1}}, {"sink": Apply()}),
        ("tick", {"counts": {"deleted": 1}}, {"sink": Apply()}),
        ("backfill", {"counts": {"updated": 1}}, {"sink": Apply()}),
        ("quarantine_replay", {"bad_rows": BAD, "counts": {"inserted": 1}}, {"sink": Apply(only_inserts=True), **APPENDED}),
        ("quarantine_drop", {"bad_rows": BAD, "left_quarantine": {"dropped": 2}}, {"quarantine": Append(tuple(BAD), {"dropped": 2})}),
        ("quarantine_drop", {"counts": None}, {}),
        ("reset", {}, all_of(Clear())),
        ("repair", {}, all_of(Rewrite())),
        ("rewind", {"restores": {"sink": 3}}, {"sink": Restore(3, changes_rows=True)}),
        ("migration", {"restores": {"sink": 3}}, {"sink": Restore(3, changes_rows=False)}),
        ("migration", {"schema_change": ADDED, "columns_before": "id BIGINT"}, {"sink": ALTER, "changelog": ALTER}),
        ("migration", {"reselects": True}, {"sink": Rewrite(alters=True)}),
        ("migration", {}, {}),
        ("swap", {"swap": {"incarnation": "o", "versions": {"sink": 5}}}, all_of(Replace("o", None)) | {"sink": Replace("o", 5)}),
        ("cleanup", {}, {}),
        ("compaction", {"floor_raised": True}, {}),
        ("acknowledge", {"sink_version": 4}, {}),
        ("clock", {}, {}),
        ("source", {}, {}),
    ],
)  # fmt: skip
def test_each_kind_of_step_becomes_the_actions_of_its_tables(kind, given, tables):
    read = facts(kind, **given)
    assert read.decision.tables == tables
    assert read.cause.what == kind


@pytest.mark.parametrize(
    ("kinds", "source"),
    [
        (("batch",), Source.ADVANCE),
        (("reset", "rewind", "source", "swap"), Source.BEGIN),
        (("tick", "adopt", "backfill", "migration", "cleanup", "repair", "clock"), Source.KEEP),
    ],
)
def test_each_kind_has_its_effect_on_the_source(kinds, source):
    assert {facts(kind).decision.source for kind in kinds} == {source}


@pytest.mark.parametrize(
    ("kind", "given", "ends"),
    [
        ("batch", {"counts": {"deleted": 1}, "bad_rows": BAD}, False),
        ("cleanup", {}, False),
        ("source", {}, False),
        ("adopt", {"step": 2}, False),
        ("adopt", {"step": 1}, True),
        ("acknowledge", {"sink_version": 4}, True),
        ("reset", {}, True),
        ("repair", {}, True),
        ("rewind", {"restores": {"sink": 3}}, True),
        ("migration", {"restores": {"sink": 3}}, True),
        ("migration", {"schema_change": ADDED}, True),
        ("migration", {}, False),
        ("swap", {"swap": {"incarnation": "o", "versions": {}}}, True),
    ],
)
def test_checks_look_back_to_where_they_looked_before(kind, given, ends):
    assert facts(kind, **given).ends_window is ends


def test_what_held_for_one_kind_stands_where_it_belongs():
    assert facts("adopt", unadopted=3).state.unadopted == 3
    assert facts("batch").state.unadopted is None
    assert facts("compaction").state.is_folded
    assert facts("acknowledge", sink_version=4).decision.accepts_sink == 4
    assert (facts("clock", reason="late").cause.why, facts("quarantine_drop", note="old").cause.why) == ("late", "old")
    assert facts("repair", losses=["a"]).cause.notes == ("a",)
    assert facts("tick", lost="7 records").source.lost == "7 records"
    assert facts("backfill", reread={"from": {}}).source.reread == {"from": {}}


def test_rows_that_wait_are_known_by_the_counts_of_the_step_that_read():
    assert facts("batch", counts={"pending_key_changes": 2}).state.pending_key_changes
    assert not facts("batch", counts={}, pending_key_changes=True).state.pending_key_changes
    assert facts("batch", counts=None).state.pending_key_changes, "they are looked for where nothing is known"
    assert facts("cleanup", pending_key_changes=True).state.pending_key_changes


def test_clock_is_the_step_s_own():
    clock = facts("batch", wall_ms=9, downtime_ms=1, held_ms=2, paused_ms=3).frontier.clock
    assert (clock.now_ms, clock.wall_ms, clock.downtime_ms, clock.held_ms, clock.paused_ms) == (5, 9, 1, 2, 3)
    assert facts("batch").frontier.clock.wall_ms == 5, "of the first releases"


@pytest.mark.parametrize(
    ("decided", "query_id", "stands"),
    [("advance", "a", True), ("begin", "a", False), ("begin", "b", True)],
)
def test_begin_of_a_folder_that_the_last_step_gives_up_is_not_taken(tmp_path, decided, query_id, stands):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    start = {"topic": "t", "from": {"0": 4}, "to": {"0": 9}, "asked": "latest"}
    (folder / "ebbtide_start.json").write_text(json.dumps(start))
    (folder / "metadata").write_text(json.dumps({"id": "a"}))
    facts = {"ebbtide": 3, "step": 1, "decision": {"source": decided}, "source": {"query_id": query_id}}
    commits = tmp_path / "state" / "_delta_log"
    commits.mkdir(parents=True)
    commit = {"commitInfo": {"userMetadata": json.dumps(facts)}}
    (commits / f"{0:020d}.json").write_text(json.dumps(commit))
    found = beginning_of(str(tmp_path))
    want = {"position": {"topic": "t", "from": {"0": 4}, "to": {"0": 4}}, "asked": "latest", "lost": None}
    assert found == (want if stands else None)


def test_facts_that_lack_what_their_format_has_are_damaged():
    with pytest.raises(DamagedFileError, match="incarnation"):
        facts("batch", incarnation=None)


def kept_root(name):
    """Unpack a root that was killed behind a decision here; return its pipeline, and what the next run of that release made of it."""
    expected = json.loads((KEPT / f"{name}.json").read_text())
    with tarfile.open(KEPT / f"{name}.tar.gz") as archive:
        archive.extractall(filter="data")
    pipeline = LocalPipeline(Path(), **expected["fields"])
    assert pipeline.last.step == expected["step"]
    _, newest = next(Log(pipeline.plan.at("state")).own_commits())
    assert newest["ebbtide"] == 2
    return pipeline, expected


@pytest.mark.parametrize("name", NAMES)
def test_step_that_an_earlier_release_decided_is_finished_as_that_release_did(name, tmp_path, shell):
    shell.cd(tmp_path)
    pipeline, expected = kept_root(name)
    if name == "repair":  # Spark compares the sink with the state; see tests/spark/test_repair.py
        assert pipeline.last.decision.tables == all_of(Rewrite())
        return
    with limits():
        if name == "adopt":
            pipeline.do("adopt", expected["clock_ms"])
        else:
            pipeline.run(expected["clock_ms"])
    assert sorted([id_, n] for id_, n in pipeline.rows().items()) == expected["rows"]
    assert pipeline.plan.quarantine.size() == expected["quarantined"]
    emitted = pipeline.table("changelog", pipeline.plan.changelog.schema)
    assert len(emitted) == expected["emitted"]
    assert pipeline.versions() == expected["versions"] | {"state": pipeline.versions()["state"]}
    assert pipeline.is_idle(expected["clock_ms"]) or name == "adopt", (
        "only an adopted sink has its source still to read"
    )


def test_a_root_of_each_cause_is_kept():
    kept = {json.loads((KEPT / f"{name}.json").read_text())["kind"] for name in NAMES}
    on_topics_alone = {"backfill", "source"}
    assert kept | on_topics_alone == {
        "acknowledge", "adopt", "backfill", "batch", "cleanup", "clock", "compaction", "migration", "quarantine_drop",
        "quarantine_replay", "repair", "reset", "rewind", "source", "swap", "tick",
    }  # fmt: skip
