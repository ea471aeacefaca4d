"""Rows, columns and schemas in the form that Spark takes. PySpark is loaded by their first use: most runs have none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ebbtide.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Item = TypeVar("Item")


def column(name: str, side: str = "") -> Column:
    """Return a column by its name, which may have any characters."""
    from pyspark.sql import functions as F

    return F.col(quoted(name, side))


def columns(names: Iterable[str]) -> list[Column]:
    """Return columns by their names."""
    return [column(name) for name in names]


def frame_of(
    spark: SparkSession, rows: Callable[[Item], Iterable[pa.Table]], items: Sequence[Item], schema: pa.Schema
) -> DataFrame:
    """Return a frame of the rows that a function returns for items, each in a task.

    Args:
        rows: The function; picklable.
        items: The items.
        schema: The columns of the rows.
    """
    # Spark's `mapInArrow` takes no name with a dot in it.
    places = [str(place) for place in range(len(schema))]

    def made(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for table in rows(items[number]):
                    yield from table.rename_columns(places).to_batches()

    of_places = pa.schema([field.with_name(place) for place, field in zip(places, schema, strict=True)])
    numbers = spark.range(len(items), numPartitions=len(items))
    return numbers.mapInArrow(made, spark_schema(of_places, nullable=True)).toDF(*schema.names)


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
