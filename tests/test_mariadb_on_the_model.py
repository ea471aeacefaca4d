"""A real capture of MariaDB by Debezium, without Spark: the tables are those of the database, in any order of arrival."""

import random

import pytest
from local.support import evenly, lines_of
from oracles.reference import differences
from servers.mariadb import CAPTURE, TABLES, found, pipeline_of, truth

WITH_SCHEMAS = CAPTURE / "with_schemas"
READ = [
    (CAPTURE, None),
    (WITH_SCHEMAS, 1),
    *(pytest.param(*read, marks=pytest.mark.grid) for read in ((CAPTURE, 1), (CAPTURE, 2), (WITH_SCHEMAS, None))),
]
"""A capture, and the seed of its shuffling."""


@pytest.mark.parametrize(("capture", "seed"), READ)
@pytest.mark.parametrize("table", TABLES)
def test_mariadb_table_equals_the_database_in_any_order(table, capture, seed):
    lines = list(lines_of(capture / "shop.jsonl.gz"))
    if seed is not None:
        random.Random(seed).shuffle(lines)
    pipeline = pipeline_of(table, capture)
    for step in evenly(lines, 5 if seed else 2):
        pipeline.step(step)
    assert differences(found(pipeline), truth(table, capture, pipeline.spec.table.columns)) == []
    assert pipeline.metrics["conflicts"] == 0
