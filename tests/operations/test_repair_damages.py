"""Each damage of a sink, in each kind of pipeline: repaired, it has the rows of a pipeline that met none; or the repair is refused by name.

`repair_here` compares what was written from the state with the right rows.
"""

import json
import shutil
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from crashes import damages
from crashes.damages import FOREIGN, LOST, keep_copy, lose_change_sets, shown, trim_state
from frame.interrupting import killed_before
from frame.limits import limits, set_limits
from frame.thinned import graded, thinned
from local.local_pipeline import LATER, Kept, LocalPipeline, up
from local.local_run import HOUR
from local.support import change
from victims import refuse_fed_twice

from ebbtide.delta import Log, Snapshot
from ebbtide.errors import HistoryGoneError, RepairError, TableMismatchError
from ebbtide.ledger import Cause
from ebbtide.model import Decision, RestoreAndApply, Rewrite
from ebbtide.tables import SinkTable

FORGETS = {"order": "arrival", "ttl": "150m"}
KINDS: dict[str, dict[str, Any]] = {
    "sequence": {},
    "rewritten files": {"sink": {"write": "rewrite"}},
    "emission every": {"order": "arrival", "materializer": {"emission": "every"}},
    "expired rows stay": FORGETS,
    "expired rows go": {**FORGETS, "materializer": {"on_expire": "delete"}},
    "function": {"function": "victims:Totals", "ttl": {"total": "9h", "seen": "9h"}},
    "live rows expire": {"ttl": {"ttl": "150m", "expire_live": True}},
}
WHOLE = ("expired rows stay",)
"""The kind that meets every damage in the quick tests: the state has some rows of the sink."""
THREE = (*WHOLE, "sequence", "function")
"""Beside it, those whose state has all rows of the sink, and none."""
FEW = ("delete", "newest file lost", "sink dropped")
"""A damage by a commit, one of a file, and one of all."""
KEEPS_ALL = ("sequence", "rewritten files", "emission every", "expired rows go")
pytestmark = pytest.mark.group("repair_damages")  # a pipeline of each kind is made once
FILES = [
    [up(1, 1, "+I"), up(2, 2, "+I"), up(3, 3, "+I")],
    [up(4, 4, "+I"), up(5, 5, "+I")],
    [up(2, 6, "+U"), up(6, 6, "+I")],
    [change("-D", id=4, n=4), up(7, 7, "+I")],
]
MORE = [up(8, 8, "+I"), up(2, 9, "+U")]


def feed(pipeline, files, first=0):
    """An hour goes by before each file."""
    for number, lines in enumerate(files, first):
        pipeline.read(*lines, clock_ms=LATER + number * HOUR)


def rows(pipeline) -> pa.Table:
    return Snapshot.read(pipeline.plan.sink.path).rows(pipeline.plan.sink.schema)


@dataclass
class Aged:
    """A pipeline after four steps, with a copy of its folder after each.

    Args:
        pipeline: It.
        right: What its sink shows after each, and after a fifth.
        rows: The rows of its sink after each.
    """

    pipeline: LocalPipeline
    right: list[Any] = field(default_factory=list)
    rows: list[pa.Table] = field(default_factory=list)

    def note(self) -> None:
        shutil.copytree(self.pipeline.home, self._copy(len(self.right)))
        self.right.append(shown(self.pipeline))
        self.rows.append(rows(self.pipeline))

    def back_to(self, step: int) -> LocalPipeline:
        """Give the pipeline as it was after a step; its sink after the first is kept to be put back."""
        home = self.pipeline.home
        shutil.rmtree(home)
        shutil.copytree(self._copy(step - 1), home)
        for number, file in enumerate(sorted(self.pipeline.source.iterdir())):
            if number >= step:
                file.unlink()
        return self.pipeline

    def _copy(self, number: int) -> Path:
        return self.pipeline.home.with_name(f"after-{number}")

    def refuse_wrong(self, pipeline: LocalPipeline) -> None:
        """Refuse a sink that is not right, or not after one more step, and a repair that leaves something to do."""
        assert shown(pipeline) == self.right[3]
        assert pipeline.repair(action="plan")["findings"] == []
        if len(Log(pipeline.plan.sink.path).versions()) == 2:  # it began empty: the feed is all the repair's
            refuse_fed_twice(pipeline.plan)
        feed(pipeline, [MORE], 4)
        assert shown(pipeline) == self.right[4]
        assert pipeline.is_idle(LATER + 4 * HOUR)


@pytest.fixture(scope="module", params=KINDS)
def aged(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("aged")
    with limits():
        pipeline = LocalPipeline(folder, **KINDS[request.param])
        aged = Aged(pipeline)
        for number, lines in enumerate([*FILES, MORE]):
            feed(pipeline, [lines], number)
            aged.note()
            if number == 0:
                keep_copy(pipeline)
        yield request.param, aged


def restored(pipeline):
    """The way of the sink in the last step, if it went back to a version of its own."""
    action = pipeline.last.decision.tables.get("sink")
    return action if isinstance(action, RestoreAndApply) else None


def has_no_way(pipeline):
    """Whether a repair would be refused."""
    return any(finding["is_refused"] for finding in pipeline.repair(action="plan")["findings"])


OF_WHOLE = pytest.mark.parametrize("aged", graded(KINDS, WHOLE), indirect=True)
OF_THREE = pytest.mark.parametrize("aged", graded(KINDS, THREE), indirect=True)
OF_FOUR = pytest.mark.parametrize("aged", graded(KINDS, (*THREE, "live rows expire")), indirect=True)


@OF_THREE
def test_sink_that_was_dropped_is_repaired_in_every_kind_of_pipeline(aged):
    hold_repaired(aged, "sink dropped")


@OF_WHOLE
@pytest.mark.parametrize("name", [name for name in (*FOREIGN, *LOST) if name != "sink dropped"])
def test_damage_of_the_newest_sink_is_repaired_by_its_own_versions_and_later_steps(aged, name):
    hold_repaired(aged, name)


def hold_repaired(aged, name):
    _, pipelines = aged
    pipeline = pipelines.back_to(4)
    (FOREIGN | LOST)[name](pipeline)
    [finding] = pipeline.repair(action="plan")["findings"]
    assert pipeline.repair()["findings"] == [finding]
    assert (finding["table"], finding["rows"]) == ("sink", ""), "no row is lost"
    assert restored(pipeline) is not None
    pipelines.refuse_wrong(pipeline)


@OF_FOUR
@pytest.mark.parametrize(
    "name", ["delete", *(pytest.param(name, marks=pytest.mark.grid) for name in FOREIGN if name != "delete")]
)
def test_steps_since_a_foreign_write_are_applied_again(aged, name):
    kind, pipelines = aged
    pipeline = pipelines.back_to(2)
    FOREIGN[name](pipeline)
    feed(pipeline, FILES[2:], 2)
    assert kind == "expired rows go" or shown(pipeline) != pipelines.right[3]
    if kind == "live rows expire":  # what steps decided since may follow from the rows that another client changed
        with pytest.raises(RepairError, match="cannot be repaired"):
            pipeline.repair()
        return
    pipeline.repair()
    way = restored(pipeline)
    assert (way.version, way.first_step, way.last_step) == (2, 3, pipeline.last.step - 1)
    pipelines.refuse_wrong(pipeline)


GONE = {"vacuumed": lose_change_sets, "log cleaned up": trim_state}


MORE_DAMAGES = (*FEW, "commit torn", "another table", "put back")


@OF_THREE
@pytest.mark.parametrize("name", graded(MORE_DAMAGES, ("delete", "sink dropped", "put back")))
def test_without_change_sets_the_state_tells_the_rows_or_the_repair_is_refused_or_says_what_is_lost(aged, name):
    hold_without_change_sets(aged, "vacuumed", name)


@OF_THREE
@pytest.mark.parametrize("name", graded(MORE_DAMAGES, ("delete", "sink dropped")))
def test_without_the_log_of_the_state_its_rows_are_written_or_the_repair_is_refused_or_says_what_is_lost(aged, name):
    hold_without_change_sets(aged, "log cleaned up", name)


def hold_without_change_sets(aged, gone, name):
    kind, pipelines = aged
    is_foreign = name in FOREIGN
    pipeline = pipelines.back_to(2 if is_foreign else 4)
    if is_foreign:
        FOREIGN[name](pipeline)
        feed(pipeline, FILES[2:], 2)
    n_steps = pipeline.last.step
    GONE[gone](pipeline)
    if not is_foreign:
        LOST[name](pipeline)
    is_refused = kind == "function" or (kind not in KEEPS_ALL and is_foreign)
    if is_refused and has_no_way(pipeline):
        versions = pipeline.versions()
        with pytest.raises(RepairError) as raised:
            pipeline.repair(pipelines.rows[3])
        assert "o version of the pipeline with all later change sets is left" in str(raised.value)
        assert "'ebbtide refresh'" in str(raised.value)
        assert ("'ebbtide acknowledge" in str(raised.value)) == is_foreign
        assert pipeline.versions() == versions
        return
    pipeline.repair(pipelines.rows[3])
    assert pipeline.last.step > n_steps
    if restored(pipeline) is None:
        has_lost = kind not in KEEPS_ALL
        assert bool(pipeline.last.cause.notes) == has_lost
        assert kind in KEEPS_ALL or "missing ones are lost" in pipeline.last.cause.notes[0]
        assert pipeline.last.decision.tables["sink"] == Rewrite(overwrites=name == "newest file lost")
        if has_lost:
            return
    pipelines.refuse_wrong(pipeline)


PLACES = {
    "nothing is committed": "net changes are found",
    "the sink is not committed": "the sink is restored and written",
}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """What the sink shows of a pipeline that forgets, and met no damage."""
    with limits():
        pipeline = LocalPipeline(tmp_path_factory.mktemp("twin"), **FORGETS)
        feed(pipeline, FILES)
        return shown(pipeline)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A pipeline whose state has forgotten rows that stay, of whose sink another client has deleted rows after its second step."""
    with limits():
        pipeline = LocalPipeline(tmp_path_factory.mktemp("forgetful"), **FORGETS)
        feed(pipeline, FILES[:2])
        damages.delete(pipeline)
        feed(pipeline, FILES[2:], 2)
        return Kept(pipeline)


@pytest.fixture
def forgetful(kept, untouched):
    pipeline = kept.again()
    assert shown(pipeline) != untouched
    return pipeline


def test_forgotten_row_that_comes_and_goes_after_another_client_deleted_it_does_not_come_back(make):
    """It comes and goes in one step: the sink had no such row before or after, so its commits say nothing of it."""
    pipeline = make(**FORGETS)
    pipeline.read(*FILES[0])
    pipeline.read(*FILES[1], clock_ms=LATER + 5 * HOUR)
    damages.overwrite(pipeline)
    pipeline.read(up(3, 6, "+I"), change("-D", id=3, n=6), clock_ms=LATER + 5 * HOUR)
    assert shown(pipeline) == []
    pipeline.repair()
    assert shown(pipeline) == [{"id": id_, "n": id_} for id_ in (1, 2, 4, 5)]
    assert pipeline.repair(action="plan")["findings"] == []


RIGHT = [{"id": id_, "n": n} for id_, n in [(1, 1), (2, 6), (3, 3), (5, 5), (6, 6), (7, 7)]]
"""By sequence."""


@pytest.mark.parametrize(("place", "again"), thinned(product(PLACES, ("run", "repair")), 3))
def test_repair_that_was_killed_before_the_sink_is_finished_by_a_run_or_a_repair(forgetful, untouched, place, again):
    with killed_before(PLACES[place]):
        forgetful.repair()
    assert not forgetful.is_idle(LATER + 3 * HOUR)
    forgetful.run(LATER + 3 * HOUR) if again == "run" else forgetful.repair()
    assert shown(forgetful) == untouched
    assert forgetful.repair(action="plan")["findings"] == []


def test_repair_that_was_killed_behind_the_sink_commits_nothing_twice(forgetful, untouched, monkeypatch):
    with monkeypatch.context() as patch:
        real = SinkTable.restore_and_apply

        def commits_and_dies(*given):
            real(*given)
            raise InterruptedError

        patch.setattr(SinkTable, "restore_and_apply", commits_and_dies)
        with pytest.raises(InterruptedError):
            forgetful.repair()
    versions = forgetful.versions()["sink"]
    forgetful.run(LATER + 3 * HOUR)
    assert forgetful.versions()["sink"] == versions
    assert shown(forgetful) == untouched


def test_repair_that_an_earlier_release_has_decided_brings_forgotten_rows_back(forgetful, untouched):
    """Its facts say nothing of the sink's way."""
    with forgetful.stepper() as stepper:
        decision = Decision(tables={name: Rewrite() for name in Decision.OWN_OUTPUTS})
        stepper.commit(stepper.facts(Cause(what="repair"), decision=decision), [])
    forgetful.run(LATER + 3 * HOUR)
    assert shown(forgetful) == untouched
    assert forgetful.repair(action="plan")["findings"] == []


def test_repair_is_one_commit_of_the_sink(forgetful):
    before = forgetful.versions()["sink"]
    forgetful.repair()
    assert forgetful.versions()["sink"] == before + 1
    commit = Log(forgetful.plan.sink.path).commit(before + 1)
    assert commit.info()["operation"] == "RESTORE"
    assert not any("metaData" in action or "protocol" in action for action in commit), "columns stay"


@pytest.mark.parametrize("kind", graded((*THREE, "live rows expire"), ("expired rows stay", "function")))
def test_decided_repair_whose_steps_are_gone_is_refused_and_another_one_finds_the_way_that_is_left(make, kind):
    pipeline = make(**KINDS[kind])
    feed(pipeline, FILES)
    right = rows(pipeline)
    before = shown(pipeline)
    damages.drop(pipeline)
    with killed_before("net changes are found"):
        pipeline.repair()
    trim_state(pipeline)
    with pytest.raises(HistoryGoneError, match=r"what steps up to .* decided is gone.* 'ebbtide repair --apply' again"):
        pipeline.run(LATER + 3 * HOUR)
    if kind == "function":
        with pytest.raises(RepairError, match="cannot be repaired"):
            pipeline.repair()
        return
    pipeline.repair(right)
    assert (shown(pipeline) == before) == (kind in KEEPS_ALL)
    assert bool(pipeline.last.cause.notes) == (kind not in KEEPS_ALL)


def test_what_was_acknowledged_stays_and_what_came_after_goes(make):
    pipeline = make(function="victims:Totals", ttl={"total": "9h", "seen": "9h"})
    feed(pipeline, FILES[:2])
    damages.delete(pipeline)
    accepted = shown(pipeline)
    pipeline.act("acknowledge", reason="meant so")
    assert pipeline.repair(action="plan")["findings"] == []
    damages.insert(pipeline)
    [finding] = pipeline.repair(action="plan")["findings"]
    assert "other clients changed rows: version 4 (WRITE)" in finding["found"]
    pipeline.repair()
    assert shown(pipeline) == accepted
    damages.drop(pipeline)  # what was accepted is in no change set
    assert has_no_way(pipeline)


def test_repair_of_another_table_accepts_the_sink_that_it_has_looked_at(make):
    pipeline = make(order="arrival", materializer={"emission": "every"})
    feed(pipeline, FILES[:2])
    shutil.rmtree(pipeline.home / "changelog")
    version = pipeline.versions()["sink"]
    pipeline.repair()
    assert (pipeline.last.decision.accepts_sink, pipeline.versions()["sink"]) == (version, version)
    damages.delete(pipeline)
    pipeline.repair()
    assert restored(pipeline).version == version


BETWEEN = ("rewind", "refresh", "compaction", "cleanup")
QUICK_BETWEEN = [
    ("rewind", "newest file lost"),
    ("rewind", "sink dropped"),
    ("refresh", "sink dropped"),
    ("compaction", "newest file lost"),
    ("cleanup", "delete"),
]


@pytest.mark.parametrize(("between", "name"), graded(list(product(BETWEEN, FEW)), QUICK_BETWEEN))
def test_sink_is_repaired_behind_other_steps(make, between, name):
    """A sink that was dropped after a rewind has no version left to go back to: the state holds its rows."""
    pipeline = make()
    feed(pipeline, FILES[:2])
    pipeline.do(between)
    feed(pipeline, FILES[2:], 2)
    right = rows(pipeline)
    (FOREIGN | LOST)[name](pipeline)
    pipeline.repair(right)
    assert shown(pipeline) == RIGHT
    assert (restored(pipeline) is None) == (between == "rewind" and name == "sink dropped")


@pytest.mark.parametrize(
    "kind", graded(("expired rows stay", "live rows expire", "function"), ("expired rows stay", "function"))
)
def test_sink_that_was_dropped_behind_a_rewind_has_lost_what_its_state_does_not_keep(make, kind):
    pipeline = make(**KINDS[kind])
    feed(pipeline, FILES)
    pipeline.do("rewind")
    pipeline.run(LATER + 4 * HOUR)
    right = rows(pipeline)
    damages.drop(pipeline)
    if kind == "function":
        with pytest.raises(RepairError, match="Restore it from a copy; or run 'ebbtide refresh'"):
            pipeline.repair()
        return
    pipeline.repair(right)
    [loss] = pipeline.last.cause.notes
    assert loss.startswith("sink: gone; rows that differ are written from the state; rows that the state has forgotten")


@pytest.mark.parametrize("between", ["compaction", "cleanup"])
def test_sink_is_repaired_over_maintenance_between(make, untouched, between):
    pipeline = make(**FORGETS)
    feed(pipeline, FILES[:2])
    damages.delete(pipeline)
    pipeline.do(between)
    feed(pipeline, FILES[2:], 2)
    pipeline.repair()
    assert shown(pipeline) == untouched


@pytest.mark.parametrize("name", ["delete", "newest file lost", "put back"])
def test_way_back_does_not_lead_over_a_change_of_columns(make, name):
    pipeline = make()
    feed(pipeline, FILES[:1])
    keep_copy(pipeline)
    feed(pipeline, FILES[1:2], 1)
    pipeline.spec = pipeline.with_fields(schema="id BIGINT NOT NULL, n INT, more INT DEFAULT 7")
    pipeline.do("alter")
    feed(pipeline, FILES[2:], 2)
    right, right_rows = shown(pipeline), rows(pipeline)
    (FOREIGN | LOST)[name](pipeline)
    if name == "put back":
        with pytest.raises(TableMismatchError, match=r"has other columns .*'ebbtide refresh'"):
            pipeline.repair()
        return
    pipeline.repair(right_rows)
    way = restored(pipeline)
    assert way is None or way.version >= 3
    assert shown(pipeline) == right


def envelope(op, lsn, **row):
    """A change as Debezium writes it."""
    return json.dumps({"op": op, "before": None, "after": row or None, "source": {"lsn": lsn, "ts_ms": lsn}})


@pytest.mark.parametrize(
    ("order", "is_before"), thinned(product(("arrival", {"sequence": ["_lsn"]}), (True, False)), 3)
)
def test_rows_below_a_truncate_do_not_come_back(make, order, is_before):
    """Those of the version that is gone back to, and those that a later step brought before it."""
    pipeline = make(format={"type": "debezium"}, order=order)
    feed(pipeline, [[envelope("c", 1, id=1, n=1)], [envelope("c", 2, id=2, n=2)]])
    if is_before:
        damages.delete(pipeline)
    feed(pipeline, [[envelope("c", 3, id=3, n=3)], [envelope("t", 4)], [envelope("c", 5, id=5, n=5)]], 2)
    if not is_before:
        damages.insert(pipeline)
    pipeline.repair()
    assert pipeline.rows() == {5: 5}


def test_more_rows_than_one_process_takes_are_compared_in_spark_instead(make):
    pipeline = make()
    feed(pipeline, FILES)
    set_limits(way_back_most_rows=3)
    damages.drop(pipeline)
    planned = pipeline.repair(action="plan")
    assert list(planned.lines[1:]) == ["sink: gone; rows that differ are written from the state"]
