"""Drift: what is refused, and what a spec with columns taken in is."""

import pytest
from local.local_pipeline import up
from oracles.judging import n_broken

from ebbtide.errors import SchemaDriftError
from ebbtide.inspect import status

EVOLVE = {"schema_evolution_mode": "evolve", "schema": "id BIGINT NOT NULL, n INT"}


def taken_in(make):
    """A pipeline that has taken in two columns, each in a step of its own."""
    pipeline = make(**EVOLVE)
    pipeline.read(up(1, 1))
    pipeline.read(up(2, 2, tier="gold"))
    pipeline.read(up(3, 3, level=7))
    assert pipeline.plan.evolved == pipeline.last.state.evolved == {"tier": "STRING", "level": "BIGINT"}
    return pipeline


def test_columns_taken_in_are_part_of_the_spec_from_then_on(make):
    pipeline = taken_in(make)
    assert pipeline.plan.spec.table.columns.names == ["id", "n", "tier", "level"]
    pipeline.read(up(1, 4, tier="silver"))
    rows = pipeline.table("sink", pipeline.plan.spec.sink_table.columns)
    assert sorted((row["id"], row["tier"], row["level"]) for row in rows) == [
        (1, "silver", None),
        (2, "gold", None),
        (3, None, 7),
    ]


def drifts(pipeline):
    """Whether the check of drift fails."""
    return n_broken(pipeline.plan, "schema_drift") > 0


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
    pipeline.read(up(1, 1), "{")
    pipeline.put("{", up(3, "x"), up(4, 4, more=1), up(2, 2))
    first = r"2 records, the first of them \S*0001\.jsonl partition 0 position 1: wrong_type: n: .*ebbtide migrate"
    for _ in range(2):
        with pytest.raises(SchemaDriftError, match=first):
            pipeline.run()
        assert pipeline.last.step == 1
    pipeline.spec = pipeline.with_fields(schema_evolution_mode="quarantine")
    assert pipeline.run().totals["quarantined"] == 3
    assert pipeline.rows() == {1: 1, 2: 2}


def test_columns_that_the_schema_has_by_now_or_leaves_out_are_not_added(make):
    pipeline = taken_in(make)
    stored = pipeline.plan.spec.identity
    in_schema = "id BIGINT NOT NULL, n INT, tier STRING DEFAULT NULL, level BIGINT DEFAULT NULL"
    pipeline.spec = pipeline.with_fields(schema=in_schema)
    assert (pipeline.plan.evolved, pipeline.spec.misfits(stored)) == ({}, [])
    pipeline.spec = pipeline.with_fields(ignored_columns=["level"])
    assert pipeline.plan.evolved == {"tier": "STRING"}
    renamed = {"schema": "id BIGINT NOT NULL, n INT, rank BIGINT DEFAULT NULL"}
    pipeline.spec = pipeline.with_fields(**renamed, columns={"rank": {"renamed_from": "level"}})
    assert pipeline.plan.evolved == {"tier": "STRING"}
