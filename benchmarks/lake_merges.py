"""The usual recipe with tables of Iceberg and Paimon: sides of `naive_merge.py`, each in an environment with the Spark that its package is for.

Iceberg: from_json, the newest change per key, MERGE into a table of format 3, whose deletes are vectors. Paimon ranks and deletes by itself: its table has
a sequence field and a field with the kind of a row, and changes are appended. Needs PySpark alone.

    uv run --no-project --with pyspark==4.1.1 python lake_merges.py iceberg SOURCE TARGET

Prints figures as JSON, and leaves the rows as Parquet files in TARGET/rows.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from harness import figures_of, tree_cpu_s
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

FILES_PER_STEP = 2
ROW = (
    "order_id BIGINT, customer_id BIGINT, status STRING, total DECIMAL(14,2), currency STRING, notes STRING, "
    "placed_at TIMESTAMP, updated_at BIGINT, ship_on INT, meta STRING, discount DECIMAL(14,2)"
)
RECORD = "topic STRING, partition INT, offset BIGINT, key STRING, value STRING"
EXTENSIONS = "spark.sql.extensions"
ICEBERG = {
    "spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.cache-enabled": "false",  # the stream has a session of its own
}
PAIMON = {
    "spark.jars.packages": "org.apache.paimon:paimon-spark-3.5:0.9.0",
    EXTENSIONS: "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.paimon.spark.SparkCatalog",
}
CREATE = {
    "iceberg": f"""
        CREATE TABLE lake.shop.orders ({ROW}) USING iceberg TBLPROPERTIES (
            'format-version' = '3', 'write.merge.mode' = 'merge-on-read', 'write.distribution-mode' = 'none'
        )""",
    "paimon": f"""
        CREATE TABLE lake.shop.orders ({ROW}, lsn BIGINT, kind STRING) TBLPROPERTIES (
            'primary-key' = 'order_id', 'bucket' = '2', 'sequence.field' = 'lsn', 'rowkind.field' = 'kind', 'deletion-vectors.enabled' = 'true'
        )""",
}


def main() -> None:
    """Run a side."""
    side, source, target = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spark = session({"iceberg": ICEBERG, "paimon": PAIMON}[side], target)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
    apply = {"iceberg": merge, "paimon": append}[side]
    ends = []
    wall, cpu = time.monotonic(), tree_cpu_s()
    spark.sql(CREATE[side])

    def step(batch: DataFrame, _: int) -> None:
        apply(parsed(batch))
        ends.append(tree_cpu_s())

    records = spark.readStream.schema(RECORD).option("maxFilesPerTrigger", FILES_PER_STEP).json(source)
    stream = records.writeStream.foreachBatch(step).option("checkpointLocation", str(target / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    figures = figures_of(time.monotonic() - wall, cpu, ends)
    spark.table("lake.shop.orders").coalesce(1).write.parquet(str(target / "rows"))
    print(json.dumps(figures))
    spark.stop()


def session(settings: dict[str, str], target: Path) -> SparkSession:
    """Start a session with as many partitions as cores."""
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "4g")
    more = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false", "spark.ui.enabled": "false"}
    more |= {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in {**settings, **more, "spark.sql.catalog.lake.warehouse": f"file://{target}/lake"}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def parsed(batch: DataFrame) -> DataFrame:
    """Return the changes of a micro-batch."""
    envelope = f"before STRUCT<{ROW}>, after STRUCT<{ROW}>, source STRUCT<lsn: BIGINT>, op STRING"
    events = batch.where("value IS NOT NULL").select(F.from_json("value", envelope).alias("e")).select("e.*")
    return events.where("op <> 't'").select("op", "source.lsn", F.coalesce("after", "before").alias("row"))


def merge(changes: DataFrame) -> None:
    """Merge the newest change per key into Iceberg's table."""
    newest = F.row_number().over(Window.partitionBy("row.order_id").orderBy(F.desc("lsn")))
    changes.withColumn("n", newest).where("n = 1").select("op", "row.*").createOrReplaceTempView("changes")
    names = [each.split(" ")[0] for each in ROW.split(", ")]
    values = ", ".join(f"s.{name}" for name in names)
    changes.sparkSession.sql(f"""
        MERGE INTO lake.shop.orders t USING changes s ON t.order_id = s.order_id
        WHEN MATCHED AND s.op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {", ".join(f"t.{name} = s.{name}" for name in names)}
        WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({", ".join(names)}) VALUES ({values})
    """)  # noqa: S608 - names of this module


def append(changes: DataFrame) -> None:
    """Append changes to Paimon's table."""
    kind = F.when(F.col("op") == "d", "-D").otherwise("+U")
    changes.select("row.*", "lsn", kind.alias("kind")).writeTo("lake.shop.orders").append()


if __name__ == "__main__":
    main()
