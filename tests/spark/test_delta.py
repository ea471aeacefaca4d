"""Tables written by Ebbtide itself and by Spark in turn: after each write Spark, delta-rs and Ebbtide read the same rows."""

import random

import pyarrow as pa
import pytest
from delta import DeltaTable as SparkTable
from deltalake import DeltaTable, QueryBuilder
from pyroaring import BitMap64

from ebbtide.delta import vectors
from ebbtide.delta.commit import LocalPuts, commit
from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import add_file, create, read_file, read_rows
from ebbtide.errors import VersionTakenError
from ebbtide.ledger.puts import LogStorePuts

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("at", pa.timestamp("us", "UTC"))])
PUTS = LocalPuts()


class Both:
    """A table that two write, with what must be in it."""

    def __init__(self, spark, path, seed):
        self.spark, self.path, self.random = spark, path, random.Random(seed)
        self.rows, self.next_id, self.commits = {}, 0, 0
        properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
        create(PUTS, path, COLUMNS, properties, name="both", info={})

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
        """Add rows; replace and delete some by vectors."""
        snapshot = Snapshot.read(self.path)
        replaced, deleted = self.some(20), self.some(5)
        rows = pa.concat_tables([self.new_rows(30), self.valued(sorted(set(replaced) - set(deleted)))])
        actions = [add_file(self.path, f"ours-{self.commits}.parquet", rows, bounded=COLUMNS.names)]
        gone = {*replaced, *deleted}
        changed = []
        for file in snapshot.files.values():
            ids = read_file(self.path, file, COLUMNS, live=False)["id"].to_pylist()
            known = BitMap64() if file.vector is None else vectors.read(self.path, file.vector)
            found = BitMap64(i for i, each in enumerate(ids) if each in gone) - known
            if found:
                changed.append((file, known | found, len(ids)))
        kept = [(file, rows) for file, rows, size in changed if len(rows) < size]
        descriptors = vectors.write(self.path, [rows for _, rows in kept])
        actions += [file.removed(0, data_change=True) for file, _, _ in changed]
        actions += [file.with_vector(each, data_change=True) for (file, _), each in zip(kept, descriptors, strict=True)]
        commit(PUTS, self.path, snapshot.version + 1, actions, {"operation": "MERGE"})
        for each in gone:
            self.rows.pop(each, None)
        self.rows |= {row["id"]: row for row in rows.to_pylist()}

    def fold(self):
        """Join all files into one."""
        snapshot = Snapshot.read(self.path)
        rows = read_rows(snapshot, COLUMNS)
        self.commits += 1
        add = add_file(self.path, f"fold-{self.commits}.parquet", rows, bounded=COLUMNS.names, data_change=False)
        removes = [file.removed(0, data_change=False) for file in snapshot.files.values()]
        commit(PUTS, self.path, snapshot.version + 1, [add, *removes], {"operation": "OPTIMIZE"})

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

    def vacuum(self):
        self.sql("VACUUM {t} RETAIN 0 HOURS")

    def checkpoint(self):
        DeltaTable(self.path).create_checkpoint()

    def check(self):
        want = sorted(self.rows.values(), key=lambda row: row["id"])
        assert read_rows(Snapshot.read(self.path), COLUMNS).sort_by("id").to_pylist() == want
        spark_rows = self.spark.read.format("delta").load(self.path).orderBy("id").toArrow()
        assert spark_rows.cast(COLUMNS).to_pylist() == want
        if self.rows:
            theirs = QueryBuilder().register("t", DeltaTable(self.path)).execute("SELECT id, v FROM t").read_all()
            found = {row["id"]: row["v"] for row in pa.table(theirs).to_pylist()}
            assert found == {row["id"]: row["v"] for row in want}


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.grid) for seed in range(2, 8))])
def test_tables_that_two_write_hold_for_every_reader_what_they_must(spark, tmp_path, seed):
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.conf.set(
        "spark.sql.sources.parallelPartitionDiscovery.parallelism", "2"
    )  # 10,000 tasks for a VACUUM by default
    both = Both(spark, str(tmp_path / "t"), seed)
    theirs = [both.delete, both.update, both.insert, both.optimize, both.purge, both.vacuum, both.checkpoint]
    both.upsert()
    for _ in range(6):
        write = both.random.choice([both.upsert, both.upsert, both.fold])
        write()
        both.random.choice(theirs)()
        both.check()


def test_commits_go_through_the_log_store_of_delta_where_no_link_can_be_made(spark, tmp_path):
    table = str(tmp_path / "t")
    puts = LogStorePuts(table)
    create(puts, table, COLUMNS, {}, name="t", info={})
    rows = pa.table({"id": [1], "v": ["\u00e9\n"], "at": [0]}, COLUMNS)
    commit(puts, table, 1, [add_file(table, "f.parquet", rows, bounded=COLUMNS.names)], {"operation": "WRITE"})
    with pytest.raises(VersionTakenError):
        commit(puts, table, 1, [], {"operation": "WRITE"})
    assert spark.read.format("delta").load(table).select("id", "v").collect() == [(1, "\u00e9\n")]
