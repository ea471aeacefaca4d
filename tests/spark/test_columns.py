"""Rows that are handed to Spark arrive, whatever chunks they lie in."""

import pyarrow as pa
import pytest

from ebbtide.sessions import Frames, spark_schema

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.mark.parametrize("with_schema", [False, True])
def test_rows_behind_chunks_without_rows_reach_spark(spark, with_schema):
    empty = COLUMNS.empty_table()
    rows = pa.table({"id": [1, 2], "v": ["a", None]}, COLUMNS)
    chunked = pa.concat_tables([empty, empty, rows, empty, rows])
    schema = spark_schema(COLUMNS, nullable=True) if with_schema else None
    frame = Frames(spark).of_arrow(chunked, schema)
    assert sorted(row["id"] for row in frame.collect()) == [1, 1, 2, 2]
