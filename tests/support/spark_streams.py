"""Functions that specs with `source: {type: spark, function: ...}` name. Their files are in the folder that the session's setting `spark.test.in` names."""

from inputs.retracting import KINDS
from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, name: str, schema: str) -> DataFrame:
    """Return the stream of a folder of files, a micro-batch each."""
    folder = f"{spark.conf.get('spark.test.in')}/{name}"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(folder)


def rows(spark: SparkSession) -> DataFrame:
    """Return rows of one folder."""
    return read(spark, "rows", "kind STRING, id BIGINT, n BIGINT, more STRING")


def joined(spark: SparkSession) -> DataFrame:
    """Return the join of two changelogs."""
    orders = read(spark, "orders", "kind STRING, id BIGINT, cid BIGINT, n BIGINT").alias("o")
    customers = read(spark, "customers", "kind STRING, cid BIGINT, name STRING").alias("c")
    return orders.join(customers, "cid").selectExpr(KINDS, "id", "o.n", "name")


def table(spark: SparkSession) -> DataFrame:
    """Return rows that are no stream."""
    return spark.range(1)


def failing(spark: SparkSession) -> DataFrame:
    """Return a stream that cannot be read."""
    return rows(spark).selectExpr("kind", "id", "raise_error('no such thing') AS n")


def broken(spark: SparkSession) -> DataFrame:
    """Raise an error."""
    raise KeyError("orders")
