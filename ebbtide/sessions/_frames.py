"""Frames, columns and schemas in the form that Spark takes. PySpark is loaded by their first use: most runs have none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from ebbtide.sessions._versions import arrow_frame, rows_of_plan, tried

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

Item = TypeVar("Item")


class Frames:
    """Makes frames and columns in a session.

    Args:
        session: The session.
    """

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def of_arrow(self, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
        """Return a table of Arrow as a frame.

        Args:
            rows: Its rows; some of their chunks may be empty.
            schema: Spark's types. Default: those of the rows.
        """
        return arrow_frame(self.session, rows, schema)

    def of_items(
        self, rows: Callable[[Item], Iterable[pa.Table]], items: Sequence[Item], schema: pa.Schema
    ) -> DataFrame:
        """Return the rows that a function returns for items, each in a task.

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
        numbers = self.session.range(len(items), numPartitions=len(items))
        return numbers.mapInArrow(made, spark_schema(of_places, nullable=True)).toDF(*schema.names)

    def of_delta(self, location: str, version: int) -> DataFrame:
        """Return a Delta table as of a version.

        Args:
            location: Location of the table.
            version: The version.
        """
        return self.session.read.format("delta").option("versionAsOf", version).load(location)

    def of_changes(self, location: str, first: int, last: int | None = None) -> DataFrame:
        """Return the change feed of a Delta table.

        Args:
            location: Location of the table.
            first: The first version.
            last: The last version. Default: the newest.
        """
        feed = self.session.read.format("delta").option("readChangeFeed", "true").option("startingVersion", first)
        if last is not None:
            feed = feed.option("endingVersion", last)
        return feed.load(location)

    def of_plan(self, plan: Any) -> Any:
        """Return Java's frame of a logical plan."""
        return rows_of_plan(self.session, plan)

    def tried(self, value: Column) -> Column:
        """Return a value, null where its evaluation fails."""
        return tried(self.session, value)


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
