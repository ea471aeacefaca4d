"""Tables written by Ebbtide itself and by Spark in turn: after each write Spark, delta-rs and Ebbtide read the same rows."""

import random

import pyarrow as pa
import pytest
from delta import DeltaTable as SparkTable
from deltalake import DeltaTable, QueryBuilder
from local.local_run import make_partitioned

from ebbtide.delta import DataFile, Definition, Snapshot, Transaction, Writer
from ebbtide.errors import DeltaLogError, VersionTakenError
from ebbtide.executors import InProcess
from ebbtide.ledger._writers import LogStoreWriter
from ebbtide.tables._replaced_rows import Upsert
from ebbtide.tables._upsert import Upserter

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("at", pa.timestamp("us", "UTC"))])
PUTS = Writer()


class Both:
    """A table that two write, with what must be in it."""

    def __init__(self, spark, path, seed, *partitioned):
        self.spark, self.path, self.random = spark, path, random.Random(seed)
        self.rows, self.next_id, self.commits = {}, 0, 0
        properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
        make_partitioned(path, Definition(COLUMNS, properties), *partitioned)
        self.upserter = Upserter(path, COLUMNS, ["id"], PUTS)
        self.kept = {}
        self.keep()

    def keep(self):
        """Remember what the newest version holds."""
        version = Snapshot.read(self.path).version
        self.kept[version] = {key: dict(row) for key, row in self.rows.items()}

    def new_rows(self, n):
        ids = list(range(self.next_id, self.next_id + n))
        self.next_id += n
        return self.valued(ids)

    def valued(self, ids):
        self.commits += 1
        values = [f"{self.commits}-{'x' * self.random.choice([0, 40])}" for _ in ids]
        return pa.table({"id": ids, "v": values, "at": [self.random.randrange(10**15) for _ in ids]}, COLUMNS)

    def some(self, n):
        return self.random.sample(sorted(self.rows), min(n, len(self.rows)))

    # What we write.
    def upsert(self):
        """Add rows, replace some, delete some."""
        replaced, deleted = self.some(20), self.some(5)
        rows = pa.concat_tables([self.new_rows(30), self.valued(sorted(set(replaced) - set(deleted)))])
        keys = pa.table({"id": sorted({*rows["id"].to_pylist(), *deleted, -1})})
        self.upserter.apply(Upsert(keys, rows), Transaction("app", self.commits, {"operation": "MERGE"}))
        for each in deleted:
            self.rows.pop(each, None)
        self.rows |= {row["id"]: row for row in rows.to_pylist()}

    def fold(self):
        """Join all small files."""
        self.upserter.fold(InProcess(), everything=True)

    # What others write.
    def sql(self, text):
        self.spark.sql(text.format(t=f"delta.`{self.path}`"))

    def delete(self):
        ids = self.some(7)
        self.sql(f"DELETE FROM {{t}} WHERE id IN ({', '.join(map(str, [-1, *ids]))})")
        for each in ids:
            del self.rows[each]

    def update(self):
        ids = self.some(7)
        self.sql(f"UPDATE {{t}} SET v = 'spark' WHERE id IN ({', '.join(map(str, [-1, *ids]))})")
        for each in ids:
            self.rows[each]["v"] = "spark"

    def insert(self):
        rows = self.new_rows(10)
        self.spark.createDataFrame(rows).write.format("delta").mode("append").save(self.path)
        self.rows |= {row["id"]: row for row in rows.to_pylist()}

    def optimize(self):
        SparkTable.forPath(self.spark, self.path).optimize().executeCompaction()

    def purge(self):
        self.sql("REORG TABLE {t} APPLY (PURGE)")

    def merge(self):
        rows = pa.concat_tables([self.new_rows(3), self.valued(self.some(4))])
        self.spark.createDataFrame(rows).createOrReplaceTempView("merged")
        self.sql(
            "MERGE INTO {t} t USING merged s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        self.rows |= {row["id"]: row for row in rows.to_pylist()}

    def restore(self):
        version = self.random.choice(sorted(self.kept))
        self.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")
        self.rows = {key: dict(row) for key, row in self.kept[version].items()}

    def vacuum(self):
        self.sql("VACUUM {t} RETAIN 0 HOURS")
        self.kept.clear()  # the files of older versions are gone

    def checkpoint(self):
        DeltaTable(self.path).create_checkpoint()

    def check(self):
        want = sorted(self.rows.values(), key=lambda row: row["id"])
        assert Snapshot.read(self.path).rows(COLUMNS).sort_by("id").to_pylist() == want
        spark_rows = self.spark.read.format("delta").load(self.path).orderBy("id").toArrow()
        assert spark_rows.cast(COLUMNS).to_pylist() == want
        if self.rows:
            theirs = QueryBuilder().register("t", DeltaTable(self.path)).execute("SELECT id, v FROM t").read_all()
            found = {row["id"]: row["v"] for row in pa.table(theirs).to_pylist()}
            assert found == {row["id"]: row["v"] for row in want}
        self.check_feed()

    def check_feed(self):
        """The change feed leads from each version that is kept to the newest one."""
        first = min(self.kept)
        rows = {key: row["v"] for key, row in self.kept[first].items()}
        newest = max(self.kept)
        if first == newest:
            return
        feed = self.spark.read.format("delta").option("readChangeFeed", "true")
        feed = feed.option("startingVersion", first + 1).option("endingVersion", newest).load(self.path)
        changes = feed.select("id", "v", "_change_type", "_commit_version").collect()
        is_new = {"insert": 1, "update_postimage": 1, "delete": 0, "update_preimage": 0}
        for change in sorted(changes, key=lambda each: (each["_commit_version"], is_new[each["_change_type"]])):
            if is_new[change["_change_type"]]:
                assert change["id"] not in rows
                rows[change["id"]] = change["v"]
            else:
                assert rows.pop(change["id"]) == change["v"]
        assert rows == {key: row["v"] for key, row in self.rows.items()}


@pytest.mark.parametrize("partitioned", [(), ("v",)], ids="_".join)
def test_table_that_two_write_in_turn_holds_for_every_reader_what_it_must(spark, tmp_path, partitioned):
    both = Both(spark, str(tmp_path / "t"), 1, *partitioned)
    for write in (both.upsert, both.delete, both.upsert, both.merge, both.fold):
        write()
        both.keep()
    both.check()


@pytest.mark.grid
@pytest.mark.parametrize("seed", [27, *range(1, 8)])
@pytest.mark.parametrize("partitioned", [(), ("v",)], ids="_".join)
def test_tables_that_two_write_at_random_hold_for_every_reader_what_they_must(spark, tmp_path, seed, partitioned):
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.conf.set(
        "spark.sql.sources.parallelPartitionDiscovery.parallelism", "2"
    )  # 10,000 tasks for a VACUUM by default
    both = Both(spark, str(tmp_path / "t"), seed, *partitioned)
    theirs = [both.delete, both.update, both.insert, both.merge, both.optimize]
    theirs += [both.purge, both.vacuum, both.checkpoint, both.restore]
    both.upsert()
    both.keep()
    for _ in range(6):
        write = both.random.choice([both.upsert, both.upsert, both.fold])
        write()
        both.random.choice(theirs)()
        both.keep()
        both.check()


def test_commits_go_through_the_log_store_of_delta_where_no_link_can_be_made(spark, tmp_path):
    table = str(tmp_path / "t")
    writer = LogStoreWriter(table)
    writer.create(table, Definition(COLUMNS), name="t", info={})
    rows = pa.table({"id": [1], "v": ["\u00e9\n"], "at": [0]}, COLUMNS)
    writer.commit_version(
        table, 1, [DataFile.write(table, "f.parquet", rows, bounded=COLUMNS.names)], {"operation": "WRITE"}
    )
    with pytest.raises(VersionTakenError):
        writer.commit_version(table, 1, [], {"operation": "WRITE"})
    assert spark.read.format("delta").load(table).select("id", "v").collect() == [(1, "\u00e9\n")]


@pytest.mark.grid
def test_data_files_are_those_that_spark_reads(spark, tmp_path):
    table = str(tmp_path / "t")
    for n in range(12):
        mode = "overwrite" if n == 5 else "append"
        spark.range(n, n + 3).coalesce(1).write.format("delta").mode(mode).save(table)
    assert any(path.name.endswith(".checkpoint.parquet") for path in (tmp_path / "t" / "_delta_log").iterdir())
    files = Snapshot.read(table).files.values()
    read = {path.removeprefix("file:") for path in spark.read.format("delta").load(table).inputFiles()}
    assert {file.location(table) for file in files} == read
    assert {(file.rows, file.least("id"), file.greatest("id")) for file in files} == {
        (3, n, n + 2) for n in range(5, 12)
    }
    commits = tmp_path / "t" / "_delta_log"
    (commits / f"{11:020d}.json").rename(commits / f"{12:020d}.json")
    with pytest.raises(DeltaLogError, match="1 missing"):
        Snapshot.read(table)
