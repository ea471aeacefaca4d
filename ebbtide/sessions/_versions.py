"""The versions of Spark that Ebbtide runs on, 3.5 to 4.3, and all that differs between them.

Which Delta a Spark needs depends on the Spark that is installed: PySpark's, or that of SPARK_HOME. Nothing of PySpark is loaded before
something of it is asked for.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from ebbtide.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

DELTA = {
    (3, 5): "io.delta:delta-spark_{scala}:3.3.3",
    (4, 0): "io.delta:delta-spark_4.0_{scala}:4.4.0",
    (4, 1): "io.delta:delta-spark_4.1_{scala}:4.4.0",
    (4, 2): "io.delta:delta-spark_4.2_{scala}:4.4.0",
    (4, 3): "io.delta:delta-spark_4.2_{scala}:4.4.0",  # there is none for 4.3 yet; the tests pass on it with this one
}
"""Maven coordinate of the Delta for each version of Spark, by Spark's Scala."""
ALLOWED = f"{'.'.join(map(str, min(DELTA)))} to {'.'.join(map(str, max(DELTA)))}"
SCALA_OF_PYPI = {3: "2.12", 4: "2.13"}
"""Scala of the Spark in PySpark's own packages, by Spark's first number."""


@dataclass(frozen=True, order=True)
class SparkVersion:
    """A version of Spark that Ebbtide runs on.

    Args:
        minor: Its first two numbers.
        scala: Its Scala, as in the names of its artifacts.
    """

    minor: tuple[int, int]
    scala: str

    @classmethod
    def of(cls, version: str, scala: str | None = None) -> Self:
        """Read a version; vendors' endings, as in `3.5.1-amzn-0`, do not matter.

        Args:
            version: The version.
            scala: Its Scala. Default: that of PySpark's packages.

        Raises:
            ConfigError: Ebbtide does not run on it.

        Example:
            >>> SparkVersion.of("4.1.4").delta, SparkVersion.of("3.5.1-amzn-0").delta
            ('io.delta:delta-spark_4.1_2.13:4.4.0', 'io.delta:delta-spark_2.12:3.3.3')
        """
        numbers = re.match(r"(\d+)\.(\d+)", version)
        minor = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
        if minor not in DELTA:
            raise ConfigError.of(
                "Ebbtide does not run on this version of Spark.",
                got=version,
                allowed=f"Spark {ALLOWED}",
                next_step="Install such a PySpark: pip install 'pyspark>=3.5,<4.4'; with SPARK_HOME set, that Spark counts.",
            )
        return cls(minor, scala or SCALA_OF_PYPI[minor[0]])

    @classmethod
    def installed(cls) -> Self:
        """Return the version of the Spark that would be started."""
        # A Spark without jars, or with those of a vendor under other names, is the version that its Python package says.
        jars = (spark_home() / "jars").glob("spark-core_*.jar")
        for jar in jars:
            scala, _, version = jar.stem.removeprefix("spark-core_").partition("-")
            return cls.of(version, scala)
        return cls.of(importlib.metadata.version("pyspark"))

    @classmethod
    @cache
    def of_pyspark(cls) -> Self:
        """Return the version of PySpark's Python code, which SPARK_HOME does not change."""
        import pyspark

        return cls.of(pyspark.__version__)

    @staticmethod
    def minors() -> list[str]:
        """Return the first two numbers of each version that Ebbtide runs on, as in `4.1`."""
        return [".".join(map(str, minor)) for minor in DELTA]

    @property
    def delta(self) -> str:
        """The Maven coordinate of its Delta."""
        return DELTA[self.minor].format(scala=self.scala)

    @property
    def checkpoint_files(self) -> str:
        """The class that renames a stream's files by Hadoop's FileSystem."""
        package = "org.apache.spark.sql.execution.streaming"
        if self.minor >= (4, 1):
            package += ".checkpointing"
        return f"{package}.FileSystemBasedCheckpointFileManager"

    def condition_of(self, error: PySparkException) -> str | None:
        """Return the name of an error's condition, if it has one."""
        if self.minor >= (4, 0):
            return error.getCondition()
        return error.getErrorClass()  # the older name

    def query_logger(self) -> logging.Logger:
        """Return the logger of what queries raise."""
        name = "SQLQueryContextLogger"
        if self.minor < (4, 0):
            return logging.getLogger(name)  # nothing is logged there
        from pyspark.logger import PySparkLogger

        return PySparkLogger.getLogger(name)

    def field_names(self, product: Any) -> list[str]:
        """Return the names of the fields of an instance of a case class, in the order of their values.

        Raises:
            ConfigError: it is of Scala 2.12, which does not know them.
        """
        if self.scala == "2.12":
            raise ConfigError.of(
                "Transforms, materialized views and SQL read the plans of Spark, whose fields have no names here.",
                got="a Spark of Scala 2.12, as 3.5 is by default",
                allowed="Spark 4.0 or newer, or a build of 3.5 for Scala 2.13",
                next_step="Run these pipelines on such a Spark. This one runs the rest.",
            )
        names = product.productElementNames()
        return [str(names.next()) for _ in range(product.productArity())]


def spark_home() -> Path:
    """Return the folder of the Spark that would be started: SPARK_HOME, or PySpark's.

    Raises:
        ConfigError: there is neither.
    """
    given = os.environ.get("SPARK_HOME")
    if given:
        return Path(given)
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise ConfigError.of(
            "There is no Spark.",
            got="neither PySpark nor SPARK_HOME",
            allowed=f"Spark {ALLOWED}",
            next_step="Install it: pip install 'ebbtide[spark]'.",
        )
    return Path(pyspark.origin).resolve().parent


def arrow_table(rows: DataFrame) -> pa.Table:
    """Return the rows of a frame in Arrow."""
    if SparkVersion.of_pyspark().minor >= (4, 0):
        return rows.toArrow()
    schema = arrow_schema(rows.schema)
    collected: Any = rows
    batches = collected._collect_as_arrow()
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def arrow_frame(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Return a table of Arrow as a frame.

    Args:
        spark: The session.
        rows: Its rows; some of their chunks may be empty.
        schema: Spark's types. Default: those of the rows.
    """
    # In one chunk: Spark 4.2 stops at the first empty chunk, and silently drops the rows after it.
    rows = rows.combine_chunks()
    if SparkVersion.of_pyspark().minor >= (4, 0):
        return spark.createDataFrame(rows, schema)
    return _frame_of_arrow_in_3_5(spark, rows, schema)


def _frame_of_arrow_in_3_5(session: Any, rows: pa.Table, schema: StructType | None) -> DataFrame:
    """Hand the rows to Spark as PySpark 3.5 does with those of pandas, which are never made here."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.utils import is_timestamp_ntz_preferred

    if schema is None:
        schema = from_arrow_schema(rows.schema, prefer_timestamp_ntz=is_timestamp_ntz_preferred())
    batches = rows.cast(arrow_schema(schema)).to_batches() or [pa.RecordBatch.from_pylist([], arrow_schema(schema))]
    python = session._jvm.PythonSQLUtils
    stream = session._sc._serialize_to_jvm(
        batches, ArrowStreamSerializer(), python.readArrowStreamFromFile, session._jvm.ArrowIteratorServer
    )
    return DataFrame(python.toDataFrame(stream, schema.json(), session._jsparkSession), session)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return Arrow's form of a schema; instants are in UTC."""
    from pyspark.sql.pandas import types

    to_arrow: Any = types.to_arrow_schema
    if SparkVersion.of_pyspark().minor >= (4, 2):
        return to_arrow(schema, timezone="UTC")
    return to_arrow(schema)


def tried(session: SparkSession, value: Column) -> Column:
    """Return a value, null where its evaluation fails."""
    jvm: Any = session.sparkContext._jvm
    spark_sql = jvm.org.apache.spark.sql
    try_of = spark_sql.catalyst.expressions.TryEval
    if SparkVersion.of_pyspark().minor >= (4, 0):
        from pyspark.sql.classic.column import Column as ClassicColumn

        utils = spark_sql.classic.ExpressionUtils
        return ClassicColumn(utils.column(try_of(utils.expression(value._jc))))
    java_column: Any = value._jc
    of_java: Any = type(value)
    return of_java(spark_sql.Column(try_of(java_column.expr())))  # type: ignore[no-any-return]


def rows_of_plan(session: SparkSession, plan: Any) -> Any:
    """Return Java's frame of a logical plan."""
    spark_sql: Any = session._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    dataset = spark_sql.classic.Dataset if SparkVersion.of_pyspark().minor >= (4, 0) else spark_sql.Dataset
    return dataset.ofRows(session._jsparkSession, plan)
