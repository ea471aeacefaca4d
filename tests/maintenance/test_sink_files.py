"""Data files of a sink that are gone or damaged, without Spark; how their rows come back is in `tests/spark/test_repair.py`."""

from pathlib import Path

import pytest
from local_pipeline import up
from local_run import SPARK

from ebbtide.delta.snapshot import Snapshot
from ebbtide.maintenance import repair
from ebbtide.maintenance.job import stepping
from ebbtide.maintenance.repair import RepairReport
from ebbtide.maintenance.sink_files import damaged_files, take_out

FORGETS = {"order": "arrival", "ttl": "2h"}
LOST = "sink: data files are gone or damaged; rows that the state has forgotten stood there alone: what is missing of them is lost"


@pytest.fixture
def damaged(make, monkeypatch):
    """Makes a pipeline whose sink has lost a data file."""

    def damaged(**fields):
        pipeline = make(**fields)
        pipeline.read(up(1, 1, "+I"))
        pipeline.read(up(2, 2, "+I"))
        sink = Snapshot.read(pipeline.plan.sink.path)
        file, *_ = sink.files.values()
        Path(file.location(sink.table)).unlink()
        return pipeline

    monkeypatch.setattr(repair, "_compared", lambda *_: RepairReport("t"))
    return damaged


def losses(pipeline):
    return repair.plan(SPARK, pipeline.spec, pipeline.root).losses


def take_damaged_out(pipeline):
    """What a repair does before it makes its step."""
    with stepping(SPARK, pipeline.plan, refuse=lambda *_: None) as stepper:
        take_out(stepper, damaged_files(pipeline.plan.sink.path))


@pytest.mark.parametrize(("fields", "said"), [({}, ()), (FORGETS, (LOST,))])
def test_loss_is_said_until_a_repair_has_made_its_step(damaged, fields, said):
    pipeline = damaged(**fields)
    assert losses(pipeline) == said
    take_damaged_out(pipeline)  # and is killed
    assert damaged_files(pipeline.plan.sink.path) == []
    assert losses(pipeline) == said
    pipeline.repair(pipeline.plan.sink.schema.empty_table())
    assert losses(pipeline) == ()
