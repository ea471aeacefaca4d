"""A source that takes its snapshot again: rows that were deleted in between are found, and deleted by a repair."""

import json
import random

import pytest
from local.local_run import SPARK, START
from local.support import envelope
from operating import operation_named
from oracles.judging import verdict_of
from victims import shown

from ebbtide import run
from ebbtide.errors import RepairError
from ebbtide.operations import Context
from ebbtide.runtime import Plan
from ebbtide.spec import UpsertPipeline

NOT_SHOWN = "expect_snapshot_to_show_all_rows"
MARKS = {"first": "first_in_data_collection", "last": "last_in_data_collection"}


class Source:
    """A table of Postgres, and the events that its connector sends."""

    def __init__(self):
        self.rows = {}
        self.lsn = 100
        self.sent = []

    def put(self, id_, v, *, is_sent=True):
        self.lsn += 10
        op = "u" if id_ in self.rows else "c"
        self.rows[id_] = v
        if is_sent:
            self.sent.append(envelope(op, self.lsn, after={"id": id_, "v": v}, ts_ms=START, snapshot="false"))

    def delete(self, id_, *, is_sent=True):
        self.lsn += 10
        del self.rows[id_]
        if is_sent:
            self.sent.append(envelope("d", self.lsn, before={"id": id_}, ts_ms=START, snapshot="false"))

    def snapshot(self, *, marks=MARKS, rows=None):
        self.lsn += 10
        shown = list(self.rows.items())[:rows]
        for number, (id_, v) in enumerate(shown):
            mark = "true"
            if number == 0:
                mark = marks["first"]
            if number == len(self.rows) - 1:
                mark = marks["last"]
            self.sent.append(envelope("r", self.lsn, after={"id": id_, "v": v}, ts_ms=START, snapshot=mark))

    def incremental(self):
        for id_, v in self.rows.items():
            self.sent.append(
                envelope("r", None, after={"id": id_, "v": v}, ts_ms=START, snapshot="incremental", pos=self.lsn)
            )

    def take(self):
        """Return what was sent since it was taken last."""
        taken, self.sent = self.sent, []
        return taken


class Pipeline:
    """Runs over steps of events, checks and repairs."""

    def __init__(self, folder, order=("_lsn",)):
        self.folder = folder
        (folder / "in").mkdir()
        self.root = str(folder / "root")
        self.spec = UpsertPipeline(
            name="t",
            source={"path": str(folder / "in"), "records": "value"},
            format={"type": "debezium"},
            schema="id BIGINT NOT NULL, v STRING",
            key=["id"],
            order={"sequence": list(order)},
        )
        self.n_files = 0

    def read(self, events):
        self.n_files += 1
        lines = "".join(json.dumps(event) + "\n" for event in events)
        (self.folder / "in" / f"{self.n_files:04d}.jsonl").write_text(lines)
        return run(SPARK, self.spec, self.root, clock=lambda: START)

    def rows(self):
        return {row["id"]: row["v"] for row in shown(self.spec, self.root)}

    def not_shown(self):
        """Rows that the check finds; None where it does not look."""
        verdict = verdict_of(None, Plan.under(self.root, self.spec), "source_loss", clock_ms=START)
        return next((found.broken for found in verdict.findings if found.expectation == NOT_SHOWN), None)

    def repair(self, action="apply"):
        ctx = Context(self.spec, self.root, SPARK, clock=lambda: START)
        return operation_named("repair").act(action, ctx, operation_named("repair").asked({"by_snapshot": True}))


@pytest.fixture
def pipeline(tmp_path):
    return Pipeline(tmp_path)


def test_rows_that_a_second_snapshot_does_not_show_are_found_and_deleted(pipeline):
    source = Source()
    for id_ in range(4):
        source.put(id_, "a")
    pipeline.read(source.take())
    assert pipeline.not_shown() is None
    source.delete(2, is_sent=False)
    source.put(1, "b", is_sent=False)
    source.snapshot()
    pipeline.read(source.take())
    assert pipeline.rows() == {0: "a", 1: "b", 2: "a", 3: "a"}
    assert pipeline.not_shown() == 1
    assert pipeline.repair("plan")["rows"] == 1
    assert pipeline.rows() == {0: "a", 1: "b", 2: "a", 3: "a"}
    assert pipeline.repair()["rows"] == 1
    assert (pipeline.rows(), pipeline.not_shown()) == (source.rows, 0)
    assert pipeline.repair()["step"] is None
    source.put(2, "again")
    source.put(3, "c")
    pipeline.read(source.take())
    assert pipeline.rows() == source.rows


def lose_one(pipeline, **snapshot):
    """Two rows, of which one is deleted unseen before a second snapshot."""
    source = Source()
    source.snapshot()
    for id_ in range(3):
        source.put(id_, "a")
    pipeline.read(source.take())
    source.delete(1, is_sent=False)
    source.snapshot(**snapshot)
    return source


def test_snapshot_over_several_steps_is_judged_at_its_end(pipeline):
    source = lose_one(pipeline)
    first, last = source.take()
    pipeline.read([first])
    assert pipeline.not_shown() is None
    with pytest.raises(RepairError, match="last row has not come"):
        pipeline.repair()
    pipeline.read([last])
    pipeline.read([first, last])  # delivered again
    assert pipeline.not_shown() == 1
    pipeline.repair()
    assert pipeline.rows() == source.rows


def test_snapshot_that_was_broken_off_is_begun_again(pipeline):
    source = lose_one(pipeline, rows=1)
    source.put(3, "a")
    pipeline.read(source.take())
    source.delete(0, is_sent=False)
    source.snapshot()
    pipeline.read(source.take())
    assert pipeline.not_shown() == 2
    pipeline.repair()
    assert pipeline.rows() == source.rows


def test_two_snapshots_in_one_step_count_as_two(pipeline):
    source = Source()
    source.put(1, "a")
    source.put(2, "a")
    source.snapshot()
    source.delete(2, is_sent=False)
    source.snapshot()
    pipeline.read(source.take())
    assert pipeline.not_shown() == 1
    pipeline.repair()
    assert pipeline.rows() == source.rows


@pytest.mark.parametrize("marks", [{"first": "true", "last": "true"}, {"first": None, "last": None}])
def test_snapshot_without_an_end_is_not_judged(pipeline, marks):
    source = lose_one(pipeline, marks=marks)
    pipeline.read(source.take())
    assert pipeline.not_shown() is None
    with pytest.raises(RepairError, match="'ebbtide refresh'"):
        pipeline.repair("plan")


def test_first_and_incremental_snapshots_show_nothing_lost(pipeline):
    source = Source()
    source.rows = {1: "a", 2: "b"}
    source.snapshot()
    pipeline.read(source.take())
    assert pipeline.not_shown() == 0
    source.put(3, "c")
    source.incremental()
    pipeline.read(source.take())
    assert (pipeline.not_shown(), pipeline.rows()) == (0, source.rows)
    assert pipeline.repair("plan")["rows"] == 0


def flattened(event):
    row = event["after"] or event["before"]
    source = {f"__source_{name}": value for name, value in event["source"].items()}
    return {**row, "__op": event["op"], **source}


def in_mysql(event):
    lsn = event["source"].pop("lsn")
    pos = lsn or event["source"]["pos"]  # rows of an incremental snapshot have a position, too
    event["source"] |= {"file": "binlog.000001", "pos": pos, "row": 0}
    return event


@pytest.mark.parametrize(
    ("order", "written"),
    [
        (["_lsn"], flattened),
        (["_ts_ms", "_lsn"], dict),
        (["_file", "_pos", "_row"], in_mysql),
        (["_lsn"], lambda event: {"schema": {"type": "struct", "fields": []}, "payload": event}),
    ],
    ids=["flattened", "time", "mysql", "schema"],
)
@pytest.mark.parametrize("seed", range(2))
def test_repaired_sink_is_the_source_s_table(tmp_path, order, written, seed):
    """A random history with lost events, at last a snapshot, and further changes."""
    draw = random.Random(seed)
    pipeline = Pipeline(tmp_path, order)
    source = Source()
    for step in range(4):
        is_sent = step != 2
        for _ in range(12):
            id_ = draw.randrange(8)
            if id_ in source.rows and draw.random() < 0.5:
                source.delete(id_, is_sent=is_sent)
            else:
                source.put(id_, f"{step}.{draw.random()}", is_sent=is_sent)
        if step == 1 and order[0] != "_ts_ms":
            source.incremental()
        if step == 2:
            source.snapshot()
        pipeline.read([written(event) for event in source.take()])
    assert pipeline.not_shown() == len(pipeline.rows().keys() - source.rows.keys())
    pipeline.repair()
    assert pipeline.rows() == source.rows
