"""What folds keep of the state: newest versions, notes of files and of accepted keys; and when all of it is folded."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from frame.limits import set_limits
from frame.stored_names import BASE, FILE
from local.local_pipeline import LATER, up
from local.local_run import SPARK
from local.support import plain
from plans import operator_of

from ebbtide.delta import DataFile, Log
from ebbtide.entries import Step
from ebbtide.ledger import Cause
from ebbtide.runtime._fold import fold_state
from ebbtide.tables import KeepEntries, StateTable
from ebbtide.tables._state.layout import rows_of

AGEING = {"order": {"sequence": ["n"]}, "ttl": {"ttl": "10ms", "expire_live": True}}


def kept(keep, operator, *entries):
    """The ids of the entries that stay."""
    rows = [{"_removed": False, **entry} for entry in entries]
    return keep(pa.Table.from_pylist(rows, operator.schema), operator)["id"].to_pylist()


def test_dropped_entries_stay_while_older_versions_may_be_elsewhere():
    operator = operator_of(plain(**AGEING))
    entries = {"id": 1}, {"id": 2, "_removed": True}, {"id": 3, "_stamp_ms": 0}, {"id": 4, "_stamp_ms": 1}
    at = Step(9, 10)
    assert kept(KeepEntries(is_whole=False, at=at), operator, *entries) == [1, 2, 3, 4]
    assert kept(KeepEntries(is_whole=True), operator, *entries) == [1, 3, 4]
    assert kept(KeepEntries(is_whole=True, at=at), operator, *entries) == [1, 4], "3 has expired"


def test_rows_of_a_function_for_its_sink_go_with_a_fold_of_all(make):
    operator = make(function="victims:Totals", ttl={"total": "1h", "seen": "2h"}).plan.operator
    entries = {"id": 1, "_state": "total"}, {"id": 2}, {"id": 3, "_state": "seen", "_removed": True}
    assert kept(KeepEntries(is_whole=False), operator, *entries) == [1, 2, 3]
    assert kept(KeepEntries(is_whole=True), operator, *entries) == [1]


@pytest.mark.parametrize(
    ("base", "added", "grew"),
    [([], [], False), ([], [99], False), ([], [60, 40], True), ([70, 50], [60, 59], False), ([70, 50], [60, 60], True)],
)
def test_state_is_folded_whole_once_what_was_added_is_as_large_as_the_base(base, added, grew):
    set_limits(whole_bytes=100)
    files = [
        DataFile({"path": f"b{at}", "size": size, "tags": BASE if size == 70 else {**BASE, "more": "x"}})
        for at, size in enumerate(base)
    ]
    files += [DataFile({"path": f"a{at}", "size": size, "tags": {"other": "base"}}) for at, size in enumerate(added)]
    snapshot = SimpleNamespace(files={file.id: file for file in files})
    state = StateTable("t", operator_of(plain(**AGEING)))
    assert state.files_to_fold(snapshot) == (files if grew else [])


def folded(pipeline):
    """The actions of a fold of the state as it is, which begins by itself."""
    state = pipeline.plan.state
    before = state.snapshot()
    after = fold_state(SPARK, pipeline.plan, before)
    assert after.version == before.version + 1
    assert after.files.keys() == state.snapshot().files.keys()
    return Log(state.path).commit(after.version)


@pytest.mark.parametrize("is_whole", [True, False])
def test_fold_keeps_rows_files_read_and_keys_accepted_and_says_that_it_changes_nothing(make, monkeypatch, is_whole):
    pipeline = make(order={"sequence": ["n"]})
    for number in range(3):
        pipeline.read(up(number, 1), up(9, number))
    with pipeline.stepper() as stepper:
        facts = stepper.facts(Cause(what="acknowledge"))
        stepper.commit(facts, [pipeline.plan.state.add_acknowledged(pa.table({"id": [9]}), facts.step)])
    state = pipeline.plan.state
    notes = dict(state.files(state.snapshot().files.values()))
    assert sorted(notes) == ["0000.jsonl", "0001.jsonl", "0002.jsonl"]

    def but_the_first(_, snapshot):
        first, *later = sorted(snapshot.files.values(), key=lambda file: file.add["modificationTime"])
        return [first, *later] if is_whole else later

    monkeypatch.setattr(StateTable, "files_to_fold", but_the_first)
    actions = folded(pipeline)
    adds = [action["add"] for action in actions if "add" in action]
    removes = [action["remove"] for action in actions if "remove" in action]
    assert {action["dataChange"] for action in (*adds, *removes)} == {False}
    assert len([add for add in adds if BASE.items() <= (add.get("tags") or {}).items()]) == is_whole
    files = state.snapshot().files.values()
    assert dict(state.files(files)) == notes
    noted_by = rows_of(state.path, files, FILE, pa.schema({"_step": pa.int64()}))["_step"]
    assert sorted(noted_by.to_pylist()) == [1, 2, 3], "each by the step that read it"
    assert state.acknowledged_in(files).select(["id", "_step"]).to_pylist() == [{"id": 9, "_step": facts.step}]
    assert pipeline.rows() == {0: 1, 1: 1, 2: 1, 9: 2}
    assert pipeline.run(LATER).steps == []
    pipeline.read(up(9, 1), up(0, 5))
    assert pipeline.rows() == {0: 5, 1: 1, 2: 1, 9: 2}, "what was folded is known"


def test_fold_of_all_leaves_no_dropped_entry(make):
    pipeline = make(order="arrival")
    pipeline.read(up(1, 1, "+I"), up(2, 2, "+I"))
    pipeline.read(up(1, 1, "-D"))
    set_limits(width=1)
    folded(pipeline)
    state = pipeline.plan.state
    ids = state.stored(state.snapshot()).read(["id"])["id"]
    assert ids.to_pylist() == [2]


def test_state_with_nothing_to_gain_is_left(make):
    pipeline = make()
    pipeline.read(up(1, 1))
    before = pipeline.plan.state.snapshot()
    set_limits(width=100)
    assert fold_state(SPARK, pipeline.plan, before) is before
    set_limits(whole_bytes=1)
    assert fold_state(SPARK, pipeline.plan, before).version == before.version + 1
