"""Rows, columns and schemas in the form that Spark takes. PySpark is loaded by their first use: most runs have none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebbtide.columns import quoted
from ebbtide.spark_versions import frame_of_arrow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


def column(name: str, side: str = "") -> Column:
    """Return a column by its name, which may have any characters."""
    from pyspark.sql import functions as F

    return F.col(quoted(name, side))


def columns(names: Iterable[str]) -> list[Column]:
    """Return columns by their names."""
    return [column(name) for name in names]


def arrow_frame(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Return rows as a frame of Spark.

    Args:
        rows: Rows; some of their chunks may be empty.
        schema: Spark's types. Default: those of the rows.
    """
    # In one chunk: Spark 4.2 stops at the first empty chunk, and silently drops the rows after it.
    return frame_of_arrow(spark, rows.combine_chunks(), schema)


TO_THE_MICROSECOND = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Spark's options for times in JSON."""


def json_text(row: Column) -> Column:
    """Return a struct as JSON, to compare rows."""
    from pyspark.sql import functions as F

    # Nulls are written, so that no field is missing. Spark would cut times off after the millisecond.
    return F.to_json(row, {"ignoreNullFields": "false", **TO_THE_MICROSECOND})


def spark_schema(schema: pa.Schema, *, nullable: bool = False) -> Any:
    """Return Spark's form of a schema; times without a zone stay without one.

    Args:
        schema: The schema in Arrow.
        nullable: Every column may be null, also those that `schema` does not allow to.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    if nullable:
        fields = [field.with_nullable(True) for field in schema]
        schema = pa.schema(fields)
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def read_delta(spark: SparkSession, location: str, version: int) -> DataFrame:
    """Read a Delta table as of a version.

    Args:
        location: Location of the table.
        version: The version.
    """
    return spark.read.format("delta").option("versionAsOf", version).load(location)
