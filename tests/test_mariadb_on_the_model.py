"""A real capture of MariaDB by Debezium, without Spark: the tables are those of the database, in any order of arrival."""

import random

import pytest
from mariadb import CAPTURE, TABLES, found, pipeline_of, truth
from reference import differences
from support import evenly, lines_of

SHUFFLED = [None, 1, 2]


@pytest.mark.parametrize("seed", SHUFFLED)
@pytest.mark.parametrize("capture", [CAPTURE, CAPTURE / "with_schemas"], ids=["bare", "with schemas"])
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
