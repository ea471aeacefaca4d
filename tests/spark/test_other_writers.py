"""Spark writes the sink of a pipeline: the pipeline goes on with what it left, and a repair takes it back."""

import pytest
from frame.limits import limits
from inputs.other_writers import THEIRS, begun, step_three, values
from local.local_pipeline import Kept


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    with limits():
        return Kept(begun(tmp_path_factory.mktemp("kept")))


def merge(spark, table):
    [row] = spark.sql(f"SELECT * FROM {table} WHERE id = 5").collect()
    rows = [{**row.asDict(), "v": THEIRS}, {**row.asDict(), "id": 77}]
    given = spark.createDataFrame(rows, spark.table(table).schema)
    given.createOrReplaceTempView("given")
    spark.sql(
        f"MERGE INTO {table} t USING given s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


WRITES = {
    "update": lambda spark, table: spark.sql(f"UPDATE {table} SET v = '{THEIRS}' WHERE id IN (3, 5)"),
    "update of nested": lambda spark, table: spark.sql(f"UPDATE {table} SET tags = array('{THEIRS}'), part.a = NULL"),
    "delete": lambda spark, table: spark.sql(f"DELETE FROM {table} WHERE id = 3"),
    "delete of all": lambda spark, table: spark.sql(f"DELETE FROM {table}"),
    "merge": merge,
    "optimize": lambda spark, table: spark.sql(f"OPTIMIZE {table}"),
    "z-order": lambda spark, table: spark.sql(f"OPTIMIZE {table} ZORDER BY (n)"),
    "purge": lambda spark, table: spark.sql(f"REORG TABLE {table} APPLY (PURGE)"),
}
CHANGES_NO_ROW = ("optimize", "z-order", "purge")


@pytest.mark.grid  # without Spark: tests/operations/test_other_writers.py; of the table alone: tests/spark/test_delta.py
@pytest.mark.parametrize("name", WRITES)
def test_pipeline_goes_on_after_a_write_of_spark_and_a_repair_takes_it_back(spark, kept, name):
    alone = kept.again()
    before = values(alone)
    step_three(alone)
    after = values(alone)
    pipeline = kept.again()
    WRITES[name](spark, f"delta.`{pipeline.plan.sink.path}`")
    assert (values(pipeline) == before) is (name in CHANGES_NO_ROW)
    step_three(pipeline)
    shown = values(pipeline)
    assert [shown.get(id_) for id_ in (3, 7, 8)] == [after.get(id_) for id_ in (3, 7, 8)]
    report = pipeline.repair()
    assert bool(report.findings) is (name not in CHANGES_NO_ROW)
    assert values(pipeline) == after
