"""Drift: what is refused, and what a spec with columns taken in is."""

import pyarrow as pa
import pytest
from crashes.disk import DiskPipeline
from local.local_pipeline import up
from local.quarantine_support import by_seq, root_of
from local.support import change, plain
from oracles.judging import verdict_of

from ebbtide.errors import SchemaDriftError
from ebbtide.inspect import status
from ebbtide.model import Reading
from ebbtide.operations._stepping import stepping
from ebbtide.runtime import Plan
from ebbtide.runtime import _reading as reading
from ebbtide.runtime._bad_rows import refuse_drift
from ebbtide.runtime._workers.staging import BAD_ROWS

EVOLVE = {"schema_evolution_mode": "evolve"}


def bad(*reasons):
    rows = [
        {
            "_reason": reason,
            "_detail": f"n: got 'x{number}'; allowed: int32",
            "_origin": {"source": "a.jsonl", "partition": 0, "position": number},
        }
        for number, reason in enumerate(reasons)
    ]
    return pa.Table.from_pylist(rows, BAD_ROWS)


def test_step_is_refused_with_the_first_place_and_the_way_out():
    of = plain(schema_evolution_mode="fail")
    with pytest.raises(SchemaDriftError) as refused:
        refuse_drift(of, bad("bad_json", "wrong_type", "unknown_column"))
    message = str(refused.value)
    assert "2 records, the first of them a.jsonl partition 0 position 1: wrong_type: n: got 'x1'" in message
    assert "ebbtide migrate" in message
    refuse_drift(of, bad("bad_json", "null_key"))
    refuse_drift(plain(schema_evolution_mode="quarantine"), bad("wrong_type"))


def taken_in(disk, **types):
    with stepping(disk, disk.plan) as stepper:
        reading._add_columns(disk, stepper, types, Reading(5, 5))
    disk.plan = Plan.under(root_of(disk), disk.spec)
    disk.reload()


def test_columns_taken_in_are_part_of_the_spec_from_then_on(tmp_path):
    disk = DiskPipeline(by_seq(**EVOLVE), tmp_path)
    disk.step([change("+I", id=1, n=1, seq=1)])
    taken_in(disk, tier="STRING")
    taken_in(disk, level="BIGINT")
    assert disk.plan.evolved == {"tier": "STRING", "level": "BIGINT"}
    assert disk.plan.state.last()[1].state.evolved == {"tier": "STRING", "level": "BIGINT"}
    assert disk.plan.spec.table.columns.names == ["id", "n", "seq", "tier", "level"]
    disk.spec = disk.plan.spec
    disk.step([change("+U", id=1, n=2, seq=2, tier="gold"), change("+I", id=2, n=2, seq=2)])
    assert [(row["tier"], row["level"]) for row in disk.rows()] == [("gold", None), (None, None)]


def drifts(pipeline):
    """Whether the check of drift fails."""
    return not verdict_of(None, pipeline.plan, "schema_drift").passed


def test_new_columns_are_taken_in_with_the_step_that_meets_them(make):
    pipeline = make(**EVOLVE)
    pipeline.put(up(1, 1, tier="gold", odd={"x": 1}))
    found = pipeline.run()
    assert (found.evolved, found.ignored_columns) == ({"tier": "STRING"}, ["odd"])
    said = status(pipeline.spec, pipeline.root).text()
    assert "columns taken in, to be added to the schema: `tier` STRING DEFAULT NULL" in said
    assert [row["tier"] for row in pipeline.table("sink", pipeline.plan.sink.schema)] == ["gold"]
    assert drifts(pipeline)
    pipeline.put(up(2, 2, level=7), up(1, 3, tier="basic", level=8))
    assert pipeline.run().evolved == {"tier": "STRING", "level": "BIGINT"}
    rows = pipeline.table("sink", pipeline.plan.sink.schema)
    assert sorted((row["id"], row["tier"], row["level"]) for row in rows) == [(1, "basic", 8), (2, None, 7)]
    schema = pipeline.plan.spec.schema_
    pipeline.spec = pipeline.with_fields(ignored_columns=["odd"])
    assert not drifts(pipeline)
    pipeline.spec = pipeline.with_fields(schema=schema, schema_evolution_mode="ignore")
    assert pipeline.run().steps == []


def test_step_that_drifts_is_refused_before_anything_of_it_is_committed(make):
    pipeline = make(schema_evolution_mode="fail")
    pipeline.read(up(1, 1))
    pipeline.put(up(2, 2), up(3, "x", more=1))
    for _ in range(2):
        with pytest.raises(SchemaDriftError, match=r"0001\.jsonl"):
            pipeline.run()
        assert pipeline.last.step == 1
    pipeline.spec = pipeline.with_fields(schema_evolution_mode="quarantine")
    assert pipeline.run().totals["quarantined"] == 1
    assert pipeline.rows() == {1: 1, 2: 2}


def test_columns_that_the_schema_has_by_now_or_leaves_out_are_not_added(tmp_path):
    disk = DiskPipeline(by_seq(**EVOLVE), tmp_path)
    taken_in(disk, tier="STRING", level="BIGINT")
    in_schema = by_seq(
        "id BIGINT NOT NULL, n INT, seq INT, tier STRING DEFAULT NULL, level BIGINT DEFAULT NULL", **EVOLVE
    )
    assert Plan.under(root_of(disk), in_schema).evolved == {}
    assert in_schema.misfits(disk.plan.spec.identity) == []
    left_out = by_seq(**EVOLVE, ignored_columns=["level"])
    assert Plan.under(root_of(disk), left_out).evolved == {"tier": "STRING"}
    renamed = by_seq(
        "id BIGINT NOT NULL, n INT, seq INT, rank BIGINT DEFAULT NULL",
        **EVOLVE,
        columns={"rank": {"renamed_from": "level"}},
    )
    assert Plan.under(root_of(disk), renamed).evolved == {"tier": "STRING"}
