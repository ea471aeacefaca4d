"""Rows that are handed to Spark arrive, whatever chunks they lie in."""

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from ebbtide.frames import arrow_frame, json_text, spark_schema

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.mark.parametrize("with_schema", [False, True])
def test_rows_behind_chunks_without_rows_reach_spark(spark, with_schema):
    empty = COLUMNS.empty_table()
    rows = pa.table({"id": [1, 2], "v": ["a", None]}, COLUMNS)
    chunked = pa.concat_tables([empty, empty, rows, empty, rows])
    schema = spark_schema(COLUMNS, nullable=True) if with_schema else None
    frame = arrow_frame(spark, chunked, schema)
    assert sorted(row["id"] for row in frame.collect()) == [1, 1, 2, 2]


@pytest.mark.parametrize("type_", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_times_that_differ_by_a_microsecond_differ_as_text(spark, type_):
    times = [f"CAST('2024-05-01 12:00:00.00000{micros}' AS {type_})" for micros in (1, 2)]
    frame = spark.sql(f"SELECT explode(array({', '.join(times)})) AS at")
    texts = frame.select(json_text(F.struct("at")).alias("text")).collect()
    assert len({row["text"] for row in texts}) == 2
    assert "12:00:00.000001" in texts[0]["text"]
